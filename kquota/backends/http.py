"""GET and POST over HTTP to a server that may be slow, endless or not what it should be: every answer ends.

It ends in time and in size.

Redirects are not followed: credentials go to the address that was given and nowhere else.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
import urllib.request
from collections.abc import Mapping
from typing import Any, BinaryIO, Final

_SLOWEST: Final = 1_000_000
"""Bytes per second: who sends faster is not cut off, however long it takes."""
_PIECE: Final = 1 << 16


class TooLarge(Exception):
    """An answer of more bytes than are wanted."""


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    out: BinaryIO,
    *,
    timeout_s: float,
    most: int,
    context: ssl.SSLContext | None = None,
) -> None:
    """Writes the answer to a POST to `out`; `context` is for https.

    The time limit is for the whole answer; each megabyte that comes adds a second. Raises urllib.error.HTTPError for an
    answer of another kind than success, whose body keeps the same time; OSError, http.client.HTTPException, ValueError
    (a header that cannot be sent) and TooLarge.
    """
    _exchange(url, body, headers, out, timeout_s=timeout_s, most=most, context=context)


def get(url: str, headers: Mapping[str, str], out: BinaryIO, *, timeout_s: float, most: int) -> None:
    """As `post`, with a GET."""
    _exchange(url, None, headers, out, timeout_s=timeout_s, most=most, context=None)


def _exchange(
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
    out: BinaryIO,
    *,
    timeout_s: float,
    most: int,
    context: ssl.SSLContext | None,
) -> None:
    patience = _Patience(timeout_s)

    class Http(urllib.request.HTTPHandler):
        def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(patience.connection(http.client.HTTPConnection), request)

    class Https(urllib.request.HTTPSHandler):
        def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(patience.connection(http.client.HTTPSConnection), request, context=context)

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    request = urllib.request.Request(url, body, dict(headers))  # noqa: S310 - the callers know http and https only
    with urllib.request.build_opener(Http(), Https(), NoRedirect()).open(request, timeout=patience.left) as response:
        size = 0
        while piece := response.read(_PIECE):
            size += len(piece)
            if size > most:
                raise TooLarge
            out.write(piece)


class _Patience:
    """How much longer to wait."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds. Raises TimeoutError when there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left

    def reward(self, size: int) -> None:
        """Waits longer for who sends."""
        self._end += size / _SLOWEST

    def connection(self, kind: Any) -> Any:
        """The kind of connection, with sockets that keep the time: a socket's own time-out begins anew at each byte."""
        patience = self

        class Connection(kind):  # type: ignore[misc]
            sock: Any

            def connect(self) -> None:
                super().connect()
                self.sock = _Socket(self.sock, patience)

        return Connection


class _Socket:
    """As much of a socket as http.client uses."""

    def __init__(self, connected: socket.socket, patience: _Patience) -> None:
        self._connected = connected
        self._patience = patience

    def sendall(self, data: bytes) -> None:
        self._connected.settimeout(self._patience.left)
        self._connected.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Stream(self._connected, self._patience))

    def close(self) -> None:
        self._connected.close()


class _Stream(io.RawIOBase):
    """What comes from a socket; it keeps the socket open, as the files of sockets do."""

    def __init__(self, connected: socket.socket, patience: _Patience) -> None:
        self._connected = connected
        self._raw = connected.makefile("rb", buffering=0)
        self._patience = patience

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._connected.settimeout(self._patience.left)
        size = self._raw.readinto(buffer)
        self._patience.reward(size or 0)
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()
