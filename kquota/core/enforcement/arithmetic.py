"""Java's number conversions, to the bit: what `Math.round` and the primitive casts do.

Long results stay within 64 bits, so the same functions hold compiled (int64) and plain (unbounded int).
"""

from typing import Final

from kquota.core.enforcement.compilable import compilable

LONG_MAX: Final = 9223372036854775807
LONG_MIN: Final = -9223372036854775808
INT_MAX: Final = 2147483647
INT_MIN: Final = -2147483648


@compilable
def round_half_up(x: float) -> int:
    """`Math.round(double)`: floor(x + 0.5) evaluated exactly; NaN is 0, beyond the long range it saturates."""
    if x != x:
        return 0
    if x >= 9223372036854775807.0:
        return LONG_MAX
    if x <= -9223372036854775808.0:
        return LONG_MIN
    # Adding 0.5 to the double itself would round (0.49999999999999994 + 0.5 is 1.0). The fraction is exact.
    whole = int(x)
    fraction = x - whole
    # Which way it goes is a coin toss, so without branches: a processor that guesses wrong loses more than it computes.
    return whole + int(fraction >= 0.5) - int(fraction < -0.5)


def wrap_long(x: int) -> int:
    """What a Java long holds after an addition that gives x: its low 64 bits. (Compiled, int64 does so by itself.)"""
    return (x - LONG_MIN) % 2**64 + LONG_MIN


@compilable
def long_to_int(x: int) -> int:
    """`(int) long`: the low 32 bits, so a delay of 25 days or more becomes negative or arbitrary."""
    low = x & 0xFFFFFFFF
    return low - 0x100000000 if low > INT_MAX else low


@compilable
def double_to_int(x: float) -> int:
    """`(int) double`: toward zero; NaN is 0, beyond the int range it saturates."""
    if x != x:
        return 0
    if x >= 2147483647.0:
        return INT_MAX
    if x <= -2147483648.0:
        return INT_MIN
    return int(x)
