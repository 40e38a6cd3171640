"""What `kquota doctor` says about real servers: each cause of a failed login has its own line and its own next step."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from kafka.protocol.broker_version_data import BROKER_API_VERSIONS

from kquota import Entity, KafkaSecurity, Plain, Scram, Unauthorized, Unreachable, ZooKeeperSecurity
from kquota.backends import wire
from kquota.backends.addresses import Server
from kquota.backends.kafka import KafkaBackend
from kquota.backends.kafka.checks import check_brokers
from kquota.backends.kafka.connection import Connection, Deadline, Lost
from kquota.backends.kafka.session import SIGNS, release_of
from kquota.backends.wire import ApiVersion
from kquota.backends.zookeeper import ZooKeeperBackend
from kquota.backends.zookeeper.checks import check_ensemble
from kquota.core.check import Check, State
from tests.backends.conftest import Certificates, Cluster, SecuredZooKeeper
from tests.backends.contract import rate
from tests.brokers.kafka import password_of
from tests.support.certificates import tls_from_files
from tests.support.data import data_rows
from tests.support.processes import free_ports
from tests.support.sandbox import Sandbox


def plain(user: str, password: str | None = None) -> Plain:
    return Plain(user, password or password_of(user))


def brokers(bootstrap: str, security: KafkaSecurity | None = None, timeout_s: float = 10) -> list[Check]:
    return list(check_brokers(bootstrap, security or KafkaSecurity(), timeout_s))


def by_subject(checks: list[Check]) -> dict[str, Check]:
    return {check.subject: check for check in checks}


def test_a_login_that_may_do_everything(cluster: Cluster, certificates: Certificates) -> None:
    tls = tls_from_files(truststore=certificates / "ca.pem")
    for bootstrap, security, says in (
        (cluster.plain, None, "Kafka 4.4 or later, KRaft, no TLS, no login"),
        (cluster.tls, KafkaSecurity(tls), "KRaft, TLS, no login"),
        (cluster.sasl, KafkaSecurity(sasl=plain("admin")), "no TLS, logged in as 'admin' by PLAIN"),
        (cluster.sasl_tls, KafkaSecurity(tls, plain("admin")), "TLS, logged in as 'admin' by PLAIN"),
    ):
        found = by_subject(brokers(bootstrap, security))
        if bootstrap == cluster.tls:  # an anonymous client of TLS is ANONYMOUS, who is a super user here
            assert found["alter quotas"].state is State.OK
        assert [check for check in found.values() if check.state is not State.OK] == []
        assert says in found[bootstrap].message
        assert found["brokers"].message.endswith(f"brokers 1 at {bootstrap}")
        assert (found["describe quotas"].message, found["alter quotas"].message) == ("allowed", "allowed")
    with KafkaBackend(cluster.plain) as backend:
        assert Entity(user="kquota-doctor") not in backend.describe()  # the trial wrote nothing


def test_permissions(cluster: Cluster) -> None:
    """Alice may do nothing, bob may describe: the remedy is the command that an administrator runs."""
    alice = by_subject(brokers(cluster.sasl, KafkaSecurity(sasl=plain("alice"))))
    assert alice["describe quotas"].state is State.FAIL
    assert isinstance(alice["describe quotas"].error, Unauthorized)
    assert "--allow-principal User:alice --operation DescribeConfigs --cluster" in alice["describe quotas"].remedy
    bob = by_subject(brokers(cluster.sasl, KafkaSecurity(sasl=plain("bob"))))
    assert bob["describe quotas"].state is State.OK
    assert bob["alter quotas"].state is State.WARN
    assert "--allow-principal User:bob --operation AlterConfigs --cluster" in bob["alter quotas"].remedy


class Scene(NamedTuple):
    """What a case is made of."""

    cluster: Cluster
    certificates: Certificates

    def trusting(self, name: str = "ca.pem", sasl: Plain | Scram | None = None) -> KafkaSecurity:
        return KafkaSecurity(tls_from_files(truststore=self.certificates / name), sasl)


def anonymous(_: Scene) -> KafkaSecurity:
    return KafkaSecurity()


def as_admin(_: Scene) -> KafkaSecurity:
    return KafkaSecurity(sasl=plain("admin"))


# The listener and the login of each, and the error, what is said, and the remedy.
CASES: dict[str, tuple[str, Callable[[Scene], KafkaSecurity]]] = {
    "TLS to a plain port": ("plain", Scene.trusting),
    "TLS and a login to a plain port": ("sasl", lambda scene: scene.trusting(sasl=plain("admin"))),
    "plain to a TLS port": ("tls", anonymous),
    "a login without TLS to a TLS port": ("sasl_tls", as_admin),
    "no login to a port that asks for one": ("sasl", anonymous),
    "no login to a TLS port that asks for one": ("sasl_tls", Scene.trusting),
    "a login to a port without logins": ("plain", as_admin),
    "wrong mechanism": ("sasl_tls", lambda scene: scene.trusting(sasl=Scram("SCRAM-SHA-512", "carol", "c-512"))),
    "wrong password": ("sasl", lambda scene: KafkaSecurity(sasl=plain("admin", "wrong"))),
    "unknown authority": ("tls", lambda scene: scene.trusting("stranger.pem")),
    "host name that is not in the certificate": ("tls", Scene.trusting),
    "no client certificate": ("mtls", Scene.trusting),
}
SAID = {name: said for name, *said in data_rows("refused/login_checks.txt")}


@pytest.mark.parametrize("name", [*CASES, *(SAID.keys() - CASES.keys())])
def test_why_a_login_fails(cluster: Cluster, certificates: Certificates, name: str) -> None:
    """One failure, the cause in it, and the next step."""
    (listener, login), (error, says, remedy) = CASES[name], SAID[name]
    address = getattr(cluster, listener)
    if "localhost" in says:
        address = address.replace("127.0.0.1", "localhost")
    (check,) = brokers(address, login(Scene(cluster, certificates)))
    assert (check.state, type(check.error).__name__) == (State.FAIL, error), check
    assert says in check.message
    assert remedy in check.remedy
    assert "wrong" not in check.message.replace("wrong version number", "")  # no secrets


def test_the_way_to_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """DNS, a port where nobody listens, no route, and a firewall."""
    (check,) = brokers("no-such-host.invalid:9092")
    assert check.message.startswith("the host name no-such-host.invalid has no address")
    assert "getent hosts no-such-host.invalid" in check.remedy
    (port,) = free_ports(1)
    (check,) = brokers(f"127.0.0.1:{port}")
    assert "connection refused" in check.message
    assert f"nothing listens on port {port}" in check.remedy

    def no_route(self: socket.socket, address: object) -> None:
        raise OSError(113, "No route to host")

    monkeypatch.setattr(socket.socket, "connect", no_route)
    (check,) = brokers("127.0.0.1:9092")
    assert "no route to host" in check.message
    assert "ip route get 127.0.0.1" in check.remedy

    def silence(self: socket.socket, address: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(socket.socket, "connect", silence)
    (check,) = brokers("127.0.0.1:9092", timeout_s=0.2)
    assert "no TCP connection within" in check.message
    assert "firewall" in check.remedy


@pytest.mark.parametrize("how", ["plain", "login", "TLS"])
def test_a_zookeeper_in_the_place_of_a_broker(zookeeper: Sandbox, certificates: Certificates, how: str) -> None:
    """Both the doctor and a command name the option for it, whatever the login."""
    tls = tls_from_files(truststore=certificates / "ca.pem") if how == "TLS" else None
    security = KafkaSecurity(tls, plain("admin") if how == "login" else None)
    (check,) = brokers(zookeeper.connect, security)
    assert check.remedy == f"port {zookeeper.port} speaks ZooKeeper: use --zookeeper {zookeeper.connect}"
    with KafkaBackend(zookeeper.connect, security=security) as backend, pytest.raises(Unreachable) as raised:
        backend.describe()
    assert raised.value.hint == check.remedy


def test_a_broker_in_the_place_of_a_zookeeper(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found out without waiting for the time-out."""
    port = cluster.plain.rpartition(":")[2]
    (check,) = list(check_ensemble(cluster.plain, ZooKeeperSecurity(), 600))
    assert check.remedy == f"port {port} speaks Kafka: use --bootstrap-server {cluster.plain}"


