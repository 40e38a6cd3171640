"""Single requests under two quotas, and one counter with all of its events, as the laws and the vectors have them."""

from typing import Any, TypeAlias

from kquota.core.enforcement import (
    UNLIMITED,
    FetchSensor,
    Generation,
    Kernel,
    Mode,
    ProduceSensor,
    QuotaWindows,
    RequestSensor,
    Throttle,
    kernel,
)
from kquota.core.enforcement.kind import FETCH, PRODUCE
from kquota.core.enforcement.replay import Events, Summaries, Summary
from kquota.core.enforcement.sensors import RateSensor


def produce_with_request(
    bandwidth: ProduceSensor, requests: RequestSensor, now: int, size: int, nanos: int, acks: int
) -> Throttle:
    """A produce request under both quotas. The two sensors run on the same kernel."""
    return _charge_request(PRODUCE, bandwidth, requests, now, size, nanos, timed=acks != 0)


def fetch_with_request(bandwidth: FetchSensor, requests: RequestSensor, now: int, size: int, nanos: int) -> Throttle:
    """A consumer's fetch under both quotas. The two sensors run on the same kernel."""
    return _charge_request(FETCH, bandwidth, requests, now, size, nanos, timed=True)


def _charge_request(
    kind: int, bandwidth: RateSensor, requests: RateSensor, now: int, size: int, nanos: int, *, timed: bool
) -> Throttle:
    counters = bandwidth.counter, bandwidth.bound, requests.counter, requests.bound
    return bandwidth.kernel.charge_request(kind, *counters, now, float(size), float(nanos), True, timed)[2]


def summary_of(summaries: Summaries, row: int) -> Summary:
    """One of them, in Python's own numbers."""
    whole = [int(column[row]) for column in summaries]
    return Summary(*whole)._replace(peak_rate=float(summaries.peak_rate[row]))


Column: TypeAlias = Any
"""Integers or floats by index: a sequence, or an array where a caller has one."""


def replay_counter(
    kind: int,
    times: Column,
    values: Column,
    limit: float | None,
    *,
    windows: QuotaWindows,
    generation: Generation,
    checked: Column | None = None,
    event_limits: Column | None = None,
    delays: Column | None = None,
    rates: Column | None = None,
    using: Kernel | None = None,
) -> Summary:
    """Replays one counter; a limit of None is none at all, and `event_limits` stand in place of `limit`.

    `delays` and `rates` (of the kernel's own kind: lists, or arrays) receive the raw delay and the observed rate of
    every event.
    """
    chosen = kernel(Mode.AUTO) if using is None else using
    out = chosen.new_summaries(1)
    events = Events(
        chosen.column([0], "int64"),
        chosen.column([kind], "int8"),
        chosen.column([UNLIMITED if limit is None else float(limit)], "float64"),
        chosen.column([0, len(times)], "int64"),
        chosen.column(times, "int64"),
        chosen.column(values, "float64"),
    )
    chosen.replay_many(
        chosen.new_counters(1, windows, generation),
        events,
        out,
        None if checked is None else chosen.column(checked, "bool"),
        None if event_limits is None else chosen.column(event_limits, "float64"),
        delays,
        rates,
    )
    return summary_of(out, 0)
