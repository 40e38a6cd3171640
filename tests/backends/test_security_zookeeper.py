"""A real ZooKeeper with SASL and TLS: who we are to it, whom we trust, and whose the created nodes are."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest

from kquota.backends.stores import tls_from_files
from kquota.backends.tls import Tls
from kquota.backends.zookeeper import ZooKeeperBackend, ZooKeeperSecurity
from kquota.backends.zookeeper.source import MigrationSource
from kquota.core.quotas.entity import Entity, EntityType
from kquota.core.quotas.filter import ANY, QuotaFilter
from kquota.errors import InputError, KquotaError, Unauthorized, Unreachable
from tests.backends.conftest import KEY_PASSWORD, Certificates, SecuredZooKeeper
from tests.backends.contract import PRODUCER, rate

USER = Entity(user="u")
KAFKA = ZooKeeperSecurity(username="kafka", password="secret")


def acls(znodes: Any, path: str) -> set[tuple[int, str, str]]:
    return {(acl.perms, acl.id.scheme, acl.id.id) for acl in znodes.get_acls(path)[0]}


def test_acls_of_a_secured_cluster(secured_zookeeper: SecuredZooKeeper) -> None:
    from kazoo.client import KazooClient

    with ZooKeeperBackend(secured_zookeeper.plain, security=KAFKA) as backend:
        backend.alter([rate(Entity(user="u", client_id="c")), rate(Entity(client_id="c")), rate(Entity(ip="1.2.3.4"))])
        sasl = {"mechanism": "DIGEST-MD5", "username": "kafka", "password": "secret"}
        client = KazooClient(secured_zookeeper.plain, sasl_options=sasl)
        client.start()
        try:
            creator, world = (31, "sasl", "kafka"), (1, "world", "anyone")
            for path in ("users", "users/u", "users/u/clients", "users/u/clients/c"):
                assert acls(client, f"/config/{path}") == {creator}, path
            for path in ("clients", "clients/c", "ips/1.2.3.4", "changes", "changes/config_change_0000000000"):
                assert acls(client, f"/config/{path}") == {creator, world}, path
            # A write leaves the ACL of the node as it is.
            backend.alter([rate(Entity(user="u", client_id="c"), 5)])
            assert acls(client, "/config/users/u/clients/c") == {creator}
        finally:
            client.stop()
            client.close()
    for security in (None, ZooKeeperSecurity(username="other", password="else")):
        with ZooKeeperBackend(secured_zookeeper.plain, security=security) as backend:
            with pytest.raises(Unauthorized, match="ACL"):
                backend.describe()
            with pytest.raises(Unauthorized, match="ACL"):
                backend.alter([rate(Entity(client_id="c"))])
            assert len(backend.describe(QuotaFilter({EntityType.CLIENT_ID: ANY}, strict=True))) == 1


def test_nodes_of_users_that_the_world_may_read(secured_zookeeper: SecuredZooKeeper) -> None:
    """As the dual write of a migration left them; who may not read the others is told so."""
    from kazoo.client import KazooClient
    from kazoo.security import CREATOR_ALL_ACL, READ_ACL_UNSAFE

    address = secured_zookeeper.plain
    with ZooKeeperBackend(address, security=KAFKA) as backend:
        backend.alter([rate(Entity(user="closed"))])
    sasl = {"mechanism": "DIGEST-MD5", "username": "kafka", "password": "secret"}
    client = KazooClient(address, sasl_options=sasl)
    client.start()
    try:
        client.create("/config/users/CN%3Da", b"{}", acl=CREATOR_ALL_ACL + READ_ACL_UNSAFE)
        with MigrationSource(address, security=KAFKA) as source:
            (node,) = source.user_nodes()
        with MigrationSource(address) as stranger, pytest.raises(Unauthorized, match="ACL"):
            stranger.user_nodes()
    finally:
        client.delete("/config/users/CN%3Da")
        client.stop()
        client.close()
    assert (node.entity, node.private_acl) == (Entity(user="CN=a"), "sasl:kafka:cdrwa")


def test_a_wrong_password_is_one_line(secured_zookeeper: SecuredZooKeeper) -> None:
    code = """
import sys
from kquota.backends.zookeeper import ZooKeeperBackend, ZooKeeperSecurity
from kquota.errors import Unauthorized
backend = ZooKeeperBackend(sys.argv[1], security=ZooKeeperSecurity(username="kafka", password="xyzzy"))
for _ in range(2):
    try:
        backend.describe()
    except Unauthorized as error:
        print(error.message)
