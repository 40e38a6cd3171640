"""Kinds of clients: what the recorded requests of one connection show."""

import numpy as np

from kquota.audit.batch import JAVA, OTHER_LIBRARY, UNANSWERED, Int64s
from kquota.audit.evidence.clients import (
    PACED,
    SATURATING,
    SOCKET_MS,
    SYNCHRONOUS,
    Requests,
    consumer,
    producer,
    redrawn,
    resent,
)
from kquota.audit.sources.request_line import sender_of


def _requests(
    times: Int64s,
    size: int,
    library: int = OTHER_LIBRARY,
    *,
    throttle: Int64s | None = None,
    partitions: Int64s | None = None,
) -> Requests:
    """Requests of one size; without throttle times and to one partition, unless these are given."""
    nothing = np.zeros(len(times), np.int64)
    return Requests(
        times,
        np.full(len(times), size),
        nothing if throttle is None else throttle,
        library,
        nothing if partitions is None else partitions,
    )


def test_nobody_waits_for_answers_that_never_come() -> None:
    """Times that wander show a client that waits, but with acks=0 there is no answer."""
    gaps = 40 + np.random.default_rng(7).exponential(6, 400).astype(np.int64)
    requests = _requests(np.cumsum(gaps), 2000)
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
    nowhere = np.zeros(len(times), np.int64)
    guesses = consumer(Requests(np.array(times), np.array(sizes), np.array(throttle), 0, nowhere)).guesses
    (busy,) = [guess for guess in guesses if guess.max_bytes + guess.overhead == 80_000]
    assert busy.thinks[1:].tolist() == [600] * 59


def test_a_full_response_may_be_what_the_broker_allowed() -> None:
    """A broker sends no more than a quota lets through in a window: what came meanwhile may have come evenly."""
    times = np.ravel([[10_000 * number, 10_000 * number + 1] for number in range(6)])
    throttle = np.tile([0, 9_900], 6)
    sizes = np.where(throttle > 0, 1, 896_640)
    guesses = consumer(Requests(times, sizes, throttle, 0, np.zeros(len(times), np.int64))).guesses
    assert guesses[0].thinks[1] >= 0
    (even,) = [guess for guess in guesses if len(guess.times) > 6]
    assert int(even.sizes[1:].max()) < 896_640 / 10


def test_chance_decides_how_a_few_large_requests_share_what_is_sent_at_once() -> None:
    """As many bytes go out in other requests, of which one holds a million; less than one holds stays as it was."""
    sizes = np.array([617_105, 659_315, 701_525, 281_435, 100_279, 1_000])
    times = np.array([0, 13, 25, 27, 8_000, 8_010])
    (queue,) = producer(_requests(times, 1)._replace(sizes=sizes)).guesses
    drawn = [redrawn(queue, np.random.default_rng(seed)) for seed in range(20)]
    assert {int(again.sizes.sum()) for again in drawn} == {int(sizes.sum())}
    assert {len(again.sizes) for again in drawn} == {5, 6}
    assert len({int(again.sizes[0]) for again in drawn}) == 20
    assert all({100_279, 1_000} <= set(again.sizes.tolist()) for again in drawn)
    (empty,) = producer(_requests(times, 0)).guesses
    assert redrawn(empty, np.random.default_rng(0)).sizes.tolist() == [0] * 6


def test_what_waits_too_long_is_sent_again_at_once() -> None:
    """librdkafka gives up its connection after 60 s, and sends what waits in one request for each partition."""
    times = np.arange(1000) * 100
    requests = _requests(times, 2107, partitions=np.arange(1000) % 3)
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


