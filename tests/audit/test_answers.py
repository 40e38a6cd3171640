"""What brokers answered, whatever quotas are tried: the same however the recording is cut."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kquota.audit.batch import Batch, Column, answers_in
from kquota.core.enforcement.kind import FETCH, MUTATION, PRODUCE, REQUEST
from kquota.core.findings.answers import Answered, Answers, add_up

NAMES = st.sampled_from(["", "a", "b"])
EVENT = st.tuples(
    NAMES, NAMES, NAMES, st.sampled_from([PRODUCE, FETCH, REQUEST]), st.integers(0, 99), st.integers(-1, 3)
)


def batch(events: list[tuple[str, str, str, int, int, int]]) -> Batch:
    brokers, users, clients, kinds, times, throttles = zip(*events, strict=True)
    return Batch(
        Column.encode(brokers),
        Column.encode(users),
        Column.encode(clients),
        np.array(kinds, np.uint8),
        np.array(times, np.int64),
        np.zeros(len(events), np.int64),
        throttle_ms=np.array(throttles, np.int64),
    )


@given(st.lists(EVENT, min_size=1, max_size=30), st.integers(0, 30), st.booleans())
def test_parts_add_up_to_a_plain_count(
    events: list[tuple[str, str, str, int, int, int]], cut: int, every: bool
) -> None:
    """Against a loop over the events."""
    wanted: dict[Answered, Answers] = {}
    for broker, user, client_id, kind, time_ms, throttle_ms in events:
        if throttle_ms < 0 or (throttle_ms == 0 and not every):
            continue
        name = Answered(broker, user, client_id, {PRODUCE: "produce", FETCH: "fetch"}.get(kind, "other"))
        when = time_ms if throttle_ms else None
        one = Answers(1, int(throttle_ms > 0), throttle_ms, when, when)
        wanted[name] = wanted[name] + one if name in wanted else one

    parts = [batch(part) for part in (events[:cut], events[cut:]) if part]

    assert add_up(answers_in(part, every=every) for part in parts) == wanted


def test_topics_are_parts_of_a_request() -> None:
    """The request that created them is an event of its own, and has the answer."""
    assert answers_in(batch([("1", "a", "b", MUTATION, 0, 5)]), every=True) == {}
