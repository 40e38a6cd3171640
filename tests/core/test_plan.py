"""Plans as values: what they reach, how they turn round, and what they leave alone."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota import DEFAULT, Alteration, Change, Conflict, Entity, EntityType, Objection, Plan, QuotaKey, QuotaSnapshot
from kquota.core.change.plan import Action, Cluster, Severity, difference, plan, plan_of_edit, still_due
from kquota.core.quotas.selector import Selector
from tests.core.strategies import entities, names, snapshots

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
    with pytest.raises(Conflict, match="user=alice was changed by somebody else") as raised:
        change.alteration.applied_to({PRODUCER: 1, CONSUMER: 1})
    assert raised.value.message.endswith(": consumer_byte_rate is 1 B/s, and was not set when planned")
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


def test_a_relative_change_is_about_its_own_keys() -> None:
    """What others do to other keys is no conflict, and stays when the change is taken back."""
    change = Change(ALICE, {PRODUCER: 1}, {PRODUCER: 2}, relative=True)
    meanwhile = {PRODUCER: 1, CONSUMER: 7}
    assert change.is_due(meanwhile)
    assert change.alteration.applied_to(meanwhile) == {PRODUCER: 2, CONSUMER: 7}
    assert change.is_made({PRODUCER: 2, CONSUMER: 7})
    assert change.inverse.alteration.applied_to({PRODUCER: 2, CONSUMER: 7}) == meanwhile
    assert Plan((change,)).applied_to(QuotaSnapshot({ALICE: meanwhile}))[ALICE] == {PRODUCER: 2, CONSUMER: 7}
    with pytest.raises(Conflict):
        change.alteration.applied_to({PRODUCER: 3})


def test_what_is_no_value_is_replaced_and_not_restored() -> None:
    deleted = Change(ALICE, {CONSUMER: 5}, {CONSUMER: 5}, unusable=frozenset({PRODUCER}))
    replaced = Change(BOB, {}, {PRODUCER: 5}, unusable=frozenset({PRODUCER}))
    assert deleted.keys == replaced.keys == (PRODUCER,)
    assert deleted.alteration.remove == {PRODUCER}
    assert deleted.alteration.applied_to({CONSUMER: 5}, {PRODUCER}) == {CONSUMER: 5}
    assert [change.entity for change in Plan((deleted, replaced)).inverse.changes] == [BOB]


def test_the_fingerprint_holds_the_review_and_the_cluster() -> None:
    bare = Plan((Change(ALICE, {}, {PRODUCER: 1}),))
    objection = Objection("protected", Severity.REFUSAL, "it would", ("--force",))
    here = Cluster("kafka://a:1", "x")
    different = [bare, replace(bare, objections=(objection,)), replace(bare, cluster=here)]
    different += [replace(bare, objections=(replace(objection, severity=Severity.WARNING),))]
    different += [replace(bare, cluster=replace(here, id="y")), Plan((replace(bare.changes[0], relative=True),))]
    assert len({each.fingerprint for each in different}) == len(different)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Cluster("kafka://a:1", "x"), Cluster("kafka://b:2", "x"), True),
        (Cluster("kafka://a:1", "x"), Cluster("kafka://a:1", "y"), False),
        (Cluster("kafka://a:1,B:2"), Cluster("kafka://b:2,a:1", "y"), True),
        (Cluster("kafka://a:1,localhost:2"), Cluster("kafka://127.0.0.1:2"), True),
        (Cluster("kafka://a:1"), Cluster("kafka://a:10"), False),
        (Cluster("zookeeper://a:1/k"), Cluster("zookeeper://a:1/l"), False),
        (Cluster("zookeeper://a:1/k"), Cluster("zookeeper://a:1/k/"), True),
        (Cluster("kafka://a:1"), Cluster("zookeeper://a:1"), False),
    ],
)
def test_a_cluster_is_known_by_its_id_else_by_a_server(one: Cluster, other: Cluster, same: bool) -> None:
    assert one.is_same(other) == other.is_same(one) == same


@given(st.lists(st.integers(0, 5), unique=True))
def test_changes_are_in_the_order_of_entities(numbers: list[int]) -> None:
    changes = [Change(Entity(user=f"u{number}"), {}, {PRODUCER: 1}) for number in numbers]
    assert [change.entity.user for change in Plan(tuple(changes)).changes] == [
        f"u{number}" for number in sorted(numbers)
    ]


def test_the_plan_of_an_edit_leaves_alone_what_was_not_shown() -> None:
    """Another entity, and another key of an edited entity."""
    alice, bob, carol = Entity(user="alice"), Entity(user="bob"), Entity(user="carol")
    produce, consume = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
    current = QuotaSnapshot({alice: {produce: 1, consume: 2}, bob: {produce: 3}, carol: {produce: 4}})
    shown = {alice: {produce: 1}, bob: {produce: 3}}
    made = plan_of_edit(current, shown, {alice: {produce: 9}})
    assert {change.entity: dict(change.after) for change in made.changes} == {alice: {produce: 9, consume: 2}, bob: {}}
    assert not plan_of_edit(current, shown, shown)


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
