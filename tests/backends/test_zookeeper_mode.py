"""The contract on a real broker in ZooKeeper mode (Kafka 3.9.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest

from kquota.backends import QuotaBackend
from kquota.backends.kafka import KafkaBackend
from kquota.core.entity import Entity
from kquota.errors import InvalidRequest, Rejected
from tests.backends.contract import Limit, ZooKeeperContract
from tests.backends.neighbours import ZooKeeperNeighbour
from tests.brokers.zookeeper_mode import ZooKeeperModeBroker


@pytest.fixture
def chroot(zookeeper_mode_broker: ZooKeeperModeBroker) -> str:
    return zookeeper_mode_broker.zookeeper


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
    def backend(self, zookeeper_mode_broker: ZooKeeperModeBroker) -> Iterator[QuotaBackend]:
        with KafkaBackend(zookeeper_mode_broker.bootstrap) as backend:
            yield backend

    @pytest.fixture
    def rival(self, zookeeper_mode_broker: ZooKeeperModeBroker) -> Iterator[QuotaBackend]:
        with KafkaBackend(zookeeper_mode_broker.bootstrap) as rival:
            yield rival

    @pytest.fixture
    def neighbour(self, znodes: Any) -> ZooKeeperNeighbour:
        return ZooKeeperNeighbour(znodes)
