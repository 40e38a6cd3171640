"""Where the cluster is: bootstrap servers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kquota.backends import secrets
from kquota.errors import InputError


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

    @classmethod
    def parse(cls, bootstrap: str) -> Servers:
        """Reads `host:port[,host:port]`; as in Kafka the port is needed, and a protocol before a host means nothing.

        Raises InputError for anything else.
        """
        servers = []
        # As Kafka's ConfigDef has it, blanks around a comma and a comma at the end are nothing.
        for part in re.split(r"\s*,\s*", bootstrap.strip().removesuffix(",")):
            match = _SERVER.match(part)
            port = int(match["port"]) if match else 0
            if match is None or not 0 < port < 65536:
                raise InputError(f"malformed bootstrap server {secrets.address(part)!r}", hint="host:port[,host:port]")
            servers.append(Server(match["host"].strip("[]"), port))
        return cls(tuple(dict.fromkeys(servers)))

    def __str__(self) -> str:
        return ",".join(map(str, self.servers))


_SERVER = re.compile(
    r"(?:[0-9A-Za-z_-]+://)?(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s,/:@\[\]]+):(?P<port>\d{1,5})\Z", re.ASCII
)
