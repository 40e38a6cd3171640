"""`kquota help`: the concepts behind quotas as short pages, and the help of a command."""

import difflib
import re
import sys
import textwrap
from collections.abc import Iterable
from importlib.resources import files
from itertools import groupby

import click

from kquota.cli import grammar, params
from kquota.cli.exit_codes import ExitCode
from kquota.cli.main import ALIASES, COMMANDS, LIKE, cli
from kquota.core.change.review import KINDS


@click.command("help", cls=grammar.Command)
@click.argument("topic", required=False, shell_complete=params.completed_by("topics"))
@click.pass_context
def command(ctx: click.Context, topic: str | None) -> None:
    """Explain a concept, or a command.

    \b
    Topics:
      concepts     start here
      precedence   which quota governs a client
      sharing      whose counter it is
      windows      how long a broker remembers
      per-broker   what a limit means on a cluster
      kip          KIP text and what shipped since when
      review       what stops a write
      temporary    values for a while: leases
      journal      history, undo, and one journal for a team
      which        top, audit, follow, record, exporter, watch or probe?
      request-log  its appender, and how to collect it
      completion   of shells, by Tab
      connection   which cluster, how to log in, and the options for that
      units        how a value is written
      file         what a quotas file holds
      workload     a workload file for simulate, to copy
      verdicts     what an audit says of a quota, and from which usage
      columns      what the columns of audit, recommend and simulate mean
      exit-codes   what each exit code promises
      glossary     the words of kquota

    \b
    Examples:
      kquota help concepts
      kquota help precedence
      kquota help kip
      kquota help alter
    """
    root = ctx.find_root()
    if topic is None:
        click.echo(root.get_help())
        topics = textwrap.fill(", ".join(TOPICS), 76, break_on_hyphens=False)
        click.echo(f"\nTopics, as in 'kquota help concepts':\n{textwrap.indent(topics, '  ')}")
    elif topic in TOPICS:
        text = text_of(topic).removeprefix("# ")
        if topic == "workload" and not sys.stdout.isatty():  # a file: only the example is no comment
            text = re.sub(r"(?m)^(?:    (?=kquota )|(?=\S))", "# ", text)
            text = re.sub(r"(?m)^    ", "", text)
        click.echo(text, nl=False)
    elif topic in COMMANDS:
        subcommand = cli.get_command(root, topic)
        assert subcommand is not None
        click.echo(subcommand.get_help(click.Context(subcommand, info_name=topic, parent=root)))
    else:
        meant = ALIASES.get(topic) or LIKE.get(topic)
        close = [meant] if meant else difflib.get_close_matches(topic, [*TOPICS, *COMMANDS], n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Topics: {', '.join(TOPICS)}."
        raise click.UsageError(f"no topic and no command {topic!r}. {hint}")


TOPICS = tuple(re.findall(r"(?m)^ +([a-z-]+)  +\S", str(command.help)))
"""The topics, as the help of the command lists them."""


def text_of(topic: str) -> str:
    """The page of a topic: Markdown that reads as plain text."""
    if topic == "glossary":
        return _glossary()
    text = (files("kquota.cli") / "topics" / f"{topic}.md").read_text(encoding="utf-8")
    for mark, made in _MADE.items():
        if mark in text:
            text = text.replace(mark, made())
    return text


_WIDTH = 80
"""The columns of a page: no terminal is narrower."""


def _definitions(pairs: Iterable[tuple[str, str]], width: int) -> str:
    """Words, each with its meaning beside it."""
    lines = []
    for word, meaning in pairs:
        folded = textwrap.wrap(meaning, _WIDTH - 4 - width, break_on_hyphens=False)
        lines += [f"  {word:<{width}}  {folded[0]}", *(" " * (width + 4) + more for more in folded[1:])]
    return "".join(f"{line}\n" for line in lines)


def _cluster_options() -> str:
    """The options of a cluster with their help."""
    command = click.command("cluster")(params.GIVEN.add("given", lambda **_: None))
    context = click.Context(command)
    options = [option for option in command.params if isinstance(option, click.Option)]
    # By click's own method: the options themselves leave their help to this page.
    rows = filter(None, (click.Option.get_help_record(option, context) for option in options))
    return _definitions([(name, re.sub(r"\s+", " ", about)) for name, about in rows], 38)


def _exit_codes() -> str:
    return _definitions([(f"{code.value:>3}  {code.name}", code.meaning) for code in ExitCode], 18)


def glossary() -> str:
    """The glossary as Markdown."""
    return (files("kquota.cli") / "topics" / "glossary.md").read_text(encoding="utf-8")


def _glossary() -> str:
    """The glossary with its table as definitions."""
    text, _, table = glossary().partition("\n| word | meaning |\n|---|---|\n")
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
    return f"{text}\n" + _definitions([(word, re.sub("`", "", meaning)) for word, meaning in rows], 24)


def _objections() -> str:
    """The kinds of objections by what lifts them, as a small table."""
    lines = []
    for (severity, lifted_by), kinds in groupby(KINDS, key=lambda kind: (kind.severity, kind.lifted_by)):
        head = f"  {severity!s:<10}{' or '.join(lifted_by) or '-':<28}"
        names = textwrap.wrap(", ".join(kind.name for kind in kinds), _WIDTH - len(head), break_on_hyphens=False)
        lines += [head + names[0], *(" " * len(head) + more for more in names[1:])]
    return "".join(f"{line}\n" for line in lines) + "\n"


_MADE = {
    "<!-- objections -->\n": _objections,
    "<!-- cluster options -->\n": _cluster_options,
    "<!-- exit codes -->\n": _exit_codes,
}
"""Parts of topics that are made of the code."""
