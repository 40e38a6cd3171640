"""Plans: what has to change on a cluster so that it has the quotas of a file. A plan is a value: print it, save it,
compare it, refuse it, apply it, turn it round.
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Literal, TypeAlias

from kquota.core.quotas.alteration import Alteration, AlterResult, merge
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, Value, differ, format_value
from kquota.core.quotas.selector import Selector, selected
from kquota.core.quotas.snapshot import QuotaSnapshot, Values, in_key_order
from kquota.errors import KquotaError


class Action(enum.Enum):
    """What a change does to its entity."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True)
class Change:
    """One entity's values before and after; they differ, or the change takes away an unusable value.

    A `relative` change is about its own keys alone, as `kquota alter` is: what others do to the entity's other keys is
    no conflict, and stays when the change is taken back. `unusable` are the keys of the change that are set to what no
    broker can parse; `before` is without them.
    """

    entity: Entity
    before: Values
    after: Values
    relative: bool = False
    unusable: frozenset[QuotaKey] = frozenset()
    form: str | None = None
    """How the store had the entity before (`AlterResult.form`); a journal keeps it for the way back."""
    restores: str | None = None
    """The form that the change restores, of one that takes another back."""

    def __post_init__(self) -> None:
        assert self.unusable or dict(self.before) != dict(self.after), self.entity
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
        return tuple(
            key for key in QuotaKey if key in self.unusable or differ(self.before.get(key), self.after.get(key))
        )

    def is_due(self, values: Values) -> bool:
        """Whether an entity with these values is as the change expects it."""
        return self._agree(values, self.before)

    def is_made(self, values: Values) -> bool:
        """Whether an entity with these values is as the change leaves it."""
        return self._agree(values, self.after)

    def _agree(self, values: Values, own: Values) -> bool:
        if self.relative:
            return not any(differ(values.get(key), own.get(key)) for key in self.keys)
        return dict(values) == dict(own)

    def unexpected_in(self, values: Values) -> list[QuotaKey]:
        """The keys of an entity with these values that are not as the change expects them."""
        keys = self.keys if self.relative else QuotaKey
        return [key for key in keys if differ(values.get(key), self.before.get(key))]

    def done_to(self, values: Values) -> Values:
        """What an entity with these values has after the change."""
        return self._replaced(values, self.after)

    def undone_in(self, values: Values) -> Values:
        """What an entity with these values had before the change."""
        return self._replaced(values, self.before)

    def _replaced(self, values: Values, own: Values) -> Values:
        if not self.relative:
            return own
        keys = self.keys
        kept = {key: value for key, value in values.items() if key not in keys}
        return {**kept, **{key: own[key] for key in keys if key in own}}

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
            relative=self.relative,
            form=self.restores,
        )

    @property
    def is_reversible(self) -> bool:
        """Whether there is a change back: what was no value is not restored, and some changes were no more."""
        return dict(self.before) != dict(self.after)

    @property
    def inverse(self) -> Change:
        """The change back, of one that `is_reversible`."""
        return Change(self.entity, self.after, self.before, self.relative, restores=self.form)

    def of(self, keys: Collection[QuotaKey]) -> Change:
        """The change of some of its keys alone: what others do to the other keys is no conflict."""
        if set(keys) >= set(self.keys):
            return self
        made = {key: self.after[key] for key in keys if key in self.after}
        kept = {key: value for key, value in self.before.items() if key not in keys}
        return Change(self.entity, self.before, in_key_order(kept | made), True, self.unusable & {*keys})


@dataclass(frozen=True)
class Cluster:
    """Which cluster a plan is for: the address that it was reached at, and Kafka's cluster id where that is known."""

    address: str
    id: str | None = None

    def is_same(self, other: Cluster) -> bool:
        """Whether both are one cluster: by their ids where both are known, else by a server of both addresses."""
        if self.id is not None and other.id is not None:
            return self.id == other.id
        return not servers_of(self.address).isdisjoint(servers_of(other.address))

    def __str__(self) -> str:
        return self.address if self.id is None else f"{self.address} (cluster id {self.id})"


