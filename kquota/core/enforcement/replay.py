"""Open-loop replay of recorded usage: what the broker would have done, per sensor, in one pass.

`replay_many` walks many sensors in one call, so that a compiled caller pays nothing per sensor, and carries their state
from one part of the recording to the next; `replay_bytes` and `replay_requests` are the same for one sensor, whole.
Events of a sensor are in the order of the broker's clock.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from kquota.core.enforcement.arithmetic import LONG_MAX
from kquota.core.enforcement.check import PERCENT_PER_NANO, SENSOR_EXPIRY_MS, UNBOUNDED, UNLIMITED, record_and_check
from kquota.core.enforcement.compilable import compilable
from kquota.core.enforcement.generation import Generation, QuotaWindows
from kquota.core.enforcement.kernel import Kernel, Mode, kernel
from kquota.core.enforcement.kind import CONNECTION, FETCH, MUTATION, PRODUCE, REQUEST
from kquota.core.enforcement.mutation import mutate_permissive, mutate_strict
from kquota.core.enforcement.rate import Rate, clear, record
from kquota.core.enforcement.token_bucket import TokenBucket, burst, clear_tokens

Column: TypeAlias = Any
"""Integers or floats by index: a sequence, or an array where a caller has one."""

NEVER: Final = -1
"""The time of what did not happen."""


class Summary(NamedTuple):
    """What happened to one sensor. Times are those of the events (ms), NEVER where there is none."""

    throttled: int
    """Events with a delay greater than 0; of mutations, also those that were rejected."""
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
    """The highest observed rate, units per second (percent of one thread for REQUEST).

    For MUTATION, what was taken out of a full bucket over its N windows: the limit where the bucket is just empty.
    """
    peak_ms: int
    """The time at which it was first observed."""


_MOMENTS: Final = ("first_ms", "last_ms", "peak_ms")


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
    """Room for that many sensors to which nothing happened yet, in the kind of sequences that `column` makes."""
    return Summaries(
        *(
            column([NEVER if name in _MOMENTS else 0] * count, "float64" if name == "peak_rate" else "int64")
            for name in Summaries._fields
        )
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
    limits: Sequence[float] | None = None,
    rates: MutableSequence[float] | None = None,
    recorded: int = LONG_MAX,
) -> Summary:
    """Replays the events [start, stop) on top of what the statistic holds; `clear` it first for a new sensor.

    A sensor that recorded nothing for more than an hour starts anew, as on a broker; `recorded` is when it last did,
    LONG_MAX for never.

    Values are bytes (exact below 2^53) or ns. Where `checked` is given and false, the event is recorded only (network
    thread time). Where `delays` is given, it receives the raw delay of every event, 0 for one that is not checked;
    `rates` likewise the observed rate. Where `limits` is given, each event meets its own limit in place of `limit`.
    """
    cap_ms = rate.window_ms if kind in (REQUEST, CONNECTION) else UNBOUNDED
    scale = PERCENT_PER_NANO if kind == REQUEST else 1.0
    throttled = violated = total_ms = max_ms = 0
    first_ms = last_ms = peak_ms = NEVER
    peak_rate = 0.0
    bound = limit
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
            if rates is not None:
                rates[i] = 0.0
            continue
        if limits is not None:
            bound = limits[i]
        verdict = record_and_check(rate, value, now, bound, cap_ms)
        if verdict.rate > peak_rate:
            peak_rate = verdict.rate
            peak_ms = now
        if delays is not None:
            delays[i] = verdict.throttle_ms
        if rates is not None:
            rates[i] = verdict.rate
        if not verdict.violated:
            continue
        violated += 1
        delay = verdict.throttle_ms
        if delay <= 0:
            continue
        if kind in (FETCH, CONNECTION):
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
def replay_mutations(
    bucket: TokenBucket,
    state: MutableSequence[int],
    start: int,
    stop: int,
    times: Sequence[int],
    values: Sequence[float],
    limit: float,
    checked: Sequence[bool] | None,
    delays: MutableSequence[int] | None,
    limits: Sequence[float] | None,
    rates: MutableSequence[float] | None,
) -> Summary:
    """Replays the topics [start, stop) on top of what the bucket holds; values are partitions.

    Where `checked` is given and false, the request is permissive: charged without being rejected. `state[RECORDED]` is
    when something was charged last, LONG_MAX for never; rejections are no activity, so an hour of them clears the debt
    (see `MutationSensor`).
    """
    throttled = violated = total_ms = max_ms = 0
    first_ms = last_ms = peak_ms = NEVER
    peak_rate = 0.0
    bound = limit
    for i in range(start, stop):
        now = times[i]
        recorded = state[RECORDED]
        if recorded == LONG_MAX or now - recorded > SENSOR_EXPIRY_MS:
            clear_tokens(bucket)
            state[RECORDED] = now
        if limits is not None:
            bound = limits[i]
        if checked is not None and not checked[i]:
            outcome = mutate_permissive(bucket, now, values[i], bound)
        else:
            outcome = mutate_strict(bucket, now, values[i], bound)
        if outcome.accepted:
            state[RECORDED] = now
        full = burst(bucket, bound)
        observed = bound * (full - outcome.tokens) / full if full > 0.0 else 0.0
        if observed > peak_rate:
            peak_rate = observed
            peak_ms = now
        if delays is not None:
            delays[i] = outcome.throttle_ms
        if rates is not None:
            rates[i] = observed
        if not outcome.violated:
            continue
        violated += 1
        if outcome.throttle_ms <= 0 and outcome.accepted:
            continue
        throttled += 1
        if outcome.throttle_ms > 0:
            total_ms += outcome.throttle_ms
            if outcome.throttle_ms > max_ms:
                max_ms = outcome.throttle_ms
        if first_ms == NEVER:
            first_ms = now
        last_ms = now
    return Summary(throttled, violated, total_ms, max_ms, first_ms, last_ms, peak_rate, peak_ms)


RECORDED: Final = 0
"""Where a sensor's whole numbers hold the time of its last record; LONG_MAX in a new one."""
_UPDATED: Final = 1
_MARKS: Final = 2
_STARTS: Final = 6
_HEAD: Final = 0
_TOKENS: Final = 1
_SUMS: Final = 2


