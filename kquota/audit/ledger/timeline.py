"""The worst counters over time: a few hundred bins each, however long the export is.

Throttling that lasts for a small part of it would be in one bin of many: then the time around it is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kquota.audit.findings import ordered
from kquota.core.findings.prediction import CounterName
from kquota.core.findings.verdicts import Verdict
from kquota.core.tabular import grouped

if TYPE_CHECKING:
    from kquota.audit.ledger.replay import Replay

MOST_BINS: Final = 240
SMALL: Final = 4
"""Throttling whose surroundings are this many times shorter than the audit is shown alone."""
_LEAST_AROUND_MS: Final = 60_000
"""The time that is shown before throttling and after it, at least."""

# Each is a multiple of the one before: bins can be put together, whatever came first.
_WIDTHS_S: Final = (1, 2, 10, 20, 60, 120, 600, 1200, 3600, 7200, 21_600, 43_200, 86_400, 604_800)
_LEAST_MS: Final = 1000 * _WIDTHS_S[0]


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
        together = grouped(self.bins, lambda one: one.start_ms // width_ms * width_ms)
        bins = [
            Bin(
                start_ms,
                sum(one.events for one in group),
                sum(one.throttled for one in group),
                sum(one.throttle_ms for one in group),
                max(one.peak_rate for one in group),
                group[-1].limit,
            )
            for start_ms, group in together.items()
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


def worst(replayed: Replay, findings: pa.Table, most: int) -> dict[CounterName, Timeline]:
    """The timelines of the most throttled counters of a replay, whose findings under the tested quotas these are."""
    times = replayed.part.times
    numbers = {ref.name: number for number, ref in enumerate(replayed.refs) if ref.variant == 0}
    edges = (
        (int(times.min()) // _LEAST_MS * _LEAST_MS, int(times.max()) // _LEAST_MS * _LEAST_MS) if len(times) else (0, 0)
    )
    return {
        name: _timeline(replayed, numbers[name], *(around(*when, *edges) or edges))
        for name, when in throttled_most(findings, most).items()
    }


def _timeline(replayed: Replay, number: int, first_ms: int, last_ms: int) -> Timeline:
    """That of one counter between two times."""
    part, (delays, rates, _) = replayed.part, replayed.met
    width_ms = width_of(first_ms, last_ms, _LEAST_MS)
    begin, end = part.offsets[number : number + 2].tolist()
    bins = part.times[begin:end] // width_ms
    rows = begin + np.flatnonzero((bins >= first_ms // width_ms) & (bins <= last_ms // width_ms))
    delay = np.maximum(delays[rows], 0)
    limits = np.full(len(rows), part.limits[number]) if part.event_limits is None else part.event_limits[rows]
    columns = {
        "bin": part.times[rows] // width_ms,
        "hit": delay > 0,
        "delay": delay,
        "rate": rates[rows],
        "limit": limits,
    }
    summed = pa.table(columns).group_by("bin", use_threads=False).aggregate(
        [("hit", "count"), ("hit", "sum"), ("delay", "sum"), ("rate", "max"), ("limit", "last")]
    )  # fmt: skip
    names = ("bin", "hit_count", "hit_sum", "delay_sum", "rate_max", "limit_last")
    cells = zip(*(summed.column(name).to_pylist() for name in names), strict=True)
    return Timeline(width_ms, tuple(Bin(place * width_ms, *rest) for place, *rest in cells))
