"""Recommendations in words."""

import json
import math

import pytest
from jsonschema import Draft202012Validator

from kquota.core.findings.demand import Estimate
from kquota.core.findings.recommendation import Policy, Recommendations, Scope, Usage, recommend
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, rate_text
from kquota.documents.encoding import schema, to_json
from kquota.documents.recommendation import percent, recommendation_document


def test_rates_have_three_digits_and_no_exponent() -> None:
    """Also where rounding reaches the next unit, and above 1000 of what has only one."""
    rates = (0, 0.4, 999.4, 999.6, 999_600, 12_345_678, 5e15)
    percents = (1e-5, 0.626, 99.94, 1234.5)

    assert [rate_text(rate, QuotaKey.PRODUCER_BYTE_RATE.unit) for rate in rates] == [
        "0 B/s", "0.4 B/s", "999 B/s", "1 kB/s", "1 MB/s", "12.3 MB/s", "5000 TB/s",
    ]  # fmt: skip
    assert [rate_text(rate, QuotaKey.REQUEST_PERCENTAGE.unit) for rate in percents] == [
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
    document = json.loads(to_json(recommendation_document(quotas, {}, {}, "local", ["a doubt"])))

    quota = document["recommendations"][0]
    assert quota["change"] == change
    assert quota["current"] == {math.inf: "Infinity", 0.0: 0.0, -1.0: -1.0}.get(stored, "NaN")
    assert quota["value"] == ("Infinity" if stored == math.inf else 2.4)
    parts = schema("recommendation")["properties"]["recommendations"]["items"]["properties"]
    for name in ("current", "value"):
        Draft202012Validator(parts[name]).validate(quota[name])
