"""Connections, one after the other: how long until the first answer, or until the broker closes."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from kquota.backends.kafka.address import Server
from kquota.backends.kafka.connection import Connection, Deadline, Lost, reason_of
from kquota.backends.kafka.security import KafkaSecurity
from kquota.core.findings.probe import Opening
from kquota.errors import Unreachable
from kquota.probe.load import Pace


def open_connections(
    server: Server, security: KafkaSecurity, pace: Pace, timeout_s: float, keep: Callable[[Opening], None]
) -> None:
    """Opens, authenticates and closes connections until the load is over; `keep` gets each as it is done.

    Raises Unreachable when a connection fails otherwise than by being closed; Unauthorized, Rejected, InputError.
    """
    while pace.allows(1):
        wait_s = pace.wait_s()
        if wait_s > 0:
            time.sleep(wait_s)
            continue
        pace.spend(1)
        started, clock = time.time() * 1000, time.monotonic()
        accepted = True
        try:
            Connection.open(server, security, Deadline(timeout_s)).close()
        except Lost as lost:
            if lost.timed_out or not lost.closed:
                raise Unreachable(f"cannot reach Kafka at {server}: {lost.why}", hint=lost.hint) from None
            accepted = False
        keep(Opening(started, (time.monotonic() - clock) * 1000, accepted))


def local_ip(server: Server) -> str:
    """The address that connections to that server come from, as this machine sees it. Raises Unreachable."""
    try:
        family, _, _, _, address = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)[0]
        # Connecting a datagram socket chooses a route and sends nothing.
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise Unreachable(f"cannot reach Kafka at {server}: {reason_of(error)}") from None
