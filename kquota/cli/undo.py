"""`kquota undo`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kquota.cli import params, session
from kquota.errors import InputError

if TYPE_CHECKING:
    from kquota.backends import QuotaBackend
    from kquota.documents.journal import Entry


@click.command("undo")
@click.argument("id", required=False)
@click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")
@params.journal_option
@params.cluster_options
@params.output_option("table", "json")
def command(id: str | None, yes: bool, journal: Path, output: str, **options: Any) -> int:
    """Take back what an apply did.

    ID is an entry of 'kquota history', or its fingerprint; without one, the last change of this cluster that is not
    undone. The entities get the values that they had before; one that somebody else changed since is a conflict, and
    then nothing is done. An apply that was killed is taken back as far as it got.

    \b
    Examples:
      kquota undo --bootstrap-server localhost:9092
      kquota undo 3f2a91c0d4e5 --yes
    """
    from kquota.documents.journal import Journal

    cluster = session.cluster_name(options)
    book = Journal(journal)
    entry = _last(book.entries(cluster), cluster) if id is None else book.entry(id)
    if entry.cluster != cluster:
        raise InputError(f"{entry.id} was done at {entry.cluster}, not at {cluster}")
    with session.open_backend(options) as backend:
        return take_back(entry, backend, journal=journal, yes=yes, output=output, command="undo")


def undone(entries: Sequence[Entry]) -> frozenset[str]:
    """The ids of the entries that were taken back."""
    return frozenset(entry.undoes for entry in entries if entry.undoes is not None and entry.outcome == "applied")


def _last(entries: Sequence[Entry], cluster: str) -> Entry:
    gone = undone(entries)
    for entry in reversed(entries):
        if entry.may_have_changed and entry.undoes is None and entry.id not in gone:
            return entry
    raise InputError(f"nothing to undo at {cluster}", hint="'kquota history' lists what was done")


def take_back(entry: Entry, backend: QuotaBackend, *, journal: Path, yes: bool, output: str, command: str) -> int:
    """Applies the inverse of an entry's plan, as far as it is due; returns the exit code."""
    from kquota.cli.apply import carry_out

    return carry_out(
        entry.plan.inverse,
        backend.describe(),
        backend=backend,
        labels={},
        cluster=entry.cluster,
        journal=journal,
        yes=yes,
        rollback=True,
        output=output,
        command=command,
        undoes=entry.id,
    )
