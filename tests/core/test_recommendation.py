"""Which value a quota gets, given what was measured."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota import DEFAULT, Entity, QuotaKey, QuotaSnapshot
from kquota.core.change.history import QuotaHistory
from kquota.core.findings.demand import Estimate
from kquota.core.findings.recommendation import (
    Basis,
    Change,
    Policy,
    Scope,
    Usage,
    recommend,
    recommend_default,
    rounded_up,
    unlimited,
)
from kquota.core.quotas.quota import LONG_MAX, Value

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
ALICE = Entity(user="alice")
RATES = st.floats(1, 1e12)
CURRENT = st.none() | st.integers(1, 10**12)
POLICIES = st.builds(
    Policy, headroom=st.floats(0, 2), step=st.floats(0.1, 2), covers=st.floats(0.1, 1), lower=st.booleans()
)


def usage(need: float | None, at_least: float = 1.0, peak: float = 0.0) -> Usage:
    """What a client that needs this did."""
    least = at_least if need is None else need
    return Usage("1", 10, 10, 0, max(least, peak), Estimate(need, least, None, None, 10, 0, least, least))


USAGES = st.lists(st.one_of(RATES.map(usage), RATES.map(lambda least: usage(None, least))), min_size=1, max_size=4)


@given(RATES, st.sampled_from([PRODUCE, QuotaKey.REQUEST_PERCENTAGE]))
def test_two_digits_and_not_less(rate: float, key: QuotaKey) -> None:
    """At most a tenth more."""
    value = rounded_up(key, rate)

    assert rate <= value <= max(rate * 1.1, math.ceil(rate) if key is PRODUCE else 0) * (1 + 1e-12)
    assert len(f"{value:.6e}".split("e")[0].rstrip("0").rstrip(".").replace(".", "")) <= 2


@given(USAGES, CURRENT, POLICIES)
def test_every_broker_gets_enough(usages: list[Usage], current: Value | None, policy: Policy) -> None:
    """And a quota is lowered where that is asked for and no broker held the client back, else never."""
    found = recommend(usages, ALICE, PRODUCE, current, policy)

    needs = [one.estimate.value for one in usages]
    assert all(found.value >= need for need in needs if need is not None)
    assert all(found.value >= one.estimate.at_least for one in usages)
    if current is not None:
        assert found.value >= current or (policy.lower and None not in needs)
        stays = Change.KEEP if found.basis is Basis.MEASURED else Change.MEASURE
        assert (found.change is stays) == (found.value == current)
        if any(one.estimate.value is None and one.peak >= current for one in usages):
            assert found.value > current
    assert found.usage in usages


def test_what_is_hidden_is_raised_from_the_present_limit() -> None:
    """By the step, and not from the lower rate that the limit let through."""
    found = recommend([usage(None, 800.0, peak=1000.0)], ALICE, PRODUCE, 1000, Policy(step=0.5))

    assert (found.value, found.basis, found.change) == (1500, Basis.CENSORED, Change.RAISE)


@pytest.mark.parametrize(("current", "value"), [(1700, 1700), (1200, 1500), (10_000, 10_000)])
def test_a_limit_that_was_never_reached_held_nobody_back(current: int, value: int) -> None:
    """It was raised since, or another quota throttles: it stays where it is as high as the step would make it."""
    found = recommend([usage(None, 1000.0)], ALICE, PRODUCE, current, Policy(step=0.5))

    assert (found.value, found.basis) == (value, Basis.CENSORED)


@given(st.dictionaries(st.sampled_from("abcdefgh"), USAGES, min_size=1), CURRENT, POLICIES)
def test_a_default_covers_most_and_everybody_has_enough(
    needs: dict[str, list[Usage]], current: Value | None, policy: Policy
) -> None:
    """Those for whom the default is not enough have a quota of their own that is higher."""
    usages = {Entity(user=name): mine for name, mine in needs.items()}
    default, *others = recommend_default(usages, Entity(user=DEFAULT), PRODUCE, current, policy)

    assert default.entities == len(usages)
    assert default.covered == len(usages) - len(others)
    assert default.covered >= policy.covers * len(usages) - 1e-6
    values = {quota.entity: quota.value for quota in others}
    assert all(value > default.value for value in values.values())
    for entity, mine in usages.items():
        for one in mine:
            assert values.get(entity, default.value) >= one.estimate.at_least
    if current is not None and not policy.lower:
        assert default.value >= current
    assert policy.covers < 1 or default.high is None, "nobody knows what those want who were not seen"


@pytest.mark.parametrize(
    ("scope", "default_only", "lifted", "gone"),
    [
        (Scope.USERS, False, {"user=alice", "user=<default>"}, {"user=<default>,client-id=app"}),
        (Scope.USERS, True, {"user=alice", "user=<default>"}, set()),
        (Scope.CLIENTS, False, {"client-id=app", "client-id=<default>"}, set()),
        (
            Scope.USER_CLIENTS,
            False,
            {"user=<default>,client-id=app", "user=<default>,client-id=<default>", "user=alice,client-id=<default>"},
            set(),
        ),
    ],
)
def test_the_quotas_of_a_scope_are_lifted(scope: Scope, default_only: bool, lifted: set[str], gone: set[str]) -> None:
    """And with them what a recommended one would outrank; the others stay."""
    names = ["user=alice", "client-id=app", "user=<default>,client-id=app"]
    quotas = QuotaSnapshot({Entity.parse(name): {PRODUCE: 5, QuotaKey.CONSUMER_BYTE_RATE: 7} for name in names})

    (found,) = unlimited(QuotaHistory.of(quotas), scope, (PRODUCE,), default_only=default_only).snapshots

    assert {str(entity): dict(values) for entity, values in found.items()} == {
        **{name: {PRODUCE: 5} for name in names if name not in gone},
        **{name: {PRODUCE: LONG_MAX} for name in lifted},
    }
