"""`kquota history`."""

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from kquota.cli import grammar, params, session
from kquota.cli.contexts import ADDRESSES, Given
from kquota.cli.exit_codes import ExitCode
from kquota.cli.leases import shown
from kquota.cli.options import argument, flag, instant, lasting, value
from kquota.cli.options import count as number_of
from kquota.cli.plans import plan_view
from kquota.cli.text import Column, entity_text, layout, many, moment
from kquota.cli.views import Document, Note, Part, Table, View, markdown_of, shown_as, table_of
from kquota.core.change.plan import Change
from kquota.core.quotas.quota import QuotaKey
from kquota.documents.derive import picked
from kquota.documents.journal import Entry, Journal, Pages, entry_document
from kquota.errors import KquotaError
from kquota.leases import Fate, Lease, by_place, settles
from kquota.leases import prune as pruned
from kquota.reconcile import now
from kquota.state import CLUSTER

_WIDE = 120
"""On a terminal of so many columns, each of who, when, what and why has its own."""


@grammar.command("history")
@shown_as("table", "json", "markdown")
def command(
    *,
    id: str | None = argument(required=False, shell_complete=params.completed_by("journal_ids")),
    since: float | None = value(
        "TIME", "Only what began from then on: 2026-01-31T12:00 (UTC), yesterday 12:00, or 1h ago, as 1h.", type=instant
    ),
    count: int | None = number_of("Only the newest N.", "-n"),
    about: params.Selection = params.ENTITIES,
    prune: int | None = lasting(
        "Delete the oldest entries, as 90d, up to the first that has a lease or no outcome; undo forgets them."
    ),
    leases: bool = flag("Only values and recordings that have still to end ('kquota help temporary')."),
    journal: Path = params.JOURNAL,
    given: Given = params.GIVEN,
) -> View:
    """Show kquota's writes, and what became of each.

    The newest write comes first; -o json has the oldest first. An address among the options shows the writes to that
    cluster alone; one in the environment or of a context narrows nothing. With an ID, what that one changed: its number
    in the first column, or its whole ID. A file of the journal that cannot be read is a warning, and hides no other;
    the exit code is 3 then.

    \b
    Examples:
      kquota history
      kquota history 24
      kquota history --since 1h --user alice
      kquota history --bootstrap-server broker1:9092
      kquota history --leases
      kquota history -o json
      kquota history --since yesterday -o markdown
    """
    book = _journal(journal, given)
    addressed = book.folder != CLUSTER and any(map(params.on_command_line, ADDRESSES))
    narrowed = addressed or leases or count is not None or since is not None or bool(about)
    if prune is not None:
        if narrowed:
            raise click.UsageError("--prune is for the whole journal: nothing that narrows it goes beside it")
        return View(screen=lambda: [Note(f"{many(len(pruned(book, now() - prune)), 'entry', 'entries')} deleted")])
    pages, time = book.read(), now()
    entries = pages.entries if id is None else (pages.entry(id),)
    if id is not None and narrowed:
        raise click.UsageError("an ID is one entry: no -n, --leases, --since, address or names of entities beside it")
    if addressed and (address := given.access().address):
        entries = pages.of(next((entry.place for entry in entries if entry.is_of(address)), address))
    by_entry: dict[str, list[Lease]] = {}
    concerned: dict[str, list[Lease]] = {}
    """As well by the entry that moved its end."""
    for lease in (lease for _, leases_there in by_place(pages.entries) for lease in leases_there.all):
        by_entry.setdefault(lease.entry.id, []).append(lease)
        for entry in filter(None, (lease.entry, lease.moved)):
            concerned.setdefault(entry.id, []).append(lease)
    entries = tuple(
        entry
        for entry in entries
        if (since is None or entry.started >= since) and (not about or _is_about(entry, about))
    )
    entries = entries if count is None else entries[-count:]
    if leases:
        on = {entry.id for entry in entries if entry.levels and pages.can_be_undone(entry)}  # which reconcile ends, too
        on |= {lease.entry.id for of_entry in by_entry.values() for lease in of_entry if lease.is_on}
        entries = tuple(entry for entry in entries if entry.id in on)

    def document() -> Document:
        unreadable = [{"file": name, "reason": why} for name, why in pages.unreadable]
        written = {"kind": "kquota.history", "version": 1, "entries": [*map(entry_document, entries)]}
        ends = [_lease(lease, time) for entry in entries for lease in by_entry.get(entry.id, ())]
        undone = [
            {"entry": entry.id, "by": [undo.id for undo in by], "whole": entry.id in pages.undone}
            for entry in entries
            if (by := pages.undone_by(entry))
        ]
        more = {"leases": ends, "undone": undone, "unreadable": unreadable}
        return written | {name: values for name, values in more.items() if values}

    def screen() -> Iterator[Part]:
        if entries:
            yield _table(entries, pages, concerned, time, about)
        elif pages.entries:
            yield Note(f"no entry of the journal {book.folder} is like that")
        else:
            others = "; journals of other people are not seen (--journal cluster is one for all of them)"
            yield Note(f"no entries in the journal {book.folder}{'' if book.folder == CLUSTER else others}")
        if id is not None:
            yield ""
            recording = next((entry for entry in pages.entries if entry.id == entries[0].undoes), entries[0])
            if recording.levels:
                yield _levels(recording)
            else:
                yield from plan_view(entries[0].plan, {}).parts("table")

    def page() -> Iterator[Part]:
        yield markdown_of(_table(entries, pages, concerned, time, about), aligned=False)
        if id is None and any(len(_changed(entry, about)) > 1 for entry in entries):
            yield "\n`kquota history ENTRY -o markdown` has all values of an entry."
        if id is not None:
            yield ""
            yield from plan_view(entries[0].plan, {}).parts("markdown")

    session.warn_unreadable(pages)
    code = ExitCode.INPUT if id is None and pages.unreadable else ExitCode.OK
    return View(screen=screen, document=document, code=code, others={"markdown": page})


