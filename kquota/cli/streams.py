"""What goes to the terminal and how: the options that every command takes, the notes on stderr, and colours."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from kquota.cli.exit_codes import ExitCode
from kquota.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

C = TypeVar("C", bound=click.Command)
T = TypeVar("T")

_QUIET = "kquota.quiet"
_ONCE = "kquota.once"
_KEPT = "kquota.warned"
_MOST_KEPT = 1000
"""A command that runs for ever must not keep more and more."""
_TURN_S = 0.2
"""The longest wait in one piece: in between, a signal is noticed."""
_COLOURS = {"auto": None, "always": True, "never": False}


class Stream(io.FileIO):
    """A standard stream whose writes do not fail: what cannot be written is dropped, and `error` says why.

    No work depends on who reads what is said about it.
    """

    error: OSError | None = None

    @property
    def lost(self) -> OSError | None:
        """Why not all of it was written; a reader that went away (`| head`) has all that it wanted."""
        return None if self.error is None or self.error.errno == errno.EPIPE else self.error

    def write(self, data: Any, /) -> int:
        with memoryview(data).cast("B") as view:
            written = 0
            while self.error is None and written < view.nbytes:
                try:
                    taken: int | None = super().write(view[written:])
                    if taken is None:  # it does not block, and its reader is slow
                        select.select([], [self.fileno()], [])
                    written += taken or 0
                except OSError as error:
                    self.error = error
            return view.nbytes


@contextlib.contextmanager
def guarded() -> Iterator[Stream | None]:
    """Has the standard streams of the process take whatever is written while it lasts.

    Gives the standard output, or None where it is not guarded: streams that are not the process's own (of a test, of an
    embedding program) stay as they are. A stream that the caller closed is the null device, so that no other file gets
    its number.
    """
    kept = sys.stdin, sys.stdout, sys.stderr
    for number, stream in enumerate(kept):
        if stream is None:
            _occupy(number)
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    out, sys.stdout = _guarded(sys.stdout)
    _, sys.stderr = _guarded(sys.stderr)
    ours = sys.stdout, sys.stderr
    try:
        yield out
    finally:
        for stream in ours:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        sys.stdin, sys.stdout, sys.stderr = kept


def _occupy(number: int) -> None:
    """Opens the null device under the number of a standard stream that is closed."""
    try:
        os.fstat(number)
    except OSError:
        null = os.open(os.devnull, os.O_RDWR)
        if null != number:
            os.dup2(null, number)
            os.close(null)


def _guarded(stream: TextIO | None) -> tuple[Stream | None, TextIO]:
    """The raw stream and the text stream above it that never fail; those of others are left alone."""
    if stream is None:
        raw = Stream(os.open(os.devnull, os.O_WRONLY), "wb")
        return raw, io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace")
    buffer = getattr(stream, "buffer", None)
    inner = getattr(buffer, "raw", buffer)  # with PYTHONUNBUFFERED there is nothing in between
    if not isinstance(inner, io.FileIO) or isinstance(inner, Stream) or not isinstance(stream, io.TextIOWrapper):
        return None, stream
    with contextlib.suppress(OSError):
        stream.flush()
    raw = Stream(inner.fileno(), "wb", closefd=False)
    text = io.TextIOWrapper(
        raw if inner is buffer else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
    return raw, text


class Stop:
    """Whether the process was asked to end; called, it says so."""

    signal: int | None = None

    def __call__(self) -> bool:
        return self.signal is not None

    def wait(self, seconds: float, gone: Callable[[], bool] = lambda: False) -> None:
        """Waits, but no longer than until it is asked to end, or somebody is `gone`."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self() and not gone():
            time.sleep(min(left, _TURN_S))

    @property
    def exit_code(self) -> ExitCode:
        """128 and the number of the signal, as a shell counts."""
        return ExitCode.INTERRUPTED if self.signal is None else ExitCode(128 + self.signal)


@contextlib.contextmanager
def stoppable(stop: Stop | None = None) -> Iterator[Stop]:
    """Makes a wish of the first SIGINT, SIGTERM or SIGHUP, to be heeded where work can be left; the second one
    interrupts at once. A signal that is ignored (`nohup`) stays so. Pieces of work that share a `stop` share the wish.
    """
    import signal

    stop = stop or Stop()

    def asked(number: int, _frame: FrameType | None) -> None:
        if stop.signal is not None:
            raise KeyboardInterrupt
        stop.signal = number
        with contextlib.suppress(OSError):  # not by the streams, in the middle of whose work this may come
            os.write(2, b"kquota: stopping after what is under way (once more stops at once)\n")

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        handler = signal.getsignal(number)
        if handler is not signal.SIG_IGN and handler is not None:
            before[number] = handler
            signal.signal(number, asked)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def aside(question: Callable[[], T]) -> Future[T]:
    """Asks in a thread of its own: what goes on meanwhile waits for no answer, and nor does the end of the process."""
    asked: Future[T] = Future()

    def ask() -> None:
        try:
            asked.set_result(question())
        except Exception as error:  # for the thread that takes the answer
            asked.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    return asked


