"""Samples of counters: what monitoring keeps of a broker's usage, one series after the other, some as JSON.

Two natures must not be confused. A *rate* is the broker's own windowed rate at the moment of a reading; what lies
between two readings further apart than a window is unseen. A *counter* becomes totals between its readings; how a total
was placed inside its interval is unseen. What follows from each says `kquota.audit.evidence.bounds`.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kquota.audit.batch import Int64s, Tally
from kquota.audit.sources.files import damage_of, open_text
from kquota.audit.sources.lost import LostRequest
from kquota.core.tabular import grouped
from kquota.errors import InputError
from kquota.metrics.series import Series, Swallowed, checked

Float64s = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Samples:
    """Values of one series, in the order of the export."""

    series: Series
    end_ms: Int64s
    values: Float64s
    ceiling: bool = True
    """Whether nothing else was charged, and times are those of the readings: not so for a series resampled in steps."""
    slack_ms: int = 500
    """How far the times of a counter may be off: it is read while it is scraped."""

    def __len__(self) -> int:
        return len(self.end_ms)


class Reading(NamedTuple):
    """One value of a series."""

    series: Series
    end_ms: int
    value: float


def reading(series: Series, end_ms: int, value: float) -> Iterator[Reading]:
    """The value of a series; nothing of one that says nothing. Raises ValueError for one that cannot be."""
    if (counted := checked(series.nature, end_ms, value)) is not None:
        yield Reading(series, end_ms, counted)


def reject(tally: Tally, dialect: str, path: str, place: str, error: ValueError, text: str | bytes) -> None:
    """Tallies a text without a sample, and notes whose it may be."""
    if isinstance(error, Swallowed):
        tally.note(dialect, LostRequest(error.key.value))
    reason = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
    tally.reject(path, place, reason, text if isinstance(text, str) else text.decode(errors="replace").rstrip("\r\n"))


def gather(readings: Iterable[Reading], *, ceiling: bool = True, slack_ms: int = 500) -> Iterator[Samples]:
    """The readings by series, in the order in which the series first appear."""
    for series, of_series in grouped(readings, lambda reading: reading.series).items():
        yield Samples(
            series,
            np.array([reading.end_ms for reading in of_series], np.int64),
            np.array([reading.value for reading in of_series], np.float64),
            ceiling,
            slack_ms,
        )


_DECODER = json.JSONDecoder()
_BEGIN = re.compile(r"[^ \t\r\n]")
_RESUMED = re.compile(r"\n(?=[{\[])")
"""Before the next line that can begin a document."""


def documents(path: str, tally: Tally) -> Iterator[tuple[str, Any]]:
    """(place, document) of each; what is not JSON goes to the tally, up to the next line that begins with `{` or `[`.

    Raises InputError for a file that cannot be read; what is before the damage of a gzip file is.
    """
    try:
        with open_text(path) as stream:
            text = stream.read().decode(errors="replace")
            damage = damage_of(stream)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    if damage is not None:
        tally.leave(path, "file", damage.reason)
    position = 0
    while match := _BEGIN.search(text, position):
        position = match.start()
        place = f"line {text.count(chr(10), 0, position) + 1}"
        try:
            document, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply"
            if isinstance(error, ValueError):
                reason = error.msg if isinstance(error, json.JSONDecodeError) else "a number has too many digits"
            tally.reject(path, place, f"not JSON: {reason}", text[position : position + 500])
            resumed = _RESUMED.search(text, position)
            position = len(text) if resumed is None else resumed.end()
        else:
            yield place, document
