"""Peers that behave badly: silent, slow, old, confused, gone in the middle."""

from __future__ import annotations

import contextlib
import itertools
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from kquota.backends import wire
from kquota.backends.kafka import KafkaBackend, KafkaSecurity, Plain
from kquota.backends.kafka import backend as kafka
from kquota.backends.kafka.brokers import KafkaBrokerConfigs
from kquota.backends.kafka.nodes import Nodes
from kquota.backends.tls import Tls
from kquota.core.change.broker import RATE, BrokerAlteration
from kquota.core.quotas.alteration import Alteration
from kquota.core.quotas.entity import DEFAULT, Entity, EntityType
from kquota.core.quotas.selector import QuotaFilter
from kquota.errors import Rejected, Uncertain, Unreachable
from tests.backends.contract import CONNECTIONS, PRODUCER, rate
from tests.support.listening import Listening
from tests.support.processes import free_ports
from tests.support.wire import decode_request, encode_response

ALICE = Entity(user="alice")
PAIR = Entity(user=DEFAULT, client_id="app")
VERSIONS = [wire.ApiVersion(api.key, 0, api.max_version) for api in wire.APIS]


class Peer(Listening):
    """A scripted broker: `answer` is given each request and returns a response, raw bytes, or None for silence.

    Raising EOFError closes the connection. Versions and describes without entities are answered where it returns ....
    """

    def __init__(self, answer: Callable[[wire.Request, wire.RequestHeader], Any]) -> None:
        super().__init__()
        self._answer = answer
        self.requests: list[wire.Request] = []
        self.bootstrap = self.address

    def _serve(self, connected: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError), connected, connected.makefile("rb") as stream:
            while size := stream.read(4):
                header, request = decode_request(stream.read(int.from_bytes(size, "big")))
                self.requests.append(request)
                reply = self._answer(request, header)
                if reply is ...:
                    reply = usual(request)
                if not isinstance(reply, bytes | None):
                    reply = encode_response(reply, header.api_version, header.correlation_id)
                    reply = len(reply).to_bytes(4, "big") + reply
                if reply is not None:
                    connected.sendall(reply)


def to(kind: type[wire.Request], reply: Callable[[Any], Any]) -> Callable[[wire.Request, wire.RequestHeader], Any]:
    """Answers requests of that kind so, and the others as usual."""
    return lambda request, _: reply(request) if isinstance(request, kind) else ...


def altered(code: int, entries: Sequence[wire.AlterEntry], text: str | None = None) -> wire.Response:
    """What an alter came to, for each of these entities."""
    return wire.AlterClientQuotasResponse(0, [wire.AlterEntryResult(code, text, entry.entity) for entry in entries])


def usual(request: wire.Request) -> wire.Response:
    """What an idle broker without quotas answers."""
    match request:
        case wire.ApiVersionsRequest():
            return wire.ApiVersionsResponse(0, VERSIONS)
        case wire.DescribeClientQuotasRequest():
            return wire.DescribeClientQuotasResponse(0, 0, "", [])
        case wire.AlterClientQuotasRequest(entries):
            # In another order, as brokers do.
            results = [wire.AlterEntryResult(0, None, entry.entity[::-1]) for entry in reversed(entries)]
            return wire.AlterClientQuotasResponse(0, results)
    raise AssertionError(request)


@pytest.mark.parametrize("elected", [True, False])
def test_a_topic_waits_for_a_controller(elected: bool) -> None:
    """While one is elected, brokers tell -1."""
    controllers = iter([-1, -1, 1] if elected else [])

    def answer(request: wire.Request, _: wire.RequestHeader) -> Any:
        match request:
            case wire.DescribeClusterRequest():
                controller = next(controllers, 1 if elected else -1)
                broker = wire.DescribeClusterBroker(1, "127.0.0.1", int(peer.bootstrap.partition(":")[2]), None)
                return wire.DescribeClusterResponse(0, 0, None, 1, "id", controller, [broker])
            case wire.CreateTopicsRequest():
                return wire.CreateTopicsResponse(0, [wire.CreatedTopic("t", 0, None)])
        return ...

    with Peer(answer) as peer, contextlib.closing(Nodes(peer.bootstrap, timeout_s=30 if elected else 3)) as nodes:
        if elected:
            assert nodes.create_topic("t")
        else:
            with pytest.raises(Unreachable, match="the cluster has no controller now"):
                nodes.create_topic("t")


