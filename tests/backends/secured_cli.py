"""kquota as admins run it against secured servers: a search for secrets in all that it prints."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from kquota.cli import main
from tests.backends.conftest import JKS_KEY_PASSWORD, KEY_PASSWORD, STORE_PASSWORD
from tests.brokers.kafka import password_of
from tests.cli.conftest import Ran
from tests.support import processes
from tests.support.oauth import CLIENT_SECRET
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
WRONG = "wr0ng-marker"
SECRETS = (
    *(STORE_PASSWORD, WRONG, KEY_PASSWORD, JKS_KEY_PASSWORD, CLIENT_SECRET, "c-256", "c-512", "-----BEGIN", "eyJ"),
    *(password_of(user) for user in ("admin", "alice", "bob")),
    *("secret\n", "=secret", "'secret'", '"secret"', "ops-secret"),
)
TIMEOUT_S = 15


def kquota(*arguments: str, cwd: Path, **environment: str) -> Ran:
    """Runs kquota without a terminal, and without the developer's own settings."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("KQUOTA_", "KAFKA_"))}
    done = processes.kquota(arguments, cwd, clean | {"PYTHONPATH": str(ROOT)} | environment, PATIENCE_S)
    shows_nothing(done.stdout + done.stderr)
    return Ran(done.returncode, done.stdout, done.stderr)


def shows_nothing(text: str) -> None:
    """Fails when there is a secret in the text."""
    assert [secret for secret in SECRETS if secret in text] == []


def shows_nothing_when_debugged(
    arguments: Sequence[str], capfd: pytest.CaptureFixture[str], environment: Mapping[str, str] | None = None
) -> None:
    """Runs it once more in this process, with `--debug`."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (environment or {}).items():
            patch.setenv(name, value)
        assert main.run(["--debug", *arguments]) != 0
    printed = capfd.readouterr()
    assert "Traceback" in printed.err
    shows_nothing(printed.out + printed.err)


def failed(
    code: int,
    says: str,
    arguments: Sequence[str],
    cwd: Path,
    capfd: pytest.CaptureFixture[str],
    environment: Mapping[str, str] | None = None,
) -> None:
    """Expects one line and that exit code within the time-out, and the start of a process on a busy machine."""
    started = time.monotonic()
    ran = kquota(*arguments, "--timeout", str(TIMEOUT_S), cwd=cwd, **(environment or {}))
    took = time.monotonic() - started
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (code, "", 1), ran.err
    assert says in ran.err
    assert took < TIMEOUT_S + 60
    shows_nothing_when_debugged([*arguments, "--timeout", str(TIMEOUT_S)], capfd, environment)


def on_a_terminal(arguments: Sequence[str], typed: str, cwd: Path, **environment: str) -> tuple[str, int]:
    """What a terminal of its own shows when that is typed after the question, and the exit code."""
    ours, theirs = os.openpty()
    code = (
        "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
        " from kquota.cli.main import run; sys.exit(run(sys.argv[1:]))"
    )
    shown = b""
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(ours, 4096):
                if not shown.endswith(b": ") and (shown + part).endswith(b": "):
                    os.write(ours, typed.encode() + b"\n")
                shown += part
        os.close(ours)
    return shown.decode().replace("\r\n", "\n"), process.returncode
