"""`kquota history`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kquota.cli import params
from kquota.cli.commands.undo import warn_unreadable
from kquota.cli.exit_codes import ExitCode
from kquota.cli.views import Document, Note, Part, Table, View, shown_as

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kquota.documents.journal import Entry, Pages


@click.command("history")
@click.argument("id", required=False, shell_complete=params.completed_by("journal_ids"))
@params.journal_option
@shown_as("table", "json")
def command(id: str | None, journal: Path) -> View:
    """Show the writes of kquota and kafka-configs, and what became of each.

    With an ID (or a fingerprint), what that one changed. A file of the journal that cannot be read is shown as
    such, and hides no other; the exit code is 3 then.

    \b
    Examples:
      kquota history
      kquota history 3f2a91c0d4e5
      kquota history -o json
    """
    from kquota.documents.journal import Journal, entry_document

    pages = Journal(journal).read()
    entries = pages.entries if id is None else (pages.entry(id),)

    def document() -> Document:
        unreadable = [{"file": name, "reason": why} for name, why in pages.unreadable]
        found = {"kind": "kquota.history", "version": 1, "entries": [*map(entry_document, entries)]}
        return found | ({"unreadable": unreadable} if unreadable else {})

    def screen() -> Iterator[Part]:
        if entries or pages.unreadable:
            yield _table(entries, pages, with_unreadable=id is None)
        else:
            yield Note("nothing was done yet")
        if id is not None:
            from kquota.cli.commands.plan import plan_view

            yield ""
            if entries[0].levels:
                yield _levels(entries[0])
            else:
                yield from plan_view(entries[0].plan, {}).parts("table")

    warn_unreadable(pages)
    code = ExitCode.INPUT if id is None and pages.unreadable else ExitCode.OK
    return View(screen=screen, document=document, code=code)


def _levels(entry: Entry) -> Table:
    """The request loggers that a recording switched."""
    from kquota.cli.text import Column

    return Table(
        [Column("NODE", style="cyan"), Column("LEVEL BEFORE"), Column("FOR A WHILE")],
        [(str(change.node), change.before.name, change.after) for change in entry.levels],
    )


def _table(entries: Sequence[Entry], pages: Pages, *, with_unreadable: bool) -> Table:
    from kquota.cli.text import Column, moment, safe
    from kquota.core.change.plan import Action

    def outcome(entry: Entry) -> str:
        word = "undone" if entry.id in pages.undone else entry.outcome or "unfinished"
        if entry.levels and word == "rolled back":
            return "switched back"
        return f"{word}, until {moment(entry.expires)}" if entry.expires is not None and word == "applied" else word

    return Table(
        [
            Column("ID", whole=True),
            Column("STARTED (UTC)", whole=True),
            Column("COMMAND", spare=1),
            Column("CLUSTER", spare=3),
            Column("CHANGES", whole=True, spare=2),
            Column("OUTCOME"),
        ],
        [
            (
                entry.id,
                moment(entry.started),
                entry.command,
                entry.cluster,
                f"{len(entry.levels)} loggers"
                if entry.levels
                else " ".join(f"{mark}{entry.plan.count(action)}" for mark, action in zip("+~-", Action, strict=True)),
                outcome(entry),
            )
            for entry in entries
        ]
        + [
            (safe(name.removesuffix(".json")), "", "", "", "", safe(f"unreadable: {why}"))
            for name, why in (pages.unreadable if with_unreadable else ())
        ],
    )
