"""What a broker does to one request, for all kinds of quotas: expire, record, check, delay, take back.

Everything that enforces goes through here: the sensors of the public classes, the replay of recordings, the simulator.
The functions that take and return a `State` are for loops, which keep it in local variables; the others do one step on
the row itself. A delay is the raw 32-bit result: a broker mutes the channel only when it is greater than 0.

Sources: `Sensor.record` and `checkQuotas`, `QuotaUtils.throttleTime` and `boundedThrottleTime`,
`ClientQuotaManager.recordAndGetThrottleTimeMs` and `unrecordQuotaSensor`, `ClientRequestQuotaManager`,
`KafkaApis.handleProduceRequest` and `handleFetchRequest`, `StrictControllerMutationQuota` and
`PermissiveControllerMutationQuota`, `ConnectionQuotas`; KIP-13, 55, 124, 219, 599 and 612.
"""

import math
from typing import Final, NamedTuple

from kquota.core.enforcement.arithmetic import double_to_int, long_to_int, round_half_up
from kquota.core.enforcement.compilable import compilable, inlined
from kquota.core.enforcement.counter import Counter, State, awake, load, store
from kquota.core.enforcement.kind import CONNECTION, FETCH, MUTATION, PRODUCE, REQUEST
from kquota.core.enforcement.rate import observed, recorded
from kquota.core.enforcement.token_bucket import measure_tokens, record_tokens

UNLIMITED: Final = 9.223372036854775807e18
"""The bound of a sensor without a quota: `Long.MAX_VALUE` as a double. Recording goes on under it."""
PERCENT_PER_NANO: Final = 100.0 / 1e9
"""`NanosToPercentagePerSecond`: nanoseconds of thread time in percent of one thread."""
NOBODY: Final = -1
"""Muted by no quota."""


class Verdict(NamedTuple):
    """What came of one checked event."""

    throttle_ms: int
    rate: float
    """The observed rate as of the check, the event included, in units per second; of a mutation the tokens left."""
    window_ms: int
    """The window over which it was observed; 0 for a mutation."""
    violated: bool
    """Whether the rate was over the limit or tokens are owed; the delay may still round to 0."""


class Throttle(NamedTuple):
    """What came of one request under two quotas; delays are raw 32-bit results."""

    bandwidth_ms: int
    request_ms: int
    throttle_ms: int
    """The larger of the two: it is in the response, and when greater than 0 the channel is muted for as long."""
    muted_by: int
    """The kind of the quota that muted: PRODUCE or FETCH, REQUEST (which gets the ties), or NOBODY."""


@compilable
def throttle_time(value: float, bound: float, window_ms: int, cap_ms: int) -> int:
    """`QuotaUtils.throttleTime`, capped, as an int: the ms after which the rate would be down to the bound."""
    # A bound of 0 makes Java divide by zero: infinity, Long.MAX, and -1 where no cap stops it.
    excess = math.copysign(math.inf, bound) if bound == 0.0 else (value - bound) / bound
    delay = round_half_up(excess * window_ms)
    return long_to_int(delay if delay < cap_ms else cap_ms)


@compilable
def mutation_delay(tokens: float, limit: float) -> int:
    """`ControllerMutationQuotaManager.throttleTimeMs`: the ms (64 bits) after which nothing is owed any more."""
    # A limit of 0 makes Java divide by zero: infinity, and Long.MAX.
    seconds = math.copysign(math.inf, limit) if limit == 0.0 else -tokens / limit
    return round_half_up(seconds * 1000.0)


@compilable
def mutated(counter: Counter, kind: int, now: int, partitions: float, limit: float) -> tuple[float, bool]:
    """One topic: the tokens that are left, negative for those owed, and whether the quota was violated.

    Strict: while tokens are owed, a topic is rejected and not charged, also one without partitions; else it is charged
    in full. A rejection changes nothing but the refill. Permissive: charged, then checked, never rejected.
    """
    if kind == MUTATION:
        tokens = measure_tokens(counter, now, limit)
        if tokens < 0.0:
            return tokens, True
    record_tokens(counter, partitions, now, limit)
    tokens = measure_tokens(counter, now, limit)
    return tokens, kind != MUTATION and tokens < 0.0


@inlined
def noted(counter: Counter, state: State, kind: int, now: int, value: float) -> State:
    """Records without a check: network thread time, and with a negative value what is taken back."""
    return recorded(counter, state, value * PERCENT_PER_NANO if kind == REQUEST else value, now)


