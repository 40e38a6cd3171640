"""Where the cluster is: bootstrap servers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kquota.backends import secrets
from kquota.backends.schemes import PROTOCOLS, scheme_of, without_scheme
from kquota.errors import InputError

if TYPE_CHECKING:
    from kquota.backends.kafka.security import KafkaSecurity


@dataclass(frozen=True, slots=True)
class Server:
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Servers:
    """The parsed bootstrap servers, in their order, without repetitions."""

    servers: tuple[Server, ...]
    protocols: frozenset[str] = frozenset()
    """The security protocols that stand before hosts."""

    @classmethod
    def parse(cls, bootstrap: str, own: str = "kafka") -> Servers:
        """Reads `host:port[,host:port]`; as in Kafka the port is needed, and the name of a listener means nothing.

        `own` is the scheme of kquota's that may stand before it. Raises InputError for anything else, other schemes
        too.
        """
        servers, protocols = [], set()
        bootstrap = without_scheme(bootstrap, own)
        # As Kafka's ConfigDef has it, blanks around a comma and a comma at the end are nothing.
        for part in re.split(r"\s*,\s*", bootstrap.strip().removesuffix(",")):
            match = _SERVER.match(part)
            port = int(match["port"]) if match else 0
            if match is None or not 0 < port < 65536:
                raise InputError(f"malformed bootstrap server {secrets.address(part)!r}", hint="host:port[,host:port]")
            servers.append(Server(match["host"].strip("[]"), port))
            protocols |= {scheme_of(part).upper()} & {*PROTOCOLS}
        return cls(tuple(dict.fromkeys(servers)), frozenset(protocols))

    def check(self, security: KafkaSecurity) -> None:
        """Raises InputError where a protocol before a host is another one than the login's: Kafka would ignore it."""
        meant = ("SASL_" if security.sasl is not None else "") + ("SSL" if security.tls is not None else "PLAINTEXT")
        for protocol in sorted(self.protocols - {meant}):
            raise InputError(
                f"{protocol}:// before a bootstrap server contradicts security.protocol={meant}",
                hint=f"an address chooses no protocol: set security.protocol={protocol} in the file of"
                f" --command-config, or leave {protocol}:// out",
            )

    def __str__(self) -> str:
        return ",".join(map(str, self.servers))


_SERVER = re.compile(
    r"(?:[0-9A-Za-z_-]+://)?(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s,/:@\[\]]+):(?P<port>\d{1,5})\Z", re.ASCII
)
