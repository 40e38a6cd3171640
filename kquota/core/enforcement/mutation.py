"""The controller mutation quota: topics and partitions created or deleted, charged per topic to a token bucket.

Strict (CreateTopics v6, CreatePartitions v3, DeleteTopics v5 and later): a topic is rejected, and not charged, while
tokens are owed; what is accepted is charged in full. Permissive (older versions): everything is accepted and charged,
and the client is delayed. Sources: `StrictControllerMutationQuota`, `PermissiveControllerMutationQuota`,
`ControllerMutationQuotaManager`; KIP-599. Who is charged is decided by a `ClientQuotaManager` of `MutationSensor`s.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kquota.core.enforcement.arithmetic import long_to_int, wrap_long
from kquota.core.enforcement.broker import mutation_delay
from kquota.core.enforcement.kind import MUTATION, PERMISSIVE
from kquota.core.enforcement.sensors import LimitedSensor


class Mutation(NamedTuple):
    """What came of one topic of a request."""

    accepted: bool
    violated: bool
    """Whether tokens were owed; the delay may still round to 0."""
    throttle_ms: int
    """The delay as the raw 32-bit value of an error THROTTLING_QUOTA_EXCEEDED; 0 when nothing was owed."""
    delay_ms: int
    """The same in 64 bits, from which the delay of the response is taken."""
    tokens: float
    """What is left at the time of the event; negative for what is owed."""


class MutationResponse(NamedTuple):
    """What came of one request."""

    topics: tuple[Mutation, ...]
    """One for each topic, in the order of the request."""
    throttle_ms: int
    """What the client is told, from this quota alone; raw 32 bits, it is muted only when greater than 0."""


class MutationSensor(LimitedSensor):
    """Partition mutations; the limit is in partitions per second, and a limit of None is none at all.

    `windows` are the controller's (`controller.quota.window.*`). Unless `expires` is false, the sensor starts anew,
    with a full bucket, when it recorded nothing for more than an hour: rejections do not count as activity, so an hour
    without an accepted topic clears any debt. (A broker looks every 30 s; here it happens on time.)
    """

    def request(self, now: int, topics: Iterable[int], *, strict: bool, waited_ms: int = 0) -> MutationResponse:
        """A request at `now` (ms) with the number of partitions of each topic, answered `waited_ms` later."""
        quota = self.quota(now, strict=strict)
        outcomes = tuple(quota.record(now, partitions) for partitions in topics)
        return MutationResponse(outcomes, quota.throttle_time(now + waited_ms))

    def quota(self, now: int, *, strict: bool) -> MutationQuota:
        """`newQuotaFor`: what a request that arrives at `now` is measured with."""
        self.kernel.wake(self.counter, now)
        return MutationQuota(self, strict=strict)

    def record(self, now: int, partitions: int, *, strict: bool) -> Mutation:
        """One topic, accepted or rejected at `now` (ms)."""
        kind = MUTATION if strict else PERMISSIVE
        verdict = self.kernel.charge_counter(self.counter, kind, now, float(partitions), self.bound)
        delay_ms = mutation_delay(verdict.rate, self.bound) if verdict.violated else 0
        accepted = not (strict and verdict.violated)
        return Mutation(accepted, verdict.violated, verdict.throttle_ms, delay_ms, verdict.rate)

    def measure(self, now: int) -> float:
        """The metric `tokens` at `now` (ms). Reading it refills the bucket at the limit of now, as on a broker."""
        return self.kernel.measure_tokens(self.counter, now, self.bound)


class MutationQuota:
    """`ControllerMutationQuota`: the quota as one request meets it, which remembers the last delay."""

    def __init__(self, sensor: MutationSensor, *, strict: bool) -> None:
        self.sensor = sensor
        self.strict = strict
        self._delay_ms = 0
        self._delayed_at: int | None = None

    def record(self, now: int, partitions: int) -> Mutation:
        """The next topic of the request, with that many partitions created, added or deleted."""
        outcome = self.sensor.record(now, partitions, strict=self.strict)
        if outcome.violated:
            self._delay_ms = outcome.delay_ms
            self._delayed_at = now
        return outcome

    def throttle_time(self, now: int) -> int:
        """The delay in a response at `now` (ms): what is left of the last one; a raw 32-bit value.

        Releases with this class in Java (4.3 is one) answer 0 in place of a value that wrapped below it: the same to a
        client, as only a delay greater than 0 mutes.
        """
        if self._delayed_at is None:
            return 0
        # Long.MAX_VALUE, from a limit of 0, overflows when the clock was set back; a limit below 0 overflows downwards.
        left = wrap_long(self._delay_ms - (now - self._delayed_at))
        return long_to_int(left) if left > 0 else 0
