"""The controller mutation quota by hand."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kquota.core.enforcement import Kernel, Mode, MutationSensor, QuotaWindows, kernel
from kquota.core.quotas.quota import Value
from tests.core.enforcement import strategies as given_

T0 = 1_700_000_000_000
HOUR = 3_600_000


def ten_a_second(using: Kernel, *, expires: bool = True) -> MutationSensor:
    """10 partitions a second, 100 at once."""
    return MutationSensor(10, windows=QuotaWindows(samples=10), using=using, expires=expires)


def accepted(sensor: MutationSensor, now: int, topics: list[int]) -> list[bool]:
    return [topic.accepted for topic in sensor.request(now, topics, strict=True).topics]


def test_a_request_is_accepted_in_part_and_the_topic_that_empties_the_bucket_in_full(using: Kernel) -> None:
    sensor = ten_a_second(using)
    response = sensor.request(T0, [60, 60, 1, 1], strict=True)
    assert [topic.accepted for topic in response.topics] == [True, True, False, False]
    assert [topic.throttle_ms for topic in response.topics] == [0, 0, 2000, 2000]
    assert response.throttle_ms == 2000
    assert response.topics[-1].tokens == sensor.measure(T0) == -20.0


def test_zero_tokens_are_enough_and_zero_partitions_are_checked(using: Kernel) -> None:
    sensor = ten_a_second(using)
    assert accepted(sensor, T0, [100, 0, 1, 0]) == [True, True, True, False]


def test_a_rejection_can_carry_no_delay(using: Kernel) -> None:
    sensor = MutationSensor(10_000, using=using)
    response = sensor.request(T0, [110_004, 1], strict=True)
    assert response.topics[1] == (False, True, 0, 0, -4.0)
    assert response.throttle_ms == 0


def test_permissive_charges_first_never_rejects_and_tells_the_last_delay(using: Kernel) -> None:
    sensor = ten_a_second(using)
    response = sensor.request(T0, [90, 90, 90], strict=False)
    assert [topic.accepted for topic in response.topics] == [True] * 3
    assert [topic.throttle_ms for topic in response.topics] == [0, 8000, 17_000]
    assert response.throttle_ms == 17_000
    assert sensor.request(T0 + 17_000, [0], strict=False).throttle_ms == 0


def test_delays_of_25_days_wrap(using: Kernel) -> None:
    sensor = MutationSensor(0.001, windows=QuotaWindows(samples=1), using=using)
    sensor.request(T0, [3000], strict=True)
    response = sensor.request(T0, [1], strict=True)
    assert response.topics[0].delay_ms == 2_999_999_000
    assert response.topics[0].throttle_ms == response.throttle_ms == 2_999_999_000 - 2**32
    # The response is what is left in 64 bits, then wrapped.
    assert sensor.request(T0, [1], strict=True, waited_ms=900_000_000).throttle_ms == 2_099_999_000


def test_a_quota_of_zero_accepts_once_and_its_delay_wraps(using: Kernel) -> None:
    sensor = MutationSensor(0, using=using)
    assert sensor.request(T0, [3, 1], strict=True) == (
        ((True, False, 0, 0, -3.0), (False, True, -1, 2**63 - 1, -3.0)),
        -1,
    )
    assert sensor.request(T0 + 1000, [1], strict=True, waited_ms=5).throttle_ms == -6
    assert sensor.request(T0 + 1000, [1], strict=True, waited_ms=-5).throttle_ms == 0


def test_removing_the_quota_forgives_all_debt(using: Kernel) -> None:
    sensor = ten_a_second(using)
    sensor.request(T0, [1_000_000], strict=True)
    sensor.limit = None
    # The bucket is refilled by time only, if very fast.
    assert accepted(sensor, T0, [1]) == [False]
    assert accepted(sensor, T0 + 1, [1_000_000]) == [True]
    sensor.limit = 10
    assert sensor.measure(T0 + 1) == 100.0


def test_an_hour_without_a_record_clears_any_debt(using: Kernel) -> None:
    sensor = ten_a_second(using)
    sensor.request(T0, [10_000_000], strict=True)
    for at in (1000, HOUR - 1, HOUR):  # rejections are no activity
        assert accepted(sensor, T0 + at, [1]) == [False]
    assert accepted(sensor, T0 + HOUR + 1, [1]) == [True]
    assert sensor.measure(T0 + HOUR + 1) == 99.0


limits = st.sampled_from([None, 0, 0.001, 0.5, 1, 10, 25.681, 1000])
gaps = st.one_of(given_.gaps, st.sampled_from([HOUR - 1, HOUR, HOUR + 1]))
topics = st.lists(st.one_of(st.integers(0, 30), st.integers(0, 10_000_000)), max_size=4)


@settings(deadline=None)
@given(
    given_.windows,
    limits,
    limits,
    st.lists(st.tuples(gaps, topics, st.booleans(), st.integers(0, 5000)), min_size=1, max_size=40),
)
def test_compiled_is_plain(
    windows: QuotaWindows, limit: Value | None, later: Value | None, events: list[tuple[int, list[int], bool, int]]
) -> None:
    outcomes = []
    for using in (kernel(Mode.PLAIN), kernel(Mode.COMPILED)):
        sensor = MutationSensor(limit, windows=windows, using=using)
        outcome: list[object] = []
        now = given_.START
        for index, (gap, partitions, strict, waited) in enumerate(events):
            now += gap
            if index == len(events) // 2:
                sensor.limit = later
            outcome.append(sensor.request(now, partitions, strict=strict, waited_ms=waited))
        outcome += [list(sensor.counter.floats), list(sensor.counter.ints)]
        outcomes.append(outcome)
    assert outcomes[0] == outcomes[1]


def test_a_limit_below_zero_makes_a_delay_that_wraps_twice(using: Kernel) -> None:
    # ZooKeeper may hold one. The delay is the lowest long; half a second later it has wrapped to one of the highest,
    # whose low 32 bits are -500: so Kafka 3.7.2 answers.
    sensor = MutationSensor(-1, windows=QuotaWindows(samples=1), using=using)
    response = sensor.request(T0, [10**18], strict=False, waited_ms=500)
    assert (response.topics[0].delay_ms, response.throttle_ms) == (-(2**63), -500)
