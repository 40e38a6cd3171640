import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota import DEFAULT, Entity, InputError, QuotaKey
from kquota.core.quotas.quota import (
    INT_MAX,
    LONG_MAX,
    Value,
    check_value,
    format_number,
    format_value,
    humanize,
    limit_text,
    parse_stored,
    parse_value,
)
from tests.core import strategies as given_

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
REQUEST = QuotaKey.REQUEST_PERCENTAGE
MUTATION = QuotaKey.CONTROLLER_MUTATION_RATE
CONNECTION = QuotaKey.CONNECTION_CREATION_RATE


@given(given_.keys_and_values)
def test_what_is_formatted_reads_back_exactly(key_and_value: tuple[QuotaKey, Value]) -> None:
    key, value = key_and_value
    text = format_value(key, value)
    assert parse_value(key, text) == value
    assert parse_stored(key, text) == value
    assert type(parse_value(key, text)) is (int if key.value_type.integral else float)
    assert "e" not in text.lower()


@given(given_.keys_and_values)
def test_what_people_see_is_exact(key_and_value: tuple[QuotaKey, Value]) -> None:
    key, value = key_and_value
    text = humanize(key, value)
    assert parse_value(key, text) == value
    if key.unit != "bytes/s" and key is not REQUEST:
        assert text == f"{format_value(key, value)} {key.unit}"


@pytest.mark.parametrize(
    ("key", "text", "meant"),
    [
        (PRODUCE, "10mb", "10MB"),
        (PRODUCE, "10M", "10MB"),
        (PRODUCE, "10 G", "10GB"),
        (PRODUCE, "10Mi", "10MiB"),
        (PRODUCE, "1.5mib/s", "1.5MiB"),
        (PRODUCE, "10K", "10kB"),
        (PRODUCE, "10Mbytes", "10MB"),
        (PRODUCE, "1_000_000", "1000000"),
        (PRODUCE, "1,000,000", "1000000"),
        (CONNECTION, "1'000", "1000"),
    ],
)
def test_a_value_that_is_nearly_right_gets_a_suggestion_that_is_right(key: QuotaKey, text: str, meant: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_value(key, text)
    assert caught.value.hint == f"did you mean {meant}?"
    parse_value(key, meant)


@pytest.mark.parametrize("text", ["10Mb", "500 kb/s", "1 mb/s", "10Gib", "10 Mbit/s", "10mbps", "10 parsecs"])
def test_a_unit_that_may_mean_bits_gets_no_suggestion(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_value(PRODUCE, text)
    assert caught.value.hint is not None
    assert "did you mean" not in caught.value.hint
    assert ("may mean bits" in caught.value.hint) == ("parsecs" not in text)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        (PRODUCE, "1024", 1024),
        (PRODUCE, " 1024 ", 1024),
        (PRODUCE, "1.5MB", 1_500_000),
        (PRODUCE, "10MiB/s", 10 * 2**20),
        (PRODUCE, "10 MBps", 10_000_000),
        (PRODUCE, "1kB", 1000),
        (PRODUCE, "1KB", 1000),
        (PRODUCE, "1KiB", 1024),
        (PRODUCE, "2TiB/s", 2 * 2**40),
        (PRODUCE, "1e6", 1_000_000),
        (PRODUCE, "1.048576E7", 10_485_760),  # as kafka-configs prints it
        (PRODUCE, "+5B", 5),
        (PRODUCE, ".5kB", 500),
        (PRODUCE, "9223372036854775807", LONG_MAX),
        (PRODUCE, "9223372036854775700", LONG_MAX),
        (PRODUCE, "9007199254740993", 2**53),
        (REQUEST, "50%", 50.0),
        (REQUEST, "12.5 %", 12.5),
        (REQUEST, "200", 200.0),
        (MUTATION, "0.5/s", 0.5),
        (CONNECTION, "100/s", 100),
        (CONNECTION, "2147483647", INT_MAX),
    ],
)
def test_values_as_people_write_them(key: QuotaKey, text: str, value: Value) -> None:
    parsed = parse_value(key, text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        *((PRODUCE, text) for text in ("", " ", "abc", "MB", "1 2", "1_000", "0x10", "1e", "--1", "١")),
        *((PRODUCE, text) for text in ("0", "-1", "0.0MB", "NaN", "inf", "Infinity", "-Infinity")),
        *(
            (PRODUCE, text)
            for text in ("1.5", "1.0001kB", "9223372036854775808", "1e30", "1e999999999", "1e-999999999")
        ),
        *((PRODUCE, text) for text in ("5%", "5/s", "5mb", "5Mb", "5KIB", "5MB/m", "5 bytes")),
        *((REQUEST, text) for text in ("5MB", "5/s", "0%", "1e400", "1e-400")),
        *((CONNECTION, text) for text in ("2147483648", "0.5", "5B", "5%")),
    ],
)
def test_what_is_no_value(key: QuotaKey, text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_value(key, text)
    assert str(key) in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("text", ["-1MB", " 0kB ", "9999999TB", "1.5B"])
def test_a_value_out_of_range_is_repeated_as_typed(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_value(PRODUCE, text)
    assert f": {text.strip()} " in caught.value.message


@pytest.mark.parametrize(
    "number", [math.nan, math.inf, -math.inf, 0, -1, -0.0, 0.0, Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity")]
)
@pytest.mark.parametrize("key", list(QuotaKey))
def test_numbers_that_no_key_takes(key: QuotaKey, number: float | Decimal) -> None:
    with pytest.raises(InputError):
        check_value(key, number)


@given(st.integers(1, LONG_MAX))
def test_a_whole_double_is_a_long(number: int) -> None:
    value = check_value(PRODUCE, Decimal(number))
    assert value == min(int(float(number)), LONG_MAX)
    assert type(value) is int


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (50.0, "50"),
        (12.3, "12.3"),
        (1e22, "1" + "0" * 22),
        (1e-7, "0.0000001"),
        (0.1, "0.1"),
        (10_485_760, "10485760"),
        (100, "100"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
    ],
)
def test_numbers_in_plain_decimals(number: float, text: str) -> None:
    assert format_number(number) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1 B/s"),
        (1500, "1.5 kB/s"),
        (1555, "1555 B/s"),
        (10 * 2**20, "10 MiB/s"),
        (3 * 2**19, "1.5 MiB/s"),
        (10**7, "10 MB/s"),
        (-1024, "-1 KiB/s"),
        # Three decimal digits go first, also where a binary unit is exact.
        (160_000, "160 kB/s"),
        (320_000, "320 kB/s"),
        (640_000, "640 kB/s"),
        (128_000, "128 kB/s"),
        # More digits than three: the shorter one, of whole KiB only.
        (10_240, "10 KiB/s"),
        (102_400, "100 KiB/s"),
        (156_250, "156.25 kB/s"),
        (1536, "1536 B/s"),
        (2**40, "1 TiB/s"),
        (LONG_MAX, f"{LONG_MAX} B/s"),
    ],
)
def test_rates_in_the_largest_exact_unit(value: int, text: str) -> None:
    assert humanize(PRODUCE, value) == text


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        (PRODUCE, "1024", 1024),
        (PRODUCE, "+5", 5),
        (PRODUCE, "-5", -5),
        (PRODUCE, "0", 0),
        (PRODUCE, "9223372036854775807", LONG_MAX),
        (PRODUCE, "-9223372036854775808", -LONG_MAX - 1),
        (PRODUCE, "9999999999999999", 10**16),
        (PRODUCE, "9223372036854775808", None),
        (PRODUCE, "1024.0", None),
        (PRODUCE, " 1024", None),
        (PRODUCE, "1e3", None),
        (PRODUCE, "1_000", None),
        (PRODUCE, "", None),
        (PRODUCE, "NaN", None),
        (CONNECTION, "2147483647", INT_MAX),
        (CONNECTION, "2147483648", None),
        (CONNECTION, "-2147483648", -INT_MAX - 1),
        (REQUEST, "50", 50.0),
        (REQUEST, " 50.5 ", 50.5),
        (REQUEST, "1.048576E7", 10_485_760.0),
        (REQUEST, "5d", 5.0),
        (REQUEST, "5F", 5.0),
        (PRODUCE, "0" * 5000 + "7", 7),
        (PRODUCE, "9" * 5000, None),
        (PRODUCE, "-0", 0),
        (REQUEST, "\u00a050", None),
        (REQUEST, "\x00 50\t", 50.0),
        (REQUEST, ".5", 0.5),
        (REQUEST, "5.", 5.0),
        (REQUEST, "Infinity", math.inf),
        (REQUEST, "-Infinity", -math.inf),
        (REQUEST, "inf", None),
        (REQUEST, "nan", None),
        (REQUEST, "1_0", None),
        (REQUEST, "", None),
        (REQUEST, "50%", None),
    ],
)
def test_stored_values_as_a_broker_reads_them(key: QuotaKey, text: str, value: Value | None) -> None:
    assert parse_stored(key, text) == value


