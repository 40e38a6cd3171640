"""What recorded requests come to when each connection waits out its throttle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

CounterName: TypeAlias = tuple[str, str, str]
"""(broker, key, sensor), as in the findings."""


@dataclass(slots=True)
class Closed:
    """What a counter did in the closed loop."""

    events: int = 0
    """Requests charged; a fetch that was asked again is several."""
    throttled_events: int = 0
    throttle_time_ms: int = 0
    throttle_time_max_ms: int = 0

    def add(self, throttle_ms: int) -> None:
        """Counts a request."""
        self.events += 1
        if throttle_ms > 0:
            self.throttled_events += 1
            self.throttle_time_ms += throttle_ms
            self.throttle_time_max_ms = max(self.throttle_time_max_ms, throttle_ms)


@dataclass(frozen=True)
class ClosedLoop:
    """What came of a recording in the closed loop."""

    counters: Mapping[CounterName, Closed]
    """Those of which all requests have connections and known sizes or thread times; of others only the open loop is
    known."""
    delays: Mapping[tuple[str, str], int | None]
    """(user, client-id) → by how many ms its last request comes later than it was recorded (earlier: less than 0); None
    for a client whose fetches never get through. Only clients that have connections, and no counter that is not known.
    """

    @property
    def throttle_time_ms(self) -> int:
        """The throttle time of all counters."""
        return sum(counter.throttle_time_ms for counter in self.counters.values())
