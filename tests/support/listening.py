"""A scripted server on the loopback address: what listens, takes connections, and ends."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class Listening:
    """A context manager; a subclass says in `_serve` what it makes of a connection, each in a thread of its own."""

    def __init__(self, port: int = 0) -> None:
        """On that port, or on any that is free."""
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", port))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        """How many were taken."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # Closing alone does not wake a thread that waits in accept.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for each in (self._listener, *self._open):
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connected, _ = self._listener.accept()
                self.connections += 1
                self._open.append(connected)
                threading.Thread(target=self._serve, args=(connected,), daemon=True).start()

    def _serve(self, connected: socket.socket) -> None:
        raise NotImplementedError


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The URL of an HTTP server that answers by this handler, and writes down nothing."""
    quiet = type("Quiet", (handler,), {"log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), quiet) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
