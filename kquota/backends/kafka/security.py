"""How connections to brokers are encrypted, and who we say we are: SASL, and the client's side of its mechanisms.

A mechanism is a value with a name and a conversation; OAUTHBEARER and the tokens of AWS are in `oauth`. SCRAM (RFC
5802, RFC 7677) is as in Kafka's `ScramSaslClient`: names and passwords in UTF-8 without SASLprep, no channel binding,
at least 4,096 iterations. GSSAPI (RFC 4752) is Kerberos by the library gssapi, with the tickets and the settings of the
system.
"""

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from kquota.backends.tls import Tls
from kquota.errors import InputError, MissingDependency, Unauthorized

SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_LEAST_ITERATIONS = 4096
_MOST_ITERATIONS = 1_000_000
"""Kafka takes 16,384 at most (`ScramControlManager`); a hostile server must not make us count for hours."""
_NO_LAYER = 1
"""Neither integrity nor confidentiality: what brokers ask for by GSSAPI; TLS is for that."""


class Sasl(Protocol):
    """One way to authenticate."""

    @property
    def mechanism(self) -> str:
        """The name in the handshake."""

    @property
    def who(self) -> str:
        """Who we say we are, for messages: "as 'alice'"."""

    def converse(self, host: str, timeout_s: float) -> Generator[bytes, bytes, None]:
        """Yields what to send to the broker on that host, is sent what it answers, and returns when that was enough.

        What it needs of others, such as a token, comes within `timeout_s` seconds. Raises Unauthorized when the broker
        cannot be believed; Unreachable, InputError, MissingDependency.
        """


@dataclass(frozen=True)
class KafkaSecurity:
    """TLS, SASL, both (Kafka's SSL, SASL_PLAINTEXT and SASL_SSL) or neither."""

    tls: Tls | None = None
    sasl: Sasl | None = None

    @property
    def protocol(self) -> str:
        """Kafka's name of it, as security.protocol has it."""
        return ("SASL_" if self.sasl is not None else "") + ("SSL" if self.tls is not None else "PLAINTEXT")


@dataclass(frozen=True)
class Plain:
    """PLAIN (RFC 4616): the password itself, for use over TLS."""

    username: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        check_credentials(self.username, self.password)

    mechanism = "PLAIN"

    @property
    def who(self) -> str:
        return f"as {self.username!r}"

    def converse(self, host: str, timeout_s: float) -> Generator[bytes, bytes, None]:
        yield b"\0".join((b"", self.username.encode(), self.password.encode()))


@dataclass(frozen=True)
class Scram:
    """SCRAM-SHA-256 or SCRAM-SHA-512, with a username and a password."""

    mechanism: str
    username: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        if self.mechanism not in SCRAM_MECHANISMS:
            raise InputError(
                f"there is no mechanism {self.mechanism} of SCRAM", hint=f"there are {', '.join(SCRAM_MECHANISMS)}"
            )
        check_credentials(self.username, self.password)

    @property
    def who(self) -> str:
        return f"as {self.username!r}"

    def converse(self, host: str, timeout_s: float) -> Generator[bytes, bytes, None]:
        return scram(self.mechanism, self.username, self.password)


def check_credentials(username: str, password: str) -> None:
    """Raises InputError for what the messages of PLAIN and SCRAM cannot carry."""
    if "\0" in username + password:
        raise InputError("a username or password for SASL cannot contain a NUL character")
    if re.search("[\ud800-\udfff]", username + password):
        raise InputError("a username or password for SASL is not valid Unicode")


