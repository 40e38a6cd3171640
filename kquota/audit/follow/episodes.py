"""What the events of counters come to, however they are cut into parts.

Delays of a counter without a pause become episodes. Of the last half minute, the requests of each client are added up.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kquota.audit.evidence.accounts import THROTTLE_SEEN_MS

if TYPE_CHECKING:
    from kquota.audit.ledger.part import Part

_STEP_MS: Final = 1000
_KEYS: Final = ("counter", "member", "step")


@dataclass(slots=True)
class Amounts:
    """What some requests of a counter add up to."""

    events: int = 0
    logged: int = 0
    is_logged: bool = False
    """Whether the usage says of any of them whether the broker throttled it."""
    members: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The fingerprint of a client → its requests and their value."""

    def count(self, member: int, value: int, logged_ms: int) -> None:
        """Adds a request of that client."""
        self.events += 1
        self.logged += logged_ms > 0
        self.is_logged |= logged_ms >= 0
        events, total = self.members.get(member, (0, 0))
        self.members[member] = events + 1, total + value

    def add(self, other: Amounts) -> None:
        """Adds the amounts of other requests."""
        self.events += other.events
        self.logged += other.logged
        self.is_logged |= other.is_logged
        for member, (events, value) in other.members.items():
            before = self.members.get(member, (0, 0))
            self.members[member] = before[0] + events, before[1] + value


@dataclass(slots=True)
class Delays:
    """An episode as it is counted: `number` is the counter's in the replay."""

    number: int
    begin_ms: int
    end_ms: int = 0
    last_ms: int = 0
    """When the last delayed request came."""
    limit: float = 0.0
    peak_rate: float = -1.0
    peak_ms: int = 0
    throttled: int = 0
    throttle_ms: int = 0
    longest_ms: int = 0
    amounts: Amounts = field(default_factory=Amounts)
    tail: Amounts = field(default_factory=Amounts)
    """The requests since the last delayed one: a part of the episode only if another delay follows."""

    def delayed(self, time_ms: int, delay_ms: int, rate: float, limit: float) -> None:
        """Adds a delayed request, but for its amounts: with it the requests before it are a part of the episode."""
        self.amounts.add(self.tail)
        self.tail = Amounts()
        if rate > self.peak_rate:
            self.peak_rate, self.peak_ms = rate, time_ms
        self.end_ms, self.last_ms, self.limit = max(self.end_ms, time_ms + delay_ms), time_ms, limit
        self.throttled += 1
        self.throttle_ms += delay_ms
        self.longest_ms = max(self.longest_ms, delay_ms)


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
            self._take(part, place, delays, rates)

    def settle(self, before_ms: int) -> None:
        """Ends what is over, when no event before that time is still to come."""
        over = [number for number, delays in self.open.items() if delays.end_ms + self.quiet_ms < before_ms]
        for number in over:
            self.ended.append(self.open.pop(number))

    def renumber(self, numbers: Mapping[int, int]) -> None:
        """Gives the counters other numbers."""
        self.open = {numbers[number]: replace(delays, number=numbers[number]) for number, delays in self.open.items()}

    def _take(self, part: Part, place: int, delays: Any, rates: Any) -> None:
        number, rows = int(part.counters[place]), slice(int(part.offsets[place]), int(part.offsets[place + 1]))
        assert part.member is not None
        count = rows.stop - rows.start
        limits = [part.limits[place]] * count if part.event_limits is None else part.event_limits[rows]
        logged = [-1] * count if part.throttle_ms is None else part.throttle_ms[rows].tolist()
        columns = (column[rows].tolist() for column in (part.times, delays, rates, part.member, part.values))
        going = self.open.get(number)
        for time_ms, delay_ms, rate, member, value, logged_ms, limit in zip(*columns, logged, limits, strict=True):
            if delay_ms <= 0:
                if going is not None:
                    going.tail.count(member, value, logged_ms)
                continue
            begins = going is None or time_ms > going.end_ms + self.quiet_ms
            if going is None or begins:
                self.ended += [] if going is None else [going]
                going = self.open[number] = Delays(number, time_ms)
            going.delayed(time_ms, delay_ms, rate, float(limit))
            going.amounts.count(member, value, logged_ms)
            if begins:
                # The beginning is reported before the rest of the episode is known.
                self.began.append(deepcopy(going))


class Use(NamedTuple):
    """What some requests of one client in one counter add up to."""

    value: int
    delayed: int
    """How many the replay delays."""
    logged: int
    """How many the broker itself throttled, by its log."""
    logged_ms: int


class Recent:
    """Adds up the requests of each client by the second, and forgets them."""

    def __init__(self) -> None:
        self._rows = pa.table({name: pa.array([], pa.int64()) for name in ("counter", "member", "step", *Use._fields)})

    def part(self, part: Part, delays: Any) -> None:
        """Takes the next events of some counters: `delays` in ms."""
        if part.member is None or not len(part.times):
            return
        rows = np.flatnonzero(part.times >= int(part.times.max()) - THROTTLE_SEEN_MS)
        logged = np.zeros(len(rows), np.int64) if part.throttle_ms is None else np.maximum(part.throttle_ms[rows], 0)
        columns = (
            *(part.counters[part.owners(rows)], part.member[rows], part.times[rows] // _STEP_MS),
            *(part.values[rows], delays[rows] > 0, logged > 0, logged),
        )
        new = pa.table([column.astype(np.int64) for column in columns], names=self._rows.column_names)
        self._rows = _added_up(pa.concat_tables([self._rows, new]), [*_KEYS])

    def forget(self, before_ms: int) -> None:
        """Forgets the requests before that time."""
        self._rows = self._rows.filter(pc.field("step") >= before_ms // _STEP_MS)

    def renumber(self, numbers: Mapping[int, int]) -> None:
        """Gives the counters other numbers; those without one are forgotten."""
        rows = self._rows.filter(pc.field("counter").isin(list(numbers)))
        counters = pa.array([numbers[number] for number in rows.column("counter").to_pylist()], pa.int64())
        self._rows = rows.set_column(0, "counter", counters)

    @property
    def members(self) -> set[int]:
        """The ids of all clients."""
        return set(self._rows.column("member").to_pylist())

    def amounts(self) -> dict[int, dict[int, Use]]:
        """Counter → the id of a client → its requests."""
        by_counter: dict[int, dict[int, Use]] = {}
        together = _added_up(self._rows, ["counter", "member"])
        for number, member, *sums in zip(*(column.to_pylist() for column in together.columns), strict=True):
            by_counter.setdefault(number, {})[member] = Use(*sums)
        return by_counter


def _added_up(rows: pa.Table, keys: list[str]) -> pa.Table:
    """One row for each of the keys, in their order, and sums of the amounts."""
    sums = rows.group_by(keys).aggregate([(name, "sum") for name in Use._fields])
    return sums.rename_columns([*keys, *Use._fields]).sort_by([(name, "ascending") for name in keys])
