"""The closed loop of an audit, as `--closed-loop` shows it: what its predictions hold for most probable."""

from collections.abc import Mapping
from dataclasses import dataclass

from kquota.core.findings.prediction import CounterName, Prediction

Who = tuple[str, str]
"""(user, client-id)."""


@dataclass(frozen=True, slots=True)
class Closed:
    """What the clients of a counter meet in the closed loop."""

    throttled_events: int = 0
    throttle_time_ms: int = 0
    throttle_time_max_ms: int = 0


@dataclass(frozen=True)
class ClosedLoop:
    """What came of a recording in the closed loop."""

    counters: Mapping[CounterName, Closed]
    """The counters whose clients could be simulated; of others only the open loop is known."""
    delays: Mapping[Who, int | None]
    """How many ms later the last request of a client comes than it was recorded (less than 0: earlier).

    None for a client whose fetches never get through. Only clients that share no counter and are simulated.
    """

    @property
    def throttle_time_ms(self) -> int:
        """The throttle time of all counters."""
        return sum(counter.throttle_time_ms for counter in self.counters.values())


def closed_loop(predictions: Mapping[CounterName, Prediction], alone: Mapping[CounterName, Who]) -> ClosedLoop:
    """The closed loop by the most probable predictions; `alone` are the clients that have a counter to themselves."""
    counters: dict[CounterName, Closed] = {}
    delays: dict[Who, int | None] = {}
    for name, prediction in predictions.items():
        sums = (prediction.throttled_requests, prediction.throttle_time_ms, prediction.throttle_time_max_ms)
        known = [interval.estimate for interval in sums if interval.estimate is not None]
        if len(known) < len(sums):
            continue
        counters[name] = Closed(*map(int, known))
        who = alone.get(name)
        if who is None or prediction.recorded_ms is None:
            continue
        done = prediction.done_ms.estimate
        delay = None if done is None else int(done) - prediction.recorded_ms
        before = delays.get(who, delay)
        delays[who] = None if delay is None or before is None else max(delay, before)
    return ClosedLoop(counters, delays)
