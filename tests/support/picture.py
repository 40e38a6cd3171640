"""Takes the README's pictures: runs the demo in a terminal of its own, and opens a report in a browser.

PATH=.venv/bin:$PATH python -m tests.support.picture
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tests.support.browser import Browser

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = 124


def run_in_terminal(command: list[str], columns: int) -> str:
    """What the command shows in a terminal of that width, with its colours; stderr, with the progress, is left out."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(columns)}
    process = subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, env=environment, cwd=ROOT)
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the last process on the terminal is gone
            break
        if not part:
            break
        shown += part
    assert process.wait() == 0
    return shown.decode().replace("\r\n", "\n")


def photograph_report(picture: Path) -> None:
    """The beginning of the report on the recorded log, as a browser shows it."""
    log = ROOT / "tests" / "data" / "request_log"
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        page = Path(folder) / "report.html"
        command = ["kquota", "audit", str(log / "kafka-request.log.gz"), "--broker", "1"]
        command += ["--quotas", str(log / "quotas.json"), "--report", str(page)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        browser.open(page, width=800, height=992)
        picture.write_bytes(browser.screenshot(whole=False))


def main() -> None:
    """Writes docs/demo.svg and docs/report.png."""
    photograph_report(ROOT / "docs" / "report.png")
    shown = run_in_terminal(["bash", "tests/demo.sh"], COLUMNS)
    # The address and the temporary folder differ in every run.
    shown = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:2181", shown)
    shown = re.sub(r" --quarantine \S+", "", shown)
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    console.print(Text.from_ansi(shown.strip("\n")))
    (ROOT / "docs").mkdir(exist_ok=True)
    picture = console.export_svg(title="make demo")
    # rich links a font on the network; the reader's own monospace font does.
    picture = re.sub(r"\s*@font-face \{.*?\}", "", picture, flags=re.DOTALL)
    (ROOT / "docs" / "demo.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