def test_a_schedule_on_a_busy_machine_waits_for_nobody() -> None:
    """Its late requests bring the next ones nearer; a client that waits is late for good."""
    late = np.random.default_rng(3).exponential(12, 450).astype(np.int64)
    # A busy spell moves all requests for a while, so that the times wander.
    spells = 40 * ((np.arange(450) // 30) % 2)
    paced = producer(_requests(np.sort(67 * np.arange(450) + late + spells), 2107)).guesses
    assert paced[0].kind == PACED
    waits = producer(_requests(np.cumsum(67 + late), 2107)).guesses
    assert waits[0].kind == SYNCHRONOUS


def _held_back(early_ms: int) -> Requests:
    """A client that is muted again and again from its 101st request on, and has gaps of `early_ms` before."""
    early = early_ms * np.arange(100)
    later = early[-1] + early_ms + np.cumsum(np.tile([1, 1, 1, 96], 300))
    throttle = np.concatenate([np.zeros(100, np.int64), np.tile([0, 0, 95, 0], 300)])
    return _requests(np.concatenate([early, later]), 208, throttle=throttle)


def test_who_had_gaps_before_the_first_mute_has_a_queue() -> None:
    """It goes on at that pace while it is muted. Whoever had none sends as fast as it can."""
    assert producer(_held_back(1)).guesses[0].kind == SATURATING
    seen = producer(_held_back(25))
    assert seen.guesses[0].kind == PACED
    arrived = seen.guesses[0].times
    recorded = _held_back(25).times
    assert (arrived <= recorded).all()
    assert int(np.diff(arrived[110:]).max()) <= 26
    assert SATURATING in {guess.kind for guess in seen.guesses}  # it may have stopped to wait


def test_a_schedule_goes_on_at_its_pace_while_one_mute_follows_another() -> None:
    """What is sent at once in the end had come in the time of all mutes, and not in that of the last."""
    early, muted, burst = 100 * np.arange(60), 6000 + 1000 * np.arange(10), 16_000 + np.arange(91)
    later = 16_100 + 100 * np.arange(50)
    throttle = np.concatenate([np.zeros(60, np.int64), np.full(10, 1000), np.zeros(141, np.int64)])
    seen = producer(_requests(np.concatenate([early, muted, burst, later]), 2000, throttle=throttle))
    (kept,) = [guess.times for guess in seen.guesses if "keep the pace" in guess.why]
    assert int(np.diff(kept).max()) <= 101


def test_the_pace_of_a_queue_is_one_of_bytes() -> None:
    """A request of what has waited holds as much as many before: it came no faster."""
    early, muted = 20 * np.arange(150), 3000 + 7000 * np.arange(40)
    sizes = np.concatenate([np.full(150, 3_000), np.full(40, 1_000_000)])
    throttle = np.concatenate([np.zeros(150, np.int64), np.full(40, 6_990)])
    requests = _requests(np.concatenate([early, muted]), 1, throttle=throttle)._replace(sizes=sizes)
    (kept,) = [guess for guess in producer(requests).guesses if "keep the pace" in guess.why]
    came = np.cumsum(kept.sizes)
    assert came[-1] == sizes.sum()
    # 150 kB/s before the first mute, and after it.
    assert np.abs(came[151:] - came[150] - 150 * (kept.times[151:] - 3000)).max() < 300
    assert int(kept.sizes[151:].max()) < 100_000, "nothing of 1 MB comes at once"


def test_who_waits_for_answers_with_uneven_pauses_may_have_waited_when_it_was_muted() -> None:
    """A queue would send at once what came meanwhile; where one request comes after a mute, nobody knows."""
    gaps = np.random.default_rng(3).integers(50, 150, 400)
    throttle = np.where(np.arange(400) % 8 == 0, 300, 0) * (np.arange(400) >= 100) * (np.arange(400) < 300)
    times = np.cumsum(gaps + np.concatenate([[0], throttle[:-1]]))
    assert SYNCHRONOUS in {guess.kind for guess in producer(_requests(times, 10_000, throttle=throttle)).guesses}
    burst = times.copy()
    burst[1:][throttle[:-1] > 0] = times[:-1][throttle[:-1] > 0] + 301
    for late in (1, 2):  # two requests follow each mute at once
        burst[1 + late :][throttle[: -1 - late] > 0] = times[: -1 - late][throttle[: -1 - late] > 0] + 301 + late
    queued = producer(_requests(np.sort(burst), 10_000, throttle=throttle)).guesses
    assert SYNCHRONOUS not in {guess.kind for guess in queued}


def test_who_sent_less_while_it_was_muted_did_not_get_all() -> None:
    """A queue brings all of it later; what a full queue drops, or blocks, never comes."""
    early, rested = 20 * np.arange(300), 30_000 + 20 * np.arange(300)
    throttle = np.concatenate([np.zeros(300, np.int64), np.full(200, 100), np.zeros(300, np.int64)])
    for step, drained in ((100, False), (20, True)):
        times = np.concatenate([early, 6000 + step * np.arange(200), rested])
        assert producer(_requests(times, 3000, throttle=throttle)).drained is drained


def _catching_up(before_ms: int) -> Requests:
    """A consumer that is first muted so many ms after its first request, and has drained what waited 20 s later."""
    early, late = np.arange(0, before_ms, 500), before_ms + 20_000 + 500 * np.arange(40)
    muted = np.ravel([[before_ms + 1000 * number, before_ms + 1000 * number + 990] for number in range(20)])
    times = np.concatenate([early, muted, late])
    throttle = np.concatenate([0 * early, np.tile([980, 0], 20), 0 * late])
    sizes = np.where(throttle > 0, 1, 500_000)
    return Requests(times, sizes, throttle, 0, np.zeros(len(times), np.int64))


def test_who_is_muted_again_and_again_may_have_lagged() -> None:
    """All that it fetched until the last of these mutes may have been there at the first; later it keeps up."""
    for before_ms, since in ((500, 0), (5000, 5000)):
        early = len(range(0, before_ms, 500))
        (lagged,) = [guess for guess in consumer(_catching_up(before_ms)).guesses if "since the first" in guess.why]
        assert lagged.times[: early + 20].tolist() == [*range(0, before_ms, 500)][:early] + [since] * 20
        assert (np.diff(lagged.times[early + 21 :]) == 500).all()


def test_a_queue_without_keys_fills_one_partition_after_the_other() -> None:
    """Requests have a batch header less while they wait together, so that more of them make 16 kB."""
    sizes = 220
    turns = np.repeat([0, 1, 2, 0, 1, 2], 100)
    (queue, *_) = producer(_requests(25 * np.arange(600), sizes, JAVA, partitions=turns)).guesses
    lengths = np.diff(np.flatnonzero(np.diff(queue.partitions, prepend=-1)))
    assert set(lengths.tolist()) <= {144, 145, 146}  # 113 bytes each
    keyed = np.arange(600) % 3
    (queue, *_) = producer(_requests(25 * np.arange(600), sizes, JAVA, partitions=keyed)).guesses
    assert queue.partitions.tolist() == keyed.tolist()


def test_a_full_response_leaves_data_that_was_there() -> None:
    """And each response has a header beside its records: that of an empty one, and of a partition at least."""
    sizes = np.array([2_097_264, 2_097_264, 2_097_264, 900_000, 108, 108, 3000])
    nothing = np.zeros(len(sizes), np.int64)
    times = 100 * np.arange(len(sizes))
    (late,) = consumer(Requests(times, sizes, nothing, OTHER_LIBRARY, nothing)).guesses
    assert late.times.tolist() == [0, 0, 0, 0, 600]
    assert late.overhead == 108
    assert late.units == int(sizes[sizes > 108].sum())
