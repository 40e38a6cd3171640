"""Recommendations in words."""

from __future__ import annotations

import json
import math

import pytest
from jsonschema import Draft202012Validator

from kquota.core.findings.demand import Estimate
from kquota.core.findings.recommendation import Policy, Recommendations, Scope, Usage, recommend
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.documents.encoding import schema, to_json
from kquota.documents.recommendation import needed, percent, reasons, recommendation_document, rough


def test_rates_have_three_digits_and_no_exponent() -> None:
    """Also where rounding reaches the next unit, and above 1000 of what has only one."""
    rates = (0, 0.4, 999.4, 999.6, 999_600, 12_345_678, 5e15)
    percents = (1e-5, 0.626, 99.94, 1234.5)

    assert [rough(QuotaKey.PRODUCER_BYTE_RATE, rate) for rate in rates] == [
        "0 B/s", "0.4 B/s", "999 B/s", "1 kB/s", "1 MB/s", "12.3 MB/s", "5000 TB/s",
    ]  # fmt: skip
    assert [rough(QuotaKey.REQUEST_PERCENTAGE, rate) for rate in percents] == [
        "0.00001 %",
        "0.626 %",
        "99.9 %",
        "1230 %",
    ]
    assert [percent(share) for share in (0, 0.0025, 1, 1e-7)] == ["0 %", "0.25 %", "100 %", "0.00001 %"]


@pytest.mark.parametrize(
    ("stored", "change"), [(math.inf, "keep"), (math.nan, "raise"), (0.0, "raise"), (-1.0, "raise")]
)
def test_limits_that_only_a_cluster_holds(stored: float, change: str) -> None:
    """What JSON has no number for is Java's word; what is no limit is replaced by one."""
    key = QuotaKey.REQUEST_PERCENTAGE
    usage = Usage("1", 60, 60, 0, 2.0, Estimate(2.0, 2.0, None, None, 60, 0, 1.0, 2.0))
    found = recommend([usage], Entity(user="alice"), key, stored, Policy())

    quotas = Recommendations(Scope.USERS, Policy(), [found])
    document = json.loads(to_json(recommendation_document(quotas, {}, {}, "local")))

    quota = document["recommendations"][0]
    assert quota["change"] == change
    assert quota["current"] == {math.inf: "Infinity", 0.0: 0.0, -1.0: -1.0}.get(stored, "NaN")
    assert quota["value"] == ("Infinity" if stored == math.inf else 2.4)
    parts = schema("recommendation")["properties"]["recommendations"]["items"]["properties"]
    for name in ("current", "value"):
        Draft202012Validator(parts[name]).validate(quota[name])


def test_what_is_kept_unknowing_is_not_called_enough() -> None:
    """Raised by nothing, where the client was throttled each time it wanted more."""
    usage = Usage("1", 60, 60, 60, 2.0, Estimate(None, 2.0, None, None, 60, 60, 2.0, 2.0))
    policy = Policy(step=0.0)
    quota = recommend([usage], Entity(user="alice"), QuotaKey.REQUEST_PERCENTAGE, 2.0, policy)

    first, *_ = lines = reasons(quota, Recommendations(Scope.USERS, policy, [quota]))

    assert first == "request_percentage: 2 % stays"
    assert lines[-1] == "  wants at least 2 %: throttled each time it wanted more; the need is unknown, measure again"


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (1e5, 2e5, "(100 kB/s to 200 kB/s)"),
        (1e5, None, "(≥ 100 kB/s)"),
        (None, 2e5, "(≤ 200 kB/s)"),
        (None, None, "(too little data to be sure)"),
    ],
)
def test_an_open_interval_is_said_in_words(low: float | None, high: float | None, text: str) -> None:
    usage = Usage("1", 60, 60, 0, 2.0, Estimate(1.5e5, 1.5e5, low, high, 60, 0, 1.0, 2.0))
    found = recommend([usage], Entity(user="alice"), QuotaKey.PRODUCER_BYTE_RATE, None, Policy())
    assert needed(found) == ("150 kB/s", text)
