"""TLS to clusters: what is trusted and who we are; the one place that makes a context.

OpenSSL knows PEM only, so a `Tls` holds PEM; `kquota.backends.stores` makes it of Java's stores. `ssl` is imported when
it is needed.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kquota.errors import InputError

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True)
class Pem:
    """PEM text, and where it is from, for messages."""

    text: str = field(repr=False)
    origin: str = field(compare=False)


@dataclass(frozen=True)
class Tls:
    """How connections are encrypted.

    With `ca` only the certificates in it are trusted, else the system's certificates. `identity` is our own certificate
    with its chain and its private key, which is encrypted where there is a `key_password`. `verify_host` compares the
    host name with the server's certificate, which is checked against what is trusted in any case.
    """

    ca: Pem | None = None
    identity: Pem | None = None
    key_password: str | None = field(default=None, repr=False)
    verify_host: bool = True

    @property
    def needs_key_password(self) -> bool:
        """Whether the private key is encrypted and no password is known."""
        return self.identity is not None and "ENCRYPTED" in self.identity.text and not self.key_password


def client_context(tls: Tls) -> ssl.SSLContext:
    """The context for client connections. Raises InputError for PEM that is not what it should be."""
    import ssl

    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cadata=None if tls.ca is None else tls.ca.text)
    except (OSError, ValueError) as error:
        assert tls.ca is not None
        raise InputError(f"{tls.ca.origin} holds no certificates that can be used: {_reason(error)}") from None
    # As in Java, whatever is in a truststore is trusted, be it no authority or a certificate of an old style.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = tls.verify_host
    if tls.identity is not None:
        try:
            with _as_file(tls.identity.text) as path:
                # With a password at hand, be it empty, OpenSSL does not ask for one on the terminal.
                context.load_cert_chain(path, password=tls.key_password or "")
        except (OSError, ValueError) as error:
            raise InputError(
                f"the certificate and the private key of {tls.identity.origin} cannot be used: {_reason(error)}",
                hint="an encrypted key needs its password (ssl.key.password, zookeeper.ssl.keystore.password)",
            ) from None
    return context


_HOSTNAME_MISMATCH, _IP_MISMATCH = 62, 64
_NOT_YET_VALID, _EXPIRED = 9, 10


def certificate_remedy(code: int, trust: str) -> str:
    """What to do about a server's certificate that was refused, by OpenSSL's code; `trust` is how to trust one.

    Codes: `X509_V_ERR_*` of OpenSSL's x509_vfy.h.
    """
    if code in (_HOSTNAME_MISMATCH, _IP_MISMATCH):
        return "connect by a host name that is in the server's certificate, or renew the certificate with this one"
    if code in (_EXPIRED, _NOT_YET_VALID):
        return "renew the server's certificate, and check the clocks of both hosts"
    return f"the certificate's authority is not trusted: {trust}"


@contextlib.contextmanager
def _as_file(text: str) -> Iterator[str]:
    """A path under which OpenSSL reads the text, for as long as the block lasts; nobody else can."""
    if sys.platform == "linux":
        with os.fdopen(os.memfd_create("kquota"), "w", encoding="ascii") as memory:
            memory.write(text)
            memory.flush()
            yield f"/proc/self/fd/{memory.fileno()}"
    else:
        with tempfile.NamedTemporaryFile("w", encoding="ascii") as file:  # mode 0600
            file.write(text)
            file.flush()
            yield file.name


def _reason(error: Exception) -> str:
    import ssl

    if isinstance(error, ssl.SSLError):
        return (error.reason or "not readable").replace("_", " ").lower()
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
