"""The messages as named tuples, by their names in Kafka: each field with its type on the wire, and the numbers in it.

`APIS` has the versions of each message that are spoken here.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple, TypeAlias

from kquota.backends.wire.rows import Row, entry_rows
from kquota.backends.wire.types import (
    INT8,
    INT16,
    Bool,
    Bytes,
    Codec,
    Float64,
    FrameError,
    Int8,
    Int16,
    Int32,
    Int64,
    NullableString,
    Since,
    String,
    schema_of,
)

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

    METADATA = 3
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

    client_software_name: Annotated[String, Since(3)] = ""
    client_software_version: Annotated[String, Since(3)] = ""


class ApiVersion(NamedTuple):
    """The versions of one message that a broker speaks, both ends included."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


class ApiVersionsResponse(NamedTuple):
    """What a broker speaks. With UNSUPPORTED_VERSION it is in v0, whatever was asked (KIP-511)."""

    error_code: Int16
    api_keys: Sequence[ApiVersion]
    throttle_time_ms: Annotated[Int32, Since(1)] = 0


class SaslHandshakeRequest(NamedTuple):
    """The mechanism that the client wants."""

    mechanism: String


class SaslHandshakeResponse(NamedTuple):
    """The mechanisms that the listener offers."""

    error_code: Int16
    mechanisms: Sequence[String]


class SaslAuthenticateRequest(NamedTuple):
    """One message of the mechanism, to the broker."""

    auth_bytes: Bytes


class SaslAuthenticateResponse(NamedTuple):
    """One message of the mechanism, from the broker."""

    error_code: Int16
    error_message: NullableString
    auth_bytes: Bytes
    session_lifetime_ms: Annotated[Int64, Since(1)] = 0


class DescribeConfigsResource(NamedTuple):
    """Whose configs; null asks for all keys."""

    resource_type: Int8
    resource_name: String
    configuration_keys: Sequence[String] | None


class DescribeConfigsRequest(NamedTuple):
    """The resources, and whether to list what is set for each key at every level (`synonyms`)."""

    resources: Sequence[DescribeConfigsResource]
    include_synonyms: Bool
    include_documentation: Annotated[Bool, Since(3)] = False


class DescribeConfigsSynonym(NamedTuple):
    """A value that a config has at one level, and the name under which it is set there."""

    name: String
    value: NullableString
    source: Int8


class DescribeConfigsResourceResult(NamedTuple):
    """One config; the value of a sensitive one is null."""

    name: String
    value: NullableString
    read_only: Bool
    config_source: Int8
    is_sensitive: Bool
    synonyms: Sequence[DescribeConfigsSynonym]
    config_type: Annotated[Int8, Since(3)] = 0
    documentation: Annotated[NullableString, Since(3)] = None


class DescribeConfigsResult(NamedTuple):
    """The configs of one resource."""

    error_code: Int16
    error_message: NullableString
    resource_type: Int8
    resource_name: String
    configs: Sequence[DescribeConfigsResourceResult]


class DescribeConfigsResponse(NamedTuple):
    """One result a resource."""

    throttle_time_ms: Int32
    results: Sequence[DescribeConfigsResult]


class AlterableConfig(NamedTuple):
    """Sets a config, or deletes it; the value is null then."""

    name: String
    config_operation: Int8
    value: NullableString


class AlterConfigsResource(NamedTuple):
    """What is to change on one resource."""

    resource_type: Int8
    resource_name: String
    configs: Sequence[AlterableConfig]


class IncrementalAlterConfigsRequest(NamedTuple):
    """The changes, or a trial of them."""

    resources: Sequence[AlterConfigsResource]
    validate_only: Bool


class AlterConfigsResourceResponse(NamedTuple):
    """What came of one resource's change."""

    error_code: Int16
    error_message: NullableString
    resource_type: Int8
    resource_name: String


class IncrementalAlterConfigsResponse(NamedTuple):
    """One result a resource."""

    throttle_time_ms: Int32
    responses: Sequence[AlterConfigsResourceResponse]


class DescribeClusterRequest(NamedTuple):
    """Asks for the nodes of a kind: BROKERS, or of a controller CONTROLLERS, since v1."""

    include_cluster_authorized_operations: Bool
    endpoint_type: Annotated[Int8, Since(1)] = BROKERS


class DescribeClusterBroker(NamedTuple):
    """A node, and where clients of the listener that was asked find it."""

    broker_id: Int32
    host: String
    port: Int32
    rack: NullableString


