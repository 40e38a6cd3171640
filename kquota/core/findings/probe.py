"""What a broker should have done to the requests of a probe, to hold beside what it did.

A probe is one client with one request under way: it waits out every throttle, as clients do since KIP-219. What it sent
is therefore given, with the times at which the answers came. The enforcement of `kquota.core.enforcement` predicts each
verdict from it (for fetches by playing the client, see `predict_fetch`). The counters are taken to be idle at the
start, and nobody else's.

Times are ms of the client's clock. A broker charges a request at some time between its sending and its answer. The
samples of a counter begin with the first charge, so the latency of one request moves all of them: predictions are
ranges, over several such times.
"""

from __future__ import annotations

import enum
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from kquota.core.enforcement import (
    FetchSensor,
    Generation,
    ProduceSensor,
    QuotaWindows,
    RequestSensor,
)
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


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its answer."""

    api: str
    """The name of the message, such as `Produce`."""
    version: int
    correlation_id: int
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


def compare(
    probe: Probe, exchanges: Sequence[Exchange], limits: Limits, handler_ms: Sequence[float] | None = None
) -> Comparison:
    """The throttling of a run beside what is predicted for it.

    `handler_ms` is the request-handler time of each exchange where a broker's request log has it.
    """
    if probe is Probe.REQUEST:
        least, most = predict_request(exchanges, limits, handler_ms)
    else:
        least, most = (predict_produce if probe is Probe.PRODUCE else predict_fetch)(exchanges, limits)
    charged = len(exchanges) if probe is Probe.REQUEST else sum(exchange.charge for exchange in exchanges)
    return Comparison(
        events=len(exchanges),
        charged=charged,
        duration_ms=round(exchanges[-1].answered_ms - exchanges[0].sent_ms) if exchanges else 0,
        observed=Throttling.of([exchange.throttle_ms for exchange in exchanges]),
        least=Throttling.of(least),
        most=Throttling.of(most),
    )


_PARTS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Which part of the time from a request's sending to its answer has gone when the broker charges it."""
Range = tuple[list[int], list[int]]


def _range(runs: Iterable[list[int]]) -> Range:
    """The runs with the least and the most delay in total."""
    found = sorted(runs, key=sum)
    return found[0], found[-1]


def _charged_ms(exchange: Exchange, part: float) -> int:
    return int(exchange.sent_ms + part * (exchange.answered_ms - exchange.sent_ms))


def predict_produce(exchanges: Sequence[Exchange], limits: Limits) -> Range:
    """The delay of each request in ms, at least and at most, by where in their time the broker charged them."""

    def run(first: float, others: float) -> list[int]:
        sensor = ProduceSensor(limits.limit, windows=limits.windows, generation=limits.generation)
        times = [_charged_ms(each, others if index else first) for index, each in enumerate(exchanges)]
        return [sensor.produce(now, each.charge).throttle_ms for now, each in zip(times, exchanges, strict=True)]

    return _range(run(first, others) for first in _PARTS for others in _PARTS)


def predict_fetch(exchanges: Sequence[Exchange], limits: Limits) -> Range:
    """The delay of each response in ms, at least and at most, in a closed loop.

    A fetch that is throttled comes empty, its bytes are taken back, and its retry comes just when the rate is down to
    the limit: a ms decides what the counter holds from then on, and judging one response after the other as it came
    goes astray. So the client is played instead, for as long as the run took: the same amounts in the same order, and
    the same pauses after what it got. What is throttled here waits here and is asked for again. The pauses are the
    pause of most of its retries, a quick one and a slow one.
    """
    followed = list(pairwise(exchanges))
    got = [(each.charge, after.answered_ms - each.answered_ms) for each, after in followed if each.throttle_ms <= 0]
    if not got:
        return [], []
    retried = [
        after.answered_ms - each.answered_ms - each.throttle_ms for each, after in followed if each.throttle_ms > 0
    ]
    pause = statistics.median(pause for _, pause in got)
    retries = statistics.quantiles(retried, n=10) if len(retried) > 1 else [*retried, pause][:1]

    def run(part: float, retry: float) -> list[int]:
        sensor = FetchSensor(limits.limit, windows=limits.windows, generation=limits.generation)
        delays = []
        now, end, index = float(_charged_ms(exchanges[0], part)), exchanges[-1].answered_ms, 0
        while now <= end:
            size, after = got[index] if index < len(got) else (got[-1][0], pause)
            delay = max(sensor.fetch(int(now), size).throttle_ms, 0)
            delays.append(delay)
            if delay:
                now += max(delay + retry, 1)
            else:
                now += after
                index += 1
        return delays

    return _range(
        run(part, retry) for part in _PARTS for retry in {retries[0], retries[len(retries) // 2], retries[-1]}
    )


def predict_request(
    exchanges: Sequence[Exchange], limits: Limits, handler_ms: Sequence[float] | None = None
) -> tuple[list[int], list[int]]:
    """The delay of each request in ms, at least and at most.

    A client cannot see thread time. It is at most the time to the answer, as far as the channel was not muted. It is at
    least the handler time in the request log, which says nothing of network threads. Without a log it may be none.
    """
    least = RequestSensor(limits.limit, windows=limits.windows, generation=limits.generation)
    most = RequestSensor(limits.limit, windows=limits.windows, generation=limits.generation)
    bounds: tuple[list[int], list[int]] = ([], [])
    muted_until = 0.0
    for exchange, handled in zip(exchanges, handler_ms or [0.0] * len(exchanges), strict=True):
        now = int(exchange.answered_ms)
        took = max(exchange.answered_ms - max(exchange.sent_ms, muted_until), handled)
        bounds[0].append(least.request(now, round(handled * 1e6)).throttle_ms)
        bounds[1].append(most.request(now, round(took * 1e6)).throttle_ms)
        muted_until = exchange.answered_ms + exchange.throttle_ms
    return bounds
