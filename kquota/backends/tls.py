"""TLS to clusters, from PEM files; the one place that makes a context. `ssl` is imported when it is needed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kquota.errors import InputError

if TYPE_CHECKING:
    import ssl


def client_context(
    *, ca: Path | None, cert: Path | None, key: Path | None, key_password: str | None, verify_host: bool
) -> ssl.SSLContext:
    """The context for client connections.

    With `ca` only the authorities in it are trusted, else those of the system; the server's certificate is always
    checked against them, its host name when `verify_host` is set. `key` defaults to the file of `cert`. Raises
    InputError for files that are not what they should be.
    """
    import ssl

    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=ca)
    except (OSError, ValueError) as error:
        raise InputError(f"TLS file {ca} holds no PEM certificates: {_reason(error)}") from None
    context.check_hostname = verify_host
    if cert is not None:
        try:
            # With a password at hand, be it empty, OpenSSL does not ask for one on the terminal.
            context.load_cert_chain(cert, key or cert, password=key_password or "")
        except (OSError, ValueError) as error:
            raise InputError(
                f"TLS certificate {cert} and its key cannot be used: {_reason(error)}",
                hint="PEM: the certificate, its chain and the private key; an encrypted key needs its password "
                "(ssl.key.password, zookeeper.ssl.keystore.password)",
            ) from None
    return context


def _reason(error: Exception) -> str:
    import ssl

    if isinstance(error, ssl.SSLError):
        return (error.reason or "not readable").replace("_", " ").lower()
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
