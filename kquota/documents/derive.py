"""Documents of values: which of their fields and properties stand in a document, and under which names."""

import enum
import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from typing import Any

from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import format_number
from kquota.core.resolve.resolver import Sensor
from kquota.core.tabular import at, members, paths
from kquota.documents.encoding import Document
from kquota.documents.quotas import entity_document
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


def plain(value: Any) -> Any:
    """A value as JSON has it. What JSON has no number for is Java's word as a text."""
    match value:
        case None | str() | bool():
            return value
        case enum.Enum():
            return value.value
        case int():
            return value
        case float():
            return value if math.isfinite(value) else format_number(value)
        case Entity():
            return entity_document(value)
        case Sensor():
            return str(value)
        case KquotaError():
            return value.message
        case Mapping():
            return {plain(key): plain(each) for key, each in value.items()}
        case AbstractSet():
            return sorted(map(plain, value))
        case Sequence():
            return [*map(plain, value)]
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    return value
