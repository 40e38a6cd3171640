"""The messages, their versions, and frames of them (without their length prefix) ↔ named tuples."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

from kquota.backends.wire.rows import Row, rows
from kquota.backends.wire.types import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    Codec,
    FrameError,
    Schema,
    array_of,
    decode,
    decode_whole,
    encode,
    struct_of,
)

MATCH_EXACT: Final = 0
MATCH_DEFAULT: Final = 1
MATCH_ANY: Final = 2
UNSUPPORTED_VERSION: Final = 35
BROKER_RESOURCE: Final = 4
"""`ConfigResource.Type.BROKER`: a broker by its id, or by the empty name all of them."""
SET: Final = 0
DELETE: Final = 1
"""`AlterConfigOp.OpType`."""
BROKERS: Final = 1
CONTROLLERS: Final = 2
"""Which nodes a DescribeCluster asks for (KIP-919)."""


class ApiKey(enum.IntEnum):
    """The messages, by Kafka's number and name."""

    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    DESCRIBE_CONFIGS = 32
    SASL_AUTHENTICATE = 36
    INCREMENTAL_ALTER_CONFIGS = 44
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
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
    """The resources, and whether to tell what is set for each key at every level (`synonyms`)."""

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


Request: TypeAlias = (
    ApiVersionsRequest
    | SaslHandshakeRequest
    | SaslAuthenticateRequest
    | DescribeConfigsRequest
    | IncrementalAlterConfigsRequest
    | DescribeClusterRequest
    | DescribeClientQuotasRequest
    | AlterClientQuotasRequest
)
Response: TypeAlias = (
    ApiVersionsResponse
    | SaslHandshakeResponse
    | SaslAuthenticateResponse
    | DescribeConfigsResponse
    | IncrementalAlterConfigsResponse
    | DescribeClusterResponse
    | DescribeClientQuotasResponse
    | DescribedRows
    | AlterClientQuotasResponse
)
R = TypeVar("R", bound=Response)


