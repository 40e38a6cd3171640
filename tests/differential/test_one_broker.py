"""One broker, four ways in: the same requests through the public classes, the audit, `simulate --events` and Kafka.

Quotas, windows (of hours, too), releases and traffic of all five kinds are drawn. At least EVENTS requests a generation
are compared: delays and verdicts one by one with Kafka's own classes, the audit and the simulation by their counters.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kquota import Entity, QuotaKey, QuotaSnapshot
from kquota.audit.engines import local
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, plan_splits
from kquota.audit.sources.events import read_events
from kquota.core.change.history import QuotaHistory
from kquota.core.enforcement import ConnectionManager, Generation, Kind, Mode, MutationSensor, QuotaWindows, kernel
from kquota.core.quotas.quota import format_number
from kquota.core.simulation.engine import simulate
from tests.differential.oracle import Oracle
from tests.support.enforcement import FetchSensor, ProduceSensor, RequestSensor
from tests.support.scheduling import by_day

# Each day draws the same: more rounds would play the same events again.
EVENTS = 10_000 if by_day() else 100_000
LENGTH = 5_000
START = 1_700_000_000_000
IP = "10.0.0.2"
ENTITIES = {
    Kind.PRODUCE: (Entity(user="produce"), QuotaKey.PRODUCER_BYTE_RATE),
    Kind.FETCH: (Entity(user="fetch"), QuotaKey.CONSUMER_BYTE_RATE),
    Kind.REQUEST: (Entity(user="metadata"), QuotaKey.REQUEST_PERCENTAGE),
    Kind.CONNECTION: (Entity(ip=IP), QuotaKey.CONNECTION_CREATION_RATE),
    Kind.MUTATION: (Entity(user="create_topics"), QuotaKey.CONTROLLER_MUTATION_RATE),
}
"""Each kind has an entity of its own, named after the API; permissive topics are charged to that of MUTATION."""


RATES = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE)
"""The keys whose peaks all ways have."""


class Event(NamedTuple):
    """What one counter is charged: bytes, ns, partitions, or a connection."""

    time_ms: int
    kind: Kind
    value: int


@dataclass(frozen=True)
class Scenario:
    """What is drawn."""

    windows: QuotaWindows
    controller: QuotaWindows
    limits: dict[Kind, float]
    events: list[Event]

    @property
    def quotas(self) -> QuotaSnapshot:
        return QuotaSnapshot({entity: {key: self.limits[kind]} for kind, (entity, key) in ENTITIES.items()})


class Account(NamedTuple):
    """What happened to one counter."""

    events: int
    throttled: int
    total_ms: int
    max_ms: int
    peak: float | None


def drawn(seed: int) -> Scenario:
    """Bursts, silences at the edges of windows and of the idle hour, and limits that about half of it is above."""
    chance = random.Random(seed)

    def windows() -> QuotaWindows:
        return QuotaWindows(*chance.choice([(1, 1), (2, 1), (3, 10), (11, 1), (11, 1), (11, 1), (2, 3600), (3, 7200)]))

    quota_windows, controller = windows(), windows()
    hours = quota_windows.window_seconds >= 3600 or controller.window_seconds >= 3600
    edge = quota_windows.samples * quota_windows.window_ms
    idle = [3_600_000, 3_600_001, edge, edge - 1] if hours or chance.random() < 0.3 else [edge, edge - 1, 999, 1000]
    events, now = [], START
    for _ in range(LENGTH):
        now += chance.choice(idle) if chance.random() < 0.01 else chance.choice([0, 0, 1, 5, chance.randint(0, 300)])
        kind = chance.choice(list(Kind))
        match kind:
            case Kind.PRODUCE | Kind.FETCH:
                value = chance.choice([0, chance.randint(1, 5_000), chance.randint(1, 200_000)])
            case Kind.REQUEST:
                value = chance.randint(0, 40_000_000)
            case Kind.CONNECTION:
                value = 1
            case _:
                value = chance.choice([0, 1, 3, 3, chance.randint(1, 60)])
        events.append(Event(now, kind, value))
    few = 1 if quota_windows.samples > 1 else 1000
    limits: dict[Kind, float] = {
        Kind.PRODUCE: chance.choice([1, 500, 30_000, 90_000, 10**9]) * few,
        Kind.FETCH: chance.choice([1, 700, 30_000, 90_000]) * few,
        Kind.REQUEST: chance.choice([0.01, 1.5, 5.0, 1 / 3, 25.0]),
        Kind.CONNECTION: chance.choice([1, 2, 3, 50]),
        Kind.MUTATION: chance.choice([0.5, 3.7, 20.0, 400.0]),
    }
    return Scenario(quota_windows, controller, limits, events)


# --- the four ways ---


def by_classes(scenario: Scenario, generation: Generation) -> list[tuple[int, float, bool]]:
    """(raw delay, rate or tokens, accepted) of each event."""
    limits = scenario.limits
    made: dict[str, Any] = {"windows": scenario.windows, "generation": generation}
    produce, fetch = ProduceSensor(limits[Kind.PRODUCE], **made), FetchSensor(limits[Kind.FETCH], **made)
    request = RequestSensor(limits[Kind.REQUEST], **made)
    topics = MutationSensor(limits[Kind.MUTATION], windows=scenario.controller)
    connections = ConnectionManager({"A": None}, ips={IP: limits[Kind.CONNECTION]}, **made)
    charge: dict[Kind, Callable[[int, int], Any]] = {
        Kind.PRODUCE: produce.produce,
        Kind.FETCH: fetch.fetch,
        Kind.REQUEST: request.request,
    }
    outcomes = []
    for now, kind, value in scenario.events:
        if kind is Kind.CONNECTION:
            delay = connections.admit(now, "A", IP)
            outcomes.append((delay, connections.ip_rate(IP, now), delay <= 0))
        elif kind in charge:
            verdict = charge[kind](now, value)
            outcomes.append((verdict.throttle_ms, verdict.rate, True))
        else:
            (topic,) = topics.request(now, [value], strict=kind is Kind.MUTATION).topics
            outcomes.append((topic.throttle_ms, topic.tokens, topic.accepted))
    return outcomes


def by_kafka(
    scenario: Scenario, oracle: Oracle, outcomes: list[tuple[int, float, bool]]
) -> Iterator[tuple[int, float | None, bool]]:
    """The same by Kafka's classes; `outcomes` say after which connections one is taken back."""
    windows = f"{scenario.windows.samples} {scenario.windows.window_ms}"
    limit = {kind: format_number(value) for kind, value in scenario.limits.items()}
    cap = scenario.windows.window_ms
    commands = [f"new {kind} {windows} {limit[kind]} - 1" for kind in (Kind.PRODUCE, Kind.FETCH)]
    commands += [f"new {kind} {windows} {limit[kind]} {cap} 1" for kind in (Kind.REQUEST, Kind.CONNECTION)]
    controller = f"{scenario.controller.samples} {scenario.controller.window_ms}"
    commands.append(f"bucket {Kind.MUTATION} {controller} {limit[Kind.MUTATION]} 1")
    for (now, kind, value), (delay, _, _) in zip(scenario.events, outcomes, strict=True):
        match kind:
            case Kind.CONNECTION:
                commands += [f"connect {kind} {now}", *([f"unrecord {kind} {now}"] if delay > 0 else [])]
            case Kind.MUTATION:
                commands.append(f"strict {Kind.MUTATION} {now} 0 {value}")
            case Kind.PERMISSIVE:
                commands.append(f"permissive {Kind.MUTATION} {now} 0 {value}")
            case _:
                commands.append(f"{kind.name.lower()} {kind} {now} {value}")
    for (_, kind, _), answer in zip(scenario.events, oracle.ask(commands), strict=True):
        if kind >= Kind.MUTATION:
            yield int(answer[0]), float(answer[1]), answer[2] == "-"
        elif kind is Kind.CONNECTION:
            yield int(answer[0]), None, int(answer[0]) <= 0
        else:
            yield int(answer[0]), float(answer[1]), True


