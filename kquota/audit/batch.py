"""A batch of usage events as columns: what every source produces and is charged."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kquota.core.enforcement.kind import CONNECTION, FETCH, MUTATION, PRODUCE, REQUEST
from kquota.core.findings.answers import Answered, Answers, AnswersOf, add_up
from kquota.core.quotas.quota import QuotaKey

Int64s: TypeAlias = npt.NDArray[np.int64]
Int32s: TypeAlias = npt.NDArray[np.int32]
Bools: TypeAlias = npt.NDArray[np.bool_]

SHARE_FETCH_API = "share_fetch"
API_KINDS = {"produce": PRODUCE, "fetch": FETCH, SHARE_FETCH_API: FETCH}
"""The kind of each API that has bytes, by its name: share fetches (KIP-932) and fetches have one quota."""

CHARGED_KEYS: dict[int, QuotaKey] = {
    PRODUCE: QuotaKey.PRODUCER_BYTE_RATE,
    FETCH: QuotaKey.CONSUMER_BYTE_RATE,
    MUTATION: QuotaKey.CONTROLLER_MUTATION_RATE,
    CONNECTION: QuotaKey.CONNECTION_CREATION_RATE,
}
"""The key that `bytes` of a kind of event is charged to."""
KEYS = (*CHARGED_KEYS.values(), QuotaKey.REQUEST_PERCENTAGE)
"""The keys that an audit can replay, by the numbers that ledgers carry."""

UNKNOWN = -1
"""The bytes of a throttled fetch: the broker sent, and logged, an empty response."""


def is_text(text: str) -> bool:
    """Whether a string can be written as UTF-8: JSON can hold half a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Column:
    """A column of strings, dictionary-encoded: `values[codes[row]]`."""

    codes: Int32s
    values: Sequence[str]

    @classmethod
    def encode(cls, texts: Sequence[str]) -> Column:
        """Encodes plain strings."""
        index: dict[str, int] = {}
        codes = np.fromiter((index.setdefault(text, len(index)) for text in texts), np.int32, len(texts))
        return cls(codes, list(index))

    @classmethod
    def constant(cls, value: str, rows: int) -> Column:
        """The same string in every row."""
        return cls(np.zeros(rows, np.int32), [value])

    def texts(self) -> list[str]:
        """The plain strings."""
        values = self.values
        return [values[code] for code in self.codes.tolist()]

    def take(self, rows: Any) -> Column:
        """The column at those rows (a mask or indexes)."""
        return Column(self.codes[rows], self.values)