def _journal(folder: Path, given: Given) -> Journal:
    """The journal of the options, else of the context. Nothing else of the cluster is needed for that of a folder."""
    try:
        access = given.access()
    except (click.UsageError, KquotaError):
        if folder == CLUSTER:
            raise
        return Journal(folder)
    return session.journal(folder, access)


def _is_about(entry: Entry, about: params.Selection) -> bool:
    """Whether one of its entities is meant."""
    entities = [change.entity for change in entry.plan.changes] + [entity for entity, _ in entry.kept]
    return any(map(about.covers, entities))


def _levels(entry: Entry) -> Table:
    """The request loggers that a recording switched."""
    return table_of(
        entry.levels,
        [
            (Column("NODE", style="cyan"), lambda change: str(change.node)),
            (Column("LEVEL BEFORE"), lambda change: change.before.name),
            (Column("LEVEL MEANWHILE"), lambda change: change.after),
        ],
    )


def _lease(lease: Lease, now: int) -> Document:
    """A lease as history's JSON has it; `by` is the entry that ended it."""
    state = "overdue" if lease.is_overdue(now) else lease.fate.value
    values = picked(lease, "entry=entry.id entity key value then ends")
    return {**values, "state": state, "by": None if lease.by is None else lease.by.id}


def _table(
    entries: Sequence[Entry],
    pages: Pages,
    leases: Mapping[str, Sequence[Lease]],
    now: int,
    about: params.Selection,
) -> Table:
    # Who, when, what and why stay on a narrow terminal: two of them in a column, and no word is broken.
    narrow = sys.stdout.isatty() and shutil.get_terminal_size().columns < _WIDE and not layout().sort_by
    several = len({entry.cluster for entry in entries}) > 1
    recorded = {entry.id: entry.levels for entry in pages.entries}
    messages, files = (any(getattr(entry, name) for entry in entries) for name in ("message", "file"))

    def outcome(entry: Entry) -> str:
        return _outcome(entry, pages, leases.get(entry.id, ()), now)

    def what(entry: Entry) -> str:
        loggers = recorded.get(entry.undoes or entry.id)
        return many(len(loggers), "logger") if loggers else _values(entry, about)

    def why(entry: Entry) -> tuple[str, ...]:
        where = (f"at {entry.cluster}",) if several else ()
        return f"{entry.command} {what(entry)}", entry.message or "", entry.file or "", *where

    return table_of(
        reversed(entries),
        [
            (Column("ENTRY", whole=True), lambda entry: entry.name),
            narrow and (Column("STARTED (UTC), BY", least=19), lambda entry: (moment(entry.started), entry.by or "-")),
            narrow and (Column("WHAT, WHY", least=25), why),
            not narrow and (Column("STARTED (UTC)", whole=True), lambda entry: moment(entry.started)),
            not narrow and (Column("COMMAND", spare=1), lambda entry: entry.command),
            not narrow and (Column("WHAT"), what),
            (Column("OUTCOME"), outcome),
            not narrow and messages and (Column("MESSAGE", spare=1), lambda entry: entry.message or "-"),
            not narrow and files and (Column("FILE", spare=2), lambda entry: entry.file or "-"),
            not narrow and (Column("BY", spare=2), lambda entry: entry.by or "-"),
            not (narrow and several)
            and (Column("CLUSTER", spare=3, whole=True, tells=True), lambda entry: entry.cluster),
            (Column("ID", whole=True, spare=4), lambda entry: entry.id),
        ],
    )