def usage(scenario: Scenario) -> Iterator[dict[str, Any]]:
    """The rows of a usage table."""
    for now, kind, value in scenario.events:
        row: dict[str, Any] = {"time_ms": now, "broker": "1"}
        if kind is Kind.CONNECTION:
            yield row | {"api": "connect", "ip": IP, "listener": "A"}
            continue
        api = str((ENTITIES.get(kind) or ENTITIES[Kind.MUTATION])[0].user)
        row |= {"user": api, "client_id": "app", "api": api, "request_time_ns": value if kind is Kind.REQUEST else 0}
        if kind >= Kind.MUTATION:
            yield row | {"partitions": value, "strict": kind is Kind.MUTATION}
        else:
            yield row | {"bytes": value if kind in (Kind.PRODUCE, Kind.FETCH) else None}


def by_audit(scenario: Scenario, generation: Generation, path: Path) -> dict[QuotaKey, Account]:
    audit = AuditSettings(
        QuotaHistory.of(scenario.quotas),
        generation,
        scenario.windows,
        scenario.controller,
        predicts=False,
        read=ReadSettings(broker="1", kafka={}),
    )
    found = local.audit(plan_splits([str(path)], "usage"), audit, "one broker", processes=1)
    return {
        QuotaKey(row["key"]): Account(
            row["events"],
            row["throttled_events"],
            row["throttle_time_ms"],
            row["throttle_time_max_ms"],
            None if row["key"] == QuotaKey.CONTROLLER_MUTATION_RATE.value else row["peak_rate"],
        )
        for row in found.findings.to_pylist()
    }


