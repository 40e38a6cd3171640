"""The drop-in kafka-configs: what it says to every command line, and what it does on a real ZooKeeper and broker."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.backends.zookeeper.raw import RawConfigs
from kquota.cli.kafka_configs import command, java, run
from kquota.cli.kafka_configs.configs import parse_pairs
from kquota.cli.kafka_configs.failures import Refusal, shown_arguments
from kquota.cli.kafka_configs.options import parse
from kquota.cli.kafka_configs.scram import stored_credential
from kquota.cli.kafka_configs.tool import CURRENT
from kquota.core.entity import Entity
from kquota.errors import Rejected
from tests.brokers.kafka import KafkaBroker

WARNING = (
    "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.\n"
    "Use --bootstrap-server instead to specify a broker to connect to.\n"
)
FORMAT = 'requirement failed: Invalid entity config: all configs to be added must be in the format "key=val".'


@dataclass(frozen=True)
class Ran:
    """What a command line came to."""

    code: int
    out: str
    err: str

    @property
    def first(self) -> str:
        """The first line of stderr."""
        return self.err.partition("\n")[0]


Tool = Callable[..., Ran]


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Runs a command line in this process; one text is split at blanks."""
    for name in ("KQUOTA_KAFKA_CONFIGS", "KQUOTA_ZOOKEEPER_USERNAME", "KQUOTA_ZOOKEEPER_PASSWORD"):
        monkeypatch.delenv(name, raising=False)

    def execute(*argv: str) -> Ran:
        words = argv[0].split() if len(argv) == 1 else argv
        code = run(words)
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return execute


# --- The command line ---

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
def test_reads_options_as_jopt_does(argv: list[str], user: list[str]) -> None:
    assert parse(argv, CURRENT).values("user") == user


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
    assert parse(argv, CURRENT).values("delete-config") == keys


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
    options = parse(line.split(), CURRENT)
    assert (options.entity_types, options.entity_names) == (types, names)


