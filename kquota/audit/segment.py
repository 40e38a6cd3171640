"""What goes from the map side of an audit to its reduce side: the events of some counters, and who these are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from kquota.audit.batch import Bools, Column, Int64s
from kquota.core.enforcement.kind import CONNECTION, FETCH, MUTATION, PRODUCE
from kquota.core.findings.prediction import CounterName
from kquota.core.quotas.quota import QuotaKey

CHARGED_KEYS: dict[int, QuotaKey] = {
    PRODUCE: QuotaKey.PRODUCER_BYTE_RATE,
    FETCH: QuotaKey.CONSUMER_BYTE_RATE,
    MUTATION: QuotaKey.CONTROLLER_MUTATION_RATE,
    CONNECTION: QuotaKey.CONNECTION_CREATION_RATE,
}
"""The key that `bytes` of a kind of event is charged to."""
NEVER: Final = np.iinfo(np.int64).max
"""A time that does not come."""
KEYS = (*CHARGED_KEYS.values(), QuotaKey.REQUEST_PERCENTAGE)
"""The keys that an audit can replay, by the numbers that segments carry."""


class CounterRef(NamedTuple):
    """One counter on one broker, under one of the quota sets that are tested (`AuditSettings.variants`)."""

    variant: int
    broker: str
    key: QuotaKey
    sensor: str

    @property
    def name(self) -> CounterName:
        """The counter as findings name it."""
        return self.broker, self.key.value, self.sensor


class Governing(NamedTuple):
    """What limits a counter in one period of the quotas' history."""

    period: int
    entity: str
    level: int
    limit: float


@dataclass(frozen=True, slots=True)
class Introduction:
    """Who the counters and the members of a segment are, unless the same packer introduced them to its bucket before.

    It has columns, as every task introduces anew and most is known by then: only what is not known becomes objects. The
    i-th counter is `counter_ids[i]`, for `KEYS[keys[i]]`, limited in one `period` of the quotas' history; the j-th
    member is `member_ids[j]`.
    """

    variant: int
    period: int
    counter_ids: Int64s
    broker: Column
    keys: Any
    sensor: Column
    entity: Column
    levels: Any
    limits: Any
    member_ids: Int64s
    user: Column
    client_id: Column

    def counters(self, rows: Sequence[int]) -> Iterator[tuple[int, CounterRef, Governing]]:
        """(id, who it is, what limits it) of the counters in those rows."""
        columns = (self.broker.take(rows).texts(), self.keys[rows].tolist(), self.sensor.take(rows).texts())
        limited = (self.entity.take(rows).texts(), self.levels[rows].tolist(), self.limits[rows].tolist())
        for counter_id, broker, key, sensor, *limit in zip(
            self.counter_ids[rows].tolist(), *columns, *limited, strict=True
        ):
            yield counter_id, CounterRef(self.variant, broker, KEYS[key], sensor), Governing(self.period, *limit)

    def members(self) -> Iterator[tuple[int, tuple[str, str]]]:
        """(id, (user, client-id)) of each member."""
        names = zip(self.user.texts(), self.client_id.texts(), strict=True)
        return zip(self.member_ids.tolist(), names, strict=True)


@dataclass(frozen=True, slots=True)
class Segment:
    """The events of some counters from one batch: sorted by counter, in the export's order within each.

    `counts[i]` rows belong to the counter `counter_ids[i]`, which is charged for `KEYS[keys[i]]` and limited by
    `limits[i]`; `homes[i]` is the same for all that are kept together (`AuditSettings.together`). Ids are fingerprints,
    the same in every process; each packer names them once, in an introduction. Times are offsets from `base_ms`.
    Members are the clients behind the counters: `member_counter[j]` is the index of the counter that the j-th is
    charged to; `member` is the member of each row, where that is asked for.
    """

    ordinal: tuple[int, int]
    """(split, batch): the order in which the export holds the events."""
    counter_ids: Int64s
    homes: Int64s
    keys: Any
    limits: Any
    counts: Int64s
    base_ms: int
    last_ms: int
    times: Any
    values: Any
    throttle_ms: Any
    connection: Any
    detail: Any
    member: Any
    incomplete_ms: Int64s
    """Of each counter when it is first charged for more than its values say (epoch ms); NEVER where it is not."""
    silent: Bools
    """Of each counter whether the export lacks what the broker answered to any of its events."""
    unsized: bool
    """Whether there are events of unknown size."""
    member_ids: Int64s
    member_counter: Int64s
    member_events: Int64s
    member_values: Int64s
    introduction: Introduction | None

    def __len__(self) -> int:
        return len(self.times)

    @property
    def complete(self) -> Bools:
        """Of each counter whether the values are all that a broker charges."""
        complete: Bools = self.incomplete_ms == NEVER
        return complete

    def cut(self, time_ms: int) -> tuple[Segment | None, Segment | None]:
        """The events before that time, and the others; the members stay with the first part that there is."""
        if self.last_ms < time_ms:
            return self, None
        if self.base_ms >= time_ms:
            return None, self
        early = self.times < time_ms - self.base_ms
        return self._part(early, self.base_ms, time_ms - 1), self._part(~early, time_ms, self.last_ms, members=False)

    def _part(self, rows: Any, base_ms: int, last_ms: int, *, members: bool = True) -> Segment:
        """Those rows, all of them between the two times."""
        owners = np.repeat(np.arange(len(self.counts)), self.counts)[rows]
        counts = np.bincount(owners, minlength=len(self.counts))
        times = self.times[rows].astype(np.int64) + (self.base_ms - base_ms)
        part: dict[str, Any] = {
            name: None if (column := getattr(self, name)) is None else column[rows]
            for name in ("values", "throttle_ms", "connection", "detail", "member")
        }
        if not members:
            part |= {name: np.zeros_like(self.member_events) for name in ("member_events", "member_values")}
            part |= {"introduction": None}
        return replace(self, counts=counts, times=compact(times), base_ms=base_ms, last_ms=last_ms, **part)


def fitting(least: int, most: int) -> Any:
    """The type of an array with values from one to the other: of four bytes a value where they fit."""
    return np.dtype(np.uint32 if least >= 0 and most < 1 << 32 else np.int64)


def compact(array: Any) -> Any:
    """The array in four bytes a value where they fit."""
    if len(array) == 0 or array.dtype == np.uint32:
        return array
    return array.astype(fitting(array.min(), array.max()), copy=False)
