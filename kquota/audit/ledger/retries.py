"""What throttled fetches tried to read: a broker sends, and logs, them empty.

What is known of it comes first, then the retry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kquota.audit.batch import NO_CONNECTION, UNKNOWN, Int64s
from kquota.core.enforcement.kind import FETCH

if TYPE_CHECKING:
    from kquota.audit.ledger.part import Part
    from kquota.audit.ledger.rows import Ledger

RETRY_MS = 600_000
"""How long after a throttled fetch its retry is looked for. Clients retry when the throttle time is over."""


PRUNE_CONNECTIONS = 100_000
"""When so many connections are remembered, the old ones are forgotten."""


def known_sizes(part: Part, retaken: Any, fetches: Sequence[Ledger], counters: Int64s) -> tuple[Int64s, Int64s]:
    """Puts sizes, in place, into the rows `retaken` (a mask) whose sizes are known before the replay.

    `fetches` are of `kquota.audit.ledger.fetch_sizes`, with their share in `detail`; `counters` are the ids of the
    counters by number. A fetch goes by its counter, its connection and its time: a connection that is throttled sends
    no other one in that millisecond. Returns (the rows that got a size, the share of delivered fetches that came out by
    the same rules, in ppm).
    """
    rows = np.flatnonzero(retaken)
    if part.connection is None or not any(map(len, fetches)):
        return rows[:0], rows[:0]
    columns = []
    for ledger in fetches:
        assert ledger.connection is not None
        numbers = np.searchsorted(counters, ledger.column("counter"))[ledger.code]
        columns.append((keys_of(numbers, ledger.time, ledger.connection), ledger.value, ledger.detail))
    keys, sizes, shares = map(np.concatenate, zip(*columns, strict=True))
    order = np.argsort(keys, kind="stable")
    wanted = keys_of(part.owners(rows), part.times[rows], part.connection[rows])
    places = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
    known = keys[places] == wanted
    rows, places = rows[known], places[known]
    part.values[rows] = sizes[places]
    return rows, shares[places]


_MIXERS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))


def keys_of(counters: Int64s, times: Int64s, connections: Int64s) -> Any:
    """A number for each (counter, time, connection), or for three other columns."""
    mixed = connections.astype(np.uint64)
    for column, mixer in zip((counters, times), _MIXERS, strict=True):
        mixed = (mixed ^ column.astype(np.uint64)) * mixer
        mixed ^= mixed >> np.uint64(29)
    return mixed


def fill_in(part: Part) -> None:
    """Puts sizes, in place, where the part has UNKNOWN: sizes of other fetches on the same connection.

    The bytes of a throttled fetch come with a retry. Clients rotate their partitions, and a full response holds the
    first ones only. So the next fetch that got through counts if it asked for the same (`detail`); else the next one at
    all, else the last one before, else nothing. Next and before are within RETRY_MS: brokers close connections that are
    idle for as long (`connections.max.idle.ms`). Fetches without a connection are taken to share one.
    """
    for _, rows, times, sizes, connections in _lacking(part):
        details = _listed(part.detail, rows)
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
        part.values[rows] = _from_before(times, sizes, connections, {})


def _lacking(part: Part) -> Iterator[tuple[int, slice, list[int], list[int], list[int]]]:
    """(number, rows, times, sizes, connections) of each counter with an UNKNOWN size."""
    for place in np.unique(part.owners(np.flatnonzero(part.values == UNKNOWN))).tolist():
        rows = slice(int(part.offsets[place]), int(part.offsets[place + 1]))
        times, sizes = part.times[rows].tolist(), part.values[rows].tolist()
        yield int(part.counters[place]), rows, times, sizes, _listed(part.connection, rows)


def _listed(column: Int64s | None, rows: slice) -> list[int]:
    listed: list[int] = [NO_CONNECTION] * (rows.stop - rows.start) if column is None else column[rows].tolist()
    return listed


def _from_before(
    times: list[int], sizes: list[int], connections: list[int], before: dict[int, tuple[int, int]]
) -> list[int]:
    """The sizes, where they are UNKNOWN the size of the fetch before on the connection; 0 where none came before."""
    for row, connection in enumerate(connections):
        if sizes[row] == UNKNOWN:
            time_ms, size = before.get(connection, (0, 0))
            sizes[row] = size if times[row] - time_ms <= RETRY_MS else 0
        before[connection] = (times[row], sizes[row])
    return sizes


class LastFetches:
    """Sizes for throttled fetches from the fetch before on the connection, where the retry is still to come."""

    def __init__(self, last: dict[int, dict[int, tuple[int, int]]] | None = None) -> None:
        self.last = {} if last is None else last
        """Counter → connection → the time and the size of the last fetch there."""
        self._known = sum(map(len, self.last.values()))
        self._prune_at = PRUNE_CONNECTIONS

    def fill_in(self, part: Part) -> None:
        """Puts sizes, in place, where the part has UNKNOWN: 0 where no fetch came before."""
        for number, rows, times, sizes, connections in _lacking(part):
            part.values[rows] = _from_before(times, sizes, connections, dict(self.last.get(number, {})))
        self._remember(part)

    def _remember(self, part: Part) -> None:
        """Keeps the last size of each connection, for the parts to come."""
        owners = part.all_owners
        rows = np.flatnonzero(part.kinds[owners] == FETCH)
        if not len(rows):
            return
        connections = np.full(len(rows), NO_CONNECTION) if part.connection is None else part.connection[rows]
        table = pa.table({"counter": part.counters[owners[rows]], "connection": connections, "row": rows})
        newest = table.group_by(["counter", "connection"]).aggregate([("row", "max")])
        rows = newest.column("row_max").to_numpy()
        last = zip(part.times[rows].tolist(), part.values[rows].tolist(), strict=True)
        names = (newest.column(name).to_pylist() for name in ("counter", "connection"))
        for counter, connection, seen in zip(*names, last, strict=True):
            self.last.setdefault(counter, {})[connection] = seen
        self._known += len(rows)
        if self._known > self._prune_at:
            self._prune(int(part.times.max()) - RETRY_MS)

    def _prune(self, before_ms: int) -> None:
        """Forgets the fetches before that time, which are too old for those to come."""
        self.last = {
            counter: kept
            for counter, connections in self.last.items()
            if (kept := {name: seen for name, seen in connections.items() if seen[0] >= before_ms})
        }
        self._known = sum(map(len, self.last.values()))
        self._prune_at = max(PRUNE_CONNECTIONS, 2 * self._known)

    def renumbered(self, numbers: Mapping[int, int]) -> LastFetches:
        """The same of counters with other numbers; those without one are forgotten."""
        return LastFetches({numbers[number]: last for number, last in self.last.items() if number in numbers})
