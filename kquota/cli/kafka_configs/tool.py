"""Kafka's tools that kquota stands in for: what differs between them.

2.8 is the last one that writes quotas to ZooKeeper, 3.9 the last one that talks to ZooKeeper at all; the current one
talks to brokers only. Its words come from 4.3.1, the newest release whose tool is on Maven Central.
"""

from __future__ import annotations

from dataclasses import dataclass

TYPES = {
    "topic": "topics",
    "client": "clients",
    "user": "users",
    "broker": "brokers",
    "broker-logger": "broker-loggers",
    "ip": "ips",
    "client-metrics": "client-metrics",
    "group": "groups",
}
"""The flags that name an entity, in the order in which they count, and the entity type of each."""

DEFAULTS = {"client-defaults": "clients", "user-defaults": "users", "broker-defaults": "brokers", "ip-defaults": "ips"}
"""The flags that name a default entity, in the order in which they count."""

QUOTA_TYPES = ("users", "clients", "ips")

_ONE_ARGUMENT = frozenset(
    {"bootstrap-server", "command-config", "entity-type", "entity-name", "add-config", "add-config-file"}
    | {"delete-config", "topic", "client", "user", "broker", "broker-logger", "ip"}
)
_OF_ZOOKEEPER = frozenset({"zookeeper", "zk-tls-config-file"})
_SINCE_3_7 = frozenset({"bootstrap-controller", "client-metrics"})
_NO_ARGUMENT = frozenset(("alter", "describe", "all", "entity-default", "help", "version", *DEFAULTS))
_TYPES_2_8 = ("topics", "clients", "users", "brokers", "ips", "broker-loggers")


@dataclass(frozen=True)
class Tool:
    """One version of kafka-configs."""

    version: str
    title: str
    with_argument: frozenset[str]
    without_argument: frozenset[str]
    zookeeper_types: tuple[str, ...]
    broker_types: tuple[str, ...]
    separator: str
    zookeeper_option: str
    """How a message about a wrong entity type names the connection."""
    broker_option: str
    no_connection: str
    many_connections: str
    nothing_named: str
    pair_format: str = '"key=val"'
    """How a message about `--add-config` describes the items."""
    format_version_warning: str = ""
    """What is printed about the key message.format.version; nothing since 4.0, which has no such key."""
    needs_connection_first: bool = False
    """Whether a missing connection is complained about before a wrong entity type."""
    checks_tls_file: bool = False
    key_characters: str = ""
    """What a key to be set may consist of, as inside the brackets of a pattern; anything where it is empty."""
    checks_default_of: bool = False
    checks_addresses: bool = False
    """Whether an empty item in the list of brokers is refused."""
    takes_default_for_ip: bool = True
    """Whether the ip `<default>` passes for a host."""
    writes_quotas_to_zookeeper: bool = False

    @property
    def flags(self) -> dict[str, str]:
        """The flags of named entities that this version has."""
        return {flag: kind for flag, kind in TYPES.items() if flag in self.with_argument}


