"""SASL: who we say we are to brokers, and the client's side of each mechanism.

A mechanism is a value with a name and a conversation. PLAIN and SCRAM are here; OAUTHBEARER is in `oauth`, GSSAPI in
`kerberos`, and the tokens of AWS are in `msk`.
"""

import re
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final, Protocol

from kquota.errors import InputError

SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")


class Sasl(Protocol):
    """One way to authenticate."""

    @property
    def mechanism(self) -> str:
        """The name in the handshake."""
        ...

    @property
    def who(self) -> str:
        """Who we say we are, for messages: "as 'alice'"."""
        ...

    def converse(self, host: str, timeout_s: float) -> Generator[bytes, bytes, None]:
        """Yields what to send to the broker on that host, is sent what it answers, and returns when that was enough.

        What it needs of others, such as a token, comes within `timeout_s` seconds. Raises Unauthorized when the broker
        cannot be believed; Unreachable, InputError, MissingDependency.
        """
        ...


@dataclass(frozen=True)
class Plain:
    """PLAIN (RFC 4616): the password itself, for use over TLS."""

    username: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        check_credentials(self.username, self.password)

    @property
    def mechanism(self) -> str:
        return "PLAIN"

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
        from kquota.backends.kafka.scram import scram

        return scram(self.mechanism, self.username, self.password)


def check_credentials(username: str, password: str) -> None:
    """Raises InputError for what the messages of PLAIN and SCRAM cannot carry."""
    if "\0" in username + password:
        raise InputError("a username or password for SASL cannot contain a NUL character")
    if re.search("[\ud800-\udfff]", username + password):
        raise InputError("a username or password for SASL is not valid Unicode")
