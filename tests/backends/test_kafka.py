"""The contract on a real broker (Kafka 4.4.0, KRaft), and what only brokers can show."""

import contextlib
import math
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import pytest

from kquota.backends import QuotaBackend, wire
from kquota.backends.kafka import KafkaBackend, KafkaSecurity, Servers
from kquota.backends.kafka.connection import Connection, Deadline
from kquota.core.quotas.alteration import Alteration
from kquota.core.quotas.entity import DEFAULT, Entity, EntityType
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.selector import QuotaFilter
from kquota.errors import InputError, InvalidRequest, Rejected, Uncertain, Unreachable
from tests.backends.conftest import Cluster
from tests.backends.contract import CONSUMER, PRODUCER, REQUEST, ClusterContract, Limit, rate
from tests.backends.neighbours import BrokerNeighbour
from tests.support.processes import free_ports
from tests.support.relay import Relay
from tests.support.waiting import until

ALICE = Entity(user="alice")
PAIR = Entity(user=DEFAULT, client_id="app")


@pytest.fixture
def backend(kafka: KafkaBackend) -> KafkaBackend:
    return kafka


class TestKafkaBackend(ClusterContract):
    limits: ClassVar[Mapping[Entity, Limit]] = {
        Entity(ip="<default>"): Limit(
            InvalidRequest, "not a valid IP or resolvable host", "Kafka: it looks every ip up"
        )
    }

    @pytest.fixture
    def backend(self, backend: KafkaBackend) -> QuotaBackend:
        return backend

    @pytest.fixture
    def rival(self, cluster: Cluster) -> Iterator[QuotaBackend]:
        with KafkaBackend(cluster.plain) as rival:
            yield rival

    @pytest.fixture
    def neighbour(self, cluster: Cluster) -> Iterator[BrokerNeighbour]:
        with contextlib.closing(BrokerNeighbour(cluster.broker.client())) as neighbour:
            yield neighbour


def test_brokers_are_counted(backend: KafkaBackend) -> None:
    assert backend.broker_count() == 1


def test_kafka_configs_sees_what_kquota_wrote(cluster: Cluster, backend: KafkaBackend) -> None:
    results = backend.alter(
        [
            Alteration(ALICE, {PRODUCER: 1024, REQUEST: 12.5}),
            Alteration(PAIR, {CONSUMER: 2**53}),
            rate(Entity(ip=DEFAULT), 7),
        ]
    )
    assert backend.wait_visible(results) == ()
    users = cluster.broker.kafka_configs("--describe", "--entity-type", "users")
    configs = users.stdout.partition("Quota configs for user-principal 'alice' are ")[2].partition("\n")[0]
    assert set(configs.split(", ")) == {"producer_byte_rate=1024.0", "request_percentage=12.5"}
    pairs = cluster.broker.kafka_configs("--describe", "--user-defaults", "--client", "app")
    assert pairs.stdout == (
        "Quota configs for the default user-principal, client-id 'app' are consumer_byte_rate=9.007199254740992E15\n"
    )


def test_kquota_sees_what_kafka_configs_wrote(cluster: Cluster, backend: KafkaBackend) -> None:
    configs = "producer_byte_rate=2048,controller_mutation_rate=0.25"
    altered = cluster.broker.kafka_configs(
        "--alter", "--add-config", configs, "--user", "CN=ü,OU=b", "--client-defaults"
    )
    assert altered.returncode == 0, altered.stderr
    entity = Entity(user="CN=ü,OU=b", client_id=DEFAULT)
    shown = until(lambda: backend.describe().get(entity))
    assert shown == {PRODUCER: 2048, QuotaKey.CONTROLLER_MUTATION_RATE: 0.25}
    assert isinstance(shown[PRODUCER], int)


def test_more_operations_than_a_request_may_have(backend: KafkaBackend) -> None:
    alterations = [rate(Entity(user=f"u{number:05}"), number + 1) for number in range(9_999)]
    alterations.append(Alteration(ALICE, {PRODUCER: 1, CONSUMER: 2}))
    results = backend.alter(alterations)
    assert {result.error for result in results} == {None}
    assert backend.wait_visible(results) == ()
    snapshot = backend.describe()
    assert len(snapshot) == 10_000
    assert dict(snapshot[ALICE]) == {PRODUCER: 1, CONSUMER: 2}


def test_brokers_own_words_for_a_refused_entity(backend: KafkaBackend) -> None:
    refused, altered = backend.alter([rate(Entity(ip="not a host")), rate(ALICE)])
    assert isinstance(refused.error, InvalidRequest)
    assert refused.error.message == "INVALID_REQUEST: not a host is not a valid IP or resolvable host."
    assert not refused.changed
    assert altered.changed
    (trial,) = backend.alter([rate(Entity(ip="not a host"))], validate_only=True)
    assert isinstance(trial.error, InvalidRequest)


def test_names_that_no_frame_can_carry(backend: KafkaBackend) -> None:
    name = "x" * 32_768
    refused, altered = backend.alter([rate(Entity(user=name)), rate(ALICE)])
    assert isinstance(refused.error, InputError)
    assert altered.error is None
    assert list(backend.describe(QuotaFilter({EntityType.USER: name}, strict=True))) == []
    (longest,) = backend.alter([rate(Entity(user="x" * 32_767))])
    assert longest.error is None
    assert backend.describe()[longest.entity] == {PRODUCER: 1024}


