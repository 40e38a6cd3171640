"""GSSAPI (RFC 4752): Kerberos by the library gssapi, with the tickets and the configuration of the system."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from kquota.errors import MissingDependency, Unauthorized

_NO_LAYER = 1
"""Neither integrity nor confidentiality: what brokers ask for; TLS is for that."""


@dataclass(frozen=True)
class Kerberos:
    """A ticket of the system's cache, or of a keytab; `service` is the broker's, as sasl.kerberos.service.name."""

    service: str
    principal: str | None = None
    keytab: str | None = None

    @property
    def mechanism(self) -> str:
        return "GSSAPI"

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
