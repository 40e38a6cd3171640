"""The contract on a real broker in ZooKeeper mode (Kafka 3.9.1), and what it makes of what kquota writes beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest

from kquota.backends import QuotaBackend, znode
from kquota.backends.kafka import KafkaBackend
from kquota.core.alteration import Alteration
from kquota.core.entity import Entity
from kquota.errors import InvalidRequest, Rejected
from kquota.sandbox import Sandbox
from tests.backends.contract import Limit, ZooKeeperContract
from tests.backends.neighbours import ZooKeeperNeighbour
from tests.brokers.zookeeper_mode import USERS, ZooKeeperModeBroker


@pytest.fixture(scope="module")
def broker(zookeeper: Sandbox) -> Iterator[ZooKeeperModeBroker]:
    with ZooKeeperModeBroker(f"{zookeeper.connect}/zookeeper-mode") as started:
        yield started


@pytest.fixture
def chroot(broker: ZooKeeperModeBroker) -> Iterator[str]:
    """The broker's own; no quotas are left in it, nor in the broker's memory."""
    from kazoo.client import KazooClient

    yield broker.zookeeper
    with KafkaBackend(broker.bootstrap) as backend:
        results = backend.alter(
            [Alteration(entity, remove=frozenset(values)) for entity, values in backend.describe().items()]
        )
    assert [result.error for result in results if result.error is not None] == []
    client = KazooClient(broker.zookeeper)
    client.start()
    try:
        for root in znode.ENTITY_ROOTS.values():
            for name in client.get_children(root):
                if name not in USERS:
                    client.delete(f"{root}/{name}", recursive=True)
    finally:
        client.stop()
        client.close()


class TestKafkaBackendInZooKeeperMode(ZooKeeperContract):
    limits: ClassVar[Mapping[Entity, Limit]] = {
        **dict.fromkeys(
            (Entity(ip="::1"), Entity(ip="0:0:0:0:0:0:0:1"), Entity(ip="<default>")),
            Limit(
                InvalidRequest,
                "%3.*not a valid IP or resolvable host",
                "Kafka: brokers in ZooKeeper mode sanitize the name of an ip before they look it up",
            ),
        ),
        **dict.fromkeys(
            (Entity(user="."), Entity(client_id=".."), Entity(user="u1", client_id=".")),
            Limit(
                Rejected,
                "UNKNOWN_SERVER_ERROR",
                "ZooKeeper: relative names are illegal in its paths, and the broker does not expect that",
                describable=False,
            ),
        ),
    }

    @pytest.fixture
    def backend(self, broker: ZooKeeperModeBroker, chroot: str) -> Iterator[QuotaBackend]:
        with KafkaBackend(broker.bootstrap) as backend:
            yield backend

    @pytest.fixture
    def rival(self, broker: ZooKeeperModeBroker) -> Iterator[QuotaBackend]:
        with KafkaBackend(broker.bootstrap) as rival:
            yield rival

    @pytest.fixture
    def neighbour(self, znodes: Any) -> ZooKeeperNeighbour:
        return ZooKeeperNeighbour(znodes)
