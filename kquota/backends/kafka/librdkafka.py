"""How librdkafka connects as this package's own client does, and its errors as kquota's."""

import contextlib
from collections.abc import Iterator
from typing import Any

from kquota.backends.kafka import KafkaSecurity, Plain, Scram
from kquota.errors import InputError, KquotaError, Rejected, Unauthorized, Unreachable


def settings_of(bootstrap: str, security: KafkaSecurity, client_id: str) -> dict[str, Any]:
    """The settings of a librdkafka client. Raises InputError for a mechanism that is not passed on to it."""
    tls, sasl = security.tls, security.sasl
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "client.id": client_id}
    settings["security.protocol"] = security.protocol
    if sasl is not None:
        if not isinstance(sasl, Plain | Scram):
            raise InputError(f"cannot log in with {sasl.mechanism} here", hint="PLAIN, SCRAM and TLS certificates work")
        settings |= {"sasl.mechanism": sasl.mechanism, "sasl.username": sasl.username, "sasl.password": sasl.password}
    if tls is not None:
        if tls.ca is not None:
            settings["ssl.ca.pem"] = tls.ca.text
        if tls.identity is not None:
            settings |= {"ssl.certificate.pem": tls.identity.text, "ssl.key.pem": tls.identity.text}
            if tls.key_password:
                settings["ssl.key.password"] = tls.key_password
        settings["ssl.endpoint.identification.algorithm"] = "https" if tls.verify_host else "none"
    return settings


@contextlib.contextmanager
def errors(where: str) -> Iterator[None]:
    """Raises librdkafka's errors inside as kquota's; see `error_of`."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise error_of(error.args[0], where) from None
    except TimeoutError:
        raise Unreachable(f"{where}: no answer in time") from None


def error_of(error: Any, where: str) -> KquotaError:
    """The error for a KafkaError."""
    from confluent_kafka import KafkaError

    code = error.code()
    if code in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._MSG_TIMED_OUT):
        return Unreachable(f"{where}: {error.str()}")
    message = f"{where}: {error.str()}"
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
        return InputError(f"{where}: there is no such topic or partition")
    if code in (KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.TOPIC_EXCEPTION):
        return InputError(message)
    if code in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
    ):
        return Unauthorized(message)
    return Rejected(message)
