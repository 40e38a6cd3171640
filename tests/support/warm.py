"""kquota as a process of its own, without the start of an interpreter: a warm process is forked for each command line.

    with Forks() as forks:
        done = forks.run(["describe", "--user", "alice"], folder, environment, timeout=300)

A warm process has imported kquota and its libraries, and has done nothing else. Each command line gets a fork of it
with its own arguments, folder, environment and streams, where `python -m kquota` then runs to its end: exit codes,
signals and what remains in the streams are those of a real process.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from tests.support import compiled
from tests.support.shim import KINDS, NO_FORK, hand_over, kind_of, line

ROOT = Path(__file__).resolve().parents[2]
_LIBRARIES = ("rich.console", "rich.progress", "rich.table", "kazoo.client")
_HEAVY = ("numba", "pandas", "pyarrow.parquet")
_AT_START = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "MALLOC_", "OMP_", "NUMBA_")
"""How variables begin that are read when an interpreter or a library starts."""
_CHUNK = 65_536
_OUTPUT_LOST = 120
"""The exit code of an interpreter that cannot flush what it has printed."""


class Forks:
    """Runs command lines in forks of two warm processes, as a context manager; each is started when it is needed."""

    def __init__(self) -> None:
        self._warm: dict[str, Warm] = {}

    def __enter__(self) -> Self:
        self._stack = contextlib.ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="kquota-warm-")))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def run(
        self, arguments: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Runs `kquota ARGUMENTS…` with captured output, and nothing to read. Raises subprocess.TimeoutExpired.

        Where the environment asks for another start of the interpreter, it gets one.
        """
        done = self._started(kind_of(arguments)).run(arguments, cwd, env, timeout)
        if done is not None:
            return done
        command = [sys.executable, "-m", "kquota", *arguments]
        options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        return subprocess.run(command, **options, cwd=cwd, env=env, timeout=timeout, check=False)  # type: ignore[call-overload,no-any-return]

    def start(self) -> None:
        """Starts both warm processes, for all forks of this one."""
        for kind in KINDS:
            self._started(kind)

    def install(self, program: Path) -> None:
        """Writes a program that runs kquota so, for shells; it passes its streams and the signals that it gets."""
        self.start()
        shim = Path(__file__).with_name("shim.py")
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {shim} {self._folder} "$@"\n')
        program.chmod(0o755)

    def _started(self, kind: str) -> Warm:
        if kind not in self._warm:
            self._warm[kind] = self._stack.enter_context(Warm(self._folder / kind))
        return self._warm[kind]


@functools.cache
def shared() -> Forks:
    """One for all tests of this process; it ends with it."""
    forks = Forks().__enter__()
    atexit.register(forks.__exit__, None, None, None)
    return forks


