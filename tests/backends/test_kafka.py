"""The contract on a real broker (Kafka 4.3.1, KRaft), what only brokers can show, and peers that behave badly."""

from __future__ import annotations

import contextlib
import itertools
import math
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from kquota.backends import QuotaBackend, wire
from kquota.backends.clientprops import kafka_security
from kquota.backends.kafka import KafkaBackend, KafkaSecurity, Servers
from kquota.backends.kafka.codes import CODES
from kquota.backends.kafka.connection import Connection, Deadline
from kquota.backends.kafka.scram import scram
from kquota.core.alteration import Alteration
from kquota.core.entity import DEFAULT, Entity, EntityType
from kquota.core.filter import QuotaFilter
from kquota.core.quota import QuotaKey
from kquota.core.snapshot import Problem
from kquota.errors import InputError, InvalidRequest, KquotaError, Rejected, Unauthorized, Unreachable
from tests.backends.contract import CONNECTIONS, CONSUMER, PRODUCER, REQUEST, ClusterContract, Limit, rate
from tests.backends.neighbours import BrokerNeighbour
from tests.brokers import kafka as brokers
from tests.brokers.kafka import KafkaBroker, free_ports, password_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas by a function on its way out
    import kafka.errors

ALICE = Entity(user="alice")
PAIR = Entity(user=DEFAULT, client_id="app")
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"

