"""The tool of Kafka 2.8 on ZooKeeper: describe and alter of config nodes, whatever they hold."""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote_plus

from kquota.backends import znode
from kquota.backends.clientprops import zookeeper_security
from kquota.backends.znode import NodeConfig
from kquota.backends.zookeeper.raw import RawConfigs
from kquota.cli.kafka_configs import configs, journal
from kquota.cli.kafka_configs.options import Options, Refusal
from kquota.cli.security import ask, jvm_jaas_file
from kquota.core.quotas.entity import EntityType
from kquota.core.quotas.quota import QuotaKey, ValueType

_TIMEOUT_S = 30.0
_PATIENT = True
"""Whether servers that are not up yet are waited for."""
_WARNING = (
    "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.\n"
    "Use --bootstrap-server instead to specify a broker to connect to."
)
_DEFAULT = "<default>"
_TYPES = {kind.plural: kind for kind in EntityType}
_TITLES = {"users": "user-principal", "clients": "client-id"}
_OF_IPS = QuotaKey.CONNECTION_CREATION_RATE


@dataclass(frozen=True)
class Level:
    """An entity type and the node's name below it; without a name it stands for all of them."""

    kind: str
    node: str | None

    @property
    def path(self) -> str:
        """The part of the path that is the level's own."""
        return self.kind if self.node is None else f"{self.kind}/{self.node}"

    def __str__(self) -> str:
        title = _TITLES.get(self.kind, self.kind)
        if self.node == _DEFAULT:
            return f"default {title}"
        return f"{title} '{unquote_plus(self.node or '') if self.kind in _TITLES else self.node or ''}'"


Levels = tuple[Level, ...]
"""One level, or a user and a client of it."""


def run(options: Options, write: Callable[[str], None]) -> None:
    """Executes a checked command; `write` prints a line. Raises Refusal and KquotaError."""
    write(_WARNING)
    file = options.value("zk-tls-config-file")
    jaas = os.environ.get("KQUOTA_ZOOKEEPER_JAAS_FILE")
    login = zookeeper_security(
        None if file is None else Path(file),
        Path(jaas) if jaas else jvm_jaas_file(),
        os.environ,
        ask,
        may_be_plain=True,
    )
    connect = options.value("zookeeper") or ""
    with RawConfigs(connect, timeout_s=_TIMEOUT_S, security=login, patient=_PATIENT) as raw:
        if options.has("alter"):
            _alter(raw, options, f"zookeeper://{connect}", write)
        else:
            _describe(raw, options, write)


def _levels(options: Options) -> Levels:
    """What the command is about."""
    types, names = options.entity_types, options.entity_names
    if types[0] not in _TITLES:
        return (Level(types[0], None if not names else names[0] or _DEFAULT),)
    if options.has("alter") and len(names) != len(types):
        raise Refusal("--entity-name or --entity-default must be specified with each --entity-type for --alter")
    if types == ["clients", "users"]:
        # Kafka turns the names around only where there are two: one alone becomes the user's, whatever it was.
        types.reverse()
        if len(names) == 2:
            names.reverse()
    nodes: list[str | None] = [
        znode.encode_name(_TYPES[kind], name) if name else _DEFAULT for kind, name in zip(types, names, strict=False)
    ]
    nodes += [None] * (len(types) - len(nodes))
    return tuple(Level(kind, node) for kind, node in zip(types, nodes, strict=True))


def _path(levels: Levels) -> str:
    return "/".join([znode.CONFIG, *(level.path for level in levels)])


def _describe(raw: RawConfigs, options: Options, write: Callable[[str], None]) -> None:
    asked = _levels(options)
    entities = list(_listed(raw, asked))
    for levels, data in zip(entities, raw.data([_path(levels) for levels in entities]), strict=True):
        config = _texts(data)
        # A user's node may be there only for the sake of the pairs below it.
        if config or asked != (Level("users", None),):
            pairs = ",".join(f"{key}={_shown(key, config[key])}" for key in configs.ordered(config))
            write(f"Configs for {', '.join(map(str, levels))} are {pairs}")


