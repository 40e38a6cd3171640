"""Requests that create or delete topics and partitions: how many partitions the controller charges for each.

The mutation quota is the active controller's. Its log shows what brokers forwarded (`isForwarded`), and what came
straight to its own listener, such as a broker's creation of `__consumer_offsets`; the brokers' logs show the same
requests once more, not charged there. A request to delete names topics and no partitions: how many there are is known
where the log showed the topic before, in whichever of its files. So what the files of one controller show is brought
together (`TopicLog`) before anything is charged (`charged`).

Follows `ControllerApis` and `ReplicationControlManager` of Kafka 3.5 and later (KRaft, KIP-599).
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from kquota.audit.batch import UNKNOWN, Batch, Column
from kquota.audit.sources.data_log import NO_ID
from kquota.core.enforcement.kind import MUTATION
from kquota.core.java import hash_order, string_hash, uuid_hash
from kquota.core.tabular import grouped

STRICT_SINCE: Final = {"CREATE_TOPICS": 6, "CREATE_PARTITIONS": 3, "DELETE_TOPICS": 5}
"""The APIs that are charged, and the version from which a topic is rejected where older ones delay the client."""

_NONE, _QUOTA_EXCEEDED, _INVALID_REPLICATION_FACTOR, _INVALID_REPLICA_ASSIGNMENT = 0, 89, 38, 39
_CONTROLLER_APIS: Final = frozenset({"BROKER_HEARTBEAT", "BROKER_REGISTRATION", "CONTROLLER_REGISTRATION"})
TOLD_APIS: Final = _CONTROLLER_APIS | STRICT_SINCE.keys()
"""The lines that a `TopicLog` is made of, besides all that are forwarded."""
_SIZE: Final = re.compile(r"currently has ([0-9]+) partition|already has ([0-9]+) partition")
TIE_MS: Final = 1.0
"""A controller charges about this long after it began with a request, but for what nobody can tell."""


class Topic(NamedTuple):
    """A topic of a request, and what was answered."""

    name: str
    error: int
    id_hash: int | None = None
    """`hashCode` of its id, where that is told."""
    partitions: int = UNKNOWN
    """Asked for: of a new topic, or from then on; UNKNOWN for the default."""
    total: int = UNKNOWN
    """How many it has, by the answer."""
    placed: int | None = None
    """How many partitions to add come with their brokers."""


class TopicRequest(NamedTuple):
    """A request about topics, as a line of a log shows it."""

    begun_ms: float
    """When it was begun with, epoch ms: that is about when a controller charges it."""
    user: str
    client_id: str
    listener: str
    api: str
    strict: bool
    throttle_ms: int
    topics: tuple[Topic, ...]
    """In the order of the request; of a deletion in that of the answer."""
    asked: tuple[str, ...] = ()
    """The names in the request, of a deletion."""
    validate_only: bool = False


@dataclass
class TopicLog:
    """What some lines of the log of one controller, or of one broker, say about topics."""

    broker: str
    requests: list[TopicRequest] = field(default_factory=list)
    listeners: set[str] = field(default_factory=set)
    """The controller's own, by what brokers send there."""

    def __bool__(self) -> bool:
        return bool(self.requests or self.listeners)

    def add(self, fields: Mapping[str, Any], begun_ms: float, user: str, client_id: str) -> None:
        """Takes a line: `fields` come from its JSON object. Raises ValueError for fields that Kafka does not write."""
        try:
            api, listener = fields["requestHeader"]["requestApiKeyName"], _text(fields["listener"])
            if api in STRICT_SINCE:
                self.requests.append(_parse(fields, api, (begun_ms, user, client_id, listener)))
            if fields["isForwarded"] or api in _CONTROLLER_APIS:
                self.listeners.add(listener)
        except KeyError as error:
            raise ValueError(f"field {error} is missing") from None
        except (TypeError, AttributeError):
            raise ValueError("a field is not of the type that Kafka logs") from None


