"""Runs recorded requests that create or delete topics under other limits: clients that retry, give up, or wait."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from kquota.core.enforcement import MutationSensor, QuotaWindows
from kquota.core.simulation.recorded import LONGEST_MS, Met

LATENCY_MS: Final = 1
"""From the end of a throttle time to the next request of its client."""
_HORIZON: Final = 4
"""A run ends after so many times the time that its limit takes for all partitions."""


class Mutating(NamedTuple):
    """One recorded request."""

    time_ms: int
    """When its client sent it, epoch ms."""
    topics: tuple[int, ...]
    """The partitions of each topic, in the order of the charges."""
    strict: bool
    """Whether topics are rejected; else all are accepted, and the connection is muted."""


@dataclass(slots=True)
class _Account:
    """What the answers of one run add up to."""

    throttled: int = 0
    throttle_ms: int = 0
    longest_ms: int = 0
    early_ms: int = 0
    muted_ms: int = 0
    delivered: int = 0
    done_ms: int | None = None
    waited_ms: int = 0


def run_mutations(
    requests: Sequence[Mutating],
    limit: float,
    recorded_ms: int,
    *,
    windows: QuotaWindows,
    retries: bool,
) -> Met:
    """Runs the requests of one client, in time, which sends none while it is muted.

    With `retries` it sends rejected topics again when their throttle time is over, as Java's admin client does; else
    they are lost. A limit is in partitions per second.
    """
    sensor = MutationSensor(windows=windows)
    sensor.bound = limit
    first = requests[0].time_ms
    end = first + recorded_ms
    total = sum(sum(each.topics) for each in requests)
    horizon = end + min(60_000 + int(_HORIZON * 1000 * total / max(limit, 1e-3)), LONGEST_MS)
    found = _Account()
    # Of one moment what was rejected goes first: (due, since when it waits, number, topics).
    due = [(each.time_ms, each.time_ms, number, each.topics) for number, each in enumerate(requests)]
    heapify(due)
    free = left = 0
    while due:
        at, since, number, topics = heappop(due)
        if free > at:
            heappush(due, (free, since, number, topics))
            continue
        if at > horizon:
            left += sum(topics)
            continue
        found.waited_ms = max(found.waited_ms, at - since)
        strict = requests[number].strict
        answer = sensor.request(at, topics, strict=strict)
        delay = max(answer.throttle_ms, 0)
        accepted = sum(size for size, topic in zip(topics, answer.topics, strict=True) if topic.accepted)
        rejected = tuple(size for size, topic in zip(topics, answer.topics, strict=True) if not topic.accepted)
        if delay:
            found.throttled += 1
            found.throttle_ms += delay
            found.longest_ms = max(found.longest_ms, delay)
            found.early_ms += delay if at <= end else 0
            found.muted_ms += max(min(at + delay, end) - at, 0)
        if accepted:
            found.done_ms = at - first
            found.delivered += accepted if at <= end else 0
        # Not at once: a throttle time is rounded, and what comes too early is rejected once more, with a wait of 0.
        free = at + delay + LATENCY_MS if delay or rejected else at
        if rejected and retries:
            heappush(due, (free, since, number, rejected))
    return Met(
        found.throttled,
        found.throttled > 0,
        found.throttle_ms,
        found.longest_ms,
        found.early_ms,
        found.muted_ms,
        found.delivered,
        max(sum(sum(each.topics) for each in requests if each.time_ms <= end) - found.delivered, 0),
        None if left else found.done_ms,
        found.throttle_ms,
        (found.waited_ms,),
    )
