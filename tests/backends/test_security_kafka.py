"""Who we are to a real broker, and whom we trust."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kquota.backends.clientprops import kafka_security
from kquota.backends.kafka import KafkaBackend, KafkaSecurity, Plain, Scram
from kquota.backends.stores import tls_from_files
from kquota.backends.tls import Tls
from kquota.core.quotas.entity import DEFAULT, Entity
from kquota.errors import InputError, KquotaError, Unauthorized, Unreachable
from tests.backends.conftest import KEY_PASSWORD, Certificates, Cluster
from tests.backends.contract import rate
from tests.brokers.kafka import password_of

ALICE = Entity(user="alice")
PAIR = Entity(user=DEFAULT, client_id="app")


def as_user(user: str, password: str | None = None) -> KafkaSecurity:
    return KafkaSecurity(sasl=Plain(user, password or password_of(user)))


def trusting(certificates: Certificates, name: str = "ca.pem", *, verify_host: bool = True) -> Tls:
    return tls_from_files(truststore=certificates / name, verify_host=verify_host)


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
    assert time.monotonic() - started < 60  # no attempt after the first


@pytest.mark.parametrize(("mechanism", "password"), [("SCRAM-SHA-256", "c-256"), ("SCRAM-SHA-512", "c-512")])
def test_scram(cluster: Cluster, mechanism: str, password: str) -> None:
    with KafkaBackend(cluster.sasl, security=KafkaSecurity(sasl=Scram(mechanism, "carol", password))) as backend:
        assert backend.describe().problems == ()
    for user, wrong in (("carol", "wrong"), ("nobody=,", password)):
        with (
            KafkaBackend(cluster.sasl, security=KafkaSecurity(sasl=Scram(mechanism, user, wrong))) as backend,
            pytest.raises(Unauthorized, match=f"invalid credentials with SASL mechanism {mechanism}"),
        ):
            backend.describe()


def test_a_mechanism_that_the_listener_has_not(cluster: Cluster, certificates: Certificates) -> None:
    security = KafkaSecurity(trusting(certificates), Scram("SCRAM-SHA-512", "carol", "c-512"))
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


def test_tls(cluster: Cluster, certificates: Certificates) -> None:
    tls = trusting(certificates)
    with KafkaBackend(cluster.tls, security=KafkaSecurity(tls)) as backend:
        assert len(backend.describe()) == 0
    admin = KafkaSecurity(tls, Plain("admin", password_of("admin")))
    with KafkaBackend(cluster.sasl_tls, security=admin) as backend:
        assert len(backend.describe()) == 0
    for stranger in (Tls(), trusting(certificates, "stranger.pem")):
        with (
            KafkaBackend(cluster.tls, security=KafkaSecurity(stranger)) as backend,
            pytest.raises(Unreachable, match="certificate verify failed"),
        ):
            backend.describe()


def test_tls_compares_the_host_name(cluster: Cluster, certificates: Certificates) -> None:
    by_name = cluster.tls.replace("127.0.0.1", "localhost")  # the certificate is for the address
    with (
        KafkaBackend(by_name, security=KafkaSecurity(trusting(certificates))) as backend,
        pytest.raises(Unreachable, match=r"localhost.*[Hh]ostname mismatch"),
    ):
        backend.describe()
    with KafkaBackend(by_name, security=KafkaSecurity(trusting(certificates, verify_host=False))) as backend:
        assert len(backend.describe()) == 0


def test_client_certificates(cluster: Cluster, certificates: Certificates, tmp_path: Path) -> None:
    ca = certificates / "ca.pem"
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol=SSL\nssl.truststore.location={ca}\n"
        f"ssl.keystore.location={certificates / 'client.store.pem'}\nssl.key.password={KEY_PASSWORD}\n"
    )
    with KafkaBackend(cluster.mtls, security=kafka_security(file)) as backend:
        assert backend.alter([rate(ALICE)], validate_only=True)[0].error is None
    stranger = tls_from_files(truststore=ca, keystore=certificates / "stranger.store.pem")
    for tls, hint in ((tls_from_files(truststore=ca), "wants a client"), (stranger, "refuses the client")):
        with KafkaBackend(cluster.mtls, security=KafkaSecurity(tls)) as backend, pytest.raises(Unauthorized) as raised:
            backend.describe()
        assert hint in str(raised.value.hint), raised.value.message


@pytest.mark.parametrize("password", [None, "wrong"])
def test_the_password_of_the_key(cluster: Cluster, certificates: Certificates, password: str | None) -> None:
    tls = tls_from_files(keystore=certificates / "client.store.pem", key_password=password)
    assert tls.needs_key_password == (password is None)
    with KafkaBackend(cluster.mtls, security=KafkaSecurity(tls)) as backend, pytest.raises(InputError) as raised:
        backend.describe()
    assert "ssl.key.password" in str(raised.value.hint)


def test_listeners_of_another_kind(cluster: Cluster, certificates: Certificates) -> None:
    """Each mistake is named: plain to TLS, TLS to plain, plain to SASL, SASL to plain."""
    tls = KafkaSecurity(trusting(certificates))
    cases: list[tuple[str, KafkaSecurity | None, type[KquotaError], str]] = [
        (cluster.tls, None, Unreachable, "TLS"),
        (cluster.plain, tls, Unreachable, "TLS port"),
        (cluster.sasl, None, Unauthorized, "SASL"),
        (cluster.plain, as_user("admin"), Unauthorized, "listener for SASL"),
        (cluster.sasl_tls, as_user("admin"), Unreachable, "TLS"),
    ]
    for bootstrap, security, kind, hint in cases:
        with KafkaBackend(bootstrap, security=security) as backend, pytest.raises(kind) as raised:
            backend.describe()
        assert bootstrap in raised.value.message
        assert hint in str(raised.value.hint), raised.value.message
