"""The bulk replay is the sensors, event by event, for one sensor and for many."""

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota.core.enforcement import UNLIMITED, Generation, Kernel, Kind, QuotaWindows, Verdict, kernel
from kquota.core.enforcement.kind import FETCH, MUTATION, PRODUCE, REQUEST
from kquota.core.enforcement.replay import NEVER, Events, Summaries
from kquota.core.enforcement.sensors import MutationSensor
from kquota.core.quotas.quota import Value
from tests.core.enforcement import strategies as given_
from tests.support.compiled import modes
from tests.support.enforcement import FetchSensor, ProduceSensor, RequestSensor, Summary, replay_counter

KERNELS = [kernel(mode) for mode in modes()]
Sensor = tuple[int, Value | None, list[tuple[int, int, bool]]]
"""(kind, limit, events of (time, bytes or ns, checked))"""


@st.composite
def sensors(draw: st.DrawFn) -> Sensor:
    kind = draw(st.sampled_from([PRODUCE, FETCH, REQUEST]))
    limit = draw(given_.request_limits if kind == REQUEST else given_.byte_limits)
    gaps = draw(st.lists(given_.gaps, max_size=40))
    values = given_.nanos if kind == REQUEST else given_.sizes
    events = [(now, draw(values), draw(st.booleans())) for now in given_.times(gaps)]
    return kind, limit, events


@st.composite
def mutations(draw: st.DrawFn) -> Sensor:
    """Topics of strict (checked) and permissive requests; the limit is one that clusters accept."""
    gaps = draw(st.lists(given_.gaps, max_size=40))
    events = [(now, draw(st.integers(0, 50)), draw(st.booleans())) for now in given_.times(gaps)]
    return MUTATION, draw(st.sampled_from([0.5, 1, 3.7, 20])), events


def mutations_one_by_one(sensor: Sensor, windows: QuotaWindows, *, all_checked: bool) -> tuple[Summary, list[int]]:
    """The summary and the raw delays by the object, a request a topic."""
    _, limit, events = sensor
    assert limit is not None
    counter = MutationSensor(limit, windows=windows)
    full = windows.samples * windows.window_seconds * float(limit)
    outcomes = []
    for now, partitions, strict in events:
        outcomes.append((now, counter.request(now, [partitions], strict=strict or all_checked).topics[0]))
    hit = [(now, mutation) for now, mutation in outcomes if not mutation.accepted or mutation.throttle_ms > 0]
    rates = [(limit * (full - mutation.tokens) / full, now) for now, mutation in outcomes]
    peak = max((rate for rate, _ in rates), default=0.0)
    delays = [mutation.throttle_ms for _, mutation in outcomes]
    summary = Summary(
        throttled=len(hit),
        violated=sum(mutation.violated for _, mutation in outcomes),
        total_ms=sum(max(delay, 0) for delay in delays),
        max_ms=max([0, *delays]),
        first_ms=hit[0][0] if hit else NEVER,
        last_ms=hit[-1][0] if hit else NEVER,
        peak_rate=max(peak, 0.0),
        peak_ms=next((now for rate, now in rates if rate == peak and peak > 0), NEVER),
    )
    return summary, delays


def event_by_event(
    sensor: Sensor, windows: QuotaWindows, generation: Generation, *, all_checked: bool
) -> tuple[Summary, list[int]]:
    """The summary and the raw delays by the objects."""
    kind, limit, events = sensor
    if kind == MUTATION:
        return mutations_one_by_one(sensor, windows, all_checked=all_checked)
    verdicts: list[tuple[int, Verdict]] = []
    delays: list[int] = []
    classes: dict[int, type[ProduceSensor | FetchSensor | RequestSensor]] = {
        PRODUCE: ProduceSensor,
        FETCH: FetchSensor,
        REQUEST: RequestSensor,
    }
    counter = classes[kind](limit, windows=windows, generation=generation)
    for now, value, checked in events:
        if not checked and not all_checked:
            counter.kernel.note(counter.counter, kind, now, value)
            delays.append(0)
            continue
        match counter:
            case ProduceSensor():
                verdict = counter.produce(now, value)
            case FetchSensor():
                verdict = counter.fetch(now, value)
            case RequestSensor():
                verdict = counter.request(now, value)
            case _:
                raise AssertionError
        verdicts.append((now, verdict))
        delays.append(verdict.throttle_ms)
    throttled = [(now, verdict.throttle_ms) for now, verdict in verdicts if verdict.throttle_ms > 0]
    peak = max((verdict.rate for _, verdict in verdicts), default=0.0)
    summary = Summary(
        throttled=len(throttled),
        violated=sum(verdict.violated for _, verdict in verdicts),
        total_ms=sum(delay for _, delay in throttled),
        max_ms=max((delay for _, delay in throttled), default=0),
        first_ms=throttled[0][0] if throttled else NEVER,
        last_ms=throttled[-1][0] if throttled else NEVER,
        peak_rate=peak,
        peak_ms=next((now for now, verdict in verdicts if verdict.rate == peak and peak > 0), NEVER),
    )
    return summary, delays


