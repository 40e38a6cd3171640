"""kquota against Kafka's own `org.apache.kafka.common.metrics`, event by event, in both generations.

At least half a million events of sequences, whose seeds Hypothesis draws; with its profile `nightly`, ten million.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kquota.core.enforcement import Generation, Mode, kernel
from tests.differential import sequences
from tests.differential.answers import answered
from tests.differential.oracle import Oracle
from tests.support.replay import replay_document

SEQUENCES, MUTATIONS = 180_000, 50_000
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

    compare(check, sequences.drawn, SEQUENCES)


def test_mutations_are_accepted_rejected_and_delayed_as_by_kafka(oracle: Oracle) -> None:
    # 4.4.0 answers with its own strict and permissive quotas, 3.7.2 with its token bucket and sensor.
    def check(vector: dict[str, Any]) -> None:
        (vector,) = answered(oracle, [vector])
        check_replay(vector, oracle.generation)

    compare(check, sequences.drawn_mutation, MUTATIONS)


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


def check_replay(vector: dict[str, Any], generation: Generation) -> None:
    """Compares delays, rates and windows, compiled and plain."""
    for mode in (Mode.COMPILED, Mode.PLAIN):
        assert not replay_document({"algorithm": generation.value, "vectors": [vector]}, kernel(mode))[2]
