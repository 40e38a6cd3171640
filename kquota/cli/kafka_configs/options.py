"""The command line of kafka-configs, read and checked before anything is connected; messages are Kafka's own."""

from collections.abc import Sequence

from kquota.backends.addresses import is_host

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
_CONNECTIONS = ("bootstrap-server", "bootstrap-controller", "zookeeper")
_WITH_ARGUMENT = {*TYPES, *_CONNECTIONS, "zk-tls-config-file", "command-config", "entity-type", "entity-name"} | {
    *("add-config", "add-config-file", "delete-config")
}
_WITHOUT_ARGUMENT = {*DEFAULTS, "alter", "describe", "all", "entity-default", "force", "help", "version"}
VERSIONS = {True: "2.8.2 (Commit:3146c6ff4a24cc24)", False: "4.4.0"}
"""What `--version` prints: the tools that kquota stands in for, with `--zookeeper` and without."""

TITLE = "This tool helps to manipulate and describe entity config for a topic, client, user, broker or ip"
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
KQUOTA_KAFKA_CONFIGS_JOURNAL          off: do not write down what is altered for 'kquota history' and 'kquota undo'.
KQUOTA_JOURNAL                        The folder of that journal."""


class Refusal(Exception):
    """What is wrong with the command line or its values; with `usage` the options are listed after it."""

    def __init__(self, message: str, *, usage: bool = False) -> None:
        super().__init__(message)
        self.usage = usage


class Options:
    """What the command line says, in its order. Raises Refusal for an unknown option or one without its argument."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._given: list[tuple[str, str | None]] = []
        words = iter(argv)
        for word in words:
            if word == "--":
                break
            if not word.startswith("-") or word == "-":
                continue  # a stray word means nothing to Kafka
            name, equals, value = word[2 if word.startswith("--") else 1 :].partition("=")
            if name in _WITHOUT_ARGUMENT:
                self._given.append((name, None))
                continue
            if name not in _WITH_ARGUMENT:
                raise Refusal(f"{name} is not a recognized option")
            argument = value if equals else next(words, None)  # whatever it is, an option included
            if argument is None:
                raise Refusal(f"Option {name} requires an argument")
            # A list loses its empty items, unless it has no other.
            items = [item for item in argument.split(",") if item] if name == "delete-config" else []
            self._given += [(name, item) for item in items or [argument]]

    def has(self, *names: str) -> bool:
        """Whether one of the options was given."""
        return any(name in names for name, _ in self._given)

    def values(self, name: str) -> list[str]:
        """The arguments of an option, in order."""
        return [argument for given, argument in self._given if given == name and argument is not None]

    def value(self, name: str) -> str | None:
        """The argument of an option that counts once, None without it. Raises Refusal when it was given twice."""
        values = self.values(name)
        if len(values) > 1:
            raise Refusal(f"Found multiple arguments for option {name}, but you asked for only one")
        return values[0] if values else None

    @property
    def entity_types(self) -> list[str]:
        """The entity types: first from `--entity-type`, then from the flags in an order of Kafka's own."""
        return self.values("entity-type") + [kind for flag, kind in {**TYPES, **DEFAULTS}.items() if self.has(flag)]

    @property
    def entity_names(self) -> list[str]:
        """The names, "" for a default; they belong to the types by position. Raises Refusal for a flag given twice."""
        long_form = [argument or "" for name, argument in self._given if name in ("entity-name", "entity-default")]
        named = [self.value(flag) or "" for flag in TYPES if self.has(flag)]
        return long_form + named + ["" for flag in DEFAULTS if self.has(flag)]


def check(options: Options) -> None:
    """Raises Refusal for the first thing that is wrong with the command line."""
    if options.has("alter") == options.has("describe"):
        raise Refusal("Command must include exactly one action: --describe, --alter", usage=True)
    for other in ("add-config", "delete-config"):
        if options.has("describe") and options.has(other):
            raise Refusal(f'Option "[describe]" can\'t be used with option "[{other}]"', usage=True)
    types, names = options.entity_types, options.entity_names
    by_zookeeper = options.has("zookeeper")
    connections = sum(options.has(name) for name in _CONNECTIONS)
    strange = [kind for kind in types if kind not in TYPES.values()]
    foreign = [kind for kind in types if kind not in QUOTA_TYPES]
    ips = [*options.values("entity-name"), *options.values("ip")] if "ips" in types and any(names) else []
    alters = options.has("alter")
    complaints = (
        (not types, "At least one entity type must be specified"),
        (len(set(types)) < len(types), f"Duplicate entity type(s) specified: {','.join(dict.fromkeys(types))}"),
        *((True, f"Invalid entity type {kind}, use users, clients or ips") for kind in strange),
        *((True, f"{kind} have no quotas: use Kafka's own kafka-configs") for kind in foreign),
        (
            len(types) > 1 and set(types) != {"users", "clients"},
            "Only 'users' and 'clients' entity types may be specified together",
        ),
        (
            options.has("entity-name", "entity-type", "entity-default") and options.has(*TYPES, *DEFAULTS),
            "--entity-{type,name,default} should not be used in conjunction with specific entity flags",
        ),
        (connections == 0, "One of --bootstrap-server, --bootstrap-controller or --zookeeper must be specified"),
        (connections > 1, "Only one of --bootstrap-server, --bootstrap-controller or --zookeeper can be specified"),
        (options.has("all") and by_zookeeper, "--bootstrap-server must be specified for --all"),
        (
            options.has("zk-tls-config-file") and not by_zookeeper,
            "Only the --zookeeper option can be used with the --zk-tls-config-file option.",
        ),
        *(
            (not is_host(ip), f"The entity name for ips must be a valid IP or resolvable host, but it is: {ip}")
            for ip in ips
            if ip not in ("", "<default>")
        ),
        (alters and not names, "An entity-name or default entity must be specified with --alter"),
        (
            options.has("add-config") and options.has("add-config-file"),
            "Only one of --add-config or --add-config-file must be specified",
        ),
        (
            alters and not options.has("add-config", "add-config-file", "delete-config"),
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter",
        ),
    )
    for is_wrong, message in complaints:
        if is_wrong:
            raise Refusal(message)
