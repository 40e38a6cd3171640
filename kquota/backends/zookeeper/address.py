"""Where ZooKeeper is: the connect string."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kquota.backends import secrets
from kquota.backends.schemes import without_scheme
from kquota.errors import InputError

DEFAULT_PORT: Final = 2181


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed connect string: hosts with ports, and the chroot, empty or with a leading slash."""

    hosts: tuple[tuple[str, int], ...]
    chroot: str

    @classmethod
    def parse(cls, connect: str) -> Address:
        """Reads `host:port[,host:port][/chroot]`, also after `zookeeper://`; the port defaults to 2181.

        Raises InputError for anything else.
        """
        connect = without_scheme(connect, "zookeeper")
        text, slash, chroot = connect.strip().partition("/")
        hosts = []
        for part in text.split(","):
            match = _HOST.match(part.strip())
            port = int(match["port"] or DEFAULT_PORT) if match else 0
            if match is None or not 0 < port < 65536:
                raise InputError(
                    f"malformed ZooKeeper address {secrets.address(connect)!r}", hint="host:port[,host:port][/chroot]"
                )
            hosts.append((match["host"].strip("[]"), port))
        if "," in chroot:
            raise InputError(
                f"malformed ZooKeeper address {secrets.address(connect)!r}",
                hint="the chroot comes once, after the last host",
            )
        names = chroot.rstrip("/").split("/") if chroot.strip("/") else []
        if any(name in ("", ".", "..") or not name.isprintable() for name in names):
            raise InputError(f"malformed chroot {secrets.address(slash + chroot)!r} in the ZooKeeper address")
        return cls(tuple(hosts), "".join(f"/{name}" for name in names))

    def __str__(self) -> str:
        """The hosts as they are written in a connect string, without the chroot."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)


_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s,/:@\[\]]+)(?::(?P<port>\d{1,5}))?\Z", re.ASCII)