@inlined
def checked(
    counter: Counter, state: State, kind: int, now: int, value: float, limit: float
) -> tuple[int, float, int, bool, State]:
    """`recordAndGetThrottleTimeMs`: the value is recorded first and stays recorded; equality is within the limit.

    Returns the four fields of a Verdict, and the state.
    """
    state = noted(counter, state, kind, now, value)
    window_ms, total, state = observed(counter, state, now)
    rate = total / (window_ms / 1000.0)
    if rate <= limit:
        return 0, rate, window_ms, False, state
    cap_ms = counter.window_ms if kind in (REQUEST, CONNECTION) else counter.longest_ms
    return throttle_time(rate, limit, window_ms, cap_ms), rate, window_ms, True, state


@inlined
def charged(
    counter: Counter, state: State, kind: int, now: int, value: float, limit: float
) -> tuple[int, float, int, bool, State]:
    """As `checked`; a delayed fetch and a delayed connection of an ip are taken back at once."""
    delay, rate, window_ms, violated, state = checked(counter, state, kind, now, value, limit)
    if delay > 0 and kind in (FETCH, CONNECTION):
        state = noted(counter, state, kind, now, -value)
    return delay, rate, window_ms, violated, state


@inlined
def charged_topic(
    counter: Counter, state: State, kind: int, now: int, partitions: float, limit: float
) -> tuple[int, float, bool, State]:
    """One topic: the delay, the tokens that are left, and whether the quota was violated."""
    tokens, violated = mutated(counter, kind, now, partitions, limit)
    delay = long_to_int(mutation_delay(tokens, limit)) if violated else 0
    recorded_ms = state[0] if violated and kind == MUTATION else now  # a rejection is no activity
    return delay, tokens, violated, (recorded_ms, state[1], state[2], state[3], state[4], state[5])


@compilable
def charge_counter(counter: Counter, kind: int, now: int, value: float, limit: float) -> Verdict:
    """Charges one event to one counter: bytes, ns, connections or partitions, by its kind."""
    state = awake(counter, load(counter), now)
    if kind >= MUTATION:
        delay, tokens, violated, state = charged_topic(counter, state, kind, now, value, limit)
        store(counter, state)
        return Verdict(delay, tokens, 0, violated)
    delay, rate, window_ms, violated, state = charged(counter, state, kind, now, value, limit)
    store(counter, state)
    return Verdict(delay, rate, window_ms, violated)


@compilable
def check(counter: Counter, kind: int, now: int, value: float, limit: float) -> Verdict:
    """Charges one event to a windowed rate, and takes nothing back."""
    state = awake(counter, load(counter), now)
    delay, rate, window_ms, violated, state = checked(counter, state, kind, now, value, limit)
    store(counter, state)
    return Verdict(delay, rate, window_ms, violated)


@compilable
def note(counter: Counter, kind: int, now: int, value: float) -> None:
    """Records one event without a check."""
    store(counter, noted(counter, awake(counter, load(counter), now), kind, now, value))


@compilable
def throttle(kind: int, bandwidth_ms: int, request_ms: int) -> Throttle:
    """The larger of the delays of the bytes, which are of that kind, and of the thread time."""
    longest = bandwidth_ms if bandwidth_ms > request_ms else request_ms
    muted_by = NOBODY
    if longest > 0:
        muted_by = kind if bandwidth_ms > request_ms else REQUEST
    return Throttle(bandwidth_ms, request_ms, longest, muted_by)


@compilable
def charge_request(
    kind: int,
    bandwidth: Counter,
    byte_limit: float,
    requests: Counter,
    request_limit: float,
    now: int,
    size: float,
    nanos: float,
    counts_bytes: bool,
    counts_time: bool,
) -> tuple[Verdict, Verdict, Throttle]:
    """One request under two quotas: the verdicts on its bytes and on its thread time, and what came of both.

    Produce charges bytes first, fetch thread time. A delay from either quota takes the bytes of a fetch back, never the
    thread time. Without `counts_bytes` no bytes are charged (other requests), without `counts_time` no thread time
    (exempt ones, acks=0).
    """
    bytes_verdict = Verdict(0, 0.0, 0, False)
    time_verdict = Verdict(0, 0.0, 0, False)
    if counts_bytes and kind == PRODUCE:
        bytes_verdict = check(bandwidth, kind, now, size, byte_limit)
    if counts_time:
        time_verdict = check(requests, REQUEST, now, nanos, request_limit)
    if counts_bytes and kind == FETCH:
        bytes_verdict = check(bandwidth, kind, now, size, byte_limit)
    outcome = throttle(kind, bytes_verdict.throttle_ms, time_verdict.throttle_ms)
    if counts_bytes and kind == FETCH and outcome.throttle_ms > 0:
        note(bandwidth, kind, now, -size)
    return bytes_verdict, time_verdict, outcome


@compilable
def max_fetch_bytes(limit: float, samples: int, window_seconds: int) -> int:
    """The bytes that a fetch may return at most under the quota (2.5.0 and later, KAFKA-9677); 0 with one sample."""
    if limit == UNLIMITED:
        return double_to_int(math.inf)
    return double_to_int(limit * (samples - 1) * window_seconds)
