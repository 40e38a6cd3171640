"""Settings with which librdkafka connects as this package's own client does. This module does not import librdkafka."""

from __future__ import annotations

from typing import Any

from kquota.backends.kafka import KafkaSecurity, Plain, Scram
from kquota.errors import InputError


def settings_of(bootstrap: str, security: KafkaSecurity, client_id: str) -> dict[str, Any]:
    """The settings of a librdkafka client. Raises InputError for a mechanism that is not passed on to it."""
    tls, sasl = security.tls, security.sasl
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "client.id": client_id}
    protocol = "SSL" if tls is not None else "PLAINTEXT"
    settings["security.protocol"] = f"SASL_{protocol}" if sasl is not None else protocol
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
