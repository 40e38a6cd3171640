"""Sensors with their limits: the enforcement path as objects, for sequences of events and limits that change.

Sources: `ClientQuotaManager` and its subclasses, `StrictControllerMutationQuota`, `PermissiveControllerMutationQuota`
and `ControllerMutationQuotaManager`; KIP-13, 55, 124, 219, 599.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kquota.core.enforcement.arithmetic import long_to_int, wrap_long
from kquota.core.enforcement.broker import UNLIMITED, mutation_delay
from kquota.core.enforcement.generation import Generation, QuotaWindows
from kquota.core.enforcement.kernel import Kernel, Mode, kernel
from kquota.core.enforcement.kind import MUTATION, PERMISSIVE
from kquota.core.quotas.quota import Value


class LimitedSensor:
    """A counter with a limit; a limit of None is none at all, and recording goes on.

    A changed limit applies from the next event on; the history stays. By default the sensor runs plain: it needs no
    numba, whose import takes as long as thousands of events. Unless `expires` is false, it starts anew when it recorded
    nothing for more than an hour. That shows in token buckets, and in windows that add up to more. (A broker looks
    every 30 s; here it happens on time.)
    """

    def __init__(
        self,
        limit: Value | None = None,
        *,
        windows: QuotaWindows | None = None,
        generation: Generation = Generation.N_PLUS_1_BY_LAST,
        using: Kernel | None = None,
        expires: bool = True,
    ) -> None:
        self.limit = limit
        self.kernel = using if using is not None else kernel(Mode.PLAIN)
        self.windows = windows if windows is not None else QuotaWindows()
        self.counter = self.kernel.new_counter(self.windows, generation, expires=expires)

    @property
    def limit(self) -> Value | None:
        """What applies, in units per second."""
        return self._limit

    @limit.setter
    def limit(self, limit: Value | None) -> None:
        self._limit = limit
        self.bound = UNLIMITED if limit is None else float(limit)
        """The limit as the statistics compare it: `Long.MAX_VALUE` as a double where there is none."""


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
    """The throttle time of this quota alone, as 32 bits of the answer; only a time above 0 mutes the client."""


class MutationSensor(LimitedSensor):
    """Partition mutations (KIP-599); the limit is in partitions per second, the windows are the controller's.

    Strict (CreateTopics v6, CreatePartitions v3, DeleteTopics v5 and later): a topic is rejected, and not charged,
    while tokens are owed; what is accepted is charged in full. Permissive (older versions): everything is accepted and
    charged, and the client is delayed. Rejections are no activity, so an hour without an accepted topic clears any
    debt: the bucket is full again.
    """

    def request(self, now: int, topics: Iterable[int], *, strict: bool, waited_ms: int = 0) -> MutationResponse:
        """A request at `now` (ms) with the number of partitions of each topic, answered `waited_ms` later."""
        self.kernel.wake(self.counter, now)
        kind = MUTATION if strict else PERMISSIVE
        outcomes, left = [], 0
        for partitions in topics:
            verdict = self.kernel.charge_counter(self.counter, kind, now, float(partitions), self.bound)
            delay_ms = 0
            if verdict.violated:
                delay_ms = mutation_delay(verdict.rate, self.bound)
                # Long.MAX_VALUE, from a limit of 0, overflows when the clock was set back; a limit below 0 overflows
                # downwards. Releases with this class in Java (4.3 is one) answer 0 in place of a value that wrapped
                # below it: the same to a client, as only a delay greater than 0 mutes.
                left = max(wrap_long(delay_ms - waited_ms), 0)
            accepted = not (strict and verdict.violated)
            outcomes.append(Mutation(accepted, verdict.violated, verdict.throttle_ms, delay_ms, verdict.rate))
        return MutationResponse(tuple(outcomes), long_to_int(left))

    def measure(self, now: int) -> float:
        """The metric `tokens` at `now` (ms). Reading it refills the bucket at the limit of now, as on a broker."""
        return self.kernel.measure_tokens(self.counter, now, self.bound)
