"""What brokers tell of migrated quotas, by scripted ones: real ones of today take no empty name."""

from typing import Any

import pytest

from kquota import DEFAULT, Entity, EntityType, QuotaKey, Rejected
from kquota.backends import wire
from kquota.backends.kafka import KafkaBackend
from tests.backends.test_kafka_peers import Peer

KRAFT = [wire.ApiVersion(key, 0, 1) for key in (18, 48, 55)]


def entry(value: float, **names: str | None) -> wire.QuotaEntry:
    parts = [wire.EntityData(kind.replace("_", "-"), name) for kind, name in names.items()]
    return wire.QuotaEntry(parts, [wire.ValueData("producer_byte_rate", value), wire.ValueData("other", 1.0)])


def broker(*answers: wire.DescribeClientQuotasResponse, versions: list[wire.ApiVersion] = KRAFT) -> Peer:
    left = list(answers)

    def answer(request: wire.Request, header: wire.RequestHeader) -> Any:
        if isinstance(request, wire.ApiVersionsRequest):
            return wire.ApiVersionsResponse(0, versions)
        return left.pop(0)

    return Peer(answer)


def test_empty_names_are_read() -> None:
    """Apart from the entities that have names; components come in any order."""
    entries = [
        entry(1.0, user="alice"),
        entry(2.0, user=""),
        entry(3.0, client_id="", user=None),
        entry(4.0, user=None),
        entry(float("nan"), client_id=""),
    ]
    passing = wire.DescribeClientQuotasResponse(0, 7, None, None)
    shown = wire.DescribeClientQuotasResponse(0, 0, "", entries)
    with broker(passing, shown) as peer, KafkaBackend(peer.bootstrap) as quotas:
        snapshot, nameless = quotas.migrated()

    producer = QuotaKey.PRODUCER_BYTE_RATE
    assert dict(snapshot) == {Entity(user="alice"): {producer: 1}, Entity(user=DEFAULT): {producer: 4}}
    assert nameless == {
        ((EntityType.USER, ""),): {producer: 2},
        ((EntityType.USER, None), (EntityType.CLIENT_ID, "")): {producer: 3},
        ((EntityType.CLIENT_ID, ""),): {},
    }


def test_brokers_that_run_with_zookeeper() -> None:
    """Both sides would be the same one."""
    shown = wire.DescribeClientQuotasResponse(0, 0, "", [])
    with (
        broker(shown, versions=KRAFT[:2]) as peer,
        KafkaBackend(peer.bootstrap) as quotas,
        pytest.raises(Rejected, match="run with ZooKeeper"),
    ):
        quotas.migrated()
