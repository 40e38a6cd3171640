"""The token bucket of Kafka's controller mutation quota: `TokenBucket` of its metrics, since 2.7.0; KIP-599.

Tokens flow in at the limit, up to a burst of N windows of it, and may be owed without bound. A bucket is always asked
with the limit of the moment: after a change the whole time since the last event counts at the new limit, and the new
burst caps what is there. Without a limit (UNLIMITED) refilling goes on as if at 2^63 a second, which forgives all debt.

A bucket is kept in the first slot of its counter: the sum is the tokens, the start the time of the last refill. A new
one holds 0 tokens as of time 0, so that on a clock of epoch ms the first event finds it full.
"""

from kquota.core.enforcement.compilable import compilable
from kquota.core.enforcement.counter import START, SUM, Counter


@compilable
def burst(counter: Counter, limit: float) -> float:
    """The tokens in a full bucket: N windows of the limit."""
    return counter.samples * (counter.window_ms / 1000.0) * limit


@compilable
def fill(counter: Counter, tokens: float, limit: float) -> None:
    """Sets the tokens, a full bucket at most."""
    most = burst(counter, limit)
    counter.floats[SUM] = most if tokens >= most else tokens


@compilable
def measure_tokens(counter: Counter, now: int, limit: float) -> float:
    """`TokenBucket.measure`: the tokens at `now` (ms). It refills: in doubles, two steps are not always one."""
    fill(counter, counter.floats[SUM] + limit * ((now - counter.ints[START]) / 1000.0), limit)
    counter.ints[START] = now
    return counter.floats[SUM]


@compilable
def record_tokens(counter: Counter, value: float, now: int, limit: float) -> None:
    """`TokenBucket.record`: takes that many tokens, also more than there are; a negative value gives back."""
    fill(counter, measure_tokens(counter, now, limit) - value, limit)
