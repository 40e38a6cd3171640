"""A finding of an audit: a counter of a broker, what limits it, what became of it and what its clients will meet.

An episode is the time in which one counter throttled its clients, from the first delay to the last.

Findings are ranked by the harm to clients, which is defined here: the share of what clients want that is not delivered
in time, then the share of the time in which they are muted, then the longest wait. The sum of the throttle times is no
measure of harm: the waits of an open loop overlap, and most throttle time falls on many small requests.
"""

from __future__ import annotations

import enum
import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

from kquota.core.change.history import QuotaHistory
from kquota.core.findings.prediction import CounterName, Prediction
from kquota.core.findings.verdicts import HELD_BACK, Verdict
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, Value, share_of_limit
from kquota.core.resolve.resolver import Level, Resolver, resolve_ip, tagged
from kquota.core.tabular import beside


class Basis(enum.Enum):
    """What a finding rests on."""

    REQUESTS = "requests"
    """Each request, replayed."""
    RATES = "rates"
    """Readings of the broker's own rates."""
    TOTALS = "totals"
    """What was charged in intervals."""
    CONNECTIONS = "connections"
    """The first request of each connection in a request log: a lower bound of the connections."""


@dataclass(frozen=True, slots=True)
class Client:
    """One client behind a counter; of connections the client-id is the ip."""

    user: str = field(metadata=beside(alone=True))
    client_id: str = field(metadata=beside(alone=True))
    events: int
    value: int
    """Bytes, ns of thread time, partitions or connections."""
    throttled_events: int | None = None
    throttle_time_ms: int | None = None
    """Open loop: a sum over requests. None where clients are not told apart."""
    logged_throttled_events: int | None = None


