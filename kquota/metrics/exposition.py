"""A line of a page of metrics: Prometheus's text format and OpenMetrics, `name{label="value",…} value timestamp`."""

import re
from typing import Final, NamedTuple

_LABELS: Final = r'(?:\s*[A-Za-z_][A-Za-z0-9_]*\s*=\s*"(?:[^"\\]|\\.)*"\s*,?)*\s*'
_LINE: Final = re.compile(
    rf"(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)(?:\s*\{{(?P<labels>{_LABELS})\}}\s*|\s+)"
    r"(?P<value>\S+)(?:\s+(?P<time>[-+0-9.eE]+))?\s*(?:#.*)?"
)
_LABEL: Final = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_SECONDS_BEFORE: Final = 1e11
"""Smaller timestamps are seconds: as ms they would be of 1973, and larger ones as seconds of the year 5138."""


class Line(NamedTuple):
    """The parts of a line as they are written: what nobody asks for is not parsed."""

    name: str
    labels: str
    value: str
    time: str | None

    def numbers(self) -> tuple[float, int | None]:
        """(value, epoch ms or None where the line has no timestamp). Raises ValueError."""
        try:
            value = float(self.value)
            time = None if self.time is None else float(self.time)
        except ValueError:
            raise ValueError("the value or the timestamp is not a number") from None
        if time is None:
            return value, None
        return value, round(time * 1000) if abs(time) < _SECONDS_BEFORE else round(time)


def parse(line: str) -> Line | None:
    """The parts of one line; None for a comment or an empty line. Raises ValueError for another text."""
    line = line.strip()
    if not line or line.startswith("#"):
        return None
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError("not a line of a scrape")
    return Line(match["name"], match["labels"] or "", match["value"], match["time"])


def labels_of(text: str) -> dict[str, str]:
    """The labels between the braces, their values without escapes."""
    return {label: _unescaped(value) for label, value in _LABEL.findall(text)}


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda escape: "\n" if escape[1] == "n" else escape[1], text) if "\\" in text else text
