"""The map side: batches become segments, rows sorted by sensor, one blob per bucket.

Resolution happens once per distinct (broker, kind, user, client-id), in plain Python; everything per row is an array
operation. What Spark shuffles is then a few hundred blobs of some ten bytes a row, not rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from kquota.audit import kernels
from kquota.audit.batch import FETCH, OTHER, PRODUCE, Batch, Column, Int64s
from kquota.core.quota import QuotaKey
from kquota.core.resolver import Resolver
from kquota.core.snapshot import QuotaSnapshot

BYTE_KEYS = {PRODUCE: QuotaKey.PRODUCER_BYTE_RATE, FETCH: QuotaKey.CONSUMER_BYTE_RATE}


@dataclass(frozen=True, slots=True)
class SensorRef:
    """One counter on one broker, and what limits it."""

    broker: str
    key: QuotaKey
    sensor: str
    entity: str
    level: int
    limit: float

    def bucket(self, buckets: int) -> int:
        """The same bucket in every process for the same counter."""
        name = f"{self.broker}\0{self.key.value}\0{self.sensor}".encode()
        return int.from_bytes(blake2b(name, digest_size=8).digest(), "little") % buckets


@dataclass(frozen=True, slots=True)
class Segment:
    """The events of some sensors from one batch: sorted by sensor, in the export's order within each.

    `counts[i]` rows belong to `sensors[i]`. Times are offsets from `base_ms`. Members are the clients behind the
    sensors: `member_sensor[j]` is the index of the sensor that `members[j]`, a (user, client-id), is charged to.
    """

    ordinal: tuple[int, int]
    """(split, batch): the order in which the export holds the events."""
    sensors: list[SensorRef]
    counts: Int64s
    base_ms: int
    times: Any
    values: Any
    throttle_ms: Any
    connection: Any
    position: Any
    complete: bool
    """Whether the values are all that a broker charges."""
    shows_outcome: bool
    """Whether the broker took back the fetches of unknown size and no other."""
    members: list[tuple[str, str]]
    member_sensor: Int64s
    member_events: Int64s
    member_values: Int64s

    def dumps(self) -> bytes:
        """The segment as bytes for the shuffle, between workers of one job."""
        return pickle.dumps(self, protocol=5)

    @staticmethod
    def loads(blob: bytes) -> Segment:
        """The inverse of `dumps`."""
        segment = pickle.loads(blob)  # noqa: S301 - written by this job's own workers, as Spark's own closures are
        assert isinstance(segment, Segment)
        return segment


class _Interner:
    """Small integers for strings, the same for the life of a worker."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}
        self.names: list[str] = []

    def codes(self, column: Column) -> Int64s:
        lut = np.fromiter((self._code(name) for name in column.values), np.int64, len(column.values))
        result: Int64s = lut[column.codes] if len(lut) else np.zeros(len(column.codes), np.int64)
        return result

    def _code(self, name: str) -> int:
        code = self.index.get(name)
        if code is None:
            code = self.index[name] = len(self.names)
            self.names.append(name)
        return code


_BITS = 24
_MASK = (1 << _BITS) - 1


