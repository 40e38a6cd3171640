"""A counter over time as a picture of characters: what was offered, what was delivered, and the limit.

The parts differ by their glyphs, and not by colour alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kquota.cli.text import clock, rate_text, short_unit
from kquota.core.simulation import CounterResult, Timeline

if TYPE_CHECKING:
    from rich.text import Text

HEIGHT: Final = 12
"""Rows of the picture itself."""


class Glyphs(NamedTuple):
    """What the parts are drawn with."""

    delivered: str
    late: str
    """Delivered, and more than arrived at that time: what had waited."""
    missing: str
    """Offered, and not delivered."""
    limit: str
    axis: str
    corner: str


UNICODE: Final = Glyphs("█", "▓", "░", "─", "│", "└")
ASCII: Final = Glyphs("#", "+", ".", "-", "|", "+")
_STYLES: Final = {"delivered": "cyan", "late": "blue", "missing": "yellow", "limit": "bold red"}


def chart(counter: CounterResult, width: int, glyphs: Glyphs = UNICODE) -> list[Text]:
    """The lines of a picture that is at most `width` columns wide; of a counter with a timeline."""
    from rich.text import Text

    timeline = counter.timeline
    assert timeline is not None
    unit = short_unit(counter.key.unit)
    known = [limit for limit in timeline.limit if limit is not None]
    load = max(*timeline.offered, *timeline.delivered, 0.0)
    # A limit far above the load would press the load flat: then it is named, and not drawn.
    most = max([load, *(limit for limit in known if limit <= 2 * load)]) or max(known, default=1.0)
    marks = {HEIGHT - 1: rate_text(most, unit), HEIGHT // 2 - 1: rate_text(most / 2, unit), 0: rate_text(0.0, unit)}
    margin = max(map(len, marks.values())) + 2
    columns = _columns(timeline, max(width - margin - 1, 10))
    lines = []
    for row in range(HEIGHT - 1, -1, -1):
        line = Text(f"{marks.get(row, ''):>{margin - 1}} {glyphs.axis}")
        for column in columns:
            part = _part(column, row, most)
            line.append(getattr(glyphs, part) if part else " ", _STYLES.get(part, ""))
        lines.append(line)
    end_ms = len(timeline.offered) * timeline.bucket_ms
    ruler = (
        f"{clock(0)}{clock(end_ms // 2):^{max(len(columns) - len(clock(0)) - len(clock(end_ms)), 0)}}{clock(end_ms)}"
    )
    lines.append(Text(f"{'':>{margin}}{glyphs.corner}{ruler}"))
    legend = Text(" " * (margin + 1))
    limits = _limit_text(known, most, unit)
    # What does not fit goes to a line of its own.
    split = margin + 61 + len(limits) > width
    for part, text in (
        ("delivered", "delivered"),
        ("late", "delivered late"),
        ("missing", "offered, not delivered"),
        ("limit", limits),
    ):
        if part == "limit" and split:
            legend.rstrip()
            legend.append("\n" + " " * (margin + 1))
        legend.append(getattr(glyphs, part), _STYLES[part])
        legend.append(f" {text}   ")
    legend.rstrip()
    lines.append(legend)
    return lines


def _limit_text(known: Sequence[float], most: float, unit: str) -> str:
    if not known:
        return "no limit"
    distinct = [
        rate_text(limit, unit) for number, limit in enumerate(known) if number == 0 or known[number - 1] != limit
    ]
    where = ", above the picture" if min(known) > most else ""
    return f"limit {', then '.join(distinct)}{where}"


class _Column(NamedTuple):
    offered: float
    delivered: float
    limit: float | None


def _columns(timeline: Timeline, width: int) -> list[_Column]:
    """The buckets as columns: several of them together, or each several times."""
    buckets = len(timeline.offered)
    if buckets <= width:
        repeat = width // buckets
        return [
            _Column(timeline.offered[bucket], timeline.delivered[bucket], timeline.limit[bucket])
            for bucket in range(buckets)
            for _ in range(repeat)
        ]
    columns = []
    for number in range(width):
        part = slice(number * buckets // width, (number + 1) * buckets // width)
        offered, delivered = timeline.offered[part], timeline.delivered[part]
        limits = [limit for limit in timeline.limit[part] if limit is not None]
        columns.append(
            _Column(sum(offered) / len(offered), sum(delivered) / len(delivered), min(limits) if limits else None)
        )
    return columns


def _part(column: _Column, row: int, most: float) -> str:
    """What a cell shows; the cell covers the values around `middle`."""
    middle = (row + 0.5) * most / HEIGHT
    if column.limit is not None and row == min(int(column.limit * HEIGHT / most), HEIGHT - 1) and column.limit <= most:
        return "limit"
    if middle <= column.delivered:
        return "delivered" if middle <= column.offered else "late"
    return "missing" if middle <= column.offered else ""