@dataclass(frozen=True, slots=True)
class Logged:
    """What the broker itself answered to the same requests."""

    throttled_events: int
    throttle_time_ms: int | None
    """The sum over all requests; None for samples."""
    throttle_time_max_ms: int


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one counter on one broker. Rates are in the key's unit per second.

    A field is a column of the findings table and a member of the document, in this order and by this name.
    """

    broker: str
    key: QuotaKey = field(metadata=beside("unit"))
    sensor: str = field(metadata=beside("subject"))
    entity: Entity
    """The entity whose quota limits the counter; with `level` and `limit` the last one in a history of quotas."""
    level: Level = field(metadata=beside("level_name"))
    limit: float
    limit_changes: int
    verdict: Verdict
    reason: str | None = field(metadata=beside("wanted_at_least"))
    """Why it is undetermined, or how the log denies that the quotas were in force; else None."""
    basis: Basis = field(metadata=beside("predicted"))
    events: int
    throttled_events: int | None = field(metadata=beside("throttled_share"))
    """Open loop: the requests that the broker would throttle if they came when they were recorded.

    Where the broker's own answers are the verdict (`kquota.audit.evidence.verdict`), this and all throttle times are
    the broker's.
    """
    throttle_time_ms: int | None
    """Open loop: the sum of their throttle times, which overlap. No client waits for so long."""
    throttle_time_max_ms: int | None
    peak_rate: float = field(metadata=beside("peak_share"))
    """The highest observed rate; a lower bound where not all is known."""
    peak_rate_max: float | None
    first_throttled_ms: int | None
    last_throttled_ms: int | None
    logged: Logged | None = field(metadata=beside(alone=True))
    """None where the export does not say."""
    estimated_events: int = field(metadata=beside("sizes_from", "logged"))
    rebuilt_events: int = field(metadata=beside(alone=True))
    """Of the estimated fetches, those whose size follows from the data that was produced."""
    rebuilt_share: float | None = field(metadata=beside(alone=True))
    """The share of delivered fetches that come out to the byte by the same rules; None without rebuilt ones."""
    client_count: int
    clients: tuple[Client, ...] = ()
    prediction: Prediction | None = field(default=None, metadata=beside(alone=True))
    """What the clients will meet; None where the recording does not hold each request."""

    @property
    def name(self) -> CounterName:
        """Which counter it is."""
        return self.broker, self.key.value, self.sensor

    @property
    def unit(self) -> str:
        """The unit of its limit and its rates."""
        return self.key.unit

    @property
    def level_name(self) -> str:
        """The level as people say it."""
        return self.level.label

    @property
    def subject(self) -> str:
        """Whose counter it is, as people say it: `user alice`, `client-id app1`, `user bob with client-id etl`."""
        return subject(self.key, self.sensor)

    @property
    def of(self) -> Entity | None:
        """The entity with a counter of just these tags; None for clients without a name."""
        user, _, client_id = self.sensor.partition(":")
        return tagged(self.key, unquote(user), client_id) if user or client_id else None

    @property
    def throttled(self) -> bool:
        """Whether its clients would be throttled."""
        return self.verdict is Verdict.THROTTLED

    @property
    def undetermined(self) -> bool:
        """Whether nobody can say that."""
        return self.verdict is Verdict.UNDETERMINED

    @property
    def held_back(self) -> bool:
        """Whether it is undetermined because its clients were held back while they were recorded."""
        return self.reason == HELD_BACK

    @property
    def wanted_at_least(self) -> float | None:
        """The least rate that clients who were held back want; None where they were not, or the limit shows more."""
        return self.peak_rate if self.held_back else None

    @property
    def throttled_share(self) -> float | None:
        """The share of its requests that the broker would throttle; None where that is not counted."""
        return None if self.throttled_events is None else self.throttled_events / max(self.events, 1)

    @property
    def peak_share(self) -> float | None:
        """The highest observed rate over the limit; None where the limit is not above 0."""
        return share_of_limit(self.peak_rate, self.limit)

    @property
    def longest_ms(self) -> float | None:
        """The longest wait for one answer that is predicted; where nothing is, the longest of the replay."""
        predicted = None if self.prediction is None else self.prediction.throttle_time_max_ms.likely
        return self.throttle_time_max_ms if predicted is None else predicted

    @property
    def harm(self) -> Harm:
        """What its clients suffer; nothing where nobody is throttled."""
        suffers = self.verdict is not Verdict.NOT_THROTTLED
        return Harm.of(self.prediction, self.throttle_time_max_ms) if suffers else Harm(0, 0, 0)


def limits_under(quotas: QuotaHistory) -> Callable[[Finding], list[tuple[int | None, Value | None]]]:
    """Gives the limits of a counter by a history of quotas, each with its beginning, whether requests met it or not."""
    resolver = cache(lambda place, key: Resolver.of(quotas.snapshots[place], key))

    def limits(finding: Finding) -> list[tuple[int | None, Value | None]]:
        user, _, client_id = finding.sensor.partition(":")
        in_turn: list[tuple[int | None, Value | None]] = []
        for place, (since, snapshot) in enumerate(quotas):
            if finding.key is QuotaKey.CONNECTION_CREATION_RATE:
                limit = resolve_ip(snapshot, client_id).limit
            else:
                limit = resolver(place, finding.key).of_counter(unquote(user), client_id).limit
            if not in_turn or limit != in_turn[-1][1]:
                in_turn.append((since, limit))
        return in_turn

    return limits


class Harm(NamedTuple):
    """What a counter does to its clients; larger is worse, in the order of the fields."""

    undelivered: float
    """The share of the wanted units that is not delivered in the recorded time."""
    muted: float
    """The share of the time in which the busiest connection is muted."""
    longest_ms: float

    @classmethod
    def of(cls, prediction: Prediction | None, longest_ms: int | None) -> Harm:
        """The harm that is predicted; where nothing is predicted only the longest throttle time is known."""
        return cls(0.0, 0.0, float(longest_ms or 0)) if prediction is None else cls.predicted(prediction)

    @classmethod
    def predicted(cls, prediction: Prediction | None) -> Harm:
        """The harm in a prediction; none without one."""
        if prediction is None:
            return cls(0.0, 0.0, 0.0)
        return cls(
            undelivered(prediction) or 0.0,
            prediction.muted_share.likely or 0.0,
            prediction.throttle_time_max_ms.likely or 0.0,
        )


def undelivered(prediction: Prediction) -> float | None:
    """The share of the wanted units that is not delivered in the recorded time, 0 to 1; None where it is not known."""
    delivered, wanted = prediction.delivered_per_s.likely, prediction.wanted_per_s.likely
    if delivered is None or wanted is None or wanted <= 0:
        return None
    return min(max(1 - delivered / wanted, 0.0), 1.0)


def subject(key: QuotaKey, sensor: str) -> str:
    """Whose counter a sensor is, as people say it."""
    user, _, client_id = sensor.partition(":")
    if key is QuotaKey.CONNECTION_CREATION_RATE:
        return f"ip {client_id}"
    parts = [f"user {unquote(user)}"] if user else []
    parts += [f"client-id {client_id}"] if client_id else []
    return " with ".join(parts) or "clients without a client-id"


ORDER = (Verdict.THROTTLED, Verdict.UNDETERMINED, Verdict.NOT_THROTTLED)
"""The verdicts of findings, in the order in which findings are shown."""


_Findings = TypeVar("_Findings", bound=Sequence[Finding])


def of_concern(findings: _Findings) -> tuple[_Findings, _Findings]:
    """(those that throttle somebody, those that may), of `AuditResult.found`. In its order few have to be looked at."""
    begin, end = (bisect_left(findings, place, key=lambda finding: ORDER.index(finding.verdict)) for place in (1, 2))
    some: Any = findings  # a slice of a sequence is one of its kind
    return some[:begin], some[begin:end]


class State(enum.Enum):
    """How far an episode is known."""

    BEGAN = "began"
    """Its first delay was seen; nothing is known of the rest."""
    OPEN = "open"
    """It had not ended when the audit stopped."""
    ENDED = "ended"
    """Its clients went on without a delay for a whole quota window."""


class Under(enum.Enum):
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
