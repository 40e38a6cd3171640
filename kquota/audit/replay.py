"""The reduce side: segments become findings. Orders each counter's events in time and runs the enforcement kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kquota.audit import kernels
from kquota.audit.batch import UNKNOWN, Int64s
from kquota.audit.findings import SCHEMA, Verdict
from kquota.audit.pack import Segment, SensorRef
from kquota.audit.settings import AuditSettings
from kquota.core.enforcement import replay
from kquota.core.enforcement.kernel import Mode, kernel
from kquota.core.quota import QuotaKey

_KINDS = {
    QuotaKey.PRODUCER_BYTE_RATE: replay.PRODUCE,
    QuotaKey.CONSUMER_BYTE_RATE: replay.FETCH,
    QuotaKey.REQUEST_PERCENTAGE: replay.REQUEST,
}


def find(segments: Sequence[Segment], settings: AuditSettings) -> pa.Table:
    """The findings of all counters whose events are in the segments; a counter must be whole in them."""
    segments = sorted(segments, key=lambda segment: segment.ordinal)
    sensors: list[SensorRef] = []
    index: dict[SensorRef, int] = {}
    targets = [np.array([_intern(ref, index, sensors) for ref in segment.sensors], np.int64) for segment in segments]
    if not sensors:
        return SCHEMA.empty_table()
    counts = np.zeros(len(sensors), np.int64)
    for segment, target in zip(segments, targets, strict=True):
        np.add.at(counts, target, segment.counts)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    columns = _gather(segments, targets, offsets)
    retaken = np.flatnonzero(columns["values"] == UNKNOWN)
    estimated = np.bincount(_owners(offsets, retaken), minlength=len(sensors))
    _estimate(offsets, columns)
    follows = np.zeros(len(sensors), bool)
    for segment, target in zip(segments, targets, strict=True):
        if segment.shows_outcome:
            follows[target] = True

    engine = kernel(Mode.AUTO)
    summaries = engine.new_summaries(len(sensors))
    kinds = np.array([_KINDS[ref.key] for ref in sensors], np.int8)
    events = _take_back(offsets, columns, retaken[follows[_owners(offsets, retaken)]])
    column: Any = engine.column
    engine.replay_many(
        engine.new_rate(settings.windows, settings.generation),
        column(events.offsets, "int64"),
        column(events.times, "int64"),
        column(events.values, "float64"),
        # What the broker kept and took back is in the events then, and not up to the replay's own verdicts.
        column(np.where(follows & (kinds == replay.FETCH), replay.PRODUCE, kinds), "int8"),
        column([ref.limit for ref in sensors], "float64"),
        None if events.checked is None else column(events.checked, "bool"),
        None,
        summaries,
    )
    complete = np.ones(len(sensors), bool)
    for segment, target in zip(segments, targets, strict=True):
        if not segment.complete:
            complete[target] = False
    throttled = np.asarray(summaries.throttled)
    named = np.flatnonzero((throttled > 0) | ~complete)
    clients, client_count = _clients(segments, targets, len(sensors), set(named.tolist()), settings.top_clients)
    return _table(
        sensors, counts, complete, summaries, columns["throttle_ms"], offsets, estimated, client_count, clients
    )


def _intern(ref: SensorRef, index: dict[SensorRef, int], sensors: list[SensorRef]) -> int:
    known = index.get(ref)
    if known is None:
        known = index[ref] = len(sensors)
        sensors.append(ref)
    return known


def _gather(segments: Sequence[Segment], targets: Sequence[Int64s], offsets: Int64s) -> dict[str, Any]:
    """The columns of all segments by counter, in time; events of one moment stay in the order of the export."""
    total = int(offsets[-1])
    names = ["times", "values"]
    for optional in ("throttle_ms", "connection", "position"):
        if any(getattr(segment, optional) is not None for segment in segments):
            names.append(optional)
    columns: dict[str, Any] = {name: np.zeros(total, np.int64) for name in names}
    cursor = offsets[:-1].copy()
    for segment, target in zip(segments, targets, strict=True):
        for name in names:
            source = getattr(segment, name)
            if source is not None:
                if name == "times":
                    source = source.astype(np.int64) + segment.base_ms
                kernels.place(segment.counts, target, cursor, source, columns[name])
        cursor[target] += segment.counts
    for sensor in kernels.unsorted(offsets, columns["times"]).tolist():
        rows = slice(offsets[sensor], offsets[sensor + 1])
        order = np.argsort(columns["times"][rows], kind="stable")
        for name in names:
            columns[name][rows] = columns[name][rows][order]
    return {"throttle_ms": None, "connection": None, "position": None, **columns}


def _owners(offsets: Int64s, rows: Int64s) -> Int64s:
    """The counters that the rows belong to."""
    return np.searchsorted(offsets, rows, side="right") - 1


def _estimate(offsets: Int64s, columns: dict[str, Any]) -> None:
    """Fills in, in place, what throttled fetches tried to read.

    A throttled fetch is sent, and logged, empty: its bytes come with a retry on the same connection. Clients rotate
    their partitions and a full response holds the first ones only, so the next fetch that got through counts if it
    asked for the same position; else the next one there at all, else the last one before, else nothing.
    """
    values = columns["values"]
    for sensor in np.unique(_owners(offsets, np.flatnonzero(values == UNKNOWN))).tolist():
        rows = slice(int(offsets[sensor]), int(offsets[sensor + 1]))
        sizes = values[rows].tolist()
        connections, positions = (
            [0] * len(sizes) if columns[name] is None else columns[name][rows].tolist()
            for name in ("connection", "position")
        )
        following: dict[int, int] = {}
        same: dict[tuple[int, int], int] = {}
        for row in range(len(sizes) - 1, -1, -1):
            connection, position = connections[row], positions[row]
            if sizes[row] == UNKNOWN:
                sizes[row] = same.get((connection, position), following.get(connection, UNKNOWN))
            else:
                following[connection] = sizes[row]
                if position:
                    same[connection, position] = sizes[row]
        before: dict[int, int] = {}
        for row, connection in enumerate(connections):
            if sizes[row] == UNKNOWN:
                sizes[row] = before.get(connection, 0)
            else:
                before[connection] = sizes[row]
        values[rows] = sizes


class _Events(NamedTuple):
    """What the kernel replays."""

    offsets: Int64s
    times: Int64s
    values: Int64s
    checked: Any


def _take_back(offsets: Int64s, columns: dict[str, Any], retaken: Int64s) -> _Events:
    """The events, each of the rows `retaken` followed by its own un-recording, as the broker did it.

    Where the export shows what the broker took back, the counter is to hold what the broker's held: a retry comes just
    when the rate is down to the limit, so an error of a millisecond would turn a verdict, and then the bytes of
    everything after it.
    """
    times, values = columns["times"], columns["values"]
    if len(retaken) == 0:
        return _Events(offsets, times, values, None)
    after = retaken + 1
    checked = np.insert(np.ones(len(times), bool), after, False)
    shifted = offsets + np.searchsorted(retaken, offsets)
    return _Events(
        shifted, np.insert(times, after, times[retaken]), np.insert(values, after, -values[retaken]), checked
    )


def _clients(
    segments: Sequence[Segment], targets: Sequence[Int64s], count: int, named: set[int], top: int
) -> tuple[list[list[dict[str, Any]]], Int64s]:
    """The busiest clients of the named counters, and how many share each of them."""
    totals: dict[int, dict[tuple[str, str], list[int]]] = {}
    for segment, target in zip(segments, targets, strict=True):
        member_target = target[segment.member_sensor]
        for member in np.flatnonzero(np.isin(member_target, [*named])):
            mine = totals.setdefault(int(member_target[member]), {})
            sums = mine.setdefault(segment.members[member], [0, 0])
            sums[0] += int(segment.member_events[member])
            sums[1] += int(segment.member_values[member])
    clients: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    client_count = np.ones(count, np.int64)
    for sensor, members in totals.items():
        client_count[sensor] = len(members)
        busiest = sorted(members.items(), key=lambda item: (-item[1][1], -item[1][0], item[0]))[:top]
        clients[sensor] = [
            {"user": user, "client_id": client_id, "events": events, "value": value}
            for (user, client_id), (events, value) in busiest
        ]
    return clients, client_count


def _table(
    sensors: list[SensorRef],
    counts: Int64s,
    complete: Any,
    summaries: Any,
    throttle: Int64s | None,
    offsets: Int64s,
    estimated: Int64s,
    client_count: Int64s,
    clients: list[list[dict[str, Any]]],
) -> pa.Table:
    throttled = np.asarray(summaries.throttled)
    verdicts = np.where(
        ~complete,
        Verdict.UNDETERMINED.value,
        np.where(throttled > 0, Verdict.THROTTLED.value, Verdict.NOT_THROTTLED.value),
    )

    def predicted(column: Any, known: Any = complete) -> pa.Array:
        return pa.array(np.asarray(column), pa.int64(), mask=~known)

    if throttle is None:
        logged = [pa.nulls(len(sensors), pa.int64())] * 3
    else:
        starts = offsets[:-1]
        logged = [
            pa.array(np.add.reduceat((throttle > 0).astype(np.int64), starts)),
            pa.array(np.add.reduceat(throttle, starts)),
            pa.array(np.maximum.reduceat(throttle, starts)),
        ]
    happened = complete & (throttled > 0)
    return pa.table(
        [
            pa.array([ref.broker for ref in sensors]),
            pa.array([ref.key.value for ref in sensors]),
            pa.array([ref.sensor for ref in sensors]),
            pa.array([ref.entity for ref in sensors]),
            pa.array([ref.level for ref in sensors], pa.int8()),
            pa.array([ref.limit for ref in sensors], pa.float64()),
            pa.array(verdicts.tolist()),
            pa.array(counts),
            predicted(summaries.throttled),
            predicted(summaries.total_ms),
            predicted(summaries.max_ms),
            pa.array(np.asarray(summaries.peak_rate)),
            predicted(summaries.first_ms, happened),
            predicted(summaries.last_ms, happened),
            *logged,
            pa.array(estimated),
            pa.array(client_count),
            pa.array(clients, SCHEMA.field("clients").type),
        ],
        schema=SCHEMA,
    )