@dataclass(frozen=True, slots=True)
class Batch:
    """Usage events, a row each, in the order of the export.

    `time_ms` is the moment of the charge in epoch ms; `bytes` what the byte-rate quota is charged (`UNKNOWN` for a
    throttled fetch without its size), the partitions of a mutation, 1 of a connection; `request_ns` thread time in ns;
    `throttle_ms` what the broker itself answered (less than 0 where that is not known); `connection` an id that repeats
    for the requests of one connection; `detail` stands for what a fetch asked for (0 where that is not known). It is 1
    for a mutation of a permissive request. For a produce request in a log it stands for the library and the partition
    (`request_line.sender_of`). Optional columns are None where the export does not have them.
    """

    broker: Column
    user: Column
    client_id: Column
    kind: npt.NDArray[np.uint8]
    """`Kind` of each event: what its bytes are charged to. A MUTATION is one topic of a request. A CONNECTION has its
    ip in place of a client-id, and nobody in place of a user."""
    time_ms: Int64s
    bytes: Int64s
    request_ns: Int64s | None = None
    request_complete: bool | Bools = False
    """Whether `request_ns` is all the thread time that is charged, of all events or of each; a request log lacks the
    network threads' share."""
    bytes_complete: bool | Bools = True
    """Whether `bytes` is what is charged, of all events or of each; an old request log has a lower bound only, or
    nothing, and no log tells the records of a share fetch, nor the partitions of a topic that it shows only when that
    is deleted."""
    throttle_ms: Int64s | None = None
    connection: Int64s | None = None
    detail: Int64s | None = None

    def __len__(self) -> int:
        return len(self.time_ms)

    @property
    def only(self) -> int | None:
        """MUTATION or CONNECTION where all events are of that kind, which has batches of its own; else None."""
        kind = int(self.kind[0]) if len(self) else REQUEST
        return kind if kind in (MUTATION, CONNECTION) else None

    def take(self, rows: Any) -> Batch:
        """The events at those rows (a mask or indexes)."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        taken: dict[str, Any] = {
            name: column.take(rows) if isinstance(column, Column) else column[rows]
            for name, column in columns.items()
            if column is not None and not isinstance(column, bool)
        }
        return replace(self, **taken)


_CLIENT = ["broker", "user", "client_id", "request"]
_REQUESTS = ("other", "produce", "fetch")


def answers_in(batch: Batch, *, every: bool) -> dict[Answered, Answers]:
    """What the brokers answered to the requests of a batch, by client and kind of request.

    With `every` the counts are of all requests whose throttle time is known. Else only throttled requests count, which
    takes memory for throttled clients alone.
    """
    if batch.throttle_ms is None or batch.only is not None:
        return {}
    rows = np.flatnonzero(batch.throttle_ms >= 0 if every else batch.throttle_ms > 0)
    if not len(rows):
        return {}
    brokers, users, clients = (column.take(rows) for column in (batch.broker, batch.user, batch.client_id))
    throttle_ms = batch.throttle_ms[rows]
    hit = throttle_ms > 0
    events = pa.table(
        {
            "broker": brokers.codes,
            "user": users.codes,
            "client_id": clients.codes,
            "request": np.select([batch.kind[rows] == PRODUCE, batch.kind[rows] == FETCH], [1, 2], 0),
            "hit": hit.astype(np.int64),
            "throttle_ms": throttle_ms,
            "time_ms": pa.array(batch.time_ms[rows], mask=~hit),
        }
    )
    asked = [("hit", "count"), ("hit", "sum"), ("throttle_ms", "max"), ("time_ms", "min"), ("time_ms", "max")]
    groups = events.group_by(_CLIENT).aggregate(asked)
    by_client: dict[Answered, Answers] = {}
    for group in groups.select([*_CLIENT, *map("_".join, asked)]).to_pylist():
        broker, user, client_id, request, *counts = group.values()
        name = Answered(brokers.values[broker], users.values[user], clients.values[client_id], _REQUESTS[request])
        # Two numbers of a column may stand for the same name.
        answers = Answers(*counts)
        by_client[name] = by_client[name] + answers if name in by_client else answers
    return by_client


@dataclass(frozen=True, slots=True)
class Reject:
    """A record that could not be read."""

    source: str
    place: str
    """Where in the source: `line 12`, `byte 4711`, `row 3`."""
    reason: str
    text: str
    """The record's beginning."""


JAVA = 1
"""The library of a producer: Apache Kafka's Java client, which joins waiting records."""
OTHER_LIBRARY = 2
UNANSWERED = 128
"""Added to what stands for the sender of a produce request with acks=0."""

NO_CONNECTION = 0
"""The id of the connection of an event that has none."""

MAX_REJECT_TEXT = 500
MAX_REJECTS_PER_SPLIT = 10_000
"""Rejects beyond this are counted and not kept: a quarantine is to be looked at, not a second copy of the input."""


@dataclass(frozen=True, slots=True)
class Exemption:
    """Requests whose thread time brokers count as exempt, and that time as far as the export shows it."""

    requests: int = 0
    request_time_ns: int = 0

    def __add__(self, other: Exemption) -> Exemption:
        return Exemption(self.requests + other.requests, self.request_time_ns + other.request_time_ns)


@dataclass(frozen=True, slots=True)
class UnreadFile:
    """A file that could not be read to its end, or not at all."""

    path: str
    reason: str


