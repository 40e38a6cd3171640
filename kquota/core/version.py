"""Kafka versions as people write them."""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from kquota.errors import InputError

Version: TypeAlias = tuple[int, int, int]
"""Major, minor and patch; 0.10.1 is (0, 10, 1)."""

NEWEST: Final[Version] = (4, 0, 0)
"""What brokers are taken to be unless somebody says."""

_VERSION: Final = re.compile(r"v?(?P<numbers>\d+(?:\.\d+)*)(?:[-.](?P<suffix>[A-Za-z].*))?", re.ASCII)


def parse_version(text: str) -> Version:
    """The version of a Kafka release: `3.7.1`, `3.8`, `4.0.0`, `3.9-IV0`, `0.10.2.1`; what is not said is 0.

    Raises InputError for another text, for a version of Confluent Platform, and for 3 alone: Kafka 3.8 changed how
    samples are dropped.
    """
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{text!r} is not a Kafka version", hint="for example 3.7 or 4.0.0")
    if (match["suffix"] or "").lower().startswith(("ccs", "ce")):
        raise InputError(
            f"{text!r} is a version of Confluent Platform", hint="give the Kafka version in it: 7.5 is Kafka 3.5"
        )
    numbers = [int(number) for number in match["numbers"].split(".")]
    if numbers == [3]:
        raise InputError(f"Kafka version {text!r} is ambiguous", hint="3.7 and 3.8 drop samples differently")
    major, minor, patch, *_ = [*numbers, 0, 0]
    return major, minor, patch
