"""Printing as Java's PrintStream does: a stream that is closed or full takes nothing and is no error.

Kafka's tool makes its changes whoever reads its output. Its exit code says whether they were made.
"""

import contextlib
import os
import re
import sys
from typing import TextIO

from kquota.cli.text import safe


def out(line: str) -> None:
    """Prints a line on stdout."""
    if sys.stdout is None:
        # Whoever flushes it later needs one.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    _print(line, sys.stdout)


def err(line: str) -> None:
    """Prints a line on stderr."""
    if sys.stderr is not None:
        _print(line, sys.stderr)


def _print(line: str, stream: TextIO) -> None:
    # Bytes of the command line that are no UTF-8 come out as Java's replacement character, not as an error. Half a
    # character, which an escape in JSON can be, is a question mark to Java.
    line = re.sub("[\ud800-\udc7f\udd00-\udfff]", "?", line)
    text = line.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    try:
        if stream.isatty():  # scripts get what Kafka's tool gives them, but a name must not drive a terminal
            text = re.sub(r"[^\n\t]+", lambda match: safe(match[0]), text)
        encoding = stream.encoding or "utf-8"
        # Not click's echo, which cuts colours out of names. What the locale does not have is a question mark to Java.
        stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
        stream.flush()
    except (OSError, ValueError):
        _silence(stream)


def _silence(stream: TextIO) -> None:
    """Sends what the stream still holds, and all that follows, to nobody: another flush would fail again."""
    with contextlib.suppress(OSError, ValueError):
        nobody = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nobody, stream.fileno())
        os.close(nobody)
