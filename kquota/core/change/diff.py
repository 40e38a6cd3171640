"""Differences between two states of quotas: what would have to change in the one to have the other."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from kquota.core.change.plan import Plan, plan
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.selector import Selector
from kquota.core.quotas.snapshot import QuotaSnapshot, Values

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
    return replace(plan(before, after, prune=True, unmanaged=unmanaged), existing=_existing(one))


def _quotas(side: Side, other: Side) -> Mapping[Entity, Values]:
    if isinstance(side, QuotaSnapshot):
        return side
    unchanged = {change.entity: change.before for change in other.changes} if isinstance(other, Plan) else {}
    return {**unchanged, **{change.entity: change.after for change in side.changes}}


def _existing(side: Side) -> int:
    """How many entities have quotas there."""
    return len(side) if isinstance(side, QuotaSnapshot) else side.inverse.existing
