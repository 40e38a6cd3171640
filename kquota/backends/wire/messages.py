"""The messages of the protocol: each struct of the table `messages.txt` becomes a named tuple in `MESSAGES`.

`APIS` has the versions of each pair that are spoken here.
"""

import enum
import json
import re
from collections import namedtuple
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple, TypeAlias

from kquota.backends.wire.types import PRIMITIVES, Codec, FrameError, Schema, array_of, struct_of

MATCH_EXACT: Final = 0
MATCH_DEFAULT: Final = 1
MATCH_ANY: Final = 2
UNSUPPORTED_VERSION: Final = 35
BROKER_RESOURCE: Final = 4
"""`ConfigResource.Type.BROKER`: a broker by its id, or by the empty name all of them."""
LOGGER_RESOURCE: Final = 8
"""`ConfigResource.Type.BROKER_LOGGER`: the loggers of a broker or controller by its id (KIP-412)."""
SET: Final = 0
DELETE: Final = 1
"""`AlterConfigOp.OpType`."""
BROKERS: Final = 1
CONTROLLERS: Final = 2
"""Which nodes a DescribeCluster asks for (KIP-919)."""

SCRAM_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""`ScramMechanism` by its number; another number is UNKNOWN to Kafka's client."""


class ApiKey(enum.IntEnum):
    """The messages, by Kafka's number and name."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DESCRIBE_CONFIGS = 32
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    INCREMENTAL_ALTER_CONFIGS = 44
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    DESCRIBE_CLUSTER = 60


Request: TypeAlias = Any
Response: TypeAlias = Any
"""A named tuple of the table, which type checkers cannot read."""
MESSAGES: Final[dict[str, Any]] = {}
"""The named tuples by their names."""
FIELDS: Final[dict[str, list[tuple[str, str, int]]]] = {}
"""The name, the type and the first version of each field, by the name of the struct."""
_SCHEMAS: Final[dict[str, Schema]] = {**PRIMITIVES}


def _define(name: str, fields: str) -> None:
    """Makes the named tuple and the schema of a struct."""
    layout, defaults = [], []
    for field in fields.split(","):
        declared, _, default = field.partition("=")
        label, kind, *since = declared.split()
        layout.append((label, kind, int(since[0][:-1]) if since else 0))
        if default:
            defaults.append(json.loads(default))
    FIELDS[name] = layout
    MESSAGES[name] = namedtuple(name, [label for label, _, _ in layout], defaults=defaults)
    _SCHEMAS[name] = struct_of(MESSAGES[name], *((since, _schema(kind)) for _, kind, since in layout))


def _schema(kind: str) -> Schema:
    if kind.startswith("[]"):
        return array_of(_SCHEMAS[kind[2:].rstrip("?")], nullable=kind.endswith("?"))
    return _SCHEMAS[kind]


_structs = (files("kquota.backends.wire") / "messages.txt").read_text(encoding="utf-8")
for _line in re.sub(r"\n +", " ", re.sub(r"#.*\n", "", _structs)).split("\n"):
    if _line:
        _define(*_line.split(":"))
globals().update(MESSAGES)


class Api(NamedTuple):
    """A message pair and the versions of it that are spoken here, `min_version` to `max_version`."""

    key: ApiKey
    min_version: int
    max_version: int
    flexible_since: int | None

    @property
    def request(self) -> type:
        return self._named("Request")

    @property
    def response(self) -> type:
        return self._named("Response")

    def _named(self, kind: str) -> type:
        message: type = MESSAGES[self.key.name.title().replace("_", "") + kind]
        return message

    def is_flexible(self, version: int) -> bool:
        return self.flexible_since is not None and version >= self.flexible_since

    def codec(self, kind: type, version: int) -> Codec:
        if not self.min_version <= version <= self.max_version:
            raise FrameError(f"{self.key.name} has no version {version} here")
        return _codec(kind.__name__, version, self.is_flexible(version))


@cache
def _codec(name: str, version: int, flexible: bool) -> Codec:
    return _SCHEMAS[name](version, flexible)


APIS: Final = (
    # Every broker since 1.0 speaks these versions, to 4.x. Topics compressed by Zstandard are fetched from v10 on.
    Api(ApiKey.PRODUCE, 3, 3, None),
    Api(ApiKey.FETCH, 4, 11, None),
    Api(ApiKey.LIST_OFFSETS, 2, 2, None),
    Api(ApiKey.CREATE_TOPICS, 2, 2, None),
    Api(ApiKey.DELETE_TOPICS, 1, 1, None),
    Api(ApiKey.SASL_HANDSHAKE, 0, 1, None),
    Api(ApiKey.API_VERSIONS, 0, 3, 3),
    Api(ApiKey.SASL_AUTHENTICATE, 0, 2, 2),
    # The first version tells no sources; brokers of 1.1 and later speak the next one.
    Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, 4),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, 1),
    Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 4, 2),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 1, 0),
    Api(ApiKey.METADATA, 4, 7, None),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, 1),
    Api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, 1),
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, 0),
)
