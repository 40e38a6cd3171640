"""Servers that tests start: processes that write into a temporary folder, on the loopback interface."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that are free now, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def java() -> str:
    """The java launcher on PATH. Raises RuntimeError without one: tests on real servers fail, they never skip."""
    found = shutil.which("java")
    if found is None:
        raise RuntimeError("java is not on PATH; the tests on real servers need a JDK 17 or newer")
    return found


class Processes:
    """Servers that belong together, as a context manager; everything they write is in a temporary folder.

    What there is to start, a subclass says in `_start`.
    """

    _patience_s = 0.0
    """How long a process may take to end when it is asked to, before it is killed."""

    def __init__(self, name: str) -> None:
        """The folder has the name in its own."""
        self._name = name
        self._folder: Path | None = None
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._outputs: dict[str, Path] = {}

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix=f"kquota-{self._name}-"))
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def folder(self) -> Path:
        """Where the processes keep their files while they run."""
        assert self._folder is not None, f"no {self._name} is started"
        return self._folder

    def stop(self) -> None:
        """Ends what was started here, the last first, and removes the files."""
        for name in reversed(list(self._running)):
            self._end(name)
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def _start(self) -> None:
        """Starts the processes, and waits until they serve."""
        raise NotImplementedError

    def _launch(
        self, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Starts a process in that folder; what it says goes to `NAME.log` there."""
        self._outputs[name] = folder / f"{name}.log"
        with self._outputs[name].open("ab") as output:
            self._running[name] = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, cwd=folder, env=environment
            )

    def _end(self, name: str, patience_s: float | None = None) -> None:
        """Ends a process within `_patience_s`, or those seconds; its files stay. One that has ended is no error."""
        process = self._running.pop(name, None)
        if process is None:
            return
        patience_s = self._patience_s if patience_s is None else patience_s
        if patience_s:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience_s)
        process.kill()
        process.wait(15)

    def _await(self, what: str, is_there: Callable[[], bool], seconds: float, *not_yet: type[Exception]) -> None:
        """Returns once it is there; errors of the classes `not_yet` say that it is not.

        Raises RuntimeError with the tail of all output when a process ends, or those seconds do.
        """
        deadline = time.monotonic() + seconds
        while True:
            said = ""
            try:
                if is_there():
                    return
            except not_yet as error:
                said = f" ({error})"
            if time.monotonic() > deadline or any(each.poll() is not None for each in self._running.values()):
                raise RuntimeError(f"{what} did not start{said}:\n{self._tail()}")
            time.sleep(0.05)

    def _logs(self) -> list[Path]:
        """The files that say why something does not work."""
        return list(self._outputs.values())

    def _tail(self) -> str:
        """The last lines of every log, for an error message."""
        texts = [log.read_text(errors="replace") for log in self._logs() if log.exists()]
        # Of Java's stack traces the frames say least.
        lines = [[line for line in text.splitlines() if not line.startswith("\tat ")] for text in texts]
        return "\n".join("\n".join(each[-20:]) for each in lines)
