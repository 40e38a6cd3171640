"""What people read: tables on stdout, and values as plain safe text."""

from __future__ import annotations

import io
import itertools
import math
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from kquota.cli.streams import coloured, note
from kquota.cli.streams import safe as safe  # noqa: PLC0414
from kquota.core.duration import duration as duration  # noqa: PLC0414
from kquota.core.quotas.entity import DEFAULT, Entity
from kquota.core.quotas.quota import amount_text as amount_text  # noqa: PLC0414
from kquota.core.quotas.quota import rate_text as rate_text  # noqa: PLC0414

_LINES_AT_ONCE = 10_000
R = TypeVar("R", bound=Sequence[object])
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column: its heading, whether its cells are numbers or never broken, and a style for terminals."""

    heading: str
    number: bool = False
    style: str = ""
    whole: bool = False
    spare: int = 0
    """On a narrow terminal, columns are left out: the lower its number, the sooner one is let in; 0 always stays."""
    tells: bool = False
    """Its cells tell rows apart: while they differ, the column stays, whatever its `spare` is."""
    least: int = 0
    """Text is not folded to fewer columns than this (0: `READABLE`); of a whole cell, a board cuts off no more."""
    once: bool = False
    """A cell that is as in the row above is left blank, unless rows are sorted."""


def entity_text(entity: Entity) -> str:
    """The canonical text form for people, safe to print: a name that would read as several parts is quoted."""
    if _PLAIN.fullmatch(str(entity)):
        return str(entity)
    alone = ((kind.value, str(Entity.of({kind: name}))) for kind, name in entity.parts)
    return ",".join(f"{kind}={_quoted(text.partition('=')[2])}" for kind, text in alone)


def entity_words(entity: Entity) -> str:
    """The entity as people say it: `user alice`, `default user`, `user bob with client-id etl`."""
    texts = (f"default {kind.value}" if name is DEFAULT else f"{kind.value} {name}" for kind, name in entity.parts)
    return safe(" with ".join(texts))


_PLAIN = re.compile(r"(?:(?:user|client-id|ip)=[\w.:/@<>-]+,?)+", re.ASCII)


def _quoted(text: str) -> str:
    return f'"{safe(text)}"' if re.search("[,;=]", text) or text != text.strip() else safe(text)


@dataclass(frozen=True, slots=True)
class Layout:
    """How tables are printed: with headings or without, and the column that their rows are sorted by."""

    headings: bool = True
    sort_by: str = ""
    """A column's name; with a minus sign before it the greatest comes first. Empty: as the rows come."""
    complete: bool = False
    """Whether no column is left out on a narrow terminal: each row becomes a block there."""
    hint: str = ""
    """The option that shows all columns, where the command has one."""

    def place(self, headings: Sequence[str]) -> int | None:
        """Which of the columns the rows are sorted by, if it is one of them. Case and blanks do not count."""
        wanted = _plain_name(self.sort_by.removeprefix("-"))
        known = {_plain_name(heading): place for place, heading in enumerate(headings) if heading}
        # `STARTED (UTC)` is `started` as well.
        short = {name.partition("(")[0]: place for name, place in known.items()}
        return None if not wanted else known.get(wanted, short.get(wanted.partition("(")[0]))

    def sorted(self, headings: Sequence[str], rows: Iterable[R]) -> Iterable[R]:
        """The rows in the order that was asked for; as they come where there is no such column."""
        place = self.place(headings)
        if place is None:
            return rows
        return sorted(rows, key=lambda row: sort_key(row[place]), reverse=self.sort_by.startswith("-"))


USUAL = Layout()
_LAYOUT = "kquota.layout"


def layout() -> Layout:
    """How the command that runs prints its tables (`--no-headers`, `--sort-by`)."""
    context = click.get_current_context(silent=True)
    return USUAL if context is None else context.meta.get(_LAYOUT, USUAL)


def set_layout(wanted: Layout) -> None:
    """Has the tables of the command that runs printed so."""
    click.get_current_context().meta[_LAYOUT] = wanted


def _plain_name(heading: str) -> str:
    return re.sub(r"[\s_-]", "", heading).lower()


