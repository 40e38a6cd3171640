"""When a sensor starts anew."""

import pytest

from kquota.core.enforcement import (
    Generation,
    Kind,
    ProduceSensor,
    QuotaWindows,
    RequestSensor,
)
from tests.support.enforcement import produce_with_request, replay_counter

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
