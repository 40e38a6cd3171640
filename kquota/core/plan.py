"""Plans: what has to change on a cluster so that it has the quotas of a file. A plan is a value: print it, save it,
compare it, refuse it, apply it, turn it round.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from kquota.core.alteration import Alteration
from kquota.core.entity import Entity
from kquota.core.quota import QuotaKey, differ, format_value
from kquota.core.selector import Selector, selected
from kquota.core.snapshot import QuotaSnapshot, Values


class Action(enum.Enum):
    """What a change does to its entity."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True)
class Change:
    """One entity's values before and after; they differ."""

    entity: Entity
    before: Values
    after: Values

    def __post_init__(self) -> None:
        assert dict(self.before) != dict(self.after), self.entity
        object.__setattr__(self, "before", MappingProxyType(dict(self.before)))
        object.__setattr__(self, "after", MappingProxyType(dict(self.after)))

    @property
    def action(self) -> Action:
        """Whether the entity gets its first values, loses its last, or neither."""
        if not self.before:
            return Action.CREATE
        return Action.UPDATE if self.after else Action.DELETE

    @property
    def keys(self) -> tuple[QuotaKey, ...]:
        """The keys that differ."""
        return tuple(key for key in QuotaKey if differ(self.before.get(key), self.after.get(key)))

    @property
    def alteration(self) -> Alteration:
        """The change as an alteration that expects the entity to be as it was.

        Raises InputError where a value that is to be set is none that kquota writes (a stored 0, to be restored).
        """
        keys = self.keys
        return Alteration(
            self.entity,
            {key: self.after[key] for key in keys if key in self.after},
            frozenset(key for key in keys if key not in self.after),
            expect=self.before,
        )

    @property
    def inverse(self) -> Change:
        """The change back."""
        return Change(self.entity, self.after, self.before)


@dataclass(frozen=True)
class Plan:
    """The changes, one per entity, in the order of entities.

    `existing` counts the entities that had values when the plan was made, and `ignored` those that the file leaves to
    others (`unmanaged`) although they differ. `objections` is what the file itself has against the changes (protected
    entities, internal principals), which a plan that was saved must not forget.
    """

    changes: tuple[Change, ...]
    existing: int = 0
    ignored: tuple[Entity, ...] = ()
    objections: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ordered = sorted(self.changes, key=lambda change: change.entity.sort_key)
        assert len({change.entity for change in ordered}) == len(ordered)
        object.__setattr__(self, "changes", tuple(ordered))

    def __bool__(self) -> bool:
        return bool(self.changes)

    def count(self, action: Action) -> int:
        """How many entities are created, updated or deleted."""
        return sum(change.action is action for change in self.changes)

    def applied_to(self, current: QuotaSnapshot) -> QuotaSnapshot:
        """The snapshot after the plan; entities that it does not change are those of `current`."""
        return QuotaSnapshot({**current, **{change.entity: change.after for change in self.changes}}, current.problems)

    @property
    def inverse(self) -> Plan:
        """The plan that takes this one back."""
        after = self.existing + self.count(Action.CREATE) - self.count(Action.DELETE)
        return Plan(tuple(change.inverse for change in self.changes), after)

    @cached_property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits of what the plan changes, from what, to what: equal plans have equal ones."""
        digest = hashlib.sha256()
        for change in self.changes:
            digest.update(f"{change.entity}\0{_text(change.before)}\0{_text(change.after)}\0".encode())
        return digest.hexdigest()[:12]


def _text(values: Values) -> str:
    return " ".join(f"{key}={format_value(key, value)}" for key, value in values.items())


def plan(
    current: QuotaSnapshot, desired: Mapping[Entity, Values], *, prune: bool = False, unmanaged: Iterable[Selector] = ()
) -> Plan:
    """The changes that turn `current` into `desired`.

    Additive: entities and keys that `desired` does not name stay, unless `prune` is set. Entities that `unmanaged`
    selects are left as they are in any case.
    """
    selectors = tuple(unmanaged)
    changes: list[Change] = []
    ignored: list[Entity] = []
    for entity in {**desired, **current} if prune else desired:
        before = current.get(entity, {})
        wanted = desired.get(entity, {})
        after = QuotaSnapshot({entity: wanted if prune else {**before, **wanted}}).get(entity, {})
        if dict(before) == dict(after):
            continue
        if selectors and selected(entity, selectors) is not None:
            ignored.append(entity)
        else:
            changes.append(Change(entity, before, after))
    return Plan(tuple(changes), len(current), tuple(sorted(ignored, key=lambda entity: entity.sort_key)))


def still_due(plan: Plan, current: QuotaSnapshot) -> tuple[Plan, tuple[Entity, ...]]:
    """What of a plan is left to do on a cluster as it is now, and the entities that are neither as before nor as after.

    An entity that already has its new values needs nothing; one that somebody else changed is in the second part.
    """
    changes: list[Change] = []
    conflicts: list[Entity] = []
    for change in plan.changes:
        values = dict(current.get(change.entity, {}))
        if values == dict(change.before):
            changes.append(change)
        elif values != dict(change.after):
            conflicts.append(change.entity)
    return Plan(tuple(changes), len(current), plan.ignored), tuple(conflicts)
