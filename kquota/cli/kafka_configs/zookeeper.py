"""The tool of Kafka 2.8 on ZooKeeper: describe and alter of config nodes, whatever they hold.

Sources: `kafka.admin.ConfigCommand` (`alterConfigWithZk`, `describeConfigWithZk`, `ConfigEntity`),
`kafka.zk.AdminZkClient`, `kafka.server.DynamicConfig` and `org.apache.kafka.common.config.ConfigDef`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kquota.backends import znode
from kquota.backends.znode import NodeConfig
from kquota.cli.kafka_configs import configs, java, journal
from kquota.cli.kafka_configs.failures import Failure, Refusal
from kquota.cli.kafka_configs.options import Options
from kquota.cli.kafka_configs.scram import shown, stored_credential
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, ValueType
from kquota.errors import InputError, KquotaError, Unauthorized, Unreachable

if TYPE_CHECKING:
    from kquota.backends.zookeeper import ZooKeeperSecurity
    from kquota.backends.zookeeper.address import Address
    from kquota.backends.zookeeper.raw import RawConfigs

_TIMEOUT_S = 30.0
_PATIENT = True
"""Whether servers that are not up yet are waited for."""
_WARNING = (
    "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.\n"
    "Use --bootstrap-server instead to specify a broker to connect to."
)
_BRACKETED = re.compile(r"\[(?P<host>[^]]*)\](?::(?P<port>.*))?")
"""`NetUtils.getIPV6HostAndPort`."""
_DEFAULT = "<default>"
_TITLES = {"users": "user-principal", "clients": "client-id"}
_QUOTAS = tuple(key for key in QuotaKey if key is not QuotaKey.CONNECTION_CREATION_RATE)
"""What users and clients may have, in the order in which Kafka looks at the values."""
_WHOLE = {key.value for key in QuotaKey if key.value_type.integral}
_KEYS = {
    "clients": (_QUOTAS, ()),
    "users": (_QUOTAS, configs.SCRAM),
    "ips": ((QuotaKey.CONNECTION_CREATION_RATE,), ()),
}


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
        """As Kafka shows it. Raises IllegalArgument for a node whose name cannot be decoded."""
        title = _TITLES.get(self.kind, self.kind)
        if self.node == _DEFAULT:
            return f"default {title}"
        name = self.node or ""
        return f"{title} '{java.url_decode(name) if self.kind in _TITLES else name}'"


Levels = tuple[Level, ...]
"""One level, or a user and a client of it."""


def run(options: Options, write: Callable[[str], None]) -> None:
    """Executes a checked command; `write` prints a line. Raises Refusal, Failure and java.IllegalArgument."""
    write(_WARNING)
    connect = options.value("zookeeper") or ""
    from kquota.backends.zookeeper.raw import RawConfigs

    security = _security(options)
    address = _address(connect)
    try:
        raw = RawConfigs(address, timeout_s=_TIMEOUT_S, security=security, patient=_PATIENT)
    except Unauthorized as error:
        exception = "kafka.zookeeper.ZooKeeperClientAuthFailedException"
        message = "Auth failed either before or while waiting for connection"
        raise Failure(exception, message, note=error.message) from None
    except Unreachable as error:
        exception = "kafka.zookeeper.ZooKeeperClientTimeoutException"
        message = "Timed out waiting for connection while in state: CONNECTING"
        raise Failure(exception, message, note=error.message) from None
    with raw:
        try:
            if options.has("alter"):
                _alter(raw, options, f"zookeeper://{connect}", write)
            else:
                _describe(raw, options, write)
        except Unauthorized as error:
            exception = "org.apache.zookeeper.KeeperException$NoAuthException"
            raise Failure(exception, "KeeperErrorCode = NoAuth", note=error.message) from None


def _address(connect: str) -> Address:
    """The connect string as ZooKeeper's client reads it (`ConnectStringParser`). Raises java.IllegalArgument."""
    from kquota.backends.zookeeper.address import DEFAULT_PORT, Address

    text, slash, chroot = connect.partition("/")
    if chroot:
        if chroot.endswith("/"):
            raise java.IllegalArgument("Path must not end with / character")
        java.check_path(slash + chroot)
    hosts = []
    for part in filter(None, map(java.trim, text.split(","))):
        match = _BRACKETED.fullmatch(part)
        host, _, digits = part.rpartition(":") if match is None and ":" in part else (part, "", "")
        if match is not None:
            host, digits = match["host"], match["port"] or ""
        port = java.parse_integer(digits, 2**31 - 1) if digits else DEFAULT_PORT
        if port is None:
            raise java.IllegalArgument(f'For input string: "{digits}"')
        if not 0 <= port <= 65_535:
            raise java.IllegalArgument(f"port out of range:{port}")
        hosts.append((host, port))
    if not hosts:
        raise java.IllegalArgument("A HostProvider may not be empty!")
    return Address(tuple(hosts), slash + chroot if chroot else "")