def in_parts(
    using: Kernel,
    many: list[Sensor],
    cut: int,
    windows: QuotaWindows,
    generation: Generation,
    *,
    all_checked: bool,
    by_event: bool,
) -> tuple[Summaries, list[list[int]], list[list[bool]]]:
    """Of two calls: each sensor's first `cut` events, then the rest of all in turned order.

    The summaries, the delays, and which events were hit.
    """
    counters = using.new_counters(len(many), windows, generation)
    out = using.new_summaries(len(many))
    delays: list[list[int]] = [[] for _ in many]
    hits: list[list[bool]] = [[] for _ in many]
    for part, order in ((slice(0, cut), range(len(many))), (slice(cut, None), reversed(range(len(many))))):
        sensors_ = list(order)
        events = [many[sensor][2][part] for sensor in sensors_]
        limits = [UNLIMITED if (limit := many[sensor][1]) is None else float(limit) for sensor in sensors_]
        offsets = [0, *itertools.accumulate(len(mine) for mine in events)]
        flat = [event for mine in events for event in mine]
        each = [limit for limit, mine in zip(limits, events, strict=True) for _ in mine]
        found, rates = using.column([0] * len(flat), "int64"), using.column([0.0] * len(flat), "float64")
        hit = using.column([True] * len(flat), "bool")
        charged = Events(
            using.column(sensors_, "int64"),
            using.column([many[sensor][0] for sensor in sensors_], "int8"),
            using.column([0.0] * len(limits) if by_event else limits, "float64"),
            using.column(offsets, "int64"),
            using.column([now for now, _, _ in flat], "int64"),
            using.column([value for _, value, _ in flat], "float64"),
        )
        checked = using.column([] if all_checked else [checked for _, _, checked in flat], "bool")
        bounds = using.column(each if by_event else [], "float64")
        using.replay_many(counters, charged, out, checked, bounds, found, rates, hit)
        assert max(rates, default=0.0) <= max(out.peak_rate, default=0.0)
        for sensor, begin, end in zip(sensors_, offsets, offsets[1:], strict=False):
            delays[sensor] += list(found[begin:end])
            hits[sensor] += list(hit[begin:end])
    return out, delays, hits


@pytest.mark.parametrize("using", KERNELS, ids=lambda using: using.mode.value)
@pytest.mark.parametrize("all_checked", [True, False])
@settings(deadline=None)
@given(
    st.lists(sensors() | mutations(), max_size=6), given_.windows, given_.generations, st.integers(0, 40), st.booleans()
)
def test_many_sensors_at_once_and_in_parts(
    using: Kernel,
    all_checked: bool,
    many: list[Sensor],
    windows: QuotaWindows,
    generation: Generation,
    cut: int,
    by_event: bool,
) -> None:
    """Wherever the recording is cut; with a limit for each sensor or for each event."""
    expected = [event_by_event(sensor, windows, generation, all_checked=all_checked) for sensor in many]
    out, delays, hits = in_parts(using, many, cut, windows, generation, all_checked=all_checked, by_event=by_event)
    assert [Summary(*row) for row in zip(*out, strict=True)] == [summary for summary, _ in expected]
    assert delays == [row for _, row in expected]
    times = [
        [now for (now, *_), hit in zip(sensor[2], row, strict=True) if hit]
        for sensor, row in zip(many, hits, strict=True)
    ]
    assert [(len(row), [*row, NEVER][0], [NEVER, *row][-1]) for row in times] == [
        (summary.throttled, summary.first_ms, summary.last_ms) for summary, _ in expected
    ]


@pytest.mark.parametrize("using", KERNELS, ids=lambda using: using.mode.value)
@settings(deadline=None)
@given(sensors(), given_.windows, given_.generations)
def test_one_sensor(using: Kernel, sensor: Sensor, windows: QuotaWindows, generation: Generation) -> None:
    kind, limit, events = sensor
    times, values = [now for now, _, _ in events], [value for _, value, _ in events]
    checked = [checked for _, _, checked in events]
    delays = using.column([0] * len(events), "int64")
    settings_: dict[str, Any] = {"windows": windows, "generation": generation, "delays": delays, "using": using}
    got = replay_counter(Kind(kind), times, values, limit, checked=checked if kind == REQUEST else None, **settings_)
    expected = event_by_event(sensor, windows, generation, all_checked=kind != REQUEST)
    assert (got, list(delays)) == expected
