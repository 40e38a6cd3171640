"""What a broker should have done to the requests of a probe, to hold beside what it did.

A probe is one client with one request under way: it waits out every throttle, as clients do since KIP-219. So it is
played again in a closed loop against `kquota.core.enforcement`. The load says when a request is due. What is taken of
the run are the sizes, how late a request was sent, and how long its answer took. The broker's throttle times are not:
what is delayed here waits here, whatever happened in the run. The counters are idle at the start, and nobody else's.

Times are ms of the client's clock. A broker charges a request at some time between its sending and its answer. The
samples of a counter begin with the first charge, so the latency of one request moves all of them: predictions are
ranges, over several such times.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import product
from typing import Final, NamedTuple

from kquota.core.enforcement import Generation, QuotaWindows
from kquota.core.enforcement.kind import FETCH, PRODUCE, REQUEST
from kquota.core.enforcement.sensors import LimitedSensor
from kquota.core.quotas.quota import QuotaKey, Value


class Probe(enum.Enum):
    """What is probed: each stands for the quota key that governs it."""

    PRODUCE = "produce"
    FETCH = "fetch"
    REQUEST = "request"

    @property
    def key(self) -> QuotaKey:
        """The quota that is probed."""
        return _KEYS[self]

    @property
    def unit(self) -> str:
        """What the client's rate counts."""
        return "requests" if self is Probe.REQUEST else "bytes"


_KEYS: Final = {
    Probe.PRODUCE: QuotaKey.PRODUCER_BYTE_RATE,
    Probe.FETCH: QuotaKey.CONSUMER_BYTE_RATE,
    Probe.REQUEST: QuotaKey.REQUEST_PERCENTAGE,
}


_KINDS: Final = {Probe.PRODUCE: PRODUCE, Probe.FETCH: FETCH, Probe.REQUEST: REQUEST}


@dataclass(frozen=True, slots=True)
class Load:
    """One client's workload: how much, how fast and how long."""

    rate: float
    """Bytes or requests per second."""
    size: int
    """Bytes of a record, of a fetch response at most."""
    duration_s: float
    most: int
    """Bytes or requests that are never exceeded."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its answer."""

    sent_ms: float
    answered_ms: float
    charge: int
    """What a byte quota charges: bytes of the request or of the response."""
    throttle_ms: int = 0
    """What the broker said."""


@dataclass(frozen=True, slots=True)
class Throttling:
    """The throttle times of a run, in ms."""

    total_ms: int
    count: int
    longest_ms: int

    @classmethod
    def of(cls, delays: Sequence[int]) -> Throttling:
        """Sums up the delays of all events; a delay that is not above 0 throttles nobody."""
        throttled = [delay for delay in delays if delay > 0]
        return cls(sum(throttled), len(throttled), max(throttled, default=0))


class Agreement(enum.Enum):
    """Whether the broker throttled as predicted."""

    NOT_THROTTLED = "not throttled"
    """Not observed, and not certain by the prediction: the limit, if there is one, was not reached."""
    AS_PREDICTED = "as predicted"
    MORE = "more than predicted"
    LESS = "less than predicted"


_NEAR: Final = 0.05
"""How far the observed total may lie outside the predicted range, as a share of its upper end."""
_NOISE: Final = 0.01
"""Throttle time below this share of the run is jitter of the client's clock and of the network, or one late answer."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was observed, and what was predicted: a range where the client cannot know what the broker charged."""

    events: int
    charged: int
    """Bytes or requests."""
    duration_ms: int
    observed: Throttling
    least: Throttling
    most: Throttling

    @property
    def ratio(self) -> tuple[float, float] | None:
        """Predicted over observed total throttle time, least and most; None where nothing was observed."""
        observed = self.observed.total_ms
        return (self.least.total_ms / observed, self.most.total_ms / observed) if observed else None

    @property
    def agreement(self) -> Agreement:
        """The verdict of the probe: within 5 % of the predicted range, give or take 1 % of the run, is as predicted.

        A wide range is one in which a few ms decide, and nobody has tried all of them: its lower end is no sharper.
        """
        noise = _NOISE * self.duration_ms
        observed, least, most = self.observed.total_ms, self.least.total_ms, self.most.total_ms
        if max(observed, least) <= noise:
            return Agreement.NOT_THROTTLED
        slack = _NEAR * most + noise
        if observed > most + slack:
            return Agreement.MORE
        if observed < least - slack:
            return Agreement.LESS
        return Agreement.AS_PREDICTED