ACTION = "Command must include exactly one action: --describe, --alter"
USAGE_FOLLOWS = frozenset({ACTION, 'Option "[describe]" can\'t be used with option "[add-config]"'})
ZK_TYPES = "the entity type must be one of topics,clients,users,brokers,ips with the --zookeeper argument"
BROKER_TYPES = (
    "the entity type must be one of topics, clients, users, brokers, ips, broker-loggers, client-metrics, groups"
    " with a --bootstrap-server or --bootstrap-controller argument"
)
ADD = "--add-config producer_byte_rate=1"
Z, B = "--zookeeper 127.0.0.1:1", "--bootstrap-server 127.0.0.1:1"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--blah", "blah is not a recognized option"),
        ("--blah=3", "blah is not a recognized option"),
        ("-blah", "b is not a recognized option"),
        ("---user u", "-user is not a recognized option"),
        (f"{B} --desc", "desc is not a recognized option"),
        (f"{Z} --describe --group g", "group is not a recognized option"),
        (f"{B} --describe --user", "Option user requires an argument"),
        (f"{B} --user alice", ACTION),
        (f"{Z} --user alice --describe --alter", ACTION),
        (f"{Z} --user a --describe {ADD}", 'Option "[describe]" can\'t be used with option "[add-config]"'),
        (
            f"{B} --user a --describe --delete-config k {ADD}",
            'Option "[describe]" can\'t be used with option "[add-config]"',
        ),
        (
            f"{B} --user a --describe --delete-config k",
            'Option "[describe]" can\'t be used with option "[delete-config]"',
        ),
        (f"{B} --describe --user a --user-defaults", "Duplicate entity type(s) specified: users"),
        (
            f"{B} --describe --entity-type x --entity-type x --entity-type x",
            "Duplicate entity type(s) specified: x,x",
        ),
        (f"{Z} --describe --entity-type bogus", f"Invalid entity type bogus, {ZK_TYPES}"),
        (f"{Z} --describe --broker-logger 1", f"Invalid entity type broker-loggers, {ZK_TYPES}"),
        (f"{B} --describe --entity-type User", f"Invalid entity type User, {BROKER_TYPES}"),
        (
            "--describe --entity-type clients",
            "Invalid entity type clients, the entity type must be one of users, brokers with a --zookeeper argument",
        ),
        (f"{B} --describe", "At least one entity type must be specified"),
        (f"{B} --describe --ip 1.2.3.4 --user u", "Only 'users' and 'clients' entity types may be specified together"),
        (
            f"{Z} --entity-name A --entity-type users --client B --describe",
            "--entity-{type,name,default} should not be used in conjunction with specific entity flags",
        ),
        (
            "--describe --user u",
            "One of the required --bootstrap-server, --boostrap-controller, or --zookeeper arguments must be specified",
        ),
        (f"{Z} {B} --describe --user u", "Only one of --bootstrap-server or --zookeeper must be specified"),
        (
            f"{B} {Z} --describe --user u",
            "Only one of --bootstrap-server, --boostrap-controller, and --zookeeper can be specified",
        ),
        (f"{Z} --all --describe --user u", "--bootstrap-server must be specified for --all"),
        (
            f"{B} --zk-tls-config-file f --describe --user u",
            "Only the --zookeeper option can be used with the --zk-tls-config-file option.",
        ),
        (
            f"{B} --describe --broker one",
            "The entity name for brokers must be a valid integer broker id, but it is: one",
        ),
        (
            f"{Z} --describe --ip A,B",
            "The entity name for ips must be a valid IP or resolvable host, but it is: A,B",
        ),
        (
            f"{B} --describe --entity-type ips --entity-name 1.2.3.456",
            "The entity name for ips must be a valid IP or resolvable host, but it is: 1.2.3.456",
        ),
        (
            f"{B} --describe --entity-type ips --entity-name 1.2 --entity-name 1.3",
            "Found multiple arguments for option entity-name, but you asked for only one",
        ),
        (
            f"{B} --describe --user u --user v",
            "Found multiple arguments for option user, but you asked for only one",
        ),
        (
            f"{B} --describe --entity-type topics --entity-default",
            "--entity-default must not be specified with --describe of topics",
        ),
        (
            f"{B} --describe --entity-type broker-loggers",
            "An entity name must be specified with --describe of broker-loggers",
        ),
        (
            f"{Z} --alter --entity-type users {ADD}",
            "an entity-name or default entity must be specified with --alter of users, clients, brokers or ips",
        ),
        (
            f"{B} --alter --entity-type users {ADD}",
            "An entity-name or default entity must be specified with --alter of users, clients, brokers or ips",
        ),
        (f"{B} --alter --entity-type groups", "An entity name must be specified with --alter of groups"),
        (f"{Z} --alter --entity-type topics", "an entity name must be specified with --alter of topics"),
        (
            f"{B} --alter --user u {ADD} --add-config-file f",
            "Only one of --add-config or --add-config-file must be specified",
        ),
        (
            f"{B} --alter --user u",
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter",
        ),
        (
            f"{B} --describe --topic t",
            "kquota: topics have no quotas: use Kafka's own kafka-configs (kquota knows users, clients, ips)",
        ),
        # Past the checks, before anything is sent.
        (
            f"{B} --alter --entity-type users {ADD} --entity-name a --entity-name b",
            "An entity name must be specified for every entity type",
        ),
        (
            f"{B} --describe --entity-type users --entity-name a --entity-name b",
            "More entity names specified than entity types",
        ),
        (f"{B} --alter --user u --add-config a==", FORMAT),
        (f"{B} --alter --user u --add-config a;c=b", "Invalid character found for config key: a;c"),
        (
            f"{B} --alter --user u --add-config foo=1,bar=2",
            "Only quota and SCRAM credential configs can be added for 'users' using --bootstrap-server."
            " Unexpected config names: Set(bar, foo)",
        ),
        (
            f"{B} --alter --user u --delete-config foo,bar",
            "Only quota and SCRAM credential configs can be deleted for 'users' using --bootstrap-server."
            " Unexpected config names: ArrayBuffer(foo, bar)",
        ),
        (
            f"{B} --alter --user u --client c --add-config SCRAM-SHA-256=[password=x]",
            "Only quota configs can be added for 'clients' using --bootstrap-server."
            " Unexpected config names: Set(SCRAM-SHA-256)",
        ),
        (
            f"{B} --alter --client c --add-config foo=1,SCRAM-SHA-512=[password=x],bar=2,baz=3,qux=4,q=1",
            "Only quota configs can be added for 'clients' using --bootstrap-server."
            " Unexpected config names: HashSet(qux, bar, baz, foo, q, SCRAM-SHA-512)",
        ),
        (
            f"{B} --alter --ip 1.2.3.4 --add-config foo=1,bar=2 --delete-config bar,baz",
            "Only connection quota configs can be added for 'ips' using --bootstrap-server."
            " Unexpected config names: bar,foo,baz",
        ),
        (
            f"{B} --alter --user-defaults --delete-config SCRAM-SHA-256",
            "The use of --entity-default or --user-defaults is not allowed with User SCRAM Credentials using"
            " --bootstrap-server.",
        ),
        (
            f"{B} --alter --user u --add-config SCRAM-SHA-256=[password=x],producer_byte_rate=1",
            "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' using --bootstrap-server.",
        ),
        (
            f"{B} --alter --user u --delete-config SCRAM-SHA-256",
            "kquota: SCRAM credentials are no quotas: alter them with Kafka's own kafka-configs",
        ),
    ],
)
def test_refuses_with_kafkas_words(tool: Tool, line: str, message: str) -> None:
    ran = tool(line)
    assert (ran.code, ran.out) == (1, "")
    assert ran.first == message
    has_usage = message in USAGE_FOLLOWS or "can't be used" in message
    assert len(ran.err.splitlines()) == 1 or has_usage
    assert ("--describe  " in ran.err) == has_usage


