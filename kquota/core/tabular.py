"""Values that know their fields: what documents, columns and the tables of a notebook are made of."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, get_args, get_type_hints

from kquota.errors import MissingDependency

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def beside(*names: str, alone: bool = False) -> Mapping[str, Any]:
    """The metadata of a field: what stands behind it in a document; the field itself does not if `alone`."""
    return {"beside": names, "alone": alone}


@cache
def members(kind: type) -> tuple[str, ...]:
    """The names in a document of such a value, in their order."""
    return tuple(
        name
        for field in fields(kind)
        for name in (*(() if field.metadata.get("alone") else (field.name,)), *field.metadata.get("beside", ()))
    )


@cache
def paths(names: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """What a text such as `key unit=key.unit low=range.0` names: the fields and indexes that lead to a value."""
    pairs = (name.partition("=") for name in names.split())
    return tuple((name, tuple((path or name).split("."))) for name, _, path in pairs)


def at(value: Any, path: tuple[str, ...]) -> Any:
    """What fields, properties and indexes lead to; behind None is None."""
    for step in path:
        if value is None:
            return None
        value = value[int(step)] if step.isdigit() else getattr(value, step)
    return value


def grouped(things: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """The things by what they have in common, in their order."""
    groups: dict[K, list[T]] = {}
    for thing in things:
        groups.setdefault(key(thing), []).append(thing)
    return groups


@cache
def types(kind: type) -> Mapping[str, tuple[Any, bool]]:
    """By the name of each field, its type without None, and whether it may be None."""
    by_name = {}
    for name, hint in get_type_hints(kind).items():
        parts = get_args(hint)
        optional = type(None) in parts
        by_name[name] = (next(part for part in parts if part is not type(None)) if optional else hint, optional)
    return by_name


if TYPE_CHECKING:
    import pandas

Rows: TypeAlias = tuple[Sequence[str], Iterable[Sequence[object]]]
"""The headings, and the rows under them."""
_MOST_ROWS = 100
"""A notebook shows so many rows; `to_pandas` has all of them."""


def tabulated(things: Iterable[object], names: str) -> Rows:
    """A row for each thing; `names` name its fields, as in `paths`."""
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

    def _repr_html_(self) -> str | None:
        """The first rows and the last ones as HTML, for Jupyter, where pandas is installed. Names are escaped."""
        with contextlib.suppress(MissingDependency):
            frame = self.to_pandas()
            return str(frame.astype(object).where(frame.notna(), "").to_html(index=False, max_rows=_MOST_ROWS))
        return None
