"""Kafka's ZooKeeper layout of quotas as a pure codec: paths, node data, change notifications, which nodes hide secrets.

Sources: `kafka.zk.ConfigEntityZNode`, `ConfigEntityChangeNotificationZNode`, `ZkData` and
`org.apache.kafka.common.utils.Sanitizer` of Kafka 2.8, the last release whose tool writes quotas to ZooKeeper.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kquota.core.quotas.alteration import Alteration
from kquota.core.quotas.entity import DEFAULT, Entity, EntityType, Name
from kquota.core.quotas.quota import KEYS_OF_IPS, KEYS_OF_USERS, QuotaKey, Value, format_value, parse_stored
from kquota.core.quotas.snapshot import Problem, Values
from kquota.core.resolve.resolver import encode_user
from kquota.errors import InputError, Rejected

CONFIG = "/config"
CHANGES = "/config/changes"
CHANGE_PREFIX = "/config/changes/config_change_"
CONTROLLER = "/controller"
CLUSTER_ID = "/cluster/id"
CONTROLLER_EPOCH = "/controller_epoch"
"""Written anew whenever a broker becomes the controller, or KRaft takes over."""
CLIENTS = "clients"
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
"""The keys under which a user's node holds credentials, beside the quotas."""
ENTITY_ROOTS = {entity_type: f"{CONFIG}/{entity_type.plural}" for entity_type in EntityType}

# --- Names and paths ---------------------------------------------------------------------------------------------


def encode_name(entity_type: EntityType, name: Name) -> str:
    """The node's name: sanitized for users and client-ids (`Sanitizer.sanitize`), as typed for ips.

    Raises InputError for a name that no znode can have.
    """
    if name is DEFAULT:
        return DEFAULT.value
    if name in (".", ".."):
        raise InputError(
            f"{entity_type.value} {name!r} cannot be stored in ZooKeeper",
            hint="relative names are illegal in its paths",
        )
    if entity_type is EntityType.IP:
        if name == DEFAULT.value or "/" in name or _ILLEGAL_IN_PATH.search(name):
            raise InputError(
                f"ip {name!r} cannot be stored in ZooKeeper", hint="quotas are for single addresses, not networks"
            )
        return name
    try:
        return encode_user(name)
    except UnicodeEncodeError:
        raise InputError(f"{entity_type.value} {name!r} is not valid Unicode") from None


# `PathUtils.validatePath` of ZooKeeper.
_ILLEGAL_IN_PATH = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
_ESCAPE = re.compile(r"%(?:([0-9A-Fa-f]{2})|.{0,2})", re.DOTALL)


def decode_name(entity_type: EntityType, node_name: str) -> Name:
    """The entity's name under that node: `URLDecoder.decode` for users and client-ids, `+` being a blank.

    Raises InputError for a bad `%` escape, on which a ZooKeeper-mode broker fails to start.
    """
    if node_name == DEFAULT.value:
        return DEFAULT
    if entity_type is EntityType.IP or ("%" not in node_name and "+" not in node_name):
        return node_name
    for escape in _ESCAPE.finditer(node_name):
        if escape[1] is None:
            raise InputError(f"bad escape {escape[0]!r} in the name {node_name!r}")
    blanks = node_name.replace("+", " ").encode("utf-8", "surrogatepass")
    decoded = re.sub(rb"%([0-9A-Fa-f]{2})", lambda escape: bytes.fromhex(escape[1].decode()), blanks)
    return decoded.decode("utf-8", "replace")


def entity_path(entity: Entity) -> str:
    """The path below `/config`, as change notifications name it: `users/CN%3Da/clients/app1`.

    Raises InputError for a name that no znode can have.
    """
    return "/".join(f"{entity_type.plural}/{encode_name(entity_type, name)}" for entity_type, name in entity.parts)


def znode_path(entity: Entity) -> str:
    """The absolute path within the chroot. Raises InputError as `entity_path` does."""
    return f"{CONFIG}/{entity_path(entity)}"


def entity_of(path: str) -> Entity:
    """The entity whose node that is; the inverse of `znode_path`, and of Kafka's older names that it reads as well.

    Raises InputError for a path that is no quota entity's or that has a bad escape.
    """
    match path.removeprefix(f"{CONFIG}/").split("/"):
        case ["users", user] if user:
            return Entity(user=decode_name(EntityType.USER, user))
        case ["users", user, "clients", client] if user and client:
            return Entity(user=decode_name(EntityType.USER, user), client_id=decode_name(EntityType.CLIENT_ID, client))
        case ["clients", client] if client:
            return Entity(client_id=decode_name(EntityType.CLIENT_ID, client))
        case ["ips", ip] if ip:
            return Entity(ip=decode_name(EntityType.IP, ip))
    raise InputError(f"{path!r} is not the path of a quota entity")


