"""Output that nobody takes: the tool does what it was told, and says by its exit code whether that was done."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kquota.cli.kafka_configs import output


def run(shell: str, chroot: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Runs an alter in a shell that has the drop-in as $TOOL."""
    tool = f"{sys.executable} -m kquota kafka-configs"
    line = f"--zookeeper {chroot} --user u --alter --add-config producer_byte_rate=1"
    environment = {**os.environ, "KQUOTA_JOURNAL": str(tmp_path), "TOOL": f"{tool} {line}"}
    return subprocess.run(
        ["bash", "-c", shell], capture_output=True, text=True, env=environment, check=False, timeout=60
    )


@pytest.mark.parametrize(
    "shell",
    [
        "$TOOL >&-",
        "$TOOL >/dev/full",
        "$TOOL >&- 2>&-",
        "$TOOL 2>&-",
        "set -o pipefail; $TOOL | true",
        "(sleep 0.2; exec $TOOL) | true; exit ${PIPESTATUS[0]}",
    ],
)
def test_the_change_is_made_and_that_is_what_is_said(shell: str, chroot: str, znodes: Any, tmp_path: Path) -> None:
    done = run(shell, chroot, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert b"producer_byte_rate" in znodes.get("/config/users/u")[0]


@pytest.mark.parametrize("shell", ["$TOOL,x >&-", "$TOOL,x >/dev/full", "$TOOL,x >/dev/full 2>&-"])
def test_an_error_is_one_all_the_same(shell: str, chroot: str, znodes: Any, tmp_path: Path) -> None:
    done = run(shell, chroot, tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("Invalid entity config") or "2>&-" in shell
    assert znodes.exists("/config") is None


def test_a_name_does_not_drive_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pipe or a file it is as Kafka's tool prints it."""
    output.out("\x1b[2J\tx\ny")
    assert capsys.readouterr().out == "\x1b[2J\tx\ny\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    output.out("\x1b[2J\tx\ny")
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert shown.endswith("[2J\tx\ny\n")


def test_half_a_character_is_a_question_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON can hold one as an escape; the lines after it are printed all the same."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", stream)
    output.out("x\ud800=v\udfff \udc80")
    output.out("x")
    assert stream.buffer.getvalue() == "x?=v? \ufffd\nx\n".encode()


def test_what_a_locale_does_not_have_is_a_question_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", stream)
    output.out("é日")
    output.out("x")
    assert stream.buffer.getvalue() == b"\xe9?\nx\n"
