"""What goes to the terminal and how: the options that every command takes, the notes on stderr, and colours."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from kquota.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

C = TypeVar("C", bound=click.Command)

_QUIET = "kquota.quiet"
_WARNED = "kquota.warned"
_COLOURS = {"auto": None, "always": True, "never": False}


def _be_quiet(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    # All contexts of one command line share their meta.
    if value:
        ctx.meta[_QUIET] = True


def _colour(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is None and ctx.parent is not None:
        return  # what stands before the command holds for it as well
    wanted = _COLOURS[value or "auto"]
    ctx.color = False if wanted is None and os.environ.get("NO_COLOR") else wanted


def global_options(*, hidden: bool = False) -> list[click.Parameter]:
    """`--quiet`, `--color` and `--debug`; `kquota.cli.main.run` looks for the last one itself."""
    options: dict[str, Any] = {"expose_value": False, "hidden": hidden}
    return [
        click.Option(
            ["--quiet"],
            is_flag=True,
            callback=_be_quiet,
            help="No progress, notes and summaries on stderr. Warnings, errors and what is on stdout stay.",
            **options,
        ),
        click.Option(
            ["--color"],
            type=click.Choice(list(_COLOURS)),
            callback=_colour,
            help="When to colour. auto, the default: on a terminal, unless NO_COLOR is set.",
            **options,
        ),
        click.Option(["--debug"], is_flag=True, help="Show where an error came from.", **options),
    ]


class Group(click.Group):
    """A group whose help says of each command all that its first line says."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, child.get_short_help_str(limit=200)) for name, child in sorted(self.commands.items())]
            )


def with_global_options(command: C) -> C:
    """The command, and what is below it, with the options of all; its help only says that there are some."""
    if not any(param.name == "quiet" for param in command.params):
        command.params.extend(global_options(hidden=True))
        command.epilog = command.epilog or "--quiet, --color and --debug go with every command: see 'kquota --help'."
    if isinstance(command, click.Group):
        for child in command.commands.values():
            with_global_options(child)
    return command


def quiet() -> bool:
    """Whether nothing but warnings and errors is wanted on stderr."""
    context = click.get_current_context(silent=True)
    return context is not None and context.meta.get(_QUIET, False)


def say(text: str) -> None:
    """Says a line on stderr; no other line goes there (a test looks).

    Names, and the words of servers and files, must not drive a terminal or begin a line of a log: they are spelled out.
    """
    from kquota.cli.text import safe

    click.echo(safe(text), err=True)


def say_lines(text: str) -> None:
    """Says lines on stderr, each as `say` does."""
    for line in text.rstrip("\n").split("\n"):
        say(line)


def warn(text: str) -> None:
    """Says what may be wrong; `--quiet` does not leave it out."""
    say(f"kquota: warning: {text}")


def warn_once(text: str) -> None:
    """Warns, once for a command line however often it is found."""
    context = click.get_current_context(silent=True)
    known: set[str] = set() if context is None else context.meta.setdefault(_WARNED, set())
    if text not in known:
        known.add(text)
        warn(text)


def note(text: str) -> None:
    """Says on stderr, in a line, what is neither an answer nor a warning: `--quiet` does without."""
    if not quiet():
        say(text)


def wrote(path: Path, then: str = "") -> None:
    """Names a file that was written, on stderr, and what to do with it `then`."""
    note(f"wrote {path}" + (f"; {then}" if then else ""))


def ask(question: str, *, done: str, yes: str) -> None:
    """Asks on the terminal before anything happens.

    Raises Refused for any answer but yes (nothing was `done`), and where nobody can be asked; `yes` says what `--yes`
    does there.
    """
    if not sys.stdin.isatty():
        raise Refused("nobody was asked: there is no terminal", hint=f"--yes {yes} without asking")
    from kquota.cli.text import safe

    if not click.confirm(safe(question), err=True):
        raise Refused(f"nothing was {done}: the answer was no")


def shows_progress() -> bool:
    """Whether somebody looks at stderr and wants to see how far it is."""
    return sys.stderr.isatty() and not quiet()


def coloured(stream: TextIO) -> bool:
    """Whether to colour what is printed there."""
    wanted = _wanted()
    return stream.isatty() if wanted is None else wanted


def _wanted() -> bool | None:
    context = click.get_current_context(silent=True)
    return None if context is None else context.color


def console(stream: TextIO, **options: Any) -> Console:
    """rich's console on that stream, with colours as they are wanted."""
    from rich.console import Console

    if _wanted():
        # The colours that every terminal knows: rich looks at the terminal for others, and there may be none.
        # (A height, or it takes a terminal that calls itself dumb for 80 columns wide whatever it is told.)
        options |= {"color_system": "standard", "force_terminal": True, "no_color": False, "height": 25}
    elif not coloured(stream):
        options |= {"color_system": None}
    return Console(file=stream, highlight=False, **options)
