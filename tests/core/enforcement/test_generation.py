import pytest

from kquota.core.enforcement import Generation, QuotaWindows
from kquota.errors import InputError


@pytest.mark.parametrize(
    ("generation", "releases"),
    [
        (Generation.N_BY_START, ("3.7.2", "2", "0.11.0.3", "3.7-IV4")),
        (Generation.N_PLUS_1_BY_LAST, ("3.8", "3.10", "4", "4.3.1", "3.8.0-SNAPSHOT")),
        (Generation.CAPPED, ("4.4", "4.10", "10.2")),
    ],
)
def test_the_generation_of_a_release(generation: Generation, releases: tuple[str, ...]) -> None:
    assert {Generation.for_version(text) for text in releases} == {generation}


def test_slots() -> None:
    assert Generation.N_BY_START.slots(11) == 11
    assert Generation.N_PLUS_1_BY_LAST.slots(11) == Generation.CAPPED.slots(11) == 12


@pytest.mark.parametrize(("samples", "seconds"), [(0, 1), (11, 0), (-1, 1)])
def test_windows_are_at_least_one(samples: int, seconds: int) -> None:
    with pytest.raises(InputError):
        QuotaWindows(samples, seconds)