class Terminated(KeyboardInterrupt):
    """SIGTERM came."""


@contextlib.contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM is Ctrl-C meanwhile, once: whatever sends more of them is not to disturb the cleaning up."""
    import signal

    def interrupt(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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
            ["-q", "--quiet"],
            is_flag=True,
            callback=_be_quiet,
            help="No progress, notes, summaries and advice of lint on stderr. Other warnings, errors and stdout stay.",
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


def with_global_options(command: C) -> C:
    """The command, and what is below it, with the options of all; its help only says that there are some."""
    if not any(param.name == "quiet" for param in command.params):
        command.params.extend(global_options(hidden=True))
        if command.epilog is None:
            command.epilog = "--quiet, --color and --debug go with every command: see 'kquota --help'."
            # 'config set-context' lists options of these names as its own.
            unlisted = (param for param in command.params if param.get_help_record(click.Context(command)) is None)
            if any(param.name == "bootstrap_server" for param in unlisted):
                command.epilog = (
                    "--bootstrap-server, --zookeeper, --context and the other options of the cluster: see 'kquota help"
                    f" connection'. {command.epilog}"
                )
    if isinstance(command, click.Group):
        for child in command.commands.values():
            with_global_options(child)
    return command


def quiet() -> bool:
    """Whether nothing but warnings and errors is wanted on stderr."""
    context = click.get_current_context(silent=True)
    return context is not None and context.meta.get(_QUIET, False)


def safe(text: object) -> str:
    """Text with control characters spelled out: names come from a cluster and must not drive a terminal."""
    text = str(text)
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == " " else char.encode("unicode_escape").decode() for char in text
    )


def say(text: str) -> None:
    """Says a line on stderr; no other line goes there (a test looks).

    Names, and the words of servers and files, must not drive a terminal or begin a line of a log: they are spelled out.
    """
    click.echo(safe(text), err=True)


def say_lines(text: str) -> None:
    """Says lines on stderr, each as `say` does."""
    for line in text.rstrip("\n").split("\n"):
        say(line)


def warn(text: str, *, kept: bool = True) -> None:
    """Says what may be wrong; `--quiet` does not leave it out.

    It is `kept` for the documents of an answer (`warned`), unless they say it in their own words or it is over then.
    """
    say(f"kquota: warning: {text}")
    if kept and text not in warned() and len(warned()) < _MOST_KEPT:
        warned().append(text)


def warned() -> list[str]:
    """What the command warned of so far."""
    context = click.get_current_context(silent=True)
    return [] if context is None else context.meta.setdefault(_KEPT, [])


def once(text: str, by: Callable[[str], None]) -> None:
    """Says it by `warn` or `note`, once for a command line however often it is found."""
    context = click.get_current_context(silent=True)
    known: set[str] = set() if context is None else context.meta.setdefault(_ONCE, set())
    if text not in known:
        known.add(text)
        by(text)


def note(text: str) -> None:
    """Says on stderr, in a line, what is neither an answer nor a warning: `--quiet` does without."""
    if not quiet():
        say(text)


def wrote(path: Path, then: str = "") -> None:
    """Names a file that was written, on stderr, and what to do with it `then`."""
    note(f"wrote {path}" + (f"; {then}" if then else ""))


def on_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin is not None and sys.stdin.isatty()


def ask(question: str, *, done: str, yes: str) -> None:
    """Asks on the terminal before anything happens.

    Raises Refused for any answer but yes (nothing was `done`), and where nobody can be asked; `yes` says what `--yes`
    does there.
    """
    lost = _lost_output()
    if lost is not None:
        raise Refused(f"what is to be {done} could not be shown: {lost.strerror}", hint=f"--yes {yes} without asking")
    if not on_terminal():
        raise Refused("no confirmation: stdin is not a terminal", hint=f"--yes {yes} without asking")
    if not click.confirm(safe(question), err=True):
        raise Refused(f"nothing was {done}: the answer was no")


def _lost_output() -> OSError | None:
    """Why not all that was said on stdout could be written, also where only its reader is gone."""
    sys.stdout.flush()
    buffer = getattr(sys.stdout, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    return raw.error if isinstance(raw, Stream) else None


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


def reader_is_gone() -> bool:
    """Whether stdout is a pipe or a terminal that nobody is at the other end of."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(0))
