"""kquota against Kafka's own `org.apache.kafka.common.metrics`, event by event, in both generations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kquota.core.enforcement import UNLIMITED, Generation, Kernel, Mode, QuotaWindows, Verdict, kernel
from kquota.core.enforcement.rate import Rate
from kquota.core.enforcement.replay import FETCH, PRODUCE, REQUEST
from kquota.core.enforcement.vectors import Broker, replay_connection
from tests.differential.answers import answered
from tests.differential.oracle import ask
from tests.differential.sequences import connections, mutations, sequences
from tests.replay import replay_document

EVENTS = 200_000
MUTATIONS = 40_000
CONNECTIONS = 15_000


@pytest.fixture(scope="module", params=list(Generation), ids=lambda generation: generation.value)
def document(request: pytest.FixtureRequest) -> dict[str, Any]:
    generation: Generation = request.param
    vectors = answered(generation, list(sequences(seed=1, events=EVENTS)))
    assert sum(len(vector["events"]) for vector in vectors) >= EVENTS
    return {"algorithm": generation.value, "vectors": vectors}


@pytest.mark.parametrize("mode", [Mode.COMPILED, Mode.PLAIN])
def test_delays_rates_and_windows_are_kafkas(document: dict[str, Any], mode: Mode) -> None:
    equal, total, differences = replay_document(document, kernel(mode))
    assert not differences
    assert equal == total


@pytest.mark.parametrize("mode", [Mode.COMPILED, Mode.PLAIN])
def test_the_bulk_replay_gives_the_same_delays(document: dict[str, Any], mode: Mode) -> None:
    replayed = 0
    for vector in document["vectors"]:
        if "+" not in vector["type"] and "quota_changes" not in vector["config"]:
            assert bulk_delays(vector, Generation(document["algorithm"]), kernel(mode)) == [
                delay or 0 for delay in vector["expected"]["throttle_ms"]
            ], vector["id"]
            replayed += 1
    assert replayed > 50


def test_the_sequences_tell_the_generations_apart(document: dict[str, Any]) -> None:
    (other,) = set(Generation) - {Generation(document["algorithm"])}
    _, total, differences = replay_document({**document, "algorithm": other.value}, kernel(Mode.COMPILED))
    assert len(differences) > total.total() / 10


@pytest.fixture(scope="module", params=list(Generation), ids=lambda generation: generation.value)
def mutated(request: pytest.FixtureRequest) -> dict[str, Any]:
    vectors = answered(request.param, list(mutations(seed=1, events=MUTATIONS)))
    return {"algorithm": request.param.value, "vectors": vectors}


@pytest.mark.parametrize("mode", [Mode.COMPILED, Mode.PLAIN])
def test_mutations_are_accepted_rejected_and_delayed_as_by_kafka(mutated: dict[str, Any], mode: Mode) -> None:
    # 4.4.0 answers with its own strict and permissive quotas, 3.7.2 with its token bucket and sensor.
    equal, total, differences = replay_document(mutated, kernel(mode))
    assert not differences
    assert equal == total
    accepted = [topics for vector in mutated["vectors"] for topics in vector["expected"]["accepted"]]
    assert len(accepted) >= MUTATIONS
    assert sum(not all(topics) for topics in accepted) > 4000
    assert sum(any(topics) and not all(topics) for topics in accepted) > 500
    assert any(delay < 0 for vector in mutated["vectors"] for delay in vector["expected"]["throttle_ms"])


@pytest.mark.parametrize("generation", list(Generation))
def test_the_rates_of_connections_are_kafkas(generation: Generation) -> None:
    """Each connection that is recorded, checked or taken back, in the order in which the acceptors do it."""
    logs: list[tuple[list[str], list[tuple[int, float, int]]]] = [([], []), ([], [])]
    for vector in connections(seed=1, events=CONNECTIONS):
        config = vector["config"]
        windows = QuotaWindows(config["window_num"], config["window_size_s"])
        for mode, (commands, verdicts) in zip((Mode.PLAIN, Mode.COMPILED), logs, strict=True):
            using = logging_kernel(kernel(mode), windows, f"{vector['id']}-", commands, verdicts)
            replay_connection(vector, Broker(windows, generation, using))
    plain, compiled = logs
    assert plain == compiled
    commands, verdicts = plain
    assert verdicts == [(int(delay), float(rate), int(window)) for delay, rate, window in ask(generation, commands)]
    assert len(verdicts) > CONNECTIONS
    assert sum(command.startswith("unrecord") for command in commands) > 1000


def logging_kernel(
    using: Kernel, windows: QuotaWindows, prefix: str, commands: list[str], verdicts: list[tuple[int, float, int]]
) -> Kernel:
    """A kernel that notes what is done with connections, as commands to the oracle, and what comes of it."""
    sensors: list[Rate] = []

    def sensor(rate: Rate) -> str:
        return next(f"{prefix}{number}" for number, known in enumerate(sensors) if known is rate)

    def new_rate(windows: QuotaWindows, generation: Generation) -> Rate:
        sensors.append(using.new_rate(windows, generation))
        return sensors[-1]

    named: set[str] = set()

    def connect(rate: Rate, now: int, limit: float) -> Verdict:
        name = sensor(rate)
        if name not in named:
            named.add(name)
            commands.append(f"new {name} {windows.samples} {windows.window_ms} {limit!r} {windows.window_ms}")
        verdict = using.connect(rate, now, limit)
        commands.append(f"connect {name} {now}")
        verdicts.append((verdict.throttle_ms, verdict.rate, verdict.window_ms))
        return verdict

    def record(rate: Rate, value: float, now: int) -> None:
        assert value == -1.0
        commands.append(f"unrecord {sensor(rate)} {now}")
        using.record(rate, value, now)

    return replace(using, new_rate=new_rate, connect=connect, record=record)


def bulk_delays(vector: dict[str, Any], generation: Generation, using: Kernel) -> list[int]:
    """The raw delays of `replay_sensor`; 0 for what is not checked."""
    config = vector["config"]
    events = [event for event in vector["events"] if event[1] != "exempt"]
    delays = using.column([0] * len(events), "int64")
    limit = config["quota"]
    using.replay_sensor(
        using.new_rate(QuotaWindows(config["window_num"], config["window_size_s"]), generation),
        0,
        len(events),
        using.column([vector["t0_ms"] + event[0] for event in events], "int64"),
        using.column([event[-1] for event in events], "float64"),
        {"produce": PRODUCE, "fetch": FETCH, "request": REQUEST}[vector["type"]],
        UNLIMITED if limit is None else float(limit),
        using.column([event[1] == "request" for event in events], "bool") if vector["type"] == "request" else None,
        delays,
    )
    listed = iter(delays.tolist() if using.mode is Mode.COMPILED else delays)
    return [0 if event[1] == "exempt" else next(listed) for event in vector["events"]]
