"""The closed loop: recorded requests whose connections wait out their throttle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota.audit import closed_loop
from kquota.audit.batch import NO_CONNECTION, UNKNOWN, Batch, Column
from kquota.audit.closed_loop import record, replay
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings
from kquota.core.change.history import QuotaHistory
from kquota.core.enforcement.kind import FETCH, PRODUCE
from kquota.core.enforcement.sensors import FetchSensor, ProduceSensor
from kquota.core.findings.closed_loop import Closed, ClosedLoop
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.errors import InputError
from tests.audit import recorded as logs
from tests.brokers import accuracy

PRODUCER, CONSUMER, REQUEST = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE
START = 1_700_000_000_000
Row = tuple[int, int, int, int, int]
"""(ms after START, connection, kind, bytes, logged throttle)"""


def quotas(**limits: float) -> QuotaHistory:
    """Limits of alice, by key."""
    return QuotaHistory.of(
        QuotaSnapshot({Entity(user="alice"): {QuotaKey(key): int(limit) for key, limit in limits.items()}})
    )


def batch(rows: Sequence[Row], nanos: int | None = None) -> Batch:
    """Requests of alice on one broker; each takes that much thread time."""
    times, connections, kinds, sizes, throttles = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return Batch(
        Column.constant("1", len(rows)),
        Column.constant("alice", len(rows)),
        Column.constant("app", len(rows)),
        kinds.astype(np.uint8),
        START + times,
        sizes,
        request_ns=None if nanos is None else np.full(len(rows), nanos, np.int64),
        request_complete=nanos is not None,
        throttle_ms=throttles,
        connection=connections,
    )


def closed(rows: Sequence[Row], history: QuotaHistory, nanos: int | None = None) -> ClosedLoop:
    """What the closed loop makes of them."""
    return replay(record([batch(rows, nanos)]), history, AuditSettings(history))


def counter(loop: ClosedLoop, key: QuotaKey) -> Closed:
    """The counter of alice."""
    return loop.counters["1", key.value, "alice:"]


def test_a_producer_held_at_its_limit() -> None:
    """In the long run it gets the quota: it takes bytes / limit, less what the first windows let through at once."""
    limit, size, gap, count = 1000, 500, 100, 1000
    loop = closed([(n * gap, 7, PRODUCE, size, 0) for n in range(count)], quotas(producer_byte_rate=limit))

    took = (count - 1) * gap + (loop.delays["alice", "app"] or 0)
    assert abs(took - count * size * 1000 / limit) <= 11_000
    found = counter(loop, PRODUCER)
    # The last request's own wait delays nothing.
    assert abs(found.throttle_time_ms - (took - (count - 1) * gap)) <= 11_000
    assert found.events == count


requests = st.lists(
    st.tuples(
        st.integers(0, 60_000), st.integers(1, 4), st.sampled_from([PRODUCE, FETCH]), st.integers(0, 9000), st.just(0)
    ),
    min_size=1,
    max_size=40,
)


@given(requests)
@settings(max_examples=50, deadline=None)
def test_quotas_that_nobody_reaches_delay_nobody(rows: list[Row]) -> None:
    """The closed loop is then the open one: every request comes when it came."""
    limits = quotas(producer_byte_rate=10**9, consumer_byte_rate=10**9, request_percentage=10**6)
    loop = closed(rows, limits, nanos=1000)

    assert sum(found.throttled_events for found in loop.counters.values()) == 0
    assert counter(loop, REQUEST).events == len(rows)
    assert loop.delays == {("alice", "app"): 0}


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 9000), st.integers(0, 2000)), min_size=1, max_size=40),
    st.integers(100, 5000),
)
@settings(max_examples=50, deadline=None)
def test_one_connection_beside_a_loop_over_the_sensor(steps: list[tuple[int, int, int]], limit: int) -> None:
    """Each request comes after the wait for the one before and the think time, less the throttle that was logged."""
    rows, time = list[Row](), 0
    for gap, size, logged in steps:
        time += gap
        rows.append((time, 7, PRODUCE, size, logged))
    loop = closed(rows, quotas(producer_byte_rate=limit))

    sensor, now, waits = ProduceSensor(limit), START + rows[0][0], list[int]()
    for number, (recorded, _, _, size, _) in enumerate(rows):
        if number:
            now += waits[-1] + max(recorded - rows[number - 1][0] - rows[number - 1][4], 0)
        waits.append(max(sensor.produce(now, size).throttle_ms, 0))
    assert counter(loop, PRODUCER) == Closed(len(rows), sum(wait > 0 for wait in waits), sum(waits), max(waits))
    assert loop.delays["alice", "app"] == now - START - rows[-1][0]


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2000), st.integers(0, 9000)), min_size=1, max_size=60),
    st.integers(500, 5000),
)
@settings(max_examples=50, deadline=None)
def test_two_connections_beside_a_search_for_the_next(steps: list[tuple[int, int, int]], limit: int) -> None:
    """Whichever comes next is charged; of those of the same ms, the one that the export has first."""
    rows, time = list[Row](), 0
    for connection, gap, size in steps:
        time += gap
        rows.append((time, 1 + connection, PRODUCE, size, 0))
    loop = closed(rows, quotas(producer_byte_rate=limit))

    sensor, waits = ProduceSensor(limit), list[int]()
    waiting = {name: [number for number, row in enumerate(rows) if row[1] == name] for name in (1, 2)}
    comes = {name: START + rows[numbers[0]][0] for name, numbers in waiting.items() if numbers}
    while comes:
        name = min(comes, key=lambda name: (comes[name], waiting[name][0]))
        number = waiting[name].pop(0)
        waits.append(max(sensor.produce(comes[name], rows[number][3]).throttle_ms, 0))
        if waiting[name]:
            comes[name] += waits[-1] + rows[waiting[name][0]][0] - rows[number][0]
        else:
            del comes[name]
    assert counter(loop, PRODUCER) == Closed(len(rows), sum(wait > 0 for wait in waits), sum(waits), max(waits))


def test_a_throttled_fetch_is_asked_again() -> None:
    """It is taken back, and comes when its wait is over; what comes after it comes later."""
    rows = [(0, 1, FETCH, 8000, 0), (100, 1, FETCH, 8000, 0), (200, 1, FETCH, 10, 0)]
    loop = closed(rows, quotas(consumer_byte_rate=1000))

    sensor, now, waits = FetchSensor(1000), START, list[int]()
    for size, think in ((8000, 100), (8000, 100), (10, 0)):
        while (wait := sensor.fetch(now, size).throttle_ms) > 0:
            waits.append(wait)
            now += wait
        now += think
    assert waits
    assert counter(loop, CONSUMER) == Closed(3 + len(waits), len(waits), sum(waits), max(waits))
    assert loop.delays["alice", "app"] == now - START - 200 == sum(waits)


def test_a_fetch_that_the_log_shows_throttled_comes_by_its_retry() -> None:
    """The empty response is no request of its own, and its throttle no think time."""
    rows = [(0, 1, FETCH, 10, 0), (100, 1, FETCH, UNKNOWN, 5000), (5150, 1, FETCH, 10, 0)]
    loop = closed(rows, quotas(consumer_byte_rate=1000))

    assert counter(loop, CONSUMER) == Closed(2, 0, 0, 0)
    assert loop.delays["alice", "app"] == -5000


def test_a_fetch_above_what_a_response_may_hold_comes_in_pieces() -> None:
    """Of ten samples each (KAFKA-9677); whole, it would never get through."""
    loop = closed([(0, 1, FETCH, 35_000, 0)], quotas(consumer_byte_rate=1000))

    sensor, now, waits = FetchSensor(1000), START, list[int]()
    for piece in (10_000, 10_000, 10_000, 5000):
        while (wait := sensor.fetch(now, piece).throttle_ms) > 0:
            waits.append(wait)
            now += wait
    assert counter(loop, CONSUMER) == Closed(4 + len(waits), len(waits), sum(waits), max(waits))
    assert loop.delays["alice", "app"] == now - START > 25_000


def test_a_fetch_that_never_gets_through() -> None:
    """Where its thread time alone is above the quota, each try is throttled."""
    loop = closed([(0, 1, FETCH, 10, 0)], quotas(request_percentage=1), nanos=10**9)

    assert loop.delays == {("alice", "app"): None}
    assert counter(loop, REQUEST).throttled_events == closed_loop.MAX_RETRIES + 1


def test_a_fetch_in_too_many_pieces_never_gets_through() -> None:
    """10 MB at 100 B/s would take more than a day, and as many pieces as nobody waits for."""
    loop = closed([(0, 1, FETCH, 10_000_000, 0), (1, 1, FETCH, 10, 0)], quotas(consumer_byte_rate=100))

    assert loop.delays == {("alice", "app"): None}
    assert counter(loop, CONSUMER).throttled_events == closed_loop.MAX_RETRIES + 1


def test_a_stored_limit_of_0_delays_nothing() -> None:
    """A cluster may hold it; the delay that comes of it is below 0."""
    loop = closed([(0, 1, FETCH, 10_000_000, 0), (1, 1, FETCH, 10, 0)], quotas(consumer_byte_rate=0))

    assert loop.delays == {("alice", "app"): 0}
    assert counter(loop, CONSUMER) == Closed(2)


def test_limits_go_by_the_time_of_the_closed_loop() -> None:
    """A request that is delayed beyond a change finds the new limit."""
    low, high = quotas(producer_byte_rate=1000).latest, quotas(producer_byte_rate=10**9).latest
    history = QuotaHistory((low, high), (START + 5000,))
    loop = closed([(0, 1, PRODUCE, 30_000, 0), (10, 1, PRODUCE, 30_000, 0)], history)

    assert counter(loop, PRODUCER).throttled_events == 1


def test_without_connections_only_the_open_loop_is_known() -> None:
    """A counter that one request without a connection is charged to is left out."""
    rows = [(0, 1, PRODUCE, 100, 0), (0, 1, FETCH, 100, 0), (10, NO_CONNECTION, FETCH, 100, 0)]
    loop = closed(rows, quotas(producer_byte_rate=1000, consumer_byte_rate=1000))

    assert loop.counters.keys() == {("1", PRODUCER.value, "alice:")}
    assert loop.delays == {}

    rows[2] = (10, NO_CONNECTION, FETCH, UNKNOWN, 500)
    assert closed(rows, quotas(consumer_byte_rate=1000)).counters == {}


def test_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not read to the end, and the hint says what to do."""
    monkeypatch.setattr(closed_loop, "MAX_EVENTS", 1000)

    with pytest.raises(InputError, match="more than 1,000 requests") as caught:
        closed_loop.replay_files([str(logs.LOG)], "auto", AuditSettings(logs.ONE.history))

    assert "shorter period" in str(caught.value.hint)


@pytest.mark.parametrize("recording", logs.RECORDINGS, ids=lambda recording: recording.name)
def test_recordings_of_real_brokers(recording: logs.Recording) -> None:
    """They were closed loops, under these very quotas: the throttle time is near what the broker logged."""
    files = accuracy.logs_of(recording.folder)
    asked = AuditSettings(recording.history, read=ReadSettings("1" if len(files) == 1 else None))
    (loop,) = closed_loop.replay_files([*map(str, files.values())], "request-log", asked)

    ratios = {
        (row["broker"], row["key"], row["sensor"]): loop.counters[
            row["broker"], row["key"], row["sensor"]
        ].throttle_time_ms
        / row["logged_throttle_time_ms"]
        for row in logs.throttled(recording)
        if row["key"] != logs.MUTATIONS and row["logged_throttle_time_ms"] > 1000
    }
    assert len(ratios) >= 6
    assert {name: ratio for name, ratio in ratios.items() if not 0.8 < ratio < 1.25} == {}
