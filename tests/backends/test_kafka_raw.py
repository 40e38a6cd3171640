"""Quotas as brokers judge them, on a real one."""

from collections.abc import Iterator

import pytest

from kquota import EntityType, QuotaFilter
from kquota.backends.kafka.raw import BrokerError, RawQuota, RawQuotas
from tests.brokers.kafka import KafkaBroker
from tests.support.waiting import settled

ENTITY = {"user": "raw", "client-id": None}
PAIRS = QuotaFilter({EntityType.USER: "raw"})


@pytest.fixture
def raw(kraft: KafkaBroker) -> Iterator[RawQuotas]:
    with RawQuotas(kraft.bootstrap) as quotas:
        yield quotas


def shown(raw: RawQuotas, expected: list[RawQuota]) -> list[RawQuota]:
    return settled(lambda: raw.describe(PAIRS), expected)


def test_any_number_goes_to_the_broker_and_comes_back(raw: RawQuotas) -> None:
    raw.alter(ENTITY, {"producer_byte_rate": 1024.0000001, "request_percentage": 1e300})
    quota = RawQuota(ENTITY, {"producer_byte_rate": 1024.0000001, "request_percentage": 1e300})
    assert shown(raw, [quota]) == [quota]
    raw.alter(ENTITY, {}, ["producer_byte_rate", "request_percentage", "unheard_of"])
    assert shown(raw, []) == []


@pytest.mark.parametrize(
    ("values", "remove", "message"),
    [
        ({"producer_byte_rate": 0.0}, [], "Quota producer_byte_rate must be greater than 0"),
        ({"producer_byte_rate": 5.0, "unheard_of": 1.0}, [], "Invalid configuration key unheard_of"),
        ({}, ["unheard_of", "unheard_of"], "Ignoring duplicate entity ClientQuotaEntity"),
    ],
)
def test_a_refusal_is_the_brokers_own(
    raw: RawQuotas, values: dict[str, float], remove: list[str], message: str
) -> None:
    with pytest.raises(BrokerError, match=message) as caught:
        raw.alter(ENTITY, values, remove)
    assert caught.value.code == 42
    assert raw.describe(PAIRS) == []