class Warm:
    """A warm process, as a context manager. It listens on a socket, whose file has the name of its kind.

    A fork copies the tables of its pages: forks of a heavy process take longer than most command lines.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(self._path))
            listener.listen(64)
            ours, theirs = os.pipe()
            self._alive = theirs
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.warm", self._path.name, str(listener.fileno()), str(ours)],
                pass_fds=(listener.fileno(), ours),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # forks have no terminal to prompt on
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
            )
            os.close(ours)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._alive)  # ends it
        self._process.wait(60)

    def run(
        self, arguments: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str] | None:
        """As `Forks.run` does; None where no fork would do."""
        pipes = [os.pipe(), os.pipe()]
        nothing = os.open(os.devnull, os.O_RDONLY)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as reply:
            reply.connect(str(self._path))
            hand_over(reply, arguments, str(cwd), env, [nothing, *(writing for _, writing in pipes)])
            os.close(nothing)
            for _, writing in pipes:
                os.close(writing)
            deadline = time.monotonic() + timeout
            try:
                if line(reply) == NO_FORK:
                    return None
                out, err = _read_all([reading for reading, _ in pipes], deadline)
                reply.settimeout(max(0.001, deadline - time.monotonic()))
                code = int(line(reply))
            except TimeoutError:  # the end of the connection ends the fork
                raise subprocess.TimeoutExpired(["kquota", *arguments], timeout) from None
            finally:
                for reading, _ in pipes:
                    os.close(reading)
        return subprocess.CompletedProcess(["kquota", *arguments], code, out, err)


def _read_all(descriptors: Sequence[int], deadline: float) -> list[str]:
    """Everything that is written to pipes until they are closed, as text. Raises TimeoutError."""
    read = dict.fromkeys(descriptors, b"")
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                if chunk := os.read(key.fd, _CHUNK):
                    read[key.fd] += chunk
                else:
                    selector.unregister(key.fd)
    return [data.decode().replace("\r\n", "\n").replace("\r", "\n") for data in read.values()]


# --- The warm process ---


def _serve(listener: socket.socket, alive: int) -> Sequence[str] | None:
    """Forks for each connection; returns None when nobody needs this process any more, and in a fork its arguments.

    A connection gets the fork's pid and, at its end, the exit code, each in a line; or that no fork would do. A fork
    whose connection is given up is killed.
    """
    running: list[Running] = []
    while True:
        waited: list[Any] = [listener, alive, *running, *(each.reply for each in running)]
        ready, _, _ = select.select(waited, [], [])
        for each in [each for each in running if each in ready or each.reply in ready]:
            if each not in ready:  # its connection is given up
                os.kill(each.pid, signal.SIGKILL)
            each.end()
            running.remove(each)
        if alive in ready:
            return None
        if listener in ready:
            reply, _ = listener.accept()
            head, streams, _, _ = socket.recv_fds(reply, 8, 3)
            request = reply.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
            arguments, folder, environment = json.loads(request.decode("utf-8", "surrogateescape"))
            can_do = can_fork(environment)
            if can_do and (pid := os.fork()) == 0:
                for theirs in (listener, reply, *(each.reply for each in running)):
                    theirs.close()
                for descriptor in (alive, *(each.fileno() for each in running)):
                    os.close(descriptor)
                _become(folder, environment, streams)
                return arguments  # type: ignore[no-any-return]
            for descriptor in streams:
                os.close(descriptor)
            if can_do:
                running.append(Running(pid, reply))
            else:
                with reply:
                    reply.sendall(f"{NO_FORK}\n".encode())


class Running:
    """A fork that runs: it is readable once it has ended."""

    def __init__(self, pid: int, reply: socket.socket) -> None:
        """Reports the pid to the connection that asked for the fork."""
        self.pid = pid
        self.reply = reply
        self._ended = os.pidfd_open(pid)
        with contextlib.suppress(OSError):
            reply.sendall(b"%d\n" % pid)

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._ended

    def end(self) -> None:
        """Waits for its end, and reports the exit code."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._ended)
        with self.reply, contextlib.suppress(OSError):
            self.reply.sendall(b"%d\n" % code)


def can_fork(environment: Mapping[str, str]) -> bool:
    """Whether a fork of this process runs as a new process with that environment would."""

    def start(variables: Mapping[str, str]) -> dict[str, str]:
        # Python takes these locales for one: UTF-8.
        return {
            name: value
            for name, value in variables.items()
            if name.startswith(_AT_START) and name != "PYTHONPATH" and value not in ("C", "POSIX", "C.UTF-8")
        }

    return start(environment) == start(os.environ) and environment.get("PYTHONPATH") == str(ROOT)


def _become(folder: str, environment: Mapping[str, str], streams: Sequence[int]) -> None:
    """Makes this process the one that is asked for."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)


def _warm_up(heavy: bool) -> None:
    """Imports kquota, and the libraries that it imports when they are needed."""
    import kquota

    compiled.hide_if_told()
    names = [module.name for module in pkgutil.walk_packages(kquota.__path__, "kquota.") if not module.ispkg]
    left_out = ("kquota.__main__", *(() if heavy else ("kquota.audit.",)))
    for name in [*(name for name in names if not name.startswith(left_out)), *_LIBRARIES, *(_HEAVY if heavy else ())]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if heavy:
        from kquota.core.enforcement import Mode, kernel

        # Forks have the machine code then, which takes a second to load.
        if Mode.COMPILED in compiled.modes() and kernel().is_kept():
            compiled.use()
    gc.collect()
    gc.freeze()  # what a fork does not look at, it does not copy


def main() -> None:
    kind, listener, alive = sys.argv[1:]
    _warm_up(kind == "heavy")
    with socket.socket(fileno=int(listener)) as requests:
        arguments = _serve(requests, int(alive))
    if arguments is not None:
        sys.argv[1:] = arguments
        sys.path[0] = os.getcwd()
        try:
            # Its names join those of this module: none may be the same.
            runpy._run_module_as_main("kquota")  # type: ignore[attr-defined]  # as python -m does it
        except SystemExit as end:
            if end.code is None or isinstance(end.code, int):
                _leave(end.code or 0)
            raise


def _leave(code: int) -> NoReturn:
    """Ends a fork as an interpreter ends, without taking down all that the warm process has imported.

    To free those objects, a fork would first copy nearly all of their pages: that takes ten times as long as a command.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for the threads that are no daemons
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError:
            code = code or _OUTPUT_LOST
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main()
