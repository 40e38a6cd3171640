"""What the clients of a counter will meet under other quotas: intervals, because a recording cannot always say.

A prediction is made by running the recorded clients through the simulator, once for each kind of client that fits the
recording. Where several kinds fit, `low` and `high` are the least and the most of their runs.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias


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
    def at_least(cls, low: float | None) -> Interval:
        """The interval of a value of which only a lower bound is known, if any."""
        return cls(low, None, None)

    @classmethod
    def over(cls, values: Sequence[float]) -> Interval:
        """From the least to the most of several runs; the first is the most probable."""
        return cls(min(values), values[0], max(values))

    @property
    def likely(self) -> float | None:
        """The most probable value, else a bound of it; None where nothing is known."""
        if self.estimate is not None:
            return self.estimate
        return self.high if self.low is None else self.low


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


LOGGED: Final = "logged"
"""The basis of a prediction that is no simulation: the quotas were in force, and the log holds the throttle times."""
REPLAYED: Final = "replayed"
"""The same where the recording has no throttle times: the replay of the quotas that were in force."""

UNKNOWN: Final = Interval(None, None, None)
"""The interval of a value about which a recording says nothing."""
UNDELAYED: Final[Mapping[str, Any]] = dict.fromkeys(
    ("throttle_time_ms", "throttle_time_max_ms", "muted_share"), Interval.exactly(0)
)
"""What a prediction has for clients that no throttle time meets."""
_MET: Final = (*UNDELAYED, "delivered_per_s", "done_ms", "left_units")


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the clients of one counter will meet, from the first recorded request to the last one delivered."""

    client_kind: str
    """The kind of client behind most of the load, such as "paced" or "synchronous"; "mixed" where several share it."""
    basis: str
    """The evidence for the kind and the demand, in words; LOGGED or REPLAYED where the quotas were in force."""
    verdict: str
    """`throttled`, `not throttled` or `undetermined`, as in the verdicts of quotas."""
    throttle_time_ms: Interval = UNKNOWN
    """The sum of the throttle times that the broker sends, ms."""
    throttle_time_max_ms: Interval = UNKNOWN
    """The longest throttle time, ms."""
    muted_share: Interval = UNKNOWN
    """The share of the recorded time in which the counter's busiest connection is muted, 0 to 1."""
    delivered_per_s: Interval = UNKNOWN
    """Units (bytes, partitions, connections, handler seconds) per second delivered in the recorded time."""
    wanted_per_s: Interval = UNKNOWN
    """Units per second that the clients want; only a lower bound where the recording was held back by a quota."""
    done_ms: Interval = UNKNOWN
    """When the last recorded unit is delivered, ms after the first recorded request."""
    left_units: Interval = UNKNOWN
    """Units still in a queue (producers) or not yet fetched (consumers) when the recorded time ends."""
    recorded_ms: int | None = None
    """From the first recorded request of the counter to the last one."""
    times_out: bool = False
    """Whether a wait in the queue passes the client's time-out: the client reconnects and sends again."""
    reason: str | None = None
    """For `undetermined`: why, in words."""
    recorded_under: RecordedUnder = RecordedUnder()
    peak_rate: Interval = UNKNOWN
    """The highest rate of the counter where the simulation has its verdict: it may never reach the replay's rate."""

    @property
    def says_delays(self) -> bool:
        """Whether it knows anything of the waits of the clients."""
        return self.throttle_time_max_ms.likely is not None

    @property
    def is_record(self) -> bool:
        """Whether it is what happened: the quotas were those in force."""
        return self.basis in (LOGGED, REPLAYED)

    def not_throttled(self) -> Prediction:
        """The prediction of clients that no throttle time meets; what they are delivered stays."""
        return replace(self, **UNDELAYED, verdict="not throttled", reason=None, times_out=False)

    def bounded(self, total_ms: int | None, longest_ms: int | None, verdict: str, reason: str | None) -> Prediction:
        """The prediction where another quota may cause the throttle times; these are the most that this one causes.

        `total_ms` and `longest_ms` are the most probable, None where nobody knows.
        """

        def at_most(interval: Interval, value: int | None) -> Interval:
            most = interval.high
            return Interval(0, None if value is None else value if most is None else min(value, most), most)

        muted = self.muted_share.estimate
        return replace(
            self,
            verdict=verdict,
            throttle_time_ms=at_most(self.throttle_time_ms, total_ms),
            throttle_time_max_ms=at_most(self.throttle_time_max_ms, longest_ms),
            muted_share=replace(self.muted_share, low=0.0, estimate=None if total_ms is None else muted),
            reason=reason,
        )

    def open_ended(self, *, is_part: bool = False) -> Prediction:
        """The prediction of throttled clients that may want more than is known: nothing bounds what they meet.

        `is_part`: the recording lacks some of their requests, and shows the least of everything, without an estimate.
        """

        unknown: dict[str, Any] = {"estimate": None, "high": None} if is_part else {"high": None}
        opened = {name: replace(getattr(self, name), **unknown) for name in _MET}
        opened["muted_share"] = replace(opened["muted_share"], high=1.0)
        wanted = Interval.at_least(self.wanted_per_s.low)
        return replace(self, **opened, verdict="throttled", wanted_per_s=wanted, reason=None)

    def undetermined(self, reason: str) -> Prediction:
        """The least that clients meet who may want more than is known, where nobody can say whether it throttles."""
        least: dict[str, Any] = dict.fromkeys((*UNDELAYED, "left_units"), Interval.at_least(0))
        least["muted_share"] = Interval(0, None, 1)
        for name in ("delivered_per_s", "wanted_per_s"):
            least[name] = Interval.at_least(getattr(self, name).low)
        return replace(self, **least, verdict="undetermined", done_ms=UNKNOWN, times_out=False, reason=reason)