def state_size(slots: int) -> tuple[int, int]:
    """(whole numbers, floats) that the state of one sensor takes, for statistics of that many slots.

    A sensor is new while its state is all zero but for LONG_MAX in RECORDED.
    """
    return _STARTS + 2 * slots, _SUMS + slots


@compilable
def _load(rate: Rate, bucket: TokenBucket, ints: Sequence[int], floats: Sequence[float]) -> None:
    slots = len(rate.starts)
    for slot in range(slots):
        rate.starts[slot] = ints[_STARTS + slot]
        rate.lasts[slot] = ints[_STARTS + slots + slot]
        rate.sums[slot] = floats[_SUMS + slot]
    for mark in range(4):
        rate.marks[mark] = ints[_MARKS + mark]
    rate.head[0] = floats[_HEAD]
    bucket.updated[0] = ints[_UPDATED]
    bucket.tokens[0] = floats[_TOKENS]


@compilable
def _store(rate: Rate, bucket: TokenBucket, ints: MutableSequence[int], floats: MutableSequence[float]) -> None:
    slots = len(rate.starts)
    for slot in range(slots):
        ints[_STARTS + slot] = rate.starts[slot]
        ints[_STARTS + slots + slot] = rate.lasts[slot]
        floats[_SUMS + slot] = rate.sums[slot]
    for mark in range(4):
        ints[_MARKS + mark] = rate.marks[mark]
    floats[_HEAD] = rate.head[0]
    ints[_UPDATED] = bucket.updated[0]
    floats[_TOKENS] = bucket.tokens[0]


@compilable
def replay_many(
    rate: Rate,
    bucket: TokenBucket,
    sensors: Sequence[int],
    offsets: Sequence[int],
    times: Sequence[int],
    values: Sequence[float],
    kinds: Sequence[int],
    limits: Sequence[float],
    checked: Sequence[bool] | None,
    event_limits: Sequence[float] | None,
    delays: MutableSequence[int] | None,
    rates: MutableSequence[float] | None,
    ints: Sequence[MutableSequence[int]],
    floats: Sequence[MutableSequence[float]],
    out: Summaries,
) -> None:
    """Replays a part of the events of k sensors, and adds what happened to their summaries.

    The i-th of them owns the events [offsets[i], offsets[i+1]) of `times`, `values` and the optional columns, and is
    `sensors[i]` in the state tables `ints` and `floats` (rows of `state_size`) and in `out`. `offsets` has k+1 entries,
    `sensors`, `kinds` (PRODUCE, FETCH, REQUEST, MUTATION, CONNECTION) and `limits` (UNLIMITED for none) have k. `rate`
    and `bucket` give the windows and the generation; what they held is forgotten.
    """
    for i in range(len(sensors)):
        start = offsets[i]
        stop = offsets[i + 1]
        if start == stop:
            continue
        sensor = sensors[i]
        mine = ints[sensor]
        if mine[RECORDED] == LONG_MAX:
            clear(rate)
            clear_tokens(bucket)
        else:
            _load(rate, bucket, mine, floats[sensor])
        if kinds[i] == MUTATION:
            part = replay_mutations(
                bucket, mine, start, stop, times, values, limits[i], checked, delays, event_limits, rates
            )
        else:
            part = replay_sensor(
                rate,
                start,
                stop,
                times,
                values,
                kinds[i],
                limits[i],
                checked,
                delays,
                event_limits,
                rates,
                mine[RECORDED],
            )
            mine[RECORDED] = times[stop - 1]
        _store(rate, bucket, mine, floats[sensor])
        out.throttled[sensor] += part.throttled
        out.violated[sensor] += part.violated
        out.total_ms[sensor] += part.total_ms
        if part.max_ms > out.max_ms[sensor]:
            out.max_ms[sensor] = part.max_ms
        if part.throttled > 0:
            if out.first_ms[sensor] == NEVER:
                out.first_ms[sensor] = part.first_ms
            out.last_ms[sensor] = part.last_ms
        if part.peak_rate > out.peak_rate[sensor]:
            out.peak_rate[sensor] = part.peak_rate
            out.peak_ms[sensor] = part.peak_ms


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