@pytest.mark.parametrize("line", ["", "--help", f"{Z} --describe --user u --help"])
def test_help_is_an_error(tool: Tool, line: str) -> None:
    ran = tool(*line.split()) if line != "--help" else tool("--help")
    assert (ran.code, ran.out) == (1, "")
    assert ran.first.startswith("This tool helps to manipulate and describe entity config for a topic, client,")
    assert "--entity-default" in ran.err


@pytest.mark.parametrize(("line", "version"), [("--version", "4."), (f"{Z} --version", "2.8.0 (Commit:")])
def test_version(tool: Tool, line: str, version: str) -> None:
    ran = tool(line)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(version)


def test_the_environment_chooses_the_tool(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KQUOTA_KAFKA_CONFIGS", "current")
    refused = "Invalid entity type ips, the entity type must be one of users, brokers with a --zookeeper argument\n"
    assert tool(f"{Z} --describe --entity-type ips") == Ran(1, "", refused)
    monkeypatch.setenv("KQUOTA_KAFKA_CONFIGS", "1.0")
    assert tool("--version").first == "kquota: KQUOTA_KAFKA_CONFIGS is '1.0', not one of 2.8, current"


def test_click_leaves_the_words_alone(capsys: pytest.CaptureFixture[str]) -> None:
    group = click.Group("kquota", commands={"kafka-configs": command})
    argv = ["kafka-configs", *B.split(), "--describe", "-user", "--", "--user", "--help"]
    assert group.main(argv, standalone_mode=False) == 1
    assert capsys.readouterr().err.startswith("Found multiple arguments for option user")


@pytest.mark.parametrize(
    ("line", "exception", "note"),
    [
        (
            f"{Z} --describe --user u",
            "kafka.zookeeper.ZooKeeperClientTimeoutException: Timed out waiting for connection while in state: "
            "CONNECTING",
            "kquota: cannot reach ZooKeeper at 127.0.0.1:1: connection refused",
        ),
        (
            f"{B} --describe --user u",
            "java.util.concurrent.TimeoutException",
            "kquota: cannot reach Kafka at 127.0.0.1:1: connection refused",
        ),
        (
            "--bootstrap-server nonsense --describe --user u",
            "org.apache.kafka.common.KafkaException: Failed to create new KafkaAdminClient",
            "kquota: malformed bootstrap server 'nonsense'",
        ),
        (
            "--bootstrap-controller 127.0.0.1:1 --describe --user u",
            "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.UnsupportedEndpointTypeException:"
            " This Admin API is not yet supported when communicating directly with the controller quorum.",
            None,
        ),
        (
            f"{B} --alter --user u --add-config-file /nowhere",
            "java.nio.file.NoSuchFileException: /nowhere",
            None,
        ),
        (f"{B} --alter --user u --add-config-file /", "java.io.IOException: Is a directory", None),
        (
            f"{B} --describe --user u --command-config /nowhere",
            "java.nio.file.NoSuchFileException: /nowhere",
            None,
        ),
        (
            f"{B} --alter --user u --client c --add-config ,",
            "java.lang.IllegalStateException: Altering user SCRAM credentials should never occur for more zero or"
            " multiple users: List(c, u)",
            None,
        ),
    ],
)
def test_anything_else_fails_with_javas_exception(tool: Tool, line: str, exception: str, note: str | None) -> None:
    ran = tool(line)
    lines = [f"Error while executing config command with args '{line}'", exception, *([note] if note else [])]
    assert (ran.code, ran.err.splitlines()) == (1, lines)


def test_passwords_are_never_shown(tool: Tool) -> None:
    for secret in ("[password=hunter2]", "[iterations=8192,password=hunter2]x,hunter2]", "[password=hunter2"):
        for name in ("SCRAM-SHA-256", "foo"):
            ran = tool(*Z.split(), "--alter", "--user", "u", f"--add-config={name}={secret},producer_byte_rate=1")
            assert ran.code == 1
            assert "hunter2" not in ran.err + ran.out
    assert shown_arguments(["a=[password=x],b=1", "c"]) == "a=[password=********],b=1 c"


# --- What is to be added ---


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


# --- Java (expected values are the answers of JDK 17 and Scala 2.13.18) ---

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
    assert java.string_hash("foo") == 101574
    assert java.string_hash("😀") == 1772899
    properties = "SCRAM-SHA-512 bar SCRAM-SHA-256 k1 request_percentage foo k2 producer_byte_rate consumer_byte_rate"
    assert java.properties_order(NAMES[:10]) == [*properties.split(), "controller_mutation_rate"]
    larger = "SCRAM-SHA-512 a b SCRAM-SHA-256 k1 request_percentage foo k2 producer_byte_rate consumer_byte_rate"
    assert java.properties_order(NAMES) == [*larger.split(), "controller_mutation_rate", "bar"]
    assert java.mutable_set_order(NAMES) == [*larger.replace("foo k2", "k2 foo").split(), NAMES[5], "bar"]
    trie = "k2 controller_mutation_rate a request_percentage SCRAM-SHA-256 bar k1 foo consumer_byte_rate"
    assert java.immutable_order(NAMES) == [*trie.split(), "producer_byte_rate", "SCRAM-SHA-512", "b"]
    assert java.immutable_order(NAMES[:4]) == NAMES[:4]
    four = [(name, java.string_hash(name)) for name in NAMES[2:6]]
    assert java.hash_map_order(four) == [NAMES[3], NAMES[4], NAMES[5], NAMES[2]]
    assert java.hash_map_order(four[:1] + four[2:]) == [NAMES[4], NAMES[5], NAMES[2]]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1024, "1024.0"), (12.3, "12.3"), (0.5, "0.5"), (1e7, "1.0E7"), (9999999.999, "9999999.999"), (1e-3, "0.001"),
        (0.00099, "9.9E-4"), (1e-7, "1.0E-7"), (10 * 2**20, "1.048576E7"), (2**63 - 1, "9.223372036854776E18"),
        (-0.0, "-0.0"), (1 / 3, "0.3333333333333333"), (123456789.125, "1.23456789125E8"),
        (1.7976931348623157e308, "1.7976931348623157E308"), (float("nan"), "NaN"), (float("-inf"), "-Infinity"),
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
        ("1.2.3.4 ", False),
    ],
)  # fmt: skip
def test_hosts(host: str, known: bool) -> None:
    def resolve(name: str) -> None:
        if name != "known":
            raise OSError(name)

    assert java.resolves(host, resolve) == known


