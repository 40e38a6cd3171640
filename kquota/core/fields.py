"""Values that know their fields: what documents, tables and columns are made of."""

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, get_args, get_type_hints


def beside(*names: str, alone: bool = False) -> Mapping[str, Any]:
    """The metadata of a field: what stands behind it in a document; the field itself does not if `alone`."""
    return {"beside": names, "alone": alone}


@cache
def members(kind: type) -> tuple[str, ...]:
    """The names in a document of such a value, in their order."""
    return tuple(
        name
        for each in fields(kind)
        for name in (*(() if each.metadata.get("alone") else (each.name,)), *each.metadata.get("beside", ()))
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


@cache
def types(kind: type) -> Mapping[str, tuple[Any, bool]]:
    """By the name of each field, its type without None, and whether it may be None."""
    found = {}
    for name, hint in get_type_hints(kind).items():
        parts = get_args(hint)
        optional = type(None) in parts
        found[name] = (next(part for part in parts if part is not type(None)) if optional else hint, optional)
    return found
