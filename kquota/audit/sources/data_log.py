"""What a request log shows of the data itself: the batches that were appended, and who read up to where.

A broker logs the size of each record set that is produced, and the offset that it got; so the data of a partition is
known, batch by batch, as far as the log shows its producers. What a throttled fetch would have held follows from that
(`kquota.audit.ledger.fetch_sizes`), and so does when there was something to read.

Lines are kept as rows of numbers, and topics as codes: in newer requests they go by their ids, in older ones by their
names, and the answers to METADATA and CREATE_TOPICS show which belong together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np

from kquota.audit.batch import Int64s
from kquota.audit.sources.sizes import FETCH_VERSIONS

DATA_APIS: Final = frozenset({"PRODUCE", "FETCH", "METADATA", "CREATE_TOPICS", "END_TXN"})
"""The APIs whose lines show something of the data."""
UNKNOWN_OFFSET: Final = -1
"""Stands for the offset of a batch that was produced without an answer (acks=0)."""
NO_TRANSACTION: Final = -1
_NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
ID: Final = "#"
"""Stands before the id of a topic; no topic's name holds it."""
_NONE: Final = 0
UNBOUNDED: Final = (1 << 31) - 1

_APPENDED: Final = Struct("=7q")
_COPIED: Final = Struct("=5q")
_FETCHED: Final = Struct("=15q")
_PART: Final = Struct("=4q")


class Appended(NamedTuple):
    """Batches that producers appended, a row each, as columns; partitions by their topics' codes, times in µs.

    A batch was appended at some time from `begun_us` to `done_us`, which is when the broker answered. A log does not
    say how many records a batch holds; the next one's first offset does.
    """

    begun_us: Int64s
    done_us: Int64s
    topic: Int64s
    partition: Int64s
    bytes: Int64s
    first_offset: Int64s
    """UNKNOWN_OFFSET where there was no answer."""
    transaction: Int64s
    """The code of the transactional id, NO_TRANSACTION for none."""


class Copied(NamedTuple):
    """How far followers had copied a partition when they fetched again: consumers see what all have copied."""

    begun_us: Int64s
    topic: Int64s
    partition: Int64s
    replica: Int64s
    offset: Int64s


class Fetched(NamedTuple):
    """Fetches of consumers; the i-th owns the next `asked[i]`, `forgotten[i]` and `delivered[i]` rows of `parts`."""

    read_us: Int64s
    """About when the broker read what it answers with."""
    time_ms: Int64s
    """The charge, as in a `Batch`."""
    coarse: Int64s
    """1 where the line prints milliseconds only."""
    connection: Int64s
    user: Int64s
    client: Int64s
    session: Int64s
    epoch: Int64s
    opened: Int64s
    """The id of the fetch session in the answer."""
    committed: Int64s
    """1 where only committed records are read."""
    max_bytes: Int64s
    layout: Int64s
    """The version of the API; less than 0 (`~version`) for a throttled fetch, of which nothing was sent."""
    asked: Int64s
    forgotten: Int64s
    delivered: Int64s


class Parts(NamedTuple):
    """Partitions of fetches: asked for, to forget, and answered."""

    topic: Int64s
    partition: Int64s
    first: Int64s
    """The offset that is asked for; of an answer the bytes of its records."""
    second: Int64s
    """The most bytes of the partition."""