@dataclass
class Packer:
    """Turns batches into segments; keeps its tables between batches of one worker."""

    quotas: QuotaSnapshot
    buckets: int
    sensors: list[SensorRef] = field(default_factory=list)
    ungoverned: int = 0
    """Events that no byte-rate or request quota limits."""

    def __post_init__(self) -> None:
        keys = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE)
        self._resolvers = {key: Resolver.of(self.quotas, key) for key in keys}
        self._brokers, self._users, self._clients = _Interner(), _Interner(), _Interner()
        self._sensor_ids: dict[tuple[str, QuotaKey, str], int] = {}
        self._bucket_of: list[int] = []
        self._charged: dict[int, tuple[int, int]] = {}
        self._times_requests = bool(self._resolvers[QuotaKey.REQUEST_PERCENTAGE].values)

    def pack(self, batch: Batch, ordinal: tuple[int, int]) -> Iterator[tuple[int, Segment]]:
        """(bucket, segment) for each bucket that the batch has rows for."""
        if len(batch) == 0:
            return
        broker, user, client = (
            self._brokers.codes(batch.broker),
            self._users.codes(batch.user),
            self._clients.codes(batch.client_id),
        )
        if max(len(self._users.names), len(self._clients.names)) > _MASK or len(self._brokers.names) > 1 << 12:
            raise OverflowError("more than 16 million users or client-ids, or 4096 brokers, in one task")
        keys = ((broker << 2 | batch.kind) << 2 * _BITS) | (user << _BITS) | client
        codes, members = kernels.dense_codes(keys)
        charged = np.array([self._charge(int(key)) for key in members], np.int64)
        if self._times_requests:
            free = charged.max(axis=1) < 0
            # An export without thread times still names the clients whose request quota cannot be judged.
            known = batch.request_ns is not None
            nanos = batch.request_ns if batch.request_ns is not None else np.zeros(len(batch), np.int64)
            yield from self._segments(
                batch, codes, members, charged[:, 1], nanos, known and batch.request_complete, ordinal
            )
        else:
            free = charged[:, 0] < 0
        if free.any():
            self.ungoverned += int(np.count_nonzero(free[codes]))
        yield from self._segments(batch, codes, members, charged[:, 0], batch.bytes, batch.bytes_complete, ordinal)

    def _charge(self, key: int) -> tuple[int, int]:
        """The ids of the byte sensor and the request sensor that one distinct client is charged to; -1 for none."""
        known = self._charged.get(key)
        if known is not None:
            return known
        kind, user, client = key >> 2 * _BITS & 3, key >> _BITS & _MASK, key & _MASK
        broker = self._brokers.names[key >> 2 * _BITS + 2]
        names = (self._users.names[user], self._clients.names[client])
        byte = self._sensor(broker, BYTE_KEYS[kind], *names) if kind != OTHER else -1
        request = self._sensor(broker, QuotaKey.REQUEST_PERCENTAGE, *names) if self._times_requests else -1
        self._charged[key] = (byte, request)
        return byte, request

    def _sensor(self, broker: str, key: QuotaKey, user: str, client_id: str) -> int:
        resolution = self._resolvers[key].resolve(user, client_id)
        if resolution.limit is None or resolution.entity is None or resolution.level is None:
            return -1
        name = str(resolution.sensor)
        known = self._sensor_ids.get((broker, key, name))
        if known is None:
            known = self._sensor_ids[broker, key, name] = len(self.sensors)
            reference = SensorRef(
                broker, key, name, str(resolution.entity), int(resolution.level), float(resolution.limit)
            )
            self.sensors.append(reference)
            self._bucket_of.append(reference.bucket(self.buckets))
        return known

    def _segments(
        self,
        batch: Batch,
        codes: Any,
        members: Int64s,
        member_sensor: Int64s,
        values: Int64s,
        complete: bool,
        ordinal: tuple[int, int],
    ) -> Iterator[tuple[int, Segment]]:
        """Sorts the governed rows of a batch by bucket and sensor, and cuts them by bucket."""
        governed = member_sensor >= 0
        if not governed.any():
            return
        sensors = np.unique(member_sensor[governed])
        buckets = np.array([self._bucket_of[sensor] for sensor in sensors], np.int64)
        order = np.lexsort((sensors, buckets))
        sensors, buckets = sensors[order], buckets[order]
        # rank: a sensor's place in the sorted output; rows of clients without a quota sort behind all of them.
        rank_of = np.full(len(self.sensors) + 1, len(sensors), np.int64)
        rank_of[sensors] = np.arange(len(sensors))
        member_rank = rank_of[member_sensor]
        rows, counts = kernels.sort_by_rank(codes, member_rank, len(sensors) + 1)
        counts = counts[:-1]
        ends = np.cumsum(counts)
        rows = rows[: ends[-1]] if len(ends) else rows[:0]
        events, sums = kernels.member_totals(codes, values, len(members))
        times, values = batch.time_ms[rows], values[rows]
        throttle = None if batch.throttle_ms is None else batch.throttle_ms[rows]
        connection = None if batch.connection is None else batch.connection[rows]
        position = None if batch.position is None else batch.position[rows]

        cuts = np.flatnonzero(np.diff(buckets)) + 1
        for first, last in zip([0, *cuts], [*cuts, len(sensors)], strict=True):
            begin = int(ends[first - 1]) if first else 0
            end = int(ends[last - 1])
            mine = np.flatnonzero((member_rank >= first) & (member_rank < last))
            base = int(times[begin:end].min())
            yield (
                int(buckets[first]),
                Segment(
                    ordinal=ordinal,
                    sensors=[self.sensors[sensor] for sensor in sensors[first:last]],
                    counts=counts[first:last],
                    base_ms=base,
                    times=_compact(times[begin:end] - base),
                    values=_compact(values[begin:end]),
                    throttle_ms=None if throttle is None else _compact(throttle[begin:end]),
                    connection=None if connection is None else connection[begin:end],
                    position=None if position is None else position[begin:end],
                    shows_outcome=batch.shows_outcome,
                    complete=complete,
                    members=[self._names(int(key)) for key in members[mine]],
                    member_sensor=member_rank[mine] - first,
                    member_events=events[mine],
                    member_values=sums[mine],
                ),
            )

    def _names(self, key: int) -> tuple[str, str]:
        return self._users.names[key >> _BITS & _MASK], self._clients.names[key & _MASK]


def _compact(array: Int64s) -> Any:
    """The array in four bytes a value where they fit."""
    if len(array) and array.min() >= 0 and array.max() < 1 << 32:
        return array.astype(np.uint32)
    return array
