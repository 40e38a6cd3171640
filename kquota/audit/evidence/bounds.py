"""What follows from samples of a counter for the rates that a broker checks, however the requests came.

A broker keeps the requests of a counter in slots. At each request it divides the sum of the live slots by the window
that they span (`core.enforcement.rate`). With N = `quota.window.num` and W = the length of a slot in ms:

* Each request lives at least `lives` ms: it counts in every check up to `lives` ms later. From 3.8 on a slot is
  dropped N·W after its last request, so `lives` is N·W - 1; before, N·W after its start, up to W - 1 earlier.
* No request lives longer than `reach` ms: (N+1)·W from 3.8 on, N·W before. `reach` is above the longest window, too, by
  more than the half millisecond below which a violation delays nothing.
* No window is shorter than `least`: N-1 slots, at least 1 ms. Nor is it shorter than the time since the oldest request
  that lives.

Reading the metric drops old slots as a check does: all of this holds whoever reads it, and whenever.

Of three things that seem true, none is. *The rate never rises between requests*: it does, by up to `reach`/`least`,
when the window shrinks. A window shrinks when a slot with little in it is dropped, or when the padding of a young
window starts over. *A total spread evenly is the mildest placement*: bursts in a window that was stretched by small
requests before are milder. *A total in one lump is the worst one*: the lumps of two neighbours meet at their common
edge.

Not considered: a delay of more than 24.8 days wraps around in a broker and may delay nothing. It takes some 200,000
times the limit. Nor a counter that began anew and has come past its last reading by the next one.

Amounts are in the unit of the limit times seconds: bytes, or percent of a thread times seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kquota.audit.batch import Int64s
from kquota.audit.sources.samples import Float64s
from kquota.core.enforcement.generation import Generation, QuotaWindows

ROUNDING = 1e-9
"""Relative: exports print rates and amounts in decimals, and sums of doubles depend on their order."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The highest rate that any request was checked at: not below `least`, not above `most`, in units per second.

    A limit below `least` has throttled, a limit of `most` or more has not; between the two nothing follows.
    `most` is infinite where something went unseen.
    """

    least: float
    most: float


UNKNOWN = Bounds(0.0, math.inf)


@dataclass(frozen=True, slots=True)
class Window:
    """The lengths above, in ms, of a broker's settings."""

    lives: int
    reach: int
    least: int
    overlap: int
    """How much of the time before a request that lives a window can cover, plus half a millisecond."""

    @classmethod
    def of(cls, windows: QuotaWindows, generation: Generation) -> Window:
        """Those of brokers with these windows."""
        samples, length = windows.samples, windows.window_ms
        least = max((samples - 1) * length, 1)
        if generation.by_last:
            return cls(samples * length - 1, (samples + 1) * length, least, 1)
        return cls((samples - 1) * length, samples * length, least, length)


def of_gauge(times: Int64s, rates: Float64s, window: Window, *, exact: bool) -> Bounds:
    """The bounds from the broker's own rate, read at these times (ms, in order; `exact` when they are the readings').

    From below: at a reading there is a sum of at least rate · `least`. The last request before it was checked with at
    least that sum, in a window below `reach`. From above: what lives between two readings that are at most `lives`
    apart, lived at the earlier one or lives at the later one.
    """
    if len(times) == 0:
        return UNKNOWN
    least = float(rates.max()) * window.least / window.reach
    if not exact or len(times) < 2 or int(np.diff(times).max()) > window.lives:
        return Bounds(least * (1 - ROUNDING), math.inf)
    most = float((rates[1:] + rates[:-1]).max()) * window.reach / window.least
    return Bounds(least * (1 - ROUNDING), most * (1 + ROUNDING))


def of_totals(starts: Int64s, ends: Int64s, amounts: Float64s, window: Window, *, whole: bool) -> Bounds:
    """The bounds from what was charged from each start (ms) to before each end, in any order; they may overlap.

    `whole` says that nothing was charged outside of them.
    """
    charged = (ends > starts) & (amounts > 0)
    if not charged.any():
        return Bounds(0.0, 0.0 if whole else math.inf)
    starts, ends, amounts = starts[charged], ends[charged], amounts[charged]
    least = _least(starts, ends, amounts, window)
    most = _most(starts, ends, amounts, window) if whole else math.inf
    return Bounds(least * (1 - ROUNDING), most * (1 + ROUNDING))


def _least(starts: Int64s, ends: Int64s, amounts: Float64s, window: Window) -> float:
    """The largest rate that cannot be avoided, over all runs of intervals.

    A run falls into ceil(length / (lives+1)) spans in which everything lives till the last request of the span is
    checked: one of these requests met its share of the total, in a window below `reach`.

    Or from its last request back: what lives at it, then what lives at the last request before that, and so on, are
    all of the run. If each of these checks passes, the total is within what the limit allows in their windows, and of
    these only the earliest can reach far before the run: a request is not dropped before N·W, from 3.8 on, and a
    window of fewer slots is padded to less than that. That is the better bound for long runs.
    """
    order = np.lexsort((ends, starts))
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    sums = np.concatenate([[0.0], np.cumsum(amounts[order])])
    span = window.lives + 1
    largest = 0.0
    for count in _counts(int(ends[-1] - starts[0]), span):
        last = np.searchsorted(ends, starts + count * span, side="right")
        inside = sums[last] - sums[: len(starts)]
        allowed = min(count * window.reach, count * (span + window.overlap) + window.reach)
        largest = max(largest, 1000.0 * float(inside.max()) / allowed)
    return largest


def _counts(length: int, span: int) -> Iterator[int]:
    """How many spans to try: all of the first, then with steps of an eighth."""
    count, most = 1, -(-length // span)
    while count < most:
        yield count
        count += max(1, count // 8)
    yield most


def _most(starts: Int64s, ends: Int64s, amounts: Float64s, window: Window) -> float:
    """The largest rate that is possible: every interval that a live request can be from, at its nearest edge.

    The requests that live at a check lie in a span shorter than `reach`, from the oldest of them to the check. Worst is
    a span from the last moment of one interval to the first moment of another: a longer one that meets the same
    intervals has a wider window, never more in it.
    """
    by_end, by_start = np.argsort(ends, kind="stable"), np.argsort(starts, kind="stable")
    sorted_ends, sorted_starts = ends[by_end], starts[by_start]
    ended = np.concatenate([[0.0], np.cumsum(amounts[by_end])])
    begun = np.concatenate([[0.0], np.cumsum(amounts[by_start])])
    begins = np.unique(sorted_ends - 1)
    # What can be charged at or after each beginning of a span: all that has not ended before it.
    gone = ended[np.searchsorted(sorted_ends, begins, side="right")]
    largest = 0.0
    first = np.searchsorted(sorted_starts, begins, side="right")
    after = np.searchsorted(sorted_starts, begins + window.reach, side="left")
    for step in range(int((after - first).max()) + 1):
        # The span ends where the step-th interval that starts in it does; step 0 is a span of one moment.
        known = first + step <= after
        reached = (first + step)[known]
        length = sorted_starts[reached - 1] - begins[known] if step else np.zeros(len(reached), np.int64)
        inside = begun[reached] - gone[known]
        rates = 1000.0 * inside / np.maximum(length, window.least)
        largest = max(largest, float(rates.max()))
    return largest
