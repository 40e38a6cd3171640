import pytest

from kquota.core.enforcement import Generation, QuotaWindows
from kquota.errors import InputError


@pytest.mark.parametrize(
    "text", ["3.8", "3.8.0", "3.9.1", "3.10", "4.0.0", "4", "v4.1", "4.3.1", "3.8.0-SNAPSHOT", "3.9-IV0"]
)
def test_newer_releases(text: str) -> None:
    assert Generation.for_version(text) is Generation.N_PLUS_1_BY_LAST


@pytest.mark.parametrize("text", ["4.4", "4.4.0", "4.10", "10.2"])
def test_releases_that_cut_delays(text: str) -> None:
    assert Generation.for_version(text) is Generation.CAPPED


@pytest.mark.parametrize("text", ["3.7", "3.7.2", "3.0.0", "2.8.1", "2", "0.11.0.3", "1.1", "3.7-IV4"])
def test_older_releases(text: str) -> None:
    assert Generation.for_version(text) is Generation.N_BY_START


@pytest.mark.parametrize("text", ["", "latest", "3", "3.", "3.8x", "7.5.0-ccs", "7.6.1-ce", "-3.8", "3,8"])
def test_what_is_no_kafka_version(text: str) -> None:
    with pytest.raises(InputError):
        Generation.for_version(text)


def test_slots() -> None:
    assert Generation.N_BY_START.slots(11) == 11
    assert Generation.N_PLUS_1_BY_LAST.slots(11) == Generation.CAPPED.slots(11) == 12


@pytest.mark.parametrize(("samples", "seconds"), [(0, 1), (11, 0), (-1, 1)])
def test_windows_are_at_least_one(samples: int, seconds: int) -> None:
    with pytest.raises(InputError):
        QuotaWindows(samples, seconds)
