"""How to authenticate, and a TLS handshake that reports why it fails, which kazoo's does not."""

from __future__ import annotations

import re
import socket
import ssl
import time
from dataclasses import dataclass, field
from typing import Final

from kquota.backends.addresses import Address
from kquota.backends.greeting import reason_of
from kquota.backends.secrets import nearly
from kquota.backends.tls import Tls, certificate_remedy
from kquota.errors import InputError, KquotaError, Unauthorized, Unreachable

SCHEMES: Final = ("sasl", "digest")
_PAUSE_S: Final = 0.5
"""Between two tries of a handshake."""


@dataclass(frozen=True)
class ZooKeeperSecurity:
    """How to authenticate, by username and password or by a certificate of `tls`, and whether to encrypt.

    `scheme` is what the username is for: "sasl" is SASL DIGEST-MD5, as Kafka's brokers log in; "digest" is ZooKeeper's
    own scheme, often used for its super user. Raises InputError for half a pair or another scheme.
    """

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    scheme: str = "sasl"
    tls: Tls | None = None

    def __post_init__(self) -> None:
        if (self.username is None) != (self.password is None):
            raise InputError("to authenticate to ZooKeeper takes a username and a password")
        if self.scheme not in SCHEMES:
            raise InputError(
                f"unknown ZooKeeper scheme{nearly(self.scheme, SCHEMES)}", hint=f"schemes: {', '.join(SCHEMES)}"
            )
        if self.scheme == "digest" and ":" in (self.username or ""):
            raise InputError("a username of ZooKeeper's digest scheme cannot contain a colon")

    @property
    def uses_sasl(self) -> bool:
        """Whether the username is for SASL."""
        return self.username is not None and self.scheme == "sasl"

    @property
    def digest(self) -> str | None:
        """What authenticates in ZooKeeper's digest scheme, where that is used."""
        return f"{self.username}:{self.password}" if self.username is not None and self.scheme == "digest" else None

    @property
    def creates_as_kafka(self) -> bool:
        """Whether created nodes belong to who we are (`JaasUtils.isZkSaslEnabled`, or a client certificate)."""
        return self.uses_sasl or (self.tls is not None and self.tls.identity is not None)


def check_tls(address: Address, tls: Tls, context: ssl.SSLContext, deadline: float, *, patient: bool = False) -> None:
    """Shakes hands with one of the hosts, because kazoo reports every TLS failure as a time-out.

    With `patient` a host that refuses connections is tried again until the deadline.
    """
    cause = _tls_failure(address, context, deadline)
    while patient and isinstance(cause, ConnectionRefusedError) and time.monotonic() + _PAUSE_S < deadline:
        time.sleep(_PAUSE_S)
        cause = _tls_failure(address, context, deadline)
    if cause is not None:
        raise _blame(cause, address, tls)


def _tls_failure(address: Address, context: ssl.SSLContext, deadline: float) -> BaseException | None:
    """Why no host shook hands, as the last of them failed; None where one did."""
    cause: BaseException | None = None
    for index, (host, port) in enumerate(address.hosts):
        share = max(deadline - time.monotonic(), 0.1) / (len(address.hosts) - index)
        try:
            with (
                socket.create_connection((host, port), timeout=share) as plain,
                context.wrap_socket(plain, server_hostname=host) as connection,
            ):
                # In TLS 1.3 a server refuses a client's certificate only after the handshake; any answer to a
                # four-letter command, a refusal included, says that it did not.
                connection.sendall(b"ruok")
                connection.recv(64)
                return None
        except ssl.SSLCertVerificationError as error:
            cause = error
        except (OSError, UnicodeError) as error:
            cause = error
    return cause


def _blame(cause: BaseException, address: Address, tls: Tls) -> KquotaError:
    """The error for a handshake that failed."""
    message = f"cannot reach ZooKeeper at {address}: {reason_of(cause)}"
    if isinstance(cause, ssl.SSLCertVerificationError):
        hint = certificate_remedy(cause.verify_code, "put its authority into zookeeper.ssl.truststore.location")
        return Unreachable(message, hint=hint)
    if isinstance(cause, ssl.SSLError) and re.search("CERTIFICATE|HANDSHAKE_FAILURE|UNKNOWN_CA", cause.reason or ""):
        hint = "the server wants a client certificate" if tls.identity is None else "the server refuses the certificate"
        return Unauthorized(message, hint=hint)
    if isinstance(cause, ssl.SSLError | ConnectionResetError):
        return Unreachable(message, hint="is that the TLS port (secureClientPort)?")
    return Unreachable(message, hint="check the address, and that ZooKeeper runs there")