def by_simulation(scenario: Scenario, generation: Generation, path: Path) -> dict[QuotaKey, Account]:
    """Of recorded requests. An ip's metric is read after the taking back, and the peak of topics is a debt."""
    workload = read_events([str(path)], ReadSettings(broker="1", kafka={})).workload
    brokers = replace(workload.brokers, windows=scenario.windows, controller_windows=scenario.controller)
    workload = replace(workload, brokers=brokers, scrape_ms=0)
    result = simulate(workload, scenario.quotas, generation=generation, using=kernel(Mode.COMPILED))
    return {
        counter.key: Account(
            counter.events,
            counter.throttled,
            counter.throttle_ms,
            counter.throttle_max_ms,
            counter.peak if counter.key in RATES else None,
        )
        for counter in result.counters
    }


def account(scenario: Scenario, outcomes: list[tuple[int, float, bool]], kind: Kind) -> Account:
    """What the counter of a kind should have."""
    kinds = (Kind.MUTATION, Kind.PERMISSIVE) if kind is Kind.MUTATION else (kind,)
    mine = [outcome for event, outcome in zip(scenario.events, outcomes, strict=True) if event.kind in kinds]
    delays = [delay for delay, _, _ in mine if delay > 0]
    return Account(
        len(mine),
        sum(delay > 0 or not accepted for delay, _, accepted in mine),
        sum(delays),
        max(delays, default=0),
        None if kind is Kind.MUTATION else max(rate for _, rate, _ in mine),
    )


@pytest.fixture(scope="module", params=list(Generation), ids=lambda generation: generation.value)
def oracle(request: pytest.FixtureRequest) -> Iterator[Oracle]:
    with Oracle(request.param) as oracle:
        yield oracle


def test_all_ways_say_the_same(oracle: Oracle, tmp_path: Path) -> None:
    """The peak of refused connections is not compared: a reading after the taking back is lower."""
    path, generation = tmp_path / "usage.jsonl", oracle.generation
    checked, delayed = 0, dict.fromkeys(Kind, 0)

    @settings(max_examples=2 if by_day() else 5, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**32 - 1))
    def agree(seed: int) -> None:
        nonlocal checked
        scenario = drawn(seed)
        outcomes = by_classes(scenario, generation)

        for event, ours, kafkas in zip(scenario.events, outcomes, by_kafka(scenario, oracle, outcomes), strict=True):
            assert kafkas == (ours[0], None if kafkas[1] is None else ours[1], ours[2]), event
            delayed[event.kind] += ours[0] > 0
        path.write_text("".join(json.dumps(row) + "\n" for row in usage(scenario)))
        expected = {key: account(scenario, outcomes, kind) for kind, (_, key) in ENTITIES.items()}
        ip = QuotaKey.CONNECTION_CREATION_RATE
        expected[ip] = expected[ip]._replace(peak=None)
        audited = by_audit(scenario, generation, path)
        assert {**audited, ip: audited[ip]._replace(peak=None)} == expected
        assert by_simulation(scenario, generation, path) == expected
        assert len(expected) == 5
        checked += len(scenario.events)

    while checked < EVENTS:
        agree()
    assert all(count > checked / 1000 for count in delayed.values()), delayed
