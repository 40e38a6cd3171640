"""What is to be set, as Kafka splits it."""

from __future__ import annotations

import pytest

from kquota.cli.kafka_configs.configs import double_text, parse_double, parse_pairs
from kquota.cli.kafka_configs.options import Refusal


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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1024", "1024.0"),
        ("1e7", "1.0E7"),
        ("10485760", "1.048576E7"),
        ("+5d", "5.0"),
        (" .5 ", "0.5"),
        ("1e-4", "1.0E-4"),
        ("-1", "-1.0"),
        ("9223372036854775807", "9.223372036854776E18"),
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
    ],
)
def test_numbers_are_read_and_shown_as_kafka_does(text: str, shown: str) -> None:
    number = parse_double(text)
    assert number is not None
    assert double_text(number) == shown


@pytest.mark.parametrize("text", ["", "10MB", "1_000", "nan", "0x10", "1e"])
def test_no_numbers(text: str) -> None:
    assert parse_double(text) is None
