"""What is to be set, as Kafka splits it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.cli.kafka_configs import java
from kquota.cli.kafka_configs.configs import parse_pairs
from kquota.cli.kafka_configs.failures import Refusal


def reference_split(text: str, is_separator: Callable[[str, int], int]) -> list[str]:
    """`String.split(regex, -1)`, character by character."""
    pieces, start, position = [], 0, 0
    while position < len(text):
        length = is_separator(text, position)
        if length:
            pieces.append(text[start:position])
            position = start = position + length
        else:
            position += 1
    return [*pieces, text[start:]]


def outside(text: str, position: int) -> bool:
    """Whether the next bracket opens, or there is none."""
    bracket = next((character for character in text[position:] if character in "[]"), "[")
    return bracket == "["


def comma(text: str, position: int) -> int:
    return int(text[position] == "," and outside(text, position + 1))


def equals(text: str, position: int) -> int:
    blanks = " \t\n\v\f\r"
    end = position
    while end < len(text) and text[end] in blanks:
        end += 1
    if end == len(text) or text[end] != "=" or not outside(text, end + 1):
        return 0
    end += 1
    while end < len(text) and text[end] in blanks:
        end += 1
    return end - position


def reference_pairs(text: str) -> dict[str, str] | None:
    pieces = reference_split(text, comma)
    if len(pieces) > 1:
        while pieces and not pieces[-1]:
            pieces.pop()
    pairs = [reference_split(piece, equals) for piece in pieces]
    if any(len(pair) != 2 for pair in pairs):
        return None
    return {java.trim(key): java.trim(re.sub(r"\[?\]?", "", value)) for key, value in pairs}


@given(st.text(alphabet="ab=,[] \t\n\r\v\u00a0\u2028", max_size=24))
def test_pairs_are_split_as_java_splits_them(text: str) -> None:
    expected = reference_pairs(text)
    if expected is None:
        with pytest.raises(Refusal, match="Invalid entity config"):
            parse_pairs(text)
    else:
        assert parse_pairs(text) == expected


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("k=1,", {"k": "1"}),
        (",", {}),
        (" k = 1 , j = 2 ", {"k": "1", "j": "2"}),
        ("k=[[5]]", {"k": "5"}),
        ("k=[5", {"k": "5"}),
        ("k=[10,24],j=1", {"k": "10,24", "j": "1"}),
        ("k=1,k=2", {"k": "2"}),
        ("k=", {"k": ""}),
        ("=5", {"": "5"}),
        ("S=[iterations=8192,password=a=b,c]", {"S": "iterations=8192,password=a=b,c"}),
    ],
)
def test_pairs(text: str, pairs: dict[str, str]) -> None:
    assert parse_pairs(text) == pairs


@pytest.mark.parametrize(
    "text", ["", "k", "k==1", "a==", ",k=1", "k=1,,j=2", "k=1,024", "k=5]", "k=5],j=6", "a=[b,c,d=e", "a,=b"]
)
def test_no_pairs(text: str) -> None:
    with pytest.raises(Refusal, match="Invalid entity config"):
        parse_pairs(text)