def encode_request(message: Request, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The frame of a request. Raises FrameError for what a frame cannot carry, such as names beyond 32,767 bytes."""
    api = _BY_MESSAGE[type(message)]
    header = RequestHeader(api.key, version, correlation_id, client_id)
    return encode(_request_header(api.is_flexible(version)), header, api.codec(type(message), version), message)


def decode_request(frame: bytes) -> tuple[RequestHeader, Request]:
    """Reads a request, as a broker does. Raises FrameError for anything but one whole message of a known version."""
    (key, version), _ = decode(_KEY_AND_VERSION, frame, 0)
    if key not in _BY_KEY:
        raise FrameError(f"unknown message {key}")
    api = _BY_KEY[ApiKey(key)]
    header, at = decode(_request_header(api.is_flexible(version)), frame, 0)
    return header, decode_whole(api.codec(api.request, version), frame, at)


def encode_response(message: Response, version: int, correlation_id: int) -> bytes:
    """The frame of a response. Raises FrameError for what a frame cannot carry."""
    api = _BY_MESSAGE[type(message)]
    return encode(_response_header(api, version), (correlation_id,), api.codec(type(message), version), message)


def decode_response(kind: type[R], version: int, frame: bytes) -> tuple[int, R]:
    """Reads the response to a request of that version: (correlation id, message).

    Raises FrameError for anything but one whole message. An ApiVersionsResponse with UNSUPPORTED_VERSION is read in the
    v0 that brokers fall back to.
    """
    api = _BY_MESSAGE[kind]
    (correlation_id,), at = decode(_response_header(api, version), frame, 0)
    if kind is ApiVersionsResponse and decode(_ERROR_CODE, frame, at)[0] == UNSUPPORTED_VERSION:
        version = 0
    message: R = decode_whole(api.codec(kind, version), frame, at)
    return correlation_id, message


_ENTITY = array_of(struct_of(EntityData, STRING, NULLABLE_STRING))
_SCHEMAS: Mapping[type, Schema] = {
    ApiVersionsRequest: struct_of(ApiVersionsRequest, (3, STRING), (3, STRING)),
    ApiVersionsResponse: struct_of(
        ApiVersionsResponse,
        INT16,
        array_of(struct_of(ApiVersion, INT16, INT16, INT16)),
        (1, INT32),
    ),
    SaslHandshakeRequest: struct_of(SaslHandshakeRequest, STRING),
    SaslHandshakeResponse: struct_of(SaslHandshakeResponse, INT16, array_of(STRING)),
    SaslAuthenticateRequest: struct_of(SaslAuthenticateRequest, BYTES),
    SaslAuthenticateResponse: struct_of(SaslAuthenticateResponse, INT16, NULLABLE_STRING, BYTES, (1, INT64)),
    DescribeConfigsRequest: struct_of(
        DescribeConfigsRequest,
        array_of(struct_of(DescribeConfigsResource, INT8, STRING, array_of(STRING, nullable=True))),
        BOOL,
        (3, BOOL),
    ),
    DescribeConfigsResponse: struct_of(
        DescribeConfigsResponse,
        INT32,
        array_of(
            struct_of(
                DescribeConfigsResult,
                INT16,
                NULLABLE_STRING,
                INT8,
                STRING,
                array_of(
                    struct_of(
                        DescribeConfigsResourceResult,
                        STRING,
                        NULLABLE_STRING,
                        BOOL,
                        INT8,
                        BOOL,
                        array_of(struct_of(DescribeConfigsSynonym, STRING, NULLABLE_STRING, INT8)),
                        (3, INT8),
                        (3, NULLABLE_STRING),
                    )
                ),
            )
        ),
    ),
    IncrementalAlterConfigsRequest: struct_of(
        IncrementalAlterConfigsRequest,
        array_of(
            struct_of(
                AlterConfigsResource,
                INT8,
                STRING,
                array_of(struct_of(AlterableConfig, STRING, INT8, NULLABLE_STRING)),
            )
        ),
        BOOL,
    ),
    IncrementalAlterConfigsResponse: struct_of(
        IncrementalAlterConfigsResponse,
        INT32,
        array_of(struct_of(AlterConfigsResourceResponse, INT16, NULLABLE_STRING, INT8, STRING)),
    ),
    DescribeClusterRequest: struct_of(DescribeClusterRequest, BOOL, (1, INT8)),
    DescribeClusterResponse: struct_of(
        DescribeClusterResponse,
        INT32,
        INT16,
        NULLABLE_STRING,
        (1, INT8),
        STRING,
        INT32,
        array_of(struct_of(DescribeClusterBroker, INT32, STRING, INT32, NULLABLE_STRING)),
        INT32,
    ),
    DescribeClientQuotasRequest: struct_of(
        DescribeClientQuotasRequest,
        array_of(struct_of(ComponentData, STRING, INT8, NULLABLE_STRING)),
        BOOL,
    ),
    DescribeClientQuotasResponse: struct_of(
        DescribeClientQuotasResponse,
        INT32,
        INT16,
        NULLABLE_STRING,
        array_of(
            struct_of(
                QuotaEntry,
                _ENTITY,
                array_of(struct_of(ValueData, STRING, FLOAT64)),
            ),
            nullable=True,
        ),
    ),
    DescribedRows: struct_of(DescribedRows, INT32, INT16, NULLABLE_STRING, rows),
    AlterClientQuotasRequest: struct_of(
        AlterClientQuotasRequest,
        array_of(
            struct_of(
                AlterEntry,
                _ENTITY,
                array_of(struct_of(OpData, STRING, FLOAT64, BOOL)),
            )
        ),
        BOOL,
    ),
    AlterClientQuotasResponse: struct_of(
        AlterClientQuotasResponse,
        INT32,
        array_of(struct_of(AlterEntryResult, INT16, NULLABLE_STRING, _ENTITY)),
    ),
}


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
            known = _CODECS[kind, version] = _SCHEMAS[kind](version, self.is_flexible(version))
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
    Api(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest, DescribeClusterResponse, 1, 0),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, DescribeClientQuotasRequest, DescribeClientQuotasResponse, 1, 1),
    Api(ApiKey.ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest, AlterClientQuotasResponse, 1, 1),
)
_BY_KEY = {api.key: api for api in APIS}
_BY_MESSAGE: Mapping[type, Api] = {kind: api for api in APIS for kind in (api.request, api.response)} | {
    DescribedRows: next(api for api in APIS if api.response is DescribeClientQuotasResponse)
}

_KEY_AND_VERSION = struct_of(lambda *values: values, INT16, INT16)(0, False)
_ERROR_CODE = INT16(0, False)


def api_of(message: Request) -> Api:
    """The message pair that a request belongs to."""
    return _BY_MESSAGE[type(message)]


def _request_header(flexible: bool) -> Codec:
    # The client-id stays a classic string in the flexible header (v2), so that old brokers can read it.
    client_id = NULLABLE_STRING(0, False)
    fields = (INT16, INT16, INT32, lambda version, flexible: client_id)
    return struct_of(RequestHeader, *fields)(0, flexible)


def _response_header(api: Api, version: int) -> Codec:
    # Before it knows the broker's versions a client could not read a flexible header: ApiVersions never has one.
    return struct_of(lambda *values: values, INT32)(0, api.is_flexible(version) and api.key is not ApiKey.API_VERSIONS)
