"""Alterations: what is to change on one entity, and what came of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, Value, check_value, differ, limit_text, parse_value
from kquota.core.quotas.snapshot import Values, in_key_order
from kquota.errors import Conflict, InputError, KquotaError

WrittenValues: TypeAlias = Mapping[QuotaKey, Value] | Mapping[QuotaKey, Value | str] | Mapping[str, Value | str]
"""Values by quota key; keys may be their names, and values texts with units such as `10MB` or `50%`."""
WrittenQuotas: TypeAlias = Mapping[Entity, WrittenValues] | Mapping[str, WrittenValues]
"""Values by entity; entities may be texts such as `user=alice,client-id=app1` or `user=<default>`."""


def keys_of(written: Iterable[QuotaKey | str]) -> frozenset[QuotaKey]:
    """The keys. Raises InputError for an unknown one."""
    return frozenset(QuotaKey.parse(key) if isinstance(key, str) else key for key in written)


def values_of(written: WrittenValues) -> dict[QuotaKey, Value]:
    """The values. Raises InputError for an unknown key, and for a text that is no value of its key."""
    values: dict[QuotaKey, Value] = {}
    for key, value in written.items():
        key = QuotaKey.parse(key) if isinstance(key, str) else key
        values[key] = parse_value(key, value) if isinstance(value, str) else value
    return values


def quotas_of(written: WrittenQuotas) -> dict[Entity, dict[QuotaKey, Value]]:
    """The values by entity. Raises InputError for a text that is no entity, and as `values_of` does."""
    return {
        Entity.parse(entity) if isinstance(entity, str) else entity: values_of(values)
        for entity, values in written.items()
    }


@dataclass(frozen=True)
class Alteration:
    """Values to set and keys to remove on one entity; other keys stay as they are.

    With `strict_remove`, removing a key that is not set is an error of the entity; with `strict_any`, that none of them
    is set. With `expect`, the entity's values must still be those, else nothing is written and its error is a Conflict.
    A `relative` alteration compares only the keys that it sets or removes. With `expect_revision`, the write that is to
    be taken back must be the entity's last one, where the store can say so. Keys and values may be texts, as in
    `Alteration(Entity(user="alice"), {"producer_byte_rate": "10MB"})`. Raises InputError for a key that the entity
    cannot carry, a key both set and removed, or nothing to do; also for an invalid value, but for what a `form`
    restores.
    """

    entity: Entity
    set: Mapping[QuotaKey, Value] = field(default_factory=dict)
    remove: frozenset[QuotaKey] = frozenset()
    strict_remove: bool = False
    expect: Values | None = None
    relative: bool = False
    expect_revision: int | None = None
    form: str | None = None
    """How the store had the entity at that time, in its own words (`AlterResult.form`): it is restored as far as the
    values are those."""
    strict_any: bool = False

    def __post_init__(self) -> None:
        if str in map(type, (*self.set, *self.set.values(), *self.remove)):
            object.__setattr__(self, "set", values_of(self.set))
            object.__setattr__(self, "remove", keys_of(self.remove))
        if not self.set and not self.remove:
            raise InputError(f"{self.entity}: nothing to set and nothing to delete")
        for key in [*self.set, *sorted(self.remove, key=str)]:
            key.check_for(self.entity)
        both = sorted(str(key) for key in self.set if key in self.remove)
        if both:
            raise InputError(f"{self.entity}: {', '.join(both)} is both added and deleted")
        # What a store had is restored as it was: a stored 0, too, which kquota itself would not write.
        values = in_key_order(self.set)
        checked = {key: check_value(key, value) for key, value in values.items()} if self.form is None else values
        object.__setattr__(self, "set", MappingProxyType(checked))

    def check_revision(self, revision: int) -> None:
        """Raises Conflict when the entity's last write is another than expected."""
        if self.expect_revision is not None and revision != self.expect_revision:
            raise Conflict(f"{self.entity} was written by somebody else", hint="plan anew")

    def applied_to(self, values: Values, unusable: Collection[QuotaKey] = ()) -> dict[QuotaKey, Value]:
        """The entity's values after the change. `unusable` are keys that are set, but to no value: `values` lacks them.

        Raises InputError for a strict removal of what is not set, Conflict when the values are not those expected.
        """
        if self.expect is not None and not self.finds(values, self.expect):
            keys = (*self.set, *self.remove) if self.relative else QuotaKey
            is_now = unexpected(values, self.expect, keys)
            raise Conflict(f"{self.entity} was changed by somebody else: {is_now}", hint="plan anew")
        missing = sorted(str(key) for key in self.remove if key not in values and key not in unusable)
        if self.strict_remove and missing:
            raise InputError(f"{self.entity}: cannot delete {', '.join(missing)}: not set")
        if self.strict_any and len(missing) == len(self.remove):
            raise InputError(f"{self.entity}: nothing to delete: none of its quotas is set")
        merged = {**values, **self.set}
        return in_key_order({key: merged[key] for key in merged.keys() - self.remove})

    def finds(self, values: Values, expected: Values) -> bool:
        """Whether the entity's values are those expected, as far as they matter to the alteration.

        All of them matter to one that expects them all; to any other only the keys that it sets or removes.
        """
        if self.expect is not None and not self.relative:
            return dict(values) == dict(expected)
        return not any(differ(values.get(key), expected.get(key)) for key in (*self.set, *self.remove))

    def then(self, later: Alteration) -> Alteration:
        """Both changes of the same entity as one; the later one wins where they meet.

        What the first one expects counts: the later one would meet what the first has written.
        """
        assert self.entity == later.entity
        kept = {key: value for key, value in self.set.items() if key not in later.remove}
        return Alteration(
            self.entity,
            {**kept, **later.set},
            (self.remove - later.set.keys()) | later.remove,
            self.strict_remove or later.strict_remove,
            self.expect,
            self.relative,
            self.expect_revision,
            self.form,
            self.strict_any or later.strict_any,
        )


