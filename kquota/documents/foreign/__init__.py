"""The formats of other tools: what `kquota export --format` writes and `kquota import --from` reads.

A module per format. `export(snapshot)` is in each; `read(name, text)` in each format that can be imported. What a
format cannot say is left out and named: nothing is lost in silence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, Value, check_value, format_number
from kquota.core.quotas.snapshot import Problem, QuotaSnapshot, Values
from kquota.errors import InputError

EntityRule: TypeAlias = Callable[[Entity], str | None]
"""Why an entity cannot be said, None where it can."""
ValueRule: TypeAlias = Callable[[QuotaKey, Value], str | None]


@dataclass(frozen=True)
class Exported:
    """A text in another tool's format, and what of the quotas is not in it."""

    text: str
    unsaid: tuple[Problem, ...] = ()


def divided(
    snapshot: QuotaSnapshot, entity_rule: EntityRule, value_rule: ValueRule
) -> tuple[QuotaSnapshot, list[Problem]]:
    """What a format can say of the quotas, and a problem for each entity or value that it cannot."""
    said: dict[Entity, Values] = {}
    unsaid: list[Problem] = []
    for entity, values in snapshot.items():
        reason = entity_rule(entity)
        if reason is not None:
            unsaid.append(Problem(str(entity), reason))
            continue
        reasons = {key: value_rule(key, value) for key, value in values.items()}
        unsaid.extend(Problem(f"{entity}: {key}", why) for key, why in reasons.items() if why is not None)
        said[entity] = {key: value for key, value in values.items() if reasons[key] is None}
    return QuotaSnapshot(said), unsaid


def as_double(key: QuotaKey, value: Value) -> str | None:
    """The rule of tools that send every value as a double (AlterClientQuotas does), and of what kquota would read."""
    try:
        number = check_value(key, value)
    except InputError as error:
        return error.message.removeprefix(f"{key}: ")
    if key.value_type.integral and int(float(number)) != number:
        return f"{format_number(number)} has more digits than the double that the tool makes of it"
    return None
