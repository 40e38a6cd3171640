"""The end of apply, edit, undo and reconcile: shows a plan and its review, asks, writes, and says what came of it.

Undo and reconcile also switch back the request loggers of a recording; what became of each is a table.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from kquota import reconcile
from kquota.backends import QuotaBackend
from kquota.changes import place_of, unwritten
from kquota.cli import consent, leases, params, session
from kquota.cli.exit_codes import ExitCode, exit_code_of
from kquota.cli.plans import Labels, plan_view, summary
from kquota.cli.progress import Bar, progress
from kquota.cli.streams import Stop, ask, note, on_terminal, say, stoppable, warn
from kquota.cli.text import Column, entity_text, many, safe
from kquota.cli.views import Table, View, show, table_of
from kquota.core.change.plan import Action, ApplyReport, Change, Plan
from kquota.core.change.recording import Fate, Settled
from kquota.core.duration import duration
from kquota.core.quotas.alteration import AlterResult
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.documents.clusters import taken_back_document
from kquota.documents.journal import Command, Entry, name_of
from kquota.documents.plan import apply_document
from kquota.errors import InputError, KquotaError
from kquota.leases import Lease, Leases, kept, settles


@dataclass(frozen=True, kw_only=True)
class Terms(reconcile.Terms):
    """Also what the command line says: whose consent there is, and what is printed.

    `named` is the cluster for people. Plans that are applied one after the other share a `stop`: a signal during one is
    heeded before the next.
    """

    named: str
    writing: params.Writing
    stop: Stop = field(default_factory=Stop)


def terms_of(
    writing: params.Writing, command: Command = "apply", file: Path | None = None, why: str | None = None
) -> Terms:
    """The terms of a command line, with the journal opened. Raises as `Writing.open_journal` does."""
    return Terms(
        named=session.label(writing.access),
        cluster=session.cluster_name(writing.access),
        # The reason of a reconcile is the reason of the write that it takes back.
        journal=writing.open_journal(file, why, needs_reason=not writing.dry_run and command != "reconcile"),
        command=command,
        expires=None if writing.lasts_ms is None else reconcile.now() + writing.lasts_ms,
        writing=writing,
    )


def carry_out(
    planned: Plan,
    backend: QuotaBackend,
    terms: Terms,
    labels: Labels,
    keeps: Callable[[Leases], Sequence[Lease]] = lambda leases: (),
    already: Collection[Entity] = (),
) -> int:
    """Shows a plan and its review, asks, applies it, and says what came of it: the end of apply, undo and reconcile.

    `keeps` names the leases whose values are wanted as they are: they get the end of `terms`, or none. `already` are
    the entities that are as the plan wants them: nothing is due there.
    """
    writing = terms.writing
    consent.refuse(planned.objections, writing)
    due = replace(planned, changes=tuple(change for change in planned.changes if change.entity not in already))
    if writing.output == "table" or writing.dry_run:
        asks = on_terminal() and bool(due) and not (writing.yes or writing.dry_run)  # which says how many
        show(plan_view(due if writing.output == "table" else planned, labels, titled=not asks), writing.output)
    if already:
        note(f"{many(len(already), 'entity', 'entities')} already as planned")
    wanted: Sequence[Lease] = ()
    if terms.undoes is None:
        known = leases.known_leases(terms.journal, lambda: place_of(backend))
        wanted = keeps(known)
        leases.note_changed(wanted, known.ended_by(planned) if terms.expires is None else (), terms.expires)
    if writing.dry_run:
        consent.rehearse(planned.objections, writing)
        # What a reconcile ends later may lie below what it would end first.
        undoing, checks = terms.undoes is not None, terms.command != "reconcile"
        left_out = reconcile.rehearsed(planned, backend, undoing)[2] if checks else {}
        for entity, error in left_out.items():
            say(f"kquota: {entity_text(entity)}: {error.message}")
        return ExitCode.PARTIAL if left_out else ExitCode.OK
    if not due and not wanted:
        _show(ApplyReport(already=tuple(already)), planned, terms)
        return ExitCode.OK
    consent.heed(planned.objections, writing)
    if not writing.yes:
        changed = f"; {many(len(wanted), 'lease')} changed" if wanted else ""
        verb = "Undo that on" if terms.command == "undo" else "Apply to"
        ask(f"{verb} {terms.named} ({summary(due)}{changed})?", done="applied", yes="applies")
    consent.name_cluster(terms.named)
    with (
        progress("applying", shown=len(due.changes) > 1) as bar,
        stoppable(terms.stop),
        consent.says_what_may_be_written() as begun,
    ):
        watched = replace(
            terms,
            kept=terms.kept or kept(wanted),
            progress=bar,
            take_back=lambda done, total: _asked_to_take_back(bar, done, total, otherwise=terms.rollback),
            begun=begun,
        )
        try:
            report = reconcile.apply(planned, backend, watched)
        except KquotaError as error:
            raise unwritten(error) from None
    _show(report, planned, terms)
    note_lost(report.applied)
    changed_leases = len(wanted) if settles(terms.command, report.outcome) else 0
    back = "" if report.entry is None else params.way_back(name_of(report.entry), terms.writing.access, terms.journal)
    code = _conclude(report, terms.stop.exit_code, changed_leases, back)
    if report.outcome == "applied" and terms.expires is not None and (report.applied or wanted):
        leases.note_end(terms.expires, (), terms.writing.access, terms.journal.folder, dry_run=False)
    return code


def note_lost(made: Iterable[Change | AlterResult]) -> None:
    """Says of which values there is no way back, as they were none."""
    lost = [f"{one.entity} {key}" for one in made for key in QuotaKey if key in one.unusable]
    if lost:
        note(safe(f"'kquota undo' does not restore values that were not valid: {', '.join(lost)}"))


def _asked_to_take_back(bar: Bar, done: int, total: int, *, otherwise: bool) -> bool:
    """Whether a run that was stopped takes back what it wrote; without a terminal, as --no-rollback says or not."""
    bar.stop()
    if not on_terminal() or not sys.stderr.isatty():
        return otherwise
    try:
        return click.confirm(f"{done} of {total} entities are written. Take them back?", default=otherwise, err=True)
    except click.Abort:
        return False


def _conclude(report: ApplyReport, stopped: ExitCode = ExitCode.INTERRUPTED, kept: int = 0, back: str = "") -> int:
    """What came of it, on stderr, and the exit code; `kept` leases got another end, or none.

    `back` is the command that takes it back.
    """
    complaints = [(who, safe(error.whole.removeprefix(str(who)).lstrip(": "))) for who, error in report.failed]
    known = {entity for entity, _ in complaints}
    for what, entities in (("unknown", report.unknown), ("written, but not shown", report.unverified)):
        complaints += [(entity, what) for entity in entities if entity not in known]
    for entity, what in complaints[:_MOST_COMPLAINTS]:
        say(f"kquota: {entity_text(entity)}: {what}")
    if len(complaints) > _MOST_COMPLAINTS:
        say(f"kquota: and {len(complaints) - _MOST_COMPLAINTS} more")
    counts = {
        "applied": len(report.applied),
        "already there": len(report.already),
        "failed": len(report.failed),
        "not tried": len(report.skipped),
        "rolled back": len(report.rolled_back),
        "unknown": len(report.unknown),
    }
    parts = [many(count, f"entity {what}", f"entities {what}") for what, count in counts.items() if count]
    if deleted := sum(change.action is Action.DELETE for change in report.applied):
        parts[0] += f" ({deleted:,} deleted)"
    if kept and report.entry is not None:
        parts.append(f"{many(kept, 'lease')} changed")
    text = ", ".join(parts) or "nothing to do"
    entry = ""
    if report.entry is not None and (report.applied or report.unknown):
        again = "the same once more completes it, " if report.outcome != "applied" else ""
        entry = f"; {again}{back} takes it back"
    if report.unfinished is not None:
        say(f"kquota: {report.entry} stays unfinished: {report.unfinished}")
    if report.outcome == "applied":
        note(f"{text}{entry}")
        return ExitCode.OUTPUT if report.unfinished is not None else ExitCode.OK
    say(f"stopped: {text}{entry}" if report.interrupted else f"{text}{entry}")
    if report.interrupted:
        return stopped
    if report.outcome == "rolled back" and report.failed:
        return exit_code_of(report.failed[0][1])
    return ExitCode.PARTIAL


_MOST_COMPLAINTS = 20
"""A line for each of 10,000 entities says no more than that."""


def _show(report: ApplyReport, planned: Plan, terms: Terms) -> None:
    """What became of a plan, for programs; people read it on stderr, as it happens."""
    if terms.writing.output == "json":
        show(View(document=lambda: apply_document(report, planned)), "json")


# --- Recordings of requests ----------------------------------------------------------------------------------------


def switch_back(entry: Entry, terms: Terms) -> int:
    """Switches back the request loggers that a recording left on; returns the exit code."""
    from kquota.recorder import take_back as switched

    if terms.writing.access.is_zookeeper:
        raise InputError(f"{entry.id} switched request loggers at {entry.cluster}", hint="give --bootstrap-server")
    loggers_of = f"the request loggers of {', '.join(f'node {level.node}' for level in entry.levels)} at {terms.named}"
    writing = terms.writing
    if writing.dry_run:
        if writing.output == "json":
            raise click.UsageError("-o json --dry-run is for writes of quotas, and not for recordings")
        note(f"would switch {loggers_of} back (entry {entry.name})")
        return ExitCode.OK
    if not writing.yes:
        ask(f"Switch {loggers_of} back?", done="switched", yes="switches back")
    consent.name_cluster(terms.named)
    with session.open_broker_loggers(terms.writing.access) as loggers:
        settled = switched(entry, loggers, journal=terms.journal, clock=reconcile.now, command=terms.command)
        noun = loggers.noun
    view = View(screen=lambda: [settled_table(settled, noun)], document=lambda: taken_back_document(entry, settled))
    show(view, writing.output)
    return complain(settled, noun)


def settled_table(settled: Iterable[Settled], noun: str) -> Table:
    """What became of each node's logger."""
    return table_of(
        settled,
        [
            (Column(noun.upper(), style="cyan", whole=True), lambda logger: str(logger.node)),
            (Column("BEFORE"), lambda logger: logger.before),
            (Column("NOW"), lambda logger: logger.now or "?"),
            (Column("WAS ON FOR", number=True), lambda logger: duration(logger.on_ms) if logger.on_ms else "-"),
            (Column("OUTCOME"), lambda logger: logger.fate.value),
        ],
    )


def complain(settled: Iterable[Settled], noun: str) -> ExitCode:
    """Says which loggers are not as they were, a line each on stderr; the exit code is the gravest."""
    every = list(settled)
    lost = [logger for logger in every if not logger.fate.is_settled]
    foreign = [logger for logger in every if logger.fate is Fate.FOREIGN]
    for logger in lost:
        say(f"kquota: {noun} {logger.node}: {logger.fate.value}: {logger.error or f'the level is {logger.now}'}")
    for logger in foreign:
        warn(f"{noun} {logger.node}: somebody else set the logger to {logger.now} meanwhile: it is left so")
    if lost:
        return ExitCode.UNREACHABLE if len(lost) == len(every) else ExitCode.PARTIAL
    return ExitCode.CONFLICT if foreign else ExitCode.OK