def _parse(fields: Mapping[str, Any], api: str, who: tuple[float, str, str, str]) -> TopicRequest:
    request, response = fields["request"], fields["response"]
    strict = _whole(fields["requestHeader"]["requestApiVersion"]) >= STRICT_SINCE[api]
    throttle_ms = _whole(response.get("throttleTimeMs", 0))
    if api == "DELETE_TOPICS":
        names = [topic["name"] for topic in request["topics"]] if "topics" in request else request["topicNames"]
        # The name is null of a topic that was asked for by its id, and is not there.
        deleted = tuple(_answered(answer) for answer in response["responses"] if answer["name"] is not None)
        asked = tuple(_text(name) for name in names if name is not None)
        return TopicRequest(*who, api, strict, throttle_ms, deleted, asked)
    validate_only = bool(request.get("validateOnly"))
    topics = []
    if api == "CREATE_TOPICS":
        answers = {answer["name"]: answer for answer in response["topics"]}
        for topic in request["topics"]:
            answer = answers[topic["name"]]
            total = _whole(answer.get("numPartitions", UNKNOWN))
            size = len(topic["assignments"]) or _whole(topic["numPartitions"])
            topics.append(_answered(answer)._replace(partitions=size, total=total))
    else:
        answers = {answer["name"]: answer for answer in response["results"]}
        for topic in request["topics"]:
            answer = answers[topic["name"]]
            match = _SIZE.search(answer.get("errorMessage") or "")
            total = int(match[1] or match[2]) if match else UNKNOWN
            placed = None if topic["assignments"] is None else len(topic["assignments"])
            topics.append(_answered(answer)._replace(partitions=_whole(topic["count"]), total=total, placed=placed))
    return TopicRequest(*who, api, strict, throttle_ms, tuple(topics), validate_only=validate_only)


def _answered(answer: Mapping[str, Any]) -> Topic:
    topic_id = answer.get("topicId")
    id_hash = None if topic_id is None or topic_id == NO_ID else uuid_hash(_text(topic_id))
    return Topic(_text(answer["name"]), _whole(answer["errorCode"]), id_hash)


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError
    return value


class Charge(NamedTuple):
    """One record of the quota: a topic of a strict request, or all topics of a permissive one."""

    partitions: int
    """Created, added or deleted; UNKNOWN where the log did not show the topic before."""
    strict: bool
    throttle_ms: int
    """What the controller answered: of a strict request only to a topic that it rejected."""


@dataclass
class TopicBook:
    """What a controller's log shows, up to a request, about its topics.

    `default_partitions` is the controller's `num.partitions`.
    """

    default_partitions: int = 1
    _partitions: dict[str, int] = field(default_factory=dict)
    _ids: dict[str, int] = field(default_factory=dict)

    def charge(self, request: TopicRequest) -> list[Charge]:
        """What the next request was charged, in the order of the charges."""
        if not (topics := _TOPICS[request.api](self, request)):
            return []
        if request.strict:
            # A wait of less than half a millisecond is told as 0, and is a rejection all the same.
            waited_ms = max(request.throttle_ms, 1)
            return [Charge(size, True, waited_ms if rejected else 0) for size, rejected in topics]
        # A permissive request is charged as a whole, at one moment; only the wait after its last topic is told.
        sizes = [size for size, _ in topics]
        return [Charge(UNKNOWN if UNKNOWN in sizes else sum(sizes), False, request.throttle_ms)]

    def _create_topics(self, request: TopicRequest) -> list[tuple[int, bool]]:
        charged = []
        for topic in request.topics:
            if topic.error not in (_NONE, _QUOTA_EXCEEDED):
                continue  # failed before the quota was asked
            size = topic.partitions
            if size == UNKNOWN:
                size = topic.total if topic.total > 0 else self.default_partitions
            charged.append((size, topic.error == _QUOTA_EXCEEDED))
            if topic.error == _NONE and not request.validate_only:
                self._partitions[topic.name] = size
                self._learn(topic)
        return charged

    def _create_partitions(self, request: TopicRequest) -> list[tuple[int, bool]]:
        topics = {topic.name: topic for topic in request.topics}
        charged = []
        for name in hash_order(list(topics), string_hash):
            topic = topics[name]
            if topic.total != UNKNOWN:
                self._partitions[name] = topic.total
            before = self._partitions.get(name, UNKNOWN)
            size = topic.partitions - before if before != UNKNOWN else UNKNOWN
            if topic.error == _INVALID_REPLICA_ASSIGNMENT:
                # That there are too few or too many is found before the quota is asked, other faults after it.
                asked = topic.placed is not None and topic.placed == size
            else:
                asked = topic.error in (_NONE, _QUOTA_EXCEEDED, _INVALID_REPLICATION_FACTOR)
            if asked:
                charged.append((size, topic.error == _QUOTA_EXCEEDED))
            if topic.error == _NONE and not request.validate_only:
                self._partitions[name] = topic.partitions
        return charged

    def _delete_topics(self, request: TopicRequest) -> list[tuple[int, bool]]:
        charged: dict[str, tuple[int, bool]] = {}
        for topic in request.topics:
            self._learn(topic)
            if topic.error in (_NONE, _QUOTA_EXCEEDED):
                charged[topic.name] = (self._partitions.get(topic.name, UNKNOWN), topic.error == _QUOTA_EXCEEDED)
            if topic.error == _NONE:
                self._partitions.pop(topic.name, None)
        # The set of the names in the request, the map of those that exist, and the map by their ids.
        order = hash_order([name for name in request.asked if name in charged], string_hash)
        order = hash_order(order, string_hash, room=len(order))
        order += [name for name in charged if name not in order]  # asked for by id
        if all(name in self._ids for name in order):
            order = hash_order(order, self._ids.__getitem__)
        return [charged[name] for name in order]

    def _learn(self, topic: Topic) -> None:
        if topic.id_hash is not None:
            self._ids[topic.name] = topic.id_hash


