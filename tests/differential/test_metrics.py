"""kquota against Kafka's own `org.apache.kafka.common.metrics`, event by event, in both generations."""

from __future__ import annotations

from typing import Any

import pytest

from kquota.core.enforcement import UNLIMITED, Generation, Kernel, Mode, QuotaWindows, kernel
from kquota.core.enforcement.replay import FETCH, PRODUCE, REQUEST
from tests.differential.answers import answered
from tests.differential.sequences import sequences
from tests.replay import replay_document

EVENTS = 200_000


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
