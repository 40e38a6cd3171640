"""The backend: describe, alter in bounded requests, and reading what was written."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kquota.backends import QuotaBackend, wire
from kquota.backends.addresses import Servers, without_scheme
from kquota.backends.kafka.codes import NONE, UNKNOWN, error_of
from kquota.backends.kafka.connection import Deadline
from kquota.backends.kafka.journal import TopicJournal
from kquota.backends.kafka.nodes import Nodes
from kquota.backends.kafka.quotas import Stored, describe_request, read_entries
from kquota.backends.kafka.security import KafkaSecurity
from kquota.backends.kafka.session import Session
from kquota.backends.kafka.turns import Turns, Written, Wrote
from kquota.backends.kafka.writer import Writer
from kquota.core.quotas.alteration import Alteration, AlterResult
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, differ
from kquota.core.quotas.selector import ANY, EVERYTHING, QuotaFilter
from kquota.core.quotas.snapshot import QuotaSnapshot, Values
from kquota.core.quotas.version import Version
from kquota.errors import KquotaError, Rejected, Unauthorized, Unreachable

if TYPE_CHECKING:
    from kquota.core.change.migration import Parts

# A broker looks through all its entities for every filter, so an exact one costs it about a twentieth of the answer
# that lists all (8 ms and 150 ms for 10,000 entities): beyond this many, whole kinds of entities are read at once.
_EXACT_FILTERS: Final = 16
_HINT_WITH_ZOOKEEPER: Final = (
    "a broker in ZooKeeper mode stumbles over nodes that it cannot parse, and over names like '.':"
    " describe with --zookeeper names them"
)
_SETTLE_S: Final = 10.0
"""So long a read waits for what was written moments ago; a busy broker takes seconds to apply it."""
_COVERED_S: Final = 2.0
"""So long it waits while another value is shown than the one before: that was written later, or long before."""
_POLL_S: Final = (0.01, 0.1)
"""The first and the longest pause between two looks."""


class KafkaBackend(QuotaBackend):
    """Reads and writes quotas through the brokers of a cluster; see `QuotaBackend` for the contract.

    `bootstrap` is `host:port[,host:port]`; one server is enough, the others are tried in turn when it cannot be
    reached. Connects at the first use; connecting and authenticating takes at most `timeout_s` seconds, and so does
    waiting for any answer. With `patient`, servers that are not up yet are waited for as long. Raises InputError for a
    malformed address.

    A KRaft broker answers from its own copy of the metadata. The copy lags behind an acknowledged alter: 20 ms on an
    idle broker, 0.3 s after 9,000 entities. Reads of the same backend wait up to 10 s until they show what it wrote;
    use `wait_visible` to be sure.

    Kafka has no compare-and-set. What an alteration expects is compared just before it is sent. Writers of kquota's
    that expect something take turns on one host (`alone`); any other write may fall in between. A request without an
    answer is sent again only for entities that are as they were read.
    """

    def __init__(
        self, bootstrap: str, *, timeout_s: float = 10.0, security: KafkaSecurity | None = None, patient: bool = False
    ) -> None:
        self._session = Session(Servers.parse(bootstrap), timeout_s, security or KafkaSecurity(), patient=patient)
        self._for_journal = (timeout_s, security)
        self._journals: list[TopicJournal] = []
        self._bootstrap = without_scheme(bootstrap, "kafka")
        self.cluster_address = f"kafka://{self._bootstrap}"
        self._unseen: dict[Entity, dict[QuotaKey, Wrote]] = {}
        self._turns = Turns(self.cluster_id, self._bootstrap)

    def close(self) -> None:
        self._session.close()
        while self._journals:
            self._journals.pop().close()

    def journal(self) -> TopicJournal:
        timeout_s, security = self._for_journal
        self._journals.append(TopicJournal(Nodes(self._bootstrap, timeout_s=timeout_s, security=security)))
        return self._journals[-1]

    def describe(self, filter: QuotaFilter = EVERYTHING) -> QuotaSnapshot:
        expected = {entity: values for entity, values in self._unseen.items() if filter.matches(entity)}
        (stored,) = self._read_until([filter], expected, _SETTLE_S)
        if stored.error is not None:
            raise stored.error
        return QuotaSnapshot(stored.values, tuple(stored.problems))

    def alter(self, alterations: Sequence[Alteration], *, validate_only: bool = False) -> tuple[AlterResult, ...]:
        begin = None if validate_only else self._turns.writes
        writer = Writer(self._session, self._current, begin=begin, validate_only=validate_only)
        # What expects nothing overwrites whatever is there, so there is nothing to wait for.
        expects = not validate_only and any(alteration.expect is not None for alteration in alterations)
        with self.alone() if expects else contextlib.nullcontext():
            try:
                return writer.alter(alterations)
            finally:
                self._expect(writer.written)
                self._turns.wrote(writer.written)

    @contextlib.contextmanager
    def alone(self, stop: Callable[[], bool] = lambda: False) -> Iterator[None]:
        with self._turns.alone(self._expect, stop):
            yield

    def _expect(self, written: Written) -> None:
        """Has reads wait until they show it."""
        for entity, values in written.items():
            self._unseen.setdefault(entity, {}).update(values)

    def wait_visible(self, results: Iterable[AlterResult], *, timeout_s: float = 10.0) -> tuple[Entity, ...]:
        expected = {
            result.entity: {key: Wrote(result.after.get(key), result.before.get(key)) for key in result.keys}
            for result in results
            if result.changed
        }
        if not expected:
            return ()
        stored = self._read_until(_filters_for(expected), expected, timeout_s)
        for part in stored:
            if part.error is not None:
                raise part.error
        shown = {entity: values for part in stored for entity, values in part.values.items()}
        return tuple(entity for entity, wrote in expected.items() if _missing(shown.get(entity, {}), wrote))

    def broker_count(self) -> int:
        return len(self._session.describe_cluster().brokers)

    def cluster_id(self) -> str | None:
        try:
            return self._session.describe_cluster().cluster_id or None
        except (Rejected, Unauthorized):
            return None

    def release(self) -> Version | None:
        self._session.ask([], wire.DescribeClusterResponse)
        return self._session.version

    def migrated(self) -> tuple[QuotaSnapshot, dict[Parts, Values]]:
        """What a migration made of the quotas, and separately the quotas of entities with an empty name.

        Raises Unreachable and Unauthorized; Rejected where the brokers run with ZooKeeper.
        """
        request = wire.DescribeClientQuotasRequest([], strict=False)
        answer = self._session.answer(request, wire.DescribeClientQuotasResponse)
        if not self._session.is_kraft:
            raise Rejected(
                "these brokers run with ZooKeeper: they show what is there, not what was migrated",
                hint="check again when the brokers run with KRaft",
            )
        nameless: dict[Parts, Values] = {}
        stored = read_entries(answer.entries or (), nameless)
        return QuotaSnapshot(stored.values, tuple(stored.problems)), nameless

    def _current(self, entities: Sequence[Entity]) -> tuple[Stored, dict[Entity, KquotaError]]:
        """What is set on those entities, and maybe others; and which of them the broker refuses to describe.

        A broker of 2.6 knows no ips; one in ZooKeeper mode stumbles over what it cannot parse.
        """
        wanted = set(entities)
        expected = {entity: values for entity, values in self._unseen.items() if entity in wanted}
        merged = Stored()
        refused: dict[Entity, KquotaError] = {}
        filters = _filters_for(entities)
        parts = list(zip(filters, self._read_until(filters, expected, _SETTLE_S), strict=True))
        # Where whole kinds were read, a single entity may be to blame.
        failed = [filter for filter, part in parts if part.error is not None and ANY in filter.components.values()]
        doubtful = [entity for entity in entities if any(filter.matches(entity) for filter in failed)]
        if doubtful:
            filters = [QuotaFilter(dict(entity.parts), strict=True) for entity in doubtful]
            parts = [(filter, part) for filter, part in parts if filter not in failed]
            parts += zip(filters, self._read(filters), strict=True)
        for filter, part in parts:
            merged.values.update(part.values)
            merged.unusable.update(part.unusable)
            if part.error is not None:
                refused.update((entity, part.error) for entity in entities if filter.matches(entity))
        return merged, refused

    def _read_until(self, filters: Sequence[QuotaFilter], expected: Written, wait_s: float) -> list[Stored]:
        """What matches each filter, once it shows what is expected, or as it is when the wait is over."""
        patience = Deadline(wait_s)
        pause, longest = _POLL_S
        while True:
            stored = self._read(filters)
            shown = {entity: values for part in stored for entity, values in part.values.items()} if expected else {}
            missing = [later for entity, wrote in expected.items() for later in _missing(shown.get(entity, {}), wrote)]
            covered = all(missing) and wait_s - patience.left >= _COVERED_S
            if not missing or covered or not patience.left:
                for entity in expected:
                    self._unseen.pop(entity, None)
                return stored
            time.sleep(min(pause, patience.left))
            pause = min(2 * pause, longest)

    def _read(self, filters: Sequence[QuotaFilter]) -> list[Stored]:
        """What matches each filter now. Raises Unreachable or Unauthorized, and Rejected where nothing is served."""
        requests = [describe_request(filter) for filter in filters]
        sent = [request for request in requests if request is not None]
        answers = self._session.settled(sent, wire.DescribeClientQuotasResponse) if sent else []
        remaining = iter(answers)
        hint = None if self._session.is_kraft else _HINT_WITH_ZOOKEEPER
        return [Stored() if request is None else _stored(next(remaining), hint) for request in requests]


def _stored(answer: wire.DescribeClientQuotasResponse, hint: str | None) -> Stored:
    """What an answer says. Raises Unreachable and Unauthorized, which are about all there is."""
    if answer.error_code == NONE:
        return read_entries(answer.entries or ())
    error = error_of(answer.error_code, answer.error_message, hint=hint if answer.error_code == UNKNOWN else None)
    if isinstance(error, Unreachable | Unauthorized):
        raise error
    return Stored(error=error)


def _filters_for(entities: Iterable[Entity]) -> list[QuotaFilter]:
    """The filters that read those entities at the least cost: one each, or one for each combination of types."""
    named = list(entities)
    if len(named) <= _EXACT_FILTERS:
        return [QuotaFilter(dict(entity.parts), strict=True) for entity in named]
    shapes = dict.fromkeys(tuple(kind for kind, _ in entity.parts) for entity in named)
    return [QuotaFilter(dict.fromkeys(shape, ANY), strict=True) for shape in shapes]


def _missing(values: Values, written: Mapping[QuotaKey, Wrote]) -> list[bool]:
    """For each key that does not show what was written: whether it shows a later write."""
    return [wrote.is_covered(values.get(key)) for key, wrote in written.items() if differ(values.get(key), wrote.value)]
