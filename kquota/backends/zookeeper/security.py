"""How to authenticate, and the TLS handshake that tells why it fails, which kazoo would not."""

from __future__ import annotations

import re
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kquota.backends.tls import client_context
from kquota.backends.zookeeper.address import Address
from kquota.errors import InputError, Unauthorized, Unreachable

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class ZooKeeperSecurity:
    """How to authenticate: SASL DIGEST-MD5 (username and password), TLS (PEM files), or both.

    With `ca` only the authorities in it are trusted, else those of the system. `key` defaults to the file of `cert`.
    `verify_host` compares the host name with the server's certificate, which is checked against the authorities in any
    case. TLS is used when `tls` is set or one of its files is given. Raises InputError for half a pair or a file that
    does not exist.
    """

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    key_password: str | None = field(default=None, repr=False)
    verify_host: bool = True

    def __post_init__(self) -> None:
        if (self.username is None) != (self.password is None):
            raise InputError("SASL to ZooKeeper needs a username and a password")
        if self.key is not None and self.cert is None:
            raise InputError("a TLS key to ZooKeeper needs its certificate")
        for path in (self.ca, self.cert, self.key):
            if path is not None and not path.is_file():
                raise InputError(f"TLS file {path} does not exist")

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.tls or self.ca is not None or self.cert is not None

    @property
    def is_authenticated(self) -> bool:
        """Whether created nodes belong to someone (`JaasUtils.isZkSaslEnabled`, or a client certificate)."""
        return self.username is not None or self.cert is not None


def check_tls(address: Address, security: ZooKeeperSecurity, deadline: float) -> None:
    """Shakes hands with one of the hosts, because kazoo reports every TLS failure as a time-out."""
    import ssl

    context = client_context(
        ca=security.ca,
        cert=security.cert,
        key=security.key,
        key_password=security.key_password,
        verify_host=security.verify_host,
    )
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
                return
        except ssl.SSLCertVerificationError as error:
            cause = error
        except (OSError, UnicodeError) as error:
            cause = error
    assert cause is not None
    message = f"cannot reach ZooKeeper at {address}: {reason(cause)}"
    if isinstance(cause, ssl.SSLCertVerificationError):
        raise Unreachable(message, hint="trust its authority (ca), or check the host name in its certificate") from None
    if isinstance(cause, ssl.SSLError) and re.search("CERTIFICATE|HANDSHAKE_FAILURE|UNKNOWN_CA", cause.reason or ""):
        hint = (
            "the server wants a client certificate" if security.cert is None else "the server refuses the certificate"
        )
        raise Unauthorized(message, hint=hint) from None
    if isinstance(cause, ssl.SSLError | ConnectionResetError):
        raise Unreachable(message, hint="is that the TLS port (secureClientPort)?") from None
    raise Unreachable(message, hint="check the address, and that ZooKeeper runs there") from None


def reason(error: BaseException) -> str:
    """The error in a few words, on one line."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {(error.reason or str(error)).replace('_', ' ').lower()}"
    if isinstance(error, TimeoutError):
        return "connecting timed out"
    text = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return text.splitlines()[0][:1].lower() + text.splitlines()[0][1:]
