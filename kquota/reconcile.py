"""Applying a plan: re-read, compare, validate all, journal, alter, verify, and roll back when something fails.

Kafka has no transaction over several entities; what comes nearest is made here. Each change expects its entity to be as
the plan found it, so what another writer did is never overwritten; before the first write the journal holds the way
back; after a failure what was done is taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kquota.backends import QuotaBackend, describe_entities
from kquota.core.alteration import AlterResult
from kquota.core.entity import Entity
from kquota.core.plan import Change, Plan, still_due
from kquota.core.report import ApplyReport
from kquota.core.snapshot import QuotaSnapshot
from kquota.documents.journal import Command, Journal
from kquota.errors import Conflict, InputError, KquotaError, Uncertain

_BATCH = 1000
"""Entities between two steps of the progress; the backends cut requests at the servers' own limits."""
_VISIBLE_S = 30.0

Progress = Callable[[int, int], None]
"""Called with how many entities are done, of how many."""


def apply(
    plan: Plan,
    backend: QuotaBackend,
    *,
    journal: Journal,
    cluster: str,
    clock: Callable[[], int],
    command: Command = "apply",
    expires: int | None = None,
    undoes: str | None = None,
    rollback: bool = True,
    progress: Progress = lambda done, total: None,
) -> ApplyReport:
    """Makes the changes of the plan that are still due.

    `clock` gives ms since the epoch. Raises Conflict when an entity is neither as the plan found it nor as it wants it,
    the error of the first change that the cluster would refuse, and what the backend raises before the first write:
    nothing has been written then. What happens afterwards is in the report and in the journal.
    """
    due, conflicts = still_due(plan, _shown(backend, plan.changes))
    if conflicts:
        named = ", ".join(map(str, conflicts[:3])) + (f" and {len(conflicts) - 3} more" if len(conflicts) > 3 else "")
        raise Conflict(f"changed by somebody else in the meantime: {named}", hint="look at them and plan anew")
    pending = {change.entity for change in due.changes}
    already = tuple(change.entity for change in plan.changes if change.entity not in pending)
    if not due:
        return ApplyReport(already=already)
    for result in backend.alter([change.alteration for change in due.changes], validate_only=True):
        if result.error is not None:
            raise type(result.error)(f"nothing was written: {result.error.message}", hint=result.error.hint)
    entry = journal.begin(due, cluster=cluster, command=command, now=clock(), expires=expires, undoes=undoes)
    report = replace(_run(due.changes, backend, rollback, progress), already=already)
    error = str(report.failed[0][1]) if report.failed else None
    journal.finish(entry, report.outcome, now=clock(), error=error)
    return replace(report, entry=entry.id)


def _run(changes: Sequence[Change], backend: QuotaBackend, rollback: bool, progress: Progress) -> ApplyReport:
    """Alters until something fails; then finds out what is there, and takes back what was done."""
    results: list[AlterResult] = []
    failed: list[tuple[Entity, KquotaError]] = []
    for start in range(0, len(changes), _BATCH):
        batch = changes[start : start + _BATCH]
        try:
            answers = backend.alter([change.alteration for change in batch])
        except KquotaError as error:
            failed = [(change.entity, error) for change in batch]
            break
        results += answers
        failed = [(result.entity, result.error) for result in answers if result.error is not None]
        if failed:
            break
        progress(len(results), len(changes))
    if failed:
        return _after_failure(changes, backend, failed, rollback)
    return ApplyReport(applied=tuple(changes), unverified=_unverified(changes, results, backend))


def _unverified(changes: Sequence[Change], results: Sequence[AlterResult], backend: QuotaBackend) -> tuple[Entity, ...]:
    """The entities that a describe does not show as they were written."""
    try:
        backend.wait_visible(results, timeout_s=_VISIBLE_S)
        shown = _shown(backend, changes)
    except KquotaError:
        return tuple(change.entity for change in changes)
    return tuple(change.entity for change in changes if not change.is_made(shown.get(change.entity, {})))


def _shown(backend: QuotaBackend, changes: Sequence[Change]) -> QuotaSnapshot:
    """What the cluster shows of the entities of the changes."""
    return describe_entities(backend, [change.entity for change in changes])


def _after_failure(
    changes: Sequence[Change], backend: QuotaBackend, failed: Sequence[tuple[Entity, KquotaError]], rollback: bool
) -> ApplyReport:
    """What is there now decides, not what was answered: an answer may have been lost."""
    uncertain = {entity for entity, error in failed if isinstance(error, Uncertain)}
    try:
        shown = _shown(backend, changes)
    except KquotaError:
        return ApplyReport(failed=tuple(failed), unknown=tuple(change.entity for change in changes))
    made = [change for change in changes if change.is_made(shown.get(change.entity, {}))]
    there = {change.entity for change in made}
    unknown = tuple(
        change.entity
        for change in changes
        if change.entity not in there
        and (change.entity in uncertain or not change.is_due(shown.get(change.entity, {})))
    )
    known = there | {*unknown} | {entity for entity, _ in failed}
    taken_back = _take_back(made, backend) if rollback else set()
    return ApplyReport(
        applied=tuple(change for change in made if change.entity not in taken_back),
        failed=tuple((entity, error) for entity, error in failed if entity not in there),
        skipped=tuple(change.entity for change in changes if change.entity not in known),
        rolled_back=tuple(change.entity for change in made if change.entity in taken_back),
        unknown=unknown,
    )


def _take_back(made: Sequence[Change], backend: QuotaBackend) -> set[Entity]:
    """The entities that have their old values again."""
    back = []
    for change in made:
        try:
            back.append(change.inverse.alteration)
        except InputError:  # a stored value that kquota does not write, such as 0
            continue
    try:
        return {result.entity for result in backend.alter(back) if result.error is None}
    except KquotaError:
        return set()
