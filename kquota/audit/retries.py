"""What throttled fetches tried to read: a broker sends, and logs, them empty.

What is known of it comes first, then the retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kquota.audit import kernels
from kquota.audit.batch import NO_CONNECTION, UNKNOWN, Int64s
from kquota.core.enforcement.kind import FETCH

if TYPE_CHECKING:
    from kquota.audit.part import Part
    from kquota.audit.segment import Segment

RETRY_MS = 600_000
"""How long after a throttled fetch its retry is looked for. Clients retry when the throttle time is over."""

PRUNE_CONNECTIONS = 100_000
"""When so many connections are remembered, the old ones are forgotten."""


class KnownSizes:
    """Sizes of throttled fetches that are known before the replay (`kquota.audit.rebuilt`).

    A fetch goes by its counter, its connection and its time: a connection that is throttled sends no other one in that
    millisecond.
    """

    def __init__(self) -> None:
        self._parts: list[tuple[Any, Int64s, Int64s]] = []
        self._table: tuple[Any, Int64s, Int64s] | None = None

    def add(self, numbers: Int64s, segment: Segment) -> None:
        """Takes the fetches of a segment, whose counters have those numbers in the replay."""
        if segment.connection is None or segment.detail is None:
            return
        times = segment.times.astype(np.int64) + segment.base_ms
        keys = keys_of(np.repeat(numbers, segment.counts), times, segment.connection)
        self._parts.append((keys, segment.values.astype(np.int64), segment.detail))

    def fill_in(self, part: Part, retaken: Any) -> tuple[Int64s, Int64s]:
        """Puts sizes, in place, into the rows `retaken` (a mask) whose sizes are known.

        Returns (the rows that got a size, the share of delivered fetches that came out by the same rules, in ppm).
        """
        none = np.zeros(0, np.int64)
        rows = np.flatnonzero(retaken)
        if not self._parts or part.connection is None or len(rows) == 0:
            return none, none
        if self._table is None:
            keys, sizes, shares = (np.concatenate(column) for column in zip(*self._parts, strict=True))
            order = np.argsort(keys, kind="stable")
            self._table = keys[order], sizes[order], shares[order]
        keys, sizes, shares = self._table
        mine = keys_of(part.counters[part.owners(rows)], part.times[rows], part.connection[rows])
        places = np.minimum(np.searchsorted(keys, mine), len(keys) - 1)
        known = keys[places] == mine
        rows, places = rows[known], places[known]
        part.values[rows] = sizes[places]
        return rows, shares[places]


_MIXERS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))


def keys_of(counters: Int64s, times: Int64s, connections: Int64s) -> Any:
    """A number for each (counter, time, connection)."""
    mixed = connections.astype(np.uint64)
    for column, mixer in zip((counters, times), _MIXERS, strict=True):
        mixed = (mixed ^ column.astype(np.uint64)) * mixer
        mixed ^= mixed >> np.uint64(29)
    return mixed


class Retries:
    """Sizes for fetches that have none, from others on the same connection.

    The bytes of a throttled fetch come with a retry. Clients rotate their partitions, and a full response holds the
    first ones only. So the next fetch that got through counts if it asked for the same (`detail`); else the next one at
    all, else the last one before, else nothing. Next and before are within RETRY_MS: brokers close connections that are
    idle for as long (`connections.max.idle.ms`). Fetches without a connection are taken to share one.
    """

    def __init__(self) -> None:
        self._last: dict[int, dict[int, tuple[int, int]]] = {}
        """Counter → connection → the time and the size of the last fetch there, as far as the replay has come."""
        self._known = 0
        self._prune_at = PRUNE_CONNECTIONS

    def fill_in(self, part: Part) -> None:
        """Puts sizes, in place, where the part has UNKNOWN."""
        for place in np.unique(part.owners(np.flatnonzero(part.values == UNKNOWN))).tolist():
            rows = slice(int(part.offsets[place]), int(part.offsets[place + 1]))
            connections, details = (
                _listed(None if column is None else column[rows], rows.stop - rows.start)
                for column in (part.connection, part.detail)
            )
            times, sizes = part.times[rows].tolist(), part.values[rows].tolist()
            following: dict[int, tuple[int, int]] = {}
            same: dict[tuple[int, int], tuple[int, int]] = {}
            for row in range(len(sizes) - 1, -1, -1):
                connection, detail, now = connections[row], details[row], times[row]
                if sizes[row] == UNKNOWN:
                    for retry in (same.get((connection, detail)), following.get(connection)):
                        if retry is not None and retry[0] - now <= RETRY_MS:
                            sizes[row] = retry[1]
                            break
                else:
                    following[connection] = (now, sizes[row])
                    if detail:
                        same[connection, detail] = (now, sizes[row])
            before = dict(self._last.get(int(part.counters[place]), {}))
            for row, connection in enumerate(connections):
                if sizes[row] == UNKNOWN:
                    time_ms, size = before.get(connection, (0, 0))
                    sizes[row] = size if times[row] - time_ms <= RETRY_MS else 0
                before[connection] = (times[row], sizes[row])
            part.values[rows] = sizes

    def remember(self, part: Part) -> None:
        """Keeps the last size of each connection, for the parts to come."""
        fetched = np.flatnonzero((part.kinds == FETCH) & (np.diff(part.offsets) > 0))
        if len(fetched) == 0:
            return
        if part.connection is None:
            rows = part.offsets[fetched + 1] - 1
            places, connections = fetched, np.full(len(rows), NO_CONNECTION, np.int64)
        else:
            rows = _last_of_each(fetched, part.offsets, part.connection)
            places, connections = part.owners(rows), part.connection[rows]
        last = zip(part.times[rows].tolist(), part.values[rows].tolist(), strict=True)
        for counter, connection, seen in zip(part.counters[places].tolist(), connections.tolist(), last, strict=True):
            self._last.setdefault(counter, {})[connection] = seen
        self._known += len(rows)
        if self._known > self._prune_at:
            self._prune(int(part.times.max()) - RETRY_MS)

    def _prune(self, before_ms: int) -> None:
        """Forgets the fetches before that time, which are too old for those to come."""
        self._last = {
            counter: kept
            for counter, connections in self._last.items()
            if (kept := {name: seen for name, seen in connections.items() if seen[0] >= before_ms})
        }
        self._known = sum(map(len, self._last.values()))
        self._prune_at = max(PRUNE_CONNECTIONS, 2 * self._known)


def _last_of_each(fetched: Int64s, offsets: Int64s, connections: Int64s) -> Int64s:
    """The last row of each connection of each of those counters, which own the rows from offset to offset."""
    owned = np.zeros(len(offsets) - 1, bool)
    owned[fetched] = True
    counts = np.diff(offsets)
    rows = np.flatnonzero(np.repeat(owned, counts))
    codes, _ = kernels.dense_codes(connections[rows])
    keys = np.repeat(fetched, counts[fetched]) << 32 | codes.astype(np.int64)
    codes, keys = kernels.dense_codes(keys)
    last = np.zeros(len(keys), np.int64)
    last[codes] = rows  # of those with one code the last is kept
    return last


def _listed(column: Int64s | None, rows: int) -> list[int]:
    listed: list[int] = [0] * rows if column is None else column.tolist()
    return listed
