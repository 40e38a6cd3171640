"""Counts the seconds of each counter while its events are replayed: how busy they were, and how many were throttled.

The time of a counter is cut into the brokers' samples (`quota.window.size.seconds`, one second unless configured);
"seconds" in what follows. A second counts when there is a request in it, or when the client was muted all through it. A
counter that has no limit is measured: its seconds go into bins of one percent, by the highest rate observed in them
(`kquota.core.findings.demand`). A second counts as what was wanted. It is a lower bound where requests were held back
in the time that the rate looks back over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kquota.audit.batch import Int64s
from kquota.core.enforcement.broker import UNLIMITED
from kquota.core.enforcement.kind import MUTATION, REQUEST
from kquota.core.findings.demand import BIN_WIDTH, NOTHING, Cell, Measured, estimate

if TYPE_CHECKING:
    from kquota.audit.part import Part
    from kquota.audit.settings import AuditSettings, Question

BLOCK_MS = 60_000
"""The shortest block of time that counts as one for the confidence: some times what a rate looks back over."""
MOST_BLOCKS = 32
"""Beyond this, two neighbouring blocks become one."""
_COMPACT_CELLS = 1_000_000
_TIME_BITS = 42
_NEVER = -1


class _Seconds(NamedTuple):
    """Seconds of some counters as columns, in the order of counter and time."""

    counter: Int64s
    number: Int64s
    rate: Any
    throttled: Any
    """Whether a request in it was."""
    muted_to: Int64s
    """Until when (ms) the mutes of its requests last, 0 for none."""
    measured: Any

    def take(self, rows: Any) -> _Seconds:
        return _Seconds._make(column[rows] for column in self)

    def followed_by(self, others: _Seconds) -> _Seconds:
        return _Seconds._make(np.concatenate(pair) for pair in zip(self, others, strict=True))

    def joined(self, before: _Seconds) -> _Seconds:
        """These and seconds before them; two entries for one second become one."""
        both = before.followed_by(self)
        both = both.take(np.lexsort((both.number, both.counter)))
        if len(both.number) == 0:
            return both
        new = (np.diff(both.counter) != 0) | (np.diff(both.number) != 0)
        starts = np.flatnonzero(np.concatenate([[True], new]))
        return both.take(starts)._replace(
            rate=np.maximum.reduceat(both.rate, starts),
            throttled=np.maximum.reduceat(both.throttled, starts),
            muted_to=np.maximum.reduceat(both.muted_to, starts),
        )


_NONE = _Seconds._make(np.zeros(0, kind) for kind in (np.int64, np.int64, np.float64, bool, np.int64, bool))


class DemandCollector:
    """A collector of a replay (`kquota.audit.replay.Collector`)."""

    def __init__(self, settings: AuditSettings, question: Question) -> None:
        self._question = question
        self._samples = settings.windows.samples
        self._second_ms = settings.windows.window_ms
        self._looks_back_ms = settings.windows.samples * settings.windows.window_ms
        self._open = _NONE
        """The last second of each counter so far: there may be more of it in the next part."""
        self._muted_to = np.zeros(64, np.int64)
        """Until when the mutes of each counter last, as far as the replay has come."""
        self._active = np.zeros(64, np.int64)
        self._throttled = np.zeros(64, np.int64)
        self._peaks = np.zeros(64)
        self._cells: list[Int64s] = []
        self._room = _COMPACT_CELLS
        """How many cells there may be before they are put together."""
        self._merged = 0
        """How often neighbouring blocks were made one."""

    def part(self, part: Part, delays: Any, rates: Any) -> None:
        """Takes the next events; the replay gives their `delays` and `rates`."""
        if len(part.times) == 0:
            return
        self._make_room(int(part.counters.max()) + 1)
        owners = np.repeat(np.arange(len(part.counters)), np.diff(part.offsets))
        measured = (part.limits >= UNLIMITED) & (part.kinds != MUTATION)
        held = self._held(part, delays, owners, measured)
        muted_to = np.where(held > 0, part.times + held, 0)
        numbers = part.times // self._second_ms
        starts = np.flatnonzero(np.concatenate([[True], (np.diff(owners) != 0) | (np.diff(numbers) != 0)]))
        mine = owners[starts]
        found = _Seconds(
            part.counters[mine],
            numbers[starts],
            np.maximum.reduceat(rates, starts),
            np.maximum.reduceat(held > 0, starts),
            np.maximum.reduceat(muted_to, starts),
            measured[mine],
        )
        going_on = np.isin(self._open.counter, part.counters)
        seconds = found.joined(self._open.take(going_on))
        self._open = self._open.take(~going_on).followed_by(self._count(seconds))

    def _held(self, part: Part, delays: Any, owners: Int64s, measured: Any) -> Int64s:
        """For how long (ms) the client was muted after each event: as its broker says, else as the replay does.

        A counter that is measured has no limit; there it is what the same request met at the counters in force.
        """
        held: Int64s = np.asarray(delays, np.int64).copy()
        rows_measured = measured[owners]
        if part.member is not None:
            kinds = part.kinds[owners]
            met = np.flatnonzero((held > 0) & ~rows_measured)
            for kind in np.unique(kinds[rows_measured]).tolist():
                # A mute for thread time holds back bytes too, and the other way round.
                mine = met if kind == REQUEST else met[(kinds[met] == kind) | (kinds[met] == REQUEST)]
                rows = np.flatnonzero(rows_measured & (kinds == kind))
                if len(mine) == 0 or len(rows) == 0:
                    continue
                mine = mine[np.argsort(held[mine], kind="stable")]
                requests = _requests(part, owners, mine)
                order = np.argsort(requests, kind="stable")
                requests, delayed = requests[order], held[mine][order]
                places = np.searchsorted(requests, _requests(part, owners, rows), side="right") - 1
                known = (places >= 0) & (requests[places] == _requests(part, owners, rows))
                held[rows[known]] = delayed[places[known]]
        if part.throttle_ms is not None:
            told = rows_measured & (part.throttle_ms >= 0)
            held[told] = part.throttle_ms[told]
        return np.maximum(held, 0)

    def _count(self, seconds: _Seconds) -> _Seconds:
        """Counts all but the last second of each counter, which it returns."""
        counter, number = seconds.counter, seconds.number
        # The latest end of a mute so far, of each counter by itself: in the high bits stands whose it is.
        order = np.cumsum(np.concatenate([[0], np.diff(counter) != 0]))
        ends = np.maximum(seconds.muted_to, 0)
        first = np.concatenate([[True], np.diff(order) != 0])
        ends[first] = np.maximum(ends[first], self._muted_to[counter[first]])
        ends = np.minimum(ends, (1 << _TIME_BITS) - 1)
        ends = np.maximum.accumulate(order << _TIME_BITS | ends) & ((1 << _TIME_BITS) - 1)
        last = np.concatenate([np.diff(order) != 0, [True]])
        following = np.where(last, _NEVER, np.concatenate([number[1:], [_NEVER]]))
        self._add(seconds.take(~last), ends[~last], following[~last])
        self._muted_to[counter[last]] = ends[last]
        return seconds.take(last)

    def _add(self, seconds: _Seconds, muted_to: Int64s, following: Int64s) -> None:
        """Counts seconds; `following` are the numbers of the next ones of the same counters, _NEVER for none."""
        if len(seconds.counter) == 0:
            return
        counter, measured = seconds.counter, seconds.measured
        begin = seconds.number * self._second_ms
        # Seconds without a request in which the client was muted: it would have sent some.
        silent = np.where(measured, np.minimum(following - 1, (muted_to - 1) // self._second_ms) - seconds.number, 0)
        silent = np.where(following == _NEVER, 0, np.maximum(silent, 0))
        np.add.at(self._active, counter, 1 + silent)
        np.add.at(self._throttled, counter, seconds.throttled + silent)
        np.maximum.at(self._peaks, counter, seconds.rate)
        held = (muted_to > 0) & (begin < muted_to + self._looks_back_ms)
        base = begin // BLOCK_MS >> self._merged
        one = np.ones(len(counter), np.int64)
        rows = np.column_stack([counter, base, _bins(seconds.rate), np.where(held, 0, one), np.where(held, one, 0)])
        self._cells.append(rows[measured])
        quiet = np.flatnonzero(silent > 0)
        if len(quiet):
            # Over the time that the rate looks back over and the mute, the client got this.
            wait = np.maximum(muted_to[quiet] - begin[quiet] - self._second_ms, 0)
            rate = seconds.rate[quiet] * (self._looks_back_ms / (self._looks_back_ms + wait))
            zero = np.zeros(len(quiet), np.int64)
            self._cells.append(np.column_stack([counter[quiet], base[quiet], _bins(rate), zero, silent[quiet]]))
        if sum(map(len, self._cells)) > self._room:
            self._compact()
            # So many counters may leave so many cells that sorting them for every part would be all there is to do.
            self._room = max(_COMPACT_CELLS, 2 * len(self._cells[0]))

    def _compact(self) -> None:
        rows = np.concatenate([np.zeros((0, 5), np.int64), *self._cells])
        while len(rows) and int(rows[:, 1].max()) - int(rows[:, 1].min()) >= MOST_BLOCKS:
            rows[:, 1] >>= 1
            self._merged += 1
        rows = rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))]
        if len(rows):
            starts = np.flatnonzero(np.concatenate([[True], (np.diff(rows[:, :3], axis=0) != 0).any(axis=1)]))
            rows = np.column_stack([rows[starts, :3], np.add.reduceat(rows[:, 3:], starts, axis=0)])
        self._cells = [rows]

    def _make_room(self, counters: int) -> None:
        room = len(self._peaks)
        if counters > room:
            more = max(counters, 2 * room) - room
            self._muted_to = np.concatenate([self._muted_to, np.zeros(more, np.int64)])
            self._active = np.concatenate([self._active, np.zeros(more, np.int64)])
            self._throttled = np.concatenate([self._throttled, np.zeros(more, np.int64)])
            self._peaks = np.concatenate([self._peaks, np.zeros(more)])

    def finish(self) -> Iterator[tuple[int, Measured]]:
        """What is known about each counter, by its number in the replay."""
        left = self._open
        self._add(left, self._muted_to[left.counter], np.full(len(left.counter), _NEVER))
        self._open = _NONE
        self._compact()
        (rows,) = self._cells
        begins = np.searchsorted(rows[:, 0], np.arange(len(self._peaks) + 1)).tolist()
        for counter in np.flatnonzero(self._active).tolist():
            cells = rows[begins[counter] : begins[counter + 1], 1:].tolist()
            seconds, throttled = int(self._active[counter]), int(self._throttled[counter])
            share, confidence = self._question.max_throttled, self._question.confidence
            peak = float(self._peaks[counter])
            told = estimate(map(Cell._make, cells), share, confidence, self._samples, peak) if cells else None
            yield counter, Measured(seconds, throttled, peak, told)


def _requests(part: Part, owners: Int64s, rows: Int64s) -> Int64s:
    """A number for who sent a request to which broker when: the same for one request at all counters that it meets."""
    assert part.member is not None
    # Multiplied by odd constants, which wraps and mixes: they share the 64 bits.
    where = part.homes[owners[rows]] * np.int64(-4417276706812531889)
    requests: Int64s = part.member[rows] ^ where ^ part.times[rows] * np.int64(-7046029254386353131)
    return requests


def _bins(rates: Any) -> Int64s:
    """`kquota.core.findings.demand.bin_of` of each."""
    with np.errstate(divide="ignore"):
        bins = np.ceil(np.log(rates) / math.log1p(BIN_WIDTH))
    numbers: Int64s = np.maximum(bins, NOTHING).astype(np.int64)
    return numbers
