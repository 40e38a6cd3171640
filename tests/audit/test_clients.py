"""Kinds of clients: what the recorded requests of one connection show."""

from __future__ import annotations

import numpy as np

from kquota.audit.batch import JAVA, OTHER_LIBRARY, UNANSWERED
from kquota.audit.clients import PACED, SOCKET_MS, SYNCHRONOUS, Requests, consumer, producer, resent
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


def test_what_waits_too_long_is_sent_again_at_once() -> None:
    """librdkafka gives up its connection after 60 s, and sends what waits in one request for each partition."""
    times = np.arange(1000) * 100
    requests = Requests(times, np.full(1000, 2107), np.zeros(1000, np.int64), OTHER_LIBRARY, partitions=3)
    (queue,) = [guess for guess in producer(requests).guesses if guess.kind == PACED]
    charged = times * 2  # the 601st waits for more than SOCKET_MS

    again = resent(queue, charged)
    assert again is not None
    assert again.times[:601].tolist() == times[:601].tolist()
    assert again.times[601:].tolist() == [times[601] + SOCKET_MS] * 3
    assert int(again.sizes[601:].sum()) == 399 * 2000 + 107
    assert np.ptp(again.sizes[601:]) <= 1

    assert resent(queue, times + SOCKET_MS) is None
    for other in (requests._replace(library=JAVA), requests._replace(answered=False)):
        assert all(resent(guess, charged) is None for guess in producer(other).guesses)
