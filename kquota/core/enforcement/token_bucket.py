"""The token bucket of Kafka's controller mutation quota: `TokenBucket` of its metrics, since 2.7.0; KIP-599.

Tokens flow in at the limit, up to a burst of N windows of it, and may be owed without bound. A bucket is always asked
with the limit of the moment: after a change the whole time since the last event counts at the new limit, and the new
burst caps what is there. Without a limit (UNLIMITED) refilling goes on as if at 2^63 a second, which forgives all debt.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from typing import Any, NamedTuple

from kquota.core.enforcement.compilable import compilable
from kquota.core.enforcement.generation import QuotaWindows


class TokenBucket(NamedTuple):
    """The state of one bucket; samples and windows are those of `controller.quota.window.*`.

    A new one holds 0 tokens as of time 0, so that on a clock of epoch ms the first event finds it full.
    """

    samples: int
    window_ms: int
    tokens: MutableSequence[float]
    """[0] only: mutations that may still be made, negative for what is owed."""
    updated: MutableSequence[int]
    """[0] only: when it was refilled last, in ms."""


def new_token_bucket(windows: QuotaWindows, column: Callable[[Sequence[Any], str], Any]) -> TokenBucket:
    """A new bucket in the kind of sequences that `column` makes."""
    return TokenBucket(windows.samples, windows.window_ms, column([0.0], "float64"), column([0], "int64"))


@compilable
def clear_tokens(bucket: TokenBucket) -> None:
    """Forgets everything, as if the sensor were new."""
    bucket.tokens[0] = 0.0
    bucket.updated[0] = 0


@compilable
def burst(bucket: TokenBucket, limit: float) -> float:
    """What a full bucket holds: N windows of the limit."""
    return bucket.samples * (bucket.window_ms / 1000.0) * limit


@compilable
def fill(bucket: TokenBucket, tokens: float, limit: float) -> None:
    """Sets the tokens, a full bucket at most."""
    most = burst(bucket, limit)
    bucket.tokens[0] = most if tokens >= most else tokens


@compilable
def refill(bucket: TokenBucket, now: int, limit: float) -> None:
    """`TokenBucket.refill`: what flowed in since the last event, all of it at the limit of now."""
    fill(bucket, bucket.tokens[0] + limit * ((now - bucket.updated[0]) / 1000.0), limit)
    bucket.updated[0] = now


@compilable
def measure_tokens(bucket: TokenBucket, now: int, limit: float) -> float:
    """`TokenBucket.measure`: the tokens at `now` (ms). It refills: in doubles, two steps are not always one."""
    refill(bucket, now, limit)
    return bucket.tokens[0]


@compilable
def record_tokens(bucket: TokenBucket, value: float, now: int, limit: float) -> None:
    """`TokenBucket.record`: takes that many tokens, also more than there are; a negative value gives back."""
    refill(bucket, now, limit)
    fill(bucket, bucket.tokens[0] - value, limit)
