"""The messages as named tuples, by their names in Kafka, and the numbers that their fields hold."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from kquota.backends.wire.rows import Row

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

    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    DESCRIBE_CONFIGS = 32
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    INCREMENTAL_ALTER_CONFIGS = 44
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    DESCRIBE_CLUSTER = 60


class RequestHeader(NamedTuple):
    """What every request starts with; the client-id is null for anonymous clients."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


class ApiVersionsRequest(NamedTuple):
    """Who is asking, since v3; before it the request has no body."""

    client_software_name: str = ""
    client_software_version: str = ""


class ApiVersion(NamedTuple):
    """The versions of one message that a broker speaks, both ends included."""

    api_key: int
    min_version: int
    max_version: int


class ApiVersionsResponse(NamedTuple):
    """What a broker speaks. With UNSUPPORTED_VERSION it is in v0, whatever was asked (KIP-511)."""

    error_code: int
    api_keys: Sequence[ApiVersion]
    throttle_time_ms: int = 0


class SaslHandshakeRequest(NamedTuple):
    """The mechanism that the client wants."""

    mechanism: str


class SaslHandshakeResponse(NamedTuple):
    """The mechanisms that the listener offers."""

    error_code: int
    mechanisms: Sequence[str]


class SaslAuthenticateRequest(NamedTuple):
    """One message of the mechanism, to the broker."""

    auth_bytes: bytes


class SaslAuthenticateResponse(NamedTuple):
    """One message of the mechanism, from the broker."""

    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int = 0


class DescribeConfigsResource(NamedTuple):
    """Whose configs; null asks for all keys."""

    resource_type: int
    resource_name: str
    configuration_keys: Sequence[str] | None


class DescribeConfigsRequest(NamedTuple):
    """The resources, and whether to list what is set for each key at every level (`synonyms`)."""

    resources: Sequence[DescribeConfigsResource]
    include_synonyms: bool
    include_documentation: bool = False


class DescribeConfigsSynonym(NamedTuple):
    """A value that a config has at one level, and the name under which it is set there."""

    name: str
    value: str | None
    source: int


class DescribeConfigsResourceResult(NamedTuple):
    """One config; the value of a sensitive one is null."""

    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
    synonyms: Sequence[DescribeConfigsSynonym]
    config_type: int = 0
    documentation: str | None = None


class DescribeConfigsResult(NamedTuple):
    """The configs of one resource."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    configs: Sequence[DescribeConfigsResourceResult]


class DescribeConfigsResponse(NamedTuple):
    """One result a resource."""

    throttle_time_ms: int
    results: Sequence[DescribeConfigsResult]


class AlterableConfig(NamedTuple):
    """Sets a config, or deletes it; the value is null then."""

    name: str
    config_operation: int
    value: str | None


class AlterConfigsResource(NamedTuple):
    """What is to change on one resource."""

    resource_type: int
    resource_name: str
    configs: Sequence[AlterableConfig]


class IncrementalAlterConfigsRequest(NamedTuple):
    """The changes, or a trial of them."""

    resources: Sequence[AlterConfigsResource]
    validate_only: bool


class AlterConfigsResourceResponse(NamedTuple):
    """What came of one resource's change."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


class IncrementalAlterConfigsResponse(NamedTuple):
    """One result a resource."""

    throttle_time_ms: int
    responses: Sequence[AlterConfigsResourceResponse]


class DescribeClusterRequest(NamedTuple):
    """Asks for the nodes of a kind: BROKERS, or of a controller CONTROLLERS, since v1."""

    include_cluster_authorized_operations: bool
    endpoint_type: int = BROKERS


class DescribeClusterBroker(NamedTuple):
    """A node, and where clients of the listener that was asked find it."""

    broker_id: int
    host: str
    port: int
    rack: str | None


