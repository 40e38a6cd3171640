"""The worst counters over time: a few hundred bins each, however long the export is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from kquota.audit.batch import Int64s
from kquota.audit.findings import Verdict, ordered
from kquota.audit.replay import Part
from kquota.audit.segment import CounterRef

CounterName: TypeAlias = tuple[str, str, str]
"""(broker, key, sensor): which row of the findings."""

MOST_BINS: Final = 240
MOST_CELLS: Final = 1_000_000
"""The bins of all counters of one replay, some 56 bytes each. Beyond this they get wider, so that memory is bounded."""

# Each is a multiple of the one before: bins can be put together, whatever came first.
_WIDTHS_S: Final = (1, 2, 10, 20, 60, 120, 600, 1200, 3600, 7200, 21_600, 43_200, 86_400, 604_800)


@dataclass(frozen=True, slots=True)
class Bin:
    """What happened to a counter in one stretch of time."""

    start_ms: int
    """A multiple of the width, epoch ms."""
    events: int
    throttled: int
    throttle_ms: int
    """The sum of the throttle times."""
    peak_rate: float
    """The highest observed rate, in the key's unit."""
    limit: float
    """The last one in force."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """A counter over time: the bins in which it had events."""

    width_ms: int
    bins: tuple[Bin, ...]

    def coarser(self, width_ms: int) -> Timeline:
        """The same in bins of that width, a multiple of this one."""
        if width_ms == self.width_ms:
            return self
        together: dict[int, list[Bin]] = {}
        for one in self.bins:
            together.setdefault(one.start_ms // width_ms * width_ms, []).append(one)
        bins = [
            Bin(
                start_ms,
                sum(one.events for one in some),
                sum(one.throttled for one in some),
                sum(one.throttle_ms for one in some),
                max(one.peak_rate for one in some),
                some[-1].limit,
            )
            for start_ms, some in together.items()
        ]
        return Timeline(width_ms, tuple(bins))


def width_of(first_ms: int, last_ms: int, at_least_ms: int = 0, most: int = MOST_BINS) -> int:
    """The width (ms) with which bins that begin at its multiples are at most that many."""
    widths = [1000 * seconds for seconds in _WIDTHS_S]
    while True:
        for width in widths:
            if width >= at_least_ms and last_ms // width - first_ms // width < most:
                return width
        widths = [10 * widths[-1]]


def in_step(
    timelines: Mapping[CounterName, Timeline], findings: pa.Table, most: int, first_ms: int, last_ms: int
) -> dict[CounterName, Timeline]:
    """Those of the most throttled counters of all, in bins of one width, whatever replayed them."""
    chosen = {name: timelines[name] for name in throttled_most(findings, most) if name in timelines}
    widest = max((timeline.width_ms for timeline in chosen.values()), default=0)
    width_ms = width_of(first_ms, last_ms, widest)
    return {name: timeline.coarser(width_ms) for name, timeline in chosen.items()}


def throttled_most(findings: pa.Table, most: int) -> list[CounterName]:
    """The counters with the most throttle time, the worst first."""
    rows = ordered([findings]).slice(0, most).to_pylist()
    return [(row["broker"], row["key"], row["sensor"]) for row in rows if row["verdict"] == Verdict.THROTTLED.value]


class Timelines:
    """Follows all counters of a replay (a `Collector`); who the worst were is known at its end."""

    def __init__(self) -> None:
        self._width_ms = 1000 * _WIDTHS_S[0]
        self._cells: list[_Cells] = []

    def part(self, part: Part, delays: Any, rates: Any) -> None:
        """Adds the events of a part."""
        counts = np.diff(part.offsets)
        limits = part.event_limits if part.event_limits is not None else np.repeat(part.limits, counts)
        hit = delays > 0
        self._cells.append(
            _put_together(
                _Cells(
                    np.repeat(part.counters, counts),
                    part.times // self._width_ms,
                    np.ones(len(hit), np.int64),
                    hit.astype(np.int64),
                    np.where(hit, delays, 0),
                    np.asarray(rates, np.float64),
                    np.asarray(limits, np.float64),
                )
            )
        )
        if sum(cells.rows for cells in self._cells) > MOST_CELLS:
            cells = self._whole()
            while MOST_CELLS // 2 < cells.rows > len(np.unique(cells.counter)):
                cells = self._widen(cells, width_of(0, 0, self._width_ms + 1))
            self._cells = [cells]

    def worst(self, refs: Sequence[CounterRef | None], findings: pa.Table, most: int) -> dict[CounterName, Timeline]:
        """The timelines of the most throttled counters; `refs` are the replay's, `findings` its first table."""
        numbers = {
            (ref.broker, ref.key.value, ref.sensor): number
            for number, ref in enumerate(refs)
            if ref is not None and ref.variant == 0
        }
        names = throttled_most(findings, most)
        cells = self._whole() if names else None
        if cells is None or not cells.rows:
            return {}
        first, last = (int(edge(cells.bin)) * self._width_ms for edge in (np.min, np.max))
        cells = self._widen(cells, width_of(first, last, self._width_ms))
        starts = np.searchsorted(cells.counter, [numbers[name] for name in names])
        ends = np.searchsorted(cells.counter, [numbers[name] for name in names], side="right")
        return {
            name: Timeline(self._width_ms, tuple(cells.bins(int(start), int(end), self._width_ms)))
            for name, start, end in zip(names, starts, ends, strict=True)
        }

    def _whole(self) -> _Cells:
        if not self._cells:
            none = np.zeros(0, np.int64)
            return _Cells(none, none, none, none, none, none, none)
        columns = zip(*self._cells, strict=True)
        return _put_together(_Cells(*(np.concatenate(column) for column in columns)))

    def _widen(self, cells: _Cells, width_ms: int) -> _Cells:
        factor = width_ms // self._width_ms
        self._width_ms = width_ms
        return cells if factor == 1 else _put_together(cells._replace(bin=cells.bin // factor))


class _Cells(NamedTuple):
    """Bins of counters, as columns: by counter, then by time."""

    counter: Int64s
    bin: Int64s
    events: Int64s
    throttled: Int64s
    throttle_ms: Int64s
    peak_rate: Any
    limit: Any

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.counter)

    def bins(self, start: int, end: int, width_ms: int) -> Iterator[Bin]:
        """Some of them as values."""
        columns = (column[start:end].tolist() for column in self[1:])
        for number, *rest in zip(*columns, strict=True):
            yield Bin(number * width_ms, *rest)


def _put_together(cells: _Cells) -> _Cells:
    """One cell for each counter and bin; those that come first in time come first."""
    if not cells.rows:
        return cells
    order = np.lexsort((cells.bin, cells.counter))  # stable
    counter, place = cells.counter[order], cells.bin[order]
    starts = np.flatnonzero(np.concatenate([[True], (np.diff(counter) != 0) | (np.diff(place) != 0)]))
    last = np.append(starts[1:], len(order)) - 1
    return _Cells(
        counter[starts],
        place[starts],
        np.add.reduceat(cells.events[order], starts),
        np.add.reduceat(cells.throttled[order], starts),
        np.add.reduceat(cells.throttle_ms[order], starts),
        np.maximum.reduceat(cells.peak_rate[order], starts),
        cells.limit[order][last],
    )
