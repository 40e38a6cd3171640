"""Every example that kquota gives: in the help of its commands, in its topics and in the README.

The manual pages have those of the help. What is found here, `tests/test_examples.py` runs.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from kquota.cli.commands.help import TOPICS, text_of
from kquota.cli.main import cli

README = Path(__file__).resolve().parents[2] / "README.md"

INSTALLERS = ("make", "pip", "pipx", "podman")
"""What the README installs and builds with."""


@dataclass(frozen=True)
class Example:
    """A shell script, mostly of one line, and who gives it."""

    source: str
    script: str


def of_commands() -> Iterator[Example]:
    """What stands under "Examples:" in the help of every command."""
    yield from _of_command(cli, click.Context(cli, info_name="kquota"))


def _of_command(command: click.Command, context: click.Context) -> Iterator[Example]:
    _, _, examples = inspect.cleandoc(command.help or "").partition("Examples:\n")
    yield from _scripts(f"{context.command_path} --help", examples)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _of_command(child, click.Context(child, info_name=name, parent=context))


def _scripts(source: str, text: str) -> Iterator[Example]:
    """A line each without the remark behind it; where one sets a variable for the others they are one script."""
    lines = [re.sub(r"  +#.*", "", line).strip() for line in text.splitlines() if line.strip()]
    if any(line.startswith("export ") for line in lines):
        lines = ["\n".join(lines)]
    # A line of a crontab is run once.
    yield from (Example(source, re.sub(r"\A[\d*/,-]+( [\d*/,-]+){4} +", "", line)) for line in lines)


def of_topics() -> Iterator[Example]:
    """Commands that stand at the end of a line or are indented in the texts of `kquota help`."""
    for topic in TOPICS:
        for found in re.finditer(r"(?:^| ) {3,}(kquota .*)$", text_of(topic), re.MULTILINE):
            yield Example(f"kquota help {topic}", found[1])


def blocks() -> list[tuple[str, str]]:
    """(language, text) of every block of code in the README: the language of its fence, or `indented`."""
    text = re.sub(r"<!-- generated: .*?<!-- end -->", "", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    fenced = [(found[1], found[2]) for found in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
    # After a blank line: the continuation of a list is none.
    indented = re.findall(r"(?<=\n\n)(?: {4}.*\n)+(?:\n(?: {4}.*\n)+)*", text)
    return fenced + [("indented", textwrap.dedent(block)) for block in indented]


def of_readme() -> Iterator[Example]:
    """The lines of the README's indented blocks, without those that install and with its completions for shells."""
    for language, block in blocks():
        if language != "indented" or is_config(block):
            continue
        for example in _scripts("README.md", block):
            if example.script.split()[0] not in INSTALLERS and "_KQUOTA_COMPLETE" not in example.script:
                yield example


def is_config(block: str) -> bool:
    """Whether that block is the README's configuration file."""
    return block.startswith("current-context:")


def every() -> dict[str, Example]:
    """All examples by their text; the same one is run once."""
    found = [*of_commands(), *of_topics(), *of_readme()]
    return {example.script: example for example in reversed(found)}