backend.close()
"""
    command = [sys.executable, "-c", code, secured_zookeeper.plain]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=180)
    assert done.stdout == f"ZooKeeper at {secured_zookeeper.plain} refused the authentication\n" * 2
    assert done.stderr == ""
    assert time.monotonic() - started < 60


def test_the_password_is_in_no_repr() -> None:
    assert "secret" not in repr(KAFKA)


@pytest.mark.parametrize(
    "wrong",
    [
        {"username": "u"},
        {"password": "p"},
        {"username": "a:b", "password": "p", "scheme": "digest"},
        {"scheme": "x509"},
    ],
)
def test_half_a_login_is_an_error(wrong: dict[str, str]) -> None:
    with pytest.raises(InputError):
        ZooKeeperSecurity(**wrong)  # type: ignore[arg-type]


def identified(certificates: Certificates, *, verify_host: bool = True, truststore: str = "ca.pem") -> Tls:
    """The client of the authority."""
    return tls_from_files(
        truststore=certificates / truststore,
        keystore=certificates / "client.pem",
        key=certificates / "client.key",
        key_password=KEY_PASSWORD,
        verify_host=verify_host,
    )


def test_tls_with_a_client_certificate(secured_zookeeper: SecuredZooKeeper, certificates: Certificates) -> None:
    security = ZooKeeperSecurity(tls=identified(certificates))
    chroot = secured_zookeeper.in_chroot("/x509")
    with ZooKeeperBackend(secured_zookeeper.tls + chroot, security=security) as backend:
        backend.alter([rate(USER)])
        assert dict(backend.describe()[USER]) == {PRODUCER: 1024}
    with ZooKeeperBackend(secured_zookeeper.plain + chroot) as backend, pytest.raises(Unauthorized):
        backend.describe(QuotaFilter({EntityType.USER: "u"}, strict=True))


def test_tls_failures_name_their_cause(secured_zookeeper: SecuredZooKeeper, certificates: Certificates) -> None:
    trusting = tls_from_files(truststore=certificates / "ca.pem")
    stranger = tls_from_files(truststore=certificates / "ca.pem", keystore=certificates / "stranger.store.pem")
    locked = tls_from_files(keystore=certificates / "client.store.pem")
    cases: list[tuple[str, Tls, type[KquotaError], str]] = [
        (secured_zookeeper.tls, Tls(), Unreachable, "certificate verify failed"),
        (secured_zookeeper.tls, trusting, Unauthorized, "certificate"),
        (secured_zookeeper.tls, stranger, Unauthorized, "certificate"),
        (secured_zookeeper.plain, Tls(), Unreachable, "TLS|closed|reset"),
        (secured_zookeeper.tls, locked, InputError, "private key"),
        # Without the host name's check the certificate is still checked.
        (secured_zookeeper.tls, Tls(verify_host=False), Unreachable, "certificate verify failed"),
    ]
    for where, tls, kind, text in cases:
        with (
            ZooKeeperBackend(where, timeout_s=20, security=ZooKeeperSecurity(tls=tls)) as backend,
            pytest.raises(kind, match=text) as caught,
        ):
            backend.describe()
        assert "\n" not in caught.value.message
    by_name = secured_zookeeper.tls.replace("127.0.0.1", "localhost")  # the certificate is for the address
    with (
        ZooKeeperBackend(by_name, timeout_s=20, security=ZooKeeperSecurity(tls=identified(certificates))) as backend,
        pytest.raises(Unreachable, match=r"[Hh]ostname"),
    ):
        backend.describe()
    lenient = ZooKeeperSecurity(tls=identified(certificates, verify_host=False))
    with ZooKeeperBackend(by_name, security=lenient) as backend:
        backend.describe(QuotaFilter({EntityType.IP: ANY}))


def test_plain_client_on_the_tls_port(secured_zookeeper: SecuredZooKeeper) -> None:
    with ZooKeeperBackend(secured_zookeeper.tls, timeout_s=1) as backend, pytest.raises(Unreachable) as caught:
        backend.describe()
    assert caught.value.hint is not None


# --- ZooKeeper's digest scheme -----------------------------------------------------------------------------------

OPS = ZooKeeperSecurity(username="ops", password="ops-secret", scheme="digest")


def test_what_a_digest_user_creates_is_kafkas(secured_zookeeper: SecuredZooKeeper) -> None:
    """Brokers read it: its ACL is that of the nodes above, which Kafka made."""
    from kazoo.client import KazooClient
    from kazoo.security import make_acl, make_digest_acl

    chroot = secured_zookeeper.in_chroot("/digest")
    sasl = {"mechanism": "DIGEST-MD5", "username": "kafka", "password": "secret"}
    client = KazooClient(secured_zookeeper.plain + chroot, sasl_options=sasl)
    client.start()
    try:
        ops = make_digest_acl("ops", "ops-secret", all=True)
        kafka = make_acl("sasl", "kafka", all=True)
        world = make_acl("world", "anyone", read=True)
        for path in ("/config", "/config/changes", "/config/clients"):
            client.create(path, acl=[kafka, ops, world])
        client.create("/config/users", acl=[kafka, ops])
        with ZooKeeperBackend(secured_zookeeper.plain + chroot, security=OPS) as backend:
            backend.alter(
                [rate(Entity(user="u", client_id="c")), rate(Entity(client_id="c")), rate(Entity(ip="1.2.3.4"))]
            )
            assert len(backend.describe()) == 3
        secret = {(31, "sasl", "kafka"), (31, "digest", ops.id.id)}
        for path in ("users/u", "users/u/clients", "users/u/clients/c"):
            assert acls(client, f"/config/{path}") == secret, path
        for path in ("clients/c", "ips", "ips/1.2.3.4", "changes/config_change_0000000000"):
            assert acls(client, f"/config/{path}") == {*secret, (1, "world", "anyone")}, path
    finally:
        client.stop()
        client.close()


def test_a_wrong_digest_is_nobody(secured_zookeeper: SecuredZooKeeper) -> None:
    """ZooKeeper takes any digest: it is the ACLs that forbid."""
    with ZooKeeperBackend(secured_zookeeper.plain, security=KAFKA) as backend:
        backend.alter([rate(USER)])
    with ZooKeeperBackend(secured_zookeeper.plain, security=OPS) as backend, pytest.raises(Unauthorized, match="ACL"):
        backend.describe()


def test_an_open_cluster_stays_open(secured_zookeeper: SecuredZooKeeper) -> None:
    from kazoo.client import KazooClient

    chroot = secured_zookeeper.in_chroot("/open")
    with ZooKeeperBackend(secured_zookeeper.plain + chroot, security=OPS) as backend:
        assert backend.alter([rate(USER)])[0].error is None
    client = KazooClient(secured_zookeeper.plain + chroot)
    client.start()
    try:
        assert acls(client, "/config/users/u") == {(31, "world", "anyone")}
    finally:
        client.stop()
        client.close()
