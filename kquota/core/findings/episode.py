"""An episode: the time in which one counter of a broker throttled its clients, from the first delay to the last."""

import math
from dataclasses import dataclass
from enum import Enum

from kquota.core.findings.finding import Client, subject
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.resolve.resolver import Level


class State(Enum):
    """How far an episode is known."""

    BEGAN = "began"
    """Its first delay was seen; nothing is known of the rest."""
    OPEN = "open"
    """It had not ended when the audit stopped."""
    ENDED = "ended"
    """Its clients went on without a delay for a whole quota window."""


class Under(Enum):
    """Under which quotas it happened."""

    TESTED = "tested"
    AGAINST = "against"
    """The quotas that `--against` names."""


@dataclass(frozen=True, slots=True)
class Episode:
    """Delays of one counter without a pause of a quota window. Times are epoch ms, rates in the unit of the key."""

    state: State
    under: Under
    broker: str
    key: QuotaKey
    sensor: str
    entity: Entity
    """The entity whose quota limits the counter."""
    level: Level
    limit: float
    """The limit at the last delay."""
    begin_ms: int
    end_ms: int
    """When the last delay is over, as far as the episode is known."""
    peak_rate: float
    peak_ms: int
    events: int
    """The requests from the first throttled request to the last one."""
    throttled_events: int
    throttle_time_ms: int
    """Open loop: the sum of the delays, which overlap."""
    throttle_time_max_ms: int
    logged_throttled_events: int | None
    """How many of the requests the broker itself said that it throttled; None where the usage does not say."""
    complete: bool
    """Whether the usage until then holds all that the counter is charged; else the rates are lower bounds."""
    at_least: bool
    """Whether `enough` is a lower bound: the clients were held back while they were recorded, or are consumers."""
    client_count: int
    clients: tuple[Client, ...]
    """The loudest first."""

    @property
    def name(self) -> str:
        """The same for all states of one episode, in any run over the same usage."""
        return f"{self.under.value}/{self.broker}/{self.key.value}/{self.sensor}/{self.begin_ms}"

    @property
    def subject(self) -> str:
        """Whose counter it is, as people say it."""
        return subject(self.key, self.sensor)

    @property
    def enough(self) -> float:
        """The least limit under which no request of the episode would have been delayed."""
        if self.key.value_type.integral:
            return float(math.ceil(self.peak_rate))
        return math.ceil(100 * self.peak_rate) / 100