def parents(path: str) -> Iterator[str]:
    """The ancestors of a path from the top down, without the root."""
    position = path.find("/", 1)
    while position != -1:
        yield path[:position]
        position = path.find("/", position + 1)


# `ZkData.SensitiveRootPaths`, matched as plain prefixes there as here.
_SENSITIVE = ("/config/users", "/config/brokers", "/delegation_token/tokens")


def is_sensitive(path: str) -> bool:
    """Whether a secured cluster keeps the node from the world's eyes (`ZkData.sensitivePath`): it may hold secrets."""
    return path.startswith(_SENSITIVE)


# --- Node data ---------------------------------------------------------------------------------------------------

# The order in which the tool writes keys on Java 9 and later (iteration of java.util.Properties). Keys that the tool
# itself would not write come last, in the order in which they were read. No reader cares.
_KEY_ORDER = (
    "SCRAM-SHA-512",
    "SCRAM-SHA-256",
    QuotaKey.REQUEST_PERCENTAGE.value,
    QuotaKey.PRODUCER_BYTE_RATE.value,
    QuotaKey.CONSUMER_BYTE_RATE.value,
    QuotaKey.CONTROLLER_MUTATION_RATE.value,
    QuotaKey.CONNECTION_CREATION_RATE.value,
)
_RANKS = {name: rank for rank, name in enumerate(_KEY_ORDER)}

# What Jackson escapes in a string, and nothing else; a lone surrogate has no UTF-8 form, so it stays an escape.
_ESCAPES = (
    {code: f"\\u{code:04X}" for code in range(0x20)}
    | {0x08: "\\b", 0x09: "\\t", 0x0A: "\\n", 0x0C: "\\f", 0x0D: "\\r", 0x22: '\\"', 0x5C: "\\\\"}
    | {code: f"\\u{code:04X}" for code in range(0xD800, 0xE000)}
)


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def encode_config(config: Mapping[str, str]) -> bytes:
    """The node's data, byte for byte as Kafka's tool writes it: compact, version first, every value a string."""
    names = sorted(config, key=lambda name: _RANKS.get(name, len(_RANKS)))
    members = ",".join(f"{_quoted(name)}:{_quoted(config[name])}" for name in names)
    return f'{{"version":1,"config":{{{members}}}}}'.encode()


def change_notification(entity: Entity) -> bytes:
    """The data of the node that makes brokers read the entity again (version 2 of the format)."""
    return f'{{"version":2,"entity_path":{_quoted(entity_path(entity))}}}'.encode()


