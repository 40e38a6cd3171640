"""The bucket by hand; that it is Kafka's is for tests/differential to say."""

import pytest

from kquota.core.enforcement import UNLIMITED, Generation, Kernel, QuotaWindows
from kquota.core.enforcement.counter import Counter

T0 = 1_700_000_000_000


@pytest.mark.parametrize(("samples", "seconds", "burst"), [(11, 1, 110.0), (1, 1, 10.0), (3, 2, 60.0)])
def test_a_new_bucket_is_full_on_a_clock_of_epoch_ms(using: Kernel, samples: int, seconds: int, burst: float) -> None:
    bucket = new_bucket(using, QuotaWindows(samples, seconds))
    assert using.measure_tokens(bucket, T0, 10.0) == burst


def test_it_owes_without_bound_and_fills_to_the_burst(using: Kernel) -> None:
    bucket = new_bucket(using, QuotaWindows(samples=10))
    using.record_tokens(bucket, 1_000_100.0, T0, 10.0)
    assert using.measure_tokens(bucket, T0, 10.0) == -1_000_000.0
    assert using.measure_tokens(bucket, T0 + 100_000_000, 10.0) == 0.0
    assert using.measure_tokens(bucket, T0 + 200_000_000, 10.0) == 100.0


def test_a_changed_limit_counts_for_the_whole_time_since_the_last_event(using: Kernel) -> None:
    bucket = new_bucket(using, QuotaWindows(samples=10))
    using.record_tokens(bucket, 180.0, T0, 10.0)
    assert using.measure_tokens(bucket, T0 + 5000, 1.0) == -75.0
    assert using.measure_tokens(bucket, T0 + 6000, 20.0) == -55.0
    # A smaller burst caps what is there.
    assert using.measure_tokens(bucket, T0 + 60_000, 20.0) == 200.0
    assert using.measure_tokens(bucket, T0 + 60_000, 2.0) == 20.0


def test_no_limit_forgives_all_debt_once_time_passes(using: Kernel) -> None:
    bucket = new_bucket(using, QuotaWindows(samples=11))
    using.record_tokens(bucket, 1e9, T0, 5.0)
    assert using.measure_tokens(bucket, T0, UNLIMITED) == 55.0 - 1e9
    assert using.measure_tokens(bucket, T0 + 1000, UNLIMITED) == 2.0**63 + (55.0 - 1e9)
    assert using.measure_tokens(bucket, T0 + 60_000, UNLIMITED) == 11 * 2.0**63
    assert using.measure_tokens(bucket, T0 + 60_000, 5.0) == 55.0


def test_a_limit_of_zero_never_fills(using: Kernel) -> None:
    bucket = new_bucket(using, QuotaWindows())
    using.record_tokens(bucket, 3.0, T0, 0.0)
    assert using.measure_tokens(bucket, T0 + 10**9, 0.0) == -3.0


def test_a_clock_that_is_set_back_drains(using: Kernel) -> None:
    bucket = new_bucket(using, QuotaWindows(samples=10))
    using.measure_tokens(bucket, T0, 10.0)
    assert using.measure_tokens(bucket, T0 - 1000, 10.0) == 90.0


def new_bucket(using: Kernel, windows: QuotaWindows) -> Counter:
    return using.new_counter(windows, Generation.N_PLUS_1_BY_LAST)
