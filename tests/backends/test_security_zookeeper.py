"""A real ZooKeeper with SASL and TLS: who we are to it, whom we trust, and whose the created nodes are."""

from typing import Any

import pytest

from kquota import ANY, Entity, EntityType, InputError, QuotaFilter, Unauthorized, ZooKeeperSecurity
from kquota.backends.zookeeper import ZooKeeperBackend
from tests.backends.conftest import SecuredZooKeeper
from tests.backends.contract import rate
from tests.support.sandbox import kazoo

USER = Entity(user="u")
KAFKA = ZooKeeperSecurity(username="kafka", password="secret")


def acls(znodes: Any, path: str) -> set[tuple[int, str, str]]:
    return {(acl.perms, acl.id.scheme, acl.id.id) for acl in znodes.get_acls(path)[0]}


def test_acls_of_a_secured_cluster(secured_zookeeper: SecuredZooKeeper) -> None:
    with ZooKeeperBackend(secured_zookeeper.plain, security=KAFKA) as backend:
        backend.alter([rate(Entity(user="u", client_id="c")), rate(Entity(client_id="c")), rate(Entity(ip="1.2.3.4"))])
        sasl = {"mechanism": "DIGEST-MD5", "username": "kafka", "password": "secret"}
        with kazoo(secured_zookeeper.plain, sasl_options=sasl) as client:
            creator, world = (31, "sasl", "kafka"), (1, "world", "anyone")
            for path in ("users", "users/u", "users/u/clients", "users/u/clients/c"):
                assert acls(client, f"/config/{path}") == {creator}, path
            for path in ("clients", "clients/c", "ips/1.2.3.4", "changes", "changes/config_change_0000000000"):
                assert acls(client, f"/config/{path}") == {creator, world}, path
            # A write leaves the ACL of the node as it is.
            backend.alter([rate(Entity(user="u", client_id="c"), 5)])
            assert acls(client, "/config/users/u/clients/c") == {creator}
    for security in (None, ZooKeeperSecurity(username="other", password="else")):
        with ZooKeeperBackend(secured_zookeeper.plain, security=security) as backend:
            with pytest.raises(Unauthorized, match="ACL"):
                backend.describe()
            with pytest.raises(Unauthorized, match="ACL"):
                backend.alter([rate(Entity(client_id="c"))])
            assert len(backend.describe(QuotaFilter({EntityType.CLIENT_ID: ANY}, strict=True))) == 1


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


# --- ZooKeeper's digest scheme -----------------------------------------------------------------------------------

OPS = ZooKeeperSecurity(username="ops", password="ops-secret", scheme="digest")


def test_what_a_digest_user_creates_is_kafkas(secured_zookeeper: SecuredZooKeeper) -> None:
    """Brokers read it: its ACL is that of the nodes above, which Kafka made."""
    from kazoo.security import make_acl, make_digest_acl

    chroot = secured_zookeeper.in_chroot("/digest")
    sasl = {"mechanism": "DIGEST-MD5", "username": "kafka", "password": "secret"}
    with kazoo(secured_zookeeper.plain + chroot, sasl_options=sasl) as client:
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


def test_a_wrong_digest_is_nobody(secured_zookeeper: SecuredZooKeeper) -> None:
    """ZooKeeper takes any digest: it is the ACLs that forbid."""
    with ZooKeeperBackend(secured_zookeeper.plain, security=KAFKA) as backend:
        backend.alter([rate(USER)])
    with ZooKeeperBackend(secured_zookeeper.plain, security=OPS) as backend, pytest.raises(Unauthorized, match="ACL"):
        backend.describe()


def test_an_open_cluster_stays_open(secured_zookeeper: SecuredZooKeeper) -> None:
    chroot = secured_zookeeper.in_chroot("/open")
    with ZooKeeperBackend(secured_zookeeper.plain + chroot, security=OPS) as backend:
        assert backend.alter([rate(USER)])[0].error is None
    with kazoo(secured_zookeeper.plain + chroot) as client:
        assert acls(client, "/config/users/u") == {(31, "world", "anyone")}
