"""What people read: tables by rich on stdout, and values as plain safe text."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from kquota.core.entity import Entity


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column: its heading, whether its cells are numbers or never broken, and a style for terminals."""

    heading: str
    number: bool = False
    style: str = ""
    whole: bool = False


def safe(text: object) -> str:
    """Text with control characters spelled out: names come from a cluster and must not drive a terminal."""
    text = str(text)
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == " " else char.encode("unicode_escape").decode() for char in text
    )


def entity_text(entity: Entity) -> str:
    """The canonical text form, safe to print."""
    return safe(entity)


def print_table(
    columns: Sequence[Column], rows: Iterable[Sequence[object]], *, title: str = "", styles: Iterable[str] = ()
) -> None:
    """Prints a table; on a terminal it is coloured and fits the width, in a pipe each row is one whole line.

    A cell that is a tuple stands in lines of its own on a terminal. `styles` gives a style per row (empty for none).
    """
    if not sys.stdout.isatty():
        click.echo("\n".join([*([title] if title else []), *_plain_lines(columns, rows)]))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False, soft_wrap=False)
    table = Table(box=None, pad_edge=False, header_style="bold", title=title or None, title_justify="left")
    for column in columns:
        # A column of numbers keeps its digits together; text folds, so that nothing is ever cut off.
        table.add_column(
            column.heading,
            justify="right" if column.number else "left",
            style=column.style or None,
            no_wrap=column.number or column.whole,
            overflow="fold",
        )
    row_styles = iter(styles)
    for row in rows:
        table.add_row(*[Text(_cell(cell, "\n")) for cell in row], style=next(row_styles, "") or None)
    # A terminal too narrow for the columns that are never broken wraps the lines itself: better than lost digits.
    measured = table.__rich_measure__(console, console.options.update(width=100_000))
    console.width = max(console.width, measured.minimum)
    with console.capture() as capture:
        console.print(table)
    # rich pads every line to the table's width; trailing blanks are noise in golden files.
    lines = capture.get().splitlines()
    click.echo("\n".join(line.rstrip() for line in lines))


def print_markdown(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints a table as GitHub's Markdown has it."""

    def line(cells: Iterable[object]) -> str:
        # A bar ends a cell, and names may hold one; so may they hold what Markdown would read as more than text.
        escaped = (re.sub(r"([\\|`*<])", r"\\\1", safe(cell)) for cell in cells)
        return f"| {' | '.join(escaped)} |"

    click.echo(line(headings))
    click.echo(f"|{'---|' * len(headings)}")
    for row in rows:
        click.echo(line(row))


def _plain_lines(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of a table for pipes and files, without rich: it takes a second for 3,000 of them."""
    cells = [[column.heading for column in columns], *([_cell(cell, " ") for cell in row] for row in rows)]
    padded = []
    for column, texts in zip(columns, zip(*cells, strict=True), strict=True):
        widths = [_width(text) for text in texts]
        most = max(widths)
        blanks = [" " * (most - width) for width in widths]
        pairs = zip(blanks, texts, strict=True) if column.number else zip(texts, blanks, strict=True)
        padded.append([one + other for one, other in pairs])
    return ["  ".join(line).rstrip() for line in zip(*padded, strict=True)]


def _cell(cell: object, between: str) -> str:
    parts = cell if isinstance(cell, tuple) else (cell,)
    return between.join(safe(part) for part in parts if part != "")


def _width(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def print_csv(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Prints RFC 4180 CSV with a header and Unix line ends; None is an empty field."""
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows(rows)
    click.echo(out.getvalue(), nl=False)


def duration(milliseconds: int) -> str:
    """A length of time for people: `398 ms`, `12.5 s`, `18 min 10 s`."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 120_000:
        return f"{milliseconds / 1000:.1f} s"
    minutes, seconds = divmod(round(milliseconds / 1000), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def period(first_ms: int | None, last_ms: int | None) -> tuple[str, ...]:
    """Two moments in UTC to the second, the day once where it is the same; `-` for none."""
    if first_ms is None or last_ms is None:
        return ("-",)
    from datetime import UTC, datetime

    first, last = (datetime.fromtimestamp(time / 1000, UTC) for time in (first_ms, last_ms))
    if first.date() == last.date():
        return f"{first:%Y-%m-%d}", f"{first:%H:%M:%S} to", f"{last:%H:%M:%S}"
    return f"{first:%Y-%m-%d %H:%M:%S} to", f"{last:%Y-%m-%d %H:%M:%S}"


def moment(time_ms: int) -> str:
    """A moment in UTC to the second."""
    from datetime import UTC, datetime

    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
