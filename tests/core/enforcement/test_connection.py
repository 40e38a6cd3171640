"""The connection quotas: what Kafka's recorded answers do not hold, and laws."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota.core.enforcement import UNLIMITED_IP, Acceptors, ConnectionManager, Kernel, QuotaWindows, kernel
from kquota.core.enforcement.counter import START, SUM
from kquota.core.enforcement.sensors import Connection, ConnectionSensor
from tests.core.enforcement import strategies as given_
from tests.support.compiled import modes
from tests.support.enforcement import Arrival, accept
from tests.support.scheduling import examples

T0 = 1_700_000_000_000
TWO = QuotaWindows(samples=2)
"""With two windows of a second, a burst counts over one second: n connections at once are n a second."""


def test_a_rejection_on_the_protected_listener_leaves_the_broker_alone(using: Kernel) -> None:
    manager = ConnectionManager(
        {"A": None, "R": None}, broker=2, inter_broker="R", default_ip=0, windows=TWO, using=using
    )
    manager.wait(T0, "A")
    manager.wait(T0, "R")
    assert manager.admit(T0, "R", "x") == 1000
    assert manager.broker.measure(T0) == 1.0
    assert manager.listeners["R"].measure(T0) == 0.0


def test_the_ip_is_looked_at_after_the_wait_and_taken_back_from_the_slot_of_then(using: Kernel) -> None:
    manager = ConnectionManager({"A": None}, broker=1, ips={"bad": 0}, windows=TWO, using=using)
    connections = accept(manager, [Arrival(T0, "A", ip) for ip in ("x", "bad")])
    assert connections[1] == (T0, (1000, 0, 1000), T0 + 1000, 1000)
    assert list(manager.broker.counter.ints)[START : START + 4 : 2] == [T0, T0 + 1000]
    assert list(manager.broker.counter.floats)[SUM : SUM + 2] == [2.0, -1.0]


@pytest.mark.parametrize(
    ("expires", "idle", "delay"), [(True, 3_600_000, 600_000), (True, 3_600_001, 0), (False, 3_600_001, 600_000)]
)
def test_an_ip_is_forgotten_after_an_idle_hour(using: Kernel, expires: bool, idle: int, delay: int) -> None:
    # Only where the windows add up to more than an hour does it show.
    windows = QuotaWindows(samples=11, window_seconds=600)
    manager = ConnectionManager({"A": None}, default_ip=0.001, windows=windows, using=using, expires=expires)
    assert [manager.admit(T0, "A", "x") for _ in range(7)] == [0] * 6 + [600_000]
    assert manager.admit(T0 + idle, "A", "x") == delay


rates = st.sampled_from([None, 0, 1, 2, 5, 20])


@st.composite
def managers(draw: st.DrawFn) -> dict[str, Any]:
    names = ["A", "B", "C"][: draw(st.integers(1, 3))]
    return {
        "listeners": {name: draw(rates) for name in names},
        "broker": draw(rates),
        "inter_broker": draw(st.sampled_from([None, *names])),
        "default_ip": draw(st.one_of(rates, st.just(UNLIMITED_IP))),
        "ips": draw(st.dictionaries(st.sampled_from("xyz"), st.integers(0, 9), max_size=3)),
        "windows": draw(given_.windows),
        "generation": draw(given_.generations),
    }


events = st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 2), st.sampled_from("wxyz")), max_size=60)


def arrivals_of(quotas: dict[str, Any], events: list[tuple[int, int, str]]) -> list[Arrival]:
    """Arrivals with those gaps in time, often without any, at the listeners of the quotas."""
    names, now, arrivals = list(quotas["listeners"]), given_.START, []
    for gap, number, ip in events:
        now += gap if gap % 3 else 0
        arrivals.append(Arrival(now, names[number % len(names)], ip))
    return arrivals


@settings(deadline=None)
@given(managers(), events)
def test_compiled_is_plain_and_no_listener_does_two_things_at_once(
    quotas: dict[str, Any], events: list[tuple[int, int, str]]
) -> None:
    names, arrivals = list(quotas["listeners"]), arrivals_of(quotas, events)
    plain, *compiled = (ConnectionManager(**quotas, using=kernel(mode)) for mode in modes())
    connections = accept(plain, arrivals)
    for manager in compiled:
        assert connections == accept(manager, arrivals)
        assert state(plain.broker) == state(manager.broker)
    cap = quotas["windows"].window_ms
    free = dict.fromkeys(names, 0)
    for arrival, connection in zip(arrivals, connections, strict=True):
        assert connection.start_ms == max(arrival.time_ms, free[arrival.listener])
        assert connection.done_ms == connection.start_ms + connection.wait.delay_ms
        assert 0 <= connection.wait.delay_ms <= cap
        assert 0 <= connection.ip_ms <= cap
        free[arrival.listener] = connection.done_ms


def state(sensor: ConnectionSensor) -> list[object]:
    return [list(sensor.counter.ints), list(sensor.counter.floats)]


@settings(deadline=None, max_examples=examples(50))
@given(managers(), events)
def test_connections_may_be_added_when_those_before_them_are_taken(
    quotas: dict[str, Any], events: list[tuple[int, int, str]]
) -> None:
    """A simulated client plans its next connection when the last one is through: nothing else comes of it."""
    names, arrivals = list(quotas["listeners"]), arrivals_of(quotas, events)
    together = accept(ConnectionManager(**quotas), arrivals)

    acceptors = Acceptors[int](ConnectionManager(**quotas))
    later = {name: [n for n, arrival in enumerate(arrivals) if arrival.listener == name] for name in names}

    def add_next(listener: str) -> None:
        if later[listener]:
            number = later[listener].pop(0)
            acceptors.add(arrivals[number].time_ms, listener, arrivals[number].ip, number)

    for name in names:
        add_next(name)
    found: dict[int, Connection] = {}
    begun: list[int] = []
    while (due_ms := acceptors.due_ms) is not None:
        step = acceptors.step()
        assert step.now_ms == due_ms
        begun += [step.subject] if step.begins else []
        if step.outcome is not None:
            found[step.subject] = step.outcome
            add_next(step.listener)
    assert [found[number] for number in range(len(arrivals))] == together
    assert sorted(begun) == list(range(len(arrivals)))
