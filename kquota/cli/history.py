"""`kquota history`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kquota.cli import params
from kquota.cli.streams import note

if TYPE_CHECKING:
    from kquota.documents.journal import Entry


@click.command("history")
@click.argument("id", required=False)
@params.journal_option
@params.output_option("table", "json")
def command(id: str | None, journal: Path, output: str) -> None:
    """Show what apply, alter, undo and reconcile did, and what became of it.

    With an ID (or a fingerprint), what that one changed.

    \b
    Examples:
      kquota history
      kquota history 3f2a91c0d4e5
      kquota history -o json
    """
    from kquota.documents.journal import Journal, entry_document

    book = Journal(journal)
    entries = book.entries() if id is None else (book.entry(id),)
    if output == "json":
        from kquota.documents.encoding import to_json

        click.echo(
            to_json({"kind": "kquota.history", "version": 1, "entries": [*map(entry_document, entries)]}), nl=False
        )
        return
    if not entries:
        note("nothing was done yet")
        return
    _print(entries)
    if id is not None:
        from kquota.cli.plan import print_plan

        click.echo()
        print_plan(entries[0].plan, {}, "table")


def _print(entries: tuple[Entry, ...]) -> None:
    from kquota.changes import undone
    from kquota.cli.text import Column, moment, print_table
    from kquota.core.plan import Action

    gone = undone(entries)

    def outcome(entry: Entry) -> str:
        word = "undone" if entry.id in gone else entry.outcome or "unfinished"
        return f"{word}, until {moment(entry.expires)}" if entry.expires is not None and word == "applied" else word

    print_table(
        [
            Column("ID", whole=True),
            Column("STARTED (UTC)", whole=True),
            Column("COMMAND"),
            Column("CLUSTER"),
            Column("CHANGES", whole=True),
            Column("OUTCOME"),
        ],
        [
            (
                entry.id,
                moment(entry.started),
                entry.command,
                entry.cluster,
                " ".join(f"{mark}{entry.plan.count(action)}" for mark, action in zip("+~-", Action, strict=True)),
                outcome(entry),
            )
            for entry in entries
        ],
    )
