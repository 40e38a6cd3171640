"""The style of everything that people read: `docs/style.md`, as far as a program can check it."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kquota.cli.commands.help import TOPICS, text_of
from kquota.cli.main import cli
from tests.support import examples
from tools.prose import faults, sentences

ROOT = examples.README.parent
PAGES = [page for page in examples.pages() if page.name != "style.md"]


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_the_pages(page: Path) -> None:
    assert faults(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("topic", TOPICS)
def test_the_topics(topic: str) -> None:
    assert faults(text_of(topic)) == []


def test_the_rules_find_faults() -> None:
    assert faults("The answer tells it for ever.") == [
        "'tells': The answer tells it for ever.",
        "'for ever': The answer tells it for ever.",
    ]
    assert len(faults("word " * 26)) == 1
    assert list(sentences("# Head\n\nOne. Two:\n\n    code\n\n| a | b |\n\n* item `x y`\n")) == [
        "One.",
        "Two:",
        "item X",
    ]


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """(command line, command), with all subcommands."""
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            child = command.get_command(click.Context(command), name)
            assert child is not None
            yield from commands(child, f"{path} {name}")


COMMANDS = dict(commands(cli, "kquota"))


@pytest.mark.parametrize("path", COMMANDS)
def test_the_help_of_a_command(path: str) -> None:
    """Its text without examples and lists, and its options."""
    command = COMMANDS[path]
    text = re.sub(r"\x08\n(?:.+\n?)*", "", inspect.cleandoc(command.help or ""))
    options = [option.help or "" for option in command.params if isinstance(option, click.Option)]
    assert [fault for part in (text, *options) for fault in faults(part)] == []


NOT_REWRITTEN = (
    "kquota/cli/commands/",  # help texts, which `test_the_help_of_a_command` checks
    "kquota/audit/evidence/prediction.py",
    "kquota/audit/evidence/verdict.py",
    "kquota/cli/report/",
    "kquota/core/enforcement/traffic/",
    "kquota/core/findings/finding.py",
    "kquota/core/simulation/members.py",
)
"""Modules whose public docstrings are checked elsewhere, or not rewritten yet. The list only ever gets shorter."""


def docstrings(source: str) -> Iterator[str]:
    """The docstrings of a module, and of the classes and functions in it with public names, without their examples."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module) or (
            isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
        ):
            yield re.sub(r"\x08\n(?:.+\n?)*", "", ast.get_docstring(node) or "")


def test_the_docstrings_of_public_names() -> None:
    modules = [(path.relative_to(ROOT).as_posix(), path) for path in sorted((ROOT / "kquota").rglob("*.py"))]
    assert [
        f"{name}: {fault}"
        for name, path in modules
        if not name.startswith(NOT_REWRITTEN)
        for text in docstrings(path.read_text(encoding="utf-8"))
        for fault in faults(text)
    ] == []


def test_docstrings_are_found() -> None:
    own = 'def _g():\n    """Own."""\n'
    source = f'"""Module."""\nclass A:\n    """Class."""\n    def f(self):\n        """Method."""\n{own}'
    assert list(docstrings(source)) == ["Module.", "Class.", "Method."]


NAMES_OF_NO_THING = {"told", "its", "mine", "each", "found"}


def test_variables_name_things() -> None:
    faulty = []
    for path in sorted((ROOT / "kquota").rglob("*.py")):
        module = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) if name in NAMES_OF_NO_THING:
                    faulty.append(f"{module}:{node.lineno}: {name}")
    assert faulty == []
