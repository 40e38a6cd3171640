"""Quotas over time."""

from dataclasses import replace

import pytest

from kquota.core.change.history import QuotaHistory, Step
from kquota.core.change.plan import Change
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.errors import InputError

ALICE = Entity(user="alice")
NONE = QuotaSnapshot({})
LOW, HIGH = (QuotaSnapshot({Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: value}}) for value in (10, 20))


def test_a_snapshot_holds_from_its_moment_on() -> None:
    """The first from ever; a change holds at its own ms."""
    history = QuotaHistory((NONE, LOW, HIGH), (1000, 2000))

    assert [history.at(moment) for moment in (-1, 999, 1000, 1999, 2000, 10**15)] == [NONE, NONE, LOW, LOW, HIGH, HIGH]
    assert list(history) == [(None, NONE), (1000, LOW), (2000, HIGH)]
    assert history.latest is HIGH


@pytest.mark.parametrize("moments", [(5, 5), (6, 5)])
def test_time_goes_on(moments: tuple[int, int]) -> None:
    """Two snapshots cannot hold from the same moment."""
    with pytest.raises(InputError, match="must increase"):
        QuotaHistory((NONE, LOW, HIGH), moments)


def test_changes_of_one_moment_are_taken_back_in_their_order() -> None:
    """The last one first: two alterations may be done in the same ms."""
    alice = Entity(user="alice")
    first, second = (
        Step(1000, (Change(alice, before.get(alice, {}), after.get(alice, {})),), name)
        for before, after, name in ((NONE, LOW, "first"), (LOW, HIGH, "second"))
    )

    history = QuotaHistory.leading_to(HIGH, [first, second])

    assert list(history) == [(None, NONE), (1000, HIGH)]


def test_steps_have_their_order_from_the_caller_when_a_clock_goes_back() -> None:
    """None was made after the one that follows it."""
    steps = [
        Step(time_ms, (Change(ALICE, before.get(ALICE, {}), after.get(ALICE, {})),), name)
        for time_ms, before, after, name in ((2000, NONE, LOW, "first"), (1000, LOW, HIGH, "second"))
    ]
    assert list(QuotaHistory.leading_to(HIGH, steps)) == [(None, NONE), (1000, HIGH)]
    later = [replace(steps[0], time_ms=500), steps[1]]
    assert list(QuotaHistory.leading_to(HIGH, later)) == [(None, NONE), (500, LOW), (1000, HIGH)]
