"""Counts the seconds of each counter in a replay: how busy they were, and how many were throttled.

The time of a counter is cut into the brokers' samples (`quota.window.size.seconds`, one second unless configured);
"seconds" in what follows. A second counts when there is a request in it, or when the client was muted all through it. A
counter that has no limit is measured: its seconds go into bins of one percent, by the highest rate observed in them
(`kquota.core.findings.demand`). A second counts as what was wanted. It is a lower bound where requests were held back
in the time that the rate looks back over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kquota.audit.batch import Int64s
from kquota.audit.ledger.retries import keys_of
from kquota.core.enforcement.broker import UNLIMITED
from kquota.core.enforcement.kind import MUTATION, REQUEST
from kquota.core.findings.demand import BIN_WIDTH, NOTHING, Cell, Measured, estimate

if TYPE_CHECKING:
    from kquota.audit.ledger.part import Part
    from kquota.audit.ledger.replay import Replay
    from kquota.audit.settings import Question

BLOCK_MS = 60_000
"""The shortest block of time that counts as one for the confidence: some times what a rate looks back over."""
MOST_BLOCKS = 32
"""Beyond this, two neighbouring blocks become one."""
_TIME_BITS = 42
_TIMES = (1 << _TIME_BITS) - 1
_SECONDS = ("counter", "second", "rate_max", "throttled_max", "muted_to_max")


def measured(replayed: Replay, question: Question) -> Iterator[tuple[int, Measured]]:
    """What is known about each counter of a replay, by its number."""
    part, windows = replayed.part, replayed.settings.windows
    second_ms, looks_back_ms = windows.window_ms, windows.samples * windows.window_ms
    if not len(part.times):
        return
    is_measured = (part.limits >= UNLIMITED) & (part.kinds != MUTATION)
    owners = part.all_owners
    held = _held(part, replayed.met.delays, owners, is_measured)
    seconds = (
        pa.table(
            {
                "counter": owners,
                "second": part.times // second_ms,
                "rate": replayed.met.rates,
                "throttled": held > 0,
                "muted_to": np.where(held > 0, part.times + held, 0),
            }
        )
        .group_by(["counter", "second"])
        .aggregate([("rate", "max"), ("throttled", "max"), ("muted_to", "max")])
        .sort_by([("counter", "ascending"), ("second", "ascending")])
    )
    counter, number, rate, throttled, muted_to = (seconds.column(name).to_numpy() for name in _SECONDS)
    # The latest end of a mute so far, of each counter by itself: in the high bits stands whose it is.
    muted_to = np.maximum.accumulate(counter << _TIME_BITS | np.minimum(muted_to, _TIMES)) & _TIMES
    last = np.append(counter[1:] != counter[:-1], True)
    begin = number * second_ms
    # Seconds without a request in which the client was muted: it would have sent some.
    unseen = np.minimum(np.append(number[1:], 0) - 1, (muted_to - 1) // second_ms) - number
    silent = np.where(is_measured[counter] & ~last, np.maximum(unseen, 0), 0)
    count = len(part.counters)
    active, hits, peaks = np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count)
    np.add.at(active, counter, 1 + silent)
    np.add.at(hits, counter, throttled + silent)
    np.maximum.at(peaks, counter, rate)
    after_mute = (muted_to > 0) & (begin < muted_to + looks_back_ms)
    quiet = np.flatnonzero(silent > 0)
    # Over the time that the rate looks back over and the mute, the client got this.
    wait = np.maximum(muted_to[quiet] - begin[quiet] - second_ms, 0)
    got = rate[quiet] * (looks_back_ms / (looks_back_ms + wait))
    rows = np.concatenate([np.flatnonzero(is_measured[counter]), quiet])
    known = len(rows) - len(quiet)
    cells = _cells(
        counter[rows],
        begin[rows] // BLOCK_MS,
        _bins(np.concatenate([rate[rows[:known]], got])),
        np.concatenate([np.where(after_mute, 0, 1)[rows[:known]], np.zeros(len(quiet), np.int64)]),
        np.concatenate([np.where(after_mute, 1, 0)[rows[:known]], silent[quiet]]),
    )
    edges = np.searchsorted(cells[:, 0], np.arange(count + 1)).tolist()
    for place in np.flatnonzero(active).tolist():
        own = map(Cell._make, cells[edges[place] : edges[place + 1], 1:].tolist())
        share, confidence, peak = question.max_throttled, question.confidence, float(peaks[place])
        estimated = estimate(own, share, confidence, windows.samples, peak) if edges[place] < edges[place + 1] else None
        yield place, Measured(int(active[place]), int(hits[place]), peak, estimated)


def _cells(counter: Int64s, block: Int64s, level: Int64s, free: Int64s, held: Int64s) -> Int64s:
    """(counter, block, bin, seconds, seconds held back) each; the blocks are as long as MOST_BLOCKS asks for."""
    while len(block) and int(block.max()) - int(block.min()) >= MOST_BLOCKS:
        block = block >> 1
    summed = (
        pa.table({"counter": counter, "block": block, "level": level, "free": free, "held": held})
        .group_by(["counter", "block", "level"])
        .aggregate([("free", "sum"), ("held", "sum")])
        .sort_by([("counter", "ascending"), ("block", "ascending"), ("level", "ascending")])
    )
    return np.column_stack(
        [summed.column(name).to_numpy() for name in ("counter", "block", "level", "free_sum", "held_sum")]
    )


def _held(part: Part, delays: Any, owners: Int64s, measured: Any) -> Int64s:
    """For how long (ms) the client was muted after each event: as its broker says, else as the replay does.

    A counter that is measured has no limit; there it is what the same request met at the counters in force.
    """
    held: Int64s = np.asarray(delays, np.int64).copy()
    rows_measured = measured[owners]
    if part.member is not None:
        kinds = part.kinds[owners]
        # Who sent a request to which broker when: the same for one request at all counters that it meets.
        requests = keys_of(part.homes[owners], part.times, part.member)
        met = np.flatnonzero((held > 0) & ~rows_measured)
        for kind in np.unique(kinds[rows_measured]).tolist():
            # A mute for thread time holds back bytes too, and the other way round.
            holding = met if kind == REQUEST else met[(kinds[met] == kind) | (kinds[met] == REQUEST)]
            rows = np.flatnonzero(rows_measured & (kinds == kind))
            if len(holding) == 0 or len(rows) == 0:
                continue
            holding = holding[np.lexsort((held[holding], requests[holding]))]
            places = np.searchsorted(requests[holding], requests[rows], side="right") - 1
            known = (places >= 0) & (requests[holding[places]] == requests[rows])
            held[rows[known]] = held[holding[places[known]]]
    if part.throttle_ms is not None:
        answered = rows_measured & (part.throttle_ms >= 0)
        held[answered] = part.throttle_ms[answered]
    return np.maximum(held, 0)


def _bins(rates: Any) -> Int64s:
    """The bin of each rate: the smallest whose `upper_end` is not below it."""
    with np.errstate(divide="ignore"):
        bins = np.ceil(np.log(rates) / math.log1p(BIN_WIDTH))
    numbers: Int64s = np.maximum(bins, NOTHING).astype(np.int64)
    return numbers
