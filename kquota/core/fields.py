"""Values that know their fields: what documents, tables and columns are made of."""

from __future__ import annotations

import enum
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


def derived(value: Any, made: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The document of a value; what is `made` takes the place of its own fields and properties."""
    made = made or {}
    kind: type = type(value)
    return {name: made[name] if name in made else _plain(getattr(value, name)) for name in members(kind)}


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, enum.Enum) else value


@cache
def types(kind: type) -> Mapping[str, tuple[Any, bool]]:
    """By the name of each field, its type without None, and whether it may be None."""
    found = {}
    for name, hint in get_type_hints(kind).items():
        parts = get_args(hint)
        optional = type(None) in parts
        found[name] = (next(part for part in parts if part is not type(None)) if optional else hint, optional)
    return found
