"""A command line in the process of the tests, for each day: another interpreter takes longer than most of them.

done = run(["describe", "--user", "alice"], folder, environment)
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from kquota.cli.main import run as run_line

_OF_THEIR_OWN = {"edit", "exporter", "follow", "probe", "record", "sandbox", "top", "watch"}
"""Commands that hear signals, or start what outlives them."""
_AT_START = ("PYTHON", "LC_", "LANG", "TZ", "LD_", "MALLOC_", "OMP_", "NUMBA_")
"""How variables begin that are read when an interpreter or a library starts."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def will_do(arguments: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether the command line leaves nothing behind in this process, which could have started with that environment.

    Tab's answers set an alarm.
    """

    def start(variables: Mapping[str, str]) -> dict[str, str]:
        # Python takes these locales for one: UTF-8.
        return {
            name: value
            for name, value in variables.items()
            if name.startswith(_AT_START) and name != "PYTHONPATH" and value not in ("C", "POSIX", "C.UTF-8")
        }

    return _OF_THEIR_OWN.isdisjoint(arguments) and "_KQUOTA_COMPLETE" not in env and start(env) == start(os.environ)


def run(arguments: Sequence[str], cwd: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs `kquota ARGUMENTS…` with captured output, and nothing to read."""
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    with TemporaryFile() as out, TemporaryFile() as err:
        with _streams(out, err), _surroundings(cwd, env):
            code = run_line(arguments)
        assert handlers == {number: signal.getsignal(number) for number in _SIGNALS}
        return subprocess.CompletedProcess(["kquota", *arguments], code, _read(out), _read(err))


@contextlib.contextmanager
def _streams(out: BinaryIO, err: BinaryIO) -> Iterator[None]:
    """Gives kquota, and what it starts, these as their standard streams."""
    kept = sys.stdin, sys.stdout, sys.stderr
    numbers = [os.dup(number) for number in (1, 2)]
    for number, file in ((1, out), (2, err)):
        os.dup2(file.fileno(), number)
    try:
        with (
            open(os.devnull, encoding="utf-8") as sys.stdin,
            open(1, "w", encoding="utf-8", closefd=False) as sys.stdout,
            open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False) as sys.stderr,
        ):
            yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = kept
        for number, before in zip((1, 2), numbers, strict=True):
            os.dup2(before, number)
            os.close(before)


@contextlib.contextmanager
def _surroundings(cwd: Path, env: Mapping[str, str]) -> Iterator[None]:
    """Lets the process be in that folder, with that environment."""
    before = dict(os.environ)
    with contextlib.chdir(cwd):
        try:
            os.environ.clear()
            os.environ.update(env)
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def _read(file: BinaryIO) -> str:
    file.seek(0)
    return TextIOWrapper(file, encoding="utf-8").read()
