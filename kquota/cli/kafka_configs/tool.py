"""Kafka's tools that kquota stands in for: what differs between their texts.

2.8 is the last one that writes quotas to ZooKeeper; the current one (as of October 2024) talks to brokers.
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
    {"zookeeper", "bootstrap-server", "command-config", "zk-tls-config-file", "entity-type", "entity-name"}
    | {"add-config", "add-config-file", "delete-config", "topic", "client", "user", "broker", "broker-logger", "ip"}
)
_NO_ARGUMENT = frozenset(
    ("alter", "describe", "all", "entity-default", "force", "help", "version", *DEFAULTS),
)


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
    checks_tls_file: bool = False
    checks_keys: bool = False
    checks_default_of: bool = False
    writes_quotas_to_zookeeper: bool = False

    @property
    def flags(self) -> dict[str, str]:
        """The flags of named entities that this version has."""
        return {flag: kind for flag, kind in TYPES.items() if flag in self.with_argument}


KAFKA_2_8 = Tool(
    version="2.8.0 (Commit:ebb1d6e21cc92130)",
    title="This tool helps to manipulate and describe entity config for a topic, client, user, broker or ip",
    with_argument=_ONE_ARGUMENT,
    without_argument=_NO_ARGUMENT,
    zookeeper_types=("topics", "clients", "users", "brokers", "ips"),
    broker_types=("topics", "clients", "users", "brokers", "ips", "broker-loggers"),
    separator=",",
    zookeeper_option="the --zookeeper argument",
    broker_option="the --bootstrap-server argument",
    no_connection="One of the required --bootstrap-server or --zookeeper arguments must be specified",
    many_connections="Only one of --bootstrap-server or --zookeeper must be specified",
    nothing_named="an entity-name or default entity must be specified with --alter of users, clients, brokers or ips",
    writes_quotas_to_zookeeper=True,
)
CURRENT = Tool(
    version="4.0.0",
    title="This tool helps to manipulate and describe entity config for "
    "a topic, client, user, broker, ip, client-metrics or group",
    with_argument=_ONE_ARGUMENT | {"bootstrap-controller", "client-metrics", "group"},
    without_argument=_NO_ARGUMENT,
    zookeeper_types=("users", "brokers"),
    broker_types=("topics", "clients", "users", "brokers", "ips", "broker-loggers", "client-metrics", "groups"),
    separator=", ",
    zookeeper_option="a --zookeeper argument",
    broker_option="a --bootstrap-server or --bootstrap-controller argument",
    no_connection="One of the required --bootstrap-server, --boostrap-controller, or --zookeeper arguments must be "
    "specified",
    many_connections="Only one of --bootstrap-server, --boostrap-controller, and --zookeeper can be specified",
    nothing_named="An entity-name or default entity must be specified with --alter of users, clients, brokers or ips",
    checks_tls_file=True,
    checks_keys=True,
    checks_default_of=True,
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
"""
