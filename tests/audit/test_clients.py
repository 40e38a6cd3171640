"""Kinds of clients: what the recorded requests of one connection show."""

from __future__ import annotations

import numpy as np

from kquota.audit.batch import OTHER_LIBRARY, UNANSWERED
from kquota.audit.clients import SYNCHRONOUS, Requests, consumer, producer
from kquota.audit.sources.request_line import sender_of


def test_nobody_waits_for_answers_that_never_come() -> None:
    """Times that wander show a client that waits, but with acks=0 there is no answer."""
    gaps = 40 + np.random.default_rng(7).integers(0, 12, 400)
    requests = Requests(np.cumsum(gaps), np.full(400, 2000), np.zeros(400, np.int64), OTHER_LIBRARY)
    assert SYNCHRONOUS in {guess.kind for guess in producer(requests).guesses}
    kinds = {guess.kind for guess in producer(requests._replace(answered=False)).guesses}
    assert kinds
    assert SYNCHRONOUS not in kinds


def test_acks_are_part_of_the_sender() -> None:
    """Beside the library and the partition."""
    fields = {"clientInformation": {"softwareName": "librdkafka"}}
    topics = [{"partitionData": [{"index": 2}]}]
    assert sender_of(fields, topics, -1) == OTHER_LIBRARY + 4 * 3
    assert sender_of(fields, topics, 0) == OTHER_LIBRARY + 4 * 3 + UNANSWERED
    assert sender_of(fields, [], 0) == OTHER_LIBRARY + UNANSWERED


def test_the_mute_is_no_time_of_processing() -> None:
    """A consumer that processes for 600 ms and is muted for 900 thinks for 600."""
    times, sizes, throttle = [], [], []
    for number in range(60):
        times += [1500 * number, 1500 * number + 600]
        sizes += [80_000, 1]
        throttle += [0, 900]
    guesses = consumer(Requests(np.array(times), np.array(sizes), np.array(throttle), 0)).guesses
    (busy,) = [guess for guess in guesses if guess.max_bytes == 80_000]
    assert busy.thinks[1:].tolist() == [600] * 59
