"""Kafka's own property files become ZooKeeper's security settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota.backends.clientprops import read_properties, zookeeper_security
from kquota.errors import InputError


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    """A file that exists."""
    path = tmp_path / "store.pem"
    path.write_text("")
    return path


def test_tls_with_pem_stores(tmp_path: Path, pem: Path) -> None:
    """Only the zookeeper.* names count."""
    file = tmp_path / "tls.properties"
    file.write_text(
        "# Kafka's own\n"
        "zookeeper.ssl.client.enable=true\n"
        "zookeeper.clientCnxnSocket : org.apache.zookeeper.ClientCnxnSocketNetty\n"
        f"zookeeper.ssl.keystore.location={pem}\n"
        f"zookeeper.ssl.truststore.location={pem}\n"
        "zookeeper.ssl.truststore.type=PEM\n"
        "ssl.keystore.location=/nowhere.jks\n"
    )

    security = zookeeper_security(file, "kafka", "secret")

    assert security.uses_tls
    assert security.is_authenticated
    assert (security.ca, security.cert, security.verify) == (pem, pem, True)
    assert "secret" not in repr(security)


def test_the_host_name_check_can_be_turned_off(tmp_path: Path) -> None:
    """As in Kafka, by an empty algorithm."""
    file = tmp_path / "tls.properties"
    file.write_text("zookeeper.ssl.client.enable=true\nzookeeper.ssl.endpoint.identification.algorithm=\n")

    security = zookeeper_security(file, None, None)

    assert security.uses_tls
    assert not security.verify


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("zookeeper.ssl.keystore.location=/a/b.jks\n", "JKS store"),
        ("zookeeper.ssl.truststore.location=/a/b.p12\nzookeeper.ssl.truststore.type=PKCS12\n", "PKCS12 store"),
        ("zookeeper.ssl.truststore.location=/a/missing.pem\n", "does not exist"),
        ("a=\\uZZZZ\n", "not a properties file"),
    ],
)
def test_what_cannot_be_used(tmp_path: Path, text: str, says: str) -> None:
    """One line with the reason."""
    file = tmp_path / "tls.properties"
    file.write_text(text)

    with pytest.raises(InputError, match=says):
        zookeeper_security(file, None, None)


@pytest.mark.parametrize("name", ["missing.properties", "."])
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    """Missing, or a directory."""
    with pytest.raises(InputError, match=r"[Nn]o such file|directory"):
        read_properties(tmp_path / name)


def test_half_of_the_credentials(tmp_path: Path) -> None:
    """A username alone is a mistake, not an anonymous connection."""
    with pytest.raises(InputError, match="password"):
        zookeeper_security(None, "kafka", None)