# --- ZooKeeper ---


def node(**config: str) -> bytes:
    """The data of a node."""
    text = json.dumps({"version": 1, "config": {key.replace("__", "-"): value for key, value in config.items()}})
    return text.replace(": ", ":").replace(", ", ",").encode()


def notifications(znodes: Any) -> list[str]:
    """The entity paths that were notified, in order."""
    names = sorted(znodes.get_children("/config/changes"))
    return [json.loads(znodes.get(f"/config/changes/{name}")[0])["entity_path"] for name in names]


@pytest.mark.parametrize(
    ("entity", "path", "title"),
    [
        ("--user alice", "users/alice", "user-principal 'alice'"),
        ("--client app", "clients/app", "client-id 'app'"),
        ("--user-defaults", "users/<default>", "default user-principal"),
        ("--client-defaults", "clients/<default>", "default client-id"),
        ("--client app --user alice", "users/alice/clients/app", "user-principal 'alice', client-id 'app'"),
        ("--user a --client-defaults", "users/a/clients/<default>", "user-principal 'a', default client-id"),
        ("--user-defaults --client a", "users/<default>/clients/a", "default user-principal, client-id 'a'"),
        (
            "--user-defaults --client-defaults",
            "users/<default>/clients/<default>",
            "default user-principal, default client-id",
        ),
        ("--user CN=a,L=<default>", "users/CN%3Da%2CL%3D%3Cdefault%3E", "user-principal 'CN=a,L=<default>'"),
        ("--user <default>", "users/%3Cdefault%3E", "user-principal '<default>'"),
        ("--user=", "users/<default>", "default user-principal"),
        ("--entity-type clients --entity-name c --entity-type users --entity-default", "users/<default>/clients/c",
         "default user-principal, client-id 'c'"),
        ("--ip 127.0.0.1", "ips/127.0.0.1", "ips '127.0.0.1'"),
        ("--ip ::1", "ips/::1", "ips '::1'"),
        ("--ip-defaults", "ips/<default>", "default ips"),
        ("--ip <default>", "ips/<default>", "default ips"),
    ],
)  # fmt: skip
def test_alter_and_describe(tool: Tool, chroot: str, znodes: Any, entity: str, path: str, title: str) -> None:
    key = "connection_creation_rate" if path.startswith("ips") else "producer_byte_rate"
    words = ["--zookeeper", chroot, *entity.split()]
    done = Ran(0, f"{WARNING}Completed updating config for entity: {title}.\n", "")
    assert tool(*words, "--alter", "--add-config", f"{key}=5") == done
    assert znodes.get(f"/config/{path}")[0] == node(**{key: "5"})
    assert tool(*words, "--describe") == Ran(0, f"{WARNING}Configs for {title} are {key}=5\n", "")
    assert tool(*words, "--alter", "--delete-config", key) == done
    assert znodes.get(f"/config/{path}")[0] == b'{"version":1,"config":{}}'
    assert tool(*words, "--describe") == Ran(0, f"{WARNING}Configs for {title} are \n", "")
    again = tool(*words, "--alter", "--delete-config", f"{key}, foo")
    assert again == Ran(1, WARNING, f"Invalid config(s): {key},foo\n")
    assert notifications(znodes) == [path, path]


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("producer_byte_rate", ["0", "-1", "+5", "007", "9223372036854775807", "[5]"]),
        ("request_percentage", ["0", "-1", "12.3", "NaN", "Infinity", "1e3", "5d", "10000000"]),
    ],
)
def test_texts_are_stored_as_they_are(tool: Tool, chroot: str, znodes: Any, key: str, values: Sequence[str]) -> None:
    for value in values:
        assert tool("--zookeeper", chroot, "--user", "u", "--alter", "--add-config", f"{key}={value}").code == 0
        assert znodes.get("/config/users/u")[0] == node(**{key: value.strip("[]")})


