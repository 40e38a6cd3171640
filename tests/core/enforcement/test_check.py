"""Delays by hand."""

import pytest

from kquota.core.enforcement import FetchSensor, Generation, Kernel, Kind, ProduceSensor, QuotaWindows, RequestSensor
from kquota.core.enforcement.arithmetic import INT_MAX
from kquota.core.enforcement.broker import NOBODY
from kquota.core.enforcement.kind import REQUEST
from tests.support.enforcement import fetch_with_request, produce_with_request

T0 = 1_700_000_000_000


def test_equality_is_within_the_limit_and_what_rounds_to_zero_is_still_a_violation(using: Kernel) -> None:
    sensor = ProduceSensor(1_000_000_000, using=using)
    assert sensor.produce(T0, 10_000_000_000) == (0, 1e9, 10_000, False)
    verdict = sensor.produce(T0, 1)
    assert verdict.violated
    assert verdict.throttle_ms == 0


def test_half_a_millisecond_rounds_up(using: Kernel) -> None:
    assert ProduceSensor(10_000, using=using).produce(T0, 100_005).throttle_ms == 1  # 0.5
    assert ProduceSensor(10_000, using=using).produce(T0, 100_025).throttle_ms == 3  # 2.5


def test_delays_of_25_days_wrap(using: Kernel) -> None:
    assert ProduceSensor(1, using=using).produce(T0, 2_147_494).throttle_ms == -2_147_483_296
    assert ProduceSensor(1, using=using).produce(T0, 2_147_493).throttle_ms == 2_147_483_000


def test_delays_of_25_days_are_cut_since_4_4(using: Kernel) -> None:
    """Kafka 4.4.0 blocks a client at once whose delay wrapped below 0 before."""
    capped = Generation.for_version("4.4.0")
    assert ProduceSensor(1, generation=capped, using=using).produce(T0, 2_147_494).throttle_ms == INT_MAX
    assert ProduceSensor(1, generation=capped, using=using).produce(T0, 2_147_493).throttle_ms == 2_147_483_000
    assert FetchSensor(0, generation=capped, using=using).fetch(T0, 1).throttle_ms == INT_MAX


def test_a_quota_of_zero_never_delays_bytes_and_always_delays_requests(using: Kernel) -> None:
    assert ProduceSensor(0, using=using).produce(T0, 1).throttle_ms == -1
    assert ProduceSensor(0, using=using).produce(T0, 0).violated is False
    assert FetchSensor(0, using=using).fetch(T0, 1).throttle_ms == -1
    assert RequestSensor(0, windows=QuotaWindows(window_seconds=5), using=using).request(T0, 1).throttle_ms == 5000


def test_a_request_is_delayed_by_one_window_at_most(using: Kernel) -> None:
    sensor = RequestSensor(1, windows=QuotaWindows(samples=5, window_seconds=2), using=using)
    assert sensor.request(T0, 10**12).throttle_ms == 2000


def test_network_time_weighs_on_the_next_request(using: Kernel) -> None:
    sensor = RequestSensor(10, using=using)
    sensor.network(T0, 1_100_000_000)  # 110 % s, over 10 s
    assert sensor.request(T0, 0).throttle_ms == 1000
    assert RequestSensor(10, using=using).request(T0, 0).throttle_ms == 0


def test_a_delayed_fetch_is_taken_back_and_an_undelayed_violation_is_not(using: Kernel) -> None:
    sensor = FetchSensor(500, using=using)
    assert [sensor.fetch(T0, size).throttle_ms for size in (5001, 5000, 1)] == [2, 0, 2]
    tiny = FetchSensor(1_000_000_000, using=using)
    assert tiny.fetch(T0, 10_000_000_001).violated
    assert tiny.fetch(T0, 0).violated


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


def test_a_changed_limit_applies_at_the_next_event_and_keeps_the_history(using: Kernel) -> None:
    sensor = ProduceSensor(None, using=using)
    assert sensor.produce(T0, 10_000) == (0, 1000.0, 10_000, False)
    sensor.limit = 500
    assert sensor.produce(T0, 0).throttle_ms == 10_000
    sensor.limit = None
    assert sensor.produce(T0, 0).throttle_ms == 0


def test_bytes_then_request_time_and_ties_go_to_the_request_quota(using: Kernel) -> None:
    bandwidth, requests = ProduceSensor(1000, using=using), RequestSensor(1, using=using)
    assert produce_with_request(bandwidth, requests, T0, 10_100, 101_000_000, 1) == (100, 100, 100, REQUEST)
    assert produce_with_request(bandwidth, requests, T0, 1, 0, 1) == (101, 100, 101, Kind.PRODUCE)


def test_acks_0_exempts_the_thread_time_but_not_the_bytes(using: Kernel) -> None:
    bandwidth, requests = ProduceSensor(1000, using=using), RequestSensor(1, using=using)
    assert produce_with_request(bandwidth, requests, T0, 10_000, 10**12, 0) == (0, 0, 0, NOBODY)
    assert produce_with_request(bandwidth, requests, T0, 100, 0, 1) == (100, 0, 100, Kind.PRODUCE)


def test_either_quota_takes_the_fetched_bytes_back_but_never_the_thread_time(using: Kernel) -> None:
    bandwidth, requests = FetchSensor(1000, using=using), RequestSensor(1, using=using)
    assert fetch_with_request(bandwidth, requests, T0, 10_000, 101_000_000) == (0, 100, 100, REQUEST)
    assert bandwidth.kernel.measure(bandwidth.counter, T0) == 0.0
    assert fetch_with_request(bandwidth, requests, T0, 10_000, 0) == (0, 100, 100, REQUEST)


def test_the_generations_differ(using: Kernel) -> None:
    def delays(generation: Generation) -> list[int]:
        sensor = ProduceSensor(500, generation=generation, using=using)
        return [sensor.produce(T0 + 250 * step, 150).throttle_ms for step in range(80)]

    assert delays(Generation.N_BY_START) != delays(Generation.N_PLUS_1_BY_LAST)
