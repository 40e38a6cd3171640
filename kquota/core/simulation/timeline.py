"""Series over time, and what they say about recovery."""

from collections.abc import Sequence
from typing import Final

from kquota.core.quotas.quota import Value

MOST_BUCKETS: Final = 160
_WIDTHS_MS: Final = (100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000)


def bucket_ms_of(duration_ms: int) -> int:
    """A width of buckets, a round number, with which a series has at most MOST_BUCKETS."""
    for width in _WIDTHS_MS:
        if duration_ms <= width * MOST_BUCKETS:
            return width
    return -(-duration_ms // (MOST_BUCKETS * 600_000)) * 600_000


def limits_by_bucket(limits: Sequence[tuple[int, Value | None]], bucket_ms: int, buckets: int) -> list[float | None]:
    """The limit at the beginning of each bucket, from (since, limit) in order of time."""
    if len(limits) == 1:
        limit = limits[0][1]
        return [None if limit is None else float(limit)] * buckets
    found = [
        next(limit for since, limit in reversed(limits) if since <= bucket * bucket_ms) for bucket in range(buckets)
    ]
    return [None if limit is None else float(limit) for limit in found]


def recovery(
    offered: Sequence[float], limits: Sequence[float | None], ends: Sequence[float], bucket_ms: int, duration_ms: int
) -> tuple[int | None, bool]:
    """(the longest time from the end of an overload to the end of its throttling, whether the last one was over).

    An overload is a run of buckets in which more arrived (in units per bucket) than the limit (units per second) lets
    through. `ends` has the latest end of a throttle time that began in each bucket, 0 for none.
    """
    seconds = bucket_ms / 1000
    over = [limit is not None and more > limit * seconds for more, limit in zip(offered, limits, strict=True)]
    longest: int | None = None
    recovered = True
    bucket = 0
    while bucket < len(over):
        if not over[bucket]:
            bucket += 1
            continue
        start = bucket
        while bucket < len(over) and over[bucket]:
            bucket += 1
        overload_end = min(bucket * bucket_ms, duration_ms)
        following = next((later for later in range(bucket, len(over)) if over[later]), len(over))
        throttled_until = int(max(ends[start:following]))
        if throttled_until == 0:
            continue
        recovered = throttled_until < duration_ms and bucket < len(over)
        longest = max(longest or 0, throttled_until - overload_end, 0)
    return longest, recovered