def scram(mechanism: str, username: str, password: str, *, nonce: str | None = None) -> Generator[bytes, bytes, None]:
    """Yields what to send, is sent what the server answers, and returns once the server has proved itself.

    Raises Unauthorized when the server says no, or is not who knows the password's keys.
    """
    digest = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    nonce = nonce or base64.b64encode(os.urandom(24)).decode()
    name = username.replace("=", "=3D").replace(",", "=2C")
    first_bare = f"n={name},r={nonce}".encode()

    server_first = yield b"n,," + first_bare
    answer = _attributes(server_first)
    server_nonce, salt, iterations = answer.get("r", ""), _decoded(answer.get("s")), answer.get("i", "")
    if not server_nonce.startswith(nonce) or server_nonce == nonce or not salt or not iterations.isascii():
        raise Unauthorized(f"{mechanism}: the server's answer does not follow the mechanism")
    count = int(iterations) if iterations.isdigit() and len(iterations) < 10 else 0
    if not _LEAST_ITERATIONS <= count <= _MOST_ITERATIONS:
        raise Unauthorized(
            f"{mechanism}: the server asks for {iterations[:20] or 'no'} iterations"
            f" ({_LEAST_ITERATIONS} to {_MOST_ITERATIONS} are taken)"
        )

    final_bare = b"c=biws,r=" + server_nonce.encode()
    signed = first_bare + b"," + server_first + b"," + final_bare
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, count)
    client_key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))

    answer = _attributes((yield final_bare + b",p=" + base64.b64encode(proof)))
    if "e" in answer:
        raise Unauthorized(f"{mechanism}: {answer['e']}")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if not hmac.compare_digest(_decoded(answer.get("v")), expected):
        raise Unauthorized(
            f"{mechanism}: the server's signature is wrong",
            hint="it does not know the password: this may not be the server it says it is",
        )


def _attributes(message: bytes) -> dict[str, str]:
    """`a=1,b=2` as a mapping; what is not of that form is not in it."""
    pairs = (part.partition("=") for part in message.decode("utf-8", "replace").split(","))
    return {name: value for name, equals, value in pairs if equals}


def _decoded(text: str | None) -> bytes:
    try:
        return base64.b64decode(text or "", validate=True)
    except (binascii.Error, ValueError):
        return b""


@dataclass(frozen=True)
class Kerberos:
    """A ticket of the system's cache, or of a keytab; `service` is the broker's, as sasl.kerberos.service.name."""

    service: str
    principal: str | None = None
    keytab: str | None = None

    mechanism = "GSSAPI"

    @property
    def who(self) -> str:
        return f"as {self.principal!r}" if self.principal else "with the Kerberos ticket there is"

    def converse(self, host: str, timeout_s: float) -> Generator[bytes, bytes, None]:
        try:
            import gssapi
        except ImportError:
            raise MissingDependency("GSSAPI (Kerberos) needs the package gssapi", extra="gssapi") from None
        try:
            yield from self._exchange(gssapi, host)
        except gssapi.exceptions.GSSError as error:
            text = " ".join(str(error).split())
            hint = "is there a ticket (klist), and is the broker's host name that of its principal?"
            raise Unauthorized(f"Kerberos: {text}", hint=hint) from None

    def _exchange(self, gssapi: Any, host: str) -> Generator[bytes, bytes, None]:
        credentials = None
        if self.principal is not None or self.keytab is not None:
            name = None
            if self.principal is not None:
                name = gssapi.Name(self.principal, name_type=gssapi.NameType.kerberos_principal)
            store = None if self.keytab is None else {"client_keytab": self.keytab}
            credentials = gssapi.Credentials(name=name, usage="initiate", store=store)
        context = gssapi.SecurityContext(
            name=gssapi.Name(f"{self.service}@{host}", name_type=gssapi.NameType.hostbased_service),
            creds=credentials,
            mech=gssapi.MechType.kerberos,
            usage="initiate",
        )
        token = context.step(None)
        while True:
            answer = yield token or b""
            if context.complete:
                break
            token = context.step(answer)
        # Then the broker offers its security layers: a byte of flags, and how much it takes at once.
        offer: bytes = context.unwrap(answer).message
        if len(offer) != 4 or not offer[0] & _NO_LAYER:
            raise Unauthorized("Kerberos: the broker wants a security layer, which Kafka's brokers do not")
        yield context.wrap(bytes([_NO_LAYER, 0, 0, 0]), False).message
