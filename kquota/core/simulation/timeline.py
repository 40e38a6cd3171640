"""Series over time, and what they say about recovery."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kquota.core.simulation.result import Timeline

MOST_BUCKETS: Final = 160
_WIDTHS_MS: Final = (100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000)


def bucket_ms_of(duration_ms: int) -> int:
    """A width of buckets, a round number, with which a series has at most MOST_BUCKETS."""
    for width in _WIDTHS_MS:
        if duration_ms <= width * MOST_BUCKETS:
            return width
    return -(-duration_ms // (MOST_BUCKETS * 600_000)) * 600_000


def recovery(timeline: Timeline, ends: Sequence[float], duration_ms: int) -> tuple[int | None, bool]:
    """(the longest time from the end of an overload to the end of its throttling, whether the last one was over).

    An overload is a run of buckets in which more arrived than the limit lets through.
    """
    over = [
        limit is not None and offered > limit for offered, limit in zip(timeline.offered, timeline.limit, strict=True)
    ]
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
        overload_end = min(bucket * timeline.bucket_ms, duration_ms)
        following = next((later for later in range(bucket, len(over)) if over[later]), len(over))
        throttled_until = int(max(ends[start:following]))
        if throttled_until == 0:
            continue
        recovered = throttled_until < duration_ms and bucket < len(over)
        longest = max(longest or 0, throttled_until - overload_end, 0)
    return longest, recovered
