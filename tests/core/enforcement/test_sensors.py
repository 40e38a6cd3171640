"""The manager: whose sensor, and which limit, while quotas change."""

import pytest

from kquota.core.enforcement import (
    Generation,
    Kind,
    ProduceSensor,
    QuotaWindows,
    RequestSensor,
)
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, Value
from tests.support.enforcement import ClientQuotaManager, produce_with_request, replay_counter

KEY = QuotaKey.PRODUCER_BYTE_RATE
T0 = 1_700_000_000_000


def manager(values: dict[Entity, Value] | None = None) -> ClientQuotaManager[ProduceSensor]:
    return ClientQuotaManager(KEY, ProduceSensor, values)


def charged(quotas: ClientQuotaManager[ProduceSensor], user: str, client_id: str) -> tuple[str, Value | None]:
    charge = quotas.charge(user, client_id)
    assert charge is not None
    return str(charge.identity), charge.sensor.limit


def test_after_the_last_removal_recording_goes_on() -> None:
    quotas = manager({Entity(user="alice"): 100})
    quotas.update(Entity(user="alice"), None)
    assert charged(quotas, "alice", "app") == ("alice:", None)


def test_a_client_that_moves_comes_back_to_its_old_sensor() -> None:
    quotas = manager({Entity(user="alice"): 1000, Entity(client_id="other"): 1})
    before = quotas.charge("alice", "app")
    quotas.update(Entity(user="alice", client_id="app"), 500)
    assert charged(quotas, "alice", "app") == ("alice:app", 500)
    quotas.update(Entity(user="alice", client_id="app"), None)
    assert quotas.charge("alice", "app") == before


@pytest.mark.parametrize(
    ("user", "tag"), [("CN=app,OU=x", "CN%3Dapp%2COU%3Dx"), ("a~b *", "a%7Eb%20%2A"), ("ü", "%C3%BC")]
)
def test_users_are_encoded_in_the_identity(user: str, tag: str) -> None:
    assert charged(manager({Entity(user=user): 7}), user, "") == (f"{tag}:", 7)


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
