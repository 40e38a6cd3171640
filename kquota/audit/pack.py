"""The map side: batches become segments, rows sorted by counter, one blob per bucket.

Resolution happens once per distinct (broker, kind, user, client-id), in plain Python; everything per row is an array
operation. What is shuffled is then a few hundred blobs of some ten bytes a row, not rows.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from kquota.audit import kernels
from kquota.audit.batch import UNKNOWN, Batch, Bools, Int64s
from kquota.audit.lookup import Interner, Memo, Seen, fingerprint
from kquota.audit.segment import (
    CHARGED_KEYS,
    KEYS,
    NEVER,
    CounterRef,
    Governing,
    Introduction,
    Segment,
    compact,
    fitting,
)
from kquota.audit.settings import Together
from kquota.core.change.history import QuotaHistory
from kquota.core.enforcement.kind import CONNECTION, MUTATION, REQUEST
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.resolve.resolver import Resolver, resolve_ip

_BITS = 24
_MASK = (1 << _BITS) - 1
_KIND_BITS = 3
_KINDS = (1 << _KIND_BITS) - 1
_MOST_RESOLVED = 100_000
_NO_ENTITY = -1
_63_BITS = np.int64((1 << 63) - 1)


class _Counters(NamedTuple):
    """What is known of each counter in one period, by its number."""

    ids: Int64s
    homes: Int64s
    keys: Any
    limits: Any
    levels: Any
    brokers: Int64s
    sensors: Int64s
    entities: Int64s


class _Period:
    """What one snapshot charges clients to; counters are numbers of the packer."""

    def __init__(self, number: int, quotas: QuotaSnapshot) -> None:
        self.number = number
        self.charged = Memo()
        """Distinct client → the counters of its bytes and of its thread time; -1 for none."""
        self.limits, self.levels, self.entities = array("d"), array("b"), array("q")
        """What limits each counter, and the number of the entity with the quota."""
        self.columns: tuple[tuple[int, int], _Counters] | None = None
        """What `Packer._counters_in` made, and of how many counters."""
        self.governed = 0
        """How many of the counters have a limit in this period."""
        self._quotas = quotas
        self._resolvers = {key: Resolver.of(quotas, key) for key in KEYS}
        self._resolved: dict[tuple[QuotaKey, str, str], tuple[str, Governing] | None] = {}
        """The clients that came last: they come again on other brokers."""
        self._texts: dict[Entity, str] = {}
        self.times_requests = bool(self._resolvers[QuotaKey.REQUEST_PERCENTAGE].values)

    def resolve(self, key: QuotaKey, user: str, client_id: str) -> tuple[str, Governing] | None:
        """The counter of a client and what limits it, the same on all brokers; None where nothing does."""
        client = (key, user, client_id)
        if client not in self._resolved:
            if len(self._resolved) >= _MOST_RESOLVED:
                self._resolved.clear()
            self._resolved[client] = self._resolve(*client)
        return self._resolved[client]

    def governs(self, number: int) -> bool:
        """Whether it is known what limits a counter."""
        return number < len(self.entities) and self.entities[number] != _NO_ENTITY

    def govern(self, number: int, governing: Governing, entity: int) -> None:
        """Keeps what limits a counter, and the number of the entity."""
        missing = number + 1 - len(self.limits)
        if missing > 0:
            self.limits.extend([math.nan] * missing)
            self.levels.extend([0] * missing)
            self.entities.extend([_NO_ENTITY] * missing)
        self.governed += 1
        self.limits[number], self.levels[number], self.entities[number] = governing.limit, governing.level, entity

    def _resolve(self, key: QuotaKey, user: str, client_id: str) -> tuple[str, Governing] | None:
        if key is QuotaKey.CONNECTION_CREATION_RATE:
            found = resolve_ip(self._quotas, client_id)
        else:
            found = self._resolvers[key].resolve(user, client_id)
        if found.limit is None or found.entity is None or found.level is None:
            return None
        text = self._texts.get(found.entity)
        if text is None:
            text = self._texts[found.entity] = str(found.entity)
        return str(found.sensor), Governing(self.number, text, int(found.level), float(found.limit))


@dataclass
class Packer:
    """Turns batches into segments; keeps its tables between the batches of one task."""

    quotas: QuotaHistory
    buckets: int
    variant: int = 0
    per_client: bool = False
    together: Together = Together.COUNTER
    ungoverned: int = 0
    """Events that no quota limits."""
    counters: list[CounterRef] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._brokers, self._users, self._clients = Interner(), Interner(), Interner()
        self._sensors, self._entities = Interner(), Interner()
        self._periods = [_Period(number, quotas) for number, quotas in enumerate(self.quotas.snapshots)]
        self._changes = np.array(self.quotas.changes_ms, np.int64)
        self._numbers: dict[tuple[int, str, QuotaKey, str], int] = {}
        self._ids, self._keys = array("q"), array("b")
        self._of_brokers, self._of_sensors = array("q"), array("q")
        """The broker and the sensor of each counter, by their numbers."""
        self._homes = array("q")
        """Where each counter is kept: the bucket, modulo their number."""
        self.begin()

    @property
    def known(self) -> int:
        """How many clients it has met, in all its periods."""
        return sum(len(period.charged) for period in self._periods)

    def change(self, quotas: QuotaHistory) -> None:
        """Goes on under a longer history of quotas; the history so far is the beginning of it."""
        known = len(self._periods)
        self._periods += [_Period(number, each) for number, each in enumerate(quotas.snapshots[known:], known)]
        self.quotas, self._changes = quotas, np.array(quotas.changes_ms, np.int64)

    def begin(self) -> None:
        """Begins a task: nothing is counted yet, and no counter or member is introduced yet."""
        self.ungoverned = 0
        self._told: dict[int, Any] = {}
        """Period → the counters that were introduced (a mask)."""
        self._told_members = [Seen() for _ in range(self.buckets)]

    def pack(self, batch: Batch, ordinal: tuple[int, int]) -> Iterator[tuple[int, Segment]]:
        """(bucket, segment) for each bucket that the batch has rows for."""
        if len(batch) == 0:
            return
        if len(self._changes) == 0:
            yield from self._pack(batch, self._periods[0], ordinal)
            return
        periods = np.searchsorted(self._changes, batch.time_ms, side="right")
        for period in np.unique(periods).tolist():
            yield from self._pack(batch.take(periods == period), self._periods[period], ordinal)

    def _pack(self, batch: Batch, period: _Period, ordinal: tuple[int, int]) -> Iterator[tuple[int, Segment]]:
        names = (self._brokers, batch.broker), (self._users, batch.user), (self._clients, batch.client_id)
        known = [interner.numbers(column.values) for interner, column in names]
        if max(len(self._users.names), len(self._clients.names)) > _MASK or len(self._brokers.names) > 1 << 12:
            raise OverflowError("more than 16 million users or client-ids, or 4096 brokers, in one task")
        keys = kernels.client_keys(
            batch.kind, known[0] << 2 * _BITS + _KIND_BITS, batch.broker.codes, known[1] << _BITS, batch.user.codes,
            known[2], batch.client_id.codes, 2 * _BITS,
        )  # fmt: skip
        codes, members = kernels.dense_codes(keys)
        charged = period.charged.look_up(members, lambda key: self._charge(key, period))
        free = (charged.max(axis=1) < 0) & (members >> 2 * _BITS & _KINDS != MUTATION)
        if free.any():
            self.ungoverned += int(np.count_nonzero(free[codes]))
        if period.times_requests:
            # An export without thread times still names the clients whose request quota cannot be judged.
            nanos = batch.request_ns if batch.request_ns is not None else np.zeros(len(batch), np.int64)
            complete = False if batch.request_ns is None else batch.request_complete
            # Of its counters of bytes and of thread time the kind says which requests are the same. Without
            # connections nobody asks.
            timed = replace(batch, detail=None if batch.connection is None else batch.kind.astype(np.int64))
            yield from self._segments(timed, codes, members, charged[:, 1], nanos, period, ordinal, complete=complete)
        complete = batch.bytes_complete
        yield from self._segments(batch, codes, members, charged[:, 0], batch.bytes, period, ordinal, complete=complete)

    def _charge(self, key: int, period: _Period) -> tuple[int, int]:
        """The numbers of the two counters that one distinct client is charged to; -1 for none."""
        kind, user, client = key >> 2 * _BITS & _KINDS, key >> _BITS & _MASK, key & _MASK
        broker = self._brokers.names[key >> 2 * _BITS + _KIND_BITS]
        names = (self._users.names[user], self._clients.names[client])
        bytes_, request = -1, -1
        if kind != REQUEST:
            bytes_ = self._counter(broker, CHARGED_KEYS[kind], *names, period)
        # A topic is a part of a request, whose thread time is an event of its own; a connection is none.
        if period.times_requests and kind not in (MUTATION, CONNECTION):
            request = self._counter(broker, QuotaKey.REQUEST_PERCENTAGE, *names, period)
        return bytes_, request

    def _counter(self, broker: str, key: QuotaKey, user: str, client_id: str, period: _Period) -> int:
        resolved = period.resolve(key, user, client_id)
        if resolved is None:
            return -1
        sensor, governing = resolved
        number = self._numbers.get((self.variant, broker, key, sensor))
        if number is None:
            reference = CounterRef(self.variant, broker, key, sensor)
            number = self._numbers[reference] = len(self.counters)
            self.counters.append(reference)
            self._ids.append(fingerprint(str(self.variant), broker, key.value, sensor))
            self._keys.append(KEYS.index(key))
            self._of_brokers.append(self._brokers.number(broker))
            self._of_sensors.append(self._sensors.number(sensor))
            self._homes.append(self._home(reference, self._ids[-1]))
        if not period.governs(number):
            period.govern(number, governing, self._entities.number(governing.entity))
        return number

    def _home(self, counter: CounterRef, counter_id: int) -> int:
        user, _, client_id = counter.sensor.partition(":")  # the user's name is encoded and has no colon
        match self.together:
            case Together.COUNTER:
                return counter_id
            case Together.USER:
                return fingerprint(counter.broker, user)
            case Together.CLIENT_ID:
                return fingerprint(counter.broker, client_id)
            case Together.BROKER:
                return fingerprint(counter.broker)

    def _segments(
        self,
        batch: Batch,
        codes: Any,
        members: Int64s,
        charged: Int64s,
        values: Int64s,
        period: _Period,
        ordinal: tuple[int, int],
        *,
        complete: bool | Bools,
    ) -> Iterator[tuple[int, Segment]]:
        """Sorts the governed rows of a batch by bucket and counter, and cuts them by bucket."""
        governed = charged >= 0
        if not governed.any():
            return
        present = np.zeros(len(self.counters) + 1, bool)
        present[charged] = True  # -1 for none is the last place
        numbers = np.flatnonzero(present[:-1])
        counters = self._counters_in(period)
        buckets = counters.homes[numbers] % self.buckets
        order = np.lexsort((numbers, buckets))
        numbers, buckets = numbers[order], buckets[order]
        # rank: a counter's place in the sorted output; rows of clients without a quota sort behind all of them.
        rank_of = np.full(len(self.counters) + 1, len(numbers), np.int64)
        rank_of[numbers] = np.arange(len(numbers))
        member_rank = rank_of[charged]
        events, sums, firsts, lasts = kernels.member_totals(codes, batch.time_ms, values, len(members))
        counts = np.bincount(member_rank, events, len(numbers) + 1)[: len(numbers)].astype(np.int64)
        ends = np.cumsum(counts)
        member_ids = self._member_ids(members)
        untold: bool | Bools = True if batch.throttle_ms is None else batch.throttle_ms < 0
        incomplete = firsts
        if complete is not False:
            incomplete = _first_of(np.where(complete, NEVER, batch.time_ms), codes, len(members))
        silent = _any_of(np.asarray(untold), codes, members)

        cuts = [0, *(np.flatnonzero(np.diff(buckets)) + 1).tolist(), len(numbers)]
        owners = [np.flatnonzero((member_rank >= first) & (member_rank < last)) for first, last in pairwise(cuts)]
        bases = np.array([firsts[mine].min() for mine in owners])
        latest = np.array([lasts[mine].max() for mine in owners])
        columns: dict[str, Any] = {
            "times": batch.time_ms,
            "values": values,
            "throttle_ms": batch.throttle_ms,
            "connection": batch.connection,
            "detail": batch.detail,
            "member": codes if self.per_client and np.count_nonzero(governed) > len(numbers) else None,
        }
        columns = {name: column for name, column in columns.items() if column is not None}
        types = {name: column.dtype for name, column in columns.items()}
        types |= {"times": fitting(0, int((latest - bases).max())), "values": fitting(values.min(), values.max())}
        placed = {name: np.empty(ends[-1], types[name]) for name in columns}
        from_base, as_it_is = np.repeat(bases, np.diff(cuts)), np.zeros(len(numbers), np.int64)
        kernels.scatter(
            codes,
            member_rank,
            ends - counts,
            [(columns[name], from_base if name == "times" else as_it_is, placed[name]) for name in columns],
        )

        for (first, last), mine, base, end_ms in zip(
            pairwise(cuts), owners, bases.tolist(), latest.tolist(), strict=True
        ):
            rows = slice(int(ends[first - 1]) if first else 0, int(ends[last - 1]))
            its_columns = {name: column[rows] for name, column in placed.items()}
            if "member" in its_columns:
                place = np.zeros(len(members), np.int32)
                place[mine] = np.arange(len(mine))
                its_columns["member"] = place[its_columns["member"]]
            bucket, its = int(buckets[first]), numbers[first:last]
            yield (
                bucket,
                Segment(
                    ordinal=ordinal,
                    counter_ids=counters.ids[its],
                    homes=counters.homes[its],
                    keys=counters.keys[its],
                    limits=counters.limits[its],
                    counts=counts[first:last],
                    base_ms=base,
                    last_ms=end_ms,
                    times=its_columns["times"],
                    values=compact(its_columns["values"]),
                    throttle_ms=compact(its_columns["throttle_ms"]) if "throttle_ms" in its_columns else None,
                    connection=its_columns.get("connection"),
                    detail=its_columns.get("detail"),
                    member=its_columns.get("member"),
                    incomplete_ms=_first_of(incomplete[mine], member_rank[mine] - first, len(its)),
                    silent=_any_of(silent[mine], member_rank[mine] - first, its),
                    unsized=types["values"] == np.int64 and bool((its_columns["values"] == UNKNOWN).any()),
                    member_ids=member_ids[mine],
                    member_counter=member_rank[mine] - first,
                    member_events=events[mine],
                    member_values=sums[mine],
                    introduction=self._introduce(its, members[mine], member_ids[mine], bucket, period),
                ),
            )

    def _counters_in(self, period: _Period) -> _Counters:
        count = len(self.counters)
        known = (count, period.governed)
        if period.columns is None or period.columns[0] != known:
            limits, levels, entities = np.full(count, np.nan), np.zeros(count, np.int8), np.zeros(count, np.int64)
            mine = len(period.limits)
            limits[:mine], levels[:mine], entities[:mine] = period.limits, period.levels, period.entities
            counters = _Counters(
                np.array(self._ids),
                np.array(self._homes),
                np.array(self._keys),
                limits,
                levels,
                np.array(self._of_brokers),
                np.array(self._of_sensors),
                entities,
            )
            period.columns = (known, counters)
        return period.columns[1]

    def _introduce(
        self, numbers: Int64s, members: Int64s, member_ids: Int64s, bucket: int, period: _Period
    ) -> Introduction:
        told = self._told.get(period.number, np.zeros(0, bool))
        if len(told) < len(self.counters):
            told = self._told[period.number] = np.concatenate([told, np.zeros(len(self.counters) - len(told), bool)])
        new = numbers[~told[numbers]]
        told[new] = True
        strange = self._told_members[bucket].add(member_ids)
        counters, clients = self._counters_in(period), members[strange]
        return Introduction(
            self.variant,
            period.number,
            counters.ids[new],
            self._brokers.column(counters.brokers[new]),
            counters.keys[new],
            self._sensors.column(counters.sensors[new]),
            self._entities.column(counters.entities[new]),
            counters.levels[new],
            counters.limits[new],
            member_ids[strange],
            self._users.column(clients >> _BITS & _MASK),
            self._clients.column(clients & _MASK),
        )

    def _member_ids(self, members: Int64s) -> Int64s:
        """The fingerprint of each (user, client-id), the same in every process."""
        users = self._users.fingerprints(members >> _BITS & _MASK)
        clients = self._clients.fingerprints(members & _MASK)
        # Multiplied by two odd constants so that (a, b) and (b, a) differ; the product wraps, which mixes.
        mixed: Int64s = (users * np.int64(-7046029254386353131) ^ clients * np.int64(-4417276706812531889)) & _63_BITS
        return mixed


def _first_of(times: Int64s, owners: Any, count: int) -> Int64s:
    """The first time of each of so many things: `owners` are the things of the times."""
    first: Int64s = np.full(count, NEVER)
    rows = np.flatnonzero(times != NEVER)
    np.minimum.at(first, owners[rows], times[rows])
    return first


def _any_of(flags: Any, owners: Any, things: Any) -> Bools:
    """Of each of the things whether one of its rows has the flag: `owners` are the things of the rows.

    `flags` has a value for each row, or one for all; then every thing has it that there is.
    """
    if flags.ndim == 0 or flags.all() or not flags.any():
        return np.full(len(things), bool(flags.any()))
    found: Bools = np.bincount(owners[flags], minlength=len(things)) > 0
    return found
