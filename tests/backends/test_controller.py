"""Alterations through KRaft controllers: on a cluster where they are nodes of their own, and on scripted ones."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from kquota import Alteration, Entity, InputError, KafkaSecurity, Plan, QuotaKey, Rejected, Unreachable
from kquota.backends import wire
from kquota.backends.kafka import KafkaBackend, Servers
from kquota.backends.kafka.codes import NOT_CONTROLLER
from kquota.backends.kafka.connection import Connection, Deadline
from kquota.backends.kafka.controller import ControllerBackend
from kquota.documents.encoding import schema
from kquota.documents.plan import alter_document
from tests.backends.test_kafka_peers import Peer
from tests.brokers.split import SplitCluster
from tests.support.waiting import settled

ALICE = Entity(user="alice")
PRODUCER, REQUEST = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE
NOBODY = Entity(ip="not a host")


@pytest.fixture(scope="module")
def cluster() -> Iterator[SplitCluster]:
    with SplitCluster() as running:
        yield running


def _shows(cluster: SplitCluster, entity: Entity, values: dict[QuotaKey, float]) -> bool:
    """Whether the broker shows that at last: it follows the controllers."""
    with KafkaBackend(cluster.broker) as backend:
        return settled(lambda: dict(backend.describe().get(entity, {})), values) == values


@pytest.mark.parametrize("number", [0, 1])
def test_any_controller_leads_to_the_active_one(cluster: SplitCluster, number: int) -> None:
    """What it is told is set; what was set before is not known, and the report does not pretend."""
    value = 1000 + number
    with ControllerBackend(cluster.controllers[number]) as backend:
        results = backend.alter([Alteration(ALICE, {PRODUCER: value}, frozenset({REQUEST}))])

    (result,) = results
    assert (result.error, dict(result.before), dict(result.after)) == (None, {}, {PRODUCER: value})
    assert result.blind == {PRODUCER, REQUEST}
    assert result.changed
    (entry,) = (document := alter_document(results, Plan(()), dry_run=False))["results"]
    Draft202012Validator(schema("alter")).validate(document)
    assert (entry["before"], entry["changed"]) == (None, None)
    assert entry["after"] == {"producer_byte_rate": value, "request_percentage": None}
    assert _shows(cluster, ALICE, {PRODUCER: value})


def test_only_the_active_controller_takes_it(cluster: SplitCluster) -> None:
    """Why the active one is looked for: the other refuses, and neither shows quotas."""
    codes = []
    entry = wire.AlterEntry([wire.EntityData("user", "x")], [wire.OpData("producer_byte_rate", 5.0, False)])
    for controller in cluster.controllers:
        connection = Connection.open(Servers.parse(controller).servers[0], KafkaSecurity(), Deadline(10))
        request = wire.AlterClientQuotasRequest([entry], validate_only=True)
        (answer,) = connection.ask([request], wire.AlterClientQuotasResponse, Deadline(10))
        codes.append(answer.entries[0].error_code)
        assert connection.speaks(wire.ApiKey.ALTER_CLIENT_QUOTAS)
        assert not connection.speaks(wire.ApiKey.DESCRIBE_CLIENT_QUOTAS)
        connection.close()

    assert sorted(codes) == [0, NOT_CONTROLLER]


def test_the_controller_validates(cluster: SplitCluster) -> None:
    """Each entity by itself; a trial writes nothing."""
    bob = Entity(user="bob")
    rate = {QuotaKey.CONNECTION_CREATION_RATE: 5}
    with ControllerBackend(",".join(cluster.controllers)) as backend:
        tried = backend.alter([Alteration(bob, {PRODUCER: 5})], validate_only=True)
        refused, taken = backend.alter([Alteration(NOBODY, rate), Alteration(bob, {REQUEST: 50.0})])

    assert tried[0].error is None
    assert isinstance(refused.error, InputError)
    assert alter_document([refused], Plan(()), dry_run=False)["results"][0]["after"] == {}
    assert taken.error is None
    assert _shows(cluster, bob, {REQUEST: 50.0})


def test_a_broker_is_no_controller(cluster: SplitCluster) -> None:
    with ControllerBackend(cluster.broker) as backend, pytest.raises(Rejected, match="is a broker, not a controller"):
        backend.alter([Alteration(ALICE, {PRODUCER: 5})])


# --- Scripted controllers --------------------------------------------------------------------------------------------

SERVED = [wire.ApiVersion(key, 0, 4) for key in (18, 49, 55)]
CLUSTER = wire.ApiVersion(60, 0, 1)


def controller(
    where: Callable[[int], wire.DescribeClusterResponse | None], codes: list[int]
) -> Callable[[wire.Request, wire.RequestHeader], Any]:
    """A controller that tells `where` the active one is, by the number of the question, and answers those codes."""
    asked = iter(range(100))

    def answer(request: wire.Request, header: wire.RequestHeader) -> Any:
        match request:
            case wire.ApiVersionsRequest():
                return wire.ApiVersionsResponse(0, [*SERVED, CLUSTER] if where(0) else SERVED)
            case wire.DescribeClusterRequest(_, kind):
                assert kind == wire.CONTROLLERS
                return where(next(asked))
            case wire.AlterClientQuotasRequest(entries):
                return wire.AlterClientQuotasResponse(
                    0, [wire.AlterEntryResult(codes.pop(0), None, entry.entity) for entry in entries]
                )
        raise AssertionError(request)

    return answer


def nodes(*addresses: str, active: int) -> wire.DescribeClusterResponse:
    found = [
        wire.DescribeClusterBroker(number, server.host, server.port, None)
        for number, address in enumerate(addresses)
        for server in Servers.parse(address).servers
    ]
    return wire.DescribeClusterResponse(0, 0, None, wire.CONTROLLERS, "c", active, found)


def test_the_active_controller_changes() -> None:
    """Refused by the one that was active a moment ago, the alteration goes to its successor."""
    addresses: list[str] = []
    moved = controller(lambda number: nodes(*addresses, active=min(number, 1)), [NOT_CONTROLLER])
    settled = controller(lambda _: nodes(*addresses, active=1), [0])
    with Peer(moved) as first, Peer(settled) as second, ControllerBackend(first.bootstrap) as backend:
        addresses += [first.bootstrap, second.bootstrap]
        (result,) = backend.alter([Alteration(ALICE, {PRODUCER: 5})])

    assert result.error is None
    assert any(isinstance(request, wire.AlterClientQuotasRequest) for request in second.requests)


def test_an_election_is_waited_for() -> None:
    addresses: list[str] = []
    electing = controller(lambda number: nodes(*addresses, active=0 if number else -1), [0])
    with Peer(electing) as peer, ControllerBackend(peer.bootstrap) as backend:
        addresses.append(peer.bootstrap)
        (result,) = backend.alter([Alteration(ALICE, {PRODUCER: 5})])

    assert result.error is None


def test_the_active_controller_cannot_be_reached() -> None:
    away = controller(lambda _: nodes("127.0.0.1:1", active=0), [])
    with (
        Peer(away) as peer,
        ControllerBackend(peer.bootstrap) as backend,
        pytest.raises(Unreachable, match="active controller at"),
    ):
        backend.alter([Alteration(ALICE, {PRODUCER: 5})])
