"""What the shells complete when Tab is pressed: click's own completion, with what its scripts do not do.

Click's scripts insert words unquoted and split words where bash does. The scripts beside this module hand over the line
as typed, and take the answer in the form that each shell can take. `candidates` knows the values of options,
and asks the cluster for names.
"""

import functools
import os
import re
import signal
import time
from importlib.resources import files
from typing import Any, Final

import click
from click.shell_completion import CompletionItem, ShellComplete, split_arg_string

VARIABLE = "_KQUOTA_COMPLETE"
# From the import of this package, which is when Tab was pressed but for the start of Python: half a second in all.
_WAIT_S = 0.35
_MOST_S = 5.0
"""When all is given up, such as a file on a network that is gone; a busy host has that long for its work."""
_deadline = time.monotonic() + _WAIT_S


def seconds_left() -> float:
    """How long the shell may still be kept waiting for names; not below 0."""
    return max(_deadline - time.monotonic(), 0.0)


class _TooLate(Exception):
    """No OSError, as a TimeoutError would be: nothing on the way takes it for its own."""


def _give_up(*_: Any) -> None:
    raise _TooLate


def complete(cli: click.Command, instruction: str) -> int:
    """Does what a shell's script asks for (`bash_complete`), or prints the script (`bash_source`).

    Whatever goes wrong, nothing is printed on stderr: it would end up in the line that is being typed.
    """
    name, _, task = instruction.partition("_")
    if name not in SHELLS or task not in ("complete", "source"):
        return 1
    shell = SHELLS[name](cli, {}, "kquota", VARIABLE)
    if task == "source":
        click.echo(shell.source(), nl=False)
        return 0
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, _MOST_S)
    try:
        click.echo(shell.complete())
    except (Exception, KeyboardInterrupt):
        return 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return 0


def split(line: str) -> list[str]:
    """The words of a line, with exported variables; the last one is at its end, empty after a blank."""
    *words, last = split_arg_string(os.path.expandvars(line) + "x")
    return [*words, last[:-1]]


_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)\Z", re.ASCII | re.DOTALL)


class _Shell(ShellComplete):
    """What the shells have in common. They hand over the line before the cursor."""

    script: str
    """The file beside this module that the shell sources."""

    def source(self) -> str:
        return (files("kquota.cli.completion") / self.script).read_text(encoding="utf-8")

    def get_completion_args(self) -> tuple[list[str], str]:
        words = split(os.environ["_KQUOTA_BEFORE"])
        while match := _ASSIGNMENT.match(words[0]):  # as in `KQUOTA_CONTEXT=prod kquota …`
            os.environ[match[1]] = match[2]
            del words[0]
        return words[1:-1], words[-1]

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        """Whole words, `--option=` included, that can be typed and shown."""
        items = super().get_completions(args, incomplete)
        name, equals, _ = incomplete.partition("=")
        if incomplete.startswith("-") and equals:
            for item in items:
                item.value = f"{name}={item.value}"
        return [item for item in items if item.value.isprintable()]


class Bash(_Shell):
    """Bash inserts what it gets: the words are quoted here, as far as readline replaces them."""

    name = "bash"
    script = "kquota.bash"

    def format_completion(self, item: CompletionItem[str]) -> str:
        if item.type != "plain":
            return item.type
        # readline splits at = and : too, and replaces only what follows ($2).
        kept = os.environ["_KQUOTA_BEFORE"].removesuffix(os.environ.get("_KQUOTA_WORD", ""))
        rest = quoted_rest(item.value, kept)
        answer = "" if rest is None else f"={rest}"
        return f"nospace\n{answer}" if item.open else answer


class Zsh(_Shell):
    """Zsh quotes what it inserts."""

    name = "zsh"
    script = "_kquota"

    def format_completion(self, item: CompletionItem[str]) -> str:
        kind = item.type if item.type != "plain" else "open" if item.open else "described" if item.help else "whole"
        return f"{kind}\t{item.value}\t{_line(item.help)}"


class Fish(_Shell):
    """Fish quotes what it inserts, and puts no blank after = and the like."""

    name = "fish"
    script = "kquota.fish"

    def format_completion(self, item: CompletionItem[str]) -> str:
        if item.type != "plain":
            return item.type
        return f"{item.value}\t{_line(item.help)}" if item.help else item.value


def _line(text: str | None) -> str:
    return click.unstyle(" ".join((text or "").split()))


SHELLS: Final[dict[str, type[_Shell]]] = {shell.name: shell for shell in (Bash, Zsh, Fish)}
_SPECIAL = re.compile(r"[^\w@%+=:,./-]")
_CLOSED = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
"""What leaves no quotation mark open."""


def quoted_rest(value: str, line: str) -> str | None:
    """What to write after the line so that bash reads the value; None where the value begins in another way.

    A quotation mark that is still open is left open: readline closes it.
    """
    typed, quote = _end_of(line)
    if not value.startswith(typed):
        return None
    rest = value[len(typed) :]
    if quote == "":
        return _SPECIAL.sub(r"\\\g<0>", rest)
    if quote == "'":
        return rest.replace("'", "'\\''")
    # No backslash keeps an exclamation mark from the history without staying in the word.
    return re.sub(r'["$`\\]', r"\\\g<0>", rest).replace("!", "\"'!'\"")


@functools.cache
def _end_of(line: str) -> tuple[str, str]:
    """The word at the end of a line, and the quotation mark that is still open."""
    still_open = re.search("['\"]", _CLOSED.sub("", line))
    return split(line)[-1], "" if still_open is None else still_open[0]
