"""What a command answers, and the one place that prints it in the format that was asked for."""

from __future__ import annotations

import functools
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

import click

from kquota.cli.exit_codes import ExitCode
from kquota.cli.streams import coloured, note, once, say, warn
from kquota.cli.text import (
    Column,
    Layout,
    fold,
    layout,
    markdown,
    print_csv,
    print_table,
    safe,
    said_once,
    set_layout,
    styled,
)
from kquota.core.tabular import tabulated
from kquota.documents.encoding import json_parts, to_json_line, to_yaml

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Table:
    """A table for people; `styles` gives a style per row, empty for none."""

    columns: Sequence[Column]
    rows: Iterable[Sequence[object]]
    styles: Iterable[str] = ()


Shown: TypeAlias = "tuple[Column, Callable[[T], object]] | Literal[False]"
"""A column with what it shows of each thing; False for a column that is left out."""


def table_of(things: Iterable[T], columns: Iterable[Shown[T]], style: Callable[[T], str] | None = None) -> Table:
    """A table with a row for each thing; `style` gives the style of a row."""
    kept = [shown for shown in columns if shown]
    things = list(things)
    rows = [tuple(cell(thing) for _, cell in kept) for thing in things]
    return Table([column for column, _ in kept], rows, [] if style is None else [*map(style, things)])


def markdown_of(table: Table, between: str = ", ", *, aligned: bool = True) -> str:
    """The table as GitHub's Markdown has it, each cell in one line; numbers are `aligned` to the right."""

    def line(cells: Iterable[object]) -> str:
        parts = (cell if isinstance(cell, tuple) else (cell,) for cell in cells)
        return f"| {' | '.join(between.join(markdown(part) for part in cell if part != '') for cell in parts)} |"

    rule = "".join("---:|" if column.number and aligned else "---|" for column in table.columns)
    rows = map(line, said_once(table.columns, table.rows))
    return "\n".join([line(column.heading for column in table.columns), f"|{rule}", *rows])


@dataclass(frozen=True, slots=True)
class Csv:
    """A table for programs. None is an empty field."""

    headings: Sequence[str]
    rows: Iterable[Sequence[Any]]


def csv_of(things: Iterable[object], names: str, digits: int | None = None) -> Csv:
    """A row for each thing; `names` name its fields, as in `paths`. Fractions have so many digits."""
    headings, rows = tabulated(things, names)
    rows = ([str(cell).lower() if isinstance(cell, bool) else cell for cell in row] for row in rows)
    if digits is not None:
        rows = ([round(cell, digits) if isinstance(cell, float) else cell for cell in row] for row in rows)
    return Csv(headings, rows)


@dataclass(frozen=True, slots=True)
class Note:
    """A line on stderr between other parts: a `note`, which `--quiet` leaves out, else by `say` or `warn`."""

    text: str
    by: Callable[[str], None] = note


@dataclass(frozen=True, slots=True)
class Raw:
    """Text on stdout as it is, with its own line ends."""

    text: str


Part: TypeAlias = "Table | Csv | Branch | Note | Raw | str"
"""A piece of an answer. A text is a line of stdout, and is safe to print."""

Document: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """An answer of a command: for each format a function, of which only one is called, and the exit code.

    A screen is a generator of parts, in the order that people read them: the answer in a sentence (`Note`), tables,
    then what to do next (`Note`).
    """

    screen: Callable[[], Iterable[Part]] | None = None
    """What people see: the formats `table` and `text`."""
    document: Callable[[], Document | Iterator[Document]] | None = None
    """What programs read: `json` and `yaml`. An iterator is printed as JSON by the line."""
    csv: Callable[[], Csv | Iterable[Part]] | None = None
    others: Mapping[str, Callable[[], Iterable[Part]]] = field(default_factory=dict)
    """Further formats by name, such as `wide`, `tree` or `markdown`. They come before the formats above."""
    code: int = ExitCode.OK
    asked: str = ""
    """The option by which the exit code is 1, such as `--exit-code`."""

    def parts(self, output: str) -> Iterable[Part]:
        """The parts of the answer in a format that the command has."""
        if output in self.others:
            return self.others[output]()
        if output in ("json", "yaml"):
            assert self.document is not None
            return _encoded(self.document(), output)
        if output == "csv":
            assert self.csv is not None
            csv = self.csv()
            return (csv,) if isinstance(csv, Csv) else csv
        assert self.screen is not None
        return self.screen()


def show(view: View, output: str) -> int:
    """Prints an answer in one of its formats, and returns its exit code.

    A column of `--sort-by` that no table has is a warning: a write may be done, or a long audit, and is shown.
    """
    parts = view.parts(output)
    if layout().sort_by:
        parts = list(parts)
        _check_sorting([_headings(part) for part in parts if isinstance(part, Table | Csv)])
    for part in parts:
        _print(part)
    if view.asked and output not in ("table", "wide", "text"):  # people see on the screen what the option asked for
        note(f"exit code 1, as {view.asked} asks")
    return ExitCode.DIFFERENT if view.asked else view.code