def test_a_listener_for_logins_of_an_old_broker() -> None:
    """Kafka 2.6 has no DescribeCluster; any request before a login closes the connection."""
    from tests.backends.test_kafka_peers import Peer

    def answer(request: wire.Request, _: wire.RequestHeader) -> Any:
        if isinstance(request, wire.ApiVersionsRequest):
            names = ("API_VERSIONS", "SASL_HANDSHAKE", "DESCRIBE_CLIENT_QUOTAS", "ALTER_CLIENT_QUOTAS")
            known = [api for api in wire.APIS if api.key.name in names]
            return wire.ApiVersionsResponse(0, [ApiVersion(each.key, 0, each.max_version) for each in known])
        if isinstance(request, wire.SaslHandshakeRequest):
            return wire.SaslHandshakeResponse(33, ["PLAIN", "SCRAM-SHA-512"])
        raise EOFError

    with Peer(answer) as peer:
        (check,) = brokers(peer.bootstrap)
        assert check.message == "the listener asks for a login, by PLAIN or SCRAM-SHA-512"
        assert "security.protocol=SASL_PLAINTEXT" in check.remedy
        with KafkaBackend(peer.bootstrap) as backend, pytest.raises(Unauthorized) as raised:
            backend.describe()
        assert raised.value.message == f"Kafka at {peer.bootstrap}: {check.message}"
        assert raised.value.hint == check.remedy


