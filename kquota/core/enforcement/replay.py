"""Open-loop replay of recorded usage: what the broker would have done, per counter, in one pass.

`replay_many` walks many counters in one call, so that a compiled caller pays nothing per counter; their state stays in
the table of the counters, from one part of the recording to the next. Events of a counter are in the order of the
broker's clock.
"""

from collections.abc import Callable, MutableSequence, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from kquota.core.enforcement.broker import charged, charged_topic, noted
from kquota.core.enforcement.compilable import compilable, inlined
from kquota.core.enforcement.counter import Counters, awake, counter_of, load, store
from kquota.core.enforcement.kind import MUTATION, PERMISSIVE
from kquota.core.enforcement.token_bucket import burst

NEVER: Final = -1
"""The time of what did not happen."""


class Summaries(NamedTuple):
    """What happened to k sensors, as columns of length k: int64, and float64 for `peak_rate`.

    Times come from the events (ms), NEVER where there is none.
    """

    throttled: MutableSequence[int]
    """Events with a delay greater than 0; of mutations, also those that were rejected."""
    violated: MutableSequence[int]
    """Events over the limit; a violation can have a delay that rounds to 0 or wraps below it."""
    total_ms: MutableSequence[int]
    """The sum of the delays greater than 0."""
    max_ms: MutableSequence[int]
    first_ms: MutableSequence[int]
    """The time of the first throttled event."""
    last_ms: MutableSequence[int]
    """The time of the last throttled event."""
    peak_rate: MutableSequence[float]
    """The highest observed rate, units per second (percent of one thread for REQUEST).

    For MUTATION, what was taken out of a full bucket over its N windows: the limit where the bucket is just empty.
    """
    peak_ms: MutableSequence[int]
    """The time at which it was first observed."""


_MOMENTS: Final = ("first_ms", "last_ms", "peak_ms")


def new_summaries(count: int, column: Callable[[Sequence[Any], str], Any]) -> Summaries:
    """Room for that many sensors to which nothing happened yet, in the kind of sequences that `column` makes."""
    return Summaries(
        *(
            column([NEVER if name in _MOMENTS else 0] * count, "float64" if name == "peak_rate" else "int64")
            for name in Summaries._fields
        )
    )


class Events(NamedTuple):
    """The events of k counters, as columns.

    The i-th counter is row `counters[i]` of the table, of kind `kinds[i]` and limited by `limits[i]` (UNLIMITED for
    none). It owns the events [offsets[i], offsets[i+1]); `offsets` has k+1 entries.
    """

    counters: Sequence[int]
    kinds: Sequence[int]
    limits: Sequence[float]
    offsets: Sequence[int]
    times: Sequence[int]
    """ms"""
    values: Sequence[float]
    """Bytes (exact below 2^53), ns, connections or partitions."""


Tally: TypeAlias = tuple[int, int, int, int, int, int, float, int]
"""A row of the summaries while events are added to it."""


@inlined
def tallied(tally: Tally, now: int, delay: int, rate: float, violated: bool, hit: bool) -> Tally:
    """The tally with one more checked event; `hit` is whether it was throttled."""
    throttled, violations, total_ms, max_ms, first_ms, last_ms, peak_rate, peak_ms = tally
    if rate > peak_rate:
        peak_rate = rate
        peak_ms = now
    if violated:
        violations += 1
        if hit:
            throttled += 1
            if first_ms == NEVER:
                first_ms = now
            last_ms = now
            if delay > 0:
                total_ms += delay
                if delay > max_ms:
                    max_ms = delay
    return throttled, violations, total_ms, max_ms, first_ms, last_ms, peak_rate, peak_ms


@compilable
def replay_many(
    counters: Counters,
    events: Events,
    out: Summaries,
    checked: Sequence[bool],
    event_limits: Sequence[float],
    delays: MutableSequence[int],
    rates: MutableSequence[float],
    hits: MutableSequence[bool],
) -> None:
    """Charges the events to their counters, and adds what happened to the rows of the counters in `out`.

    The other columns have an entry for each event. `checked` is false for an event that is recorded only (network
    thread time) and for a topic of a permissive request. `event_limits` stand in place of the counters' limits. Either
    is empty where no event needs it: None would be another type, and the loop compiled once more.
    `delays` receives the raw delays, 0 for an event that is not checked; `rates` the observed rates; `hits` whether
    `Summaries.throttled` counts the event.
    """
    times, values = events.times, events.values
    some_unchecked, has_limits = len(checked) > 0, len(event_limits) > 0
    for i in range(len(events.counters)):
        row = events.counters[i]
        kind = int(events.kinds[i])
        bound = events.limits[i]
        start, stop = events.offsets[i], events.offsets[i + 1]
        counter = counter_of(counters, row, kind)
        state = load(counter)
        tally = (
            out.throttled[row],
            out.violated[row],
            out.total_ms[row],
            out.max_ms[row],
            out.first_ms[row],
            out.last_ms[row],
            out.peak_rate[row],
            out.peak_ms[row],
        )
        # Two loops: looking for a bucket at every event costs the rates a tenth and more.
        if kind >= MUTATION:
            for j in range(start, stop):
                now, value = times[j], values[j]
                how = PERMISSIVE if some_unchecked and not checked[j] else kind
                if has_limits:
                    bound = event_limits[j]
                state = awake(counter, state, now)
                delay, tokens, violated, state = charged_topic(counter, state, how, now, value, bound)
                full = burst(counter, bound)
                rate = bound * (full - tokens) / full if full > 0.0 else 0.0
                hit = delay > 0 or (violated and how == MUTATION)  # a rejection may come without a delay
                delays[j], rates[j], hits[j] = delay, rate, hit
                tally = tallied(tally, now, delay, rate, violated, hit)
        else:
            for j in range(start, stop):
                now, value = times[j], values[j]
                state = awake(counter, state, now)
                if some_unchecked and not checked[j]:
                    state = noted(counter, state, kind, now, value)
                    delays[j], rates[j], hits[j] = 0, 0.0, False
                    continue
                if has_limits:
                    bound = event_limits[j]
                delay, rate, _, violated, state = charged(counter, state, kind, now, value, bound)
                delays[j], rates[j], hits[j] = delay, rate, delay > 0
                tally = tallied(tally, now, delay, rate, violated, delay > 0)
        store(counter, state)
        out.throttled[row], out.violated[row], out.total_ms[row], out.max_ms[row] = tally[:4]
        out.first_ms[row], out.last_ms[row], out.peak_rate[row], out.peak_ms[row] = tally[4:]
