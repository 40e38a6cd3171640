"""Trees in plain ASCII."""

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
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 100_000
    click.echo("\n".join(_lines(root, "", "", width, coloured(sys.stdout))))


def _lines(branch: Branch, first: str, others: str, width: int, colours: bool) -> Iterator[str]:
    """The lines of a branch and of all below it; what is drawn before its first line, and before the others."""
    for number, line in enumerate(fold(safe(branch.text), max(width - len(others), 1))):
        yield (others if number else first) + (styled(line, branch.style) if colours else line)
    for number, below in enumerate(branch.below, 1):
        last = number == len(branch.below)
        yield from _lines(
            below, others + ("`-- " if last else "|-- "), others + ("    " if last else "|   "), width, colours
        )
