"""Applying a plan: re-read, compare, validate all, journal, alter, verify, and roll back when something fails.

Kafka has no transaction over several entities; what comes nearest is made here. Each change expects its entity to be as
the plan found it; before the first write the journal holds the way back; after a failure this run takes back its own
writes. ZooKeeper compares and sets, so no other writer is overwritten there. Brokers do not: kquota compares just
before each write, and its own writers on one host wait for each other.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from kquota.backends import QuotaBackend, describe_entities
from kquota.core.change.plan import ApplyReport, Change, Plan, still_due
from kquota.core.quotas.alteration import Alteration, AlterResult, unexpected
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import differ
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.tabular import grouped
from kquota.documents.journal import Command, Entry, Journal, Kept
from kquota.errors import Conflict, InputError, KquotaError, Stopped, Uncertain

_BATCH = 1000
"""About so many entities lie between two steps; the backends cut requests at the servers' own limits."""
_VISIBLE_S = 30.0

Progress = Callable[[int, int], None]
"""Called with how many entities are done, of how many."""
TakeBack = Callable[[int, int], bool]
"""Asked when a run was stopped after so many entities, of how many: whether they get their old values again."""


def now() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, kw_only=True)
class Terms:
    """On which terms changes are made: what the journal says of them, and who is heard meanwhile.

    `cluster` is the address by which the journal knows the cluster. `undoes` is the entry that is taken back, and
    `part` the values of it that are, where not all are. `expires` is when `kquota reconcile` takes this one back, in ms
    since the epoch. `kept` are leased values that stay: they get another end by this entry, which is made for them
    alone as well.

    `stop` is asked while another writer is waited for, and before each batch of 1,000 entities; what is written by then
    is taken back as after a failure (`rollback`), or as `take_back` decides. `begun` gets the journal's entry before
    the first write.
    """

    journal: Journal
    cluster: str
    command: Command = "apply"
    expires: int | None = None
    undoes: str | None = None
    kept: Kept = ()
    part: Kept = ()
    rollback: bool = True
    clock: Callable[[], int] = now
    progress: Progress = lambda done, total: None
    stop: Callable[[], bool] = lambda: False
    take_back: TakeBack | None = None
    begun: Callable[[Entry], None] = lambda entry: None

    def begin(self, due: Plan) -> Entry:
        """Writes down in the journal what is about to be done."""
        draft = Entry("", self.cluster, self.command, self.clock(), due, expires=self.expires, undoes=self.undoes)
        return self.journal.begin(replace(draft, kept=self.kept, part=self.part))

    def finished(self, report: ApplyReport, entry: Entry) -> ApplyReport:
        """The report, with the journal's complaint where it does not know what came of it."""
        error = str(report.failed[0][1]) if report.failed else "stopped by a signal" if report.interrupted else None
        remains = {*report.unknown, *(change.entity for change in report.applied)}
        untouched = tuple(change.entity for change in entry.plan.changes if change.entity not in remains)
        try:
            self.journal.finish(
                entry, report.outcome, now=self.clock(), error=error, untouched=untouched, unknown=report.unknown
            )
        except KquotaError as problem:
            return replace(report, unfinished=problem.message)
        return report


def apply(plan: Plan, backend: QuotaBackend, terms: Terms) -> ApplyReport:
    """Makes the changes of the plan that are still due.

    Where something is taken back, entities whose old values kquota does not write are left out, and among the failed
    ones; where nothing is left to take back, the journal gets an entry without changes.

    Raises Conflict when an entity is neither as the plan found it nor as it wants it. Raises the error of the first
    change that the cluster would refuse, and what the backend or the journal raises before the first write. Nothing has
    been written then. What happens afterwards is in the report and in the journal.
    """
    undoing, stop = terms.undoes is not None, terms.stop
    with contextlib.ExitStack() as writing:
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(backend.alone(stop))
            except Stopped:
                return ApplyReport(skipped=tuple(change.entity for change in plan.changes), interrupted=True)
            due, already, unwritable = rehearsed(plan, backend, undoing)
            if not due:
                if not undoing and not terms.kept:
                    return ApplyReport(already=already)
                # Nothing is left to write: the journal knows by this entry that something was taken back, or ends.
                entry = terms.begin(due)
                return terms.finished(ApplyReport(already=already, entry=entry.id), entry)
            if stop():
                left = tuple(change.entity for change in plan.changes if change.entity not in already)
                return ApplyReport(already=already, skipped=left, interrupted=True)
            entry = terms.begin(due)
            writing.callback(terms.journal.release, entry)
            terms.begun(entry)
            run = _Run(due.changes, backend)
            run.write(stop, terms.progress)
            asks = terms.take_back if run.stopped and run.written else None
            if asks is None:
                report = run.ended(terms.rollback) if run.failed or run.stopped else run.verified()
        if asks is not None:
            # Not in the turn: no other writer waits for a person. A rival's write in between is not overwritten.
            report = _ended(run, rollback=asks(len(run.written), len(due.changes)))
        failed = (*report.failed, *unwritable.items())
        report = replace(report, already=(*already, *report.already), failed=failed, entry=entry.id)
        return terms.finished(report, entry)