@pytest.mark.parametrize(
    ("entity", "pair", "message"),
    [
        ("--user u", "producer_byte_rate=1.5", "Invalid value 1.5 for configuration producer_byte_rate: {}LONG"),
        ("--user u", "producer_byte_rate=1e3", "Invalid value 1e3 for configuration producer_byte_rate: {}LONG"),
        ("--user u", "producer_byte_rate=", "Invalid value  for configuration producer_byte_rate: {}LONG"),
        ("--user u", "producer_byte_rate=9223372036854775808",
         "Invalid value 9223372036854775808 for configuration producer_byte_rate: {}LONG"),
        ("--client c", "request_percentage=nan", "Invalid value nan for configuration request_percentage: {}DOUBLE"),
        ("--user u", "request_percentage=x,consumer_byte_rate=y",
         "Invalid value y for configuration consumer_byte_rate: {}LONG"),
        ("--ip 1.2.3.4", "connection_creation_rate=-01",
         "Invalid value -1 for configuration connection_creation_rate: Value must be at least 0"),
        ("--ip 1.2.3.4", "connection_creation_rate=2147483648",
         "Invalid value 2147483648 for configuration connection_creation_rate: {}INT"),
    ],
)  # fmt: skip
def test_values_that_kafka_cannot_parse(
    tool: Tool, chroot: str, znodes: Any, entity: str, pair: str, message: str
) -> None:
    line = f"--zookeeper {chroot} {entity} --alter --add-config {pair}"
    exception = f"org.apache.kafka.common.config.ConfigException: {message.format('Not a number of type ')}"
    error = f"Error while executing config command with args '{line}'\n{exception}\n"
    assert tool(line) == Ran(1, WARNING, error)
    assert znodes.exists("/config") is None


@pytest.mark.parametrize(
    ("entity", "pairs", "unknown"),
    [
        ("--user u", "foo=1,bar=2", "bar, foo"),
        ("--user u", "a;c=b", "a;c"),
        ("--user u", "=5", ""),
        ("--user u", "connection_creation_rate=1", "connection_creation_rate"),
        ("--client c", "SCRAM-SHA-256=[password=x]", "SCRAM-SHA-256"),
        ("--user-defaults", "SCRAM-SHA-256=[password=x]", "SCRAM-SHA-256"),
        ("--user u --client c", "SCRAM-SHA-512=[password=x]", "SCRAM-SHA-512"),
        ("--ip 1.2.3.4", "producer_byte_rate=1", "producer_byte_rate"),
    ],
)
def test_unknown_keys(tool: Tool, chroot: str, znodes: Any, entity: str, pairs: str, unknown: str) -> None:
    ran = tool(f"--zookeeper {chroot} {entity} --alter --add-config {pairs}")
    assert ran == Ran(1, WARNING, f"requirement failed: Unknown Dynamic Configuration: HashSet({unknown}).\n")
    assert znodes.exists("/config") is None


def test_the_rest_of_a_node_is_kept(tool: Tool, chroot: str, znodes: Any) -> None:
    scram = "salt=a,stored_key=b,server_key=c,iterations=4096"
    znodes.create("/config/users/u", node(SCRAM__SHA__256=scram, consumer_byte_rate="2"), makepath=True)
    line = f"--zookeeper {chroot} --user u --alter"
    assert tool(f"{line} --add-config request_percentage=3,producer_byte_rate=1").code == 0
    everything = {"SCRAM__SHA__256": scram, "request_percentage": "3", "producer_byte_rate": "1"}
    assert znodes.get("/config/users/u")[0] == node(**everything, consumer_byte_rate="2")
    described = f"Configs for user-principal 'u' are SCRAM-SHA-256={scram},request_percentage=3,producer_byte_rate=1,"
    assert tool(f"--zookeeper {chroot} --describe --user u").out == f"{WARNING}{described}consumer_byte_rate=2\n"
    both = "--delete-config producer_byte_rate,request_percentage --add-config producer_byte_rate=7"
    assert tool(f"{line} {both}").code == 0
    assert znodes.get("/config/users/u")[0] == node(SCRAM__SHA__256=scram, consumer_byte_rate="2")


def test_an_unknown_key_that_is_there_blocks_until_it_is_deleted(tool: Tool, chroot: str, znodes: Any) -> None:
    znodes.create("/config/users/u", node(foo="bar"), makepath=True)
    line = f"--zookeeper {chroot} --user u --alter"
    blocked = tool(f"{line} --add-config producer_byte_rate=1")
    assert blocked.first == "requirement failed: Unknown Dynamic Configuration: HashSet(foo)."
    assert tool(f"{line} --delete-config foo --add-config producer_byte_rate=1").code == 0
    assert znodes.get("/config/users/u")[0] == node(producer_byte_rate="1")


