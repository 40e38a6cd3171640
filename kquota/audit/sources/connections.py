"""The connections that a request log shows: a lower bound of the connections that were opened.

A log has a line for each request, and names its connection. So it shows a connection that sent a request, and none that
was refused, or was closed before it asked anything. It shows neither when a connection was opened: only that this was
before its first request. `kquota.audit.evidence.connections` says what follows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

OPENING_API: Final = "api_versions"
"""What clients ask first, as soon as they are connected (Kafka 0.10 and later)."""
LOWER_BOUND: Final = "a request log shows only those connections that sent a request"


class First(NamedTuple):
    """The first request of a connection."""

    time_ms: int
    opens: bool
    """Whether it is ApiVersions."""


@dataclass
class ConnectionLog:
    """The connections in some lines of the log of one broker, by ip and by the text that names them."""

    broker: str
    firsts: dict[str, dict[str, First]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.firsts)

    def add(self, ip: str, connection: str, time_ms: int, *, opens: bool) -> None:
        """Takes a request; the earliest one of a connection counts, of two at one moment ApiVersions."""
        firsts = self.firsts.setdefault(ip, {})
        known = firsts.get(connection)
        if known is None or (time_ms, not opens) < (known.time_ms, not known.opens):
            firsts[connection] = First(time_ms, opens)

    def merge(self, other: ConnectionLog) -> None:
        """Takes what another part of the same broker's log shows."""
        for ip, firsts in other.firsts.items():
            for connection, first in firsts.items():
                self.add(ip, connection, first.time_ms, opens=first.opens)