def _values(entry: Entry, about: params.Selection) -> str:
    """The first value that it changed, and how many more there are."""
    texts = []
    if values := _changed(entry, about):
        change, key = values[0]
        before, after = (shown(key, quotas.get(key)) for quotas in (change.before, change.after))
        texts.append(f"{entity_text(change.entity)} {key} {before} → {after}{_more(values)}")
    kept = [
        (entity, key) for entity, keys in sorted(entry.kept, key=lambda kept: not about.covers(kept[0])) for key in keys
    ]
    if kept and entry.command == "reconcile":
        texts.append(many(len(kept), "conflict"))
    elif kept:
        entity, key = kept[0]
        end = "permanent" if entry.expires is None else f"until {moment(entry.expires)}"
        texts.append(f"{entity_text(entity)} {key} {end}{_more(kept)}")
    return "; ".join(texts) or "nothing"


def _changed(entry: Entry, about: params.Selection) -> list[tuple[Change, QuotaKey]]:
    """The values that it changed, those that are asked `about` first."""
    changes = sorted(entry.plan.changes, key=lambda change: not about.covers(change.entity))
    return [(change, key) for change in changes for key in change.keys]


def _more(values: Sequence[object]) -> str:
    return f", +{len(values) - 1} more" if len(values) > 1 else ""


def _outcome(entry: Entry, pages: Pages, leases: Sequence[Lease], now: int) -> str:
    """What became of it: of a lease, whether and how it ended."""
    if entry.outcome == "rolled back":
        if entry.kept and settles(entry.command, entry.outcome):
            return "incomplete"
        return "switched back" if entry.levels else "rolled back"
    word = entry.outcome or "unfinished"
    by, undone = pages.undone_by(entry), ""
    if by:
        verb = "ended" if by[-1].command == "reconcile" else "undone"
        part = "" if entry.id in pages.undone else "in part "
        undone = f"{verb} {part}by {' and '.join(undo.name for undo in by)}"
    on = [lease for lease in leases if lease.is_on]
    if on:
        first = min(on, key=lambda lease: (lease.covered, lease.ends))
        state = f"{'overdue since' if first.is_overdue(now) else 'until'} {moment(first.ends)}"
        state += ", below another lease" if first.covered else ""
        state += f", {undone}" if undone else ""
        return state if word == "applied" else f"{word}, {state}"
    for fate in (Fate.CONFLICT, Fate.PERMANENT, Fate.OVERTAKEN, Fate.ENDED):
        last = next((lease.by for lease in leases if lease.fate is fate and lease.by is not None), None)
        if last is not None:
            at = f" {moment(last.started)}" if fate in (Fate.ENDED, Fate.CONFLICT) else ""
            more = f", {undone}" if undone and last not in by else ""
            return f"{fate.value}{at} by {last.name}{more}"
    if undone:
        return undone
    if entry.expires is not None and entry.levels and (word == "applied" or now < entry.expires):
        return f"{word}, until {moment(entry.expires)}"
    return word
