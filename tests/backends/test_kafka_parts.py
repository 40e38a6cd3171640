"""The parts of the Kafka backend that need no peer."""

import warnings
from pathlib import Path
from typing import Any

import pytest

from kquota.backends.kafka import KafkaBackend, KafkaSecurity, Plain, Scram, Servers
from kquota.backends.kafka.checks import check_brokers
from kquota.backends.kafka.codes import CODES
from kquota.backends.kafka.librdkafka import settings_of
from kquota.backends.kafka.oauth import FileToken, OAuthBearer
from kquota.backends.kafka.security import scram
from kquota.backends.tls import Pem, Tls
from kquota.backends.zookeeper import ZooKeeperBackend
from kquota.errors import InputError, Unauthorized

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas by a function on its way out
    import kafka.errors


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
    assert known[6] == "NOT_LEADER_FOR_PARTITION"  # its name before 2.6
    renamed = {-1, 6, 10, 17}  # kafka-python has the last two without _TOO and without _EXCEPTION
    assert {code: ours.name for code, ours in CODES.items() if code not in renamed} == {
        code: known[code] for code in CODES if code not in renamed
    }


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("a:9092", ["a:9092"]),
        (" a:9092 , [::1]:9093,a:9092,", ["a:9092", "[::1]:9093"]),
        ("kafka-1.example.com:1", ["kafka-1.example.com:1"]),
        ("PLAINTEXT://a:9092,SASL_SSL://[::1]:1", ["a:9092", "[::1]:1"]),
        ("ssl://a:9092,EXTERNAL://b:9092", ["a:9092", "b:9092"]),
        ("kafka://a:9092,b:9092", ["a:9092", "b:9092"]),
    ],
)
def test_bootstrap_servers(text: str, servers: list[str]) -> None:
    assert [str(server) for server in Servers.parse(text).servers] == servers


@pytest.mark.parametrize(
    "text",
    ["", "a", "a:0", "a:65536", ":9092", "a:9092,,b:9092", "PLAINTEXT://:9092", "kafka://a:9092/", "a b:1", "::1:9092"],
)
def test_malformed_bootstrap_servers(text: str) -> None:
    with pytest.raises(InputError, match="malformed bootstrap server"):
        KafkaBackend(text)


def test_kquotas_own_schemes() -> None:
    """As kquota prints addresses, so it reads them; another product's name its option."""
    assert KafkaBackend("kafka://a:9092").cluster_address == "kafka://a:9092"
    assert ZooKeeperBackend("zookeeper://a:1,b:1/c").cluster_address == "zookeeper://a:1,b:1/c"
    with pytest.raises(InputError, match="zookeeper:// is for a ZooKeeper") as raised:
        KafkaBackend("zookeeper://a:9092")
    assert raised.value.hint == "use --zookeeper a:9092"
    with pytest.raises(InputError, match="kafka:// is for brokers") as raised:
        ZooKeeperBackend("kafka://a:9092")
    assert raised.value.hint == "use --bootstrap-server a:9092"


@pytest.mark.parametrize(
    ("address", "security", "meant"),
    [
        ("SASL_SSL://a:9092", KafkaSecurity(), "PLAINTEXT"),
        ("PLAINTEXT://a:9092", KafkaSecurity(Tls()), "SSL"),
        ("a:9092,ssl://b:9092", KafkaSecurity(Tls(), Plain("u", "p")), "SASL_SSL"),
    ],
)
def test_a_protocol_in_an_address_that_does_not_hold(address: str, security: KafkaSecurity, meant: str) -> None:
    """Kafka ignores it; whoever writes it believes that it chooses."""
    with pytest.raises(InputError, match=f"contradicts security.protocol={meant}"):
        KafkaBackend(address, security=security)
    with pytest.raises(InputError, match=f"contradicts security.protocol={meant}"):
        list(check_brokers(address, security, 1))


def test_credentials_that_cannot_be_sent() -> None:
    with pytest.raises(InputError, match="NUL"):
        Plain("u", "p\0")
    with pytest.raises(InputError, match="not valid Unicode"):
        Scram("SCRAM-SHA-256", "\ud800", "p")
    with pytest.raises(InputError, match="no mechanism SCRAM-SHA-1"):
        Scram("SCRAM-SHA-1", "u", "p")


PEM = Pem("-----BEGIN CERTIFICATE-----", "store.pem")


@pytest.mark.parametrize(
    ("security", "expected"),
    [
        (KafkaSecurity(), {"security.protocol": "PLAINTEXT"}),
        (
            KafkaSecurity(sasl=Plain("alice", "secret")),
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "alice"}
            | {"sasl.password": "secret"},
        ),
        (
            KafkaSecurity(Tls(ca=PEM, verify_host=False), Scram("SCRAM-SHA-512", "alice", "secret")),
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice"}
            | {"sasl.password": "secret", "ssl.ca.pem": PEM.text, "ssl.endpoint.identification.algorithm": "none"},
        ),
        (
            KafkaSecurity(Tls(identity=PEM, key_password="key")),
            {"security.protocol": "SSL", "ssl.certificate.pem": PEM.text, "ssl.key.pem": PEM.text}
            | {"ssl.key.password": "key", "ssl.endpoint.identification.algorithm": "https"},
        ),
    ],
    ids=["plain text", "PLAIN", "SCRAM over TLS", "client certificate"],
)
def test_what_librdkafka_is_told(security: KafkaSecurity, expected: dict[str, Any]) -> None:
    common = {"bootstrap.servers": "b:9092", "client.id": "p"}
    assert settings_of("b:9092", security, "p") == common | expected


def test_a_mechanism_that_librdkafka_is_not_told(tmp_path: Path) -> None:
    security = KafkaSecurity(sasl=OAuthBearer(FileToken(tmp_path / "token"), {}))
    with pytest.raises(InputError, match="OAUTHBEARER"):
        settings_of("b:9092", security, "p")
