"""`kquota apply`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from kquota import reconcile
from kquota.access import Access
from kquota.backends import QuotaBackend, cluster_of
from kquota.changes import place_of, placed, unwritten
from kquota.cli import consent, grammar, params, session
from kquota.cli.commands.plan import Labels, plan_view, summary
from kquota.cli.exit_codes import ExitCode, exit_code_of
from kquota.cli.progress import Bar, progress
from kquota.cli.streams import Stop, ask, note, say, stoppable
from kquota.cli.text import entity_text, many, safe
from kquota.cli.views import DRY_RUN, Document, View, show, shown_as
from kquota.core.change.plan import Cluster, Plan, plan
from kquota.core.change.report import ApplyReport
from kquota.core.change.review import Guards, with_review
from kquota.documents.apply import apply_document
from kquota.documents.journal import Entry, Journal, name_of
from kquota.documents.plan import is_plan, read_plan
from kquota.documents.quotas import QuotaFile
from kquota.errors import Unreachable
from kquota.leases import Lease, Leases, kept, settles
from kquota.reconcile import now


@click.command("apply", cls=grammar.Command)
@click.argument("file", type=click.Path(path_type=Path))
@params.quota_file_options
@click.option("--yes", is_flag=True, help="Do not ask; needed where there is no terminal.")
@click.option(
    "--max-deleted",
    type=click.IntRange(0, 100),
    default=20,
    show_default=True,
    metavar="PERCENT",
    help="Refuse to delete more of the cluster's entities, where it has ten or more.",
)
@click.option(
    "--max-changed",
    type=click.IntRange(0, 100),
    default=50,
    show_default=True,
    metavar="PERCENT",
    help="Refuse to change or delete more of the cluster's entities, where it has ten or more.",
)
@click.option("--force", is_flag=True, help="Apply in spite of the review: 'kquota help review' lists what it lifts.")
@click.option("--dry-run", is_flag=True, help="Show what would change and write nothing.")
@params.lease_option("duration")
@params.message_option
@click.option("--no-rollback", is_flag=True, help="When something fails, leave what was done.")
@params.journal_option
@params.cluster_options
@shown_as("table", "json", takes_output=True)
def command(
    file: Path,
    prune: bool,
    cluster: str | None,
    yes: bool,
    max_deleted: int,
    max_changed: int,
    force: bool,
    dry_run: bool,
    duration: int | None,
    no_rollback: bool,
    journal: Path,
    access: Access,
    output: str,
) -> int:
    """Apply a quotas file, or a plan that 'kquota plan --out' kept.

    Shows the plan and its review ('kquota help review'), and asks. A saved plan is refused on another cluster, and when
    the cluster changed since the plan was made. All changes are validated before the first is written. When a change
    fails nevertheless, the changes before it are rolled back. The journal keeps the way back: 'kquota undo'.

    \b
    Examples:
      kquota apply quotas.yaml --bootstrap-server localhost:9092
      kquota apply plan.json --dry-run
      kquota apply plan.json --yes
      kquota apply quotas.yaml --prune --max-deleted 5
      kquota apply backfill.yaml --for 2h
    """
    quota_file: QuotaFile | None = None
    planned: Plan | None = None
    if is_plan(file):
        if prune or cluster is not None:
            raise click.UsageError("--prune and --cluster were decided when the plan was made")
        planned = read_plan(file)
        if access.address is None and planned.cluster is not None:
            raise click.UsageError(
                f"no cluster: the plan is for {planned.cluster.address}: give {_option_of(planned.cluster)}"
            )
    else:
        quota_file = session.load_quota_file(file, cluster)
    named = session.label(access)
    book = (
        Journal(journal)
        if dry_run
        else params.open_journal(journal, access, file, None if planned is None else planned.message)
    )
    with session.open_backend(access) as backend:
        try:
            current = backend.describe()
        except Unreachable as error:
            raise unwritten(error) from None
        session.warn_problems(current)
        guards = Guards(max_deleted / 100, max_changed / 100)
        if quota_file is not None:
            planned = plan(current, quota_file.desired, prune=prune, unmanaged=quota_file.unmanaged)
            planned = replace(planned, cluster=cluster_of(backend))
            guards = quota_file.guards(max_deleted / 100, max_changed / 100)
        assert planned is not None
        consent.check_cluster(planned, backend)

        def keeps(leases: Leases) -> Sequence[Lease]:
            if quota_file is None:
                return ()
            return leases.kept_by_quotas(quota_file.desired, current, prune=prune, unmanaged=quota_file.unmanaged)

        code = carry_out(
            placed(with_review(replace(planned, existing=len(current)), current, guards), backend),
            backend,
            Terms(
                journal=book,
                cluster=session.cluster_name(access),
                named=named,
                output=output,
                yes=yes,
                force=force,
                dry_run=dry_run,
                rollback=not no_rollback,
                expires=None if duration is None else now() + duration,
                access=access,
            ),
            quota_file.labels if quota_file is not None else {},
            keeps,
        )
    if dry_run:
        say(DRY_RUN)
    return code


def _option_of(cluster: Cluster) -> str:
    """The option that names the cluster of a plan."""
    scheme, _, servers = cluster.address.partition("://")
    option = {"zookeeper": "--zookeeper", "controller": "--bootstrap-controller"}.get(scheme, "--bootstrap-server")
    return f"{option} {servers}"


@dataclass(frozen=True, kw_only=True)
class Terms(reconcile.Terms):
    """Also with whose consent, and what is printed.

    With `dry_run`, the plan and its review are all. `named` is the cluster for people, and `access` the cluster for a
    line of cron. Plans that are applied one after the other share a `stop`: a signal during one is heeded before the
    next.
    """

    named: str
    output: str
    yes: bool = False
    force: bool = False
    dry_run: bool = False
    access: Access | None = None
    stop: Stop = field(default_factory=Stop)


def carry_out(
    planned: Plan,
    backend: QuotaBackend,
    terms: Terms,
    labels: Labels,
    keeps: Callable[[Leases], Sequence[Lease]] = lambda leases: (),
) -> int:
    """Shows a plan and its review, asks, applies it, and says what came of it: the end of apply, undo and reconcile.

    `keeps` names the leases whose values are wanted as they are: they get the end of `terms`, or none.
    """
    from kquota.cli import consent, leases

    consent.refuse(planned.objections, force=terms.force)
    if terms.output == "table" or terms.dry_run:
        show(plan_view(planned, labels), terms.output)
    wanted: Sequence[Lease] = ()
    if terms.undoes is None:
        known = leases.known_leases(terms.journal, lambda: place_of(backend))
        wanted = keeps(known)
        leases.note_planned(wanted, known.ended_by(planned) if terms.expires is None else (), terms.expires)
    if terms.dry_run:
        consent.rehearse(planned.objections, yes=terms.yes, force=terms.force)
        return ExitCode.OK
    if not planned and not wanted:
        if terms.output == "json":
            show(_view(ApplyReport(), planned), "json")
        return ExitCode.OK
    consent.heed(planned.objections, yes=terms.yes, force=terms.force)
    if not terms.yes:
        changed = f"; {many(len(wanted), 'lease')} changed" if wanted else ""
        verb = "Undo that on" if terms.command == "undo" else "Apply to"
        ask(f"{verb} {terms.named} ({summary(planned)}{changed})?", done="applied", yes="applies")
    consent.name_cluster(terms.named)
    begun: list[Entry] = []
    with progress("applying") as bar, stoppable(terms.stop), says_what_may_be_written(begun):
        watched = replace(
            terms,
            kept=terms.kept or kept(wanted),
            progress=bar,
            take_back=lambda done, total: _asked_to_take_back(bar, done, total, otherwise=terms.rollback),
            begun=begun.append,
        )
        report = reconcile.apply(planned, backend, watched)
    if terms.output == "json":
        show(_view(report, planned), "json")
    changed_leases = len(wanted) if settles(terms.command, report.outcome) else 0
    code = _conclude(report, terms.stop.exit_code, changed_leases, params.there(terms.access))
    if report.outcome == "applied" and terms.expires is not None and (report.applied or wanted):
        leases.note_end(terms.expires, (), terms.access, terms.journal.folder, dry_run=False)
    return code


@contextlib.contextmanager
def says_what_may_be_written(begun: Sequence[Entry]) -> Iterator[None]:
    """Whatever ends a run that has begun to write, its user learns of the way back."""
    try:
        yield
    except BaseException:
        for entry in begun:
            say(
                f"kquota: some of {len(entry.plan.changes)} changes may be written:"
                f" 'kquota undo {entry.name}' takes them back"
            )
        raise


def _asked_to_take_back(bar: Bar, done: int, total: int, *, otherwise: bool) -> bool:
    """Whether a run that was stopped takes back what it wrote; without a terminal, as --no-rollback says or not."""
    bar.stop()
    if sys.stdin is None or not sys.stdin.isatty() or not sys.stderr.isatty():
        return otherwise
    try:
        return click.confirm(f"{done} of {total} entities are written. Take them back?", default=otherwise, err=True)
    except click.Abort:
        return False


def _conclude(report: ApplyReport, stopped: ExitCode = ExitCode.INTERRUPTED, kept: int = 0, there: str = "") -> int:
    """What came of it, on stderr, and the exit code; `kept` leases got another end, or none.

    `there` are the options of the cluster, for the command that takes it back.
    """
    complaints = [(entity, safe(error.message)) for entity, error in report.failed]
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
    said = [f"{count} {what}" for what, count in counts.items() if count]
    if kept and report.entry is not None:
        said.append(f"{many(kept, 'lease')} changed")
    text = ", ".join(said) or "nothing to do"
    entry = ""
    if report.entry is not None and (report.applied or report.unknown):
        again = "the same once more completes it, " if report.outcome != "applied" else ""
        entry = f"; {again}'kquota undo {name_of(report.entry)}{there}' takes it back"
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


def _view(report: ApplyReport, planned: Plan) -> View:
    """What became of a plan; people read it on stderr, as it happens."""

    def document() -> Document:
        return apply_document(report, planned)

    return View(document=document)
