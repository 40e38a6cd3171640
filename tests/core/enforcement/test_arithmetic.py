import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.core.enforcement.arithmetic import (
    INT_MAX,
    INT_MIN,
    LONG_MAX,
    LONG_MIN,
    double_to_int,
    long_to_int,
    round_half_up,
)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (0.0, 0),
        (0.49999999999999994, 0),  # adding 0.5 in doubles would give 1
        (0.5, 1),
        (1.5, 2),
        (2.5, 3),  # not to even
        (-0.5, 0),
        (-0.5000000000000001, -1),
        (-1.5, -1),
        (-2.5, -2),
        (4503599627370497.0, 4503599627370497),  # 2^52 + 1
        (9007199254740993.0, 9007199254740992),
        (math.inf, LONG_MAX),
        (-math.inf, LONG_MIN),
        (1e300, LONG_MAX),
        (-1e300, LONG_MIN),
        (math.nan, 0),
    ],
)
def test_round_is_javas(x: float, expected: int) -> None:
    assert round_half_up(x) == expected


@given(st.floats(-1e18, 1e18))
def test_round_is_the_exact_floor_of_x_plus_a_half(x: float) -> None:
    assert round_half_up(x) == math.floor(Fraction(x) + Fraction(1, 2))


@given(st.integers(LONG_MIN, LONG_MAX))
def test_the_low_32_bits_are_signed(x: int) -> None:
    assert long_to_int(x) == int.from_bytes((x % 2**32).to_bytes(4, "big"), "big", signed=True)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (1.9, 1),
        (-1.9, -1),
        (2147483647.5, INT_MAX),
        (1e300, INT_MAX),
        (-1e300, INT_MIN),
        (math.nan, 0),
        (math.inf, INT_MAX),
    ],
)
def test_a_double_is_truncated_and_saturates(x: float, expected: int) -> None:
    assert double_to_int(x) == expected
