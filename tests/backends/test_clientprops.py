"""Kafka's own property files become the security settings of connections."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota.backends.clientprops import kafka_security, read_properties, zookeeper_security
from kquota.backends.kafka import KafkaSecurity
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
    assert (security.ca, security.cert, security.verify_host) == (pem, pem, True)
    assert "secret" not in repr(security)


def test_the_host_name_check_can_be_turned_off(tmp_path: Path) -> None:
    """As in Kafka, by an empty algorithm."""
    file = tmp_path / "tls.properties"
    file.write_text("zookeeper.ssl.client.enable=true\nzookeeper.ssl.endpoint.identification.algorithm=\n")

    security = zookeeper_security(file, None, None)

    assert security.uses_tls
    assert not security.verify_host


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


# --- Kafka ---------------------------------------------------------------------------------------------------------

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def client_properties(tmp_path: Path, *lines: str) -> Path:
    """A file of those lines."""
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


def test_a_file_without_security(tmp_path: Path, pem: Path) -> None:
    """PLAINTEXT is the default; stores and logins do not count then."""
    file = client_properties(
        tmp_path, "bootstrap.servers=localhost:9092", f"ssl.truststore.location={pem}", "sasl.mechanism=GSSAPI"
    )
    assert kafka_security(file) == KafkaSecurity()


@pytest.mark.parametrize(
    ("jaas", "username", "password"),
    [
        (f'{PLAIN} required username="alice" password="s3cret";', "alice", "s3cret"),
        (f"  {PLAIN} required  username='alice'  password=s3cret ; ", "alice", "s3cret"),
        (f'{PLAIN} required user_bob="x" password="a;b=c" username = "CN=a,OU=b";', "CN=a,OU=b", "a;b=c"),
        (rf'{PLAIN} required username="a\\b" password="\"q\" \x";', "a\\b", '"q" x'),
    ],
)
def test_plain_logins(tmp_path: Path, jaas: str, username: str, password: str) -> None:
    """As `JaasConfig` reads them."""
    escaped = jaas.replace("\\", "\\\\")
    lines = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", f"sasl.jaas.config={escaped}")

    security = kafka_security(client_properties(tmp_path, *lines))

    assert (security.mechanism, security.username, security.password) == ("PLAIN", username, password)
    assert not security.uses_tls
    assert password not in repr(security)


def test_scram_over_tls(tmp_path: Path, pem: Path) -> None:
    """A login on several lines, and every store."""
    file = client_properties(
        tmp_path,
        "security.protocol=sasl_ssl",
        "sasl.mechanism=SCRAM-SHA-512",
        f"sasl.jaas.config={SCRAM} required \\",
        '    username="carol" \\',
        '    password="s3cret";',
        f"ssl.truststore.location={pem}",
        f"ssl.keystore.location={pem}",
        "ssl.keystore.type=PEM",
        "ssl.key.password=k3y",
        "ssl.endpoint.identification.algorithm=",
    )

    security = kafka_security(file)

    assert security == KafkaSecurity(
        tls=True,
        ca=pem,
        cert=pem,
        key_password="k3y",
        verify_host=False,
        mechanism="SCRAM-SHA-512",
        username="carol",
        password="s3cret",
    )
    assert "s3cret" not in repr(security)
    assert "k3y" not in repr(security)


def test_tls_alone_checks_the_host(tmp_path: Path) -> None:
    """With the system's authorities."""
    security = kafka_security(client_properties(tmp_path, "security.protocol=SSL"))

    assert security == KafkaSecurity(tls=True)
    assert security.verify_host


SASL = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN")


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (("security.protocol=TLS",), "unknown security.protocol TLS"),
        (("security.protocol=SASL_SSL",), r"sasl.mechanism GSSAPI \(Kafka's default\) is not supported"),
        (("security.protocol=SASL_SSL", "sasl.mechanism=OAUTHBEARER"), "OAUTHBEARER is not supported"),
        (SASL, "sasl.jaas.config is missing"),
        ((*SASL, "sasl.jaas.config=com.example.Login required a=b;"), "login module com.example.Login"),
        ((*SASL, f"sasl.jaas.config={PLAIN} required username=a;"), "no username and password"),
        ((*SASL, f"sasl.jaas.config={PLAIN} required username=a password=s3cret"), "cannot be read"),
        ((*SASL, f'sasl.jaas.config={PLAIN} required username=a password="s3cret;'), "cannot be read"),
        ((*SASL, f"sasl.jaas.config={PLAIN};"), "cannot be read"),
        (("security.protocol=SSL", "ssl.truststore.location=/a/b.jks"), "ssl.truststore is a JKS store"),
        (("security.protocol=SSL", "ssl.keystore.location=/a", "ssl.keystore.type=PKCS12"), "PKCS12 store"),
        (("security.protocol=SSL", "ssl.keystore.location=/a/missing.pem"), "does not exist"),
        (("security.protocol=SSL", "ssl.keystore.key=-----BEGIN"), "ssl.keystore.key is not supported"),
    ],
)
def test_what_kafka_security_cannot_use(tmp_path: Path, lines: tuple[str, ...], says: str) -> None:
    """One line with the reason, without the password."""
    with pytest.raises(InputError, match=says) as raised:
        kafka_security(client_properties(tmp_path, *lines))

    assert "s3cret" not in f"{raised.value} {raised.value.hint}"
