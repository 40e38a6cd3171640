"""Single keys of the terminal on stdin, for a screen that stays."""

import codecs
import contextlib
import os
import re
import select
import sys
from collections.abc import Callable, Iterator
from typing import Final

Read = Callable[[float], list[str]]
"""Seconds → the keys that were pressed until then, as soon as there are some."""

END: Final = "end of input"
"""In place of a key: nobody is at the terminal any more."""
_NAMES: Final = {
    **dict.fromkeys(("\r", "\n"), "enter"),
    **dict.fromkeys(("\x7f", "\b"), "backspace"),
    "\x1b": "escape",
    **dict.fromkeys(("\x1b[A", "\x1bOA"), "up"),
    **dict.fromkeys(("\x1b[B", "\x1bOB"), "down"),
    **dict.fromkeys(("\x1b[H", "\x1bOH", "\x1b[1~"), "home"),
    **dict.fromkeys(("\x1b[F", "\x1bOF", "\x1b[4~"), "end"),
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
}
_KEY: Final = re.compile(r"\x1b(?:\[[0-9;?]*[@-~]|O.)|.", re.DOTALL)


def names(text: str) -> list[str]:
    """The keys of what a terminal sent: a character, or a name such as `up`. Other keys are left out."""
    pressed = (_NAMES.get(key, key) for key in _KEY.findall(text))
    return [key for key in pressed if key in _NAMES.values() or key.isprintable()]


def can_be_read() -> bool:
    """Whether somebody at a terminal can press keys for this process: not for one in the background."""
    try:
        return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError, AttributeError):
        return False


@contextlib.contextmanager
def reading() -> Iterator[Read]:
    """Keys without Enter and without an echo, until the block ends; then the terminal is as before.

    Ctrl-C stays a signal. Ctrl-Z does nothing meanwhile: it would leave the terminal as it is to the shell.
    """
    import termios

    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    decoder = codecs.getincrementaldecoder("utf-8")("ignore")

    def read(wait_s: float) -> list[str]:
        # A terminal forgets what was pressed before a Ctrl-C, also between the look and the reading.
        for patience in (wait_s, 0.0):
            if not select.select([number], [], [], patience)[0]:
                return []
            try:
                data = os.read(number, 4096)
            except OSError:
                break
            if data:
                return names(decoder.decode(data))
        return [END]  # a terminal that is gone can be read at any time, and gives nothing

    now = termios.tcgetattr(number)
    now[3] &= ~(termios.ICANON | termios.ECHO)
    now[6][termios.VMIN], now[6][termios.VTIME], now[6][termios.VSUSP] = 0, 0, b"\0"  # no reading waits
    try:
        termios.tcsetattr(number, termios.TCSADRAIN, now)
        yield read
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(number, termios.TCSADRAIN, before)
