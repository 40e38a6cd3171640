"""Record, check, delay: what the produce, fetch and request managers do with one event of one sensor.

Sources: `Sensor.record` and `checkQuotas`, `QuotaUtils.throttleTime` and `boundedThrottleTime`,
`ClientQuotaManager.recordAndGetThrottleTimeMs` and `unrecordQuotaSensor`, `ClientRequestQuotaManager`; KIP-13, 55, 124
and 219. A delay is the raw 32-bit result: a broker mutes the channel only when it is greater than 0.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from kquota.core.enforcement.arithmetic import LONG_MAX, double_to_int, long_to_int, round_half_up
from kquota.core.enforcement.compilable import compilable, inlined
from kquota.core.enforcement.rate import Rate, record, total, window

UNLIMITED: Final = 9.223372036854775807e18
"""The bound of a sensor without a quota: `Long.MAX_VALUE` as a double. Recording goes on under it."""
UNBOUNDED: Final = LONG_MAX
"""The cap of the byte quotas: none. Request delays are capped at one window."""
SENSOR_EXPIRY_MS: Final = 3_600_000
"""`InactiveSensorExpirationTimeSeconds`: a quota sensor is dropped when it recorded nothing for longer than this."""
PERCENT_PER_NANO: Final = 100.0 / 1e9
"""`NanosToPercentagePerSecond`: nanoseconds of thread time in percent of one thread."""


class Verdict(NamedTuple):
    """What came of one checked event."""

    throttle_ms: int
    rate: float
    """The observed rate as of the check, the event included; in units per second."""
    window_ms: int
    """The window over which it was observed."""
    violated: bool
    """Whether the rate was over the limit; the delay may still round to 0."""


@compilable
def throttle_time(value: float, bound: float, window_ms: int, cap_ms: int) -> int:
    """`QuotaUtils.throttleTime`, capped, as an int: the ms after which the rate would be down to the bound."""
    # A bound of 0 makes Java divide by zero: infinity, Long.MAX, and -1 where no cap stops it.
    excess = math.copysign(math.inf, bound) if bound == 0.0 else (value - bound) / bound
    delay = round_half_up(excess * window_ms)
    return long_to_int(delay if delay < cap_ms else cap_ms)


@inlined
def record_and_check(rate: Rate, value: float, now: int, limit: float, cap_ms: int) -> Verdict:
    """`recordAndGetThrottleTimeMs`: the value is recorded first and stays recorded; equality is within the limit."""
    record(rate, value, now)
    window_ms = window(rate, now)
    observed = total(rate) / (window_ms / 1000.0)
    if observed <= limit:
        return Verdict(0, observed, window_ms, False)
    return Verdict(throttle_time(observed, limit, window_ms, cap_ms), observed, window_ms, True)


@compilable
def produce(rate: Rate, now: int, size: int, limit: float) -> Verdict:
    """A produce request of that many bytes, header included. Nothing is taken back."""
    return record_and_check(rate, float(size), now, limit, UNBOUNDED)


@compilable
def fetch(rate: Rate, now: int, size: int, limit: float) -> Verdict:
    """A fetch response of that many bytes; when it is delayed, its bytes are taken back (the client gets none)."""
    verdict = record_and_check(rate, float(size), now, limit, UNBOUNDED)
    if verdict.throttle_ms > 0:
        record(rate, -float(size), now)
    return verdict


@compilable
def request(rate: Rate, now: int, nanos: int, limit: float) -> Verdict:
    """Request-handler time of any request that is not exempt; the delay is at most one window."""
    return record_and_check(rate, nanos * PERCENT_PER_NANO, now, limit, rate.window_ms)


@compilable
def network(rate: Rate, now: int, nanos: int) -> None:
    """Network-thread time: recorded after the response was sent, without a check; it weighs on the next request."""
    record(rate, nanos * PERCENT_PER_NANO, now)


@compilable
def max_fetch_bytes(limit: float, samples: int, window_seconds: int) -> int:
    """What a fetch may return at most under the quota (2.5.0 and later, KAFKA-9677); 0 with a single sample."""
    if limit == UNLIMITED:
        return double_to_int(math.inf)
    return double_to_int(limit * (samples - 1) * window_seconds)