def test_an_unreachable_port() -> None:
    (port,) = free_ports(1)
    with (
        KafkaBackend(f"127.0.0.1:{port}", timeout_s=5) as backend,
        pytest.raises(Unreachable, match=rf"127\.0\.0\.1:{port}: connection refused"),
    ):
        backend.describe()


def test_who_is_turned_away_for_coming_too_often_comes_again() -> None:
    """As the limit of an ip has it (KIP-612): accepted, kept waiting, closed; Java's client comes again as well."""
    turned_away = iter([True, True])

    def answer(request: wire.Request, _: wire.RequestHeader) -> Any:
        if next(turned_away, False):
            time.sleep(0.1)
            raise EOFError
        return ...

    with Peer(answer) as peer, KafkaBackend(peer.bootstrap, timeout_s=10) as backend:
        assert len(backend.describe()) == 0
        assert peer.connections == 3


def test_who_is_turned_away_for_good_is_told_in_time() -> None:
    """And waits longer each time, as Java's client does: each connection counts against the limit of the ip."""

    def answer(request: wire.Request, _: wire.RequestHeader) -> Any:
        time.sleep(0.1)
        raise EOFError

    started = time.monotonic()
    with (
        Peer(answer) as peer,
        KafkaBackend(peer.bootstrap, timeout_s=5) as backend,
        pytest.raises(Unreachable, match="the connection was closed"),
    ):
        backend.describe()
    assert 2 <= peer.connections <= 9
    assert 0.5 < time.monotonic() - started < 60


