"""What throttled fetches tried to read: a broker sends, and logs, them empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kquota.audit.batch import UNKNOWN, Int64s
from kquota.core.enforcement import replay

if TYPE_CHECKING:
    from kquota.audit.replay import Part

RETRY_MS = 600_000
"""How long after a throttled fetch its retry is looked for. Clients retry when the throttle time is over."""


class Retries:
    """Sizes for fetches that have none, from others on the same connection.

    The bytes of a throttled fetch come with a retry. Clients rotate their partitions and a full response holds the
    first ones only, so the next fetch that got through counts if it asked for the same (`detail`); else the next one
    there at all, else the last one before, else nothing. Next is within RETRY_MS.
    """

    def __init__(self) -> None:
        self._last: dict[int, dict[int, int]] = {}
        """Counter → connection → the size of the last fetch there, as far as the replay has come."""

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
                    sizes[row] = before.get(connection, 0)
                else:
                    before[connection] = sizes[row]
            part.values[rows] = sizes

    def remember(self, part: Part) -> None:
        """Keeps the last size of each connection, for the parts to come."""
        if part.connection is None:
            return
        rows = np.flatnonzero(np.repeat(part.kinds == replay.FETCH, np.diff(part.offsets)))
        owners = part.counters[part.owners(rows)]
        order = np.lexsort((rows, part.connection[rows], owners))
        keys = np.column_stack([owners, part.connection[rows]])[order]
        if len(keys) == 0:
            return
        last = np.concatenate([(np.diff(keys, axis=0) != 0).any(axis=1), [True]])
        sizes = part.values[rows][order][last]
        for (counter, connection), size in zip(keys[last].tolist(), sizes.tolist(), strict=True):
            self._last.setdefault(counter, {})[connection] = size


def _listed(column: Int64s | None, rows: int) -> list[int]:
    listed: list[int] = [0] * rows if column is None else column.tolist()
    return listed
