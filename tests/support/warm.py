"""kquota as a process of its own, without the start of an interpreter: a warm process is forked for each command line.

    with Forks() as forks:
        done = forks.run(["describe", "--user", "alice"], folder, environment, timeout=300)

A warm process has imported kquota and its libraries, and has done nothing else. Each command line gets a fork of it
with its own arguments, folder, environment and streams, where `python -m kquota` then runs to its end: exit codes,
signals and what remains in the streams are those of a real process.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
_LIBRARIES = ("rich.console", "rich.progress", "rich.table", "kazoo.client")
_HEAVY = ("numba", "orjson", "pandas", "pyarrow.parquet")
_AUDITS = {"audit", "recommend", "simulate", "--usage"}
"""Words of command lines that need the heavy libraries."""
_AT_START = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "MALLOC_", "OMP_", "NUMBA_")
"""How variables begin that are read when an interpreter or a library starts."""
_CHUNK = 65_536


class Forks:
    """Runs command lines in forks of two warm processes, as a context manager; each is started when it is needed."""

    def __init__(self) -> None:
        self._warm: dict[bool, Warm] = {}
        self._start = dict(os.environ)

    def __enter__(self) -> Self:
        self._stack = contextlib.ExitStack()
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
        if not self._can_fork(env):
            command = [sys.executable, "-m", "kquota", *arguments]
            options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
            return subprocess.run(command, **options, cwd=cwd, env=env, timeout=timeout, check=False)  # type: ignore[call-overload,no-any-return]
        heavy = not _AUDITS.isdisjoint(arguments)
        if heavy not in self._warm:
            self._warm[heavy] = self._stack.enter_context(Warm(self._start, heavy=heavy))
        return self._warm[heavy].run(arguments, cwd, env, timeout)

    def _can_fork(self, environment: Mapping[str, str]) -> bool:
        """Whether a fork runs as a new process would, and the system can wait for it."""
        names = {name for name in {*environment, *self._start} if name.startswith(_AT_START)}
        same = all(environment.get(name) == self._start.get(name) for name in names - {"PYTHONPATH"})
        return same and environment.get("PYTHONPATH") == str(ROOT) and hasattr(os, "pidfd_open")


class Warm:
    """The warm process, as a context manager; a heavy one has imported the audit with its libraries too.

    A fork copies the tables of its pages: forks of a heavy process take longer than most command lines.
    """

    def __init__(self, environment: Mapping[str, str], *, heavy: bool) -> None:
        """With the environment that it starts in."""
        self._environment = environment
        self._heavy = heavy

    def __enter__(self) -> Self:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.warm", str(theirs.fileno()), *(["heavy"] if self._heavy else [])],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd=ROOT,
                env=self._environment,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ours.close()  # ends it
        self._process.wait(60)

    def run(
        self, arguments: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """As `Forks.run` does."""
        reply, their_reply = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        pipes = [os.pipe(), os.pipe()]
        request = json.dumps([list(arguments), str(cwd), dict(env)]).encode("utf-8", "surrogateescape")
        with reply:
            with their_reply:
                descriptors = [their_reply.fileno(), *(writing for _, writing in pipes)]
                socket.send_fds(self._ours, [len(request).to_bytes(8, "big")], descriptors)
                self._ours.sendall(request)
            for _, writing in pipes:
                os.close(writing)
            pid = int(_line(reply))
            deadline = time.monotonic() + timeout
            try:
                out, err = _read_all([reading for reading, _ in pipes], deadline)
                reply.settimeout(max(0.001, deadline - time.monotonic()))
                code = int(_line(reply))
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(["kquota", *arguments], timeout) from None
            finally:
                for reading, _ in pipes:
                    os.close(reading)
        return subprocess.CompletedProcess(["kquota", *arguments], code, out, err)


def _line(stream: socket.socket) -> str:
    """The next line. Raises EOFError when the warm process is gone."""
    text = b""
    while not text.endswith(b"\n"):
        if not (more := stream.recv(1)):
            raise EOFError("the warm process ended")
        text += more
    return text.decode().strip()


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


def _serve(requests: socket.socket) -> Sequence[str] | None:
    """Forks for each request; returns None at the end of the requests, and in a fork its arguments."""
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        running: dict[int, tuple[int, socket.socket]] = {}
        while True:
            for key, _ in selector.select():
                if key.fd in running:
                    pid, reply = running.pop(key.fd)
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    with reply, contextlib.suppress(OSError):
                        reply.sendall(b"%d\n" % code)
                    continue
                head, descriptors, _, _ = socket.recv_fds(requests, 8, 3)
                if not head:
                    return None
                request = requests.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
                reply, *streams = socket.socket(fileno=descriptors[0]), *descriptors[1:]
                pid = os.fork()
                if pid == 0:
                    for each in (requests, reply, *(theirs for _, theirs in running.values())):
                        each.close()
                    for descriptor in running:
                        os.close(descriptor)
                    return _become(request, streams)
                for descriptor in streams:
                    os.close(descriptor)
                reply.sendall(b"%d\n" % pid)
                watched = os.pidfd_open(pid)
                running[watched] = pid, reply
                selector.register(watched, selectors.EVENT_READ)


def _become(request: bytes, streams: Sequence[int]) -> Sequence[str]:
    """Makes this process the one that is asked for; returns its arguments."""
    arguments: Sequence[str]
    arguments, folder, environment = json.loads(request.decode("utf-8", "surrogateescape"))
    for number, descriptor in enumerate(streams, start=1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    return arguments


def _warm_up(heavy: bool) -> None:
    """Imports kquota, and the libraries that it imports when they are needed."""
    import kquota

    names = [module.name for module in pkgutil.walk_packages(kquota.__path__, "kquota.") if not module.ispkg]
    left_out = ("kquota.__main__", *(() if heavy else ("kquota.audit.",)))
    for name in [*(name for name in names if not name.startswith(left_out)), *_LIBRARIES, *(_HEAVY if heavy else ())]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what a fork does not look at, it does not copy


def main() -> None:
    _warm_up("heavy" in sys.argv)
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        arguments = _serve(requests)
    if arguments is not None:
        sys.argv[1:] = arguments
        sys.path[0] = os.getcwd()
        runpy._run_module_as_main("kquota")  # type: ignore[attr-defined]  # as python -m does it


if __name__ == "__main__":
    main()
