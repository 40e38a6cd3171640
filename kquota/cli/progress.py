"""How far long work is, on stderr: one bar on a terminal, and elsewhere a line now and then."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kquota.cli.streams import console, quiet, say

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_LOOK_S = 0.3
"""How often work is looked at that does not report by itself."""
_LINE_S = 30.0
"""How often a line is written where stderr is no terminal."""


class Bar:
    """A bar, or lines where stderr is no terminal."""

    def __init__(self, doing: str, shown: tuple[Progress, TaskID] | None = None) -> None:
        self._doing = doing
        self._shown = shown
        self._over = threading.Event()
        self._share: float | None = None

    def __call__(self, done: float, total: float, doing: str = "") -> None:
        """Shows how much is done of how much, and from now on what is being done."""
        self._doing = doing or self._doing
        self._share = done / total if total else None
        if self._shown is not None:
            bar, task = self._shown
            bar.update(task, completed=done, total=total, description=self._doing)

    def watch(self, look: Callable[[], tuple[float, float]], doing: Callable[[], str] = str) -> None:
        """Shows what `look` gives: how much is done, and of how much. The total is 0 while it is not known.

        `doing` says what is being done; nothing where that is as before.
        """
        threading.Thread(target=self._watch, args=(look, doing), daemon=True).start()

    def _watch(self, look: Callable[[], tuple[float, float]], doing: Callable[[], str]) -> None:
        while not self._over.wait(_LOOK_S):
            try:
                done, total = look()
            except Exception:  # what is looked at is being stopped: there is nothing left to show
                return
            if total:
                self(done, total, doing())

    def lines(self, say: Callable[[str], None]) -> None:
        """Says how far it is every half minute, until it is over."""
        begun = time.monotonic()
        while not self._over.wait(_LINE_S):
            share = "" if self._share is None else f": {100 * self._share:.0f} %"
            say(f"{self._doing}{share}, {time.monotonic() - begun:.0f} s so far")

    def stop(self) -> None:
        """Takes the bar away."""
        self._over.set()
        if self._shown is not None:
            self._shown[0].stop()


@contextlib.contextmanager
def progress(doing: str, *, shown: bool = True) -> Iterator[Bar]:
    """Shows on stderr that work goes on: a bar on a terminal, which is gone afterwards, or a line every half minute.

    Not `shown`, as for a moment's work, is the line alone.
    """
    if sys.stderr.isatty() and not quiet() and shown:
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        board = Progress(*columns, console=console(sys.stderr), transient=True)
        board.start()
        bar = Bar(doing, (board, board.add_task(doing, total=None)))
    else:
        bar = Bar(doing)
        # The thread has no context of click, by which `note` knows of --quiet.
        if not quiet():
            threading.Thread(target=bar.lines, args=(say,), daemon=True).start()
    try:
        yield bar
    finally:
        bar.stop()
