"""The slot rules by hand; that they are Kafka's is for tests/differential to say."""

import pytest

from kquota.core.enforcement import Generation, Kernel, QuotaWindows
from kquota.core.enforcement.counter import SUM

OLD, NEW = Generation.N_BY_START, Generation.N_PLUS_1_BY_LAST


def windows_after(using: Kernel, generation: Generation, samples: int, times: list[int]) -> list[int]:
    """The window after each event of 100, read as a check does."""
    rate = using.new_counter(QuotaWindows(samples), generation)
    seen = []
    for now in times:
        using.record(rate, 100.0, now)
        using.measure(rate, now)
        seen.append(using.window(rate, now))
    return seen


@pytest.mark.parametrize(("generation", "window"), [(OLD, 2500), (NEW, 3400)])
def test_a_dropped_slot_can_become_the_oldest(using: Kernel, generation: Generation, window: int) -> None:
    # 3.7: the slot of t=100 is reset at 3500 and outlives the slot that started at 2600.
    assert windows_after(using, generation, 3, [100, 2600, 3500, 6000])[-1] == window


@pytest.mark.parametrize(("generation", "longest"), [(OLD, 10_990), (NEW, 11_980)])
def test_steady_traffic_is_seen_through_one_window_more_since_3_8(
    using: Kernel, generation: Generation, longest: int
) -> None:
    steady = windows_after(using, generation, 11, list(range(0, 60_000, 10)))[3000:]
    assert max(steady) == longest
    assert min(steady) == longest - 990


@pytest.mark.parametrize(("gap", "rate"), [(10_999, 200 / 10.999), (11_000, 10.0)])
def test_a_slot_is_dropped_exactly_n_windows_after_its_last_event(using: Kernel, gap: int, rate: float) -> None:
    state = using.new_counter(QuotaWindows(), NEW)
    using.record(state, 100.0, 0)
    using.record(state, 100.0, gap)
    assert using.measure(state, gap) == rate


def test_a_slot_ends_exactly_after_one_window(using: Kernel) -> None:
    state = using.new_counter(QuotaWindows(), NEW)
    for now in (0, 999, 1000):
        using.record(state, 1.0, now)
    assert list(state.floats)[SUM : SUM + 2] == [2.0, 1.0]


def test_the_sum_is_in_slot_order(using: Kernel) -> None:
    # 0.1 + 0.2 + 0.3 is 0.6000000000000001; once slot 0 is used again, it still comes first.
    state = using.new_counter(QuotaWindows(samples=3), OLD)
    for now, value in enumerate([9.0, 0.2, 0.3, 0.1]):
        using.record(state, value, now * 1000)
    assert using.measure(state, 3000) == ((0.1 + 0.2) + 0.3) / 2.0
    assert (0.1 + 0.2) + 0.3 != (0.2 + 0.3) + 0.1


def test_taking_back_prolongs_the_life_of_the_current_slot(using: Kernel) -> None:
    state = using.new_counter(QuotaWindows(), NEW)
    using.record(state, 100.0, 0)
    using.record(state, -50.0, 999)
    assert using.measure(state, 11_998) == 50 / 11.998
    assert using.measure(state, 11_999) == 0.0


@pytest.mark.parametrize(("scrape", "rate"), [(None, 540.0), (59_500, 5400 / 10.5), (49_100, 5400 / 10.9)])
def test_reading_the_metric_changes_what_follows(using: Kernel, scrape: int | None, rate: float) -> None:
    state = using.new_counter(QuotaWindows(), NEW)
    using.record(state, 1.0, 0)
    if scrape is not None:
        using.measure(state, scrape)
    using.record(state, 5400.0, 60_000)
    assert using.measure(state, 60_000) == rate