_WARNING = (
    "WARNING: The configuration message.format.version={} is specified. This configuration will be ignored if the"
    " version is newer than the inter.broker.protocol.version specified in the broker"
)
KAFKA_2_8 = Tool(
    version="2.8.2 (Commit:3146c6ff4a24cc24)",
    title="This tool helps to manipulate and describe entity config for a topic, client, user, broker or ip",
    with_argument=_ONE_ARGUMENT | _OF_ZOOKEEPER,
    without_argument=_NO_ARGUMENT | {"force"},
    zookeeper_types=("topics", "clients", "users", "brokers", "ips"),
    broker_types=_TYPES_2_8,
    separator=",",
    zookeeper_option="the --zookeeper argument",
    broker_option="the --bootstrap-server argument",
    no_connection="One of the required --bootstrap-server or --zookeeper arguments must be specified",
    many_connections="Only one of --bootstrap-server or --zookeeper must be specified",
    nothing_named="an entity-name or default entity must be specified with --alter of users, clients, brokers or ips",
    format_version_warning=f"{_WARNING}.",
    writes_quotas_to_zookeeper=True,
)
KAFKA_3_9 = Tool(
    version="3.9.1",
    title="This tool helps to manipulate and describe entity config for a topic, client, user, broker, ip or"
    " client-metrics",
    with_argument=_ONE_ARGUMENT | _OF_ZOOKEEPER | _SINCE_3_7,
    without_argument=_NO_ARGUMENT | {"force"},
    zookeeper_types=("users", "brokers"),
    broker_types=(*_TYPES_2_8, "client-metrics"),
    separator=", ",
    zookeeper_option="a --zookeeper argument",
    broker_option="a --bootstrap-server or --bootstrap-controller argument",
    no_connection="One of the required --bootstrap-server, --boostrap-controller, or --zookeeper arguments must be "
    "specified",
    many_connections="Only one of --bootstrap-server, --boostrap-controller, and --zookeeper can be specified",
    nothing_named="an entity-name or default entity must be specified with --alter of users, clients, brokers or ips",
    format_version_warning=f"{_WARNING} or if the inter.broker.protocol.version is 3.0 or newer. This configuration is"
    " deprecated and it will be removed in Apache Kafka 4.0.",
    checks_tls_file=True,
    key_characters="a-zA-Z0-9._-",
)
CURRENT = Tool(
    version="4.3.1",
    title="This tool helps to manipulate and describe entity config for "
    "a topic, client, user, broker, ip, client-metrics or group",
    with_argument=_ONE_ARGUMENT | _SINCE_3_7 | {"group"},
    without_argument=_NO_ARGUMENT,
    zookeeper_types=(),
    broker_types=("topics", "clients", "users", "brokers", "ips", "client-metrics", "groups", "broker-loggers"),
    separator=", ",
    zookeeper_option="",
    broker_option="a --bootstrap-server or --bootstrap-controller argument",
    no_connection="Either --bootstrap-server or --bootstrap-controller must be specified.",
    many_connections="Only one of --bootstrap-server or --bootstrap-controller can be specified",
    nothing_named="An entity-name or default entity must be specified with --alter of users, clients, brokers or ips",
    pair_format='"key=val" or  "key=[val1,val2]" to group values which contain commas',
    needs_connection_first=True,
    key_characters="$a-zA-Z0-9._-",
    checks_default_of=True,
    checks_addresses=True,
    takes_default_for_ip=False,
)

USAGE = """\
Option                                Meaning
--bootstrap-server <host:port,...>    The brokers to connect to.
--zookeeper <host:port,.../chroot>    The ZooKeeper of brokers without KRaft, written to as Kafka 2.8 does.
--command-config <file>               Settings of the connection to the brokers (client.properties).
--zk-tls-config-file <file>           Settings of TLS to ZooKeeper (zookeeper.ssl.*).
--describe                            Print the quotas of the entity, or of all entities of a type.
--alter                               Change the quotas of one entity.
--add-config <k=v,...>                What to set; a value that has commas goes into square brackets.
--add-config-file <file>              What to set, from a properties file.
--delete-config <k,...>               What to delete; every key must be set.
--user <name>, --user-defaults        The user's principal name, or the default of users.
--client <name>, --client-defaults    The client-id, or the default of client-ids.
--ip <address>, --ip-defaults         The ip address, or the default of ips.
--entity-type <users|clients|ips>     The long form; twice for a user and a client-id together.
--entity-name <name>                  The name that goes with an --entity-type.
--entity-default                      The default that goes with an --entity-type.
--all, --force                        Accepted, without effect on quotas.
--help, --version                     Print this text, or the version.

Environment                           Meaning
KQUOTA_KAFKA_CONFIGS                  Whose tool this is: 2.8, 3.9 or current (4.3). Without it: 2.8 with --zookeeper,
                                      else the current one.
KQUOTA_KAFKA_CONFIGS_JOURNAL          off: do not write down what is altered for 'kquota history' and 'kquota undo'.
KQUOTA_JOURNAL                        The folder of that journal.
"""