_AMOUNT = re.compile(r"([-+]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?) ?([a-zA-Z%]*)")
_SCALES = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_TIMES = {"ms": 1.0, "s": 1e3, "min": 6e4, "h": 3.6e6, "day": 8.64e7, "days": 8.64e7}


def sort_key(cell: object) -> tuple[int, float, str]:
    """The order of cells: empty ones first, then amounts by their size, then texts.

    Amounts are compared with their units: `9 kB/s` comes before `10 MB/s`, and `398 ms` before `2 min 5 s`. Unlimited
    is more than any amount.
    """
    text = " ".join(_parts(cell))
    if text in ("", "-"):
        return (0, 0.0, "")
    if text.startswith("unlimited"):
        return (1, math.inf, text)
    match = _AMOUNT.match(text)
    # A date and an address count nothing.
    if match is None or match[1].startswith("+") or text[match.end() :].startswith(("-", ".", ":")):
        return (2, 0.0, text.casefold())
    number, unit = float(match[1].replace(",", "")), match[2]
    if unit in _TIMES:
        total = sum(float(n.replace(",", "")) * _TIMES[u] for n, u in _AMOUNT.findall(text) if u in _TIMES)
        return (1, total, text)
    return (1, number * _SCALES.get(unit.removesuffix("B"), 1.0), text)


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[object]], *, styles: Iterable[str] = ()) -> None:
    """Prints a table; on a terminal it fits the width, in a pipe each row is one whole line.

    A cell that is a tuple stands in lines of its own on a terminal. `styles` gives a style per row (empty for none).
    The layout of the command holds: rows are sorted by a column, and headings are left out.
    """
    wanted = layout()
    headings = [column.heading for column in columns]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    # The style goes with its row, as one more cell.
    rows = [(*row, style) for row, style in zip(rows, itertools.chain(styles, itertools.repeat("")), strict=False)]
    is_sorted = wanted.place(headings) is not None
    rows = [*wanted.sorted(headings, rows)] if is_sorted else rows

    def parts(cell: object) -> list[str]:
        return [" ".join(_parts(cell))] if width is None else _parts(cell)

    heads = [[[heading] for heading in headings]] if wanted.headings else []
    cells = [*heads, *([*map(parts, row[:-1])] for row in (rows if is_sorted else said_once(columns, rows)))]
    widths = [max((_width(part) for row in cells for part in row[place]), default=0) for place in range(len(columns))]
    kept = [*range(len(columns))]
    if width is not None:
        # A column of numbers keeps its digits together; text folds, so that nothing is ever cut off.
        least = [
            most if column.number or column.whole else min(most, column.least or READABLE)
            for column, most in zip(columns, widths, strict=True)
        ]
        kept, fits = columns_that_fit(columns, least, width, cells[len(heads) :])
        if not fits or (wanted.complete and len(kept) < len(columns)):
            # Nothing is left to leave out.
            _echo(_records(columns, rows, width, headings=wanted.headings))
            return
        widths = shared_out(kept, least, widths, width)
    styled = [
        *(["bold"] * len(columns) for _ in heads),
        *([f"{column.style} {row[-1]}" for column in columns] for row in rows),
    ]
    _echo(
        line
        for row, style in zip(cells, styled, strict=True)
        for line in _lines([(columns[place].number, style[place], row[place], widths[place]) for place in kept])
    )
    if len(kept) < len(columns):
        names = ", ".join(column.heading for place, column in enumerate(columns) if place not in kept)
        hint = f"{wanted.hint} shows all, as blocks" if wanted.hint else "a pipe shows all columns: | cat"
        note(f"left out, as the terminal is narrow: {names} ({hint})")


def _echo(lines: Iterator[str]) -> None:
    while part := [*itertools.islice(lines, _LINES_AT_ONCE)]:
        click.echo("\n".join(part))


def _lines(cells: Sequence[tuple[bool, str, Sequence[str], int]]) -> Iterator[str]:
    """Cells beside each other: of each whether it is a number, its style, its lines and its width."""
    folded = [[line for part in lines for line in fold(part, width)] for _, _, lines, width in cells]
    colours = coloured(sys.stdout)
    for lines in itertools.zip_longest(*folded, fillvalue=""):
        row = []
        for line, (number, style, _, width) in zip(lines, cells, strict=True):
            blanks = " " * (width - _width(line))
            text = styled(line, style) if colours and line else line
            row.append(blanks + text if number else text + blanks)
        yield "  ".join(row).rstrip()