@pytest.mark.parametrize("security", [None, KafkaSecurity(Tls()), KafkaSecurity(sasl=Plain("a", "b"))])
def test_a_peer_that_stays_silent(security: KafkaSecurity | None) -> None:
    """In TLS it is the handshake that nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        started = time.monotonic()
        with (
            KafkaBackend(f"127.0.0.1:{port}", timeout_s=2, security=security) as backend,
            pytest.raises(Unreachable, match=rf"127\.0\.0\.1:{port}: no answer within 2 s") as caught,
        ):
            backend.describe()
        assert caught.value.hint == "check the address, and that it is a Kafka broker"
        assert 1.9 < time.monotonic() - started < 60


def test_a_peer_that_dribbles() -> None:
    """The deadline is that of the whole answer, not of its next byte."""
    stop = threading.Event()

    def dribble(connected: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connected.sendall(b"\0\0\1\0")
            while not stop.wait(0.05):
                connected.sendall(b"\0")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: dribble(listener.accept()[0]), daemon=True)
        thread.start()
        started = time.monotonic()
        with (
            KafkaBackend(f"127.0.0.1:{listener.getsockname()[1]}", timeout_s=0.5) as backend,
            pytest.raises(Unreachable, match=r"(no|did not) answer within 0\.5 s"),
        ):
            backend.describe()
        assert time.monotonic() - started < 60
        stop.set()
        thread.join()


@pytest.mark.parametrize(
    "garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\5\0\0\0\1\0", b"\xff\xff\xff\xff", b"\0\0\0\4\0\0\0\x63"]
)
def test_what_is_not_kafka(garbage: bytes) -> None:
    with (
        Peer(lambda request, header: garbage) as peer,
        KafkaBackend(peer.bootstrap, timeout_s=15) as backend,
        pytest.raises(Unreachable, match=r"not Kafka|malformed|another request"),
    ):
        backend.describe()


def test_an_older_broker() -> None:
    """ApiVersions v3 is unknown there, and so are the flexible versions (2.6)."""
    old = [wire.ApiVersion(18, 0, 2), wire.ApiVersion(48, 0, 0), wire.ApiVersion(49, 0, 0)]
    seen = []

    def answer(request: wire.Request, header: wire.RequestHeader) -> Any:
        seen.append((header.api_key, header.api_version))
        if header.api_key == 18 and header.api_version == 3:
            fallback = encode_response(wire.ApiVersionsResponse(35, old[:1]), 0, header.correlation_id)
            return len(fallback).to_bytes(4, "big") + fallback
        return wire.ApiVersionsResponse(0, old) if header.api_key == 18 else ...

    with Peer(answer) as peer, KafkaBackend(peer.bootstrap) as backend:
        assert backend.alter([rate(ALICE)])[0].changed
    assert seen == [(18, 3), (18, 2), (48, 0), (49, 0)]


def test_a_broker_before_2_6() -> None:
    versions = wire.ApiVersionsResponse(0, VERSIONS[:3])
    with (
        Peer(lambda request, header: versions) as peer,
        KafkaBackend(peer.bootstrap) as backend,
        pytest.raises(Rejected, match="does not serve DESCRIBE_CLIENT_QUOTAS") as raised,
    ):
        backend.describe()
    assert "2.6" in str(raised.value.hint)


def test_an_alter_is_tried_again_while_the_controller_changes() -> None:
    codes = iter([41, 7])

    def answer(request: wire.Request, header: wire.RequestHeader) -> Any:
        if isinstance(request, wire.AlterClientQuotasRequest):
            code = next(codes, 0)
            results = [
                wire.AlterEntryResult(0 if number == 0 and len(request.entries) > 1 else code, None, entry.entity)
                for number, entry in enumerate(request.entries)
            ]
            return wire.AlterClientQuotasResponse(0, results)
        return ...

    with Peer(answer) as peer, KafkaBackend(peer.bootstrap) as backend:
        assert [result.error for result in backend.alter([rate(ALICE), rate(PAIR)])] == [None, None]
    sent = [request.entries for request in peer.requests if isinstance(request, wire.AlterClientQuotasRequest)]
    assert [len(entries) for entries in sent] == [2, 1, 1]


def test_an_alter_that_is_tried_again_finds_what_another_writer_set_meanwhile() -> None:
    """The first answer says NOT_CONTROLLER; until the second request another writer has set 7."""
    rows: list[wire.QuotaEntry] = []

    def answer(request: wire.Request, header: wire.RequestHeader) -> Any:
        if isinstance(request, wire.AlterClientQuotasRequest):
            (entry,) = request.entries
            rows.append(wire.QuotaEntry(entry.entity, [wire.ValueData(PRODUCER.value, 7.0)]))
            return wire.AlterClientQuotasResponse(0, [wire.AlterEntryResult(41, None, entry.entity)])
        if isinstance(request, wire.DescribeClientQuotasRequest):
            return wire.DescribeClientQuotasResponse(0, 0, None, rows)
        return ...

    with Peer(answer) as peer, KafkaBackend(peer.bootstrap) as backend:
        (result,) = backend.alter([rate(ALICE)])
    assert isinstance(result.error, Uncertain)
    assert "NOT_CONTROLLER" in result.error.message
    assert len(rows) == 1


@pytest.mark.parametrize(("late", "shown"), [(30, 7.0), (4, 5.0)])
def test_a_later_write_of_somebody_else_ends_the_wait_and_a_broker_that_lags_does_not(
    late: int, shown: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """alice had 3 and gets 5: who shows 3 lags, and who shows 7 knows more."""
    monkeypatch.setattr(kafka, "_COVERED_S", 0.02)
    looks: Iterator[float] = iter([3.0])

    def answer(request: wire.Request, header: wire.RequestHeader) -> Any:
        if isinstance(request, wire.DescribeClientQuotasRequest):
            row = wire.QuotaEntry([wire.EntityData("user", "alice")], [wire.ValueData(PRODUCER.value, next(looks))])
            return wire.DescribeClientQuotasResponse(0, 0, None, [row])
        return ...

    with Peer(answer) as peer, KafkaBackend(peer.bootstrap) as backend:
        (result,) = backend.alter([Alteration(ALICE, {PRODUCER: 5})])
        looks = itertools.chain([shown if late > 4 else 3.0] * late, itertools.repeat(5.0))
        assert backend.wait_visible([result], timeout_s=60) == ((ALICE,) if shown == 7.0 else ())
        assert backend.describe()[ALICE] == {PRODUCER: shown}


@pytest.mark.parametrize("code", [7, 13])
def test_an_error_after_which_the_controller_may_have_altered(code: int) -> None:
    """A broker that passes an alter on answers REQUEST_TIMED_OUT where it does not know what became of it."""
    answer = to(wire.AlterClientQuotasRequest, lambda request: altered(code, request.entries))
    with Peer(answer) as peer, KafkaBackend(peer.bootstrap, timeout_s=1) as backend:
        results = backend.alter([rate(ALICE), rate(PAIR)])
    assert [type(result.error) for result in results] == [Uncertain, Uncertain]


def test_entities_that_the_broker_does_not_know_do_not_hold_up_others() -> None:
    """As 2.6 answers about ips (KIP-612 came with 2.8)."""

    def answer(request: wire.Request, header: wire.RequestHeader) -> Any:
        if isinstance(request, wire.DescribeClientQuotasRequest) and request.components[0].entity_type == "ip":
            return wire.DescribeClientQuotasResponse(0, 35, "Custom entity type 'ip' not supported", None)
        return ...

    address = Entity(ip="127.0.0.1")
    with Peer(answer) as peer, KafkaBackend(peer.bootstrap) as backend:
        refused, altered = backend.alter([rate(address), rate(ALICE)])
        assert isinstance(refused.error, Rejected)
        assert refused.error.message == "UNSUPPORTED_VERSION: Custom entity type 'ip' not supported"
        assert altered.error is None
        for action in (
            lambda: backend.alter([rate(address)]),
            lambda: backend.describe(QuotaFilter({EntityType.IP: DEFAULT})),
        ):
            with pytest.raises(Rejected, match="'ip' not supported"):
                action()


def test_a_controller_that_stays_away() -> None:
    refused = wire.DescribeClientQuotasResponse(0, 41, "no controller", None)
    with (
        Peer(to(wire.DescribeClientQuotasRequest, lambda _: refused)) as peer,
        KafkaBackend(peer.bootstrap, timeout_s=0.5) as backend,
        pytest.raises(Unreachable, match="NOT_CONTROLLER: no controller"),
    ):
        backend.describe()


def test_a_connection_that_the_broker_closed_meanwhile() -> None:
    """As after connections.max.idle.ms: the next request opens another one."""
    asked = itertools.count()

    def answer(request: wire.Request, header: wire.RequestHeader) -> Any:
        if isinstance(request, wire.DescribeClientQuotasRequest) and next(asked) == 1:
            raise EOFError
        return ...

    with Peer(answer) as peer, KafkaBackend(peer.bootstrap) as backend:
        backend.describe()
        backend.describe()
        assert peer.connections == 2


def test_an_alter_without_an_answer() -> None:
    """Nobody knows whether it was carried out, and the result says so; what was never sent is another matter."""
    alters = itertools.count()

    def answer(request: wire.Request, header: wire.RequestHeader) -> Any:
        if isinstance(request, wire.AlterClientQuotasRequest) and not request.validate_only:
            return ... if next(alters) == 0 else None
        return ...

    alterations = [rate(Entity(user=f"u{number}")) for number in range(2500)]  # no KRaft: 1,000 a request
    with Peer(answer) as peer, KafkaBackend(peer.bootstrap, timeout_s=3) as backend:
        results = backend.alter(alterations)
    assert {result.error for result in results[:1000]} == {None}
    lost, unsent = results[1000].error, results[2000].error
    assert isinstance(lost, Unreachable)
    assert lost.message.startswith("user=u1000 may or may not have been altered: Kafka at 127.0.0.1")
    assert isinstance(unsent, Unreachable)
    assert unsent.message.startswith("user=u2000 was not altered: ")


def test_a_lost_write_ends_in_its_time() -> None:
    """What is asked afterwards, whether it was made, has no time-out of its own."""
    cut = threading.Event()

    def answer(request: wire.Request, header: wire.RequestHeader) -> Any:
        if isinstance(request, wire.AlterClientQuotasRequest) and not request.validate_only:
            cut.set()
        return None if cut.is_set() else ...

    started = time.monotonic()
    with Peer(answer) as peer, KafkaBackend(peer.bootstrap, timeout_s=8) as backend:
        (result,) = backend.alter([rate(Entity(user="u"))])
        for _ in range(2):
            with pytest.raises(Unreachable):
                backend.describe()
    assert isinstance(result.error, Uncertain)
    assert time.monotonic() - started < 2 * 8


def test_a_writer_does_not_wait_twice_for_a_cluster_that_went_silent() -> None:
    """It asks for the cluster's name first; what comes after it would wait as long once more."""
    with (
        Peer(lambda request, header: None if isinstance(request, wire.DescribeClusterRequest) else ...) as peer,
        KafkaBackend(peer.bootstrap, timeout_s=1) as backend,
        pytest.raises(Unreachable, match="did not answer within 1 s"),
        backend.alone(),
    ):
        pytest.fail("nothing is written then")


