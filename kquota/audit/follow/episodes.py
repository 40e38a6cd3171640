"""Delays of a counter without a pause become episodes, however the events are cut into parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from kquota.audit.ledger.part import Part

_NEVER = -(1 << 62)


@dataclass(slots=True)
class Amounts:
    """What some requests of a counter add up to."""

    events: int = 0
    logged: int = 0
    told: bool = False
    """Whether the usage says of any of them whether the broker throttled it."""
    members: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The fingerprint of a client → its requests and their value."""

    def add(self, other: Amounts) -> None:
        """Adds the amounts of other requests."""
        self.events += other.events
        self.logged += other.logged
        self.told |= other.told
        for member, (events, value) in other.members.items():
            before = self.members.get(member, (0, 0))
            self.members[member] = before[0] + events, before[1] + value


@dataclass(slots=True)
class Delays:
    """An episode as it is counted: `number` is the counter's in the replay."""

    number: int
    begin_ms: int
    end_ms: int
    last_ms: int
    """When the last delayed request came."""
    limit: float
    peak_rate: float
    peak_ms: int
    throttled: int
    throttle_ms: int
    longest_ms: int
    amounts: Amounts
    tail: Amounts = field(default_factory=Amounts)
    """The requests since the last delayed one: a part of the episode only if another delay follows."""


class Episodes:
    """Finds the episodes of all counters of a replay.

    An episode ends when no request was delayed for `quiet_ms` after its last delay was over.
    """

    def __init__(self, quiet_ms: int) -> None:
        self.quiet_ms = quiet_ms
        self.open: dict[int, Delays] = {}
        """Counter → its episode that may go on."""
        self.began: list[Delays] = []
        """The first delays of episodes, since somebody took them."""
        self.ended: list[Delays] = []

    def part(self, part: Part, delays: Any, rates: Any) -> None:
        """Takes the next events of some counters: `delays` in ms, `rates` as observed."""
        touched = set(np.unique(part.owners(np.flatnonzero(delays > 0))).tolist())
        if self.open:
            touched |= set(np.flatnonzero(np.isin(part.counters, list(self.open))).tolist())
        for place in sorted(touched):
            first, end = int(part.offsets[place]), int(part.offsets[place + 1])
            if end > first:
                self._take(int(part.counters[place]), part, place, first, delays[first:end], rates[first:end])

    def settle(self, before_ms: int) -> None:
        """Ends what is over, when no event before that time is still to come."""
        over = [number for number, each in self.open.items() if each.end_ms + self.quiet_ms < before_ms]
        for number in over:
            self.ended.append(self.open.pop(number))

    def renumber(self, numbers: Mapping[int, int]) -> None:
        """Gives the counters other numbers."""
        self.open = {numbers[number]: replace(each, number=numbers[number]) for number, each in self.open.items()}

    def _take(self, number: int, part: Part, place: int, first: int, delays: Any, rates: Any) -> None:
        times = part.times[first : first + len(delays)]
        hits = np.flatnonzero(delays > 0)
        going = self.open.get(number)
        if len(hits):
            reach = np.maximum.accumulate(times[hits] + delays[hits])
            known = _NEVER if going is None else going.end_ms
            before = np.concatenate([[known], np.maximum(reach[:-1], known)])
            starts = np.flatnonzero(times[hits] > before + self.quiet_ms).tolist()
            edges = [*([] if starts and starts[0] == 0 else [0]), *starts, len(hits)]
            begin = 0
            for one, other in pairwise(edges):
                rows = hits[one:other]
                if one in starts:
                    if going is not None:
                        self.ended.append(going)
                    begin, going = int(rows[0]), None
                limit = float(part.limits[place] if part.event_limits is None else part.event_limits[first + rows[-1]])
                going = self._go_on(going, number, limit, times[rows], delays[rows], rates[rows])
                if one in starts:
                    self._begin(going, part, place, first + begin, delays[begin], rates[begin])
                going.amounts.add(going.tail)
                going.tail = Amounts()
                going.amounts.add(_amounts(part, first + begin, first + int(rows[-1]) + 1))
                begin = int(rows[-1]) + 1
            assert going is not None
            self.open[number] = going
            going.tail = _amounts(part, first + begin, first + len(delays))
        elif going is not None:
            going.tail.add(_amounts(part, first, first + len(delays)))

    def _begin(self, going: Delays, part: Part, place: int, row: int, delay: Any, rate: Any) -> None:
        """Keeps the first delay of an episode, as nothing of the rest was known then."""
        limit = float(part.limits[place] if part.event_limits is None else part.event_limits[row])
        now, delay_ms = int(part.times[row]), int(delay)
        amounts = _amounts(part, row, row + 1)
        self.began.append(
            Delays(going.number, now, now + delay_ms, now, limit, float(rate), now, 1, delay_ms, delay_ms, amounts)
        )

    @staticmethod
    def _go_on(going: Delays | None, number: int, limit: float, times: Any, delays: Any, rates: Any) -> Delays:
        """The episode with these delayed requests, or a new one of them."""
        highest = int(np.argmax(rates))
        peak, peak_ms = float(rates[highest]), int(times[highest])
        end_ms, last_ms = int((times + delays).max()), int(times[-1])
        count, total, longest = len(times), int(delays.sum()), int(delays.max())
        if going is None:
            begin_ms = int(times[0])
            return Delays(number, begin_ms, end_ms, last_ms, limit, peak, peak_ms, count, total, longest, Amounts())
        if peak > going.peak_rate:
            going.peak_rate, going.peak_ms = peak, peak_ms
        going.end_ms, going.last_ms, going.limit = max(going.end_ms, end_ms), last_ms, limit
        going.throttled += count
        going.throttle_ms += total
        going.longest_ms = max(going.longest_ms, longest)
        return going


def _amounts(part: Part, first: int, end: int) -> Amounts:
    """The amounts of the rows of one counter from `first` to before `end`."""
    if end <= first:
        return Amounts()
    logged = part.throttle_ms
    members: dict[int, tuple[int, int]] = {}
    if part.member is not None:
        mine, values = part.member[first:end], part.values[first:end]
        names, codes = np.unique(mine, return_inverse=True)
        events = np.bincount(codes, minlength=len(names))
        sums = np.zeros(len(names), np.int64)
        np.add.at(sums, codes, values)
        members = dict(zip(names.tolist(), zip(events.tolist(), sums.tolist(), strict=True), strict=True))
    return Amounts(
        end - first,
        0 if logged is None else int((logged[first:end] > 0).sum()),
        logged is not None and bool((logged[first:end] >= 0).any()),
        members,
    )