def unexpected(values: Values, expected: Values, keys: Iterable[QuotaKey]) -> str:
    """Which of the keys have other values than expected, for people: what is set now, and what was."""

    def said(key: QuotaKey, values: Values) -> str:
        return limit_text(key, values[key]) if key in values else "not set"

    changed = [key for key in keys if differ(values.get(key), expected.get(key))]
    return ", ".join(f"{key} is {said(key, values)}, and was {said(key, expected)} when planned" for key in changed)


def merge(alterations: Iterable[Alteration]) -> tuple[Alteration, ...]:
    """One alteration per entity, in the order of first mention.

    Brokers answer an error for an entity that comes twice in a request although they applied the first one.
    """
    merged: dict[Entity, Alteration] = {}
    for alteration in alterations:
        known = merged.get(alteration.entity)
        merged[alteration.entity] = alteration if known is None else known.then(alteration)
    return tuple(merged.values())


@dataclass(frozen=True, slots=True)
class AlterResult:
    """What came of one alteration: the values before and after, or the error that left the entity as it was.

    `blind` are the keys that were written where nobody can look (a KRaft controller): nothing is known of what was set
    before, so `before` is empty and `after` has no other keys. `unusable` are the keys that had an invalid value, and
    that the alteration set or deleted: `before` is without them. `revision` names the write where the store does (in
    ZooKeeper the zxid of its transaction, 0 when no node is left); None elsewhere, and when nothing was written.
    """

    entity: Entity
    before: Values
    after: Values
    error: KquotaError | None = None
    blind: frozenset[QuotaKey] = frozenset()
    unusable: frozenset[QuotaKey] = frozenset()
    revision: int | None = None
    form: str | None = None
    """How the store had the entity before, without what is secret, so that it can be restored to the byte; None where a
    store knows no more than values."""

    @property
    def changed(self) -> bool:
        """Whether what is set on the entity differs from before, or may."""
        return self.error is None and (bool(self.blind or self.unusable) or dict(self.before) != dict(self.after))

    @property
    def keys(self) -> tuple[QuotaKey, ...]:
        """The keys whose values differ from before."""
        return tuple(key for key in QuotaKey if differ(self.before.get(key), self.after.get(key)))

    def is_shown_by(self, values: Values) -> bool:
        """Whether an entity with these values has what was written."""
        return not any(differ(values.get(key), self.after.get(key)) for key in self.keys)