@pytest.mark.parametrize("data", [b"", b"not json", b"[1]", b'{"version":1}', b'{"version":1,"config":null}'])
def test_data_that_is_no_config_counts_as_none(tool: Tool, chroot: str, znodes: Any, data: bytes) -> None:
    znodes.create("/config/users/u", data, makepath=True)
    assert tool(f"--zookeeper {chroot} --describe --user u").out == f"{WARNING}Configs for user-principal 'u' are \n"
    assert tool(f"--zookeeper {chroot} --user u --alter --add-config producer_byte_rate=1").code == 0
    assert znodes.get("/config/users/u")[0] == node(producer_byte_rate="1")


@pytest.mark.parametrize(("value", "shown"), [("1024", "1024"), ("null", "null"), ('{"a": [true]}', '{"a":[true]}')])
def test_a_value_that_is_no_string_is_an_error(tool: Tool, chroot: str, znodes: Any, value: str, shown: str) -> None:
    znodes.create("/config/users/u", f'{{"version":1,"config":{{"k":{value}}}}}'.encode(), makepath=True)
    ran = tool(f"--zookeeper {chroot} --describe --user u")
    exception = f"com.fasterxml.jackson.databind.JsonMappingException: Expected `String` value, received {shown}"
    assert (ran.code, ran.out, ran.err.splitlines()[1:]) == (1, WARNING, [exception])


@pytest.fixture
def nine(znodes: Any) -> None:
    """Nine entities, each with its own value; u2 has none."""
    paths = ["users/u1", "users/<default>", "clients/c1", "clients/<default>", "ips/<default>"]
    paths += [f"users/{user}/clients/{client}" for user in ("u1", "<default>") for client in ("c1", "<default>")]
    for number, path in enumerate(paths):
        znodes.create(f"/config/{path}", node(k=str(number)), makepath=True)
    znodes.create("/config/users/u2", b'{"version":1,"config":{}}')


U1, DU, C1, DC = "user-principal 'u1'", "default user-principal", "client-id 'c1'", "default client-id"
PAIRS = {f"{U1}, {C1} are k=5", f"{U1}, {DC} are k=6", f"{DU}, {C1} are k=7", f"{DU}, {DC} are k=8"}


@pytest.mark.usefixtures("nine")
@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("--entity-type users", {f"{U1} are k=0", f"{DU} are k=1"}),
        ("--entity-type clients", {f"{C1} are k=2", f"{DC} are k=3"}),
        ("--entity-type ips", {"default ips are k=4"}),
        ("--entity-type users --entity-type clients", PAIRS),
        ("--entity-type clients --entity-type users", PAIRS),
        ("--entity-type users --entity-name u1 --entity-type clients", {f"{U1}, {C1} are k=5", f"{U1}, {DC} are k=6"}),
        ("--entity-type users --entity-default --entity-type clients", {f"{DU}, {C1} are k=7", f"{DU}, {DC} are k=8"}),
        # Kafka takes the name for the user's.
        ("--entity-type clients --entity-name c1 --entity-type users", set()),
        ("--entity-type clients --entity-default --entity-type users", {f"{DU}, {C1} are k=7", f"{DU}, {DC} are k=8"}),
        ("--entity-type clients --entity-name u1 --entity-type users", {f"{U1}, {C1} are k=5", f"{U1}, {DC} are k=6"}),
        ("--user u2", {"user-principal 'u2' are "}),
        ("--entity-type users --entity-name u1 --entity-name more", {f"{U1} are k=0"}),
        ("--entity-type ips --add-config-file ignored", {"default ips are k=4"}),
    ],
)
def test_partial_describes(tool: Tool, chroot: str, line: str, lines: set[str]) -> None:
    ran = tool(f"--zookeeper {chroot} --describe {line}")
    assert (ran.code, ran.err) == (0, "")
    described = ran.out.removeprefix(WARNING).splitlines()
    assert len(described) == len(lines)
    assert {text.removeprefix("Configs for ") for text in described} == lines


def test_older_names_are_listed_decoded(tool: Tool, chroot: str, znodes: Any) -> None:
    for name in ("my client", "a+b", "my%20client"):
        znodes.create(f"/config/clients/{name}", node(k=name), makepath=True)
    lines = tool(f"--zookeeper {chroot} --describe --entity-type clients").out.removeprefix(WARNING).splitlines()
    assert sorted(lines) == [
        "Configs for client-id 'a b' are k=a+b",
        "Configs for client-id 'my client' are k=my client",
        "Configs for client-id 'my client' are k=my%20client",
    ]
    znodes.create("/config/clients/50%", node(k="1"))
    ran = tool(f"--zookeeper {chroot} --describe --entity-type clients")
    assert (ran.code, ran.err) == (1, "URLDecoder: Incomplete trailing escape (%) pattern\n")


def test_names_that_no_node_can_have(tool: Tool, chroot: str) -> None:
    for action in ("--describe", "--alter --add-config producer_byte_rate=1"):
        message = 'Invalid path string "/config/users/.." caused by relative paths not allowed @15\n'
        assert tool(f"--zookeeper {chroot} {action} --user ..") == Ran(1, WARNING, message)


