"""Plans as values: what they reach, how they turn round, and what they leave alone."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.core.alteration import Alteration
from kquota.core.entity import DEFAULT, Entity, EntityType
from kquota.core.guards import Guards, objections
from kquota.core.plan import Action, Change, Plan, plan, still_due
from kquota.core.quota import QuotaKey, parse_stored
from kquota.core.selector import Selector
from kquota.core.snapshot import QuotaSnapshot
from kquota.errors import Conflict
from tests.core.snapshots import snapshots
from tests.core.strategies import entities, names

PRODUCER, CONSUMER = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
REQUEST = QuotaKey.REQUEST_PERCENTAGE
ALICE, BOB, USERS = Entity(user="alice"), Entity(user="bob"), Entity(user=DEFAULT)


@given(snapshots, snapshots)
def test_pruned_it_reaches_what_is_desired(current: QuotaSnapshot, desired: QuotaSnapshot) -> None:
    planned = plan(current, desired, prune=True)
    assert planned.applied_to(current) == desired
    assert not plan(desired, desired, prune=True)
    assert planned.inverse.applied_to(desired) == current


@given(snapshots, snapshots)
def test_additive_it_keeps_what_the_file_does_not_name(current: QuotaSnapshot, desired: QuotaSnapshot) -> None:
    after = plan(current, desired).applied_to(current)
    for entity in {**current, **desired}:
        assert dict(after.get(entity, {})) == {**current.get(entity, {}), **desired.get(entity, {})}
    assert not plan(after, desired)


@given(snapshots, snapshots)
def test_its_alterations_do_what_it_says(current: QuotaSnapshot, desired: QuotaSnapshot) -> None:
    for change in plan(current, desired, prune=True).changes:
        assert change.alteration.applied_to(current.get(change.entity, {})) == dict(change.after)
        assert change.inverse.alteration.applied_to(change.after) == dict(change.before)
        assert change.inverse.inverse == change
        assert (change.action is Action.CREATE) == (change.inverse.action is Action.DELETE)


@given(snapshots, snapshots, snapshots)
def test_what_is_due_is_what_somebody_left(current: QuotaSnapshot, desired: QuotaSnapshot, now: QuotaSnapshot) -> None:
    """Each entity is as it was (due), as it should be (done), or as somebody else made it (a conflict)."""
    planned = plan(current, desired, prune=True)
    due, conflicts = still_due(planned, now)
    for change in planned.changes:
        values = dict(now.get(change.entity, {}))
        assert (change in due.changes) == (values == dict(change.before))
        assert (change.entity in conflicts) == (values not in (dict(change.before), dict(change.after)))


@given(snapshots, snapshots, snapshots)
def test_equal_plans_have_equal_fingerprints(one: QuotaSnapshot, other: QuotaSnapshot, third: QuotaSnapshot) -> None:
    planned, again = plan(one, other, prune=True), plan(one, third, prune=True)
    assert (planned.fingerprint == again.fingerprint) == (planned.changes == again.changes)


def test_unmanaged_entities_are_left_to_others() -> None:
    unmanaged = [Selector({EntityType.USER: re.compile("strimzi-.*")})]
    theirs = Entity(user="strimzi-1")
    current = QuotaSnapshot({theirs: {PRODUCER: 1}, ALICE: {PRODUCER: 1}})
    planned = plan(current, {theirs: {PRODUCER: 2}}, prune=True, unmanaged=unmanaged)
    assert [change.entity for change in planned.changes] == [ALICE]
    assert planned.ignored == (theirs,)


def test_an_alteration_expects_what_the_plan_saw() -> None:
    change = Change(ALICE, {PRODUCER: 1}, {PRODUCER: 2})
    with pytest.raises(Conflict, match="user=alice was changed by somebody else"):
        change.alteration.applied_to({PRODUCER: 1, CONSUMER: 1})
    merged = change.alteration.then(Alteration(ALICE, {CONSUMER: 5}))
    assert merged.applied_to({PRODUCER: 1}) == {PRODUCER: 2, CONSUMER: 5}
    with pytest.raises(Conflict):
        merged.applied_to({})


@given(entities(), names)
def test_a_selector_matches_whole_names_and_the_default_only_by_name(entity: Entity, name: object) -> None:
    for kind, part in entity.parts:
        assert Selector({kind: re.compile(".*", re.DOTALL)}).matches(entity) == (part is not DEFAULT)
        assert Selector({kind: DEFAULT}).matches(entity) == (part is DEFAULT)
        if isinstance(part, str):
            assert Selector({kind: re.compile(re.escape(part))}).matches(entity)
            assert not Selector({kind: re.compile(re.escape(part) + "x")}).matches(entity)
    for kind in EntityType:
        if entity.name_of(kind) is None:
            assert not Selector({kind: re.compile(".*", re.DOTALL)}).matches(entity)


def users(count: int, start: int = 0) -> dict[Entity, dict[QuotaKey, int]]:
    return {Entity(user=f"u{number}"): {PRODUCER: 1} for number in range(start, start + count)}


@pytest.mark.parametrize(
    ("deleted", "updated", "guards", "objection"),
    [
        (2, 0, Guards(), None),
        (3, 0, Guards(), "delete 3 of 10 entities (30 %, at most 20 %)"),
        (3, 0, Guards(most_deleted=0.3), None),
        (0, 5, Guards(), None),
        (0, 6, Guards(), "change 6 of 10 entities (60 %, at most 50 %)"),
        (2, 4, Guards(), "change 6 of 10 entities"),
    ],
)
def test_a_large_share_is_objected_to(deleted: int, updated: int, guards: Guards, objection: str | None) -> None:
    current = QuotaSnapshot(users(10))
    desired = {entity: values for number, (entity, values) in enumerate(current.items()) if number >= deleted}
    desired |= {entity: {PRODUCER: 2} for entity in list(desired)[:updated]}
    found = objections(plan(current, desired, prune=True), current, guards)
    assert [objection in text for text in found] == [True] if objection else found == ()


def test_few_entities_may_all_change() -> None:
    current = QuotaSnapshot(users(9))
    assert objections(plan(current, {}, prune=True), current, Guards()) == ()


def test_protected_entities_and_internal_principals_are_guarded() -> None:
    guards = Guards(protected=(Selector({EntityType.USER: re.compile("ali.*")}),), internal=("connect",))
    current = QuotaSnapshot({ALICE: {PRODUCER: 1}})
    assert objections(plan(current, {BOB: {PRODUCER: 1}}), current, guards) == ()
    (protected,) = objections(plan(current, {ALICE: {PRODUCER: 2}}), current, guards)
    assert protected == "it would update user=alice, which is protected by user=/ali.*/"
    (internal,) = objections(plan(current, {USERS: {CONSUMER: 1}}), current, guards)
    assert internal == "consumer_byte_rate of user=<default> would limit the internal principal connect"
    # One that has a quota of its own is not hit, and neither is one that the default limited before.
    own = {Entity(user="connect"): {CONSUMER: 9}, USERS: {CONSUMER: 1}}
    assert objections(plan(current, own), current, guards) == ()
    before = QuotaSnapshot({USERS: {CONSUMER: 1}})
    assert objections(plan(before, {USERS: {CONSUMER: 1, PRODUCER: 1}}), before, Guards(internal=("x",)))
    assert not objections(plan(before, {ALICE: {CONSUMER: 1}}), before, Guards(internal=("x",)))


@given(st.lists(st.integers(0, 5), unique=True))
def test_changes_are_in_the_order_of_entities(numbers: list[int]) -> None:
    changes = [Change(Entity(user=f"u{number}"), {}, {PRODUCER: 1}) for number in numbers]
    assert [change.entity.user for change in Plan(tuple(changes)).changes] == [
        f"u{number}" for number in sorted(numbers)
    ]


def test_a_stored_nan_is_no_change() -> None:
    """Brokers keep one, and it is not equal to itself."""
    stored = [QuotaSnapshot({ALICE: {REQUEST: parsed, PRODUCER: 1}}) for parsed in map(nan, ("NaN", " NaN"))]
    assert not plan(stored[0], stored[1], prune=True)
    planned = plan(stored[0], {ALICE: {PRODUCER: 2}})
    (change,) = planned.changes
    assert change.keys == (PRODUCER,)
    assert still_due(planned, stored[1]) == (planned, ())
    assert change.alteration.applied_to(stored[1][ALICE])[PRODUCER] == 2


def nan(text: str) -> float:
    parsed = parse_stored(REQUEST, text)
    assert isinstance(parsed, float)
    return parsed
