"""Draws docs/demo.svg, the picture of the README: two commands in a terminal of 120 columns, on files of the tests.

    python -m tools.picture

The audit takes some seconds, so `make generate` does not run it; `tests/test_docs.py` compares the quick half.
"""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "demo.svg"
_RECORDED = "tests/data/cluster_log/4.4.0"
_COLUMNS = 120
RESOLVE = "kquota resolve --user alice --client app1 --quotas docs/examples/quotas.yaml -o tree"
AUDIT = f"kquota audit {_RECORDED}/broker-2/kafka-request.log.gz --quotas {_RECORDED}/quotas.json --engine local"
_SHORT = {_RECORDED + "/broker-2/": "", _RECORDED + "/": "", "docs/examples/": "", " --engine local": ""}
"""What the picture leaves out of the command lines."""
_PROGRESS = re.compile("[\u2501\u2578\u257a]{5}")
"""A bar, which people see for a moment."""


def shown(command: str) -> str:
    """What a command prints on a terminal of 120 columns, with its colours."""
    ours, theirs = pty.openpty()
    environment = {name: text for name, text in os.environ.items() if not name.startswith("KQUOTA_")}
    environment |= {"COLUMNS": str(_COLUMNS), "TERM": "xterm-256color", "XDG_CONFIG_HOME": os.devnull}
    arguments = [sys.executable, "-m", *command.split()]
    with subprocess.Popen(arguments, cwd=ROOT, env=environment, stdin=theirs, stdout=theirs, stderr=theirs):
        os.close(theirs)
        read = bytearray()
        try:
            while chunk := os.read(ours, 65536):
                read += chunk
        except OSError:  # the other end of a pseudo-terminal was closed
            pass
        finally:
            os.close(ours)
    lines = read.decode().replace("\r\n", "\n").split("\n")
    return "\n".join(line for line in lines if not _PROGRESS.search(line)).strip("\n")


def drawn(answers: dict[str, str]) -> str:
    """The picture of these commands, each with what it printed."""
    console = Console(record=True, width=_COLUMNS, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    for command, printed in answers.items():
        for full, short in _SHORT.items():
            command = command.replace(full, short)
        console.print(Text(f"$ {command}", style="bold"), soft_wrap=True)
        console.print(Text.from_ansi(printed))
        console.print()
    return console.export_svg(title="kquota", unique_id="kquota")


if __name__ == "__main__":
    PICTURE.write_text(drawn({command: shown(command) for command in (RESOLVE, AUDIT)}), encoding="utf-8")
