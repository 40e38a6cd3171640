"""Recommendations in words."""

from __future__ import annotations

from kquota.core.quota import QuotaKey
from kquota.documents.recommendation import percent, rough


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
