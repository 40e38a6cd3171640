"""Where a cluster is: bootstrap servers and ZooKeeper's connect strings, also as kquota prints them, with a scheme.

Schemes are `kafka://HOST:PORT`, `controller://HOST:PORT` and `zookeeper://HOST:PORT/CHROOT`.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from typing import Final

from kquota.backends import secrets
from kquota.errors import InputError

OPTIONS: Final = {"kafka": "--bootstrap-server", "controller": "--bootstrap-controller", "zookeeper": "--zookeeper"}
"""kquota's own schemes, with the option that takes what follows them."""
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Kafka's security protocols, which its addresses may begin with."""
_SCHEME = re.compile(r"(?P<name>[0-9A-Za-z_.+-]+)://", re.ASCII)
DEFAULT_PORT: Final = 2181
"""ZooKeeper's."""
_SERVER = re.compile(
    r"(?:[0-9A-Za-z_-]+://)?(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s,/:@\[\]]+):(?P<port>\d{1,5})\Z", re.ASCII
)
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s,/:@\[\]]+)(?::(?P<port>\d{1,5}))?\Z", re.ASCII)
_PRODUCTS = {"kafka": "brokers", "controller": "KRaft controllers", "zookeeper": "a ZooKeeper"}


def is_host(name: str) -> bool:
    """Whether the name is an address, or has one here (`InetAddress.getByName`)."""
    try:
        socket.getaddrinfo(name, None)
    except (OSError, UnicodeError):
        return False
    return True


def scheme_of(text: str) -> str:
    """The word before `://`; empty where there is none."""
    match = _SCHEME.match(text.strip())
    return "" if match is None else match["name"]


def option_of(address: str) -> str:
    """The option of the commands that names the cluster at an address with kquota's own scheme, and its value."""
    scheme, _, servers = address.partition("://")
    return f"{OPTIONS.get(scheme, OPTIONS['kafka'])} {servers}"


def without_scheme(text: str, own: str) -> str:
    """The address without kquota's own scheme, before the first server or before each.

    Raises InputError for the scheme of another product and for an unknown one. Names of listeners, which are written
    in upper case (`SASL_SSL://HOST:PORT`, `EXTERNAL://HOST:PORT`), are left to Kafka's addresses.
    """
    if "://" not in text:
        return text
    return ",".join(_bare(part, own) for part in text.split(","))


def _bare(part: str, own: str) -> str:
    match = _SCHEME.match(part.strip())
    if match is None:
        return part
    name, rest = match["name"], part.strip()[match.end() :]
    if name.lower() == own:
        return rest
    if name.lower() in OPTIONS:
        option = OPTIONS[name.lower()]
        raise InputError(
            f"{name}:// is for {_PRODUCTS[name.lower()]}, which {OPTIONS[own]} does not take",
            hint=f"use {option} {rest.rpartition('@')[2]}",
        )
    if own != "zookeeper" and (name.isupper() or name.upper() in PROTOCOLS):
        return part
    raise unknown(name, own)


def unknown(name: str, *own: str) -> InputError:
    """The error for a scheme that nobody knows."""
    return InputError(f"unknown scheme {name}://", hint=f"known: {', '.join(f'{scheme}://' for scheme in own)}")


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

    def check(self, meant: str) -> None:
        """Raises InputError where a protocol before a host is another one than the login's: Kafka would ignore it."""
        for protocol in sorted(self.protocols - {meant}):
            raise InputError(
                f"{protocol}:// before a bootstrap server contradicts security.protocol={meant}",
                hint=f"an address chooses no protocol: set security.protocol={protocol} in the file of"
                f" --command-config, or leave {protocol}:// out",
            )

    def __str__(self) -> str:
        return ",".join(map(str, self.servers))


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
        return ",".join(str(Server(*host)) for host in self.hosts)