def _refuse_constant(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _parse(data: bytes | None) -> object:
    """The first JSON value of the data, None for no data; raises ValueError.

    Jackson, too, ignores trailing text, and a byte order mark.
    """
    text = (data or b"").decode("utf-8-sig").strip(" \t\r\n")
    if not text:
        return None
    try:
        return _DECODER.raw_decode(text)[0]
    except RecursionError:
        raise ValueError("nested too deeply") from None


@dataclass(slots=True)
class _Reading:
    """One pass over a node's entries."""

    stored: dict[QuotaKey, Value | None]
    """The quota keys of the entity that are set, with None for what no broker can parse."""
    faults: list[tuple[str, str]]
    """The keys on which a starting broker fails, each with what is wrong about it."""
    misplaced: list[str]
    """Quota keys of another entity type, which brokers do not look at."""

    def values(self) -> Values:
        if len(self.stored) < 2:
            return {key: value for key, value in self.stored.items() if value is not None}
        return {key: value for key in QuotaKey if (value := self.stored.get(key)) is not None}


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """What one entity's node holds. Keys that are not quotas, SCRAM credentials among them, never show in its repr."""

    entries: Mapping[str, object] = field(default_factory=dict, repr=False)
    """Every key as it was read; a broker accepts strings only."""
    unreadable: str | None = None
    """Why a broker sees no config in data that is there, else None."""

    @classmethod
    def decode(cls, data: bytes | None) -> NodeConfig:
        """Reads a node's data as `ConfigEntityZNode.decode` does: what is not a config object counts as empty."""
        try:
            document = _parse(data)
        except ValueError:
            return cls(unreadable="the data is not JSON")
        if document is None:
            return cls()
        if not isinstance(document, dict):
            return cls(unreadable="the data is not a JSON object")
        config = document.get("config")
        if config is None:
            return cls()
        if not isinstance(config, dict):
            return cls(unreadable='"config" is not a JSON object')
        return cls(config)

    @property
    def scram_mechanisms(self) -> tuple[str, ...]:
        """The mechanisms that credentials are there for; the credentials themselves are not shown."""
        return tuple(name for name in SCRAM_MECHANISMS if name in self.entries)

    def values(self, entity: Entity) -> Values:
        """The quotas of the entity that a broker can parse."""
        return self._read(entity).values()

    def describe(self, entity: Entity, path: str) -> tuple[Values, list[Problem]]:
        """The quotas that a broker can parse, and what it cannot use, without the value of any key that is no quota."""
        reading = self._read(entity)
        problems = []
        if self.unreadable is not None:
            problems.append(Problem(path, f"{self.unreadable}: brokers see no config here"))
        for name, what in reading.faults:
            problems.append(Problem(path, f"{name} {what}; a ZooKeeper-mode broker that starts with it stops at once"))
        for name in reading.misplaced:
            problems.append(Problem(path, f"{name} has no effect on {entity}"))
        return reading.values(), problems

    def _read(self, entity: Entity) -> _Reading:
        keys, others = (KEYS_OF_IPS, KEYS_OF_USERS) if entity.ip is not None else (KEYS_OF_USERS, KEYS_OF_IPS)
        reading = _Reading({}, [], [])
        for name, text in self.entries.items():
            key = keys.get(name)
            if not isinstance(text, str):
                reading.faults.append((name, "is not a JSON string"))
                if key is not None:
                    reading.stored[key] = None
            elif key is not None:
                value = reading.stored[key] = parse_stored(key, text)
                if value is None:
                    reading.faults.append((name, f"is {text!r}, not a {key.value_type.value}"))
            elif name in others:
                reading.misplaced.append(name)
        return reading

    def change(self, alteration: Alteration) -> NodeChange:
        """What the alteration makes of the node.

        Raises InputError for a strict removal of what is not set; Rejected where the node holds data that is not
        Kafka's, or a value on which brokers fail and that the alteration leaves in place.
        """
        entity = alteration.entity
        if self.unreadable is not None:
            raise Rejected(
                f"{entity}: {self.unreadable} in its znode; nothing was written over it",
                hint=f"look at {znode_path(entity)} and delete the node if nobody needs what it holds",
            )
        touched = {key.value for key in alteration.set} | {key.value for key in alteration.remove}
        reading = self._read(entity)
        faults = [(name, what) for name, what in reading.faults if name not in touched]
        if faults:
            raise Rejected(
                f"{entity}: its znode holds what stops a starting broker: "
                + "; ".join(f"{name} {what}" for name, what in faults),
                hint=_advice(entity, [name for name, _ in faults]),
            )
        # A value that no broker can parse still counts as set: it can be deleted, strictly too.
        before = reading.values()
        after = alteration.applied_to(before, reading.stored.keys())
        if not alteration.set and reading.stored.keys().isdisjoint(alteration.remove):
            return NodeChange(before, before, None)
        removed = {key.value for key in alteration.remove}
        kept = {name: value for name, value in self.entries.items() if name not in removed and isinstance(value, str)}
        written = {key.value: format_value(key, value) for key, value in alteration.set.items()}
        config = {**kept, **written}
        unusable = frozenset(key for key, value in reading.stored.items() if value is None)
        if alteration.form is not None:
            restored = _restored(alteration, config, before, after)
            if restored is not None:
                return restored
        deletes = entity.ip is not None and not config
        return NodeChange(before, after, encode_config(config), deletes=deletes, unusable=unusable)


_PAIR = re.compile(r'(?P<name>"(?:[^"\\]|\\.)*")\s*:\s*(?P<value>"(?:[^"\\]|\\.)*")')
_QUOTA_NAMES = frozenset(key.value for key in QuotaKey)


def absent_form(missing: Iterable[str]) -> str:
    """The form of a node that is not there, with the ancestors that are not there either."""
    return json.dumps({"missing": list(missing)})


def form_of(data: bytes | None) -> str | None:
    """What is needed to restore the data to the byte; None where that is not possible.

    Of keys that are no quotas it has the places and not the values, which stay in the node.
    """
    if not data:
        return json.dumps({"data": None if data is None else []})
    try:
        text = data.decode()
        document, end = _DECODER.raw_decode(text.strip(" \t\r\n"))
    except (ValueError, RecursionError):
        return None
    entries = NodeConfig.decode(data).entries
    known = (
        isinstance(document, dict) and document.keys() <= {"version", "config"} and end == len(text.strip(" \t\r\n"))
    )
    if not known or not all(isinstance(value, str) for value in entries.values()):
        return None
    parts: list[str | dict[str, str]] = []
    position = 0
    for pair in _PAIR.finditer(text):
        name = json.loads(pair["name"])
        if name in entries and name not in _QUOTA_NAMES:
            parts += [text[position : pair.start("value")], {"key": name}]
            position = pair.end("value")
    parts.append(text[position:])
    return json.dumps({"data": parts}) if _filled(parts, entries) == data else None


def _filled(parts: Iterable[str | dict[str, str]], entries: Mapping[str, object]) -> bytes | None:
    """The data of a form, with the values of the keys that are no quotas; None where one is gone."""
    try:
        texts = (part if isinstance(part, str) else _quoted(str(entries[part["key"]])) for part in parts)
        return "".join(texts).encode()
    except KeyError:
        return None


def _restored(alteration: Alteration, config: Mapping[str, str], before: Values, after: Values) -> NodeChange | None:
    """The node in the form that the alteration restores; None where what it holds now is not what that form had."""
    assert alteration.form is not None
    form = json.loads(alteration.form)
    if "missing" in form:
        ancestors = [path for path in parents(znode_path(alteration.entity)) if path in form["missing"]]
        tidy = tuple(path for path in ancestors if path.startswith(tuple(ENTITY_ROOTS.values())))
        return None if config else NodeChange(before, after, encode_config({}), deletes=True, tidy=tidy)
    if not form["data"]:
        return None if config else NodeChange(before, after, b"", null=form["data"] is None)
    data = _filled(form["data"], config)
    if data is None:
        return None
    restored = NodeConfig.decode(data)
    others = [
        {name: value for name, value in entries.items() if name not in _QUOTA_NAMES}
        for entries in (restored.entries, config)
    ]
    reading = restored._read(alteration.entity)
    if others[0] != others[1] or reading.faults or dict(reading.values()) != dict(after):
        return None
    return NodeChange(before, after, data)


def _advice(entity: Entity, names: Iterable[str]) -> str:
    quotas = KEYS_OF_USERS if entity.ip is None else KEYS_OF_IPS
    own = [name for name in names if name in quotas]
    foreign = [name for name in names if name not in quotas]
    advice = []
    if own:
        advice.append(f"set or delete {', '.join(own)} in the same command")
    if foreign:
        advice.append(f"remove {', '.join(foreign)} from {znode_path(entity)} with a ZooKeeper client")
    return "; ".join(advice)


@dataclass(frozen=True, slots=True)
class NodeChange:
    """The values before and after, and the data to write; None where there is nothing to write.

    With `deletes` the node is to go. Kafka since 3.5 does that to every node that holds nothing any more (KAFKA-14285),
    its tool of 2.8 to none; of an ip, even an empty node stops a starting broker once the name no longer resolves.
    """

    before: Values
    after: Values
    data: bytes | None = field(repr=False)
    deletes: bool = False
    unusable: frozenset[QuotaKey] = frozenset()
    """The keys whose value no broker could parse; all of them are set or deleted."""
    null: bool = False
    """Whether the node is to have no data at all, which is another thing than empty data."""
    tidy: tuple[str, ...] = ()
    """The ancestors that go with the node, unless something else needs them."""


def kraft_controller_epoch(data: bytes | None) -> int:
    """The epoch of a KRaft controller that owns the metadata, from the data of `/controller`; 0 or less without one."""
    epoch = _member(data, "kraftControllerEpoch")
    return epoch if isinstance(epoch, int) and not isinstance(epoch, bool) else 0


def cluster_id(data: bytes | None) -> str | None:
    """Kafka's cluster id, from the data of `/cluster/id`; None for anything else."""
    value = _member(data, "id")
    return value if isinstance(value, str) and value else None


def _member(data: bytes | None, name: str) -> object:
    """A member of the JSON object that the data are; None where they are none."""
    try:
        document = _parse(data)
    except ValueError:
        return None
    return document.get(name) if isinstance(document, dict) else None