def styled(text: str, style: str) -> str:
    """The text as a terminal shows it; of several colours the last one counts."""
    words = style.split()
    colour = next((word for word in reversed(words) if word in _COLOURS), None)
    return click.style(text, fg=colour, bold="bold" in words or None, dim="dim" in words or None)


_COLOURS = ("red", "green", "yellow", "cyan")


def shared_out(kept: Sequence[int], least: Sequence[int], widest: Sequence[int], width: int) -> list[int]:
    """The widths of columns in a table of that width: at least `least`, and wider columns share the rest."""
    widths = list(least)
    room = width - sum(least[place] for place in kept) - 2 * (len(kept) - 1)
    while room > 0 and (narrow := [place for place in kept if widths[place] < widest[place]]):
        for place in narrow:
            more = min(max(room // len(narrow), 1), widest[place] - widths[place], room)
            widths[place] += more
            room -= more
    return widths


_UNITS = re.compile(r"\s+|\(?\d[\d.]* [kMGT]?i?B/s\b[),;]*|[^\s,=/]*(?:/s\b[),;]*|[,=/]+)|[^\s,=/]+")
"""What stays on one line where it fits: words, rates, and the parts of entities, addresses and paths."""


def fold(text: str, width: int) -> list[str]:
    """The text in lines of at most that width. Names are broken only where they are wider."""
    if _width(text) <= width:
        return [text]
    from rich.cells import chop_cells

    lines = [""]
    for unit in _UNITS.findall(text):
        if _width(lines[-1] + unit) <= width:
            lines[-1] += unit
        elif not unit.isspace():
            lines += chop_cells(unit, width)
        elif lines[-1]:
            lines.append("")
    return [line.rstrip() for line in lines if line.strip()] or [""]


def columns_that_fit(
    columns: Sequence[Column], least: Sequence[int], width: int, rows: Sequence[Sequence[object]] = ()
) -> tuple[list[int], bool]:
    """(the places of the columns that stay in that width, whether they fit): a column to spare stays where it fits."""
    kept: list[int] = []
    spares = [
        0 if column.tells and any(row[place] != rows[0][place] for row in rows) else column.spare
        for place, column in enumerate(columns)
    ]

    def fits(*more: int) -> bool:
        return sum(least[place] + 2 for place in (*kept, *more)) - 2 <= width

    for place in sorted(range(len(columns)), key=lambda place: spares[place]):
        if not spares[place] or fits(place):
            kept.append(place)
    return sorted(kept), fits()


def _records(
    columns: Sequence[Column], rows: Sequence[Sequence[object]], width: int, *, headings: bool
) -> Iterator[str]:
    """Each row as a block, with a line for each cell that holds something; the last cell is the row's style."""
    head = min(max(_width(column.heading) for column in columns), width // 2) if headings else -2
    room = max(width - head - 2, 1)
    for number, (*row, style) in enumerate(rows):
        if number:
            yield ""
        for column, cell in zip(columns, row, strict=True):
            lines = _parts(cell)
            if any(lines):
                named = [(False, f"bold {style}", [column.heading], head)] if headings else []
                yield from _lines([*named, (False, f"{column.style} {style}", lines, room)])


def said_once(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> Iterator[Sequence[object]]:
    """The rows, without the cells that are as in the row above, in the columns that say so."""
    places = [place for place, column in enumerate(columns) if column.once]
    above: dict[int, object] = {}
    for row in rows:
        shown = list(row)
        for place in places:
            if above.get(place) == row[place]:
                shown[place] = ""
            above[place] = row[place]
        yield shown


READABLE = 12
"""Text is not folded to fewer columns than this while there is a column to leave out."""


class Markdown(str):
    """Text that is Markdown already."""

    __slots__ = ()


def code(text: object) -> Markdown:
    """A name as code, in a table as well: Markdown finds neither links nor people in it."""
    name = safe(text)
    fence = "`" * (max(map(len, re.findall("`+", name)), default=0) + 1)
    # A blank is taken off at both ends where both have one; a bar would end the cell.
    padded = f" {name} " if name.startswith(("`", " ")) or name.endswith(("`", " ")) else name
    return Markdown(f"{fence}{padded.replace('|', chr(92) + '|')}{fence}")


def markdown(text: object) -> str:
    """Text as Markdown reads as no more than text, in a table as well; whole numbers with separators."""
    if isinstance(text, Markdown):
        return text
    text = f"{text:,}" if type(text) is int else text
    # A bar ends a cell, and names may hold one; so may they hold what Markdown would read as more than text.
    return re.sub(r"([\\|`*<]|\](?=\())", r"\\\1", safe(text))


def _parts(cell: object) -> list[str]:
    """The lines of a cell, safe to print; whole numbers with separators."""
    parts = cell if isinstance(cell, tuple) else (cell,)
    return [f"{part:,}" if type(part) is int else safe(part) for part in parts if part != ""]


def _width(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def print_csv(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Prints RFC 4180 CSV with a header and Unix line ends; None is an empty field.

    CSV has no way to say control characters: they are spelled out, and JSON has them exactly.
    """
    import csv

    wanted = layout()
    lines = (
        [cell if isinstance(cell, int | float | None) else safe(cell) for cell in row]
        for row in wanted.sorted(headings, rows)
    )
    head = [headings] if wanted.headings else []
    every = itertools.chain(head, lines)
    while part := [*itertools.islice(every, _LINES_AT_ONCE)]:
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(part)
        click.echo(out.getvalue(), nl=False)


def period(first_ms: int | None, last_ms: int | None) -> tuple[str, ...]:
    """Two moments in UTC to the second, the day once where it is the same; `-` for none."""
    if first_ms is None or last_ms is None:
        return ("-",)
    first, last = (datetime.fromtimestamp(time / 1000, UTC) for time in (first_ms, last_ms))
    if first.date() == last.date():
        return f"{first:%Y-%m-%d}", f"{first:%H:%M:%S} to", f"{last:%H:%M:%S}"
    return f"{first:%Y-%m-%d %H:%M:%S} to", f"{last:%Y-%m-%d %H:%M:%S}"


def moment(time_ms: int) -> str:
    """A moment in UTC to the second."""
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"  # beyond the calendar


def age(seconds: float) -> str:
    """`5.3 s`, `6 s`, `94 s`, `2 min 10 s`: how long ago something was."""
    return f"{round(seconds, int(seconds < 60)):g} s" if seconds < 120 else duration(round(seconds) * 1000)


def clocks(first_ms: int, last_ms: int) -> str:
    """Two moments of a simulation: `0:05 to 1:05`, `59:00 to 1:00:00`; below a minute `0.0 s to 5.3 s`."""
    if last_ms < 60_000:
        return f"{clock(first_ms)} to {clock(last_ms)}"
    return f"{_clock(first_ms)} to {_clock(last_ms)}"


def clock(milliseconds: int) -> str:
    """A moment of a simulation: `1:05`, below a minute `5.3 s`."""
    return _clock(milliseconds) if milliseconds >= 60_000 else f"{milliseconds / 1000:.1f} s"


def _clock(milliseconds: int) -> str:
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def short_unit(unit: str) -> str:
    """`/s` for what is counted; bytes and percent keep their name."""
    return unit if unit.startswith(("bytes", "%")) else "/s"


def first_of(things: Sequence[T], name: Callable[[T], object] = str, most: int = 3) -> str:
    """`alice, bob, carol and 4 more`: the first things by name, and how many others there are."""
    more = len(things) - most
    return ", ".join(str(name(thing)) for thing in things[:most]) + (f" and {more} more" if more > 0 else "")


def many(number: int, noun: str, plural: str | None = None) -> str:
    """A number of things: `1 counter`, `4,627 requests`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def records_text(number: int, bases: Iterable[str]) -> str:
    """`300 requests`, `1 sample`: how many records an audit read, and what they are, by what its findings rest on."""
    sampled = {basis not in ("requests", "connections") for basis in bases}
    if len(sampled) == 2:
        return f"{number:,} requests and samples"
    return many(number, "sample" if True in sampled else "request")


def range_text(least: str, most: str) -> str:
    """Two texts as a range; two equal texts as one text."""
    return least if least == most else f"{least} to {most}"


MARKS = {"create": ("+", "green"), "update": ("~", "yellow"), "delete": ("-", "red")}
"""The mark and the colour of what happens to a key."""
