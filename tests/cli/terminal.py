"""Real shells on a pseudo-terminal, with keys being pressed: what a user gets is what the shell makes of the line."""

import contextlib
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.support.processes import install
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
SHELLS = ("bash", "zsh", "fish")

_START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
_SETUP = {
    "bash": f"bind 'set bell-style none'; source {ROOT}/kquota/cli/completion/kquota.bash",
    "zsh": f"unsetopt beep; autoload -Uz compinit; compinit -D -u; source {ROOT}/kquota/cli/completion/_kquota",
    "fish": f"source {ROOT}/kquota/cli/completion/kquota.fish",
}


class Terminal:
    """An interactive shell that knows kquota's completion and nothing of the developer's own set-up."""

    def __init__(self, shell: str, folder: Path, environment: dict[str, str]) -> None:
        found = shutil.which(shell)
        assert found is not None, f"{shell} is not installed: make test installs it, or apt-get install {shell}"
        self._heard = ""
        self._answer = folder / "words.json"
        programs = folder / "bin"
        programs.mkdir(exist_ok=True)
        # What the shell makes of a line, word by word.
        (programs / "words").write_text(
            f"#!{sys.executable} -IS\nimport json, os, sys\n"
            f"with open({str(self._answer)!r} + '.new', 'w') as file:\n    json.dump(sys.argv[1:], file)\n"
            f"os.rename(file.name, {str(self._answer)!r})\n"
        )
        (programs / "words").chmod(0o755)
        install(programs / "kquota")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("KQUOTA_", "XDG_"))}
        self._terminal, inner = pty.openpty()
        self._process = subprocess.Popen(
            _START[shell],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            cwd=folder,
            start_new_session=True,
            env=clean
            | {
                "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT),
                "HOME": str(folder),
                "TERM": "xterm",
                "LC_ALL": "C.UTF-8",
                "INPUTRC": os.devnull,
                "HISTFILE": os.devnull,
            }
            | environment,
            preexec_fn=lambda: _take_terminal(inner),  # noqa: PLW1509
        )
        os.close(inner)
        self.run(_SETUP[shell])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._terminal)

    def run(self, line: str) -> None:
        """Runs a line, and waits until it is done."""
        self._type(f"{line}\rwords done\r")
        assert self._words(PATIENCE_S) == ["done"], f"no answer from the shell; it shows {self._heard!r}"

    def complete(self, line: str, *, tabs: int = 1, left: int = 0) -> list[str]:
        """The words of the line after Tab was pressed at its end, or so many characters to the left of it.

        No words where the line goes on: nothing was completed, and a quotation mark is open.
        """
        self._heard = ""
        self._answer.unlink(missing_ok=True)  # one that came too late for the line before
        self._type(line + "\x02" * left + "\t" * tabs)
        # The next keys are read when the completion is done: to the line's start, and what it says goes to a program.
        self._type("\x01words \r")
        words = self._words(15)
        if not words:
            self._type("\x03")
        return words

    @property
    def shown(self) -> str:
        """What the terminal showed since Tab was pressed."""
        return self._heard

    def _type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def _words(self, seconds: float) -> list[str]:
        end = time.monotonic() + seconds
        while not self._answer.exists():
            if time.monotonic() > end:
                return []
            self._listen(0.02)
        self._listen(0.0)
        words: list[str] = json.loads(self._answer.read_text())
        self._answer.unlink()
        return words

    def _listen(self, seconds: float) -> None:
        while select.select([self._terminal], [], [], seconds)[0]:
            try:
                heard = os.read(self._terminal, 65536).decode(errors="replace")
            except OSError:
                raise AssertionError(f"the shell is gone; it showed {self._heard!r}") from None
            self._heard += heard
            if "\x1b[c" in heard or "\x1b[0c" in heard:
                self._type("\x1b[?62c")  # fish asks the terminal what it is, and waits


def on_terminal(arguments: Sequence[str], folder: Path, **environment: str) -> str:
    """What kquota shows on a terminal, on stdout and stderr, once it has ended well."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "kquota", *arguments],
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm"} | environment,
    ) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(ours, 65536):
                shown += part
    os.close(ours)
    assert process.returncode == 0, shown
    return shown.decode()


def _take_terminal(inner: int) -> None:
    """Makes the terminal the controlling one, as a terminal emulator does."""
    import fcntl
    import termios

    fcntl.ioctl(inner, termios.TIOCSCTTY, 0)
