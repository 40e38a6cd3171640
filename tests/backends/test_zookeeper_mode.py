"""The contract on a real broker in ZooKeeper mode (Kafka 3.9.1)."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest

from kquota import Alteration, Entity, InvalidRequest, QuotaBackend, Rejected
from kquota.backends import wire
from kquota.backends.kafka import KafkaBackend
from kquota.backends.znode import encode_config
from tests.backends.contract import REQUEST, U1, Limit, ZooKeeperContract, rate
from tests.backends.neighbours import ZooKeeperNeighbour
from tests.backends.test_kafka import tell
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

    @pytest.mark.parametrize("count", [2, 40])
    def test_a_node_that_the_broker_cannot_parse_holds_up_itself_only(
        self, backend: QuotaBackend, neighbour: ZooKeeperNeighbour, count: int
    ) -> None:
        """The broker lists nothing any more; entities are read one by one then, however many they are."""
        neighbour.leave("/config/users/u1", encode_config({"producer_byte_rate": "abc"}))
        try:
            with pytest.raises(Rejected, match="UNKNOWN_SERVER_ERROR") as caught:
                backend.describe()
            assert "--zookeeper" in (caught.value.hint or "")
            others = [Entity(user=f"other{number}") for number in range(count)]
            bad, *good = backend.alter([Alteration(U1, {REQUEST: 5.0}), *(rate(entity) for entity in others)])
            assert isinstance(bad.error, Rejected)
            assert "--zookeeper" in (bad.error.hint or "")
            assert {result.error for result in good} == {None}
        finally:
            neighbour.remove("/config/users/u1")
        assert set(backend.describe()) == set(others)

    def test_a_refused_ipv6_address_has_a_hint(self, backend: QuotaBackend) -> None:
        (result,) = backend.alter([rate(Entity(ip="::1"))])
        assert result.error is not None
        assert "--zookeeper" in (result.error.hint or "")

    def test_values_that_are_not_finite(
        self, zookeeper_mode_broker: ZooKeeperModeBroker, backend: QuotaBackend
    ) -> None:
        """Up to 4.3 NaN and infinity pass for a DOUBLE; what is there stays."""
        alice, bob = Entity(user="alice"), Entity(user="bob")
        changes = [("alice", math.nan), ("bob", math.inf)]
        asked = [(user, [wire.OpData(REQUEST.value, value, False)]) for user, value in changes]
        assert tell(zookeeper_mode_broker.bootstrap, asked) == {0}
        while len(snapshot := backend.describe()) < 2:
            pass
        assert math.isnan(snapshot[alice][REQUEST])
        assert dict(snapshot[bob]) == {REQUEST: math.inf}
        (removed,) = backend.alter([Alteration(alice, remove=frozenset({REQUEST}), strict_remove=True)])
        assert (removed.error, removed.changed) == (None, True)
