"""What a request log shows of the data itself: the batches that were appended, and what consumers asked for and got.

A broker logs the size of each record set that is produced, and the offset that it got; so the data of a partition is
known, batch by batch, as far as the log shows its producers. What a throttled fetch would have held follows from that
(`kquota.audit.ledger.fetch_sizes`).

Lines are kept as rows of numbers, and topics as codes: in newer requests they go by their ids, in older ones by their
names, and the answers to METADATA and CREATE_TOPICS show which belong together.

Of connections the log shows a lower bound: it has a line for each request, and names its connection. So it shows a
connection that sent a request, and none that was refused, or was closed before it asked anything. It shows neither when
a connection was opened: only that this was before its first request. `kquota.audit.evidence.connections` says what
follows.
"""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from kquota.audit.batch import Int64s
from kquota.audit.sources.sizes import FETCH_VERSIONS

DATA_APIS: Final = frozenset({"PRODUCE", "FETCH", "METADATA", "CREATE_TOPICS"})
"""The APIs whose lines show something of the data."""
ID: Final = "#"
"""Stands before the id of a topic; no topic's name holds it."""
FORGOTTEN: Final = -1
"""Stands for the offset of a partition that a fetch session no longer has."""
NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
_NONE: Final = 0


class Appended(NamedTuple):
    """A batch that a producer appended, and of which the log shows the offset."""

    since_us: int
    """Since when consumers can read it."""
    topic: int
    partition: int
    bytes: int
    offset: int


class Fetched(NamedTuple):
    """A fetch of a consumer; the i-th owns the next `asked` and then `delivered` rows of `parts`."""

    read_us: int
    """About when the broker read what it answers with."""
    time_ms: int
    """The charge, as in a `Batch`."""
    connection: int
    user: int
    client: int
    whole: int
    """1 where it names all its partitions; else it names what changes in its fetch session (KIP-227)."""
    layout: int
    """The version of the API; less than 0 (`~version`) for a throttled fetch, of which nothing was sent."""
    asked: int
    delivered: int


class Part(NamedTuple):
    """A partition that a fetch asks for, or that it was answered with."""

    topic: int
    partition: int
    amount: int
    """The offset that is asked for, or FORGOTTEN; of an answer the bytes of its records."""
    most: int
    """The most bytes of the partition that are asked for."""


def _rows() -> "array[int]":
    return array("q")


