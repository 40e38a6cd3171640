"""Recorded requests in the closed loop: each connection waits out its throttle before its next request.

In memory and on one machine, for `kquota audit --closed-loop`. Between two requests a connection does what it did in
the recording, for as long as it did it there: its think time, without the throttle that the broker logged. A fetch that
is throttled gets nothing and is asked again after the wait; one of more than the quota lets a response hold comes in
pieces (KAFKA-9677). A quota on what the export does not tell (thread time, in a request log) delays nobody.
Sources: enforcement of KIP-124 and 219, as in `kquota.core.enforcement`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import Any, NamedTuple

import numpy as np

from kquota.audit.batch import NO_CONNECTION, UNKNOWN, Batch, Int64s, Tally
from kquota.audit.samples import Samples
from kquota.audit.segment import CHARGED_KEYS
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import Split, plan_splits, read
from kquota.core.change.history import QuotaHistory
from kquota.core.enforcement.kind import FETCH, PRODUCE, REQUEST
from kquota.core.enforcement.sensors import FetchSensor, ProduceSensor, RequestSensor, fetch_with_request
from kquota.core.findings.closed_loop import Closed, ClosedLoop, CounterName
from kquota.core.quotas.quota import QuotaKey
from kquota.core.resolve.resolver import Resolver
from kquota.errors import InputError

MAX_EVENTS = 5_000_000
"""More would need more memory than one process should take, and more patience."""
MAX_RETRIES = 1_000
"""A fetch that was throttled so often never gets through: its thread time alone is above the quota, or it comes in too
many pieces."""


@dataclass(frozen=True)
class Recorded:
    """Requests by connection, each connection's in the order of time; times in ms, sizes in bytes.

    The n-th connection has the rows from `starts[n]` to `starts[n + 1]`. Requests without a connection are connections
    of their own, of one request each.
    """

    clients: Sequence[tuple[str, str, str]]
    """(broker, user, client-id), by `client`."""
    starts: Int64s
    begins: Int64s
    """When the first request of each connection comes."""
    connected: Any
    """Which connections are real ones."""
    client: Int64s
    kind: Int64s
    time_ms: Int64s
    size: Int64s
    """UNKNOWN where the export does not tell what is charged."""
    nanos: Int64s
    """UNKNOWN likewise."""
    think_ms: Int64s
    """How long after the throttle of the request before; 0 for the first."""
    order: Int64s
    """The place in the export, which decides between requests of the same ms."""


def replay_files(paths: Sequence[str], dialect: str, settings: AuditSettings) -> tuple[ClosedLoop, ...]:
    """Replays the requests in these files under each of the settings' variants. Raises InputError."""
    recorded = read_recorded(plan_splits(paths, dialect), settings)
    return tuple(replay(recorded, quotas, settings) for quotas in settings.variants)


def read_recorded(splits: Sequence[Split], settings: AuditSettings) -> Recorded:
    """Reads the requests of these splits. Raises InputError when there are too many, or samples.

    Throttled fetches without a size are left out: their retries come with it.
    """
    batches, rows = [], 0
    for split in splits:
        for batch in read(split, settings.read, Tally()):
            if isinstance(batch, Samples):
                raise InputError(f"{split.path}: holds samples, and --closed-loop needs each request")
            if not isinstance(batch, Batch) or batch.only is not None:
                continue  # the topics of a request are no requests of their own, and connections are none
            batches.append(batch)
            rows += len(batches[-1])
            if rows > MAX_EVENTS:
                raise InputError(
                    f"more than {MAX_EVENTS:,} requests are too many for --closed-loop",
                    hint="give it a shorter period: fewer files, or a part of one",
                )
    return record(batches)


def record(batches: Sequence[Batch]) -> Recorded:
    """The requests of these batches, which have no topics among them, by connection."""
    names: dict[tuple[str, str, str], int] = {}
    empty = np.zeros(0, np.int64)

    def column(values: Iterator[Any]) -> Int64s:
        return np.concatenate([empty, *values]).astype(np.int64)

    client = column(_clients(batch, names) for batch in batches)
    time_ms = column(batch.time_ms for batch in batches)
    kind = column(batch.kind for batch in batches)
    bytes_ = column(batch.bytes for batch in batches)
    exact = column(np.broadcast_to(batch.bytes_complete, len(batch)) for batch in batches).astype(bool)
    nanos = column(
        np.full(len(batch), UNKNOWN, np.int64)
        if batch.request_ns is None
        else np.where(batch.request_complete, batch.request_ns, UNKNOWN)
        for batch in batches
    )
    throttle = column(
        np.zeros(len(batch), np.int64) if batch.throttle_ms is None else np.maximum(batch.throttle_ms, 0)
        for batch in batches
    )
    connection = column(
        np.full(len(batch), NO_CONNECTION) if batch.connection is None else batch.connection for batch in batches
    )
    dropped = exact & (kind == FETCH) & (bytes_ == UNKNOWN) & (connection != NO_CONNECTION)
    size = np.where(exact, bytes_, UNKNOWN)
    brokers = {broker: number for number, broker in enumerate(sorted({broker for broker, *_ in names}))}
    broker = np.array([brokers[name[0]] for name in names] or [0], np.int64)[client]
    groups = _groups(broker, connection)
    rows = np.lexsort((np.arange(len(time_ms)), time_ms, groups))
    times, members = time_ms[rows], groups[rows]
    first = np.concatenate([[True], np.diff(members) != 0])[: len(rows)]
    gaps = np.maximum(np.diff(times, prepend=0) - np.concatenate([[0], throttle[rows][:-1]])[: len(rows)], 0)
    gaps[first] = 0
    # What a connection has thought since its first request; over fetches that are left out, too.
    thought = np.cumsum(gaps)
    kept = np.flatnonzero(~dropped[rows])
    starts = np.flatnonzero(np.concatenate([[True], np.diff(members[kept]) != 0])[: len(kept)])
    thinks = np.diff(thought[kept], prepend=0)
    thinks[starts] = 0
    heads = np.flatnonzero(first)
    head = heads[np.searchsorted(heads, kept[starts], side="right") - 1]
    begins = times[head] + thought[kept[starts]] - thought[head]
    rows = rows[kept]
    return Recorded(
        list(names),
        np.append(starts, len(rows)),
        begins,
        connection[rows[starts]] != NO_CONNECTION,
        client[rows],
        kind[rows],
        time_ms[rows],
        size[rows],
        nanos[rows],
        thinks,
        rows,
    )