def _listed(raw: RawConfigs, asked: Levels) -> Iterator[Levels]:
    """The entities that are asked for, in the order of the server."""
    root, *below = asked
    if all(level.node is not None for level in asked):
        yield asked
        return
    roots = [root]
    if root.node is None:
        (names,) = raw.children([f"{znode.CONFIG}/{root.kind}"])
        roots = [Level(root.kind, name) for name in names]
    if not below:
        yield from ((level,) for level in roots)
        return
    kind = below[0].kind
    lists = raw.children([f"{znode.CONFIG}/{level.path}/{kind}" for level in roots])
    for level, names in zip(roots, lists, strict=True):
        yield from ((level, Level(kind, name)) for name in names)


def _texts(data: bytes | None) -> dict[str, str]:
    entries = NodeConfig.decode(data).entries
    for key, value in entries.items():
        if not isinstance(value, str):
            raise Refusal(f"the value of {key} in ZooKeeper is no text: {value!r}")
    return {key: str(value) for key, value in entries.items()}


def _alter(raw: RawConfigs, options: Options, cluster: str, write: Callable[[str], None]) -> None:
    adding, deleting = configs.to_add(options), configs.to_delete(options)
    levels = _levels(options)
    if any(mechanism in adding for mechanism in configs.SCRAM):
        raise Refusal(configs.NO_QUOTAS)
    entity = znode.entity_of(_path(levels))

    def merged(data: bytes | None) -> dict[str, str]:
        config = _texts(data)
        missing = [key for key in deleting if key not in config]
        if missing:
            raise Refusal(f"Invalid config(s): {','.join(missing)}")
        after = {key: value for key, value in (config | adding).items() if key not in deleting}
        after |= _checked(levels, after)
        begin(entity, NodeConfig.decode(data).values(entity), NodeConfig(after).values(entity))
        return after

    with journal.recording(cluster) as begin:
        raw.change(entity, merged)
    write(f"Completed updating config for entity: {', '.join(map(str, levels))}.")


def _checked(levels: Levels, config: dict[str, str]) -> dict[str, str]:
    """The whole numbers, trimmed: Kafka 2.8 stores them untrimmed, and no broker starts with that.

    All that the node would hold counts, what was there before included. Raises Refusal.
    """
    # A default user and a pair are looked at as clients are: no credentials there.
    is_user = levels[0].kind == "users" and len(levels) == 1 and levels[0].node != _DEFAULT
    keys = {key.value: key for key in QuotaKey if (key is _OF_IPS) == (levels[0].kind == "ips")}
    unknown = sorted(key for key in config if key not in keys and not (is_user and key in configs.SCRAM))
    if unknown:
        raise Refusal(f"Unknown Dynamic Configuration: {', '.join(unknown)}.")
    whole = {}
    for name, key in keys.items():
        if (text := config.get(name)) is None:
            continue
        trimmed, kind = text.strip(), key.value_type
        if kind.maximum is None:
            is_number = configs.parse_double(trimmed) is not None
        else:
            digits = trimmed.removeprefix("-").removeprefix("+")
            is_number = digits.isdecimal() and len(digits.lstrip("0")) < 20 and int(digits) <= kind.maximum
            whole[name] = trimmed
        if not is_number:
            hint = configs.advice(name, text)
            raise Refusal(f"Invalid value {text} for configuration {key}: Not a number of type {kind.value}{hint}")
        if kind is ValueType.INT and int(trimmed) < 0:
            raise Refusal(f"Invalid value {text} for configuration {key}: Value must be at least 0")
    return whole


def _shown(key: str, value: str) -> str:
    """A value as `--describe` prints it: on a terminal without the keys of a credential, else as it is stored."""
    return "[hidden]" if key in configs.SCRAM and sys.stdout.isatty() else value