@dataclass
class DataLog:
    """What some lines of one broker's log show of the data."""

    broker: str
    topics: dict[str, int] = field(default_factory=dict)
    """The code of each topic's name, and of its id behind `#`."""
    users: dict[str, int] = field(default_factory=dict)
    clients: dict[str, int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    """The names of topics by their ids, as far as answers showed them."""
    appended: "array[int]" = field(default_factory=_rows)
    """Rows of `Appended` one behind the other; `fetched` and `parts` are those of `Fetched` and `Part`."""
    fetched: "array[int]" = field(default_factory=_rows)
    parts: "array[int]" = field(default_factory=_rows)

    def __bool__(self) -> bool:
        return bool(self.rows or self.ids)

    @property
    def rows(self) -> int:
        """How many batches and fetches it has."""
        return len(self.appended) // len(Appended._fields) + len(self.fetched) // len(Fetched._fields)

    @property
    def shared(self) -> "DataLog":
        """What other brokers' data is understood by, too."""
        return DataLog(self.broker, ids=self.ids)

    def add(self, fields: Mapping[str, Any], moment: float, who: tuple[str, str, int, int]) -> None:
        """Takes a line of one of DATA_APIS, whose own time is `moment` (ms).

        `who` is the user, the client-id, the connection and the time of the charge, as in the batch. Nothing is taken
        where an error is raised: one of KeyError, TypeError, AttributeError, ValueError, OverflowError for what are not
        the fields of Kafka.
        """
        header, request, response = fields["requestHeader"], fields["request"], fields["response"]
        done = moment - fields["sendTimeMs"] - fields["responseQueueTimeMs"]
        waited, worked = fields["remoteTimeMs"], fields["localTimeMs"]
        match header["requestApiKeyName"]:
            case "PRODUCE":
                # It waited for the followers, and consumers see what all of them have.
                self._add_produced(request, response, round((done - worked) * 1000))
            case "FETCH" if not is_follower(request):
                # A fetch that waited was read when it was answered; another one in the middle of the work.
                read_us = round((done - (0 if waited > 0 else worked / 2)) * 1000)
                silent = fields["throttleTimeMs"] > 0 and not response["responses"]
                self._add_fetched(request, response, header["requestApiVersion"], read_us, silent, who)
            case "METADATA" | "CREATE_TOPICS":
                for topic in response["topics"]:
                    if topic["errorCode"] == _NONE and (topic_id := topic.get("topicId", NO_ID)) != NO_ID:
                        self.ids[topic_id + ""] = topic["name"] + ""

    def _topic(self, topic: Mapping[str, Any], name: str) -> int:
        known = topic.get(name)
        key = ID + topic["topicId"] if known is None else known + ""
        return self.topics.setdefault(key, len(self.topics))

    def _add_produced(self, request: Mapping[str, Any], response: Mapping[str, Any], since_us: int) -> None:
        if not request["acks"]:
            return  # there is no answer with its offsets
        answers = {
            (_key(topic), partition["index"]): partition
            for topic in response["responses"]
            for partition in topic["partitionResponses"]
        }
        rows = _rows()
        for topic in request["topicData"]:
            code = self._topic(topic, "name")
            for partition in topic["partitionData"]:
                size, answer = partition.get("recordsSizeInBytes"), answers[_key(topic), partition["index"]]
                if answer["errorCode"] == _NONE and size and size > 0:
                    rows.extend(Appended(since_us, code, partition["index"], size, answer["baseOffset"]))
        self.appended += rows

    def _add_fetched(
        self,
        request: Mapping[str, Any],
        response: Mapping[str, Any],
        version: int,
        read_us: int,
        silent: bool,
        who: tuple[str, str, int, int],
    ) -> None:
        if version not in FETCH_VERSIONS:
            raise ValueError(f"fetch version {version!r} is not known")
        user, client, connection, time_ms = who
        asked = [
            Part(self._topic(topic, "topic"), part["partition"], part["fetchOffset"], part["partitionMaxBytes"])
            for topic in request["topics"]
            for part in topic["partitions"]
        ] + [
            Part(self._topic(topic, "topic"), index, FORGOTTEN, 0)
            for topic in request.get("forgottenTopicsData") or ()
            for index in topic["partitions"]
        ]
        delivered = [
            Part(self._topic(topic, "topic"), part["partitionIndex"], part.get("recordsSizeInBytes") or 0, 0)
            for topic in response["responses"]
            for part in topic["partitions"]
        ]
        fetch = Fetched(
            read_us,
            time_ms,
            connection,
            self.users.setdefault(user, len(self.users)),
            self.clients.setdefault(client, len(self.clients)),
            request.get("sessionEpoch", -1) <= 0,
            ~version if silent else version,
            len(asked),
            len(delivered),
        )
        parts = array("q", [number for part in asked + delivered for number in part])
        self.fetched.extend(array("q", fetch))
        self.parts += parts


def table(rows: "array[int]", kind: type[Appended] | type[Fetched] | type[Part]) -> Int64s:
    """Rows of that kind as a table, a row each."""
    return np.array(rows, np.int64).reshape(-1, len(kind._fields))


def _key(topic: Mapping[str, Any]) -> Any:
    return topic["name"] if "name" in topic else topic["topicId"]


def is_follower(request: Mapping[str, Any]) -> bool:
    """Whether a fetch comes from a broker: those name themselves, consumers are -1 or nobody."""
    state = request.get("replicaState")
    replica: int = request.get("replicaId", -1) if state is None else state["replicaId"]
    return replica >= 0


OPENING_API: Final = "api_versions"
"""What clients ask first, as soon as they are connected (Kafka 0.10 and later)."""
LOWER_BOUND: Final = "a request log shows only those connections that sent a request"


class First(NamedTuple):
    """The first request of a connection."""

    time_ms: int
    opens: bool
    """Whether it is ApiVersions."""


@dataclass
class ConnectionLog:
    """The connections in some lines of the log of one broker, by ip and by the text that names them."""

    broker: str
    firsts: dict[str, dict[str, First]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.firsts)

    def add(self, ip: str, connection: str, time_ms: int, *, opens: bool) -> None:
        """Takes a request; the earliest one of a connection counts, of two at one moment ApiVersions."""
        firsts = self.firsts.setdefault(ip, {})
        known = firsts.get(connection)
        if known is None or (time_ms, not opens) < (known.time_ms, not known.opens):
            firsts[connection] = First(time_ms, opens)

    def merge(self, other: "ConnectionLog") -> None:
        """Takes what another part of the same broker's log shows."""
        for ip, firsts in other.firsts.items():
            for connection, first in firsts.items():
                self.add(ip, connection, first.time_ms, opens=first.opens)
