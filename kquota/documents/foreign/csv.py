"""Quotas as a table of a spreadsheet: what `kquota describe -o csv` writes, and what Excel and LibreOffice make of it.

A row for each value. `<default>` is the default; a name that looks so, behind backslashes too, has one backslash more.
A name that a spreadsheet would take for a number, a date or a formula is the formula of its text: `="007"`.
"""

import contextlib
import csv
import io
import re
from collections.abc import Iterable, Iterator
from typing import Final

from kquota.core.quotas.alteration import Alteration
from kquota.core.quotas.entity import DEFAULT, Entity, EntityType, Name
from kquota.core.quotas.quota import QuotaKey, Value, format_value, parse_value
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.errors import InputError

_NAMES: Final = tuple(kind.value for kind in EntityType)
HEADINGS: Final = (*_NAMES, "key", "value", "unit")
_HEAD = re.compile(rf"\ufeff?(?:sep=.\s+)?\"?(?:{'|'.join(HEADINGS)})\"? *[,;\t]", re.IGNORECASE)
_DEFAULT_NAME = re.compile(rf"\\+{DEFAULT.value}")
_CHANGED = re.compile(r"[=+@-].*|(?!(?:0|[1-9]\d{0,14}|\d+(?:\.\d+){3})\Z)\d[\d.,:/eE%+ -]*", re.DOTALL)
"""Names that a spreadsheet would change or run: not addresses, nor the numbers whose fifteen digits it keeps."""
_FORMULA = re.compile(r'="((?:[^"]|"")*)"')
_MOST: Final = 20

Quotas = dict[Entity, dict[QuotaKey, Value]]


def rows(snapshot: QuotaSnapshot) -> Iterator[tuple[str | None, ...]]:
    """A row under `HEADINGS` for each value."""
    for entity, values in snapshot.items():
        names = [None if name is None else _written(name) for name in map(entity.name_of, EntityType)]
        for key, value in values.items():
            yield *names, key.value, format_value(key, value), key.unit


def _written(name: Name) -> str:
    if name is DEFAULT:
        return DEFAULT.value
    if _CHANGED.fullmatch(name):
        return '="' + name.replace('"', '""') + '"'
    return f"\\{name}" if name == DEFAULT.value or _DEFAULT_NAME.fullmatch(name) else name


def _name(cell: str) -> Name | None:
    if cell == DEFAULT.value:
        return DEFAULT
    if formula := _FORMULA.fullmatch(cell):
        return formula[1].replace('""', '"')
    return cell[1:] if _DEFAULT_NAME.fullmatch(cell) else cell or None


def is_table(text: str) -> bool:
    """Whether a text begins with the headings of such a table."""
    return _HEAD.match(text) is not None


def read(name: str, text: str) -> QuotaSnapshot:
    """The quotas of a table. Raises InputError naming the line and the column."""
    return QuotaSnapshot(read_lines(name, text)[0])


def read_lines(name: object, text: str) -> tuple[Quotas, dict[Entity, int]]:
    """The quotas of a table, and the line at which each entity stands first.

    Columns may have any order; separators are commas, semicolons or tabs. With semicolons, numbers may have a decimal
    comma. Raises InputError naming the line and the column of each mistake.
    """
    if not is_table(text):
        raise InputError(f"{name}, line 1: not the headings of a table of quotas: {', '.join(HEADINGS)}")
    text = re.sub(r"\A\ufeff?(?:sep=.\s+)?", lambda match: "\n" * match[0].count("\n"), text)
    separator = max(",;\t", key=text.lstrip().splitlines()[0].count)
    quotas: Quotas = {}
    first: dict[Entity, int] = {}
    mistakes: list[InputError] = []
    columns: list[str] = []
    for line, cells in _cells(name, csv.reader(io.StringIO(text, newline=None), delimiter=separator, strict=True)):
        try:
            if columns:
                first.setdefault(_add(quotas, columns, cells, decimal_comma=separator == ";"), line)
            else:
                columns = _columns(cells)
        except _Wrong as wrong:
            number = wrong.column + 1
            called = f" ({columns[wrong.column]})" if wrong.column < len(columns) else ""
            where = f"{name}, line {line}, column {number}{called}"
            mistakes.append(InputError(f"{where}: {wrong.error.message}", hint=wrong.error.hint))
            if not columns:
                break
    if mistakes:
        others = [f"{each.message} ({each.hint})" if each.hint else each.message for each in mistakes[1:_MOST]]
        raise InputError(mistakes[0].message, hint=mistakes[0].hint, others=others)
    return quotas, first


class _Wrong(Exception):
    """A mistake in the cell of a column, counted from 0."""

    def __init__(self, column: int, error: InputError) -> None:
        super().__init__(error.message)
        self.column, self.error = column, error


def _cells(name: object, reader: Iterable[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not empty, each with the line at which it begins."""
    line = 1
    try:
        for cells in reader:
            if any(cells):
                yield line, cells
            line = reader.line_num + 1  # type: ignore[attr-defined]
    except csv.Error as error:
        raise InputError(f"{name}, line {line}: not a table of a spreadsheet: {error}") from None


def _columns(cells: list[str]) -> list[str]:
    columns = [cell.strip().lower() for cell in cells]
    for number, column in enumerate(columns):
        if (column or any(columns[number:])) and (column not in HEADINGS or column in columns[:number]):
            raise _Wrong(
                number, InputError(f"{column!r} is not a column of quotas", hint=f"only {', '.join(HEADINGS)}")
            )
    for needed in ("key", "value"):
        if needed not in columns:
            raise _Wrong(len(columns), InputError(f"there is no column {needed!r}"))
    return columns


def _add(quotas: Quotas, columns: list[str], cells: list[str], *, decimal_comma: bool) -> Entity:
    """Adds the value of a row, and gives its entity."""
    row = dict(zip(columns, cells, strict=False))
    for number, cell in enumerate(cells[len(columns) :], len(columns)):
        if cell.strip():
            raise _Wrong(number, InputError("a cell beyond the last column"))

    @contextlib.contextmanager
    def within(column: str) -> Iterator[None]:
        try:
            yield
        except InputError as error:
            raise _Wrong(columns.index(column) if column in columns else 0, error) from None

    with within(next((kind for kind in _NAMES if row.get(kind)), "")):
        entity = Entity(*(_name(row.get(kind, "")) for kind in _NAMES))
    with within("key"):
        key = QuotaKey.parse(row.get("key", "").strip())
    with within("value"):
        value = _value(key, row.get("value", "").strip(), row.get("unit", "").strip(), decimal_comma)
    with within("key"):
        Alteration(entity, {key: value})
        if key in quotas.get(entity, ()):
            raise InputError(f"{key} of {entity} is given twice")
    quotas.setdefault(entity, {})[key] = value
    return entity


def _value(key: QuotaKey, text: str, unit: str, decimal_comma: bool) -> Value:
    if decimal_comma and re.match(r"[1-9]\d{0,2}(\.\d{3})+(?![\d,])", text):
        raise InputError(
            f"{key}: {text} may be {text.replace('.', '')} or {text.replace('.', ',', 1)}", hint="write one of them"
        )
    if decimal_comma and re.match(r"[\d.]*,\d+(?!\S*,)", text):
        text = text.replace(",", ".")
    if re.match(r"[\d.,]+[eE][+-]?\d", text):
        raise InputError(
            f"{key}: {text} may be rounded by the spreadsheet", hint="format the column as a number with all digits"
        )
    return parse_value(key, text if unit in ("", key.unit) else f"{text} {unit}")
