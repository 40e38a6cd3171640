"""Open-loop replay of recorded usage: what the broker would have done, per sensor, in one pass.

`replay_many` walks many sensors in one call, so that a compiled caller pays nothing per sensor; `replay_bytes` and
`replay_requests` are the same for one. Events of a sensor are in the order of the broker's clock.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from kquota.core.enforcement.arithmetic import LONG_MAX
from kquota.core.enforcement.check import PERCENT_PER_NANO, SENSOR_EXPIRY_MS, UNBOUNDED, UNLIMITED, record_and_check
from kquota.core.enforcement.generation import Generation, QuotaWindows
from kquota.core.enforcement.kernel import Kernel, Mode, compilable, kernel
from kquota.core.enforcement.rate import Rate, clear, record

PRODUCE: Final = 0
"""The kind of a sensor of produced bytes."""
FETCH: Final = 1
"""The kind of a sensor of fetched bytes: a delayed fetch is taken back."""
REQUEST: Final = 2
"""The kind of a sensor of thread time, in ns: a delay is at most one window."""

Column: TypeAlias = Any
"""Integers or floats by index: a sequence, or an array where a caller has one."""

NEVER: Final = -1
"""The time of what did not happen."""


class Summary(NamedTuple):
    """What happened to one sensor. Times are those of the events (ms), NEVER where there is none."""

    throttled: int
    """Events with a delay greater than 0."""
    violated: int
    """Events over the limit; a violation can have a delay that rounds to 0 or wraps below it."""
    total_ms: int
    """The sum of the delays greater than 0."""
    max_ms: int
    first_ms: int
    """The time of the first throttled event."""
    last_ms: int
    """The time of the last throttled event."""
    peak_rate: float
    """The highest observed rate, units per second (percent of one thread for REQUEST)."""
    peak_ms: int
    """The time at which it was first observed."""


class Summaries(NamedTuple):
    """The summaries of k sensors as columns of length k: int64, and float64 for `peak_rate`."""

    throttled: MutableSequence[int]
    violated: MutableSequence[int]
    total_ms: MutableSequence[int]
    max_ms: MutableSequence[int]
    first_ms: MutableSequence[int]
    last_ms: MutableSequence[int]
    peak_rate: MutableSequence[float]
    peak_ms: MutableSequence[int]


def new_summaries(count: int, column: Callable[[Sequence[Any], str], Any]) -> Summaries:
    """Room for that many sensors in the kind of sequences that `column` makes."""
    return Summaries(
        *(column([0] * count, "float64" if name == "peak_rate" else "int64") for name in Summaries._fields)
    )


@compilable
def replay_sensor(
    rate: Rate,
    start: int,
    stop: int,
    times: Sequence[int],
    values: Sequence[float],
    kind: int,
    limit: float,
    checked: Sequence[bool] | None,
    delays: MutableSequence[int] | None,
) -> Summary:
    """Replays the events [start, stop) on top of what the statistic holds; `clear` it first for a new sensor.

    A sensor that recorded nothing for more than an hour starts anew, as on a broker.

    Values are bytes (exact below 2^53) or ns. Where `checked` is given and false, the event is recorded only (network
    thread time). Where `delays` is given, it receives the raw delay of every event; 0 for one that is not checked.
    """
    cap_ms = rate.window_ms if kind == REQUEST else UNBOUNDED
    scale = PERCENT_PER_NANO if kind == REQUEST else 1.0
    throttled = 0
    violated = 0
    total_ms = 0
    max_ms = 0
    first_ms = NEVER
    last_ms = NEVER
    peak_rate = 0.0
    peak_ms = NEVER
    recorded = LONG_MAX
    for i in range(start, stop):
        now = times[i]
        value = values[i] * scale
        if now > recorded and now - recorded > SENSOR_EXPIRY_MS:
            clear(rate)
        recorded = now
        if checked is not None and not checked[i]:
            record(rate, value, now)
            if delays is not None:
                delays[i] = 0
            continue
        verdict = record_and_check(rate, value, now, limit, cap_ms)
        if verdict.rate > peak_rate:
            peak_rate = verdict.rate
            peak_ms = now
        if delays is not None:
            delays[i] = verdict.throttle_ms
        if not verdict.violated:
            continue
        violated += 1
        delay = verdict.throttle_ms
        if delay <= 0:
            continue
        if kind == FETCH:
            record(rate, -value, now)
        throttled += 1
        total_ms += delay
        if delay > max_ms:
            max_ms = delay
        if first_ms == NEVER:
            first_ms = now
        last_ms = now
    return Summary(throttled, violated, total_ms, max_ms, first_ms, last_ms, peak_rate, peak_ms)


@compilable
def replay_many(
    rate: Rate,
    offsets: Sequence[int],
    times: Sequence[int],
    values: Sequence[float],
    kinds: Sequence[int],
    limits: Sequence[float],
    checked: Sequence[bool] | None,
    delays: MutableSequence[int] | None,
    out: Summaries,
) -> None:
    """Replays k sensors: sensor s owns the events [offsets[s], offsets[s+1]) of `times`, `values`, `checked`, `delays`.

    `offsets` has k+1 entries, `kinds` (PRODUCE, FETCH, REQUEST), `limits` (UNLIMITED for none) and the columns of `out`
    have k. `rate` gives the windows and the generation for all of them; what it held is forgotten.
    """
    for sensor in range(len(limits)):
        clear(rate)
        summary = replay_sensor(
            rate, offsets[sensor], offsets[sensor + 1], times, values, kinds[sensor], limits[sensor], checked, delays
        )
        out.throttled[sensor] = summary.throttled
        out.violated[sensor] = summary.violated
        out.total_ms[sensor] = summary.total_ms
        out.max_ms[sensor] = summary.max_ms
        out.first_ms[sensor] = summary.first_ms
        out.last_ms[sensor] = summary.last_ms
        out.peak_rate[sensor] = summary.peak_rate
        out.peak_ms[sensor] = summary.peak_ms


def replay_bytes(
    times: Column,
    values: Column,
    limit: float | None,
    *,
    windows: QuotaWindows,
    generation: Generation,
    unrecord: bool = False,
    delays: Column | None = None,
    using: Kernel | None = None,
) -> Summary:
    """Replays one sensor of bytes: produced ones, or fetched ones with `unrecord`; a limit of None is none at all.

    `delays` (of the kernel's own kind: a list, or an int64 array) receives the raw delay of every event.
    """
    kind = FETCH if unrecord else PRODUCE
    return _replay_one(times, values, kind, limit, windows, generation, None, delays, using)


def replay_requests(
    times: Column,
    nanos: Column,
    limit: float | None,
    *,
    windows: QuotaWindows,
    generation: Generation,
    checked: Column | None = None,
    delays: Column | None = None,
    using: Kernel | None = None,
) -> Summary:
    """Replays one sensor of thread time; `checked` is false for network-thread time. The limit is in percent."""
    return _replay_one(times, nanos, REQUEST, limit, windows, generation, checked, delays, using)


def _replay_one(
    times: Column,
    values: Column,
    kind: int,
    limit: float | None,
    windows: QuotaWindows,
    generation: Generation,
    checked: Column | None,
    delays: Column | None,
    using: Kernel | None,
) -> Summary:
    chosen = kernel(Mode.AUTO) if using is None else using
    return chosen.replay_sensor(
        chosen.new_rate(windows, generation),
        0,
        len(times),
        chosen.column(times, "int64"),
        chosen.column(values, "float64"),
        kind,
        UNLIMITED if limit is None else float(limit),
        None if checked is None else chosen.column(checked, "bool"),
        delays,
    )
