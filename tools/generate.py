"""Writes what is generated from the code: completions, man pages, and the tables of the README.

    python -m tools.generate            writes the files
    python -m tools.generate --check    exits with 1 when one is stale

`tests/test_generated.py` runs the check.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import click
from click.shell_completion import ShellComplete

from kquota.cli.completion.shells import Bash, Fish, Zsh
from kquota.cli.exit_codes import ExitCode
from kquota.cli.main import cli
from kquota.core.change.review import KINDS, Kind
from tools import manpages

ROOT = Path(__file__).resolve().parents[1]

_SHELLS: dict[str, type[ShellComplete]] = {
    "kquota.bash": Bash,
    "_kquota": Zsh,
    "kquota.fish": Fish,
}


def paths() -> list[Path]:
    """Every generated file; nothing is rendered for this list, which takes seconds for some."""
    return [*_quick_files(), *(ROOT / name for name in _SLOW)]


@cache
def files() -> dict[Path, str]:
    """Every generated file and what should be in it."""
    return {**_quick_files(), **{ROOT / name: render() for name, render in _SLOW.items()}}


@cache
def _quick_files() -> dict[Path, str]:
    generated = {ROOT / "completions" / name: completion(shell) for name, shell in _SHELLS.items()}
    return generated | {ROOT / "man" / name: page for name, page in manpages.pages()}


def readme() -> str:
    """What should be in the README."""
    return fill((ROOT / "README.md").read_text(encoding="utf-8"))


_SLOW: dict[str, Callable[[], str]] = {"README.md": readme}
"""Files that are rendered from measurements."""


def completion(shell: type[ShellComplete]) -> str:
    """The script that teaches a shell to complete kquota's command lines."""
    return shell(cli, {}, "kquota", "_KQUOTA_COMPLETE").source()


def exit_code_table() -> str:
    """The exit codes as a Markdown table."""
    rows = "".join(f"| {code.value} | {code.name} | {code.meaning} |\n" for code in ExitCode)
    return f"| code | name | when |\n|---|---|---|\n{rows}"


def help_block() -> str:
    """What `kquota --help` prints."""
    context = click.Context(cli, info_name="kquota", terminal_width=100, **cli.context_settings)
    return f"```\n{cli.get_help(context)}\n```\n"


def accuracy() -> str:
    """The audit of the recorded log beside what the broker itself wrote into it."""
    from tests.audit.recorded import accuracy_table

    return accuracy_table()


def objections() -> str:
    """What a review may have against a plan, as a Markdown table."""

    def row(kind: Kind) -> str:
        lifted_by = " or ".join(f"`{option}`" for option in kind.lifted_by) or "-"
        return f"| {kind.name} | {kind.severity} | {lifted_by} | {kind.about} |\n"

    rows = "".join(map(row, KINDS))
    return f"| objection | severity | lifted by | when |\n|---|---|---|---|\n{rows}"


_PARTS = {"exit codes": exit_code_table, "help": help_block, "accuracy": accuracy, "objections": objections}


def fill(text: str) -> str:
    """The README with its generated parts renewed."""
    for name, render in _PARTS.items():
        begin, end = f"<!-- generated: {name} -->\n", "<!-- end -->"
        assert begin in text, f"the README lacks {begin!r}"
        head, rest = text.split(begin, 1)
        _, tail = rest.split(end, 1)
        text = f"{head}{begin}{render()}{end}{tail}"
    return text


def main() -> int:
    """Writes or checks; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = [path for path, text in files().items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{'stale' if check else 'wrote'} {path.relative_to(ROOT)}")
        if not check:
            path.write_text(files()[path], encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
