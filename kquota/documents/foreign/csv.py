"""Quotas as a table of a spreadsheet: what `kquota describe -o csv` writes, and what Excel and LibreOffice make of it.

A row for each value, or one for each entity with a column for each quota key. `<default>` is the default; a name that
looks so, behind backslashes too, has one backslash more. A name that a spreadsheet would take for a number, a date or a
formula is the formula of its text: `="007"`.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Final

from kquota.core.quotas.alteration import Alteration
from kquota.core.quotas.entity import DEFAULT, Entity, EntityType, Name
from kquota.core.quotas.quota import QuotaKey, Value, format_value, parse_value
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.validation import MOST, close_to
from kquota.errors import InputError, placed, together

_NAMES: Final = tuple(kind.value for kind in EntityType)
_KEYS: Final = tuple(map(str, QuotaKey))
_LONG: Final = ("key", "value", "unit")
HEADINGS: Final = (*_NAMES, *_LONG)
_READ: Final = {heading.replace("-", "_"): heading for heading in (*HEADINGS, *_KEYS)}
_TOP = re.compile(r"\A\ufeff?(?:sep=.\s+)?")
"""What may stand before the headings."""
_DEFAULT_NAME = re.compile(rf"\\+{DEFAULT.value}")
_CHANGED = re.compile(r"[=+@-].*|(?!(?:0|[1-9]\d{0,14}|\d+(?:\.\d+){3})\Z)\d[\d.,:/eE%+ -]*", re.DOTALL)
"""Names that a spreadsheet would change or run: not addresses, nor the numbers whose fifteen digits it keeps."""
_SPOILT = re.compile(r"#(?:REF!|N/A|NAME\?|VALUE!|NUM!|NULL!|DIV/0!)|\d(?:[.,]\d+)?E\+\d\d+")
"""What a spreadsheet shows for a formula that fails, and for a number that is long: the name is lost."""
_UNIT = re.compile(r"(?:\s*[(\[](?P<in>[^()\[\]]+)[)\]]|\s+(?P<at>\S+/s|%))$")
"""A unit in the heading of a quota: `producer_byte_rate (MB/s)`, `produce rate MB/s`."""
_RATE = re.compile(r"(?:/s|bps|%)[)\]]?\Z")
"""How a heading ends that is none to leave out: it may be a quota, which would be lost."""
_SHORT = re.compile(r"(?:(produce)r?|consumer?|fetch)(?:_rate|_byte_rate)?\Z")
_NUMBER = re.compile(r"(?<=[ '])\d[\d.,]*")
_DECIMALS = re.compile(r"\d([.,])\d+(?![\d.,])")
_LINE = re.compile(r"(?<=, line )\d+")
_FEW: Final = 3
"""Lines with the same mistake that are named."""
_FORMULA = re.compile(r'="((?:[^"]|"")*)"')
_HINT: Final = (
    f"{', '.join(_NAMES)} name a client; then either {', '.join(_LONG)}, or a column for each quota, with cells such "
    "as 10MB, or the unit in its heading, as in 'produce MB/s', 'fetch rate (kB/s)' or 'producer_byte_rate (MB/s)': "
    + ", ".join(_KEYS)
)

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
    if _CHANGED.fullmatch(name) or _SPOILT.fullmatch(name):
        return '="' + name.replace('"', '""') + '"'
    return f"\\{name}" if name == DEFAULT.value or _DEFAULT_NAME.fullmatch(name) else name


def _name(cell: str) -> Name | None:
    if cell == DEFAULT.value:
        return DEFAULT
    if formula := _FORMULA.fullmatch(cell):
        return formula[1].replace('""', '"')
    if _SPOILT.fullmatch(cell):
        raise InputError(f"the spreadsheet has lost the name: {cell}", hint=f'a client of that name is ="{cell}"')
    return cell[1:] if _DEFAULT_NAME.fullmatch(cell) else cell or None


def is_table(name: object, text: str) -> bool:
    """Whether a file is meant as such a table: by its name, or by a heading in a first line that is no YAML or JSON."""
    if str(name).lower().endswith((".csv", ".tsv")):
        return True
    first = _TOP.sub("", text).lstrip().partition("\n")[0]
    return not re.search("[#:{]", first) and _has_headings(first)


def _has_headings(line: str) -> bool:
    cells = re.split(r"[,;\t]", line)
    return len(cells) > 1 and any(_heading(cell) in _READ.values() for cell in cells)


def _heading(cell: str) -> str:
    """A heading in kquota's spelling, without the unit behind it; another one as it stands."""
    cell = cell.strip(' "\t\r')
    name = re.sub(r"[\s_-]+", "_", _UNIT.sub("", cell).lower())
    return _READ.get(_SHORT.sub(lambda word: f"{word[1] or 'consume'}r_byte_rate", name), cell)


