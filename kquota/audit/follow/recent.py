"""The clients of each counter in the last half minute: who is loud, and whom the broker itself throttled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kquota.audit.evidence.accounts import THROTTLE_SEEN_MS

if TYPE_CHECKING:
    from kquota.audit.ledger.part import Part

_STEP_MS: Final = 1000
_KEYS: Final = ("counter", "member", "step")


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
    """Adds up the requests of each client by the second, and forgets them."""

    def __init__(self) -> None:
        self._rows = pa.table(
            {name: pa.array([], pa.int64()) for name in ("counter", "member", "step", *Amounts._fields)}
        )

    def part(self, part: Part, delays: Any) -> None:
        """Takes the next events of some counters: `delays` in ms."""
        if part.member is None or not len(part.times):
            return
        rows = np.flatnonzero(part.times >= int(part.times.max()) - THROTTLE_SEEN_MS)
        logged = np.zeros(len(rows), np.int64) if part.throttle_ms is None else np.maximum(part.throttle_ms[rows], 0)
        columns = (
            *(part.counters[part.owners(rows)], part.member[rows], part.times[rows] // _STEP_MS),
            *(np.ones(len(rows)), part.values[rows], delays[rows] > 0, logged > 0, logged),
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

    def amounts(self) -> dict[int, dict[int, Amounts]]:
        """Counter → the id of a client → its requests."""
        found: dict[int, dict[int, Amounts]] = {}
        together = _added_up(self._rows, ["counter", "member"])
        for number, member, *sums in zip(*(column.to_pylist() for column in together.columns), strict=True):
            found.setdefault(number, {})[member] = Amounts(*sums)
        return found


def _added_up(rows: pa.Table, keys: list[str]) -> pa.Table:
    """One row for each of the keys, in their order, and sums of the amounts."""
    found = rows.group_by(keys).aggregate([(name, "sum") for name in Amounts._fields])
    return found.rename_columns([*keys, *Amounts._fields]).sort_by([(name, "ascending") for name in keys])