def _ended(run: _Run, *, rollback: bool) -> ApplyReport:
    """The report of a run that was stopped; it stays as it is where another writer does not let it have a turn."""
    with contextlib.ExitStack() as stack:
        if rollback:
            try:
                stack.enter_context(run.backend.alone())
            except KquotaError:
                rollback = False
        return run.ended(rollback)


def _writable(plan: Plan) -> tuple[Plan, dict[Entity, KquotaError]]:
    """The part of a plan that kquota can write; and the other entities, such as with a 0 that a broker had stored."""
    unwritable: dict[Entity, KquotaError] = {}
    for change in plan.changes:
        try:
            change.alteration  # noqa: B018
        except InputError as error:
            unwritable[change.entity] = InputError(f"{change.entity}: {error.message}", hint=error.hint)
    changes = tuple(change for change in plan.changes if change.entity not in unwritable)
    return replace(plan, changes=changes), unwritable


def rehearsed(
    plan: Plan, backend: QuotaBackend, undoing: bool
) -> tuple[Plan, tuple[Entity, ...], dict[Entity, KquotaError]]:
    """What `apply` would write, what is there already, and what an undo has to leave out. Raises as `apply` does."""
    current = _shown(backend, plan.changes)
    due, conflicts = still_due(plan, current)
    if conflicts:
        first = next(change for change in plan.changes if change.entity in conflicts)
        values = current.get(first.entity, {})
        is_now = unexpected(values, first.before, first.unexpected_in(values))
        more = f"; and so were {len(conflicts) - 1} more" if len(conflicts) > 1 else ""
        raise Conflict(
            f"{first.entity} was changed since the plan was made: {is_now}{more}; nothing is written",
            hint="plan anew; 'kquota history' shows the write, if this journal has it",
        )
    pending = {change.entity for change in due.changes}
    already = tuple(change.entity for change in plan.changes if change.entity not in pending)
    due, unwritable = _writable(due) if undoing else (due, {})
    if due:
        due, refused = _validated(due, backend, undoing)
        unwritable |= refused
    elif unwritable:
        raise next(iter(unwritable.values()))
    return due, already, unwritable


def _validated(due: Plan, backend: QuotaBackend, undoing: bool) -> tuple[Plan, dict[Entity, KquotaError]]:
    """The plan after a dry run, with the forms of the store and its values that are none; and what an undo leaves out.

    Raises the first error of the cluster, but for values that an undo cannot restore there while it can others.
    """
    stored: dict[Entity, AlterResult] = {}
    refused: dict[Entity, KquotaError] = {}
    for result in backend.alter([change.alteration for change in due.changes], validate_only=True):
        if undoing and isinstance(result.error, InputError):
            refused[result.entity] = result.error
        elif result.error is not None:
            raise type(result.error)(f"nothing was written: {result.error.message}", hint=result.error.hint)
        stored[result.entity] = result
    for change in due.changes:
        if change.entity in refused and change.restores is not None:
            text = f"{change.entity}: brokers do not take back what ZooKeeper held ({refused[change.entity].message})"
            refused[change.entity] = InputError(f"{text}: undo it with --zookeeper")
    if len(refused) == len(due.changes):
        raise next(iter(refused.values()))
    kept = [(change, stored[change.entity]) for change in due.changes if change.entity not in refused]
    changes = (replace(change, form=store.form, unusable=change.unusable | store.unusable) for change, store in kept)
    return replace(due, changes=tuple(changes)), refused


_Each = TypeVar("_Each", Change, Alteration)


def _batches(writes: Sequence[_Each]) -> Iterator[list[_Each]]:
    """Parts of about so many entities, a user never apart from its pairs.

    In ZooKeeper the pairs are nodes below the user's, which can go only together with the last of them.
    """
    groups = grouped(writes, lambda write: write.entity.user or write.entity)
    batch: list[_Each] = []
    for group in groups.values():
        if batch and len(batch) + len(group) > _BATCH:
            yield batch
            batch = []
        batch.extend(group)
    if batch:
        yield batch


def _shown(backend: QuotaBackend, changes: Sequence[Change]) -> QuotaSnapshot:
    """What the cluster shows of the entities of the changes."""
    return describe_entities(backend, [change.entity for change in changes])


