"""What speaks on a port: one greeting on a connection of its own, and no credentials are sent.

ZooKeeper answers a four-letter command, allowed or not (Administrator's Guide, "The Four Letter Words"). A broker
answers ApiVersions v0 before any login (KIP-35).
"""

import re
import socket
import struct
from typing import Final

from kquota.errors import Unreachable

LONGEST_S: Final = 2.0
"""Whoever speaks the protocol answers a greeting sooner than that, even far away."""
_API_VERSIONS, _CORRELATION_ID, _NO_CLIENT_ID = 18, 0x6B71, -1
_GREETING: Final = struct.pack(">ihhih", 10, _API_VERSIONS, 0, _CORRELATION_ID, _NO_CLIENT_ID)
_OF_ZOOKEEPER: Final = (b"Zookeeper version", b"srvr is not executed", b"This ZooKeeper")


def speaks_zookeeper(host: str, port: int, timeout_s: float) -> bool:
    """Whether a ZooKeeper without TLS answers there, within `timeout_s` seconds or `LONGEST_S`."""
    return _answer(host, port, b"srvr", 9, timeout_s).startswith(tuple(text[:9] for text in _OF_ZOOKEEPER))


def speaks_kafka(host: str, port: int, timeout_s: float) -> bool:
    """Whether a broker or a KRaft controller without TLS answers there, within `timeout_s` seconds or `LONGEST_S`."""
    answer = _answer(host, port, _GREETING, 8, timeout_s)
    return len(answer) == 8 and struct.unpack(">ii", answer)[1] == _CORRELATION_ID


def unreached(host: str, port: int, timeout_s: float) -> tuple[Unreachable, str] | None:
    """Why no TCP connection can be made there, and what to do about it; None where one can."""
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = f"the host name {host} has no address: {reason_of(error)}"
        return Unreachable(why), f"check the spelling, and ask the name server: getent hosts {host}"
    try:
        socket.create_connection((host, port), timeout=max(timeout_s, 0.1)).close()
    except TimeoutError:
        remedy = "a firewall may drop the packets: try from a host in the network of the cluster"
        return Unreachable(f"no TCP connection within {timeout_s:.3g} s"), remedy
    except ConnectionRefusedError as error:
        remedy = f"nothing listens on port {port}: check the port, and that the server runs"
        return Unreachable(f"no TCP connection: {reason_of(error)}"), remedy
    except OSError as error:
        remedy = f"there is no route from here: check the network or the VPN (ip route get {host})"
        return Unreachable(f"no TCP connection: {reason_of(error)}"), remedy
    return None


def reason_of(error: BaseException) -> str:
    """The error in a few words, on one line, in lower case."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        # Without a reason there are OpenSSL's words, and Python's line of source behind them.
        words = error.reason or re.sub(r"\s*\(_ssl\.c:\d+\)", "", str(error))
        return f"TLS: {words.replace('_', ' ').lower()}"
    if isinstance(error, TimeoutError):
        return "timed out"
    text = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    line = text.splitlines()[0]
    return line[:1].lower() + line[1:]


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
