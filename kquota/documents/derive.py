"""Documents of values: which of their fields and properties stand in a document, and under which names."""

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any

from kquota.core.quotas.entity import DEFAULT, Entity
from kquota.core.quotas.quota import format_number
from kquota.core.resolve.resolver import Level, Sensor
from kquota.core.tabular import at, members, paths
from kquota.documents.encoding import Document
from kquota.errors import KquotaError


def derived(value: Any, made: Mapping[str, Any] | None = None) -> Document:
    """The document of a value by its own declaration; what is `made` takes the place of its fields and properties."""
    made = made or {}
    kind: type = type(value)
    return {name: made[name] if name in made else plain(getattr(value, name)) for name in members(kind)}


def picked(value: Any, names: str) -> Document:
    """The document of some fields and properties of a value, in that order: `key unit=key.unit level=level.number`.

    What is behind None is null.
    """
    return {name: plain(at(value, path)) for name, path in paths(names)}


def present(**parts: Any) -> Document:
    """The parts that there are: what is None is left out."""
    return {name: part for name, part in parts.items() if part is not None}


def each(values: Iterable[Any], names: str) -> list[Document]:
    """The documents of values, as `picked` makes them."""
    return [picked(value, names) for value in values]


def utc(time_ms: int) -> str:
    """Epoch ms as ISO 8601 in UTC: `2026-11-21T10:12:11.123Z`."""
    seconds, milliseconds = divmod(time_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds:03}Z"


def plain(value: Any) -> Any:
    """A value as JSON has it. What JSON has no number for is Java's word as a text."""
    match value:
        case None | str() | bool():
            return value
        case enum.IntEnum() if not isinstance(value, Level):  # a rank, which has a word
            return str(value)
        case enum.Enum():
            return value.value
        case int():
            return value
        case float():
            return value if math.isfinite(value) else format_number(value)
        case Entity():
            return {kind.value: {"default": True} if name is DEFAULT else name for kind, name in value.parts}
        case Sensor():
            return str(value)
        case KquotaError():
            return value.message
        case Mapping():
            return {plain(key): plain(part) for key, part in value.items()}
        case AbstractSet():
            return sorted(map(plain, value))
        case Sequence():
            return [*map(plain, value)]
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return value
