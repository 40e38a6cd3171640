"""The distribution of what was wanted, from what was got."""

import math
import random
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.core.findings.demand import BIN_WIDTH, NOTHING, Cell, Estimate, estimate, upper_end

RATES = st.floats(0, 1e12, allow_subnormal=False)
SECONDS = st.lists(st.tuples(st.integers(0, 5), RATES, st.booleans()), min_size=1, max_size=80)
SHARES = st.floats(0.001, 0.5)


def bin_of(rate: float) -> int:
    """The bin of a rate, as `kquota.audit.ledger.demand` finds those of many."""
    return NOTHING if rate <= 0 else max(NOTHING, math.ceil(math.log(rate) / math.log1p(BIN_WIDTH)))


def cells(seconds: Iterable[tuple[int, float, bool]]) -> list[Cell]:
    """(block, rate, held back) of each second, as cells."""
    counts = Counter((block, bin_of(rate), held) for block, rate, held in seconds)
    return [
        Cell(block, number, 0 if held else count, count if held else 0)
        for (block, number, held), count in counts.items()
    ]


def of(seconds: Iterable[tuple[int, float, bool]], share: float = 0.01, confidence: float = 0.95) -> Estimate:
    """The estimate for rates that look back over 11 seconds."""
    return estimate(cells(seconds), share, confidence, 11)


@given(RATES)
def test_a_bin_is_one_percent(rate: float) -> None:
    """Its upper end is not below the rate, and at most a percent above."""
    end = upper_end(bin_of(rate))

    assert rate * (1 - 1e-12) <= end or bin_of(rate) == NOTHING
    assert end <= rate * (1 + BIN_WIDTH) * (1 + 1e-12)


@given(SECONDS, SHARES)
def test_without_throttling_it_is_the_plain_quantile(seconds: list[tuple[int, float, bool]], share: float) -> None:
    """The smallest bin that at most that share of the seconds lies above."""
    found = of([(block, rate, False) for block, rate, _ in seconds], share)

    assert found.value is not None
    assert found.value == found.at_least
    bins = [bin_of(rate) for _, rate, _ in seconds]
    limit = next(number for number in sorted(bins) if upper_end(number) == found.value)
    allowed = share * len(bins) * (1 + 1e-9)
    assert sum(number > limit for number in bins) <= allowed
    assert sum(number >= limit for number in bins) > allowed


@given(SECONDS, SHARES, SHARES)
def test_less_throttling_takes_a_higher_limit(seconds: list[tuple[int, float, bool]], one: float, other: float) -> None:
    """Where a limit can be told at all."""
    strict, lenient = of(seconds, min(one, other)), of(seconds, max(one, other))

    assert strict.at_least >= lenient.at_least
    if strict.value is not None:
        assert lenient.value is not None
        assert strict.value >= lenient.value


@given(SECONDS, SHARES)
def test_holding_a_client_back_never_lowers_the_limit(seconds: list[tuple[int, float, bool]], share: float) -> None:
    """What is a lower bound only can but raise it, to the point of not knowing."""
    found = of(seconds, share)

    assert found.seconds == len(seconds)
    assert found.held == sum(held for _, _, held in seconds)
    assert found.value is None or found.value >= found.at_least
    if found.low is not None:
        assert found.value is not None
        assert found.low <= found.value
    if found.high is not None:
        assert found.value is not None
        assert found.high >= found.value


def test_kaplan_and_meier() -> None:
    """Six seconds, worked out by hand: 1, 2+, 3, 4+, 5, 6 leave 5/6, 5/6·3/4, 5/6·3/4·1/2 and 0."""
    seconds = [(0, 1.0, False), (0, 2.0, True), (0, 3.0, False), (0, 4.0, True), (0, 5.0, False), (0, 6.0, False)]

    for rate, left in ((1.0, 5 / 6), (3.0, 5 / 8), (5.0, 5 / 16), (6.0, 0.001)):
        assert of(seconds, left).value == upper_end(bin_of(rate))
        if left > 0.001:
            assert of(seconds, left - 0.01).value != upper_end(bin_of(rate))


def test_a_little_data_tells_no_upper_end() -> None:
    """With 100 seconds, nobody knows what happens once in a hundred."""
    found = of([(second // 10, 1000.0 + second, False) for second in range(100)])

    assert found.value is not None
    assert found.high is None


def wanted(seconds: int, slow: float, rng: random.Random) -> list[float]:
    """Rates over 11 seconds of a demand that changes slowly: log-normal, `slow` seconds to forget."""
    keep = math.exp(-1 / slow)
    level, each = rng.gauss(0, 1), []
    for _ in range(seconds + 10):
        level = keep * level + math.sqrt(1 - keep * keep) * rng.gauss(0, 1)
        each.append(1e6 * math.exp(0.8 * level))
    total, rates = sum(each[:10]), []
    for place in range(10, len(each)):
        total += each[place]
        rates.append(total / 11)
        total -= each[place - 10]
    return rates


@pytest.mark.parametrize(("slow", "limited"), [(5.0, None), (20.0, None), (5.0, 0.85)])
def test_the_interval_holds_what_it_promises(slow: float, limited: float | None) -> None:
    """Of intervals of 90 % confidence, about 9 in 10 hold the truth, also when half the time was throttled.

    Seconds are not independent: intervals that took them for it would hold it in less than half of the cases.
    """
    rng = random.Random(20261121)
    population = sorted(wanted(300_000, slow, rng))
    truth = population[int(0.95 * len(population))]
    limit = None if limited is None else population[int(limited * len(population))]
    hits, trials = 0, 60
    for _ in range(trials):
        seconds = []
        for second, rate in enumerate(wanted(7200, slow, rng)):
            held = limit is not None and second < 3600 and rate > limit
            seconds.append((second // 240, limit if held and limit is not None else rate, held))
        found = of(seconds, 0.05, 0.9)
        assert found.value is not None
        assert found.low is not None
        hits += found.low <= truth <= (math.inf if found.high is None else found.high)

    assert 0.8 * trials <= hits
