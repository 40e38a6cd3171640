"""Recommendations in words."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from kquota.core.findings.demand import Estimate
from kquota.core.findings.recommendation import Policy, Recommendations, Scope, Usage, recommend
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, rate_text
from kquota.documents.encoding import schema, to_json
from kquota.documents.quotas import read_quotas
from kquota.documents.recommendation import percent, recommendation_document, recommendation_text


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


def test_no_name_ends_a_comment_of_the_file(tmp_path: Path) -> None:
    """The names of counters, of quotas at other levels, and in warnings; many that stay are counted."""
    key, hostile = QuotaKey.PRODUCER_BYTE_RATE, "a\nquotas: []\u2028x: 1"
    usage = Usage(hostile, 60, 60, 0, 2e6, Estimate(2e6, 2e6, None, None, 60, 0, 1e6, 2e6))
    new = recommend([usage], Entity(user=hostile), key, None, Policy())
    stays = [recommend([usage], Entity(user=f"{hostile}{number}"), key, 10**9, Policy()) for number in range(60)]
    stays = [replace(quota, own=False, governed_by=(Entity(client_id=hostile),)) for quota in stays]
    new = replace(new, governed_by=(Entity(client_id=hostile),), current=1000)

    text = recommendation_text(Recommendations(Scope.USERS, Policy(), [new, *stays]), [f"{hostile} is doubtful"])

    (tmp_path / "quotas.yaml").write_text(text)
    assert [*read_quotas(tmp_path / "quotas.yaml")] == [Entity(user=hostile)]
    assert text.count("# No entry for {") == 50
    assert "# No entry for 10 more that stay as they are.\n" in text
