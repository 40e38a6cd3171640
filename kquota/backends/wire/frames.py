"""Frames of messages (without their length prefix) ↔ named tuples: one schema a message, and the versions of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

from kquota.backends.wire.messages import (
    UNSUPPORTED_VERSION,
    AlterableConfig,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterEntry,
    AlterEntryResult,
    ApiKey,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    ComponentData,
    CredentialInfo,
    DescribableLogDirTopic,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    DescribedRows,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    EntityData,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    OpData,
    QuotaEntry,
    Request,
    RequestHeader,
    Response,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    UserName,
    ValueData,
)
from kquota.backends.wire.rows import rows
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
    DescribeLogDirsRequest: struct_of(
        DescribeLogDirsRequest,
        array_of(struct_of(DescribableLogDirTopic, STRING, array_of(INT32)), nullable=True),
    ),
    DescribeLogDirsResponse: struct_of(
        DescribeLogDirsResponse,
        INT32,
        (3, INT16),
        array_of(
            struct_of(
                DescribeLogDirsResult,
                INT16,
                STRING,
                array_of(
                    struct_of(
                        DescribeLogDirsTopic,
                        STRING,
                        array_of(struct_of(DescribeLogDirsPartition, INT32, INT64, INT64, BOOL)),
                    )
                ),
                (4, INT64),
                (4, INT64),
            )
        ),
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
    DescribeUserScramCredentialsRequest: struct_of(
        DescribeUserScramCredentialsRequest, array_of(struct_of(UserName, STRING), nullable=True)
    ),
    DescribeUserScramCredentialsResponse: struct_of(
        DescribeUserScramCredentialsResponse,
        INT32,
        INT16,
        NULLABLE_STRING,
        array_of(
            struct_of(
                DescribeUserScramCredentialsResult,
                STRING,
                INT16,
                NULLABLE_STRING,
                array_of(struct_of(CredentialInfo, INT8, INT32)),
            )
        ),
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
    Api(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest, DescribeLogDirsResponse, 4, 2, min_version=1),
    Api(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest, DescribeClusterResponse, 1, 0),
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
