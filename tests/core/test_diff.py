"""Differences of snapshots and plans: what they reach, and what they leave out."""

import re

from hypothesis import given

from kquota.core.change.plan import difference, plan
from kquota.core.quotas.entity import Entity, EntityType
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.selector import Selector
from kquota.core.quotas.snapshot import QuotaSnapshot
from tests.core.snapshots import snapshots

PRODUCER = QuotaKey.PRODUCER_BYTE_RATE


@given(snapshots, snapshots)
def test_it_turns_the_one_into_the_other(one: QuotaSnapshot, other: QuotaSnapshot) -> None:
    found = difference(one, other)
    assert found.applied_to(one) == other
    assert found.existing == len(one)
    assert difference(other, one).changes == found.inverse.changes
    assert not difference(one, one)


@given(snapshots, snapshots, snapshots)
def test_of_a_plan_and_a_cluster_only_the_entities_of_the_plan_count(
    start: QuotaSnapshot, desired: QuotaSnapshot, now: QuotaSnapshot
) -> None:
    planned = plan(start, desired, prune=True)
    found = difference(now, planned)
    reached = found.applied_to(now)
    named = {change.entity for change in planned.changes}
    assert {change.entity for change in found.changes} <= named
    assert all(dict(reached.get(change.entity, {})) == dict(change.after) for change in planned.changes)
    assert difference(planned, now).changes == found.inverse.changes
    assert difference(start, planned).changes == planned.changes
    assert not difference(planned, planned.applied_to(start))


@given(snapshots, snapshots, snapshots)
def test_of_two_plans_it_is_the_difference_of_what_they_lead_to(
    start: QuotaSnapshot, desired: QuotaSnapshot, instead: QuotaSnapshot
) -> None:
    one, other = plan(start, desired, prune=True), plan(start, instead, prune=True)
    found = difference(one, other)
    assert found.applied_to(one.applied_to(start)) == other.applied_to(start)
    assert found.existing == len(one.applied_to(start))


def test_what_is_left_to_others_is_not_compared() -> None:
    robot = Entity(user="operator-1")
    selectors = (Selector({EntityType.USER: re.compile("operator-.*")}),)
    found = difference(QuotaSnapshot({robot: {PRODUCER: 1}}), QuotaSnapshot(), selectors)
    assert (found.changes, found.ignored) == ((), (robot,))
