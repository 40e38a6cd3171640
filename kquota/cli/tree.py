"""Trees: by rich on a terminal, in plain ASCII elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from kquota.cli.streams import coloured, console
from kquota.cli.text import safe

if TYPE_CHECKING:
    from rich.tree import Tree


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of a tree, its style on terminals, and what is below it."""

    text: str
    below: Sequence[Branch] = ()
    style: str = ""


def print_tree(root: Branch) -> None:
    """Prints a tree; on a terminal long lines are folded, in a pipe each is one line."""
    folded = sys.stdout.isatty()
    if not folded and not coloured(sys.stdout):
        click.echo("\n".join([safe(root.text), *_lines(root)]))
        return
    console(sys.stdout, **({} if folded else {"width": 100_000})).print(_rich(root))


def _lines(branch: Branch) -> Iterator[str]:
    for number, below in enumerate(branch.below, 1):
        last = number == len(branch.below)
        yield f"{'`-- ' if last else '|-- '}{safe(below.text)}"
        for line in _lines(below):
            yield ("    " if last else "|   ") + line


def _rich(branch: Branch) -> Tree:
    from rich.text import Text
    from rich.tree import Tree

    tree = Tree(Text(safe(branch.text), style=branch.style), guide_style="dim")
    tree.children.extend(map(_rich, branch.below))
    return tree