@dataclass
class DataLog:
    """What some lines of one broker's log show of the data."""

    broker: str
    topics: dict[str, int] = field(default_factory=dict)
    """The code of each topic's name, and of its id behind `#`."""
    transactions: dict[str, int] = field(default_factory=dict)
    users: dict[str, int] = field(default_factory=dict)
    clients: dict[str, int] = field(default_factory=dict)
    ids: dict[tuple[str, str], int] = field(default_factory=dict)
    """When an answer first showed that a topic has an id, in µs, by (name, id)."""
    ended: list[tuple[str, int]] = field(default_factory=list)
    """(transactional id, µs) of transactions that were committed or aborted."""
    throttled: set[tuple[str, str, str]] = field(default_factory=set)
    """(broker, user, client-id) of fetches that were throttled, and of which nothing was sent."""
    _appended: bytearray = field(default_factory=bytearray)
    _copied: bytearray = field(default_factory=bytearray)
    _fetched: bytearray = field(default_factory=bytearray)
    _parts: bytearray = field(default_factory=bytearray)

    def __bool__(self) -> bool:
        return bool(self._appended or self._copied or self._fetched or self.ids or self.ended or self.throttled)

    @property
    def rows(self) -> int:
        """How many rows it has."""
        tables = ((self._appended, _APPENDED), (self._copied, _COPIED), (self._fetched, _FETCHED))
        return sum(len(rows) // layout.size for rows, layout in tables)

    @property
    def appended(self) -> Appended:
        """The batches."""
        return Appended(*_columns(self._appended, _APPENDED))

    @property
    def copied(self) -> Copied:
        """The followers."""
        return Copied(*_columns(self._copied, _COPIED))

    @property
    def fetched(self) -> Fetched:
        """The fetches of consumers."""
        return Fetched(*_columns(self._fetched, _FETCHED))

    @property
    def parts(self) -> Parts:
        """The partitions of the fetches."""
        return Parts(*_columns(self._parts, _PART))

    @property
    def shared(self) -> DataLog:
        """What other brokers' data is understood by, too."""
        return DataLog(self.broker, ids=self.ids, ended=self.ended, throttled=self.throttled)

    def show(self, table: str, rows: Int64s) -> None:
        """Adds rows to one of the tables, as `add` does."""
        held: bytearray = getattr(self, f"_{table}")
        held += np.ascontiguousarray(rows).tobytes()

    def add(self, fields: Mapping[str, Any], moment: float, who: tuple[str, str, int, int]) -> None:
        """Takes a line of one of DATA_APIS, whose own time is `moment` (ms).

        `who` is the user, the client-id, the connection and the time of the charge, as in the batch. Nothing is taken
        where an error is raised: one of KeyError, TypeError, AttributeError, ValueError, struct.error for what are not
        the fields of Kafka.
        """
        header = fields["requestHeader"]
        api = header["requestApiKeyName"]
        done = moment - fields["sendTimeMs"] - fields["responseQueueTimeMs"]
        begun_us = round((done - fields["localTimeMs"] - fields["remoteTimeMs"]) * 1000)
        done_us = round(done * 1000)
        if api == "PRODUCE":
            self._add_produced(fields, begun_us, done_us)
        elif api == "FETCH":
            if _replica(fields["request"]) is None:
                # A fetch that did not wait was read when it was begun with; another one just before it was answered.
                read_us = done_us if fields["remoteTimeMs"] > 0 else begun_us + round(fields["localTimeMs"] * 500)
                self._add_fetched(fields, header["requestApiVersion"], read_us, moment % 1 == 0.5, who)
            else:
                self._add_copied(fields["request"], begun_us)
        elif api == "END_TXN":
            if fields["response"]["errorCode"] == _NONE:
                self.ended.append((fields["request"]["transactionalId"] + "", begun_us))
        else:
            for topic in fields["response"]["topics"]:
                if topic["errorCode"] == _NONE and (topic_id := topic.get("topicId", _NO_ID)) != _NO_ID:
                    self.ids.setdefault((topic["name"] + "", topic_id + ""), done_us)

    def _topic(self, fields: Mapping[str, Any], name: str) -> int:
        key = fields.get(name)
        if key is None:
            key = ID + fields["topicId"]
        code = self.topics.get(key)
        return self.topics.setdefault(key + "", len(self.topics)) if code is None else code

    def _add_produced(self, fields: Mapping[str, Any], begun_us: int, done_us: int) -> None:
        request, response = fields["request"], fields["response"]
        text = request.get("transactionalId")
        transaction = NO_TRANSACTION
        if text is not None:
            transaction = self.transactions.setdefault(text + "", len(self.transactions))
        topics = request["topicData"]
        answers = _answers(topics, response) if request["acks"] and response else None
        rows, pack = b"", _APPENDED.pack
        for topic in topics:
            code = self._topic(topic, "name")
            for partition in topic["partitionData"]:
                index, size, offset = partition["index"], partition.get("recordsSizeInBytes"), UNKNOWN_OFFSET
                if answers is not None:
                    answer = answers.pop()
                    if answer["errorCode"] != _NONE:
                        continue
                    offset = answer["baseOffset"]
                if size and size > 0:
                    rows += pack(begun_us, done_us, code, index, size, offset, transaction)
        self._appended += rows

    def _add_copied(self, request: Mapping[str, Any], begun_us: int) -> None:
        replica = _replica(request)
        rows = bytearray()
        for topic in request["topics"]:
            code = self._topic(topic, "topic")
            for partition in topic["partitions"]:
                rows += _COPIED.pack(begun_us, code, partition["partition"], replica, partition["fetchOffset"])
        self._copied += rows

    def _add_fetched(
        self, fields: Mapping[str, Any], version: int, read_us: int, coarse: bool, who: tuple[str, str, int, int]
    ) -> None:
        if version not in FETCH_VERSIONS:
            raise ValueError(f"fetch version {version!r} is not known")
        request, response = fields["request"], fields["response"]
        user, client, connection, time_ms = who
        pack, parts = _PART.pack, b""
        asked = forgotten = delivered = 0
        for topic in request["topics"]:
            code = self._topic(topic, "topic")
            for each in topic["partitions"]:
                parts += pack(code, each["partition"], each["fetchOffset"], each["partitionMaxBytes"])
                asked += 1
        for topic in request.get("forgottenTopicsData") or ():
            code = self._topic(topic, "topic")
            for index in topic["partitions"]:
                parts += pack(code, index, 0, 0)
                forgotten += 1
        responses = response["responses"]
        for topic in responses:
            code = self._topic(topic, "topic")
            for each in topic["partitions"]:
                parts += pack(code, each["partitionIndex"], each.get("recordsSizeInBytes") or 0, 0)
                delivered += 1
        silent = fields["throttleTimeMs"] > 0 and not responses
        row = _FETCHED.pack(
            read_us,
            time_ms,
            coarse,
            connection,
            self.users.setdefault(user, len(self.users)),
            self.clients.setdefault(client, len(self.clients)),
            request.get("sessionId", 0),
            request.get("sessionEpoch", -1),
            response.get("sessionId", 0),
            request.get("isolationLevel", 0),
            request.get("maxBytes", UNBOUNDED),
            ~version if silent else version,
            asked,
            forgotten,
            delivered,
        )
        if silent:
            self.throttled.add((self.broker, user, client))
        self._parts += parts
        self._fetched += row


def _answers(topics: Sequence[Mapping[str, Any]], response: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The answers to the partitions of a produce request, those to the last ones first."""
    responses = response["responses"]
    if len(topics) == len(responses) == 1:
        (topic,), (answered,) = topics, responses
        partitions: list[Mapping[str, Any]] = answered["partitionResponses"]
        if len(partitions) == len(topic["partitionData"]) == 1:
            return [*partitions]
    found = {(_key(each), one["index"]): one for each in responses for one in each["partitionResponses"]}
    asked = [(_key(each), one["index"]) for each in topics for one in each["partitionData"]]
    return [found[place] for place in reversed(asked)]


def _key(topic: Mapping[str, Any]) -> Any:
    return topic["name"] if "name" in topic else topic["topicId"]


def _replica(request: Mapping[str, Any]) -> int | None:
    """The broker that fetches; None for a consumer."""
    state = request.get("replicaState")
    replica: int = request.get("replicaId", -1) if state is None else state["replicaId"]
    return replica if replica >= 0 else None


def _columns(rows: bytearray, layout: Struct) -> Iterator[Int64s]:
    table = np.frombuffer(bytes(rows), np.int64).reshape(-1, layout.size // 8)
    return iter(np.ascontiguousarray(table.T))
