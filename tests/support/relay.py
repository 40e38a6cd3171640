"""A way to a server on the loopback interface that can be cut and mended."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.support.listening import Listening


class Relay(Listening):
    """Passes connections on to a server, as a context manager; `cut` ends them and refuses new ones until `mend`.

    It listens on the port, or on any that is free. `lose` has it lose a request to a broker, or the answer to one.
    """

    def __init__(self, target: str, port: int = 0) -> None:
        host, _, target_port = target.rpartition(":")
        super().__init__(port)
        self._target = (host, int(target_port))
        self._lock = threading.Lock()
        self._is_cut = False
        self._losses: list[_Loss] = []

    def __exit__(self, *_: object) -> None:
        self.cut()
        super().__exit__()

    def cut(self) -> None:
        with self._lock:
            self._is_cut = True
            ended, self._open = self._open, []
        for each in ended:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Passes new connections on again."""
        with self._lock:
            self._is_cut = False

    def lose(self, api_key: int, *, answer: bool, then: Callable[[], object] = lambda: None) -> None:
        """Ends the connection at the next request of that kind: before it reaches the broker, or with its `answer`.

        `then` is called just before the connection ends. Several losses take effect one after another.
        """
        self._losses.append(_Loss(api_key, answer, then))

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with self._lock:
                    is_cut = self._is_cut
                if is_cut:
                    client.close()
                    continue
                server = socket.create_connection(self._target)
                with self._lock:
                    self._open += [client, server]
                way = _Way(client, server, self._losses)
                for run in (way.there, way.back):
                    threading.Thread(target=run, daemon=True).start()


class _Loss(NamedTuple):
    """What becomes of the next request of a kind."""

    api_key: int
    answer: bool
    then: Callable[[], object]


class _Way:
    """One connection and its continuation."""

    def __init__(self, client: socket.socket, server: socket.socket, losses: list[_Loss]) -> None:
        self._client = client
        self._server = server
        self._losses = losses
        self._unheard: _Loss | None = None
        """The loss of the answer that comes next."""

    def there(self) -> None:
        with self._ending():
            while data := self._client.recv(65536):
                # A frame is sent in one go, when the one before has its answer: its size, then the key of its kind.
                if self._losses and int.from_bytes(data[4:6], "big") == self._losses[0].api_key:
                    loss = self._losses.pop(0)
                    if not loss.answer:
                        loss.then()
                        return
                    self._unheard = loss
                self._server.sendall(data)

    def back(self) -> None:
        with self._ending():
            while data := self._server.recv(65536):
                if self._unheard is not None:
                    self._unheard.then()
                    return
                self._client.sendall(data)

    @contextlib.contextmanager
    def _ending(self) -> Iterator[None]:
        with contextlib.suppress(OSError):
            yield
        for each in (self._client, self._server):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
