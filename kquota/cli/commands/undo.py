"""`kquota undo`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kquota.cli import params, session
from kquota.cli.streams import ask, warn
from kquota.cli.views import View, check_sorting, show, shown_as
from kquota.errors import InputError

if TYPE_CHECKING:
    from kquota.access import Access
    from kquota.backends import QuotaBackend
    from kquota.documents.journal import Command, Entry, Pages


@click.command("undo")
@click.argument("id", required=False, shell_complete=params.completed_by("journal_ids"))
@click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")
@params.journal_option
@params.cluster_options
@shown_as("table", "json", takes_output=True)
def command(id: str | None, yes: bool, journal: Path, access: Access, output: str) -> int:
    """Revert an apply, an alter or a delete, or end a recording.

    ID is an entry of 'kquota history', or its fingerprint. Without an ID, undo reverts the last change of this cluster
    that is not undone yet. The entities get the values that they had before. When somebody else changed one of them
    since, undo reports a conflict and writes nothing. An apply that was killed is reverted as far as it got. For a
    'kquota record' that was killed, undo switches the request loggers back.

    \b
    Examples:
      kquota undo --bootstrap-server localhost:9092
      kquota undo 3f2a91c0d4e5 --yes
    """
    from kquota.changes import place_of, to_undo
    from kquota.documents.journal import Journal

    named = session.label(access)
    pages = Journal(journal).read()
    warn_unreadable(pages)
    with session.open_backend(access) as backend:
        entry = to_undo(pages, id, place_of(backend))
        if entry.levels:
            return switch_back(entry, access, named=named, journal=journal, yes=yes, output=output, command="undo")
        return take_back(entry, backend, named=named, journal=journal, yes=yes, output=output, command="undo")


def warn_unreadable(pages: Pages) -> None:
    """The files of the journal that are no entries, a line each on stderr."""
    for name, why in pages.unreadable:
        warn(f"{pages.folder / name} is no entry of the journal: {why}")


def switch_back(
    entry: Entry, access: Access, *, named: str, journal: Path, yes: bool, output: str, command: Command
) -> int:
    """Switches back the request loggers that a recording left on; returns the exit code."""
    from kquota.changes import now
    from kquota.cli import consent
    from kquota.cli.commands.record import SETTLED, complain, settled_table
    from kquota.documents.journal import Journal
    from kquota.documents.record import taken_back_document
    from kquota.recorder import take_back as switched

    if access.is_zookeeper:
        raise InputError(f"{entry.id} switched request loggers at {entry.cluster}", hint="give --bootstrap-server")
    check_sorting(SETTLED)
    nodes = ", ".join(str(change.node) for change in entry.levels)
    if not yes:
        ask(f"Switch the request loggers of {nodes} of {named} back?", done="switched", yes="switches back")
    consent.name_cluster(named)
    with session.open_broker_loggers(access) as loggers:
        settled = switched(entry, loggers, journal=Journal(journal), clock=now, command=command)
        noun = loggers.noun
    view = View(screen=lambda: [settled_table(settled, noun)], document=lambda: taken_back_document(entry, settled))
    show(view, output, written=True)
    return complain(settled, noun)


def take_back(
    entry: Entry, backend: QuotaBackend, *, named: str, journal: Path, yes: bool, output: str, command: Command
) -> int:
    """Applies the inverse of an entry's plan, as far as it is due; returns the exit code.

    What was there may be there again: of the review, the freezes alone are said.
    """
    from kquota import reconcile
    from kquota.backends import describe_entities
    from kquota.changes import now, with_freezes
    from kquota.cli import consent
    from kquota.cli.commands.apply import Terms, carry_out
    from kquota.core.change.review import related
    from kquota.documents.journal import Journal

    back = entry.made.inverse
    consent.check_cluster(back, backend)
    if not back:
        # What was no value is not restored. The journal knows from now on that nothing is left to take back.
        reconcile.apply(
            back,
            backend,
            journal=Journal(journal),
            cluster=entry.cluster,
            clock=now,
            command=command,
            undoes=entry.id,
        )
    around = [each for change in back.changes for each in related(change.entity)]
    terms = Terms(entry.cluster, named, journal, output, yes=yes, command=command, undoes=entry.id)
    return carry_out(with_freezes(back, describe_entities(backend, around)), backend, terms, {})
