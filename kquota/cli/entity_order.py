"""How `--entity-name` and `--entity-default` go with `--entity-type`: by their place on the command line."""

from typing import Any

import click

from kquota.core.quotas.entity import DEFAULT, EntityType, Name

_ORDER = "kquota.entity_names"
TYPES = {kind.plural: kind for kind in EntityType}


def keep(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """The callback of both options: click calls back in the order of the command line."""
    given(ctx).extend(value if isinstance(value, tuple) else [DEFAULT] * value)
    return value


def given(ctx: click.Context) -> list[Name]:
    """The names and defaults that were given so far, in their order."""
    names: list[Name] = ctx.meta.setdefault(_ORDER, [])
    return names


def next_type(ctx: click.Context) -> EntityType | None:
    """The type that one more --entity-name would go with, or None."""
    types: tuple[str, ...] = ctx.params.get("entity_types") or ()
    names = given(ctx)
    return TYPES.get(types[len(names)]) if len(names) < len(types) else None