def _security(options: Options) -> ZooKeeperSecurity:
    from kquota.cli import security

    file = options.value("zk-tls-config-file")
    if file is not None:
        configs.load_properties(file)  # for Java's own errors
    from pathlib import Path

    jaas_file = os.environ.get("KQUOTA_ZOOKEEPER_JAAS_FILE")
    return security.zookeeper_security(
        None if file is None else Path(file), Path(jaas_file) if jaas_file else security.jvm_jaas_file(), os.environ
    )


# --- Entities ----------------------------------------------------------------------------------------------------


def _entity(options: Options) -> Levels:
    """What the command is about (`parseEntity`)."""
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
    nodes: list[str | None] = [_node_name(name) for name in names[: len(types)]]
    nodes += [None] * (len(types) - len(nodes))
    return tuple(Level(kind, node) for kind, node in zip(types, nodes, strict=True))


def _node_name(name: str) -> str:
    from kquota.core.resolve.resolver import encode_user

    try:
        return encode_user(name) if name else _DEFAULT
    except UnicodeEncodeError:
        raise Refusal(f"{name!r} is not valid Unicode") from None


def _path(levels: Levels) -> str:
    return "/".join([znode.CONFIG, *(level.path for level in levels)])


def _title(levels: Levels) -> str:
    return ", ".join(map(str, levels))


# --- Describe ----------------------------------------------------------------------------------------------------


def _describe(raw: RawConfigs, options: Options, write: Callable[[str], None]) -> None:
    asked = _entity(options)
    # A user's node may be there only for the sake of the pairs below it.
    hide_empty = asked == (Level("users", None),)
    entities = list(_listed(raw, asked))
    for levels in entities:
        java.check_path(_path(levels))
    for levels, data in zip(entities, raw.data([_path(levels) for levels in entities]), strict=True):
        config = _decode(data)
        if config or not hide_empty:
            pairs = ",".join(f"{key}={shown(key, config[key])}" for key in java.properties_order(config))
            write(f"Configs for {_title(levels)} are {pairs}")


def _listed(raw: RawConfigs, asked: Levels) -> Iterator[Levels]:
    """The entities that are asked for (`ConfigEntity.getAllEntities`), in the order of the server."""
    root, *below = asked
    if root.node is not None and all(level.node is not None for level in below):
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
    lists = [f"{znode.CONFIG}/{level.path}/{kind}" for level in roots]
    for path in lists:
        java.check_path(path)
    for level, names in zip(roots, raw.children(lists), strict=True):
        yield from ((level, Level(kind, name)) for name in names)


def _decode(data: bytes | None) -> dict[str, str]:
    """The node's config as `ConfigEntityZNode.decode` reads it. Raises Failure for a value that is not a string."""
    entries = NodeConfig.decode(data).entries
    for value in entries.values():
        if not isinstance(value, str):
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            raise Failure(
                "com.fasterxml.jackson.databind.JsonMappingException", f"Expected `String` value, received {text}"
            )
    return {key: value for key, value in entries.items() if isinstance(value, str)}


