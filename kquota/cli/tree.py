"""Trees: with lines on a terminal that can show them, in plain ASCII elsewhere."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from kquota.cli.streams import coloured
from kquota.cli.text import fold, safe, styled


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of a tree, its style on terminals, and what is below it."""

    text: str
    below: Sequence[Branch] = ()
    style: str = ""


def print_tree(root: Branch) -> None:
    """Prints a tree; on a terminal long lines are folded, in a pipe each is one line."""
    on_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if on_terminal else 100_000
    marks = _DRAWN if on_terminal and "utf" in sys.stdout.encoding.lower() else _PLAIN
    click.echo("\n".join(_lines(root, "", "", width, coloured(sys.stdout), marks)))


_PLAIN, _DRAWN = ("|-- ", "`-- ", "|   "), ("├── ", "└── ", "│   ")
"""What stands before a branch, before the last one, and before what is below others."""


def _lines(branch: Branch, first: str, others: str, width: int, colours: bool, marks: Sequence[str]) -> Iterator[str]:
    """The lines of a branch and of all below it; what is drawn before its first line, and before the others."""
    for number, line in enumerate(fold(safe(branch.text), max(width - len(others), 1))):
        yield (others if number else first) + (styled(line, branch.style) if colours else line)
    each, end, beside = marks
    for number, below in enumerate(branch.below, 1):
        last = number == len(branch.below)
        before, after = others + (end if last else each), others + ("    " if last else beside)
        yield from _lines(below, before, after, width, colours, marks)
