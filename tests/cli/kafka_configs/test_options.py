"""The command line as Kafka reads it."""

from __future__ import annotations

import pytest

from kquota.cli.kafka_configs.options import Options

USER = ["u"]


@pytest.mark.parametrize(
    ("argv", "user"),
    [
        (["--user", "u"], USER),
        (["--user=u"], USER),
        (["-user", "u"], USER),
        (["-user=u"], USER),
        (["--user=a=b"], ["a=b"]),
        (["--user="], [""]),
        (["--user=", "x"], [""]),
        (["--user", ""], [""]),
        (["--user", "--"], ["--"]),
        (["--user", "--describe"], ["--describe"]),
        (["stray", "--user", "u", "word", "-"], USER),
        (["--", "--user", "u"], []),
        (["--alter=nonsense", "--user", "u"], USER),
    ],
)
def test_reads_options_as_kafka_does(argv: list[str], user: list[str]) -> None:
    assert Options(argv).values("user") == user


@pytest.mark.parametrize(
    ("argv", "keys"),
    [
        (["--delete-config", "a,,b"], ["a", "b"]),
        (["--delete-config=,a,"], ["a"]),
        (["--delete-config", "a", "--delete-config", "b"], ["a", "b"]),
        (["--delete-config", ""], [""]),
        (["--delete-config", ","], [","]),
    ],
)
def test_lists_lose_empty_items(argv: list[str], keys: list[str]) -> None:
    assert Options(argv).values("delete-config") == keys


@pytest.mark.parametrize(
    ("line", "types", "names"),
    [
        ("--user A --client B", ["clients", "users"], ["B", "A"]),
        ("--client B --user A", ["clients", "users"], ["B", "A"]),
        ("--user A --client-defaults", ["users", "clients"], ["A", ""]),
        ("--user-defaults --client B", ["clients", "users"], ["B", ""]),
        ("--user-defaults --client-defaults", ["clients", "users"], ["", ""]),
        ("--entity-type users --entity-type clients --entity-name A --entity-default", ["users", "clients"], ["A", ""]),
        ("--entity-default --entity-name B --entity-type users --entity-type clients", ["users", "clients"], ["", "B"]),
        ("--group g --topic t", ["topics", "groups"], ["t", "g"]),
    ],
)
def test_types_and_names_are_paired_by_position(line: str, types: list[str], names: list[str]) -> None:
    options = Options(line.split())
    assert (options.entity_types, options.entity_names) == (types, names)