# --- Alter -------------------------------------------------------------------------------------------------------


def _alter(raw: RawConfigs, options: Options, cluster: str, write: Callable[[str], None]) -> None:
    adding, deleting = configs.to_add(options, write), configs.to_delete(options)
    levels = _entity(options)
    if levels[0].kind == "users":
        if not options.tool.writes_quotas_to_zookeeper:
            _refuse_quotas(adding, deleting)
        for mechanism in configs.SCRAM:
            if mechanism in adding:
                adding[mechanism] = stored_credential(mechanism, adding[mechanism])
    java.check_path(_path(levels))

    def merged(data: bytes | None) -> dict[str, str]:
        config = _decode(data)
        missing = [key for key in deleting if key not in config]
        if missing:
            raise Refusal(f"Invalid config(s): {','.join(missing)}")
        config |= adding
        after = {key: value for key, value in config.items() if key not in deleting}
        _validate(levels, after)
        # Kafka 2.8 checks them trimmed and stores them untrimmed: no broker starts with that.
        after |= {key: java.trim(after[key]) for key in _WHOLE & after.keys()}
        if not raw.has_chroot:
            raise Refusal("Path length must be > 0")
        entity = _entity_of(levels)
        begin(entity, NodeConfig.decode(data).values(entity), NodeConfig(after).values(entity))
        return after

    try:
        # Kafka deletes nodes that hold nothing any more since 3.5 (KAFKA-14285).
        with journal.recording(cluster) as begin:
            raw.change(_entity_of(levels), merged, delete_empty=not options.tool.writes_quotas_to_zookeeper)
    except InputError as error:
        raise Refusal(error.message) from None
    except Unauthorized:
        raise
    except KquotaError as error:
        raise Failure(f"kquota.errors.{type(error).__name__}", error.message) from None
    write(f"Completed updating config for entity: {_title(levels)}.")


def _entity_of(levels: Levels) -> Entity:
    return znode.entity_of(_path(levels))


def _refuse_quotas(adding: dict[str, str], deleting: list[str]) -> None:
    """Kafka 3.0 and later change nothing of users in ZooKeeper but credentials."""
    if any(key not in configs.SCRAM for key in (*adding, *deleting)):
        raise Refusal(
            "requirement failed: --bootstrap-server option must be specified to update users configs:"
            f" {{add: {configs.shown(adding)}, delete: {configs.shown_keys(deleting)}}}."
            " User configuration updates using ZooKeeper are only supported for SCRAM credential updates."
        )


def _validate(levels: Levels, config: dict[str, str]) -> None:
    """The whole map as it would be (`DynamicConfig.validate`): a key that was there before counts like a new one."""
    # A default user and a pair are looked at as clients are: no credentials there.
    is_user = levels[0].kind == "users" and len(levels) == 1 and levels[0].node != _DEFAULT
    kind = "ips" if levels[0].kind == "ips" else "users" if is_user else "clients"
    keys, others = _KEYS[kind]
    known = {*others, *(key.value for key in keys)}
    # In the order of Java's Properties: keys of one hash code keep it in Scala's set.
    unknown = [key for key in java.properties_order(config) if key not in known]
    if unknown:
        names = java.mutable_set_order(unknown)
        raise Refusal(f"requirement failed: Unknown Dynamic Configuration: HashSet({', '.join(names)}).")
    for key in keys:
        if key.value in config:
            _validate_value(key, config[key.value])


def _validate_value(key: QuotaKey, text: str) -> None:
    maximum = key.value_type.maximum
    trimmed = java.trim(text)
    number = java.parse_double(trimmed) if maximum is None else java.parse_integer(trimmed, maximum)
    problem = None
    if number is None:
        problem = f"Invalid value {text} for configuration {key}: Not a number of type {key.value_type.value}"
    elif key.value_type is ValueType.INT and number < 0:
        problem = f"Invalid value {number} for configuration {key}: Value must be at least 0"
    if problem is not None:
        raise Failure("org.apache.kafka.common.config.ConfigException", problem)
