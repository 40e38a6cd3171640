"""How far long work is: the one progress bar, on stderr."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kquota.cli.streams import console, shows_progress

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_LOOK_S = 0.3
"""How often work is looked at that does not report by itself."""


class Bar:
    """A bar, or nothing at all where nobody looks at stderr."""

    def __init__(self, shown: tuple[Progress, TaskID] | None = None) -> None:
        self._shown = shown
        self._over = threading.Event()

    def __call__(self, done: float, total: float, doing: str = "") -> None:
        """Shows how much is done of how much, and from now on what is being done."""
        if self._shown is not None:
            bar, task = self._shown
            words = {"description": doing} if doing else {}
            bar.update(task, completed=done, total=total, **words)  # type: ignore[arg-type]

    def watch(self, look: Callable[[], tuple[float, float]], doing: str = "") -> None:
        """Shows what `look` gives: how much is done, and of how much. The total is 0 while it is not known."""
        if self._shown is not None:
            threading.Thread(target=self._watch, args=(look, doing), daemon=True).start()

    def _watch(self, look: Callable[[], tuple[float, float]], doing: str) -> None:
        while not self._over.wait(_LOOK_S):
            try:
                done, total = look()
            except Exception:  # what is looked at is being stopped: there is nothing left to show
                return
            if total:
                self(done, total, doing)

    def stop(self) -> None:
        """Takes the bar away."""
        self._over.set()
        if self._shown is not None:
            self._shown[0].stop()


@contextlib.contextmanager
def progress(doing: str) -> Iterator[Bar]:
    """A bar while work goes on, on stderr where that is a terminal; it is gone afterwards."""
    if not shows_progress():
        yield Bar()
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    shown = Progress(*columns, console=console(sys.stderr), transient=True)
    shown.start()
    bar = Bar((shown, shown.add_task(doing, total=None)))
    try:
        yield bar
    finally:
        bar.stop()