CAROL = ("--entity-type", "users", "--entity-name", "carol")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server and a client that it signed, and a stranger."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new_key = ("-newkey", "rsa:2048")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("ca", "stranger"):
        openssl(
            "req", "-x509", *new_key, "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}"
        )
    for name in ("server", "client"):
        secret = ("-passout", "pass:k3y") if name == "client" else ("-nodes",)
        openssl("req", *new_key, *secret, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signer = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names")
        openssl("x509", "-req", "-in", f"{name}.csr", *signer, "-out", f"{name}.pem")
    for name in ("server", "client", "stranger"):
        store = (folder / f"{name}.key").read_text() + (folder / f"{name}.pem").read_text()
        (folder / f"{name}.store.pem").write_text(store)
    return folder


@dataclass(frozen=True)
class Cluster:
    """A real broker and its listeners."""

    broker: KafkaBroker
    controller: str
    tls: str
    mtls: str
    sasl_tls: str

    @property
    def plain(self) -> str:
        return self.broker.bootstrap

    @property
    def sasl(self) -> str:
        return self.broker.sasl_bootstrap


@pytest.fixture(scope="module")
def cluster(certificates: Path) -> Iterator[Cluster]:
    """Everybody may do nothing, but for the super users; carol has SCRAM credentials, bob may describe."""
    controller, tls, mtls, sasl_tls = ports = free_ports(4)
    plain_users = f'{PLAIN_MODULE} required user_admin="{password_of("admin")}";'
    listeners = f"TLS://127.0.0.1:{tls},MTLS://127.0.0.1:{mtls},SASL_TLS://127.0.0.1:{sasl_tls}"
    more = f"""\
listeners=PLAINTEXT://127.0.0.1:{{plain}},SASL_PLAINTEXT://127.0.0.1:{{sasl}},CONTROLLER://127.0.0.1:{controller},{listeners}
advertised.listeners=PLAINTEXT://127.0.0.1:{{plain}},SASL_PLAINTEXT://127.0.0.1:{{sasl}},{listeners}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,TLS:SSL,MTLS:SSL,SASL_TLS:SASL_SSL
controller.quorum.voters=1@127.0.0.1:{controller}
ssl.keystore.type=PEM
ssl.keystore.location={certificates / "server.store.pem"}
ssl.truststore.type=PEM
ssl.truststore.location={certificates / "ca.pem"}
listener.name.mtls.ssl.client.auth=required
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config={SCRAM_MODULE} required;
listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config={SCRAM_MODULE} required;
listener.name.sasl_tls.sasl.enabled.mechanisms=PLAIN
listener.name.sasl_tls.plain.sasl.jaas.config={plain_users}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:admin;User:carol;User:CN=client
"""
    with pytest.MonkeyPatch.context() as patch:
        # The harness knows two listeners, whose ports it chooses itself; later lines win.
        patch.setattr(brokers, "_SERVER", brokers._SERVER + more)
        with KafkaBroker() as broker:
            for credentials in ("SCRAM-SHA-256=[password=c-256]", "SCRAM-SHA-512=[password=c-512]"):
                added = broker.kafka_configs("--alter", "--add-config", credentials, *CAROL)
                assert added.returncode == 0, added.stderr
            admin = AdminClient(broker.client())
            for acl in admin.create_acls([_may("bob", AclOperation.DESCRIBE_CONFIGS)]).values():
                acl.result(10)
            yield Cluster(broker, *(f"127.0.0.1:{port}" for port in ports))


def _may(user: str, operation: AclOperation) -> AclBinding:
    pattern = (ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL)
    return AclBinding(*pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


@pytest.fixture
def backend(cluster: Cluster) -> Iterator[KafkaBackend]:
    """A backend that finds no quotas, and leaves none."""
    with KafkaBackend(cluster.plain) as backend:
        yield backend
        # Only a backend that wrote knows what there is to wait for.
        snapshot = backend.describe()
        results = backend.alter([Alteration(entity, remove=frozenset(values)) for entity, values in snapshot.items()])
        assert backend.wait_visible(results) == ()


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


# --- On the broker ---------------------------------------------------------------------------------------------------


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
    deadline = time.monotonic() + 5
    while entity not in (snapshot := backend.describe()) and time.monotonic() < deadline:
        pass
    assert dict(snapshot[entity]) == {PRODUCER: 2048, QuotaKey.CONTROLLER_MUTATION_RATE: 0.25}
    assert isinstance(snapshot[entity][PRODUCER], int)


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
    for name in ("x" * 32_768, "\ud800"):
        refused, altered = backend.alter([rate(Entity(user=name)), rate(ALICE)])
        assert isinstance(refused.error, InputError)
        assert altered.error is None
        assert list(backend.describe(QuotaFilter({EntityType.USER: name}, strict=True))) == []
    (longest,) = backend.alter([rate(Entity(user="x" * 32_767))])
    assert longest.error is None
    assert backend.describe()[longest.entity] == {PRODUCER: 1024}


def test_values_that_only_other_tools_set(cluster: Cluster, backend: KafkaBackend) -> None:
    """Observed on 4.3.1: NaN passes for every key, infinity for DOUBLE, and what is whole within 1e-6 for LONG."""
    unlimited = [wire.OpData(PRODUCER.value, math.nan, False), wire.OpData(REQUEST.value, math.nan, False)]
    infinite = [wire.OpData(CONSUMER.value, 1024.0000001, False), wire.OpData(REQUEST.value, math.inf, False)]
    tell(cluster.plain, [("alice", unlimited), ("bob", infinite)])
    bob = Entity(user="bob")
    try:
        while len(snapshot := backend.describe()) < 2:
            pass
        assert math.isnan(snapshot[ALICE][REQUEST])
        assert PRODUCER not in snapshot[ALICE]
        assert snapshot.problems == (
            Problem("user=alice", "producer_byte_rate is NaN, not a LONG: no limit is in effect"),
        )
        assert dict(snapshot[bob]) == {CONSUMER: 1024, REQUEST: math.inf}
        assert isinstance(snapshot[bob][CONSUMER], int)
        # What cannot be shown can be removed all the same, strictly too.
        (removed,) = backend.alter([Alteration(ALICE, remove=frozenset({PRODUCER}), strict_remove=True)])
        assert removed.error is None
    finally:
        removals = [wire.OpData(key.value, 0.0, True) for key in (PRODUCER, REQUEST)]
        tell(cluster.plain, [("alice", removals)])


def tell(bootstrap: str, changes: Sequence[tuple[str, list[wire.OpData]]]) -> None:
    """Alters users without any of kquota's checks."""
    entries = [wire.AlterEntry([wire.EntityData("user", user)], ops) for user, ops in changes]
    deadline = Deadline(10)
    connection = Connection.open(Servers.parse(bootstrap).servers[0], KafkaSecurity(), deadline)
    request = wire.AlterClientQuotasRequest(entries, False)
    (answer,) = connection.ask([request], wire.AlterClientQuotasResponse, deadline)
    connection.close()
    assert {entry.error_code for entry in answer.entries} == {0}


def test_a_controller_serves_no_describe(cluster: Cluster) -> None:
    with KafkaBackend(cluster.controller) as backend, pytest.raises(Rejected, match="DESCRIBE_CLIENT_QUOTAS"):
        backend.describe()


# --- Who we are ------------------------------------------------------------------------------------------------------


def as_user(user: str, password: str | None = None, mechanism: str = "PLAIN", **tls: Any) -> KafkaSecurity:
    return KafkaSecurity(mechanism=mechanism, username=user, password=password or password_of(user), **tls)


def test_plain(cluster: Cluster) -> None:
    with KafkaBackend(cluster.sasl, security=as_user("admin")) as backend:
        assert backend.alter([rate(ALICE)], validate_only=True)[0].error is None


def test_plain_with_a_wrong_password(cluster: Cluster) -> None:
    started = time.monotonic()
    with (
        KafkaBackend(cluster.sasl, security=as_user("admin", "wrong-secret")) as backend,
        pytest.raises(Unauthorized, match="Authentication failed: Invalid username or password") as raised,
    ):
        backend.describe()
    assert f"at {cluster.sasl} as 'admin'" in raised.value.message
    assert "wrong-secret" not in repr(raised.value)
    assert time.monotonic() - started < 5  # no attempt after the first


@pytest.mark.parametrize(("mechanism", "password"), [("SCRAM-SHA-256", "c-256"), ("SCRAM-SHA-512", "c-512")])
def test_scram(cluster: Cluster, mechanism: str, password: str) -> None:
    with KafkaBackend(cluster.sasl, security=as_user("carol", password, mechanism)) as backend:
        assert backend.describe().problems == ()
    for user, wrong in (("carol", "wrong"), ("nobody=,", password)):
        with (
            KafkaBackend(cluster.sasl, security=as_user(user, wrong, mechanism)) as backend,
            pytest.raises(Unauthorized, match=f"invalid credentials with SASL mechanism {mechanism}"),
        ):
            backend.describe()


def test_a_mechanism_that_the_listener_has_not(cluster: Cluster, certificates: Path) -> None:
    security = as_user("carol", "c-512", "SCRAM-SHA-512", ca=certificates / "ca.pem")
    with KafkaBackend(cluster.sasl_tls, security=security) as backend, pytest.raises(Unauthorized) as raised:
        backend.describe()
    assert raised.value.message.endswith("SCRAM-SHA-512 is not enabled there")
    assert raised.value.hint == "the listener offers PLAIN"


def test_permissions(cluster: Cluster) -> None:
    """Without a permission nothing at all can be done; a describe needs another one than an alter."""
    with KafkaBackend(cluster.sasl, security=as_user("alice")) as backend:
        for action in (backend.describe, lambda: backend.alter([rate(ALICE)])):
            with pytest.raises(Unauthorized, match="CLUSTER_AUTHORIZATION_FAILED: Cluster authorization failed"):
                action()
    with KafkaBackend(cluster.sasl, security=as_user("bob")) as backend:
        assert len(backend.describe()) == 0
        with pytest.raises(Unauthorized, match="CLUSTER_AUTHORIZATION_FAILED: Cluster authorization failed"):
            backend.alter([rate(ALICE), rate(PAIR)])


def test_tls(cluster: Cluster, certificates: Path) -> None:
    trusting = KafkaSecurity(ca=certificates / "ca.pem")
    with KafkaBackend(cluster.tls, security=trusting) as backend:
        assert len(backend.describe()) == 0
    with KafkaBackend(cluster.sasl_tls, security=as_user("admin", ca=certificates / "ca.pem")) as backend:
        assert len(backend.describe()) == 0
    for stranger in (KafkaSecurity(tls=True), KafkaSecurity(ca=certificates / "stranger.pem")):
        with (
            KafkaBackend(cluster.tls, security=stranger) as backend,
            pytest.raises(Unreachable, match="certificate verify failed"),
        ):
            backend.describe()


def test_tls_compares_the_host_name(cluster: Cluster, certificates: Path) -> None:
    by_name = cluster.tls.replace("127.0.0.1", "localhost")  # the certificate is for the address
    with (
        KafkaBackend(by_name, security=KafkaSecurity(ca=certificates / "ca.pem")) as backend,
        pytest.raises(Unreachable, match=r"localhost.*[Hh]ostname mismatch"),
    ):
        backend.describe()
    with KafkaBackend(by_name, security=KafkaSecurity(ca=certificates / "ca.pem", verify_host=False)) as backend:
        assert len(backend.describe()) == 0


def test_client_certificates(cluster: Cluster, certificates: Path, tmp_path: Path) -> None:
    ca = certificates / "ca.pem"
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol=SSL\nssl.truststore.location={ca}\n"
        f"ssl.keystore.location={certificates / 'client.store.pem'}\nssl.key.password=k3y\n"
    )
    with KafkaBackend(cluster.mtls, security=kafka_security(file)) as backend:
        assert backend.alter([rate(ALICE)], validate_only=True)[0].error is None
    stranger = KafkaSecurity(ca=ca, cert=certificates / "stranger.store.pem")
    for security, hint in ((KafkaSecurity(ca=ca), "wants a client"), (stranger, "refuses the client")):
        with KafkaBackend(cluster.mtls, security=security) as backend, pytest.raises(Unauthorized) as raised:
            backend.describe()
        assert hint in str(raised.value.hint), raised.value.message


@pytest.mark.parametrize("password", [None, "wrong"])
def test_the_password_of_the_key(cluster: Cluster, certificates: Path, password: str | None) -> None:
    security = KafkaSecurity(cert=certificates / "client.store.pem", key_password=password)
    with KafkaBackend(cluster.mtls, security=security) as backend, pytest.raises(InputError) as raised:
        backend.describe()
    assert "ssl.key.password" in str(raised.value.hint)


def test_listeners_of_another_kind(cluster: Cluster, certificates: Path) -> None:
    """Each mistake is named: plain to TLS, TLS to plain, plain to SASL, SASL to plain."""
    tls = KafkaSecurity(ca=certificates / "ca.pem")
    cases: list[tuple[str, KafkaSecurity | None, type[KquotaError], str]] = [
        (cluster.tls, None, Unreachable, "TLS"),
        (cluster.plain, tls, Unreachable, "TLS port"),
        (cluster.sasl, None, Unreachable, "SASL"),
        (cluster.plain, as_user("admin"), Unauthorized, "listener for SASL"),
        (cluster.sasl_tls, as_user("admin"), Unreachable, "TLS"),
    ]
    for bootstrap, security, kind, hint in cases:
        with KafkaBackend(bootstrap, security=security) as backend, pytest.raises(kind) as raised:
            backend.describe()
        assert bootstrap in raised.value.message
        assert hint in str(raised.value.hint), raised.value.message


# --- Peers that behave badly -----------------------------------------------------------------------------------------

VERSIONS = [wire.ApiVersion(api.key, 0, api.max_version) for api in wire.APIS]


class Peer:
    """A scripted broker: `answer` is given each request and returns a response, raw bytes, or None for silence.

    Raising EOFError closes the connection. Versions and describes without entities are answered where it returns ....
    """

    def __init__(self, answer: Callable[[wire.Request, wire.RequestHeader], Any]) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.requests: list[wire.Request] = []
        self.connections = 0
        self.bootstrap = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Peer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # Closing alone does not wake a thread that waits in accept.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for each in (self._listener, *self._open):
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connected, _ = self._listener.accept()
                self.connections += 1
                self._open.append(connected)
                threading.Thread(target=self._serve, args=(connected,), daemon=True).start()

    def _serve(self, connected: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError), connected, connected.makefile("rb") as stream:
            while size := stream.read(4):
                header, request = wire.decode_request(stream.read(int.from_bytes(size, "big")))
                self.requests.append(request)
                reply = self._answer(request, header)
                if reply is ...:
                    reply = usual(request)
                if not isinstance(reply, bytes | None):
                    reply = wire.encode_response(reply, header.api_version, header.correlation_id)
                    reply = len(reply).to_bytes(4, "big") + reply
                if reply is not None:
                    connected.sendall(reply)


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


def test_an_unreachable_port() -> None:
    (port,) = free_ports(1)
    with (
        KafkaBackend(f"127.0.0.1:{port}", timeout_s=5) as backend,
        pytest.raises(Unreachable, match=rf"127\.0\.0\.1:{port}: connection refused"),
    ):
        backend.describe()


@pytest.mark.parametrize("security", [None, KafkaSecurity(tls=True), as_user("alice")])
def test_a_peer_that_stays_silent(security: KafkaSecurity | None) -> None:
    """In TLS it is the handshake that nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        started = time.monotonic()
        with (
            KafkaBackend(f"127.0.0.1:{port}", timeout_s=0.5, security=security) as backend,
            pytest.raises(Unreachable, match=rf"127\.0\.0\.1:{port}: no answer within 0\.5 s"),
        ):
            backend.describe()
        assert 0.4 < time.monotonic() - started < 3


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
            pytest.raises(Unreachable, match=r"no answer within 0\.5 s"),
        ):
            backend.describe()
        assert time.monotonic() - started < 3
        stop.set()
        thread.join()


def test_servers_are_tried_in_turn(cluster: Cluster) -> None:
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        others = f"127.0.0.1:{port},127.0.0.1:{silent.getsockname()[1]}"
        with KafkaBackend(f"{others}, {cluster.plain}", timeout_s=3) as backend:
            assert len(backend.describe()) == 0
        with KafkaBackend(others, timeout_s=1) as backend, pytest.raises(Unreachable) as raised:
            backend.describe()
    message = raised.value.message
    assert message.startswith(f"cannot reach Kafka at any of 2 servers: 127.0.0.1:{port}: connection refused; ")
    assert "no answer within" in message


@pytest.mark.parametrize(
    "garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\5\0\0\0\1\0", b"\xff\xff\xff\xff", b"\0\0\0\4\0\0\0\x63"]
)
def test_what_is_not_kafka(garbage: bytes) -> None:
    with (
        Peer(lambda request, header: garbage) as peer,
        KafkaBackend(peer.bootstrap, timeout_s=3) as backend,
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
            fallback = wire.encode_response(wire.ApiVersionsResponse(35, old[:1]), 0, header.correlation_id)
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
    def answer(request: wire.Request, header: wire.RequestHeader) -> Any:
        if isinstance(request, wire.DescribeClientQuotasRequest):
            return wire.DescribeClientQuotasResponse(0, 41, "no controller", None)
        return ...

    with (
        Peer(answer) as peer,
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
    with Peer(answer) as peer, KafkaBackend(peer.bootstrap, timeout_s=0.5) as backend:
        results = backend.alter(alterations)
    assert {result.error for result in results[:1000]} == {None}
    lost, unsent = results[1000].error, results[2000].error
    assert isinstance(lost, Unreachable)
    assert lost.message.startswith("user=u1000 may or may not have been altered: lost Kafka at 127.0.0.1")
    assert isinstance(unsent, Unreachable)
    assert unsent.message.startswith("user=u2000 was not altered: ")


def test_an_answer_that_forgets_an_entity() -> None:
    def answer(request: wire.Request, header: wire.RequestHeader) -> Any:
        if isinstance(request, wire.AlterClientQuotasRequest):
            return wire.AlterClientQuotasResponse(0, [wire.AlterEntryResult(0, None, request.entries[1].entity)])
        return ...

    with Peer(answer) as peer, KafkaBackend(peer.bootstrap) as backend:
        forgotten, altered = backend.alter([rate(ALICE), rate(PAIR)])
    assert isinstance(forgotten.error, Rejected)
    assert altered.error is None


def test_a_request_that_the_cluster_refuses_as_a_whole() -> None:
    def answer(request: wire.Request, header: wire.RequestHeader) -> Any:
        if isinstance(request, wire.AlterClientQuotasRequest):
            text = "Unable to perform excessively large batch operation."
            return wire.AlterClientQuotasResponse(
                0, [wire.AlterEntryResult(44, text, entry.entity) for entry in request.entries]
            )
        return ...

    with (
        Peer(answer) as peer,
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
    ]

    def answer(request: wire.Request, header: wire.RequestHeader) -> Any:
        if isinstance(request, wire.DescribeClientQuotasRequest):
            return wire.DescribeClientQuotasResponse(0, 0, None, entries)
        return ...

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
    ]
    assert snapshot.problems[4].message == "new_rate=1.5 is a quota key that kquota does not know"


def test_what_is_never_shown_is_waited_for_no_longer_than_asked() -> None:
    with Peer(lambda request, header: ...) as peer, KafkaBackend(peer.bootstrap) as backend:
        results = backend.alter([rate(ALICE)])
        assert backend.wait_visible(results, timeout_s=0.2) == (ALICE,)
        assert backend.wait_visible(()) == ()


# --- Parts -----------------------------------------------------------------------------------------------------------


def test_scram_follows_the_rfc() -> None:
    """The exchange of RFC 7677, section 3."""
    conversation = scram("SCRAM-SHA-256", "user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")
    assert next(conversation) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    server_first = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert conversation.send(server_first) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    with pytest.raises(StopIteration):
        conversation.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    ("first", "final", "says"),
    [
        ("r=ownsrv,s=c2FsdA==,i=4096", "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "signature is wrong"),
        ("r=ownsrv,s=c2FsdA==,i=4096", "", "signature is wrong"),
        ("r=ownsrv,s=c2FsdA==,i=4096", "e=other-error", "other-error"),
        ("r=own,s=c2FsdA==,i=4096", None, "does not follow"),
        ("r=srv,s=c2FsdA==,i=4096", None, "does not follow"),
        ("r=ownsrv,s=???,i=4096", None, "does not follow"),
        ("r=ownsrv,s=c2FsdA==,i=4095", None, "asks for 4095 iterations"),
        ("r=ownsrv,s=c2FsdA==,i=1000000000", None, "asks for 1000000000 iterations"),
        ("r=ownsrv,s=c2FsdA==", None, "asks for no iterations"),
        ("\xff", None, "does not follow"),
    ],
)
def test_scram_trusts_no_server_that_cannot_prove_itself(first: str, final: str | None, says: str) -> None:
    conversation = scram("SCRAM-SHA-256", "user", "pencil", nonce="own")
    next(conversation)
    if final is not None:
        conversation.send(first.encode("latin-1"))
    with pytest.raises(Unauthorized, match=says):
        conversation.send((first if final is None else final).encode("latin-1"))


def test_names_of_error_codes_are_kafkas() -> None:
    classes = vars(kafka.errors).values()
    known = {each.errno: each.message for each in classes if isinstance(getattr(each, "errno", None), int)}
    assert known[-1] == "UNKNOWN"  # of kafka-python; in Kafka it is UNKNOWN_SERVER_ERROR
    assert {code: ours.name for code, ours in CODES.items() if code != -1} == {
        code: known[code] for code in CODES if code != -1
    }


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("a:9092", ["a:9092"]),
        (" a:9092 , [::1]:9093,a:9092,", ["a:9092", "[::1]:9093"]),
        ("kafka-1.example.com:1", ["kafka-1.example.com:1"]),
    ],
)
def test_bootstrap_servers(text: str, servers: list[str]) -> None:
    assert [str(server) for server in Servers.parse(text).servers] == servers


@pytest.mark.parametrize(
    "text", ["", "a", "a:0", "a:65536", ":9092", "a:9092,,b:9092", "PLAINTEXT://a:9092", "a b:1", "::1:9092"]
)
def test_malformed_bootstrap_servers(text: str) -> None:
    with pytest.raises(InputError, match="malformed bootstrap server"):
        KafkaBackend(text)


@pytest.mark.parametrize("timeout_s", [0, -1, math.nan])
def test_malformed_time_outs(timeout_s: float) -> None:
    with pytest.raises(InputError, match="not positive"):
        KafkaBackend("a:9092", timeout_s=timeout_s)


@pytest.mark.parametrize(
    "wrong",
    [
        {"mechanism": "PLAIN"},
        {"username": "u", "password": "p"},
        {"mechanism": "PLAIN", "username": "u"},
        {"mechanism": "GSSAPI", "username": "u", "password": "p"},
        {"mechanism": "PLAIN", "username": "u", "password": "p\0"},
        {"key": Path(__file__)},
        {"ca": Path("missing.pem")},
    ],
)
def test_half_a_security_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        KafkaSecurity(**wrong)


def test_what_is_imported_only_when_needed() -> None:
    code = "import sys, kquota.backends.kafka; print(*({'ssl', 'asyncio', 'hashlib', 'kafka'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
