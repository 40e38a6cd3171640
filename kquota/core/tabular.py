"""Results as tables of a notebook: pandas where it is installed, and HTML without it."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from kquota.core.fields import at, paths
from kquota.errors import MissingDependency

if TYPE_CHECKING:
    import pandas

Rows: TypeAlias = tuple[Sequence[str], Iterable[Sequence[object]]]
"""The headings, and the rows under them."""
_MOST_ROWS = 100
"""A notebook shows so many rows; `to_pandas` has all of them."""


def tabulated(things: Iterable[object], names: str) -> Rows:
    """A row for each thing; `names` name its fields, as in `kquota.core.fields.paths`."""
    named = paths(names)
    return [name for name, _ in named], ([_flat(at(thing, path)) for _, path in named] for thing in things)


def _flat(value: Any) -> object:
    """A value as a cell: numbers as they are, words for the rest."""
    if isinstance(value, enum.Enum):
        return value.value
    if value is None or isinstance(value, str | int | float):
        return value
    return " ".join(map(str, value)) if type(value) is tuple else str(value)


class Tabular:
    """A value with a table of its content."""

    __slots__ = ()

    def table(self) -> Rows:
        """The headings and the rows; numbers are in the unit of their quota key, and times in ms."""
        raise NotImplementedError

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a DataFrame. Raises MissingDependency without pandas, which the extra `audit` brings."""
        try:
            import pandas
        except ImportError:
            raise MissingDependency("to_pandas needs pandas", extra="audit") from None
        headings, rows = self.table()
        return pandas.DataFrame(list(rows), columns=list(headings))

    def _repr_html_(self) -> str:
        """The first rows as HTML, for Jupyter. Names are escaped."""
        headings, rows = self.table()
        rest = iter(rows)
        shown = list(islice(rest, _MOST_ROWS))
        more = sum(1 for _ in rest)
        head = "".join(f"<th>{escape(name)}</th>" for name in headings)
        body = "".join("<tr>" + "".join(f"<td>{_cell(cell)}</td>" for cell in row) + "</tr>" for row in shown)
        note = f"<p>and {more:,} more rows: to_pandas() has them</p>" if more else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def _cell(value: object) -> str:
    return "" if value is None else escape(f"{value:,.6g}" if isinstance(value, float) else str(value))