def _groups(broker: Int64s, connection: Int64s) -> Int64s:
    """The number of each row's connection; rows without one have a number each."""
    known = connection != NO_CONNECTION
    _, inverse = np.unique(np.column_stack([broker[known], connection[known]]), axis=0, return_inverse=True)
    groups: Int64s = len(connection) + np.arange(len(connection), dtype=np.int64)
    groups[known] = inverse.ravel()
    return groups


def _clients(batch: Batch, names: dict[tuple[str, str, str], int]) -> Int64s:
    """The number of each row's client; new ones join `names`."""
    parts = (batch.broker, batch.user, batch.client_id)
    distinct, inverse = np.unique(np.column_stack([part.codes for part in parts]), axis=0, return_inverse=True)
    numbers = []
    for codes in distinct.tolist():
        broker, user, client_id = (part.values[code] for part, code in zip(parts, codes, strict=True))
        numbers.append(names.setdefault((broker, user, client_id), len(names)))
    found: Int64s = np.array(numbers or [0], np.int64)[inverse.ravel()]
    return found


@dataclass(slots=True)
class _Counter:
    """A sensor and what became of it."""

    sensor: Any
    result: Closed = field(default_factory=Closed)
    known: bool = True
    """Whether all that is charged to it is known, and comes on connections."""


class _Charged(NamedTuple):
    """Where a kind of request of a client goes in one period; None where nothing limits it."""

    bytes: _Counter | None
    byte_limit: Any
    request: _Counter | None
    request_limit: Any


@dataclass
class _Counters:
    """The counters of all brokers under the quotas of a history."""

    quotas: QuotaHistory
    settings: AuditSettings
    by_name: dict[CounterName, _Counter] = field(default_factory=dict)

    def __post_init__(self) -> None:
        keys = tuple(_SENSORS)
        self._resolvers = [{key: Resolver.of(quotas, key) for key in keys} for quotas in self.quotas.snapshots]
        self._charged: dict[tuple[int, int, int], _Charged] = {}

    def charged(self, now: int, client: int, kind: int, names: Sequence[tuple[str, str, str]]) -> _Charged:
        """The counters of a request at `now`, under the limits of then."""
        period = bisect_right(self.quotas.changes_ms, now)
        found = self._charged.get((period, client, kind))
        if found is None:
            bytes_ = (None, None) if kind == REQUEST else self._counter(period, CHARGED_KEYS[kind], *names[client])
            request = self._counter(period, QuotaKey.REQUEST_PERCENTAGE, *names[client])
            found = self._charged[period, client, kind] = _Charged(*bytes_, *request)
        for counter, limit in ((found.bytes, found.byte_limit), (found.request, found.request_limit)):
            if counter is not None and counter.sensor.limit != limit:
                counter.sensor.limit = limit
        return found

    def doubtful(self) -> set[int]:
        """The clients with a counter that is not known."""
        return {
            client
            for (_, client, _), charged in self._charged.items()
            if any(counter is not None and not counter.known for counter in (charged.bytes, charged.request))
        }

    def _counter(
        self, period: int, key: QuotaKey, broker: str, user: str, client_id: str
    ) -> tuple[_Counter, Any] | tuple[None, None]:
        resolution = self._resolvers[period][key].resolve(user, client_id)
        if resolution.limit is None or resolution.entity is None:
            return None, None
        name = (broker, key.value, str(resolution.sensor))
        if name not in self.by_name:
            sensor = _SENSORS[key](windows=self.settings.windows, generation=self.settings.generation)
            self.by_name[name] = _Counter(sensor)
        return self.by_name[name], resolution.limit