@pytest.mark.parametrize(
    ("listener", "security", "says", "never"),
    [
        ("sasl_tls", Scene.trusting, "set security.protocol=SASL_SSL, sasl.mechanism and", "TLS port"),
        ("plain", Scene.trusting, "For a plain one set security.protocol=PLAINTEXT", "login"),
        (
            "sasl",
            lambda scene: scene.trusting(sasl=plain("admin")),
            "For a plain one set security.protocol=SASL_PLAINTEXT",
            "asks for",
        ),
        ("sasl", anonymous, "set security.protocol=SASL_PLAINTEXT, sasl.mechanism and", "TLS"),
    ],
)
def test_what_a_command_says_of_another_kind_of_listener(
    cluster: Cluster,
    certificates: Certificates,
    listener: str,
    security: Callable[[Scene], KafkaSecurity],
    says: str,
    never: str,
) -> None:
    how = security(Scene(cluster, certificates))
    with (
        KafkaBackend(getattr(cluster, listener), security=how, timeout_s=20) as backend,
        pytest.raises(Unauthorized if "sasl.mechanism" in says else Unreachable) as raised,
    ):
        backend.describe()
    assert (says in (raised.value.hint or ""), never in (raised.value.hint or "")) == (True, False), raised.value.hint


def test_a_listener_that_closes_without_a_word(certificates: Certificates) -> None:
    """Without versions it may be for TLS; in TLS, a client certificate may be missing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")

    def hint(security: KafkaSecurity, *, handshake: bool) -> str:
        with socket.create_server(("127.0.0.1", 0)) as server:

            def serve() -> None:
                connected, _ = server.accept()
                with contextlib.suppress(OSError):
                    if handshake:
                        connected = context.wrap_socket(connected, server_side=True)
                    connected.recv(1)
                connected.close()

            thread = threading.Thread(target=serve)
            thread.start()
            where = Server("127.0.0.1", server.getsockname()[1])
            with pytest.raises(Lost) as raised:
                Connection.open(where, security, Deadline(10))
            thread.join()
        assert "_ssl.c" not in raised.value.why
        return raised.value.hint or ""

    tls = tls_from_files(truststore=certificates / "ca.pem")
    assert "perhaps a TLS port" in hint(KafkaSecurity(), handshake=False)
    assert "SASL_SSL" in hint(KafkaSecurity(sasl=plain("admin")), handshake=False)
    assert hint(KafkaSecurity(tls), handshake=True) == "perhaps a client certificate is missing (ssl.keystore.location)"
    unfinished = hint(KafkaSecurity(tls), handshake=False)
    assert "is that a TLS port?" in unfinished
    assert "a client certificate is missing" in unfinished


def ensemble(connect: str, security: ZooKeeperSecurity | None = None) -> list[Check]:
    return list(check_ensemble(connect, security or ZooKeeperSecurity(), 10))


def test_an_open_zookeeper(chroot: str) -> None:
    """Anybody may write: it works, and it is a warning. An empty chroot is probably the wrong one."""
    empty = by_subject(ensemble(chroot))
    assert empty["brokers"].state is State.WARN
    assert "check the chroot" in empty["alter quotas"].remedy
    with ZooKeeperBackend(chroot) as backend:
        backend.alter([rate(Entity(user="u"))])
    found = by_subject(ensemble(chroot))
    assert found["alter quotas"].state is State.OK
    assert found["znodes"].state is State.WARN
    assert "/config/users" in found["znodes"].message
    assert "zookeeper.set.acl=true" in found["znodes"].remedy


def test_a_secured_zookeeper(secured_zookeeper: SecuredZooKeeper, certificates: Certificates) -> None:
    kafka = ZooKeeperSecurity(username="kafka", password="secret")
    connect = secured_zookeeper.plain + secured_zookeeper.in_chroot("/doctor")
    with ZooKeeperBackend(connect, security=kafka) as backend:
        backend.alter([rate(Entity(client_id="c"))])
    mine = by_subject(ensemble(connect, kafka))
    assert (mine["alter quotas"].state, mine["znodes"].state) == (State.OK, State.OK)
    nobody = by_subject(ensemble(connect))
    assert nobody["alter quotas"].state is State.WARN
    assert "belong to sasl:kafka" in nobody["alter quotas"].message
    (wrong,) = ensemble(connect, ZooKeeperSecurity(username="kafka", password="wrong"))
    assert isinstance(wrong.error, Unauthorized)
    assert "check the username and the password" in wrong.remedy
    tls = tls_from_files(truststore=certificates / "ca.pem")
    (plain_port,) = ensemble(connect, ZooKeeperSecurity(tls=tls))
    assert "is that the TLS port" in plain_port.remedy
    (stranger,) = ensemble(
        secured_zookeeper.tls, ZooKeeperSecurity(tls=tls_from_files(truststore=certificates / "stranger.pem"))
    )
    assert "zookeeper.ssl.truststore.location" in stranger.remedy


def test_the_way_to_zookeeper(zookeeper: Sandbox) -> None:
    (check,) = ensemble("no-such-host.invalid:2181")
    assert "getent hosts" in check.remedy
    (port,) = free_ports(1)
    (check,) = ensemble(f"127.0.0.1:{port}")
    assert f"nothing listens on port {port}" in check.remedy
    (check,) = ensemble(f"{zookeeper.connect}/no-such-chroot")
    assert "there is no chroot" in check.message


def test_releases_are_those_of_kafka_python() -> None:
    """Two tables by different people."""
    for release, messages in BROKER_API_VERSIONS.items():
        offered = {int(key): ApiVersion(int(key), *versions) for key, versions in messages.items()}
        newest = SIGNS[0][0]
        expected = f"Kafka {release[0]}.{release[1]}" if release >= (2, 6) else "Kafka before 2.6"
        assert release_of(offered) == expected + (" or later" if release >= newest else "")


def test_kafka_4_4_serves_a_newer_api_versions() -> None:
    """As the jars of 4.3.1 and 4.4.0 have it."""
    assert release_of({18: ApiVersion(18, 0, 5)}) == "Kafka 4.4 or later"
