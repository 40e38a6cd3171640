"""Who reads what a producer writes: a consumer sees what its producers deliver, and so meets their quotas as well.

A request log shows the producers and the consumers of each partition. Where producers are throttled, their data comes
later than it was recorded, and less of it at a time. The consumers behind them are simulated with what then arrives.
Connections stand for clients; of several producers of a partition each has its share, the same at all times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from kquota.audit.batch import Int64s

FRESH_US: Final = 5_000_000
"""A consumer that reads data at most so old (µs) reads it as it comes; older data was a backlog."""
MOST_FEEDS: Final = 100_000
"""A broker with more pairs of a connection and a partition is not coupled at all: consumers then keep their data, and
their predictions say so."""
UNCOUPLED: Final = (
    "data of throttled producers is taken to come as recorded: the broker's log has more than "
    f"{MOST_FEEDS:,} pairs of a connection and a partition"
)
_MOST_FEEDERS: Final = 8
"""The largest producers of a consumer are simulated; its other producers count as not throttled."""
LOST: Final = 1 << 62
"""A time that stands for data that the producer never delivers."""

Place: TypeAlias = tuple[int, str, int]
"""(variant, broker, connection)"""


class Curve(NamedTuple):
    """When a broker charges the requests of a throttled producer, which came at other times while it was recorded."""

    recorded: Int64s
    """Epoch ms, in order."""
    charged: Int64s
    """Epoch ms; LOST for a request that is never sent."""


class Feeder(NamedTuple):
    """A producer of what a consumer reads."""

    connection: int
    share: float


@dataclass
class Feeds:
    """The producers and consumers of one broker's partitions, by connection."""

    produced: dict[int, dict[int, int]] = field(default_factory=dict)
    """Partition → connection → bytes."""
    fetched: dict[int, dict[int, int]] = field(default_factory=dict)
    """Connection → partition → bytes."""
    fresh: dict[int, int] = field(default_factory=dict)
    """Connection → the bytes that were read as they came."""
    known: int = 0

    def __bool__(self) -> bool:
        return self.too_many or bool(self.produced and self.fetched)

    @property
    def too_many(self) -> bool:
        """Whether there are more than MOST_FEEDS pairs: then none of them is kept."""
        return self.known > MOST_FEEDS

    def produce(self, place: int, connection: int, size: int) -> None:
        """Counts a batch."""
        self._add(self.produced, place, connection, size)

    def fetch(self, connection: int, place: int, size: int, *, fresh: bool) -> None:
        """Counts the data of one partition in a response."""
        self._add(self.fetched, connection, place, size)
        if fresh and not self.too_many:
            self.fresh[connection] = self.fresh.get(connection, 0) + size

    def _add(self, table: dict[int, dict[int, int]], one: int, other: int, size: int) -> None:
        if self.too_many:
            return
        row = table.setdefault(one, {})
        if other not in row:
            row[other] = 0
            self.known += 1
        row[other] += size
        if self.known > MOST_FEEDS:
            self.produced.clear()
            self.fetched.clear()
            self.fresh.clear()

    def feeders(self, connection: int) -> list[Feeder]:
        """The producers of what a connection reads as it comes; nobody where it reads what was there before."""
        places = self.fetched.get(connection, {})
        total = sum(places.values())
        if not total or 2 * self.fresh.get(connection, 0) < total:
            return []
        shares: dict[int, float] = {}
        for place, size in places.items():
            producers = self.produced.get(place, {})
            whole = sum(producers.values())
            for producer, part in producers.items():
                shares[producer] = shares.get(producer, 0.0) + size / total * part / whole
        largest = sorted(shares.items(), key=lambda each: (-each[1], each[0]))
        return [Feeder(*each) for each in largest[:_MOST_FEEDERS]]

    def feeding(self) -> set[int]:
        """The connections that produce what others read."""
        read = {place for places in self.fetched.values() for place in places}
        return {connection for place in read for connection in self.produced.get(place, ())}


def arrivals(times: Int64s, sizes: Int64s, feeders: Sequence[tuple[float, Curve]]) -> tuple[Int64s, Int64s]:
    """When so many bytes come that came at these times, where a share of them is from each of some producers."""
    rest = sizes.copy()
    all_times, all_sizes = [], []
    for share, (recorded, charged) in feeders:
        part = np.floor(sizes * min(share, 1.0) + 0.5).astype(np.int64)
        part = np.minimum(part, rest)
        rest -= part
        row = np.searchsorted(recorded, times, side="right") - 1
        later = np.where(row < 0, times, np.maximum(charged[np.maximum(row, 0)], times))
        all_times.append(later)
        all_sizes.append(part)
    found, amounts = np.concatenate([*all_times, times]), np.concatenate([*all_sizes, rest])
    kept = (amounts > 0) & (found < LOST)
    found, amounts = found[kept], amounts[kept]
    order = np.argsort(found, kind="stable")
    return found[order], amounts[order]


def throttled(
    feeders: Sequence[Feeder], curves: Mapping[Place, Curve], variant: int, broker: str
) -> list[tuple[float, Curve]]:
    """Those of the producers whose data comes later under a variant of the quotas."""
    found = [(each.share, curves.get((variant, broker, each.connection))) for each in feeders]
    return [(share, curve) for share, curve in found if curve is not None]