_TOPICS: Final = {
    "CREATE_TOPICS": TopicBook._create_topics,
    "CREATE_PARTITIONS": TopicBook._create_partitions,
    "DELETE_TOPICS": TopicBook._delete_topics,
}


class Mutation(NamedTuple):
    """A request that the mutation quota is charged for."""

    time_ms: float
    request: TopicRequest
    charges: list[Charge]


def mutations(logs: Iterable[TopicLog], default_partitions: int) -> list[Mutation]:
    """What one controller charged, in the order of the charges; nothing for what only brokers logged.

    `logs` are all that there are of it, the earlier ones first where requests were begun with at the same moment.
    """
    logs = list(logs)
    listeners = {listener for log in logs for listener in log.listeners}
    book = TopicBook(default_partitions)
    charged = []
    # A controller works on one request after the other, in the order in which they are begun with.
    for request in sorted((request for log in logs for request in log.requests), key=lambda request: request.begun_ms):
        if request.listener in listeners and (charges := book.charge(request)):
            charged.append(Mutation(request.begun_ms, request, charges))
    return in_order(charged)


def in_order(charged: Iterable[Mutation]) -> list[Mutation]:
    """The requests in the order of their charges, and with times in that order.

    Clients of one counter are let go at the same moment, so their requests come together: among requests that began
    within TIE_MS of each other, the accepted ones came before the rejected ones.
    """
    ordered: list[Mutation] = []
    tied: list[Mutation] = []
    for mutation in [*sorted(charged, key=lambda mutation: mutation.time_ms), None]:
        if tied and (mutation is None or mutation.time_ms - tied[-1].time_ms > TIE_MS):
            times = [peer.time_ms for peer in tied]
            tied.sort(key=lambda peer: peer.charges[0].strict and peer.charges[0].throttle_ms > 0)
            ordered += [peer._replace(time_ms=time_ms) for peer, time_ms in zip(tied, times, strict=True)]
            tied = []
        if mutation is not None:
            tied.append(mutation)
    return ordered


def batches(logs: Sequence[TopicLog], default_partitions: int) -> Iterator[Batch]:
    """What each controller charged, as `mutations`: requests of known size, and the others."""
    for broker, own in sorted(grouped(logs, lambda log: log.broker).items()):
        requests = mutations(own, default_partitions)
        charged = [(time_ms, request, charge) for time_ms, request, charges in requests for charge in charges]
        for known in (True, False):
            if rows := [row for row in charged if (row[2].partitions != UNKNOWN) is known]:
                yield _batch(rows, broker, complete=known)


def _batch(rows: list[tuple[float, TopicRequest, Charge]], broker: str, *, complete: bool) -> Batch:
    times, requests, charges = zip(*rows, strict=True)
    return Batch(
        broker=Column.constant(broker, len(rows)),
        user=Column.encode([request.user for request in requests]),
        client_id=Column.encode([request.client_id for request in requests]),
        kind=np.full(len(rows), MUTATION, np.uint8),
        time_ms=np.array([math.floor(time_ms) for time_ms in times], np.int64),
        bytes=np.array([max(charge.partitions, 0) for charge in charges], np.int64),
        bytes_complete=complete,
        throttle_ms=np.array([charge.throttle_ms for charge in charges], np.int64),
        detail=np.array([not charge.strict for charge in charges], np.int64),
    )
