"""What other quotas change, in the smallest cases."""

from itertools import product

import pytest

from kquota.core.findings.prediction import UNKNOWN as NOT_KNOWN
from kquota.core.findings.prediction import Interval, Prediction
from kquota.core.findings.whatif import ClientChange, Comparison, Outcome, Standing, outcome
from kquota.core.quotas.quota import QuotaKey

NONE = Standing()
SOME, MORE = Standing("throttled", 3, 500), Standing("throttled", 2, 900)
LATER = Standing("throttled", 4, 500)
UNTOLD = Standing("throttled", None, None)
ALIKE = Standing("throttled", None, None, unknown=frozenset("c"))
HELD = Standing("undetermined", None, None, unknown=frozenset("d"), wanted=9.0)
UNKNOWN, OTHER = (Standing("undetermined", None, None, unknown=frozenset({reason})) for reason in "ab")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (NONE, NONE, Outcome.SAME),
        (NONE, SOME, Outcome.NEWLY_THROTTLED),
        (NONE, UNTOLD, Outcome.NEWLY_THROTTLED),
        (SOME, NONE, Outcome.NO_LONGER_THROTTLED),
        (SOME, SOME, Outcome.SAME),
        (SOME, MORE, Outcome.MORE),
        (MORE, SOME, Outcome.LESS),
        (SOME, LATER, Outcome.MORE),
        (SOME, UNTOLD, Outcome.UNDETERMINED),
        (UNTOLD, UNTOLD, Outcome.UNDETERMINED),
        (ALIKE, ALIKE, Outcome.SAME),
        (ALIKE, UNTOLD, Outcome.UNDETERMINED),
        (UNKNOWN, UNKNOWN, Outcome.SAME),
        (UNKNOWN, OTHER, Outcome.UNDETERMINED),
        (UNKNOWN, NONE, Outcome.UNDETERMINED),
        (NONE, UNKNOWN, Outcome.UNDETERMINED),
        (UNKNOWN, SOME, Outcome.UNDETERMINED),
        (SOME, UNKNOWN, Outcome.UNDETERMINED),
        (SOME, HELD, Outcome.UNDETERMINED),
        (HELD, SOME, Outcome.NEWLY_THROTTLED),
        (HELD, HELD, Outcome.SAME),
        (HELD, NONE, Outcome.UNDETERMINED),
    ],
)
def test_outcomes(before: Standing, after: Standing, expected: Outcome) -> None:
    """More and less by time, then by events; what is not known stays so unless the same thing is not known of both."""
    assert outcome(before, after) is expected


def test_the_worst_is_first_and_the_same_is_counted() -> None:
    sides = (NONE, SOME, MORE, UNKNOWN, OTHER)
    changes = [
        ClientChange(QuotaKey.PRODUCER_BYTE_RATE, f"user{number}", "", 9, one, other, outcome(one, other))
        for number, (one, other) in enumerate(product(sides, sides))
    ]

    comparison = Comparison.of(changes)

    orders = [list(Outcome).index(change.outcome) for change in comparison.clients]
    assert orders == sorted(orders)
    assert comparison.clients[0].after == MORE
    assert comparison.same == comparison.count(Outcome.SAME) == 5
    assert sum(map(comparison.count, Outcome)) == len(changes)


def test_who_is_harmed_most_is_first() -> None:
    """By the prediction: the throttle time of an open loop is longest for many small requests, which overlap."""

    def after(total_ms: int, muted: float, longest_ms: int) -> Standing:
        longest, share, no = Interval.exactly(longest_ms), Interval.exactly(muted), NOT_KNOWN
        told = Prediction("paced", "", "throttled", no, longest, share, no, no, no, no)
        return Standing("throttled", 9, total_ms, predicted=told)

    sides = {"many": after(900_000, 0.1, 50), "few": after(20_000, 0.9, 60), "long": after(10_000, 0.9, 9000)}
    changes = [
        ClientChange(QuotaKey.PRODUCER_BYTE_RATE, user, "", 9, NONE, side, Outcome.NEWLY_THROTTLED)
        for user, side in sides.items()
    ]

    assert [change.user for change in Comparison.of(changes).clients] == ["long", "few", "many"]