@dataclass
class Tally:
    """What was read, and what could not be: of a split, of a task, or of all that was audited."""

    events: int = 0
    ungoverned: int = 0
    """Events and samples of clients without a limit."""
    exempt: int = 0
    """Requests that brokers do not charge; they are not among the events."""
    exemptions: dict[str, Exemption] = field(default_factory=dict)
    """What went into the brokers' exempt thread time, by reason; `acks_0` are events whose time alone is exempt."""
    repeated: int = 0
    """Requests that were there before; they count once."""
    outside: int = 0
    """Records outside the time that counts (`ReadSettings.since_ms`)."""
    rejected: int = 0
    rejects: list[Reject] = field(default_factory=list)
    unread: dict[str, UnreadFile] = field(default_factory=dict)
    """Files that were not read to their ends, by their paths."""
    first_ms: int | None = None
    last_ms: int | None = None
    noted: dict[str, set[Hashable]] = field(default_factory=dict)
    """What each source that was read shows (`core.findings.verdicts.Need`), by its dialect."""
    several_brokers: str | None = None
    """What may show that one log is of several brokers; of all that was audited."""
    answers: dict[Answered, Answers] = field(default_factory=dict)
    """What the brokers themselves answered: the throttled requests of each client, of all clients, also of those
    without a limit. With `ReadSettings.by_client` all requests whose throttle time is known."""
    requests: Any = field(default=None, compare=False)
    """The requests that were read (`kquota.audit.sources.requests.Requests`), where the source knows them again."""

    @classmethod
    def total(cls, tallies: Sequence[Tally]) -> Tally:
        """What became of all these records."""
        total = cls()
        for tally in tallies:
            for count in ("events", "ungoverned", "exempt", "repeated", "outside", "rejected"):
                setattr(total, count, getattr(total, count) + getattr(tally, count))
            total.rejects += tally.rejects
            total.unread = {**tally.unread, **total.unread}
            for dialect, shown in tally.noted.items():
                total.note(dialect, *shown)
        total.first_ms = min((tally.first_ms for tally in tallies if tally.first_ms is not None), default=None)
        total.last_ms = max((tally.last_ms for tally in tallies if tally.last_ms is not None), default=None)
        total.exemptions = {
            reason: sum((tally.exemptions.get(reason, Exemption()) for tally in tallies), Exemption())
            for reason in sorted({reason for tally in tallies for reason in tally.exemptions})
        }
        total.answers = add_up([tally.answers for tally in tallies])
        total.several_brokers = next((tally.several_brokers for tally in tallies if tally.several_brokers), None)
        return total

    @property
    def period(self) -> tuple[int, int]:
        """The first and the last event; 0 where there are exempt requests only."""
        return self.first_ms or 0, self.last_ms or 0

    @property
    def unread_files(self) -> tuple[UnreadFile, ...]:
        """Files that were not read to their ends, in the order of their paths: the audit lacks the rest of them."""
        return tuple(self.unread[path] for path in sorted(self.unread))

    def note(self, dialect: str, *shown: Hashable) -> None:
        """Notes that a source was read, and what it shows."""
        self.noted.setdefault(dialect, set()).update(shown)

    def spare(self, reason: str, requests: int, request_time_ns: int, *, whole: bool) -> None:
        """Counts exempt requests; not `whole` when only their thread time is."""
        self.exempt += requests if whole else 0
        self.exemptions[reason] = self.exemptions.get(reason, Exemption()) + Exemption(requests, request_time_ns)

    def reject(self, source: str, place: str, reason: str, text: str) -> None:
        """Counts a record that could not be read and keeps its beginning."""
        self.rejected += 1
        if len(self.rejects) < MAX_REJECTS_PER_SPLIT:
            self.rejects.append(Reject(source, place, reason, text[:MAX_REJECT_TEXT]))

    def leave(self, path: str, place: str, reason: str, records: int = 1) -> None:
        """Counts the rest of a file, from that place on, that cannot be read: so many records, 1 where nobody knows."""
        self.reject(path, place, reason, "")
        self.rejected += records - 1
        self.unread.setdefault(path, UnreadFile(path, reason))

    def heard(self, answers: AnswersOf) -> None:
        """Adds what brokers answered."""
        if answers:
            self.answers = add_up([self.answers, answers])

    def saw(self, times_ms: Int64s, requests: int) -> None:
        """Counts requests, or samples, and widens the time range."""
        if len(times_ms) == 0:
            return
        self.events += requests
        first, last = int(times_ms.min()), int(times_ms.max())
        self.first_ms = first if self.first_ms is None else min(first, self.first_ms)
        self.last_ms = last if self.last_ms is None else max(last, self.last_ms)
