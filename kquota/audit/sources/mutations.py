"""Requests that create or delete topics and partitions: how many partitions the controller charges for each.

The mutation quota is the active controller's. Its log shows what brokers forwarded (`isForwarded`), and what came
straight to its own listener, such as a broker's creation of `__consumer_offsets`; the brokers' logs show the same
requests once more, not charged there. A request to delete names topics and no partitions: how many there are is known
where the log showed the topic before.

Follows `ControllerApis` and `ReplicationControlManager` of Kafka 3.5 and later (KRaft, KIP-599).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kquota.audit.sources.java_order import hash_order, string_hash, uuid_hash

UNKNOWN: Final = -1
"""The partitions of a topic that the log did not show before."""

STRICT_SINCE: Final = {"CREATE_TOPICS": 6, "CREATE_PARTITIONS": 3, "DELETE_TOPICS": 5}
"""The APIs that are charged, and the version from which a topic is rejected where older ones delay the client."""

_NONE, _QUOTA_EXCEEDED, _INVALID_REPLICATION_FACTOR, _INVALID_REPLICA_ASSIGNMENT = 0, 89, 38, 39
_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
_CONTROLLER_APIS: Final = frozenset({"BROKER_HEARTBEAT", "BROKER_REGISTRATION", "CONTROLLER_REGISTRATION"})
TOLD_APIS: Final = _CONTROLLER_APIS | STRICT_SINCE.keys()
"""The lines that a `TopicBook` learns from, besides all that are forwarded."""
_SIZE: Final = re.compile(r"currently has ([0-9]+) partition|already has ([0-9]+) partition")


class Charge(NamedTuple):
    """One record of the quota: a topic of a strict request, or all topics of a permissive one."""

    partitions: int
    """Created, added or deleted; UNKNOWN where the log does not tell."""
    strict: bool
    throttle_ms: int
    """What the controller answered: of a strict request only to a topic that it rejected."""


@dataclass
class TopicBook:
    """What a controller's log tells, up to a line, of its topics and of its own listeners.

    `default_partitions` is the controller's `num.partitions`.
    """

    default_partitions: int = 1
    _partitions: dict[str, int] = field(default_factory=dict)
    _ids: dict[str, str] = field(default_factory=dict)
    _listeners: set[str] = field(default_factory=set)

    def read(self, fields: Mapping[str, Any]) -> list[Charge]:
        """What the request of the next line was charged, in the order of the charges; nothing for most requests.

        `fields` are those of the line's JSON object. Raises ValueError for fields that are not those of Kafka.
        """
        try:
            return self._read(fields)
        except KeyError as error:
            raise ValueError(f"field {error} is missing") from None
        except (TypeError, AttributeError):
            raise ValueError("a field is not of the type that Kafka logs") from None

    def _read(self, fields: Mapping[str, Any]) -> list[Charge]:
        header = fields["requestHeader"]
        api, listener = header["requestApiKeyName"], fields["listener"]
        if fields["isForwarded"] or api in _CONTROLLER_APIS:
            self._listeners.add(listener)
        if api not in STRICT_SINCE or listener not in self._listeners:
            return []
        request, response = fields["request"], fields["response"]
        topics = _TOPICS[api](self, request, response)
        if not topics:
            return []
        throttle_ms = response.get("throttleTimeMs", 0)
        if header["requestApiVersion"] >= STRICT_SINCE[api]:
            # A wait of less than half a millisecond is told as 0, and is a rejection all the same.
            return [Charge(size, True, max(throttle_ms, 1) if rejected else 0) for size, rejected in topics]
        # A permissive request is charged as a whole, at one moment; only the wait after its last topic is told.
        sizes = [size for size, _ in topics]
        return [Charge(UNKNOWN if UNKNOWN in sizes else sum(sizes), False, throttle_ms)]

    def _create_topics(self, request: Mapping[str, Any], response: Mapping[str, Any]) -> list[tuple[int, bool]]:
        answers = {topic["name"]: topic for topic in response["topics"]}
        charged = []
        for topic in request["topics"]:
            name, answer = topic["name"], answers[topic["name"]]
            if answer["errorCode"] not in (_NONE, _QUOTA_EXCEEDED):
                continue  # failed before the quota was asked
            size = len(topic["assignments"]) or topic["numPartitions"]
            if size == -1:
                told = answer.get("numPartitions", -1)
                size = told if told > 0 else self.default_partitions
            charged.append((size, answer["errorCode"] == _QUOTA_EXCEEDED))
            if answer["errorCode"] == _NONE and not request.get("validateOnly"):
                self._partitions[name] = size
                self._learn(name, answer.get("topicId"))
        return charged

    def _create_partitions(self, request: Mapping[str, Any], response: Mapping[str, Any]) -> list[tuple[int, bool]]:
        answers = {topic["name"]: topic for topic in response["results"]}
        topics = {topic["name"]: topic for topic in request["topics"]}
        charged = []
        for name in hash_order(list(topics), string_hash):
            topic, error = topics[name], answers[name]["errorCode"]
            found = _SIZE.search(answers[name].get("errorMessage") or "")
            if found:
                self._partitions[name] = int(found[1] or found[2])
            before = self._partitions.get(name, UNKNOWN)
            size = topic["count"] - before if before != UNKNOWN else UNKNOWN
            placed = topic["assignments"]
            if error == _INVALID_REPLICA_ASSIGNMENT:
                # That there are too few or too many is found before the quota is asked, other faults after it.
                asked = placed is not None and len(placed) == size
            else:
                asked = error in (_NONE, _QUOTA_EXCEEDED, _INVALID_REPLICATION_FACTOR)
            if asked:
                charged.append((size, error == _QUOTA_EXCEEDED))
            if error == _NONE and not request["validateOnly"]:
                self._partitions[name] = topic["count"]
        return charged

    def _delete_topics(self, request: Mapping[str, Any], response: Mapping[str, Any]) -> list[tuple[int, bool]]:
        charged: dict[str, tuple[int, bool]] = {}
        for answer in response["responses"]:
            name, error = answer["name"], answer["errorCode"]
            self._learn(name, answer.get("topicId"))
            if error in (_NONE, _QUOTA_EXCEEDED):
                charged[name] = (self._partitions.get(name, UNKNOWN), error == _QUOTA_EXCEEDED)
            if error == _NONE:
                self._partitions.pop(name, None)
        names = [topic["name"] for topic in request["topics"]] if "topics" in request else request["topicNames"]
        # The set of the names in the request, the map of those that exist, and the map by their ids.
        order = hash_order([name for name in names if name in charged], string_hash)
        order = hash_order(order, string_hash, room=len(order))
        order += [name for name in charged if name not in order]  # asked for by id
        if all(name in self._ids for name in order):
            order = hash_order(order, lambda name: uuid_hash(self._ids[name]))
        return [charged[name] for name in order]

    def _learn(self, name: str | None, topic_id: str | None) -> None:
        if name is not None and topic_id is not None and topic_id != _NO_ID:
            self._ids[name] = topic_id


_TOPICS: Final = {
    "CREATE_TOPICS": TopicBook._create_topics,
    "CREATE_PARTITIONS": TopicBook._create_partitions,
    "DELETE_TOPICS": TopicBook._delete_topics,
}
