"""One request under two quotas: bytes and request time, in the order in which the broker applies them.

Sources: `KafkaApis.handleProduceRequest` and `handleFetchRequest`; KIP-124, KIP-219.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kquota.core.enforcement.arithmetic import LONG_MAX
from kquota.core.enforcement.check import produce, record_and_check, request
from kquota.core.enforcement.compilable import compilable
from kquota.core.enforcement.kind import REQUEST
from kquota.core.enforcement.rate import Rate, record

NOBODY: Final = 0
BANDWIDTH: Final = 1


class Throttle(NamedTuple):
    """What came of one request; delays are raw 32-bit results."""

    bandwidth_ms: int
    request_ms: int
    throttle_ms: int
    """The larger of the two: what the client is told, and how long the channel is muted when greater than 0."""
    muted_by: int
    """BANDWIDTH, REQUEST (which gets the ties) or NOBODY."""


@compilable
def throttle(bandwidth_ms: int, request_ms: int) -> Throttle:
    """The larger delay wins."""
    longest = bandwidth_ms if bandwidth_ms > request_ms else request_ms
    if longest <= 0:
        return Throttle(bandwidth_ms, request_ms, longest, NOBODY)
    return Throttle(bandwidth_ms, request_ms, longest, BANDWIDTH if bandwidth_ms > request_ms else REQUEST)


@compilable
def produce_with_request(
    bandwidth: Rate, requests: Rate, now: int, size: int, nanos: int, acks: int, byte_limit: float, request_limit: float
) -> Throttle:
    """Bytes first. With acks=0 the thread time is exempt: it is neither recorded nor checked."""
    bandwidth_ms = produce(bandwidth, now, size, byte_limit).throttle_ms
    request_ms = 0
    if acks != 0:
        request_ms = request(requests, now, nanos, request_limit).throttle_ms
    return throttle(bandwidth_ms, request_ms)


@compilable
def fetch_with_request(
    bandwidth: Rate, requests: Rate, now: int, size: int, nanos: int, byte_limit: float, request_limit: float
) -> Throttle:
    """Request time first. A delay from either quota takes the bytes back, the thread time never."""
    request_ms = request(requests, now, nanos, request_limit).throttle_ms
    bandwidth_ms = record_and_check(bandwidth, float(size), now, byte_limit, LONG_MAX).throttle_ms
    outcome = throttle(bandwidth_ms, request_ms)
    if outcome.throttle_ms > 0:
        record(bandwidth, -float(size), now)
    return outcome