def test_a_chroot_that_is_not_there(tool: Tool, chroot: str) -> None:
    line = f"--zookeeper {chroot}-not"
    assert tool(f"{line} --describe --entity-type users") == Ran(0, WARNING, "")
    assert tool(f"{line} --describe --user u") == Ran(0, f"{WARNING}Configs for user-principal 'u' are \n", "")
    alter = f"{line} --user u --alter --add-config"
    assert tool(f"{alter} producer_byte_rate=1") == Ran(1, WARNING, "Path length must be > 0\n")
    assert tool(f"{alter} a==") == Ran(1, WARNING, f"{FORMAT}\n")


def test_a_name_for_each_type(tool: Tool, chroot: str) -> None:
    message = "--entity-name or --entity-default must be specified with each --entity-type for --alter\n"
    words = "--alter --entity-type users --entity-name u --entity-type clients --add-config producer_byte_rate=1"
    assert tool(f"--zookeeper {chroot} {words}") == Ran(1, WARNING, message)


def test_a_file_of_configs(tool: Tool, chroot: str, znodes: Any, tmp_path: Path) -> None:
    file = tmp_path / "quotas.properties"
    words = ("--zookeeper", chroot, "--user", "u", "--alter", "--add-config-file", str(file))
    file.write_text("# quotas\n! more\nproducer_byte_rate: 20\\\n  48  \nrequest_percentage 5\n")
    assert tool(*words).code == 0
    # Validation trims, storage does not.
    assert znodes.get("/config/users/u")[0] == node(request_percentage="5", producer_byte_rate="2048  ")
    file.write_text("producer_byte_rate=[1]\n")
    message = "Invalid value [1] for configuration producer_byte_rate: Not a number of type LONG"
    assert tool(*words).err.splitlines()[1] == f"org.apache.kafka.common.config.ConfigException: {message}"
    file.write_text("a=\\u12\n")
    assert tool(*words) == Ran(1, WARNING, "Malformed \\uxxxx encoding.\n")
    file.write_text("")
    words = ("--zookeeper", chroot, "--user", "v", "--alter", "--add-config-file", str(file))
    assert tool(*words).out == f"{WARNING}Completed updating config for entity: user-principal 'v'.\n"
    assert znodes.get("/config/users/v")[0] == b'{"version":1,"config":{}}'
    assert notifications(znodes) == ["users/u", "users/v"]


def test_credentials_are_made_as_kafka_makes_them(tool: Tool, chroot: str, znodes: Any) -> None:
    line = f"--zookeeper {chroot} --user u --alter --add-config"
    assert tool(f"{line} SCRAM-SHA-512=[iterations=5000,password=s],producer_byte_rate=1").code == 0
    config = json.loads(znodes.get("/config/users/u")[0])["config"]
    assert list(config) == ["SCRAM-SHA-512", "producer_byte_rate"]
    assert re.fullmatch(r"salt=\S+=*,stored_key=\S{88},server_key=\S{88},iterations=5000", config["SCRAM-SHA-512"])
    few = "Iterations 1 is less than the minimum 4096 required for SCRAM_SHA_512\n"
    assert tool(f"{line} SCRAM-SHA-512=[iterations=1,password=s]") == Ran(1, WARNING, few)
    assert stored_credential("SCRAM-SHA-256", "password=s").endswith(",iterations=4096")
    for wrong, message in (
        ("pasword=s", "Invalid credential property SCRAM_SHA_256=********"),
        ("iterations=,password=s", 'For input string: ""'),
        ("iterations=99999999999,password=s", 'For input string: "99999999999"'),
    ):
        with pytest.raises(Refusal, match=re.escape(message)):
            stored_credential("SCRAM-SHA-256", wrong)


