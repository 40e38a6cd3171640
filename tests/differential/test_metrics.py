"""kquota against Kafka's own `org.apache.kafka.common.metrics`, event by event, in both generations.

At least half a million events of sequences, whose seeds Hypothesis draws; with its profile `nightly`, ten million.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kquota.core.enforcement import Generation, Kernel, Kind, Mode, QuotaWindows, Verdict, kernel
from kquota.core.enforcement.counter import Counter, load
from tests.differential import sequences
from tests.differential.answers import answered
from tests.differential.oracle import Oracle
from tests.support.enforcement import replay_counter
from tests.support.replay import replay_document
from tests.support.vectors import Broker, replay_connection

SEQUENCES, MUTATIONS, CONNECTIONS = 180_000, 50_000, 25_000
"""Events of a generation that are drawn and compared."""
NIGHTLY = 20
"""How many times more at night."""
SEEDED = 20_000


@pytest.fixture(scope="module", params=list(Generation), ids=lambda generation: generation.value)
def oracle(request: pytest.FixtureRequest) -> Iterator[Oracle]:
    with Oracle(request.param) as oracle:
        yield oracle


def test_delays_rates_and_windows_are_kafkas(oracle: Oracle) -> None:
    def check(vector: dict[str, Any]) -> None:
        (vector,) = answered(oracle, [vector])
        check_replay(vector, oracle.generation)
        check_bulk(vector, oracle.generation, kernel(Mode.COMPILED))

    compare(check, sequences.drawn, SEQUENCES)


def test_mutations_are_accepted_rejected_and_delayed_as_by_kafka(oracle: Oracle) -> None:
    # 4.4.0 answers with its own strict and permissive quotas, 3.7.2 with its token bucket and sensor.
    def check(vector: dict[str, Any]) -> None:
        (vector,) = answered(oracle, [vector])
        check_replay(vector, oracle.generation)

    compare(check, sequences.drawn_mutation, MUTATIONS)


def test_the_rates_of_connections_are_kafkas(oracle: Oracle) -> None:
    """Each connection that is recorded, checked or taken back, in the order in which the acceptors do it."""

    def check(vector: dict[str, Any]) -> None:
        windows = QuotaWindows(vector["config"]["window_num"], vector["config"]["window_size_s"])
        logs: list[tuple[list[str], list[tuple[int, float, int]]]] = [([], []), ([], [])]
        for mode, (commands, verdicts) in zip((Mode.PLAIN, Mode.COMPILED), logs, strict=True):
            using = logging_kernel(kernel(mode), windows, commands, verdicts)
            replay_connection(vector, Broker(windows, oracle.generation, using))
        plain, compiled = logs
        assert plain == compiled
        commands, verdicts = plain
        assert verdicts == [(int(delay), float(rate), int(window)) for delay, rate, window in oracle.ask(commands)]

    compare(check, sequences.drawn_connections, CONNECTIONS)


def compare(check: Any, drawn: Callable[[int], dict[str, Any]], least: int) -> None:
    """Checks vectors of drawn seeds until they had that many events in all."""
    nightly = settings.get_current_profile_name() == "nightly"
    wanted = least * NIGHTLY if nightly else least
    checked = 0

    @settings(max_examples=2000 if nightly else 100, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**32 - 1))
    def agree(seed: int) -> None:
        nonlocal checked
        vector = drawn(seed)
        check(vector)
        checked += len(vector["events"])

    while checked < wanted:
        agree()


def test_the_sequences_tell_the_generations_apart(oracle: Oracle) -> None:
    """Of the delays that are cut since 4.4 a test of its own tells."""
    other = Generation.N_BY_START if oracle.generation.by_last else Generation.N_PLUS_1_BY_LAST
    vectors = answered(oracle, list(sequences.sequences(seed=1, events=SEEDED)))
    _, total, differences = replay_document({"algorithm": other.value, "vectors": vectors}, kernel(Mode.COMPILED))
    assert len(differences) > total.total() / 10


def test_mutations_have_rejections_partial_ones_and_delays_that_wrap(oracle: Oracle) -> None:
    vectors = answered(oracle, list(sequences.mutations(seed=1, events=SEEDED)))
    assert not replay_document({"algorithm": oracle.generation.value, "vectors": vectors}, kernel(Mode.PLAIN))[2]
    accepted = [topics for vector in vectors for topics in vector["expected"]["accepted"]]
    assert len(accepted) >= SEEDED
    assert sum(not all(topics) for topics in accepted) > SEEDED / 10
    assert sum(any(topics) and not all(topics) for topics in accepted) > SEEDED / 100
    assert any(delay < 0 for vector in vectors for delay in vector["expected"]["throttle_ms"])


def logging_kernel(
    using: Kernel, windows: QuotaWindows, commands: list[str], verdicts: list[tuple[int, float, int]]
) -> Kernel:
    """A kernel that notes what is done with connections, as commands to the oracle, and what comes of it."""
    sensors: dict[int, tuple[str, Counter]] = {}  # by identity; the counters are kept, so that no other takes it

    names = count()

    def sensor(counter: Counter, now: int, limit: float = math.nan) -> str:
        # After an idle hour a broker has dropped the sensor, and makes a new one.
        if id(counter.ints) not in sensors or now - load(counter)[0] > counter.expiry_ms:
            name = f"s{next(names)}"
            sensors[id(counter.ints)] = name, counter
            commands.append(f"new {name} {windows.samples} {windows.window_ms} {limit!r} {windows.window_ms} 0")
        return sensors[id(counter.ints)][0]

    def check(counter: Counter, kind: int, now: int, value: float, limit: float) -> Verdict:
        assert (kind, value) == (Kind.CONNECTION, 1.0)
        commands.append(f"connect {sensor(counter, now, limit)} {now}")
        verdict = using.check(counter, kind, now, value, limit)
        verdicts.append((verdict.throttle_ms, verdict.rate, verdict.window_ms))
        return verdict

    def charge_counter(counter: Counter, kind: int, now: int, value: float, limit: float) -> Verdict:
        verdict = check(counter, kind, now, value, limit)
        if verdict.throttle_ms > 0:
            note(counter, kind, now, -value)
        return verdict

    def note(counter: Counter, kind: int, now: int, value: float) -> None:
        assert (kind, value) == (Kind.CONNECTION, -1.0)
        commands.append(f"unrecord {sensor(counter, now)} {now}")
        using.note(counter, kind, now, value)

    return replace(using, check=check, charge_counter=charge_counter, note=note)


def check_replay(vector: dict[str, Any], generation: Generation) -> None:
    """Compares delays, rates and windows, compiled and plain."""
    for mode in (Mode.COMPILED, Mode.PLAIN):
        assert not replay_document({"algorithm": generation.value, "vectors": [vector]}, kernel(mode))[2]


def check_bulk(vector: dict[str, Any], generation: Generation, using: Kernel) -> bool:
    """Compares the delays of `replay_counter`; false for what it does not replay: pairs and changes of the quota."""
    if "+" in vector["type"] or "quota_changes" in vector["config"]:
        return False
    expected = [delay or 0 for delay in vector["expected"]["throttle_ms"]]
    assert bulk_delays(vector, generation, using) == expected, vector["id"]
    return True


def bulk_delays(vector: dict[str, Any], generation: Generation, using: Kernel) -> list[int]:
    """The raw delays of `replay_counter`; 0 for what is not checked."""
    config = vector["config"]
    events = [event for event in vector["events"] if event[1] != "exempt"]
    delays = using.column([0] * len(events), "int64")
    replay_counter(
        {"produce": Kind.PRODUCE, "fetch": Kind.FETCH, "request": Kind.REQUEST}[vector["type"]],
        [vector["t0_ms"] + event[0] for event in events],
        [event[-1] for event in events],
        config["quota"],
        windows=QuotaWindows(config["window_num"], config["window_size_s"]),
        generation=generation,
        checked=[event[1] == "request" for event in events] if vector["type"] == "request" else None,
        delays=delays,
        using=using,
    )
    listed = iter(delays.tolist() if using.mode is Mode.COMPILED else delays)
    return [0 if event[1] == "exempt" else next(listed) for event in vector["events"]]
