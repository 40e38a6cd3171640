"""Servers that tests start: processes that write into a temporary folder, on the loopback interface."""

import contextlib
import fcntl
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import SystemRandom
from typing import BinaryIO, Self

from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
ARCHIVES = ROOT / "build" / "archives"
"""Where `tests.support.archives` writes loaded classes."""
SPARK = "spark"
"""The name of the archive for Spark's JVMs."""


def archived(name: str) -> tuple[str, ...]:
    """The options of a JVM that starts from the archive of that name, if there is one.

    A JVM whose class path is another does without, and says nothing: what it prints may be compared.
    """
    archive = ARCHIVES / f"{name}.jsa"
    return (f"-XX:SharedArchiveFile={archive}", "-Xlog:disable") if archive.exists() else ()


def writes_archive(name: str) -> tuple[str, ...]:
    """The options of a JVM that writes that archive when it ends."""
    return (f"-XX:ArchiveClassesAtExit={ARCHIVES / name}.jsa", "-Xlog:disable")


_QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
QUICK_SPARK = {"SPARK_SUBMIT_OPTS": " ".join((_QUICK_JVM, *archived(SPARK))), "SPARK_LAUNCHER_OPTS": _QUICK_JVM}
"""The environment in which Spark's drivers, and the JVMs that start them, take little CPU time."""


def spark_options(settings: Mapping[str, object]) -> str:
    """SPARK_SUBMIT_OPTS for quick drivers with these settings.

    A folder for SPARK_CONF_DIR would come first on the class path, and so keep the JVM from the archive.
    """
    given = (shlex.quote(f"-D{name}={value}") for name, value in settings.items())
    return " ".join((QUICK_SPARK["SPARK_SUBMIT_OPTS"], *given))


def ran(
    command: Sequence[object],
    folder: Path = ROOT,
    environment: Mapping[str, str] | None = None,
    given: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, with this kquota and more environment; what it prints is kept."""
    return subprocess.run(
        [*map(str, command)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | dict(environment or {}),
        input=given,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def install(program: Path) -> None:
    """Writes a program that runs kquota, for shells."""
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m kquota "$@"\n')
    program.chmod(0o755)


def kquota(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Runs `kquota ARGUMENTS…` with that environment, nothing to read, and no terminal to prompt on."""
    return subprocess.run(
        [sys.executable, "-m", "kquota", *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        start_new_session=True,
    )


def started(arguments: Sequence[object], folder: Path = ROOT) -> subprocess.Popen[str]:
    """A kquota that runs, and whose output is read from pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", "kquota", *map(str, arguments)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def stand_still(pid: int) -> None:
    """Stops that process, and waits until none of its threads can answer: a signal takes its time on a busy machine."""
    os.kill(pid, signal.SIGSTOP)
    while any(b") T " not in stat.read_bytes() for stat in Path(f"/proc/{pid}/task").glob("*/stat")):
        time.sleep(0.01)


_PORTS = range(20_000, 32_000)
"""Below the ports that Linux and macOS give to connections and to servers that ask for any."""
_reserved: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that are free, all different, and reserved for this process until it ends.

    A port that is merely free can be taken before its server binds it: by a connection, by another server, or by tests
    that run beside these. So none is of the range that connections take, and each is locked between processes.
    """
    found: list[int] = []
    # Hypothesis seeds the usual random numbers.
    for port in SystemRandom().sample(_PORTS, len(_PORTS)):
        if len(found) == count:
            break
        if port not in _reserved and _is_locked_here(port) and _can_be_bound(port):
            found.append(port)
    assert len(found) == count, "no port is free"
    _reserved.update(found)
    return found


@cache
def _reservations() -> BinaryIO:
    """A file whose bytes stand for ports; the system drops the locks of a process that ends."""
    return Path(tempfile.gettempdir(), f"kquota-test-ports-{os.getuid()}").open("ab")


def _is_locked_here(port: int) -> bool:
    """Locks the port between processes; False when another process has it."""
    try:
        fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


def _can_be_bound(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


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

    def __exit__(self, *_: object) -> None:
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
        process.wait(PATIENCE_S)

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