@dataclass(frozen=True, slots=True)
class Limits:
    """What governs the probe on its broker, in units of the quota key; None is no limit."""

    limit: Value | None
    windows: QuotaWindows
    generation: Generation


def compare(probe: Probe, exchanges: Sequence[Exchange], limits: Limits, load: Load) -> Comparison:
    """The throttling of a run beside what is predicted for its load, as long as it lasted.

    Thread time is at most the time to the answer, and may be none.
    """
    steps = _steps(probe, exchanges, load)
    if probe is Probe.REQUEST:
        runs = [[], _played(probe, steps, limits, load, (1.0, 1.0))]
    else:
        runs = [_played(probe, steps, limits, load, parts) for parts in product(_PARTS, _PARTS)]
    columns = [*zip(*(astuple(Throttling.of(run)) for run in runs), strict=True)]
    return Comparison(
        events=len(exchanges),
        charged=len(exchanges) if probe is Probe.REQUEST else sum(exchange.charge for exchange in exchanges),
        duration_ms=round(exchanges[-1].answered_ms - exchanges[0].sent_ms) if exchanges else 0,
        observed=Throttling.of([exchange.throttle_ms for exchange in exchanges]),
        least=Throttling(*map(min, columns)),
        most=Throttling(*map(max, columns)),
    )


_PARTS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Which part of the time from a request's sending to its answer has gone when the broker charges it."""


class _Step(NamedTuple):
    """What a request takes, however long the broker delays it."""

    size: int
    """Bytes, or one request."""
    charge: float
    """Bytes, or ns of thread time at most."""
    late_ms: float
    """From when it was due until it was sent."""
    took_ms: float
    """From when it was sent, and the channel was open, to the answer."""


def _steps(probe: Probe, exchanges: Sequence[Exchange], load: Load) -> list[_Step]:
    """The requests of a run. A throttled fetch comes empty: what it would have brought comes with its retry."""
    steps: list[_Step] = []
    spent, free_ms = 0, exchanges[0].sent_ms if exchanges else 0.0
    for exchange in exchanges:
        due_ms = max(free_ms, exchanges[0].sent_ms + 1000 * spent / load.rate)
        sent_ms = max(exchange.sent_ms, free_ms)
        free_ms = exchange.answered_ms + exchange.throttle_ms
        if probe is not Probe.FETCH or exchange.throttle_ms <= 0:
            took_ms = exchange.answered_ms - sent_ms
            size, charge = (1, 1e6 * took_ms) if probe is Probe.REQUEST else (exchange.charge, float(exchange.charge))
            steps.append(_Step(size, charge, max(sent_ms - due_ms, 0.0), took_ms))
            spent += size
    return steps


def _played(probe: Probe, steps: Sequence[_Step], limits: Limits, load: Load, parts: tuple[float, float]) -> list[int]:
    """The delay of each request in ms, where the client sends its load alone.

    The broker charges the first request, and the others, after such a `part` of their time. Where the client comes
    further here than in the run, its requests begin anew.
    """
    sensor = LimitedSensor(limits.limit, windows=limits.windows, generation=limits.generation)
    delays: list[int] = []
    now_ms, spent, number = 0.0, 0, 0
    while steps:
        step = steps[number % len(steps)]
        sent_ms = max(now_ms, 1000 * spent / load.rate) + step.late_ms
        if sent_ms > 1000 * load.duration_s or spent + step.size > load.most:
            break
        charged_ms = int(sent_ms + parts[number > 0] * step.took_ms)
        verdict = sensor.kernel.charge_counter(sensor.counter, _KINDS[probe], charged_ms, step.charge, sensor.bound)
        delays.append(max(verdict.throttle_ms, 0))
        now_ms = sent_ms + step.took_ms + delays[-1]
        if probe is not Probe.FETCH or not delays[-1]:
            spent += step.size
            number += 1
    return delays