_SENSORS: Mapping[QuotaKey, Any] = {
    QuotaKey.PRODUCER_BYTE_RATE: ProduceSensor,
    QuotaKey.CONSUMER_BYTE_RATE: FetchSensor,
    QuotaKey.REQUEST_PERCENTAGE: RequestSensor,
}


def replay(recorded: Recorded, quotas: QuotaHistory, settings: AuditSettings) -> ClosedLoop:
    """Replays the requests in the closed loop under these quotas, which apply by the time of the closed loop."""
    counters = _Counters(quotas, settings)
    clients, connected = recorded.clients, recorded.connected.tolist()
    # Views, whose items are Python's own numbers: lists of them would take several times the memory.
    client, kind, sizes, nanos, think, order = (
        np.ascontiguousarray(getattr(recorded, name)).data
        for name in ("client", "kind", "size", "nanos", "think_ms", "order")
    )
    rows, ends = recorded.starts[:-1].tolist(), recorded.starts[1:].tolist()
    left: list[int | None] = [None] * len(rows)
    """What is still to come of each connection's fetch; None between fetches."""
    tries = [0] * len(rows)
    finished: dict[int, int] = {}
    stuck: set[int] = set()
    heap = [(begin, order[rows[connection]], connection) for connection, begin in enumerate(recorded.begins.tolist())]
    heapify(heap)
    while heap:
        now, _, connection = heap[0]
        row, closed = rows[connection], connected[connection]
        who, what, size = client[row], kind[row], sizes[row]
        charged = counters.charged(now, who, what, clients)
        if what == FETCH and size != UNKNOWN:
            rest = left[connection]
            rest = left[connection] = size if rest is None else rest
            size = rest if charged.bytes is None else _piece(rest, charged.bytes.sensor)
        wait = _charge(charged, what, now, size, nanos[row], closed=closed)
        if what == FETCH and closed:
            rest = left[connection]
            if wait > 0:
                tries[connection] += 1
            else:
                rest = left[connection] = None if rest is None else rest - size
            if tries[connection] > MAX_RETRIES:
                stuck.add(who)
                heappop(heap)
                continue
            if wait > 0 or rest:
                heapreplace(heap, (now + wait, order[row], connection))
                continue
        left[connection], tries[connection] = None, 0
        if closed:
            finished[who] = max(finished.get(who, now), now)
        row = rows[connection] = row + 1
        if row == ends[connection]:
            heappop(heap)
        else:
            heapreplace(heap, (now + wait + think[row], order[row], connection))
    known = {name: counter.result for name, counter in counters.by_name.items() if counter.known}
    for who in counters.doubtful():
        finished.pop(who, None)
        stuck.discard(who)
    return ClosedLoop(known, _delays(recorded, finished, stuck))


def _piece(size: int, sensor: FetchSensor) -> int:
    """What one response may hold of so much; with a single sample, which KAFKA-9677 leaves nothing of, a window's.

    A limit that is not above 0, which a cluster may hold, leaves no size at all.
    """
    if sensor.bound <= 0:
        return size
    return min(size, sensor.max_fetch_bytes or max(int(sensor.bound * sensor.windows.window_seconds), 1))


def _charge(charged: _Charged, kind: int, now: int, size: int, nanos: int, *, closed: bool) -> int:
    """Charges a request, as far as it is known, and says how long its connection waits (ms)."""
    for counter, value in ((charged.bytes, size), (charged.request, nanos)):
        if counter is not None and (value == UNKNOWN or not closed):
            counter.known = False
    bytes_ = charged.bytes if size != UNKNOWN else None
    request = charged.request if nanos != UNKNOWN else None
    byte_ms = request_ms = 0
    if bytes_ is not None and request is not None and kind == FETCH:
        throttle = fetch_with_request(bytes_.sensor, request.sensor, now, size, nanos)
        byte_ms, request_ms = throttle.bandwidth_ms, throttle.request_ms
    else:
        if bytes_ is not None:
            charge = bytes_.sensor.produce if kind == PRODUCE else bytes_.sensor.fetch
            byte_ms = charge(now, size).throttle_ms
        if request is not None:
            request_ms = request.sensor.request(now, nanos).throttle_ms
    if bytes_ is not None:
        bytes_.result.add(byte_ms)
    if request is not None:
        request.result.add(request_ms)
    return max(byte_ms, request_ms, 0)


def _delays(recorded: Recorded, finished: Mapping[int, int], stuck: set[int]) -> dict[tuple[str, str], int | None]:
    """By how much the last request of each client comes later, at the most over the brokers."""
    if not len(recorded.client):
        return {}
    real = np.repeat(recorded.connected, np.diff(recorded.starts))
    last = np.full(len(recorded.clients), np.iinfo(np.int64).min)
    np.maximum.at(last, recorded.client[real], recorded.time_ms[real])
    delays: dict[tuple[str, str], int | None] = {}
    for number in sorted({*finished, *stuck}):
        _, user, client_id = recorded.clients[number]
        before = delays.get((user, client_id), -(1 << 62))
        if number in stuck or before is None:
            delays[user, client_id] = None
        else:
            delays[user, client_id] = max(before, finished[number] - int(last[number]))
    return delays