def read(name: object, text: str, meant: Mapping[str, str] | None = None) -> tuple[Quotas, dict[Entity, int]]:
    """The quotas of a table, and the line at which each entity stands first; one without a value has none.

    Columns may have any order. `meant` says of other headings for which they stand; those for "" are left out.
    Separators are commas, semicolons or tabs. With semicolons, numbers may have a decimal comma. Raises InputError
    naming the line and the column of each mistake.
    """
    text = _TOP.sub(lambda match: "\n" * match[0].count("\n"), text)
    head = next(filter(_has_headings, io.StringIO(text)), text.lstrip().partition("\n")[0])  # a title comes before it
    separator = max(",;\t", key=head.count)
    quotas: Quotas = {}
    first: dict[Entity, int] = {}
    mistakes: list[InputError] = []
    columns: list[str] = []
    units: dict[str, str] = {}
    marks: dict[str, int] = {}  # what stands before decimals, and in which line first
    for line, cells in _cells(name, csv.reader(io.StringIO(text, newline=None), delimiter=separator, strict=True)):
        where = f"{name}, line {line}"
        try:
            if columns:
                entity = _add(quotas, columns, cells, where, units, mistakes, first, decimal_comma=separator == ";")
                first.setdefault(entity, line)
                numbers = (cell for column, cell in zip(columns, cells, strict=False) if column in (*_KEYS, "value"))
                for mark in filter(None, map(_DECIMALS.search, numbers)):
                    marks.setdefault(mark[1], line)
            elif len([*filter(str.strip, cells)]) > 1:  # else a title
                columns = _columns(cells, where, meant or {}, mistakes)
                matches = {column: _UNIT.search(cell.strip()) for column, cell in zip(columns, cells, strict=False)}
                units = {
                    column: (unit["in"] or unit["at"]).strip() for column, unit in matches.items() if unit is not None
                }
        except InputError as error:
            mistakes.append(error)
        if mistakes and not columns:
            break
    if not columns and not mistakes:
        raise InputError(f"{name}: a table without headings", hint=_HINT)
    if len(marks) > 1:
        where = ", ".join(f"{mark!r} in line {line}" for mark, line in marks.items())
        mistakes.append(InputError(f"{name}: two marks stand before decimals: {where}", hint="use one in all rows"))
    kinds = [*_kinds(mistakes)]
    if len(kinds) > MOST:
        kinds[MOST:] = [InputError(f"{name}: and {len(kinds) - MOST} more mistakes")]
    if kinds:
        raise together(kinds)
    return quotas, first


def _kinds(mistakes: Iterable[InputError]) -> Iterator[InputError]:
    """The first mistake of each kind, with the lines of the others: a column often has the same one in every row."""
    alike: dict[str, list[InputError]] = {}
    for mistake in mistakes:
        alike.setdefault(_NUMBER.sub("", mistake.message), []).append(mistake)
    for first, *others in alike.values():
        lines = [place for other in others for place in _LINE.findall(other.message)[:1]]
        few = ", ".join(lines[:_FEW]) + (f" and {len(lines) - _FEW} more" if len(lines) > _FEW else "")
        yield InputError(first.message + (f"; also in line {few}" if lines else ""), hint=first.hint)


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


def _columns(cells: list[str], where: str, meant: Mapping[str, str], mistakes: list[InputError]) -> list[str]:
    """The headings in kquota's spelling: either `key` and `value`, or quota keys themselves; "" of those left out.

    Headings that are not read become one of `mistakes`. Nothing is given where the others make no table.
    """
    names = [cell.strip() for cell in cells]
    # The case counts where a heading has it: of 'User' beside 'user', only the one is meant.
    alike = {one: {one} & {*names} or {name for name in names if name.lower() == one.lower()} for one in meant}
    said = {name: meant[one] for one, those in alike.items() for name in those}
    columns = [_heading(said.get(name, name)) for name in names]
    wide = not {"key", "value"} & {*columns}
    read = [*_NAMES, *(_KEYS if wide else _LONG)]
    headings = f"the headings are {', '.join(name for name in names if name and said.get(name, name))}"
    for one in [one for one, those in alike.items() if not those][:1]:
        what = f"that is {meant[one]}" if meant[one] else "to ignore"
        mistakes.append(InputError(f"{where}: there is no column {one!r} {what}; {headings}"))
    wrong = [
        number
        for number, column in enumerate(columns)
        if said.get(names[number], column) != "" and any(columns[number:])
        if column not in read or column in columns[:number]
    ]
    if wrong:
        first = wrong[0]
        rest = [column for number, column in enumerate(columns) if number not in wrong]
        what = "stands twice" if columns[first] in columns[:first] else "is not a column of quotas"
        what += f" (also wrong: {', '.join(repr(names[number]) for number in wrong[1:])})" if wrong[1:] else ""
        slip = close_to(columns[first], [name for name in read if name not in columns])
        unknown = [first] if slip else [number for number in wrong if not close_to(columns[number], read)] or [first]
        named, measured = {*_NAMES} & {*columns}, not wide or {*_KEYS} & {*columns}
        others = [names[number] for number in unknown if named and measured and not _RATE.search(names[number])]
        leave = f" leave others out by --ignore-column {' --ignore-column '.join(map(repr, others))}" if others else ""
        commands = "plan, apply, lint and import"
        if slip:
            hint = slip + (leave and f" Else {commands}{leave}")
        elif not named:
            hint = f"{_HINT.split(';')[0]}: call that column so, or by --column user=HEADING"
            hint += "; --ignore-column HEADING leaves others out" if wrong[1:] else ""
        else:
            hint = f"{_HINT}; {commands} take another word by --column NAME=HEADING{leave and f', and{leave}'}"
        mistakes.append(InputError(f"{where}, column {first + 1}: {columns[first]!r} {what}; {headings}", hint=hint))
        if not {*_NAMES} & {*rest} or not ({*_KEYS} & {*rest} if wide else {"key", "value"} <= {*rest}):
            return []
        columns = ["" if place in wrong else column for place, column in enumerate(columns)]
    behind = f"{where}, column {len(columns) + 1}"
    if wide and not {*_KEYS} & {*columns}:
        raise InputError(f"{behind}: there is no column of a quota; {headings}", hint=_HINT)
    for needed in () if wide else ("key", "value"):
        if needed not in columns:
            raise InputError(f"{behind}: there is no column {needed!r}")
    return columns


