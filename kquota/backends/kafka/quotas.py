"""Quotas ↔ messages: what a broker means by its entries, and how an alteration is said to it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kquota.backends import wire
from kquota.core.quotas.alteration import Alteration
from kquota.core.quotas.entity import DEFAULT, Entity, EntityType, Name
from kquota.core.quotas.quota import KEYS_OF_IPS, KEYS_OF_USERS, QuotaKey, Value, canonical, format_number, held
from kquota.core.quotas.selector import ANY, QuotaFilter
from kquota.core.quotas.snapshot import Problem, Values
from kquota.errors import InputError, KquotaError

if TYPE_CHECKING:
    from kquota.core.change.migration import Parts

_EPSILON: Final = 1e-6
"""Kafka takes a value for a whole number when it is as near as this (`ClientQuotaControlManager`)."""


@dataclass(slots=True)
class Stored:
    """What a broker shows: usable values, keys that are set to something unusable, and why."""

    values: dict[Entity, Values] = field(default_factory=dict)
    unusable: dict[Entity, set[QuotaKey]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    error: KquotaError | None = None
    """Why the broker refused to answer, else None."""


def read_entries(entries: Iterable[wire.QuotaEntry], nameless: dict[Parts, Values] | None = None) -> Stored:
    """The quotas of an answer. What kquota does not know or cannot use becomes a problem, the rest is complete.

    `nameless` gets the quotas of entities with an empty name, which a migration left, in the place of a problem.
    """
    stored = Stored()
    for parts, values in entries:
        try:
            entity = _entity_of(parts)
        except InputError as error:
            if nameless is not None and any(name == "" and kind in _TYPES for kind, name in parts):
                named = {EntityType(kind): name for kind, name in parts if kind in _TYPES}
                usable = {key: value_of(key, number) for name, number in values if (key := _KEYS.get(name)) is not None}
                place = tuple((kind, named[kind]) for kind in EntityType if kind in named)
                nameless[place] = {key: value for key, value in usable.items() if value is not None}
                continue
            where = ",".join(f"{kind}={DEFAULT.value if name is None else name}" for kind, name in parts)
            stored.problems.append(Problem(where, f"{error.message}: kquota leaves it alone"))
        else:
            stored.values[entity] = _usable(entity, values, stored)
    return stored


def _usable(entity: Entity, stated: Iterable[wire.ValueData], stored: Stored) -> Values:
    """The values that mean something on the entity; the others are noted in `stored`."""
    keys = KEYS_OF_USERS if entity.ip is None else KEYS_OF_IPS
    values: dict[QuotaKey, Value] = {}
    for name, number in stated:
        key = keys.get(name)
        if key is None:
            what = f"has no effect on {entity}" if name in _KEYS else "is a quota key that kquota does not know"
            stored.problems.append(Problem(str(entity), f"{name}={format_number(number)} {what}"))
            continue
        value = value_of(key, number)
        if value is None:
            what = f"{name} is {format_number(number)}, not a {key.value_type.value}: no limit is in effect"
            stored.problems.append(Problem(str(entity), what))
            stored.unusable.setdefault(entity, set()).add(key)
        else:
            values[key] = value
    return values


def value_of(key: QuotaKey, number: float) -> Value | None:
    """A number of the wire (always a double) as a value of the key.

    DOUBLE keys: the number, NaN and infinities included. LONG and INT keys: an int where the number is whole by Kafka's
    own measure (within 1e-6; brokers accept and keep 1024.0000001), else the float; None for NaN (which brokers accept
    too) and infinities, which no whole number is.
    """
    if key in _DOUBLES:
        return canonical(number)
    if not math.isfinite(number):
        return None
    whole = round(number)
    return held(whole) if abs(whole - number) <= _EPSILON else number


def describe_request(filter: QuotaFilter) -> wire.DescribeClientQuotasRequest | None:
    """The filter as a request; None where it asks for a name that no broker can have."""
    components = []
    for entity_type, match in filter.components.items():
        if match is ANY:
            components.append(wire.ComponentData(entity_type.value, wire.MATCH_ANY, None))
        elif match is DEFAULT:
            components.append(wire.ComponentData(entity_type.value, wire.MATCH_DEFAULT, None))
        elif is_sendable(match):
            components.append(wire.ComponentData(entity_type.value, wire.MATCH_EXACT, match))
        else:
            return None
    return wire.DescribeClientQuotasRequest(components, filter.strict)


def alter_entry(alteration: Alteration) -> wire.AlterEntry:
    """The alteration as operations on single keys."""
    ops = [wire.OpData(_NAMES[key], float(value), False) for key, value in alteration.set.items()]
    if alteration.remove:
        ops += [wire.OpData(name, 0.0, True) for key, name in _NAMES.items() if key in alteration.remove]
    parts = alteration.entity.parts
    return wire.AlterEntry(
        [wire.EntityData(kind.value, None if name is DEFAULT else name) for kind, name in parts], ops
    )


def check_names(entity: Entity) -> None:
    """Raises InputError for a name that no frame can carry."""
    for entity_type, name in entity.parts:
        if name is not DEFAULT and not is_sendable(name):
            raise InputError(
                f"the {entity_type.value} cannot be sent to Kafka: it is longer than {wire.LONGEST_STRING} bytes,"
                " or not Unicode"
            )


_NAMES = {key: key.value for key in QuotaKey}  # asking the enum itself costs ten times as much
_DOUBLES = {key for key in QuotaKey if not key.value_type.integral}
_KEYS = {key.value: key for key in QuotaKey}
_TYPES = {entity_type.value for entity_type in EntityType}


def _entity_of(parts: Iterable[wire.EntityData]) -> Entity:
    names: dict[str, Name] = {kind: DEFAULT if name is None else name for kind, name in parts}
    if not names.keys() <= _TYPES:
        unknown = ", ".join(sorted(kind for kind in names if kind not in _TYPES))
        raise InputError(f"unknown entity type {unknown}")
    return Entity(names.get("user"), names.get("client-id"), names.get("ip"))


def is_sendable(name: str) -> bool:
    try:
        return len(name.encode()) <= wire.LONGEST_STRING
    except UnicodeEncodeError:
        return False
