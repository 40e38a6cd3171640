import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota import DEFAULT, Alteration, AlterResult, Entity, InputError, QuotaKey, Rejected
from kquota.core.quotas.alteration import merge
from kquota.core.quotas.quota import Value

ALICE, BOB = Entity(user="alice"), Entity(user="bob")
PRODUCE, CONSUME, REQUEST = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE)
USER_KEYS: list[QuotaKey] = [key for key in QuotaKey if key is not QuotaKey.CONNECTION_CREATION_RATE]
user_values = st.dictionaries(st.sampled_from(USER_KEYS), st.integers(1, 9))


@st.composite
def alterations(draw: st.DrawFn, *entities: Entity) -> Alteration:
    sets: dict[QuotaKey, Value] = dict(draw(user_values))
    removes = draw(st.frozensets(st.sampled_from(USER_KEYS))) - sets.keys()
    if not sets and not removes:
        sets = {PRODUCE: 1}
    return Alteration(draw(st.sampled_from(entities or (ALICE,))), sets, removes)


@given(user_values, alterations(), alterations())
def test_two_in_one_do_what_one_after_the_other_does(
    values: dict[QuotaKey, Value], first: Alteration, second: Alteration
) -> None:
    assert first.then(second).applied_to(values) == second.applied_to(first.applied_to(values))


@given(user_values, st.lists(alterations(ALICE, BOB), max_size=6))
def test_merging_changes_nothing_but_the_number(values: dict[QuotaKey, Value], changes: list[Alteration]) -> None:
    def after(all_changes: list[Alteration]) -> dict[Entity, dict[QuotaKey, Value]]:
        state: dict[Entity, dict[QuotaKey, Value]] = {ALICE: dict(values), BOB: dict(values)}
        for change in all_changes:
            state[change.entity] = change.applied_to(state[change.entity])
        return state

    merged = merge(changes)
    assert after(list(merged)) == after(changes)
    assert [change.entity for change in merged] == list(dict.fromkeys(change.entity for change in changes))
    assert merge(merged) == merged


@given(alterations(), alterations(), alterations())
def test_then_is_associative(first: Alteration, second: Alteration, third: Alteration) -> None:
    assert first.then(second).then(third) == first.then(second.then(third))


def test_removing_what_is_not_set_is_an_error_only_when_strict() -> None:
    assert Alteration(ALICE, remove=frozenset({PRODUCE})).applied_to({}) == {}
    with pytest.raises(InputError, match="producer_byte_rate"):
        Alteration(ALICE, remove=frozenset({PRODUCE}), strict_remove=True).applied_to({})


def test_values_are_checked_and_take_the_type_of_their_key() -> None:
    change = Alteration(ALICE, {PRODUCE: 1000.0, REQUEST: 50})
    assert [type(value) for value in change.set.values()] == [int, float]
    with pytest.raises(InputError):
        Alteration(ALICE, {PRODUCE: 0})
    with pytest.raises(InputError):
        Alteration(ALICE, {PRODUCE: 1.5})


@pytest.mark.parametrize(
    ("entity", "key"),
    [
        (ALICE, QuotaKey.CONNECTION_CREATION_RATE),
        (Entity(ip="10.0.0.1"), PRODUCE),
        (Entity(user=DEFAULT, client_id=DEFAULT), QuotaKey.CONNECTION_CREATION_RATE),
    ],
)
def test_keys_that_the_entity_cannot_carry(entity: Entity, key: QuotaKey) -> None:
    with pytest.raises(InputError):
        Alteration(entity, {key: 1})
    with pytest.raises(InputError):
        Alteration(entity, remove=frozenset({key}))


def test_there_is_something_to_do_and_no_contradiction() -> None:
    with pytest.raises(InputError):
        Alteration(ALICE)
    with pytest.raises(InputError):
        Alteration(ALICE, {PRODUCE: 1}, frozenset({PRODUCE}))


def test_what_counts_as_a_change() -> None:
    assert AlterResult(ALICE, {PRODUCE: 1}, {PRODUCE: 2}).changed
    assert not AlterResult(ALICE, {PRODUCE: 1}, {PRODUCE: 1}).changed
    assert not AlterResult(ALICE, {PRODUCE: 1}, {PRODUCE: 2}, Rejected("no")).changed


def test_a_strict_removal_of_all_wants_one_that_is_set() -> None:
    both = Alteration(ALICE, remove=frozenset({PRODUCE, CONSUME}), strict_any=True)
    assert both.applied_to({PRODUCE: 1}) == {}
    assert both.applied_to({}, {PRODUCE}) == {}
    for alteration in (both, both.then(Alteration(ALICE, {REQUEST: 1}))):
        with pytest.raises(InputError, match="none of its quotas is set"):
            alteration.applied_to({})