@pytest.mark.parametrize("key", list(QuotaKey))
def test_keys_and_the_entities_that_carry_them(key: QuotaKey) -> None:
    for_ips = key is CONNECTION
    assert key.allowed_for(Entity(ip=DEFAULT)) == for_ips
    assert key.allowed_for(Entity(user="a")) != for_ips
    assert key.allowed_for(Entity(client_id=DEFAULT)) != for_ips
    assert key.allowed_for(Entity(user="a", client_id="b")) != for_ips
    assert QuotaKey.parse(str(key)) is key


@pytest.mark.parametrize(
    "name", ["", "producer", "PRODUCER_BYTE_RATE", "controller_mutations_rate", "controller_mutations_burst"]
)
def test_unknown_keys(name: str) -> None:
    with pytest.raises(InputError) as caught:
        QuotaKey.parse(name)
    assert caught.value.hint


def test_on_many_brokers_a_value_counts_for_each_but_mutations_go_by_one_controller() -> None:
    amounts = {key: key.on_brokers(5, 3) for key in QuotaKey}
    assert amounts.pop(QuotaKey.CONTROLLER_MUTATION_RATE) == 5
    assert set(amounts.values()) == {15}


def test_the_largest_value_is_kafkas_word_for_no_limit() -> None:
    """In describe and lint as in resolve."""
    assert limit_text(QuotaKey.PRODUCER_BYTE_RATE, 2**63 - 1) == "unlimited (Long.MAX_VALUE)"
    assert limit_text(QuotaKey.CONNECTION_CREATION_RATE, 2**31 - 1) == "unlimited (Integer.MAX_VALUE)"
