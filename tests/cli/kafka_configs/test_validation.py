"""What is refused before anything is asked of a cluster, in Kafka's words."""

from __future__ import annotations

import pytest

from tests.cli.kafka_configs.conftest import FORMAT, B, Ran, Tool, Z

ACTION = "Command must include exactly one action: --describe, --alter"
USAGE_FOLLOWS = frozenset({ACTION, 'Option "[describe]" can\'t be used with option "[add-config]"'})
ZK_TYPES = "the entity type must be one of topics,clients,users,brokers,ips with the --zookeeper argument"
BROKER_TYPES = (
    "the entity type must be one of topics, clients, users, brokers, ips, client-metrics, groups, broker-loggers"
    " with a --bootstrap-server or --bootstrap-controller argument"
)
BROKER_TYPES_2_8 = (
    "the entity type must be one of topics,clients,users,brokers,ips,broker-loggers"
    " with the --bootstrap-server argument"
)
OF_3_9 = "the entity type must be one of users, brokers with a --zookeeper argument"
ADD = "--add-config producer_byte_rate=1"


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
        ("--describe --entity-type bogus", "Either --bootstrap-server or --bootstrap-controller must be specified."),
        (f"{B} --force --describe --user u", "force is not a recognized option"),
        (
            f"{B} --describe --ip <default>",
            "The entity name for ips must be a valid IP or resolvable host, but it is: <default>",
        ),
        (f"{B} --describe", "At least one entity type must be specified"),
        (f"{B} --describe --ip 1.2.3.4 --user u", "Only 'users' and 'clients' entity types may be specified together"),
        (
            f"{Z} --entity-name A --entity-type users --client B --describe",
            "--entity-{type,name,default} should not be used in conjunction with specific entity flags",
        ),
        ("--describe --user u", "Either --bootstrap-server or --bootstrap-controller must be specified."),
        (
            f"{B} --bootstrap-controller 127.0.0.1:1 --describe --user u",
            "Only one of --bootstrap-server or --bootstrap-controller can be specified",
        ),
        (f"{Z} {B} --describe --user u", "Only one of --bootstrap-server or --zookeeper must be specified"),
        (f"{B} {Z} --describe --user u", "zookeeper is not a recognized option"),
        (f"{Z} --all --describe --user u", "--bootstrap-server must be specified for --all"),
        (f"{B} --zk-tls-config-file f --describe --user u", "zk-tls-config-file is not a recognized option"),
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
        (
            f"{B} --alter --user u --add-config a==",
            FORMAT.removesuffix(".") + ' or  "key=[val1,val2]" to group values which contain commas.',
        ),
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
        (
            f"{B} --alter --user u --add-config SCRAM-SHA-256=[password=x]",
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


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--describe --entity-type ips", f"Invalid entity type ips, {OF_3_9}"),
        (
            "--describe --user u",
            "One of the required --bootstrap-server, --boostrap-controller, or --zookeeper arguments must be specified",
        ),
        (
            f"{B} {Z} --describe --user u",
            "Only one of --bootstrap-server, --boostrap-controller, and --zookeeper can be specified",
        ),
        (
            f"{B} --zk-tls-config-file f --describe --user u",
            "Only the --zookeeper option can be used with the --zk-tls-config-file option.",
        ),
        (f"{B} --force --group g --describe", "group is not a recognized option"),
        (f"{B} --alter --user u --add-config a==", FORMAT),
        (f"{B} --alter --user u --add-config a$b=1", "Invalid character found for config key: a$b"),
    ],
)
def test_the_words_of_3_9(tool: Tool, monkeypatch: pytest.MonkeyPatch, line: str, message: str) -> None:
    monkeypatch.setenv("KQUOTA_KAFKA_CONFIGS", "3.9")
    assert tool(line).first == message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "--describe --user u",
            "One of the required --bootstrap-server or --zookeeper arguments must be specified",
        ),
        ("--describe --entity-type bogus", f"Invalid entity type bogus, {ZK_TYPES}"),
        ("--describe --client-metrics m", "client-metrics is not a recognized option"),
        (f"{B} {Z} --describe --user u", "Only one of --bootstrap-server or --zookeeper must be specified"),
        (f"{B} --describe --entity-type bogus", f"Invalid entity type bogus, {BROKER_TYPES_2_8}"),
        (f"{B} --force --group g --describe", "group is not a recognized option"),
        (f"{B} --alter --user u --add-config a==", FORMAT),
    ],
)
def test_the_words_of_2_8(tool: Tool, monkeypatch: pytest.MonkeyPatch, line: str, message: str) -> None:
    """Also where no connection says which tool is meant."""
    monkeypatch.setenv("KQUOTA_KAFKA_CONFIGS", "2.8")
    assert tool(line).first == message


def test_a_key_that_brokers_gave_up_is_warned_of(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 3.9, on stdout, although the key is refused all the same."""
    line = f"{B} --alter --user u --add-config message.format.version=2.0"
    refused = (
        "Only quota and SCRAM credential configs can be added for 'users' using --bootstrap-server."
        " Unexpected config names: Set(message.format.version)\n"
    )
    assert tool(line) == Ran(1, "", refused)
    start = "WARNING: The configuration message.format.version=2.0 is specified. This configuration will be ignored if"
    for version, end in (
        ("2.8", "inter.broker.protocol.version specified in the broker.\n"),
        ("3.9", "is deprecated and it will be removed in Apache Kafka 4.0.\n"),
    ):
        monkeypatch.setenv("KQUOTA_KAFKA_CONFIGS", version)
        ran = tool(line)
        assert (ran.code, ran.err) == (1, refused)
        assert ran.out.startswith(start)
        assert ran.out.endswith(end)
