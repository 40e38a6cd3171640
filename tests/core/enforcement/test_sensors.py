"""Sensors: what the answers of Kafka's own classes in tests/vectors do not hold."""

import pytest

from kquota.core.enforcement import Generation, Kernel, Kind, MutationSensor, QuotaWindows
from kquota.core.enforcement.arithmetic import INT_MAX
from kquota.core.enforcement.kind import REQUEST
from tests.support.enforcement import FetchSensor, ProduceSensor, RequestSensor, produce_with_request, replay_counter

T0 = 1_700_000_000_000


@pytest.mark.parametrize(("gap", "rate"), [(3_600_000, 200.0), (3_600_001, 100.0)])
def test_a_sensor_that_recorded_nothing_for_more_than_an_hour_starts_anew(gap: int, rate: float) -> None:
    windows = QuotaWindows(samples=101, window_seconds=60)
    kept = ProduceSensor(windows=windows, expires=False)
    for sensor, expected in ((ProduceSensor(windows=windows), rate), (kept, 200)):
        sensor.produce(T0, 600_000)
        assert sensor.produce(T0 + gap, 600_000).rate == pytest.approx(expected, rel=1e-6)
    summary = replay_counter(
        Kind.PRODUCE, [T0, T0 + gap], [600_000, 600_000], None, windows=windows, generation=Generation.N_PLUS_1_BY_LAST
    )
    assert summary.peak_rate == pytest.approx(rate, rel=1e-6)


def test_what_is_exempt_does_not_keep_a_sensor_alive() -> None:
    windows = QuotaWindows(samples=101, window_seconds=60)
    bandwidth, requests = ProduceSensor(windows=windows), RequestSensor(windows=windows)
    for minutes, acks in ((0, 1), (40, 0), (80, 1)):
        produce_with_request(bandwidth, requests, T0 + minutes * 60_000, 600_000, 1_000_000_000, acks)
    assert bandwidth.produce(T0 + 80 * 60_000, 0).rate == pytest.approx(300)
    assert requests.request(T0 + 80 * 60_000, 0).rate == pytest.approx(100 / 6000)


def test_delays_of_25_days_are_cut_since_4_4(using: Kernel) -> None:
    """Kafka 4.4.0 blocks a client at once whose delay wrapped below 0 before."""
    capped = Generation.for_version("4.4.0")
    assert ProduceSensor(1, generation=capped, using=using).produce(T0, 2_147_494).throttle_ms == INT_MAX
    assert ProduceSensor(1, generation=capped, using=using).produce(T0, 2_147_493).throttle_ms == 2_147_483_000
    assert FetchSensor(0, generation=capped, using=using).fetch(T0, 1).throttle_ms == INT_MAX


@pytest.mark.parametrize(
    ("limit", "samples", "seconds", "expected"),
    [
        (500, 11, 1, 5000),
        (1000, 1, 1, 0),
        (1_048_576, 4, 3, 9_437_184),
        (333.39, 11, 1, 3333),
        (10**9, 11, 1, 2**31 - 1),
        (None, 11, 1, 2**31 - 1),
        (None, 1, 1, 2**31 - 1),
    ],
)
def test_what_a_fetch_may_return(using: Kernel, limit: float | None, samples: int, seconds: int, expected: int) -> None:
    sensor = FetchSensor(limit, windows=QuotaWindows(samples, seconds), using=using)
    assert sensor.max_fetch_bytes == expected


def test_bytes_then_request_time_and_ties_go_to_the_request_quota(using: Kernel) -> None:
    bandwidth, requests = ProduceSensor(1000, using=using), RequestSensor(1, using=using)
    assert produce_with_request(bandwidth, requests, T0, 10_100, 101_000_000, 1) == (100, 100, 100, REQUEST)
    assert produce_with_request(bandwidth, requests, T0, 1, 0, 1) == (101, 100, 101, Kind.PRODUCE)


def test_a_quota_of_zero_accepts_once_and_its_delay_wraps(using: Kernel) -> None:
    sensor = MutationSensor(0, using=using)
    assert sensor.request(T0, [3, 1], strict=True) == (
        ((True, False, 0, 0, -3.0), (False, True, -1, 2**63 - 1, -3.0)),
        -1,
    )
    assert sensor.request(T0 + 1000, [1], strict=True, waited_ms=5).throttle_ms == -6
    assert sensor.request(T0 + 1000, [1], strict=True, waited_ms=-5).throttle_ms == 0


def test_a_limit_below_zero_makes_a_delay_that_wraps_twice(using: Kernel) -> None:
    # ZooKeeper may hold one. The delay is the lowest long; half a second later it has wrapped to one of the highest,
    # whose low 32 bits are -500: so Kafka 3.7.2 answers.
    sensor = MutationSensor(-1, windows=QuotaWindows(samples=1), using=using)
    response = sensor.request(T0, [10**18], strict=False, waited_ms=500)
    assert (response.topics[0].delay_ms, response.throttle_ms) == (-(2**63), -500)
