"""Limits of several brokers, by scripted ones: each is asked itself, and what goes wrong is told of the right one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kquota.backends import wire
from kquota.backends.kafka import Servers
from kquota.backends.kafka.brokers import KafkaBrokerConfigs
from kquota.core.change.broker import RATE, BrokerAlteration, Source, beside
from kquota.core.quotas.entity import DEFAULT
from kquota.errors import InvalidRequest, Rejected, Unauthorized, Uncertain, Unreachable
from tests.backends.test_kafka_peers import Peer

VERSIONS = [
    wire.ApiVersion(18, 0, 4),
    wire.ApiVersion(32, 1, 4),
    wire.ApiVersion(44, 0, 1),
    wire.ApiVersion(48, 0, 1),
    wire.ApiVersion(60, 0, 2),
]
NOTHING: Callable[[wire.Request], Any] = lambda request: ...  # noqa: E731


def config(name: str, *levels: tuple[str, int]) -> wire.DescribeConfigsResourceResult:
    """A config that is set at those levels, the strongest first."""
    synonyms = [wire.DescribeConfigsSynonym(name, value, source) for value, source in levels]
    return wire.DescribeConfigsResourceResult(name, *levels[0][:1], True, levels[0][1], False, synonyms)


class Brokers:
    """Peers with ids that know of each other; `answers` replaces the answer of one of them, or leaves it (`...`)."""

    def __init__(self, **answers: Callable[[wire.Request], Any]) -> None:
        self.peers = {number: Peer(self._answer(number, answers.get(f"of_{number}", NOTHING))) for number in (1, 2)}
        self.rates = {1: "10", 2: "20"}

    def __enter__(self) -> Brokers:
        for peer in self.peers.values():
            peer.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self.peers.values():
            peer.__exit__()

    @property
    def bootstrap(self) -> str:
        return self.peers[1].bootstrap

    def asked(self, number: int) -> list[str]:
        """The resources that a broker was asked for."""
        requests = self.peers[number].requests
        return [each.resources[0].resource_name for each in requests if isinstance(each, wire.DescribeConfigsRequest)]

    def _answer(
        self, number: int, own: Callable[[wire.Request], Any]
    ) -> Callable[[wire.Request, wire.RequestHeader], Any]:
        def answer(request: wire.Request, header: wire.RequestHeader) -> Any:
            if (reply := own(request)) is not ...:
                return reply
            match request:
                case wire.ApiVersionsRequest():
                    return wire.ApiVersionsResponse(0, VERSIONS)
                case wire.DescribeClusterRequest():
                    nodes = [
                        wire.DescribeClusterBroker(other, server.host, server.port, None)
                        for other, peer in self.peers.items()
                        for server in Servers.parse(peer.bootstrap).servers
                    ]
                    return wire.DescribeClusterResponse(0, 0, None, wire.BROKERS, "c", 1, nodes)
                case wire.DescribeConfigsRequest([resource]):
                    configs = [config("log.dirs", ("/data", 4)), config("listeners", ("A://:1,B://:2", 4))]
                    configs.append(config(RATE, (self.rates[number], 2), ("2147483647", 5)))
                    result = wire.DescribeConfigsResult(
                        0, None, 4, resource.resource_name, configs if resource.resource_name else []
                    )
                    return wire.DescribeConfigsResponse(0, [result])
                case wire.IncrementalAlterConfigsRequest([resource], validate_only):
                    if not validate_only:
                        self.rates[number] = resource.configs[0].value or "2147483647"
                    return altered(0)
            raise AssertionError(request)

        return answer


def altered(code: int, message: str | None = None) -> wire.IncrementalAlterConfigsResponse:
    return wire.IncrementalAlterConfigsResponse(0, [wire.AlterConfigsResourceResponse(code, message, 4, "")])


def refusing(kind: type[wire.Request], answer: Callable[[], Any]) -> Callable[[wire.Request], Any]:
    """Answers requests of that kind so, and the others as usual."""
    return lambda request: answer() if isinstance(request, kind) else ...


def close() -> Any:
    raise EOFError


def test_each_broker_is_asked_itself() -> None:
    """And the default of any; configs that have nothing to do with quotas are left out."""
    with Brokers() as brokers, KafkaBrokerConfigs(brokers.bootstrap) as configs:
        snapshot = configs.describe()
        result = configs.alter(BrokerAlteration(2, {RATE: 30}))

        assert list(snapshot) == [DEFAULT, 1, 2]
        assert [[(each.name, each.value) for each in found] for found in snapshot.values()] == [
            [],
            [(RATE, 10)],
            [(RATE, 20)],
        ]
        assert (dict(result.before), dict(result.after)) == ({RATE: 20}, {RATE: 30})
        assert brokers.rates == {1: "10", 2: "30"}
        assert configs.wait_visible(result)
        assert (brokers.asked(1), set(brokers.asked(2))) == (["", "1"], {"2"})


@pytest.mark.parametrize(
    ("properties", "protected"),
    [
        ({"listeners": "A://:1,B://:2", "inter.broker.listener.name": "B"}, "b"),
        ({"listeners": "SSL://:1,PLAINTEXT://:2", "security.inter.broker.protocol": "SSL"}, "ssl"),
        ({"listeners": "A://:1,PLAINTEXT://:2"}, "plaintext"),
        ({"listeners": "A://:1", "inter.broker.listener.name": "A"}, None),
        ({"listeners": "A://:1,C://:2", "controller.listener.names": "C", "inter.broker.listener.name": "A"}, None),
        (
            {"listeners": "A://:1,B://:2,C://:3", "controller.listener.names": "C", "inter.broker.listener.name": "A"},
            "a",
        ),
    ],
)
def test_the_inter_broker_listener_is_protected_beside_others(
    properties: dict[str, str], protected: str | None
) -> None:
    """By its name, else by the protocol of the brokers. A controller in the same process counts its listener itself."""
    rates = [f"listener.name.{name}.{RATE}" for name in ("a", "b", "c", "plaintext", "ssl")]

    def answer(request: wire.Request) -> Any:
        if not isinstance(request, wire.DescribeConfigsRequest):
            return ...
        (resource,) = request.resources
        configs = [config(RATE, ("10", 2)), *(config(name, ("5", 2)) for name in rates)]
        if resource.resource_name:
            configs += [config(name, (value, 4)) for name, value in properties.items()]
        return wire.DescribeConfigsResponse(
            0, [wire.DescribeConfigsResult(0, None, 4, resource.resource_name, configs)]
        )

    with Brokers(of_1=answer) as brokers, KafkaBrokerConfigs(brokers.bootstrap) as configs:
        (shown,) = configs.describe(1).values()
        (default,) = configs.describe(DEFAULT).values()

    without = {each.name for each in shown if each.is_alterable and beside(each, shown) is None}
    assert without == {RATE, *([] if protected is None else [f"listener.name.{protected}.{RATE}"])}
    assert {each.is_protected for each in shown if each.name != RATE} <= {True, False}
    (wide, *listeners) = default
    assert [(each.is_protected, beside(each, default)) for each in listeners] == [(None, wide)] * len(rates)


def test_a_broker_that_does_not_answer_is_named() -> None:
    with (
        Brokers(of_2=refusing(wire.DescribeConfigsRequest, close)) as brokers,
        KafkaBrokerConfigs(brokers.bootstrap) as configs,
    ):
        assert configs.describe(1)[1][0].source is Source.DYNAMIC_BROKER_CONFIG
        with pytest.raises(Unreachable, match=r"broker=2: lost Kafka at"):
            configs.describe()


def test_an_alter_without_an_answer() -> None:
    """It may have been carried out."""
    with (
        Brokers(of_1=refusing(wire.IncrementalAlterConfigsRequest, close)) as brokers,
        KafkaBrokerConfigs(brokers.bootstrap) as configs,
    ):
        with pytest.raises(Uncertain, match="broker=1: may or may not have been altered"):
            configs.alter(BrokerAlteration(1, {RATE: 30}))
        with pytest.raises(Unreachable, match="broker=1: lost Kafka"):
            configs.alter(BrokerAlteration(1, {RATE: 30}), validate_only=True)


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        (altered(31), Unauthorized, "CLUSTER_AUTHORIZATION_FAILED"),
        (altered(42, "no such value"), InvalidRequest, "no such value"),
        (altered(44, "by policy"), Rejected, "by policy"),
        (wire.IncrementalAlterConfigsResponse(0, []), Rejected, "empty"),
    ],
)
def test_what_the_broker_refuses(answer: wire.Response, error: type[Exception], says: str) -> None:
    with (
        Brokers(of_1=refusing(wire.IncrementalAlterConfigsRequest, lambda: answer)) as brokers,
        KafkaBrokerConfigs(brokers.bootstrap) as configs,
        pytest.raises(error, match=says),
    ):
        configs.alter(BrokerAlteration(1, {RATE: 30}))


def test_what_may_pass_is_tried_again() -> None:
    answers = [altered(7), altered(41)]
    passing = refusing(wire.IncrementalAlterConfigsRequest, lambda: answers.pop(0) if answers else ...)
    with Brokers(of_1=passing) as brokers, KafkaBrokerConfigs(brokers.bootstrap) as configs:
        configs.alter(BrokerAlteration(1, {RATE: 30}))

    assert brokers.rates[1] == "30"


def test_brokers_that_are_too_old() -> None:
    """Before 2.8 they do not tell of each other."""
    old = wire.ApiVersionsResponse(0, VERSIONS[:2])
    with (
        Brokers(of_1=refusing(wire.ApiVersionsRequest, lambda: old)) as brokers,
        KafkaBrokerConfigs(brokers.bootstrap) as configs,
        pytest.raises(Rejected, match="DESCRIBE_CLUSTER"),
    ):
        configs.describe()