def test_an_answer_that_forgets_an_entity() -> None:
    answer = to(wire.AlterClientQuotasRequest, lambda request: altered(0, request.entries[1:]))
    with Peer(answer) as peer, KafkaBackend(peer.bootstrap) as backend:
        forgotten, known = backend.alter([rate(ALICE), rate(PAIR)])
    assert isinstance(forgotten.error, Rejected)
    assert known.error is None


def test_a_request_that_the_cluster_refuses_as_a_whole() -> None:
    text = "Unable to perform excessively large batch operation."
    with (
        Peer(to(wire.AlterClientQuotasRequest, lambda request: altered(44, request.entries, text))) as peer,
        KafkaBackend(peer.bootstrap) as backend,
        pytest.raises(Rejected, match="POLICY_VIOLATION: Unable to perform excessively large batch operation"),
    ):
        backend.alter([rate(ALICE), rate(PAIR)])


def test_what_kquota_does_not_know_is_a_problem_and_not_a_crash() -> None:
    part, value = wire.EntityData, wire.ValueData
    entries = [
        wire.QuotaEntry([part("group", "g"), part("user", None)], [value("producer_byte_rate", 1.0)]),
        wire.QuotaEntry([part("user", "")], [value("producer_byte_rate", 1.0)]),  # KAFKA-16222
        wire.QuotaEntry([], [value("producer_byte_rate", 1.0)]),
        wire.QuotaEntry([part("ip", "::1"), part("user", "u")], [value("producer_byte_rate", 1.0)]),
        wire.QuotaEntry([part("user", "alice")], [value("new_rate", 1.5), value(CONNECTIONS.value, 3.0)]),
        wire.QuotaEntry([part("user", "bob")], [value("new_rate", 1e300), value("producer_byte_rate", -0.0)]),
        # Kafka 4.3 stored it, and 4.4 keeps what is there.
        wire.QuotaEntry([part("user", "carol")], [value("producer_byte_rate", math.nan)]),
    ]

    answer = to(wire.DescribeClientQuotasRequest, lambda _: wire.DescribeClientQuotasResponse(0, 0, None, entries))
    with Peer(answer) as peer, KafkaBackend(peer.bootstrap) as backend:
        snapshot = backend.describe()
    assert {entity: dict(values) for entity, values in snapshot.items()} == {Entity(user="bob"): {PRODUCER: 0}}
    assert [problem.where for problem in snapshot.problems] == [
        "group=g,user=<default>",
        "user=",
        "",
        "ip=::1,user=u",
        "user=alice",
        "user=alice",
        "user=bob",
        "user=carol",
    ]
    assert snapshot.problems[7].message == "producer_byte_rate is NaN, not a LONG: no limit is in effect"
    assert snapshot.problems[4].message == "new_rate=1.5 is a quota key that kquota does not know"


