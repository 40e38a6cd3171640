"""The table of exit codes is whole, and every error has its place in it."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kquota import errors
from kquota.cli import main
from kquota.cli.exit_codes import ExitCode, exit_code_of

CLASSES = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, errors.KquotaError) and value is not errors.KquotaError
]


@pytest.mark.parametrize("error", CLASSES)
def test_every_error_has_a_code(error: type[errors.KquotaError]) -> None:
    """None ends as an internal error."""
    assert exit_code_of(error("what")) not in (ExitCode.INTERNAL, ExitCode.OK, ExitCode.DIFFERENT)


def test_every_code_has_a_meaning() -> None:
    """The README and the man pages print them."""
    assert all(code.meaning for code in ExitCode)


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        (errors.Rejected("no", hint="wait"), 6, "kquota: no (wait)"),
        (errors.Conflict("changed"), 7, "kquota: changed"),
        (KeyboardInterrupt(), 130, "kquota: interrupted"),
        (
            ZeroDivisionError("oops"),
            70,
            "kquota: internal error: ZeroDivisionError: oops (this is a bug: run again with 'kquota --debug')",
        ),
    ],
)
def test_an_error_is_one_line(
    raised: BaseException, code: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is raised: its code, one line on stderr, no traceback."""

    def fail(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(main.cli, "main", fail)

    assert main.run(["describe"]) == code
    assert capsys.readouterr().err == line + "\n"


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object, **__: object) -> None:
        raise errors.Rejected("no")

    monkeypatch.setattr(main.cli, "main", fail)

    assert main.run(["--debug"]) == 6
    assert "Traceback" in capsys.readouterr().err


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    """`kquota … | head` has what it wanted."""
    (tmp_path / "q.yaml").write_text("{kind: kquota.quotas, version: 1, quotas: []}")
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "kquota", "--quiet", "resolve", "--user", "a", "--quotas", str(tmp_path / "q.yaml")],
            stdout=write,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")