class DescribeClusterResponse(NamedTuple):
    """The nodes that are alive; of controllers, `controller_id` is the active one. Before v1 the type is null."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    endpoint_type: int | None
    cluster_id: str
    controller_id: int
    brokers: Sequence[DescribeClusterBroker]
    cluster_authorized_operations: int = -(1 << 31)


class DescribableLogDirTopic(NamedTuple):
    """A topic and its partitions."""

    topic: str
    partitions: Sequence[int]


class DescribeLogDirsRequest(NamedTuple):
    """Asks for the log dirs and the replicas of these topics in them; null asks for all replicas (KIP-113)."""

    topics: Sequence[DescribableLogDirTopic] | None


class DescribeLogDirsPartition(NamedTuple):
    """A replica and its size in bytes."""

    partition_index: int
    partition_size: int
    offset_lag: int
    is_future_key: bool


class DescribeLogDirsTopic(NamedTuple):
    """The replicas of a topic in a log dir."""

    name: str
    partitions: Sequence[DescribeLogDirsPartition]


class DescribeLogDirsResult(NamedTuple):
    """A log dir; its volume in bytes since v4 (KIP-827), -1 where that is not known."""

    error_code: int
    log_dir: str
    topics: Sequence[DescribeLogDirsTopic]
    total_bytes: int = -1
    usable_bytes: int = -1


class DescribeLogDirsResponse(NamedTuple):
    """The log dirs of the broker that was asked. Before v3 the error of the whole request is null."""

    throttle_time_ms: int
    error_code: int | None
    results: Sequence[DescribeLogDirsResult]


class ComponentData(NamedTuple):
    """One component of a filter; `match` is a name with MATCH_EXACT, else null."""

    entity_type: str
    match_type: int
    match: str | None


class DescribeClientQuotasRequest(NamedTuple):
    """The filter."""

    components: Sequence[ComponentData]
    strict: bool


class EntityData(NamedTuple):
    """One part of an entity; the default's name is null."""

    entity_type: str
    entity_name: str | None


class ValueData(NamedTuple):
    """One quota."""

    key: str
    value: float


class QuotaEntry(NamedTuple):
    """An entity and what is set on it."""

    entity: Sequence[EntityData]
    values: Sequence[ValueData]


class DescribeClientQuotasResponse(NamedTuple):
    """The matching entities, null with an error."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: Sequence[QuotaEntry] | None


class DescribedRows(NamedTuple):
    """A DescribeClientQuotasResponse with its entries as rows, which thousands of them are read into much faster."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    rows: Sequence[Row] | None


class OpData(NamedTuple):
    """Sets a quota, or removes it; the value is 0.0 then, as Java's client has it."""

    key: str
    value: float
    remove: bool


class AlterEntry(NamedTuple):
    """An entity and what is to change on it."""

    entity: Sequence[EntityData]
    ops: Sequence[OpData]


class AlterClientQuotasRequest(NamedTuple):
    """The changes, or a trial of them."""

    entries: Sequence[AlterEntry]
    validate_only: bool


class AlterEntryResult(NamedTuple):
    """What came of one entity's change."""

    error_code: int
    error_message: str | None
    entity: Sequence[EntityData]


class AlterClientQuotasResponse(NamedTuple):
    """One result an entity, in no particular order."""

    throttle_time_ms: int
    entries: Sequence[AlterEntryResult]


class UserName(NamedTuple):
    """A user."""

    name: str


class DescribeUserScramCredentialsRequest(NamedTuple):
    """The users; null or none at all asks for every user (KIP-554)."""

    users: Sequence[UserName] | None


class CredentialInfo(NamedTuple):
    """A mechanism by its number (`SCRAM_MECHANISMS`), and how many iterations its keys were made with."""

    mechanism: int
    iterations: int


class DescribeUserScramCredentialsResult(NamedTuple):
    """The credentials of one user; RESOURCE_NOT_FOUND for a user that has none."""

    user: str
    error_code: int
    error_message: str | None
    credential_infos: Sequence[CredentialInfo]


class DescribeUserScramCredentialsResponse(NamedTuple):
    """One result a user."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: Sequence[DescribeUserScramCredentialsResult]


Request: TypeAlias = (
    ApiVersionsRequest
    | SaslHandshakeRequest
    | SaslAuthenticateRequest
    | DescribeConfigsRequest
    | IncrementalAlterConfigsRequest
    | DescribeClusterRequest
    | DescribeLogDirsRequest
    | DescribeClientQuotasRequest
    | AlterClientQuotasRequest
    | DescribeUserScramCredentialsRequest
)
Response: TypeAlias = (
    ApiVersionsResponse
    | SaslHandshakeResponse
    | SaslAuthenticateResponse
    | DescribeConfigsResponse
    | IncrementalAlterConfigsResponse
    | DescribeClusterResponse
    | DescribeLogDirsResponse
    | DescribeClientQuotasResponse
    | DescribedRows
    | AlterClientQuotasResponse
    | DescribeUserScramCredentialsResponse
)
