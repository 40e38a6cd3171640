"""Alter: operations on single keys, in requests of a size that clusters take, answers found by their entity."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kquota.backends import wire
from kquota.backends.kafka.codes import NETWORK_EXCEPTION, NONE, REQUEST_TIMED_OUT, error_of, is_transient
from kquota.backends.kafka.connection import Deadline
from kquota.backends.kafka.quotas import Stored, alter_entry, check_names
from kquota.backends.kafka.session import ATTEMPTS, PAUSE_S, Session, Unanswered
from kquota.backends.kafka.turns import Wrote
from kquota.core.quotas.alteration import Alteration, AlterResult, merge
from kquota.core.quotas.entity import DEFAULT, Entity
from kquota.core.quotas.quota import QuotaKey, differ
from kquota.core.quotas.snapshot import Values
from kquota.core.quotas.version import ignored
from kquota.errors import KquotaError, Rejected, Unauthorized, Uncertain, Unreachable

# A controller refuses a request of more operations as a whole, with POLICY_VIOLATION
# (`QuorumController.MAX_RECORDS_PER_USER_OP`).
OPS_PER_REQUEST: Final = 10_000
# A broker in ZooKeeper mode writes entity by entity, 2.5 ms each: the answer must come before the time-out.
_OPS_WITH_ZOOKEEPER: Final = 1_000
# Far below socket.request.max.bytes (100 MB); reached with names of a kilobyte.
_BYTES_PER_REQUEST: Final = 16 << 20
_ANSWER: Final = wire.AlterClientQuotasResponse
_MAY_BE_DONE: Final = frozenset({REQUEST_TIMED_OUT, NETWORK_EXCEPTION})
"""After these errors of a broker that passed the request on, the controller may have carried it out."""


@dataclass(slots=True, eq=False)
class _Task:
    """One entity on its way through an alter."""

    alteration: Alteration
    entry: wire.AlterEntry
    before: Values
    after: Values
    blind: frozenset[QuotaKey] = frozenset()
    unusable: frozenset[QuotaKey] = frozenset()
    missing: str = ""
    """Why it has no answer yet, once it was sent."""

    @property
    def entity(self) -> Entity:
        return self.alteration.entity

    @property
    def keys(self) -> frozenset[QuotaKey]:
        """The keys that the alteration sets or removes."""
        return self.alteration.remove | self.alteration.set.keys()

    @property
    def parts(self) -> frozenset[wire.EntityData]:
        """What identifies the entity in an answer, where its parts come in any order."""
        return frozenset(self.entry.entity)

    def failed(self, error: KquotaError) -> AlterResult:
        return AlterResult(self.entity, self.before, self.before, error, self.blind)


_Waiting = dict[frozenset[wire.EntityData], _Task]
"""Tasks without a final answer, by their parts."""


class Writer:
    """One alter. `current` reads what is set on entities, and for which of them it could not find out; None is for
    controllers, which do not show it. `begin` is called before each request that writes.

    `written` is what brokers acknowledged.
    """

    def __init__(
        self,
        session: Session,
        current: Callable[[Sequence[Entity]], tuple[Stored, dict[Entity, KquotaError]]] | None,
        *,
        begin: Callable[[], None] | None = None,
        validate_only: bool,
    ) -> None:
        self._session = session
        self._current = current
        self._begin = begin
        self._validate_only = validate_only
        self._results: dict[Entity, AlterResult] = {}
        self.written: dict[Entity, dict[QuotaKey, Wrote]] = {}

    def alter(self, alterations: Sequence[Alteration]) -> tuple[AlterResult, ...]:
        """The result of every entity, in the order of mention; see `QuotaBackend.alter`."""
        merged = merge(alterations)
        pending = self._sendable(merged)
        writing: Sequence[_Task] = ()
        try:
            if pending:  # how much a request may hold is known of a connection only
                self._session.ask([], _ANSWER)
                pending = [alteration for alteration in pending if self._is_enforced(alteration)]
            for batch in _batches([*pending], OPS_PER_REQUEST if self._session.is_kraft else _OPS_WITH_ZOOKEEPER):
                # What is there is read as late as can be: no broker compares it with what is expected.
                writing = tasks = self._tasks(batch)
                if tasks and self._begin is not None:
                    self._begin()
                self._write(tasks)
                writing = ()
                del pending[: len(batch)]
        except (Unreachable, Unauthorized, Rejected) as error:
            if isinstance(error, Unanswered) and writing:
                if self._validate_only:
                    raise
                self._lose(writing, pending, error)
                return tuple(self._results[alteration.entity] for alteration in merged)
            for alteration in pending:
                nothing = AlterResult(alteration.entity, {}, {}, error)
                self._results.setdefault(alteration.entity, nothing)
        ordered = tuple(self._results[alteration.entity] for alteration in merged)
        first = ordered[0].error if ordered else None
        if any(isinstance(result.error, Uncertain) for result in ordered):
            return ordered
        for kind in (Unreachable, Unauthorized, Rejected):
            if isinstance(first, kind) and all(isinstance(result.error, kind) for result in ordered):
                raise first
        return ordered

    def _is_enforced(self, alteration: Alteration) -> bool:
        """Whether brokers of that age know all that is set; otherwise that is the result."""
        version = self._session.version
        if version is None or self._current is None:  # controllers, whose messages tell less
            return True
        reasons = (ignored(alteration.entity, key, version) for key in alteration.set)
        if (reason := next(filter(None, reasons), None)) is None:
            return True
        self._results[alteration.entity] = AlterResult(alteration.entity, {}, {}, Rejected(reason))
        return False

    def _lose(self, writing: Sequence[_Task], pending: Sequence[Alteration], error: Unanswered) -> None:
        """Nobody knows what became of the batch that was sent; the later ones never were."""
        for task in writing:
            self._results.setdefault(task.entity, task.failed(_uncertain(task.entity, error.message)))
        for alteration in pending:
            problem = Unreachable(f"{alteration.entity} was not altered: {error.message}", hint="describe it to see")
            self._results.setdefault(alteration.entity, AlterResult(alteration.entity, {}, {}, problem))

    def _sendable(self, alterations: Sequence[Alteration]) -> list[Alteration]:
        """The alterations whose names a frame can carry; the others get their error."""
        sendable = []
        for alteration in alterations:
            try:
                check_names(alteration.entity)
            except KquotaError as error:
                self._results[alteration.entity] = AlterResult(alteration.entity, {}, {}, error)
            else:
                sendable.append(alteration)
        return sendable

    def _tasks(self, sendable: Sequence[Alteration]) -> list[_Task]:
        """The alterations that can be sent as things are now; the others get their error."""
        if self._current is None:
            return [_Task(one, alter_entry(one), {}, one.set, frozenset(one.set) | one.remove) for one in sendable]
        stored, refused = self._current([alteration.entity for alteration in sendable])
        tasks = []
        for alteration in sendable:
            entity = alteration.entity
            before = stored.values.get(entity, {})
            unusable = stored.unusable.get(entity, set())
            task = _Task(alteration, alter_entry(alteration), before, before)
            if entity in refused:
                self._results[entity] = task.failed(refused[entity])
                continue
            try:
                # A value that kquota cannot use still counts as set: it can be removed, strictly too.
                task.after = alteration.applied_to(before, unusable)
            except KquotaError as error:
                self._results[entity] = task.failed(error)
                continue
            task.unusable = frozenset(unusable & task.keys)
            tasks.append(task)
        return tasks

    def _write(self, batch: Sequence[_Task]) -> None:
        """Sends a batch until every entity has its answer.

        A request that was refused for a moment, or whose answer was lost, is sent again for the entities that nobody
        else has changed since (`_unchanged`). Raises Unanswered where nobody knows what became of the others.
        """
        deadline = self._session.deadline()
        waiting = {task.parts: task for task in batch}
        attempt = 0
        while waiting:
            request = wire.AlterClientQuotasRequest([task.entry for task in waiting.values()], self._validate_only)
            try:
                (answer,) = self._session.ask([request], _ANSWER, deadline, once=self._compares)
            except Unreachable as lost:
                if not self._validate_only:
                    self._session.hurry(deadline)
                attempt += 1
                if not isinstance(lost, Unanswered) and attempt == 1:
                    raise
                if not self._compares or attempt == ATTEMPTS or deadline.left <= PAUSE_S:
                    raise Unanswered(lost.message, hint=lost.hint) from None
                for task in waiting.values():
                    task.missing = lost.message
            else:
                waiting = self._heed(waiting, answer, deadline)
            if waiting:
                time.sleep(PAUSE_S)
                waiting = self._unchanged(waiting)

    def _heed(self, waiting: _Waiting, answer: wire.AlterClientQuotasResponse, deadline: Deadline) -> _Waiting:
        """Notes the answers that are final. Returns the tasks that were refused for a moment."""
        passing: _Waiting = {}
        for code, message, parts in answer.entries:
            task = waiting.pop(frozenset(parts), None)
            if task is None:
                continue
            if code == NONE:
                self._done(task)
                continue
            error = error_of(code, message, hint=self._hint(task.entity))
            if is_transient(code) and deadline.left > 2 * PAUSE_S:
                task.missing = error.message
                passing[task.parts] = task
            elif code in _MAY_BE_DONE and not self._validate_only:
                self._results[task.entity] = task.failed(_uncertain(task.entity, error.message))
            else:
                self._results[task.entity] = task.failed(error)
        for task in waiting.values():
            self._results[task.entity] = task.failed(Rejected("the broker's answer does not mention the entity"))
        return passing

    @property
    def _compares(self) -> bool:
        """Whether this alter can overwrite what somebody else has written, and can see that."""
        return self._current is not None and not self._validate_only

    def _unchanged(self, waiting: _Waiting) -> _Waiting:
        """The tasks that may be sent again: their entities are as they were read. The others get their result.

        An entity that shows the wanted values has been altered. An entity with any other values was changed by
        somebody else, and a second request would overwrite that. Raises Unanswered where it cannot be read.
        """
        if self._current is None or self._validate_only:
            return waiting
        try:
            stored, refused = self._current([task.entity for task in waiting.values()])
        except KquotaError as error:
            raise Unanswered(next(iter(waiting.values())).missing, hint=error.hint) from None
        unchanged = {}
        for parts, task in waiting.items():
            values = stored.values.get(task.entity, {})
            unusable = stored.unusable.get(task.entity, set()) & task.keys
            if task.entity in refused:
                self._results[task.entity] = task.failed(_uncertain(task.entity, task.missing))
            elif not unusable and not any(differ(values.get(key), task.after.get(key)) for key in task.keys):
                self._done(task)
            elif unusable == task.unusable and task.alteration.finds(values, task.before):
                unchanged[parts] = task
            else:
                why = f"{task.missing}; another writer has changed it since"
                self._results[task.entity] = task.failed(_uncertain(task.entity, why))
        return unchanged

    def _hint(self, entity: Entity) -> str | None:
        """What helps against a refusal whose text does not."""
        if isinstance(entity.ip, str) and ":" in entity.ip and not self._session.is_kraft:
            return "brokers in ZooKeeper mode take no IPv6 address, but heed one that is in ZooKeeper: --zookeeper"
        return None

    def _done(self, task: _Task) -> None:
        self._results[task.entity] = AlterResult(
            task.entity, task.before, task.after, blind=task.blind, unusable=task.unusable
        )
        if not self._validate_only:
            self.written[task.entity] = {
                key: Wrote(task.after.get(key), task.before.get(key), key in task.blind) for key in task.keys
            }


def _uncertain(entity: Entity, why: str) -> Uncertain:
    return Uncertain(f"{entity} may or may not have been altered: {why}", hint="describe it to see")


def _batches(alterations: Iterable[Alteration], most_ops: int) -> Iterator[list[Alteration]]:
    """Requests of bounded operations and bytes; an entity is never split."""
    batch: list[Alteration] = []
    ops = size = 0
    for alteration in alterations:
        own = len(alteration.set) + len(alteration.remove)
        cost = 64 * own + sum(64 if name is DEFAULT else 64 + 4 * len(name) for _, name in alteration.entity.parts)
        if batch and (ops + own > most_ops or size + cost > _BYTES_PER_REQUEST):
            yield batch
            batch, ops, size = [], 0, 0
        batch.append(alteration)
        ops += own
        size += cost
    if batch:
        yield batch
