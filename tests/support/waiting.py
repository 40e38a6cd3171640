"""Waiting for a thing itself: on a busy machine, that it has not come within a minute says nothing."""

import subprocess
import time
from collections.abc import Callable
from typing import Any, TypeVar

PATIENCE_S = 300.0
"""After so long, what has not come is taken for missing."""
_AGAIN_S = 60.0
T = TypeVar("T")


def until(happened: Callable[[], T], what: str | Callable[[], str] = "", pause_s: float = 0.05) -> T:
    """What a call returns once that is true. Fails with `what` when it never is."""
    end = time.monotonic() + PATIENCE_S
    while not (found := happened()):
        assert time.monotonic() < end, what() if callable(what) else what
        time.sleep(pause_s)
    return found


def interrupted(process: subprocess.Popen[Any], number: int) -> tuple[Any, Any]:
    """What else a process prints on stdout and stderr until a signal ends it.

    Python may drop the exception of a signal, for instance in a destructor: whoever sits there presses Ctrl-C again.
    """
    end = time.monotonic() + PATIENCE_S
    while True:
        process.send_signal(number)
        try:
            return process.communicate(timeout=_AGAIN_S)
        except subprocess.TimeoutExpired:
            assert time.monotonic() < end, "the signal does not end it"


def settled(look: Callable[[], T], expected: object, pause_s: float = 0.02) -> T:
    """What a call returns once it is what is expected, or at last: a broker's own copy of the metadata lags behind."""
    end = time.monotonic() + PATIENCE_S
    while (found := look()) != expected and time.monotonic() < end:
        time.sleep(pause_s)
    return found