class DescribeClusterResponse(NamedTuple):
    """The nodes that are alive; of controllers, `controller_id` is the active one. Before v1 the type is null."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString
    endpoint_type: Annotated[int | None, INT8, Since(1)]
    cluster_id: String
    controller_id: Int32
    brokers: Sequence[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = -(1 << 31)


class MetadataRequest(NamedTuple):
    """Asks for the brokers, as long as it names no topic: for brokers without DescribeCluster."""

    topics: Sequence[String] = ()
    allow_auto_topic_creation: Bool = False


class MetadataResponse(NamedTuple):
    """The brokers that are alive, and no topic."""

    throttle_time_ms: Int32
    brokers: Sequence[DescribeClusterBroker]
    cluster_id: NullableString
    controller_id: Int32
    topics: Sequence[Int32] = ()


class DescribableLogDirTopic(NamedTuple):
    """A topic and its partitions."""

    topic: String
    partitions: Sequence[Int32]


class DescribeLogDirsRequest(NamedTuple):
    """Asks for the log dirs and the replicas of these topics in them; null asks for all replicas (KIP-113)."""

    topics: Sequence[DescribableLogDirTopic] | None


class DescribeLogDirsPartition(NamedTuple):
    """A replica and its size in bytes."""

    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool


class DescribeLogDirsTopic(NamedTuple):
    """The replicas of a topic in a log dir."""

    name: String
    partitions: Sequence[DescribeLogDirsPartition]


class DescribeLogDirsResult(NamedTuple):
    """A log dir; its volume in bytes since v4 (KIP-827), -1 where that is not known."""

    error_code: Int16
    log_dir: String
    topics: Sequence[DescribeLogDirsTopic]
    total_bytes: Annotated[Int64, Since(4)] = -1
    usable_bytes: Annotated[Int64, Since(4)] = -1


class DescribeLogDirsResponse(NamedTuple):
    """The log dirs of the broker that was asked. Before v3 the error of the whole request is null."""

    throttle_time_ms: Int32
    error_code: Annotated[int | None, INT16, Since(3)]
    results: Sequence[DescribeLogDirsResult]


class ComponentData(NamedTuple):
    """One component of a filter; `match` is a name with MATCH_EXACT, else null."""

    entity_type: String
    match_type: Int8
    match: NullableString


class DescribeClientQuotasRequest(NamedTuple):
    """The filter."""

    components: Sequence[ComponentData]
    strict: Bool


class EntityData(NamedTuple):
    """One part of an entity; the default's name is null."""

    entity_type: String
    entity_name: NullableString


class ValueData(NamedTuple):
    """One quota."""

    key: String
    value: Float64


class QuotaEntry(NamedTuple):
    """An entity and what is set on it."""

    entity: Sequence[EntityData]
    values: Sequence[ValueData]


class DescribeClientQuotasResponse(NamedTuple):
    """The matching entities, null with an error."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString
    entries: Sequence[QuotaEntry] | None


class DescribedRows(NamedTuple):
    """A DescribeClientQuotasResponse with its entries as rows, which thousands of them are read into much faster."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString
    rows: Annotated[Sequence[Row] | None, entry_rows]


class OpData(NamedTuple):
    """Sets a quota, or removes it; the value is 0.0 then, as Java's client has it."""

    key: String
    value: Float64
    remove: Bool


class AlterEntry(NamedTuple):
    """An entity and what is to change on it."""

    entity: Sequence[EntityData]
    ops: Sequence[OpData]


class AlterClientQuotasRequest(NamedTuple):
    """The changes, or a trial of them."""

    entries: Sequence[AlterEntry]
    validate_only: Bool


class AlterEntryResult(NamedTuple):
    """What came of one entity's change."""

    error_code: Int16
    error_message: NullableString
    entity: Sequence[EntityData]


class AlterClientQuotasResponse(NamedTuple):
    """One result an entity, in no particular order."""

    throttle_time_ms: Int32
    entries: Sequence[AlterEntryResult]


class UserName(NamedTuple):
    """A user."""

    name: String


class DescribeUserScramCredentialsRequest(NamedTuple):
    """The users; null or none at all asks for every user (KIP-554)."""

    users: Sequence[UserName] | None


class CredentialInfo(NamedTuple):
    """A mechanism by its number (`SCRAM_MECHANISMS`), and how many iterations its keys were made with."""

    mechanism: Int8
    iterations: Int32


class DescribeUserScramCredentialsResult(NamedTuple):
    """The credentials of one user; RESOURCE_NOT_FOUND for a user that has none."""

    user: String
    error_code: Int16
    error_message: NullableString
    credential_infos: Sequence[CredentialInfo]


class DescribeUserScramCredentialsResponse(NamedTuple):
    """One result a user."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: NullableString
    results: Sequence[DescribeUserScramCredentialsResult]


Request: TypeAlias = (
    ApiVersionsRequest
    | SaslHandshakeRequest
    | SaslAuthenticateRequest
    | DescribeConfigsRequest
    | IncrementalAlterConfigsRequest
    | DescribeClusterRequest
    | MetadataRequest
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
    | MetadataResponse
    | DescribeLogDirsResponse
    | DescribeClientQuotasResponse
    | DescribedRows
    | AlterClientQuotasResponse
    | DescribeUserScramCredentialsResponse
)


class Api(NamedTuple):
    """A message pair and the versions of it that are spoken here, `min_version` to `max_version`."""

    key: ApiKey
    request: type[Request]
    response: type[Response]
    max_version: int
    flexible_since: int
    min_version: int = 0

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_since

    def codec(self, kind: type, version: int) -> Codec:
        if not self.min_version <= version <= self.max_version:
            raise FrameError(f"{self.key.name} has no version {version} here")
        known = _CODECS.get((kind, version))
        if known is None:
            known = _CODECS[kind, version] = schema_of(kind)(version, self.is_flexible(version))
        return known


_CODECS: dict[tuple[type, int], Codec] = {}
_NEVER = 1 << 15
APIS: Final = (
    Api(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest, SaslHandshakeResponse, 1, _NEVER),
    Api(ApiKey.API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse, 3, 3),
    Api(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest, SaslAuthenticateResponse, 2, 2),
    # The first version tells no sources; brokers of 1.1 and later speak the next one.
    Api(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResponse, 4, 4, min_version=1),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, 1, 1),
    Api(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest, DescribeLogDirsResponse, 4, 2, min_version=1),
    Api(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest, DescribeClusterResponse, 1, 0),
    Api(ApiKey.METADATA, MetadataRequest, MetadataResponse, 7, _NEVER, min_version=4),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest, DescribeClientQuotasResponse, 1, 1),
    Api(ApiKey.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest, AlterClientQuotasResponse, 1, 1),
    Api(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
        0,
        0,
    ),
)