@pytest.mark.parametrize("expect", [{}, None], ids=["expecting", "whatever"])
@pytest.mark.parametrize("answer", [True, False], ids=["answer", "request"])
def test_what_was_lost_is_sent_again_where_nobody_else_wrote(
    cluster: Cluster, backend: KafkaBackend, answer: bool, expect: dict[QuotaKey, int] | None
) -> None:
    """Whether the request was lost, or its answer alone: nobody can know, and the outcome is the same."""
    wish = [Alteration(ALICE, {PRODUCER: 1024}, expect=expect), Alteration(PAIR, {CONSUMER: 5}, expect=expect)]
    with Relay(cluster.plain) as relay, KafkaBackend(relay.address) as shaky:
        for _ in range(2):
            relay.lose(wire.ApiKey.ALTER_CLIENT_QUOTAS, answer=answer)
        results = shaky.alter(wish)
        assert [(result.error, result.changed) for result in results] == [(None, True), (None, True)]
        assert shaky.wait_visible(results) == ()
    assert dict(backend.describe()) == {ALICE: {PRODUCER: 1024}, PAIR: {CONSUMER: 5}}


@pytest.mark.parametrize("expect", [{}, None], ids=["expecting", "whatever"])
@pytest.mark.parametrize("answer", [True, False], ids=["answer", "request"])
def test_what_another_writer_set_meanwhile_is_not_overwritten_by_sending_again(
    cluster: Cluster, backend: KafkaBackend, answer: bool, expect: dict[QuotaKey, int] | None
) -> None:
    def rival() -> None:
        assert backend.wait_visible(backend.alter([Alteration(ALICE, {PRODUCER: 77})])) == ()

    wish = [Alteration(ALICE, {PRODUCER: 1024}, expect=expect), Alteration(PAIR, {CONSUMER: 5}, expect=expect)]
    with Relay(cluster.plain) as relay, KafkaBackend(relay.address) as shaky:
        relay.lose(wire.ApiKey.ALTER_CLIENT_QUOTAS, answer=answer, then=rival)
        overtaken, altered = shaky.alter(wish)
        assert shaky.wait_visible([altered]) == ()
    assert isinstance(overtaken.error, Uncertain)
    assert "another writer has changed it since" in overtaken.error.message
    assert altered.error is None
    assert dict(backend.describe()) == {ALICE: {PRODUCER: 77}, PAIR: {CONSUMER: 5}}


def test_a_cluster_that_answers_no_alter_leaves_it_open(cluster: Cluster, backend: KafkaBackend) -> None:
    with Relay(cluster.plain) as relay, KafkaBackend(relay.address, timeout_s=15) as shaky:
        for _ in range(2):
            relay.lose(wire.ApiKey.ALTER_CLIENT_QUOTAS, answer=False)
        relay.lose(wire.ApiKey.ALTER_CLIENT_QUOTAS, answer=False, then=relay.cut)
        (result,) = shaky.alter([Alteration(ALICE, {PRODUCER: 1024}, expect={})])
    assert isinstance(result.error, Uncertain)
    assert dict(backend.describe()) == {}


def test_values_that_only_other_tools_set(cluster: Cluster, backend: KafkaBackend) -> None:
    """What is whole within 1e-6 passes for a LONG. Since 4.4 nothing passes that is not finite, as before."""
    near = [wire.OpData(CONSUMER.value, 1024.0000001, False)]
    assert tell(cluster.plain, [("bob", near)]) == {0}
    while not (snapshot := backend.describe()):
        pass
    assert dict(snapshot[Entity(user="bob")]) == {CONSUMER: 1024}
    assert isinstance(snapshot[Entity(user="bob")][CONSUMER], int)
    for value in (math.nan, math.inf):
        assert tell(cluster.plain, [("alice", [wire.OpData(REQUEST.value, value, False)])]) == {42}


def tell(bootstrap: str, changes: Sequence[tuple[str, list[wire.OpData]]]) -> set[int]:
    """Alters users without any of kquota's checks; the codes of the answer."""
    entries = [wire.AlterEntry([wire.EntityData("user", user)], ops) for user, ops in changes]
    deadline = Deadline(10)
    connection = Connection.open(Servers.parse(bootstrap).servers[0], KafkaSecurity(), deadline)
    request = wire.AlterClientQuotasRequest(entries, False)
    (answer,) = connection.ask([request], wire.AlterClientQuotasResponse, deadline)
    connection.close()
    return {entry.error_code for entry in answer.entries}


def test_a_controller_serves_no_describe(cluster: Cluster) -> None:
    with KafkaBackend(cluster.broker.controller) as backend, pytest.raises(Rejected, match="DESCRIBE_CLIENT_QUOTAS"):
        backend.describe()


def test_servers_are_tried_in_turn(cluster: Cluster) -> None:
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        others = f"127.0.0.1:{port},127.0.0.1:{silent.getsockname()[1]}"
        with KafkaBackend(f"{others}, {cluster.plain}", timeout_s=15) as backend:
            assert len(backend.describe()) == 0
        with KafkaBackend(others, timeout_s=1) as backend, pytest.raises(Unreachable) as raised:
            backend.describe()
    message = raised.value.message
    assert message.startswith(f"cannot reach Kafka at any of 2 servers: 127.0.0.1:{port}: connection refused; ")
    assert "no answer within" in message