def test_an_answer_of_more_entries_than_it_has_room_for() -> None:
    """Ninety megabytes of empty entries would be thirty millions of them."""
    count = 30_000_000

    def answer(request: wire.Request, header: wire.RequestHeader) -> Any:
        if not isinstance(request, wire.DescribeClientQuotasRequest):
            return ...
        size = bytearray()
        number = count + 1
        while number > 0x7F:
            size.append(number & 0x7F | 0x80)
            number >>= 7
        size.append(number)
        head = header.correlation_id.to_bytes(4, "big") + b"\0" + bytes(4) + bytes(2) + b"\0"
        frame = head + bytes(size) + b"\1\1\0" * count + b"\0"
        return len(frame).to_bytes(4, "big") + frame

    with Peer(answer) as peer, KafkaBackend(peer.bootstrap, timeout_s=60) as backend:
        started = time.process_time()
        with pytest.raises(Unreachable, match=r"malformed: a frame of .* bytes with 30000000 entries"):
            backend.describe()
        assert time.process_time() - started < 60


def of_2_6(request: wire.Request) -> wire.Response:
    """What a broker of Kafka 2.6 answers, which knows no DescribeCluster."""
    match request:
        case wire.ApiVersionsRequest():
            keys = {3: 9, 18: 3, 32: 3, 44: 1, 48: 0, 49: 0}
            return wire.ApiVersionsResponse(0, [wire.ApiVersion(key, 0, most) for key, most in keys.items()])
        case wire.MetadataRequest():
            return wire.MetadataResponse(0, [wire.DescribeClusterBroker(7, "b7", 9092, None)], "an id", 7)
        case wire.DescribeConfigsRequest(resources):
            found = [wire.DescribeConfigsResult(0, None, 4, each.resource_name, []) for each in resources]
            return wire.DescribeConfigsResponse(0, found)
    return usual(request)


