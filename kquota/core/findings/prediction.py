"""What the clients of a counter will meet under other quotas: intervals, because a recording cannot always say.

A prediction is made by running the recorded clients through the simulator, once for each kind of client that fits the
recording. Where several kinds fit, `low` and `high` are the least and the most of their runs.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Interval:
    """A number that is known from `low` to `high`; None where nothing bounds it on that side."""

    low: float | None
    estimate: float | None
    """The most probable value; None where the recording cannot say."""
    high: float | None

    @classmethod
    def exactly(cls, value: float) -> Interval:
        """The interval of a value that is known."""
        return cls(value, value, value)

    @classmethod
    def at_least(cls, low: float) -> Interval:
        """The interval of a value of which only a lower bound is known."""
        return cls(low, None, None)

    def hull(self, other: Interval) -> Interval:
        """The smallest interval that holds both; the estimate stays."""
        low = None if self.low is None or other.low is None else min(self.low, other.low)
        high = None if self.high is None or other.high is None else max(self.high, other.high)
        return Interval(low, self.estimate, high)


CounterName: TypeAlias = tuple[str, str, str]
"""(broker, key, sensor), as in the findings."""


class Source(enum.Enum):
    """How it is known what was in force while the requests were recorded."""

    FILE = "file"
    """`--recorded-under FILE` names the quotas."""
    NONE = "none"
    """`--recorded-under none`: there were none."""
    LOG = "log"
    """Nobody says; the throttle times in the recording show whom the brokers held back."""
    UNKNOWN = "unknown"
    """Nobody says, and the recording has no throttle times."""


@dataclass(frozen=True, slots=True)
class RecordedUnder:
    """What held the clients of one counter back while they were recorded."""

    source: Source = Source.UNKNOWN
    limit: float | None = None
    """The limit in force, units per second; None where there was none, and where it is not known."""
    held_back: bool = False
    """Whether a quota delayed the recorded clients: their demand is then known as a lower bound only."""


UNKNOWN: Final = Interval(None, None, None)
"""The interval of a value about which a recording says nothing."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the clients of one counter will meet, from the first recorded request to the last one delivered."""

    client_kind: str
    """The kind of client behind most of the load, such as "paced" or "synchronous"; "mixed" where several share it."""
    basis: str
    """The evidence for the kind and the demand, in words."""
    verdict: str
    """`throttled`, `not throttled` or `undetermined`, as in the verdicts of quotas."""
    throttle_time_ms: Interval
    """The sum of the throttle times that the broker sends, ms."""
    throttle_time_max_ms: Interval
    """The longest throttle time, ms."""
    muted_share: Interval
    """The share of the recorded time in which the counter's busiest connection is muted, 0 to 1."""
    delivered_per_s: Interval
    """Units (bytes, partitions, connections, handler seconds) per second delivered in the recorded time."""
    wanted_per_s: Interval
    """Units per second that the clients want; only a lower bound where the recording was held back by a quota."""
    done_ms: Interval
    """When the last recorded unit is delivered, ms after the first recorded request."""
    left_units: Interval
    """Units still in a queue (producers) or not yet fetched (consumers) when the recorded time ends."""
    throttled_requests: Interval = UNKNOWN
    """How many requests the broker throttles, until everything is delivered."""
    recorded_ms: int | None = None
    """From the first recorded request of the counter to the last one."""
    times_out: bool = False
    """Whether a wait in the queue passes the client's time-out: the client reconnects and sends again."""
    reason: str | None = None
    """For `undetermined`: why, in words."""
    recorded_under: RecordedUnder = RecordedUnder()