def _check_sorting(tables: Sequence[Sequence[str]]) -> None:
    wanted = layout()
    if tables and all(wanted.place(headings) is None for headings in tables):
        known = dict.fromkeys(heading for headings in tables for heading in headings if heading)
        name = wanted.sort_by.removeprefix("-")
        once(f"--sort-by: there is no column {name!r}; the columns are {', '.join(known)}", warn)


def _headings(part: Table | Csv) -> Sequence[str]:
    return part.headings if isinstance(part, Csv) else [column.heading for column in part.columns]


def _encoded(document: Document | Iterator[Document], output: str) -> Iterator[Part]:
    if not isinstance(document, Mapping):
        for line in document:
            yield to_json_line(line)
    else:
        yield from map(Raw, json_parts(document) if output == "json" else (to_yaml(document),))


def _print(part: Part) -> None:
    """Prints a part. The printer of tables knows the layout (`--no-headers`, `--sort-by`)."""
    if isinstance(part, str):
        click.echo(part)
    elif isinstance(part, Raw):
        click.echo(part.text, nl=False)
    elif isinstance(part, Note):
        part.by(part.text)
    elif isinstance(part, Table):
        print_table(part.columns, part.rows, styles=part.styles)
    elif isinstance(part, Csv):
        print_csv(part.headings, part.rows)
    else:
        print_tree(part)


DRY_RUN = "dry run: nothing was written"


def changes_table(names: Sequence[str], rows: Sequence[Sequence[Any]], *, dry_run: bool) -> Iterator[Part]:
    """What a write changed: whose, which key, before and after in words; two more cells hold the values themselves."""
    if not rows:
        yield Note("nothing changes")
        return
    who, key, before, after = names
    columns = [Column(who, style="cyan"), Column(key), Column(before, number=True), Column(after, number=True)]
    styles = ["red" if after is None else "green" if before is None else "yellow" for *_, before, after in rows]
    yield Table(columns, [row[:4] for row in rows], styles)
    if dry_run:
        # Said to those as well who want no notes: the table is that of a write.
        yield Note(DRY_RUN, by=say)


_TABLES = ("table", "wide", "csv")
"""The formats with rows to sort and headings to leave out."""


def shown_as(*formats: str, takes_output: bool = False, tables: bool = True) -> Callable[[F], F]:
    """`-o FORMAT`, the first is the default: the command returns a View, or its exit code when nothing is to be shown.

    A command with a format for tables has `--no-headers` and `--sort-by` as well. With `takes_output`, the command
    takes the format as its argument `output`, because it asks the cluster for less, or prints while it works. `tables`
    is False for a command whose format `table` is lines of text.
    """
    laid_out = [name for name in formats if name in _TABLES and tables]

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def command(*args: Any, output: str, no_headers: bool = False, sort_by: str = "", **given: Any) -> Any:
            has_wide = "wide" in formats and output != "wide"
            wanted = Layout(not no_headers, sort_by, output == "wide", "-o wide" if has_wide else "")
            if (no_headers or sort_by) and output not in laid_out:
                option = "--no-headers" if no_headers else "--sort-by"
                raise click.UsageError(f"{option} is for tables: -o {' or '.join(laid_out)}")
            set_layout(wanted)
            answer = function(*args, **given, **({"output": output} if takes_output else {}))
            return show(answer, output) if isinstance(answer, View) else answer

        about = "Output format on stdout."
        chosen = click.Choice(formats)
        output = click.option("-o", "--output", type=chosen, default=formats[0], show_default=True, help=about)
        options = [output, *((_NO_HEADERS, _SORT_BY) if laid_out else ())]
        for option in reversed(options):
            command = option(command)
        return command  # type: ignore[return-value]

    return decorate


_NO_HEADERS = click.option("--no-headers", is_flag=True, help="Print tables without their headings.")
_SORT_BY = click.option(
    "--sort-by",
    metavar="COLUMN",
    default="",
    help="Sort the rows of tables by that column; -COLUMN puts the greatest first.",
)


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of a tree, its style on terminals, and what is below it."""

    text: str
    below: Sequence[Branch] = ()
    style: str = ""


def print_tree(root: Branch) -> None:
    """Prints a tree; on a terminal long lines are folded, in a pipe each is one line."""
    on_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if on_terminal else 100_000
    marks = _DRAWN if on_terminal and "utf" in sys.stdout.encoding.lower() else _PLAIN
    click.echo("\n".join(_lines(root, "", "", width, coloured(sys.stdout), marks)))


_PLAIN, _DRAWN = ("|-- ", "`-- ", "|   "), ("├── ", "└── ", "│   ")
"""What stands before a branch, before the last one, and before what is below others."""


def _lines(branch: Branch, first: str, others: str, width: int, colours: bool, marks: Sequence[str]) -> Iterator[str]:
    """The lines of a branch and of all below it; what is drawn before its first line, and before the others."""
    for number, line in enumerate(fold(safe(branch.text), max(width - len(others), 1))):
        yield (others if number else first) + (styled(line, branch.style) if colours else line)
    middle, end, beside = marks
    for number, below in enumerate(branch.below, 1):
        last = number == len(branch.below)
        before, after = others + (end if last else middle), others + ("    " if last else beside)
        yield from _lines(below, before, after, width, colours, marks)