def test_what_a_broker_of_2_6_cannot_do_is_said_before_a_write() -> None:
    with Peer(lambda request, header: of_2_6(request)) as peer, KafkaBackend(peer.bootstrap) as backend:
        assert (backend.release(), backend.broker_count(), backend.cluster_id()) == ((2, 6, 0), 1, "an id")
        refused, altered = backend.alter([rate(Entity(ip="127.0.0.1")), rate(ALICE)])
        written = [request for request in peer.requests if isinstance(request, wire.AlterClientQuotasRequest)]
        with KafkaBrokerConfigs(peer.bootstrap) as configs, pytest.raises(Rejected, match=r"Kafka 2\.6: since 2\.7"):
            configs.alter(BrokerAlteration(DEFAULT, {RATE: 200}))
        assert not any(isinstance(request, wire.IncrementalAlterConfigsRequest) for request in peer.requests)
    assert refused.error is not None
    assert refused.error.message == "not enforced by Kafka 2.6: since 2.8 (KIP-612)"
    assert altered.error is None
    assert len(written) == 1


def test_topics_are_made_by_the_controller() -> None:
    """Brokers in ZooKeeper mode do not pass that on, and say that they are not the controller."""

    def answer(number: int) -> Callable[[wire.Request, wire.RequestHeader], Any]:
        def reply(request: wire.Request, _: wire.RequestHeader) -> Any:
            match request:
                case wire.DescribeClusterRequest():
                    hosts = [peer.bootstrap.rpartition(":") for peer in peers]
                    nodes = [
                        wire.DescribeClusterBroker(id, host, int(port), None)
                        for id, (host, _, port) in enumerate(hosts)
                    ]
                    return wire.DescribeClusterResponse(0, 0, None, 1, "id", 1, nodes)
                case wire.CreateTopicsRequest():
                    return wire.CreateTopicsResponse(0, [wire.CreatedTopic("t", 0 if number == 1 else 41, None)])
            return ...

        return reply

    peers = [Peer(answer(0)), Peer(answer(1))]
    with peers[0], peers[1], contextlib.closing(Nodes(peers[0].bootstrap, timeout_s=2)) as nodes:
        assert nodes.create_topic("t")