def servers_of(address: str) -> Set[str]:
    """Each server of an address, with its scheme and chroot: clusters that have one in common are one."""
    head, scheme, rest = address.rpartition("://")
    servers, _, chroot = rest.partition("/")
    named = (re.sub(r"^localhost(?=:|$)", "127.0.0.1", server.strip().lower()) for server in servers.split(","))
    return {f"{head}{scheme}{server}/{chroot.strip('/')}": None for server in named}.keys()


class Severity(enum.IntEnum):
    """What an objection stops: nothing, a run that nobody said yes to, or every run without `--force`."""

    WARNING = 1
    QUESTION = 2
    REFUSAL = 3

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Objection:
    """What a review has against a plan: a name that stays, how grave it is, a sentence, and what lifts it."""

    name: str
    severity: Severity
    message: str
    lifted_by: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """The changes, one per entity, in the order of entities.

    `existing` counts the entities that had values when the plan was made. `ignored` counts entities that the file
    leaves to others (`unmanaged`) although they differ. `objections` is what its review found
    (`kquota.core.change.review`), and `cluster` the cluster that it was made for, where it was one: a plan that was
    saved forgets neither.
    """

    changes: tuple[Change, ...]
    existing: int = 0
    ignored: tuple[Entity, ...] = ()
    objections: tuple[Objection, ...] = ()
    cluster: Cluster | None = None
    message: str | None = None
    """Why, in the words of who made it; no part of the fingerprint."""

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
        """The snapshot after the plan; entities that it does not change are as in `current`."""
        changed = {change.entity: change.done_to(current.get(change.entity, {})) for change in self.changes}
        return replace(current, quotas={**current, **changed})

    @property
    def inverse(self) -> Plan:
        """The plan that takes this one back."""
        after = self.existing + self.count(Action.CREATE) - self.count(Action.DELETE)
        back = tuple(change.inverse for change in self.changes if change.is_reversible)
        return Plan(back, after, cluster=self.cluster)

    @cached_property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits of the changes, the objections and the cluster: equal plans have equal ones."""
        digest = hashlib.sha256(b"2\0")
        text = lru_cache(1000)(_text)  # thousands of entities have the same few values
        for change in self.changes:
            own = f"{int(change.relative)}{' '.join(sorted(map(str, change.unusable)))}"
            before, after = (text(tuple(values.items())) for values in (change.before, change.after))
            digest.update(f"{change.entity}\0{before}\0{after}\0{own}\0".encode())
        for objection in self.objections:
            lifted_by = " ".join(objection.lifted_by)
            digest.update(f"\0{objection.name}\0{objection.severity}\0{objection.message}\0{lifted_by}\0".encode())
        if self.cluster is not None:
            digest.update(f"\0{self.cluster.address}\0{self.cluster.id or ''}".encode())
        return digest.hexdigest()[:12]


def _text(values: tuple[tuple[QuotaKey, Value], ...]) -> str:
    return " ".join(f"{key}={format_value(key, value)}" for key, value in values)


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
        after = in_key_order(wanted if prune else {**before, **wanted})
        if dict(before) == after:
            continue
        if selectors and selected(entity, selectors) is not None:
            ignored.append(entity)
        else:
            changes.append(Change(entity, before, after))
    return Plan(tuple(changes), len(current), tuple(sorted(ignored, key=lambda entity: entity.sort_key)))


def plan_of_edit(
    current: QuotaSnapshot,
    shown: Mapping[Entity, Values],
    edited: Mapping[Entity, Values],
    unmanaged: Iterable[Selector] = (),
) -> Plan:
    """The changes that a person made to `shown`, which is all or a part of `current`.

    A value that was shown and is gone is deleted. What was not shown stays, other keys of an entity too.
    """
    desired: dict[Entity, Values] = {}
    for entity in {**shown, **edited}:
        before, after = shown.get(entity, {}), edited.get(entity, {})
        kept = {key: value for key, value in current.get(entity, {}).items() if key not in before or key in after}
        desired[entity] = {**kept, **{key: value for key, value in after.items() if before.get(key) != value}}
    return plan(current.part(lambda entity: entity in desired), desired, prune=True, unmanaged=unmanaged)


def still_due(plan: Plan, current: QuotaSnapshot) -> tuple[Plan, tuple[Entity, ...]]:
    """What is left to do of a plan on a cluster as it is now, and the entities that somebody else changed.

    An entity that already has its new values needs nothing. The second part has the entities that are neither as before
    nor as after.
    """
    changes: list[Change] = []
    conflicts: list[Entity] = []
    for change in plan.changes:
        values = current.get(change.entity, {})
        if change.is_due(values):
            changes.append(change)
        elif not change.is_made(values):
            conflicts.append(change.entity)
    return replace(plan, changes=tuple(changes)), tuple(conflicts)


def plan_of(alterations: Iterable[Alteration], results: Iterable[AlterResult]) -> Plan:
    """The plan of alterations, by what a dry run of them answered; entities with an error are left out.

    Its changes are relative: as an alteration is about its own keys, so is what becomes of it.
    """
    touched = {alteration.entity: {*alteration.set, *alteration.remove} for alteration in merge(alterations)}
    return Plan(
        tuple(
            Change(result.entity, result.before, result.after, True, result.unusable & touched[result.entity])
            for result in results
            if result.error is None and not result.blind and result.changed
        )
    )


Outcome: TypeAlias = Literal["applied", "rolled back", "incomplete"]


@dataclass(frozen=True)
class ApplyReport:
    """What came of a plan.

    `applied` are the changes that the cluster has now; `already` were there before; `failed` has each change that could
    not be made with its error; `skipped` were not tried any more; `rolled_back` were made and taken back; `unknown` are
    entities of which it could not be found out. `unverified` were written, but a describe shows other values.
    `interrupted`: the run was stopped before its end. `unfinished` is why the journal does not know what came of it.
    """

    applied: tuple[Change, ...] = ()
    already: tuple[Entity, ...] = ()
    failed: tuple[tuple[Entity, KquotaError], ...] = ()
    skipped: tuple[Entity, ...] = ()
    rolled_back: tuple[Entity, ...] = ()
    unknown: tuple[Entity, ...] = ()
    unverified: tuple[Entity, ...] = ()
    entry: str | None = None
    interrupted: bool = False
    unfinished: str | None = None

    @property
    def outcome(self) -> Outcome:
        """`applied` when all was done, `rolled back` when nothing remains, else `incomplete`."""
        if not (self.failed or self.skipped or self.rolled_back or self.unknown or self.unverified or self.interrupted):
            return "applied"
        return "incomplete" if self.applied or self.unknown or self.unverified else "rolled back"


Side: TypeAlias = QuotaSnapshot | Plan
"""All the quotas of a cluster or a file, or a plan, which speaks of its own entities only."""


def difference(one: Side, other: Side, unmanaged: Iterable[Selector] = ()) -> Plan:
    """The changes that turn the one side into the other, but for the entities that `unmanaged` selects.

    A plan stands for what its entities have afterwards, and no other entities are compared. Of two plans, an entity
    that only one of them changes has in the other what it had before.
    """
    named = [{change.entity for change in side.changes} for side in (one, other) if isinstance(side, Plan)]
    only = set().union(*named) if named else None
    before, after = (
        QuotaSnapshot(
            {entity: values for entity, values in _quotas(side, rest).items() if only is None or entity in only}
        )
        for side, rest in ((one, other), (other, one))
    )
    existing = len(one) if isinstance(one, QuotaSnapshot) else one.inverse.existing
    return replace(plan(before, after, prune=True, unmanaged=unmanaged), existing=existing)


def _quotas(side: Side, other: Side) -> Mapping[Entity, Values]:
    if isinstance(side, QuotaSnapshot):
        return side
    unchanged = {change.entity: change.before for change in other.changes} if isinstance(other, Plan) else {}
    return {**unchanged, **{change.entity: change.after for change in side.changes}}