def test_keys_of_credentials_are_hidden_on_a_terminal(
    tool: Tool, chroot: str, znodes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scram = "salt=a,stored_key=b,server_key=c,iterations=4096"
    znodes.create("/config/users/u", node(SCRAM__SHA__256=scram, producer_byte_rate="1"), makepath=True)
    line = f"--zookeeper {chroot} --describe --user u"
    shown = f"{WARNING}Configs for user-principal 'u' are SCRAM-SHA-256={{}},producer_byte_rate=1\n"
    assert tool(line).out == shown.format(scram)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert tool(line).out == shown.format("[hidden]")


def test_later_tools_change_no_quotas_in_zookeeper(tool: Tool, chroot: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KQUOTA_KAFKA_CONFIGS", "current")
    line = f"--zookeeper {chroot} --alter --user u --add-config producer_byte_rate=1"
    start = "requirement failed: --bootstrap-server option must be specified to update users configs: "
    end = ". User configuration updates using ZooKeeper are only supported for SCRAM credential updates."
    assert tool(line).first == f"{start}{{add: {{producer_byte_rate=1}}, delete: List()}}{end}"
    deleting = tool(f"{line} --delete-config consumer_byte_rate")
    assert deleting.first == f"{start}{{add: {{producer_byte_rate=1}}, delete: ArrayBuffer(consumer_byte_rate)}}{end}"


def test_another_writer_is_not_overwritten(chroot: str, znodes: Any) -> None:
    znodes.create("/config/users/u", node(a="1"), makepath=True)
    seen = []

    def change(data: bytes | None) -> dict[str, str]:
        seen.append(data)
        if len(seen) == 1:
            znodes.set("/config/users/u", node(a="2"))
        return {**json.loads(data or b"")["config"], "b": "3"}

    with RawConfigs(chroot) as raw:
        raw.change(Entity(user="u"), change)
    assert seen == [node(a="1"), node(a="2")]
    assert znodes.get("/config/users/u")[0] == node(a="2", b="3")
    assert notifications(znodes) == ["users/u"]


def test_nothing_is_written_while_migrating(tool: Tool, chroot: str, znodes: Any) -> None:
    znodes.create("/controller", b'{"version":2,"brokerid":3000,"kraftControllerEpoch":7}')
    ran = tool(f"--zookeeper {chroot} --user u --alter --add-config producer_byte_rate=1")
    assert (ran.code, ran.out) == (1, WARNING)
    assert ran.err.splitlines()[1].startswith("kquota.errors.Rejected: the cluster is migrating to KRaft")
    assert znodes.exists("/config") is None
    with RawConfigs(chroot) as raw, pytest.raises(Rejected):
        raw.change(Entity(user="u"), lambda _: {})


# --- A broker ---


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A real broker."""
    with KafkaBroker() as broker:
        yield broker.bootstrap


def settled(tool: Tool, line: str, out: str) -> Ran:
    """What a describe prints once it prints that, or at last; a broker's own copy of the metadata lags behind."""
    deadline = time.monotonic() + 10
    while (ran := tool(line)).out != out and time.monotonic() < deadline:
        time.sleep(0.01)
    return ran


@pytest.mark.parametrize(
    ("entity", "done", "title"),
    [
        ("--user b1", "config for user b1", "user-principal 'b1'"),
        ("--client b2", "config for client b2", "client-id 'b2'"),
        ("--user b3 --client c", "config for client c", "user-principal 'b3', client-id 'c'"),
        ("--user b4 --client-defaults", "config for user b4", "user-principal 'b4', the default client-id"),
        ("--user-defaults --client b5", "config for client b5", "the default user-principal, client-id 'b5'"),
        ("--user-defaults", "default config for users in the cluster", "the default user-principal"),
        (
            "--entity-type users --entity-name b6 --entity-type clients --entity-name c",
            "config for user b6",
            "user-principal 'b6', client-id 'c'",
        ),
        ("--ip 10.0.0.7", "config for ip 10.0.0.7", "ip '10.0.0.7'"),
        ("--ip-defaults", "default config for ips in the cluster", "the default ip"),
    ],
)
def test_alter_and_describe_on_a_broker(tool: Tool, bootstrap: str, entity: str, done: str, title: str) -> None:
    key = "connection_creation_rate" if "--ip" in entity else "producer_byte_rate"
    line = f"--bootstrap-server {bootstrap} {entity}"
    completed = Ran(0, f"Completed updating {done}.\n", "")
    assert tool(f"{line} --alter --add-config {key}=10485760") == completed
    shown = f"Quota configs for {title} are {key}=1.048576E7\n"
    assert settled(tool, f"{line} --describe", shown) == Ran(0, shown, "")
    assert tool(f"{line} --alter --delete-config {key}") == completed
    assert settled(tool, f"{line} --describe", "") == Ran(0, "", "")
    assert tool(f"{line} --alter --delete-config {key}") == Ran(1, "", f"Invalid config(s): {key}\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("producer_byte_rate=0", "Quota producer_byte_rate must be greater than 0"),
        ("producer_byte_rate=-1", "Quota producer_byte_rate must be greater than 0"),
        ("producer_byte_rate=1.5", "producer_byte_rate cannot be a fractional value."),
        ("producer_byte_rate=1e19", "Proposed value for producer_byte_rate is too large for a LONG."),
    ],
)
def test_what_the_broker_refuses(tool: Tool, bootstrap: str, change: str, message: str) -> None:
    line = f"--bootstrap-server {bootstrap} --user w --alter --add-config {change}"
    exception = "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.InvalidRequestException"
    error = f"Error while executing config command with args '{line}'\n{exception}: {message}\n"
    assert tool(line) == Ran(1, "", error)


def test_values_as_the_broker_keeps_them(tool: Tool, bootstrap: str) -> None:
    line = f"--bootstrap-server {bootstrap} --user x"
    pairs = "producer_byte_rate=1e3,consumer_byte_rate=+5d,request_percentage=NaN,controller_mutation_rate=0.5"
    assert tool(f"{line} --alter --add-config {pairs}").code == 0
    values = "producer_byte_rate=1000.0, consumer_byte_rate=5.0, controller_mutation_rate=0.5, request_percentage=NaN"
    shown = f"Quota configs for user-principal 'x' are {values}\n"
    assert settled(tool, f"{line} --describe", shown).out == shown
    bad = tool(f"{line} --alter --add-config producer_byte_rate=10MB")
    assert bad == Ran(1, "", "Cannot parse quota configuration value for producer_byte_rate: 10MB\n")
