"""Events of some counters on their way through the reduce side, and what may look at them there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from kquota.audit.batch import Int64s


@dataclass(frozen=True, slots=True)
class Part:
    """Events of some counters, in time; events of one moment are in the order of the export.

    The i-th counter is number `counters[i]` of the replay and owns the rows [offsets[i], offsets[i+1]).
    """

    counters: Int64s
    homes: Int64s
    """Where each counter is kept (`AuditSettings.together`)."""
    kinds: Any
    limits: Any
    offsets: Int64s
    times: Int64s
    values: Int64s
    throttle_ms: Int64s | None
    """What the broker answered; less than 0 where it is not told."""
    connection: Int64s | None
    detail: Int64s | None
    member: Int64s | None
    """The fingerprint of each event's client."""
    event_limits: Any
    """The limit that each event meets, where a counter has had more than one; else None."""

    def owners(self, rows: Any) -> Int64s:
        """The places in `counters` of those rows."""
        owners: Int64s = np.searchsorted(self.offsets, rows, side="right") - 1
        return owners

    def before(self, time_ms: int) -> Part:
        """The events before that time."""
        rows = self.times < time_ms
        ends = np.concatenate([[0], np.cumsum(rows)])
        columns: dict[str, Any] = {
            name: None if (column := getattr(self, name)) is None else column[rows] for name in ROWS
        }
        rest: dict[str, Any] = {name: getattr(self, name) for name in ("counters", "homes", "kinds", "limits")}
        return Part(**rest, offsets=ends[self.offsets], **columns)


OPTIONAL = ("throttle_ms", "connection", "detail", "member", "event_limits")
ROWS = ("times", "values", *OPTIONAL)


class Collector(Protocol):
    """Looks at the events as they are replayed."""

    def part(self, part: Part, delays: Any, rates: Any) -> None:
        """`delays` (raw, ms) and `rates` (observed, units per second) belong to the part's events."""
