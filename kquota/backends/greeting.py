"""What speaks on a port: one greeting on a connection of its own, and no credentials are sent.

ZooKeeper answers a four-letter command, allowed or not (Administrator's Guide, "The Four Letter Words"). A broker
answers ApiVersions v0 before any login (KIP-35).
"""

from __future__ import annotations

import socket
import struct
from typing import Final

LONGEST_S: Final = 2.0
"""Whoever speaks the protocol answers a greeting sooner than that, even far away."""
_API_VERSIONS, _CORRELATION_ID, _NO_CLIENT_ID = 18, 0x6B71, -1
_GREETING: Final = struct.pack(">ihhih", 10, _API_VERSIONS, 0, _CORRELATION_ID, _NO_CLIENT_ID)
_OF_ZOOKEEPER: Final = (b"Zookeeper version", b"srvr is not executed", b"This ZooKeeper")


def speaks_zookeeper(host: str, port: int, timeout_s: float) -> bool:
    """Whether a ZooKeeper without TLS answers there, within `timeout_s` seconds or `LONGEST_S`."""
    return _answer(host, port, b"srvr", 9, timeout_s).startswith(tuple(each[:9] for each in _OF_ZOOKEEPER))


def speaks_kafka(host: str, port: int, timeout_s: float) -> bool:
    """Whether a broker or a KRaft controller without TLS answers there, within `timeout_s` seconds or `LONGEST_S`."""
    answer = _answer(host, port, _GREETING, 8, timeout_s)
    return len(answer) == 8 and struct.unpack(">ii", answer)[1] == _CORRELATION_ID


def _answer(host: str, port: int, greeting: bytes, size: int, timeout_s: float) -> bytes:
    """The first bytes of the answer; fewer where there is none."""
    answer = b""
    wait = max(min(timeout_s, LONGEST_S), 0.1)
    try:
        with socket.create_connection((host, port), timeout=wait) as connection:
            connection.sendall(greeting)
            while len(answer) < size and (more := connection.recv(size - len(answer))):
                answer += more
    except (OSError, UnicodeError):
        return b""
    return answer
