"""The worst counters over time: a few hundred bins each, however long the export is.

Throttling that lasts for a small part of it would be in one bin of many: then the time around it is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kquota.audit.batch import Int64s
from kquota.audit.findings import ordered
from kquota.audit.part import Part
from kquota.audit.segment import CounterRef
from kquota.core.findings.verdicts import Verdict

CounterName: TypeAlias = tuple[str, str, str]
"""(broker, key, sensor): which row of the findings."""

MOST_BINS: Final = 240
MOST_CELLS: Final = 1_000_000
"""The bins of all counters of one replay, some 56 bytes each. Beyond this they get wider, so that memory is bounded."""

SMALL: Final = 4
"""Throttling whose surroundings are this many times shorter than the audit is shown alone."""
_LEAST_AROUND_MS: Final = 60_000
"""The time that is shown before throttling and after it, at least."""

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
    around: tuple[int, int] | None = None
    """The time (first and last ms) around its throttling that the bins are of; None for the whole audit."""

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
        return Timeline(width_ms, tuple(bins), self.around)

    def within(self, first_ms: int, last_ms: int) -> Timeline:
        """The bins that touch that time."""
        bins = (one for one in self.bins if first_ms - self.width_ms < one.start_ms <= last_ms)
        return Timeline(self.width_ms, tuple(bins), (first_ms, last_ms))


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
    """Those of the most throttled counters of all, whatever replayed them.

    Those of the whole audit are in bins of one width, the others are cut to the time around their throttling.
    """
    chosen = {name: when for name, when in throttled_most(findings, most).items() if name in timelines}
    stretches = {name: around(*when, first_ms, last_ms) for name, when in chosen.items()}
    widest = max((timelines[name].width_ms for name, stretch in stretches.items() if stretch is None), default=0)
    width_ms = width_of(first_ms, last_ms, widest)
    return {
        name: timelines[name].coarser(width_ms) if stretch is None else timelines[name].within(*stretch)
        for name, stretch in stretches.items()
    }


def around(first_throttled_ms: int, last_throttled_ms: int, first_ms: int, last_ms: int) -> tuple[int, int] | None:
    """The time to show of throttling in an audit of that time, with as much again on both sides; None for all of it."""
    margin = max(last_throttled_ms - first_throttled_ms, _LEAST_AROUND_MS)
    begin, end = first_throttled_ms - margin, last_throttled_ms + margin
    # What is small in a part of the audit must be small in all of it: whoever replays a part drops the rest.
    if SMALL * (end - begin) > last_ms - first_ms:
        return None
    return max(begin, first_ms), min(end, last_ms)


def throttled_most(findings: pa.Table, most: int) -> dict[CounterName, tuple[int, int]]:
    """The counters with the most throttle time, the worst first, with their first and last throttled event (ms).

    Those that only samples show are not among them.
    """
    rows = ordered([findings.filter(pc.is_valid(findings.column("throttled_events")))]).slice(0, most).to_pylist()
    return {
        (row["broker"], row["key"], row["sensor"]): (row["first_throttled_ms"], row["last_throttled_ms"])
        for row in rows
        if row["verdict"] == Verdict.THROTTLED.value
    }


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
        edges = int(cells.bin.min()) * self._width_ms, int(cells.bin.max()) * self._width_ms
        return {
            name: self._timeline(cells.of(numbers[name]), *(around(*when, *edges) or edges))
            for name, when in names.items()
        }

    def _timeline(self, cells: _Cells, first_ms: int, last_ms: int) -> Timeline:
        """That of one counter's cells between two times."""
        width_ms = width_of(first_ms, last_ms, self._width_ms)
        bins = cells.bin * self._width_ms // width_ms
        inside = (bins >= first_ms // width_ms) & (bins <= last_ms // width_ms)
        cells = _put_together(_Cells._make(column[inside] for column in cells._replace(bin=bins)))
        return Timeline(width_ms, tuple(cells.bins(width_ms)))

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

    def of(self, counter: int) -> _Cells:
        """Those of one counter."""
        start, end = np.searchsorted(self.counter, [counter, counter + 1]).tolist()
        return _Cells._make(column[start:end] for column in self)

    def bins(self, width_ms: int) -> Iterator[Bin]:
        """Those of one counter as values."""
        columns = (column.tolist() for column in self[1:])
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
