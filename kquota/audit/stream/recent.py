"""The clients of each counter in the last half minute: who is loud, and whom the broker itself throttled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from kquota.audit.accounts import THROTTLE_SEEN_MS
from kquota.audit.batch import Int64s

if TYPE_CHECKING:
    from kquota.audit.part import Part

_STEP_MS: Final = 1000
_COUNTER, _MEMBER, _STEP = range(3)
_KEYS: Final = 3
"""So many columns say what a row is about; the others are sums."""


class Amounts(NamedTuple):
    """What some requests of one client in one counter add up to."""

    events: int
    value: int
    delayed: int
    """How many the replay delays."""
    logged: int
    """How many the broker itself throttled, by its log."""
    logged_ms: int


class Recent:
    """Adds up the requests of each client by the second, and forgets them (a `kquota.audit.part.Collector`)."""

    def __init__(self) -> None:
        self._rows: Int64s = np.zeros((0, _KEYS + len(Amounts._fields)), np.int64)
        """(counter, fingerprint of the client, second, Amounts) each."""

    def part(self, part: Part, delays: Any, rates: Any) -> None:
        """Takes the next events of some counters: `delays` in ms."""
        if part.member is None or not len(part.times):
            return
        since = int(part.times.max()) - THROTTLE_SEEN_MS
        rows = np.flatnonzero(part.times >= since)
        logged = np.zeros(len(rows), np.int64) if part.throttle_ms is None else np.maximum(part.throttle_ms[rows], 0)
        new = np.column_stack(
            [
                part.counters[part.owners(rows)],
                part.member[rows],
                part.times[rows] // _STEP_MS,
                np.ones(len(rows), np.int64),
                part.values[rows],
                delays[rows] > 0,
                logged > 0,
                logged,
            ]
        ).astype(np.int64)
        self._rows = _added_up(np.concatenate([self._rows, new]), _KEYS)

    def forget(self, before_ms: int) -> None:
        """Forgets the requests before that time."""
        self._rows = self._rows[self._rows[:, _STEP] >= before_ms // _STEP_MS]

    def renumber(self, numbers: Mapping[int, int]) -> None:
        """Gives the counters other numbers; those without one are forgotten."""
        rows = self._rows[np.isin(self._rows[:, _COUNTER], list(numbers))]
        rows[:, _COUNTER] = [numbers[number] for number in rows[:, _COUNTER].tolist()]
        self._rows = rows

    @property
    def members(self) -> set[int]:
        """The fingerprints of all clients."""
        return set(self._rows[:, _MEMBER].tolist())

    def amounts(self) -> dict[int, dict[int, Amounts]]:
        """Counter → the fingerprint of a client → its requests."""
        found: dict[int, dict[int, Amounts]] = {}
        together = _added_up(np.delete(self._rows, _STEP, axis=1), _STEP)
        for number, member, *sums in together.tolist():
            found.setdefault(number, {})[member] = Amounts(*sums)
        return found


def _added_up(rows: Int64s, keys: int) -> Int64s:
    """The rows with one row for each value of the first columns, and sums of the others."""
    if len(rows) < 2:
        return rows
    rows = rows[np.lexsort(rows[:, :keys].T)]
    starts = np.flatnonzero(np.concatenate([[True], (np.diff(rows[:, :keys], axis=0) != 0).any(axis=1)]))
    return np.column_stack([rows[starts, :keys], np.add.reduceat(rows[:, keys:], starts, axis=0)])
