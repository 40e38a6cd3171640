"""What is read from librdkafka's log, and the settings it gets. Real brokers are in tests/cli/test_probe.py."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer

from kquota.backends.kafka import KafkaSecurity, Plain, Scram
from kquota.backends.kafka.librdkafka import settings_of
from kquota.backends.kafka.oauth import FileToken, OAuthBearer
from kquota.backends.tls import Pem, Tls
from kquota.errors import InputError
from kquota.probe.client import Watch

THREAD = "[thrd:127.0.0.1:9092/1]: 127.0.0.1:9092/1"


def log(watch: Watch, line: str) -> None:
    watch.emit(logging.LogRecord("x", logging.DEBUG, "", 0, f"SEND [p#producer-1] {THREAD}: {line}", None, None))


def sent(watch: Watch, number: int) -> None:
    log(watch, f"Sent ProduceRequest (v10, 10110 bytes @ 0, CorrId {number})")


def received(watch: Watch, number: int) -> None:
    log(watch, f"Received ProduceResponse (v10, 45 bytes, CorrId {number}, rtt 2.50ms)")


def throttled(watch: Watch, ms: int) -> None:
    watch.settings["throttle_cb"](SimpleNamespace(throttle_time=ms / 1000))


@pytest.fixture
def watch() -> Watch:
    return Watch([], lambda _api, _version, sent, _received: sent - 4, frozenset({"Produce"}))


def test_a_request_and_its_answer_make_an_exchange(watch: Watch) -> None:
    log(watch, "Sent MetadataRequest (v13, 22 bytes @ 0, CorrId 1)")
    sent(watch, 2)
    log(watch, "Received MetadataResponse (v13, 57 bytes, CorrId 1, rtt 1.89ms)")
    log(watch, "Broker changed state UP -> DOWN")
    assert watch.exchanges == []
    received(watch, 2)

    (exchange,) = watch.exchanges
    assert (exchange.api, exchange.version, exchange.correlation_id, exchange.charge) == ("Produce", 10, 2, 10106)
    assert exchange.answered_ms - exchange.sent_ms == pytest.approx(2.5)
    assert exchange.throttle_ms == 0


@pytest.mark.parametrize("order", ["srt", "str", "tsr"])
def test_a_throttle_belongs_to_the_request_that_it_is_of_whatever_came_first(watch: Watch, order: str) -> None:
    """librdkafka queues throttle events ahead of log lines."""
    steps = {"s": sent, "r": received}
    for number, ms in enumerate((40, 0, 501, 502)):
        watch.awaits = True
        for step in order:
            if step == "t":
                throttled(watch, ms)
            else:
                steps[step](watch, number)

    assert [exchange.throttle_ms for exchange in watch.exchanges] == [40, 0, 501, 502]


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
def test_settings(security: KafkaSecurity, expected: dict[str, Any]) -> None:
    common = {"bootstrap.servers": "b:9092", "client.id": "p"}
    assert settings_of("b:9092", security, "p") == common | expected


def test_what_librdkafka_gets_it_knows() -> None:
    security = KafkaSecurity(Tls(verify_host=False), Scram("SCRAM-SHA-256", "alice", "secret"))
    Producer({**settings_of("127.0.0.1:1", security, "p"), **Watch([], lambda *_: 0).settings})


def test_a_mechanism_that_the_probe_does_not_speak(tmp_path: Any) -> None:
    security = KafkaSecurity(sasl=OAuthBearer(FileToken(tmp_path / "token"), {}))
    with pytest.raises(InputError, match="OAUTHBEARER"):
        settings_of("b:9092", security, "p")