def _add(
    quotas: Quotas,
    columns: list[str],
    cells: list[str],
    where: str,
    units: dict[str, str],
    mistakes: list[InputError],
    first: Mapping[Entity, int],
    *,
    decimal_comma: bool,
) -> Entity:
    """Adds the values of a row, and gives its entity. `units` are those of headings, for bare numbers.

    Values that are wrong become `mistakes`.
    """
    row = dict(zip(columns, cells, strict=False))
    for number, cell in enumerate(cells[len(columns) :], len(columns)):
        if cell.strip():
            raise InputError(f"{where}, column {number + 1}: a cell beyond the last column")

    def within(column: str) -> AbstractContextManager[None]:
        number = columns.index(column) if column in columns else 0
        heading = "" if columns[number] in _KEYS else f" ({columns[number]})"  # mistakes begin with their key
        return placed(f"{where}, column {number + 1}{heading}")

    with within(min(filter(columns.__contains__, _NAMES), key=lambda kind: not row.get(kind), default="")):
        names = [_name(row.get(kind, "")) for kind in _NAMES]
        if not any(names):
            raise InputError("a row that names no client", hint="fill it in, or delete a row of totals")
        entity = Entity(*names)
    held = quotas.setdefault(entity, {})
    if "key" in columns:
        with within("key"):
            given = [(QuotaKey.parse(row.get("key", "").strip()), "key", "value")]
    else:
        given = [(key, key.value, key.value) for key in QuotaKey if row.get(key.value, "").strip()]
    for key, named, column in given:
        text = " ".join(row.get(column, "").split())  # also blanks that do not break
        unit = row.get("unit", "").strip() or ("" if re.search("[a-zA-Z%]", text) else units.get(column, ""))
        try:
            with within(column):
                value = _value(key, text, unit, decimal_comma, wide=column != "value")
            with within(named):
                Alteration(entity, {key: value})
                if key in held:
                    place = "" if "key" in columns else f": in line {first[entity]}, too"
                    raise InputError(f"{key} of {entity} is given twice{place}")
            held[key] = value
        except InputError as error:
            mistakes.append(error)
    return entity


def _value(key: QuotaKey, text: str, unit: str, decimal_comma: bool, *, wide: bool) -> Value:
    if decimal_comma and re.match(r"[1-9]\d{0,2}(\.\d{3})+(?![\d,])", text):
        raise InputError(
            f"{key}: in {text} a point may stand before thousands or decimals",
            hint=f"write {text.replace('.', '')}, or the decimals behind a comma",
        )
    whole_only = key.value_type.integral and unit in ("", key.unit)
    if decimal_comma and whole_only and re.fullmatch(r"[1-9]\d{0,2},\d{3}", text):
        raise InputError(
            f"{key}: in {text} a comma may stand before thousands or decimals", hint=f"write {text.replace(',', '')}"
        )
    cell = text
    text = re.sub(r"\A[1-9]\d{0,2}(?: \d{3})+(?!\d)", lambda match: match[0].replace(" ", ""), text)
    if decimal_comma and (whole := re.match(r"(-?\d*|[1-9]\d{0,2}(?:\.\d{3})+),\d+(?![\d.,])", text)):
        text = text.replace(whole[1], whole[1].replace(".", ""), 1).replace(",", ".")
    if not decimal_comma and re.match(r"\d+,\d", text):
        raise InputError(
            f"{key}: {cell} has a comma",
            hint="write decimals behind a point, or separate columns by semicolons; write nothing before thousands",
        )
    if re.match(r"[\d.,]+[eE][+-]?\d", text):
        raise InputError(
            f"{key}: {text} may be rounded by the spreadsheet", hint="format the column as a number with all digits"
        )
    behind = "" if unit in ("", key.unit) else f" {unit}"
    try:
        return parse_value(key, text + behind)
    except InputError as error:  # which quotes the number as it is read
        hint = f"{error.hint}; an empty cell sets no value" if wide and not re.search(r"\d", text) else error.hint
        raise InputError(error.message.replace(text, cell), hint=hint) from None
