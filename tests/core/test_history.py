"""Quotas over time."""

import pytest

from kquota import Change, Entity, InputError, QuotaKey, QuotaSnapshot
from kquota.core.change.history import QuotaHistory, Step

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


@pytest.mark.parametrize(
    ("times", "moments"),
    [
        # The last one is taken back first: two alterations may be done in the same ms.
        ((1000, 1000), [1000]),
        # A clock may go back: none was made after the one that follows it.
        ((2000, 1000), [1000]),
        ((500, 1000), [500, 1000]),
    ],
)
def test_steps_have_their_order_from_the_caller(times: tuple[int, int], moments: list[int]) -> None:
    steps = [
        Step(time_ms, (Change(ALICE, before.get(ALICE, {}), after.get(ALICE, {})),), name)
        for time_ms, before, after, name in zip(times, (NONE, LOW), (LOW, HIGH), ("first", "second"), strict=True)
    ]
    expected = [(None, NONE), *zip(moments, (LOW, HIGH)[-len(moments) :], strict=True)]
    assert list(QuotaHistory.leading_to(HIGH, steps)) == expected


@pytest.mark.parametrize("rival", [15, None])
def test_nothing_is_known_from_before_what_somebody_else_changed(rival: int | None) -> None:
    """Between two steps; without a later step it may have been at any time."""
    other = QuotaSnapshot({} if rival is None else {ALICE: {QuotaKey.PRODUCER_BYTE_RATE: rival}})
    steps = [
        Step(time_ms, (Change(ALICE, before.get(ALICE, {}), after.get(ALICE, {})),), name)
        for time_ms, before, after, name in ((1000, NONE, LOW, "first"), (2000, other, HIGH, "second"))
    ]
    history = QuotaHistory.leading_to(HIGH, steps)

    assert list(history) == [(None, other), (2000, HIGH)]
    assert history.known_from == (2000, "after first, user=alice was changed by something else")
    with pytest.raises(InputError, match=r"after first, user=alice .* not known when"):
        QuotaHistory.leading_to(other, steps[:1])