@dataclass
class _Run:
    """One run over the changes: what the cluster answered to each."""

    changes: Sequence[Change]
    backend: QuotaBackend
    written: dict[Entity, AlterResult] = field(default_factory=dict)
    """The writes that the cluster confirmed: those of this run, and nobody else's."""
    already: set[Entity] = field(default_factory=set)
    """Another writer gave them the wanted values meanwhile."""
    failed: dict[Entity, KquotaError] = field(default_factory=dict)
    stopped: bool = False

    def write(self, stop: Callable[[], bool], progress: Progress) -> None:
        """Alters batch by batch, until one fails or `stop` says so."""
        done = 0
        for batch in _batches(self.changes):
            if stop():
                self.stopped = True
                return
            try:
                answers = self.backend.alter([change.alteration for change in batch])
            except KquotaError as error:
                self.failed.update((change.entity, error) for change in batch)
                return
            self.written.update((answer.entity, answer) for answer in answers if answer.error is None)
            errors = {answer.entity: answer.error for answer in answers if answer.error is not None}
            self._heed(batch, errors)
            if self.failed:
                return
            done += len(batch)
            progress(done, len(self.changes))

    def _heed(self, batch: Sequence[Change], errors: Mapping[Entity, KquotaError]) -> None:
        """A conflict with a writer who wanted the same is none."""
        doubtful = [change for change in batch if isinstance(errors.get(change.entity), Conflict)]
        if doubtful:
            with contextlib.suppress(KquotaError):
                looks = [replace(change.alteration, expect=change.after) for change in doubtful]
                seen = self.backend.alter(looks, validate_only=True)
                self.already.update(look.entity for look in seen if look.error is None)
        self.failed.update((entity, error) for entity, error in errors.items() if entity not in self.already)

    @property
    def _applied(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.entity in self.written)

    def verified(self) -> ApplyReport:
        """The report of a run without failure: a describe must show all that was written."""
        try:
            unverified = self.backend.wait_visible(self.written.values(), timeout_s=_VISIBLE_S)
        except KquotaError:
            unverified = tuple(change.entity for change in self.changes)
        return ApplyReport(self._applied, already=tuple(self.already), unverified=unverified)

    def ended(self, rollback: bool) -> ApplyReport:
        """The report of a run that did not get through; with `rollback` its own writes are taken back first.

        Only confirmed writes are its own. Where an answer was lost nobody knows, and nothing is taken back.
        """
        taken_back: set[Entity] = set()
        lost: set[Entity] = set()
        unknown = {entity for entity, error in self.failed.items() if isinstance(error, Uncertain)}
        if rollback:
            for entity, error in self._take_back().items():
                if isinstance(error, Uncertain):
                    unknown.add(entity)
                elif error is None:
                    taken_back.add(entity)
                elif isinstance(error, Conflict):
                    self.failed[entity] = Conflict(f"{entity}: somebody else wrote it since: it was not taken back")
                    lost.add(entity)
            unknown |= self._left_of(lost)
        gone = taken_back | unknown | self.failed.keys()
        tried = gone | self.written.keys() | self.already
        return ApplyReport(
            applied=tuple(change for change in self._applied if change.entity not in gone),
            already=tuple(self.already),
            failed=tuple(self.failed.items()),
            skipped=tuple(change.entity for change in self.changes if change.entity not in tried),
            rolled_back=tuple(change.entity for change in self.changes if change.entity in taken_back),
            unknown=tuple(change.entity for change in self.changes if change.entity in unknown),
            interrupted=self.stopped,
        )

    def _left_of(self, entities: Collection[Entity]) -> set[Entity]:
        """Those of the entities of another writer where a value of this run may still stand.

        The other may have set other keys alone, or the same value anew: nobody can tell. Where all values of this run
        are gone, nothing is left.
        """
        changes = [change for change in self._applied if change.entity in entities]
        try:
            shown = _shown(self.backend, changes) if changes else QuotaSnapshot({})
        except KquotaError:
            return set(entities)
        return {
            change.entity
            for change in changes
            for values in [shown.get(change.entity, {})]
            if any(not differ(values.get(key), change.after.get(key)) for key in change.keys)
        }

    def _take_back(self) -> dict[Entity, KquotaError | None]:
        """What came of giving the entities that this run wrote their old values again, as far as it was tried."""
        back = []
        for change in self._applied:
            if not change.is_reversible:
                continue
            revision = self.written[change.entity].revision
            with contextlib.suppress(InputError):  # a stored value that kquota does not write, such as 0
                back.append(replace(change.inverse.alteration, expect_revision=revision))
        outcome: dict[Entity, KquotaError | None] = {}
        for batch in _batches(back):
            try:
                outcome.update((result.entity, result.error) for result in self.backend.alter(batch))
            except KquotaError as error:
                outcome.update((alteration.entity, error) for alteration in batch)
                break
        return outcome
