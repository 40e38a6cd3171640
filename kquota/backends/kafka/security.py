"""How connections are encrypted and who we say we are."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kquota.backends.tls import client_context
from kquota.errors import InputError

if TYPE_CHECKING:
    import ssl

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class KafkaSecurity:
    """TLS (PEM files), SASL (a mechanism with username and password), or both.

    With `ca` only the authorities in it are trusted, else those of the system. `cert` is our own certificate with its
    chain; `key` defaults to the same file. `verify_host` compares the host name with the server's certificate, which is
    checked against the authorities in any case. TLS is used when `tls` is set or one of its files is given. Raises
    InputError for half a pair, an unknown mechanism or a file that does not exist.
    """

    tls: bool = False
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    key_password: str | None = field(default=None, repr=False)
    verify_host: bool = True
    mechanism: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.mechanism is not None and self.mechanism not in MECHANISMS:
            raise InputError(
                f"SASL mechanism {self.mechanism} is not supported", hint=f"supported: {', '.join(MECHANISMS)}"
            )
        if not (self.mechanism is None) == (self.username is None) == (self.password is None):
            raise InputError("SASL to Kafka needs a mechanism, a username and a password")
        if "\0" in (self.username or "") + (self.password or ""):
            raise InputError("a username or password for SASL cannot contain a NUL character")
        if self.key is not None and self.cert is None:
            raise InputError("a TLS key to Kafka needs its certificate")
        for path in (self.ca, self.cert, self.key):
            if path is not None and not path.is_file():
                raise InputError(f"TLS file {path} does not exist")

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.tls or self.ca is not None or self.cert is not None


def tls_context(security: KafkaSecurity) -> ssl.SSLContext:
    """The context for client connections. Raises InputError for files that are not what they should be."""
    return client_context(
        ca=security.ca,
        cert=security.cert,
        key=security.key,
        key_password=security.key_password,
        verify_host=security.verify_host,
    )
