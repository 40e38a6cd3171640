"""`kquota help`: the concepts behind quotas as short pages, and the help of a command."""

from __future__ import annotations

from importlib.resources import files

import click

from kquota.cli import params

TOPICS = ("concepts", "precedence", "sharing", "windows", "per-broker", "kip", "review", "request-log", "completion")


@click.command("help")
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
      request-log  its appender, and how to collect it
      completion   of shells, by Tab

    \b
    Examples:
      kquota help concepts
      kquota help precedence
      kquota help kip
      kquota help alter
    """
    from kquota.cli.main import COMMANDS, cli

    root = ctx.find_root()
    if topic is None:
        click.echo(root.get_help())
    elif topic in TOPICS:
        click.echo(text_of(topic), nl=False)
    elif topic in COMMANDS:
        found = cli.get_command(root, topic)
        assert found is not None
        click.echo(found.get_help(click.Context(found, info_name=topic, parent=root)))
    else:
        import difflib

        close = difflib.get_close_matches(topic, [*TOPICS, *COMMANDS], n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Topics: {', '.join(TOPICS)}."
        raise click.UsageError(f"no topic and no command {topic!r}. {hint}")


def text_of(topic: str) -> str:
    """The page of a topic: Markdown that reads as plain text."""
    text = (files("kquota.cli") / "topics" / f"{topic}.md").read_text(encoding="utf-8")
    return text.replace(_OBJECTIONS, _objections()) if _OBJECTIONS in text else text


_OBJECTIONS = "<!-- objections -->\n"


def _objections() -> str:
    """The kinds of objections by what lifts them, as a small table."""
    import textwrap
    from itertools import groupby

    from kquota.core.change.review import KINDS

    lines = []
    for (severity, lifted_by), kinds in groupby(KINDS, key=lambda kind: (kind.severity, kind.lifted_by)):
        head = f"  {severity!s:<10}{' or '.join(lifted_by) or '-':<28}"
        names = textwrap.wrap(", ".join(kind.name for kind in kinds), 110 - len(head), break_on_hyphens=False)
        lines += [head + names[0], *(" " * len(head) + more for more in names[1:])]
    return "".join(f"{line}\n" for line in lines) + "\n"
