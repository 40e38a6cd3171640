"""Pure codec of the Kafka messages that quotas need.

ApiVersions, SaslHandshake, SaslAuthenticate, DescribeClientQuotas and AlterClientQuotas; for the limits of brokers
DescribeCluster, DescribeConfigs and IncrementalAlterConfigs; for kafka-configs DescribeUserScramCredentials; for the
room of logs DescribeLogDirs; for the journal of a cluster and for probes Metadata, CreateTopics, DeleteTopics, Produce,
Fetch and ListOffsets. Named tuples of one table of messages become the frames of requests, without their length prefix,
and frames of responses become named tuples; the broker's side is `tests/support/wire.py`. Sources: the message
definitions `ApiVersionsRequest.json` … `DescribeUserScramCredentialsResponse.json`, `RequestHeader` and
`ResponseHeader` of Kafka's clients; KIP-35, 113, 152, 226, 339, 412, 511, 546, 554, 700, 827, 919.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kquota.backends.wire.messages import *  # noqa: F403 - every message, and the numbers in them
from kquota.backends.wire.messages import APIS, MESSAGES, UNSUPPORTED_VERSION, Api, ApiKey, Request
from kquota.backends.wire.types import INT16, INT32, NULLABLE_STRING, Codec, decode, decode_whole, encode, struct_of
from kquota.backends.wire.types import LONGEST_STRING as LONGEST_STRING
from kquota.backends.wire.types import FrameError as FrameError

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The messages of the table."""


class RequestHeader(NamedTuple):
    """What every request starts with; the client-id is null for anonymous clients."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def encode_request(message: Request, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The frame of a request. Raises FrameError for what a frame cannot carry, such as names beyond 32,767 bytes."""
    api = _BY_MESSAGE[type(message)]
    header = RequestHeader(api.key, version, correlation_id, client_id)
    return encode(request_header(api.is_flexible(version)), header, api.codec(type(message), version), message)


def decode_response(kind: type, version: int, frame: bytes) -> tuple[int, Any]:
    """Reads the response to a request of that version: (correlation id, message).

    Raises FrameError for anything but one whole message. An ApiVersionsResponse with UNSUPPORTED_VERSION is read in the
    v0 that brokers fall back to.
    """
    api = _BY_MESSAGE[kind]
    (correlation_id,), at = decode(response_header(api, version), frame, 0)
    if kind is MESSAGES["ApiVersionsResponse"] and decode(_ERROR_CODE, frame, at)[0] == UNSUPPORTED_VERSION:
        version = 0
    return correlation_id, decode_whole(api.codec(kind, version), frame, at)


_BY_MESSAGE: Mapping[type, Api] = {kind: api for api in APIS for kind in (api.request, api.response)}

_ERROR_CODE = INT16(0, False)


def api_of(message: Request) -> Api:
    """The message pair that a request belongs to."""
    return _BY_MESSAGE[type(message)]


def request_header(flexible: bool) -> Codec:
    """How a `RequestHeader` is written."""
    # The client-id stays a classic string in the flexible header (v2), so that old brokers can read it.
    client_id = NULLABLE_STRING(0, False)
    fields = (INT16, INT16, INT32, lambda version, flexible: client_id)
    return struct_of(RequestHeader, *fields)(0, flexible)


def response_header(api: Api, version: int) -> Codec:
    """How the correlation id of a response is written."""
    # Before it knows the broker's versions a client could not read a flexible header: ApiVersions never has one.
    return struct_of(lambda *values: values, INT32)(0, api.is_flexible(version) and api.key is not ApiKey.API_VERSIONS)
