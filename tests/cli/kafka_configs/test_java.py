"""Habits of Java and Scala; the expected values are the answers of JDK 17 and Scala 2.13.18."""

from __future__ import annotations

import re
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from kquota.cli.kafka_configs import java
from kquota.core.java import string_hash

NAMES = [
    "SCRAM-SHA-512",
    "SCRAM-SHA-256",
    "request_percentage",
    "producer_byte_rate",
    "consumer_byte_rate",
    "controller_mutation_rate",
    "foo",
    "bar",
    "k1",
    "k2",
    "a",
    "b",
]


def test_orders_of_hash_tables() -> None:
    assert string_hash("foo") == 101574
    assert string_hash("😀") == 1772899
    properties = "SCRAM-SHA-512 bar SCRAM-SHA-256 k1 request_percentage foo k2 producer_byte_rate consumer_byte_rate"
    assert java.properties_order(NAMES[:10]) == [*properties.split(), "controller_mutation_rate"]
    larger = "SCRAM-SHA-512 a b SCRAM-SHA-256 k1 request_percentage foo k2 producer_byte_rate consumer_byte_rate"
    assert java.properties_order(NAMES) == [*larger.split(), "controller_mutation_rate", "bar"]
    assert java.mutable_set_order(NAMES) == [*larger.replace("foo k2", "k2 foo").split(), NAMES[5], "bar"]
    trie = "k2 controller_mutation_rate a request_percentage SCRAM-SHA-256 bar k1 foo consumer_byte_rate"
    assert java.immutable_order(NAMES) == [*trie.split(), "producer_byte_rate", "SCRAM-SHA-512", "b"]
    assert java.immutable_order(NAMES[:4]) == NAMES[:4]
    four = [(name, string_hash(name)) for name in NAMES[2:6]]
    assert java.hash_map_order(four) == [NAMES[3], NAMES[4], NAMES[5], NAMES[2]]
    assert java.hash_map_order(four[:1] + four[2:]) == [NAMES[4], NAMES[5], NAMES[2]]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1024, "1024.0"), (12.3, "12.3"), (0.5, "0.5"), (1e7, "1.0E7"), (9999999.999, "9999999.999"), (1e-3, "0.001"),
        (0.00099, "9.9E-4"), (1e-7, "1.0E-7"), (10 * 2**20, "1.048576E7"), (2**63 - 1, "9.223372036854776E18"),
        (-0.0, "-0.0"), (1 / 3, "0.3333333333333333"), (123456789.125, "1.23456789125E8"),
        (1.7976931348623157e308, "1.7976931348623157E308"), (float("nan"), "NaN"), (float("-inf"), "-Infinity"),
        (5e-324, "4.9E-324"), (1e-323, "9.9E-324"), (2e-323, "2.0E-323"), (-3e-9, "-3.0E-9"),
    ],
)  # fmt: skip
def test_numbers_as_text(number: float, text: str) -> None:
    assert java.double_text(float(number)) == text


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1e3", 1000.0), (" 5 ", 5.0), ("1024d", 1024.0), ("1f", 1.0), ("+5", 5.0), ("007", 7.0), (".5", 0.5),
        ("5.", 5.0),
        ("0x1p3", 8.0), ("0x1.8p1f", 3.0), ("0x.8p1", 1.0), ("Infinity", float("inf")), ("-Infinity", float("-inf")),
        ("1e400", float("inf")), ("0x1p99999", float("inf")),
        ("nan", None), ("inf", None), ("1_000", None), ("0x10", None), ("10MB", None), ("", None), ("１", None),
        ("1e", None), (".", None), ("0xp1", None),
    ],
)  # fmt: skip
def test_texts_as_doubles(text: str, number: float | None) -> None:
    assert java.parse_double(text) == number


def test_nan_is_a_double() -> None:
    assert str(java.parse_double("NaN")) == "nan"


@pytest.mark.parametrize(
    ("text", "decoded"),
    [("+a%20", " a "), ("%e6%97%A5", "日"), ("%C3%BC", "ü"), ("ok%ff", "ok\ufffd"), ("日", "日"), ("%+1", "\x01")],
)
def test_url_decoding(text: str, decoded: str) -> None:
    assert java.url_decode(text) == decoded


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("50%", "URLDecoder: Incomplete trailing escape (%) pattern"),
        ("%1", "URLDecoder: Incomplete trailing escape (%) pattern"),
        ("%zz1", 'URLDecoder: Illegal hex characters in escape (%) pattern - Error at index 0 in: "zz"'),
        ("%1g", 'URLDecoder: Illegal hex characters in escape (%) pattern - Error at index 1 in: "1g"'),
        ("%-1", "URLDecoder: Illegal hex characters in escape (%) pattern - negative value"),
    ],
)
def test_bad_escapes(text: str, message: str) -> None:
    with pytest.raises(java.IllegalArgument, match=re.escape(message)):
        java.url_decode(text)


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("/config/users/.", "relative paths not allowed @14"),
        ("/config/users/..", "relative paths not allowed @15"),
        ("/config/users/./clients/a", "relative paths not allowed @14"),
        ("/a//b", "empty node name specified @3"),
        ("/a\0", "null character not allowed @2"),
        ("/a\x7f", "invalid character @2"),
        ("/😀", "invalid character @1"),
        ("/config/users/...", None),
        ("/config/users/a..b", None),
    ],
)
def test_paths(path: str, fault: str | None) -> None:
    if fault is None:
        java.check_path(path)
    else:
        with pytest.raises(java.IllegalArgument, match=re.escape(f'Invalid path string "{path}" caused by {fault}')):
            java.check_path(path)


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("", True), ("1.2.3.4", True), ("1.2", True), ("1", True), ("01.02.03.04", True), ("::1", True),
        ("[::1]", True),
        ("known", True), ("unknown", False), ("256.1.1.1", False), ("4294967296", False), ("1.2.3.4.5", False),
        ("0x7f.1", False), ("fe80::1%nowhere", False), ("::g", False), ("[::1", False), ("A,B", False), ("a b", False),
        ("1.2.3.4 ", False), ("ｋｎｏｗｎ", False),
    ],
)  # fmt: skip
def test_hosts(host: str, known: bool) -> None:
    def resolve(name: str) -> None:
        if name.encode("idna") != b"known":  # as Python's own does
            raise OSError(name)

    assert java.resolves(host, resolve) == known


@pytest.mark.parametrize(
    ("host", "addresses", "known"),
    [
        ("fe80::1%lo", [], False),
        ("fe80::1%lo", ["::1"], False),
        ("fe80::1%lo", ["fe80::9"], True),
        ("::1%lo", ["::1"], True),
        ("fec0::1%lo", ["fe80::9"], False),
    ],
)
def test_a_zone_needs_an_address_as_local(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, addresses: list[str], known: bool
) -> None:
    """`Inet6Address.deriveNumericScope`: of the interface, one that is as local as the one asked for."""
    file = tmp_path / "if_inet6"
    file.write_text("".join(f"{IPv6Address(each).packed.hex()} 01 80 10 80       lo\n" for each in addresses))
    monkeypatch.setattr(java, "_ADDRESSES", file)
    assert java.resolves(host) == known
