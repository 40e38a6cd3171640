"""Error codes of brokers → kquota's errors, with Kafka's names and texts.

Source: `org.apache.kafka.common.protocol.Errors`; the codes that the messages can answer with.
"""

from typing import Final, NamedTuple

from kquota.errors import InvalidRequest, KquotaError, Rejected, Unauthorized, Unreachable


class Code(NamedTuple):
    """An error's name, what Kafka says where the broker says nothing, and the class of ours: Unreachable may pass."""

    name: str
    text: str
    error: type[KquotaError]


NONE: Final = 0
UNKNOWN: Final = -1
UNSUPPORTED_SASL_MECHANISM: Final = 33
OFFSET_OUT_OF_RANGE: Final = 1
UNKNOWN_TOPIC: Final = 3
REQUEST_TIMED_OUT: Final = 7
NETWORK_EXCEPTION: Final = 13
TOPIC_EXISTS: Final = 36
NOT_CONTROLLER: Final = 41
RESOURCE_NOT_FOUND: Final = 91
CODES: Final = {
    -1: Code(
        "UNKNOWN_SERVER_ERROR", "The server experienced an unexpected error when processing the request.", Rejected
    ),
    3: Code("UNKNOWN_TOPIC_OR_PARTITION", "This server does not host this topic-partition.", Unreachable),
    5: Code("LEADER_NOT_AVAILABLE", "The partition has no leader at the moment.", Unreachable),
    6: Code("NOT_LEADER_OR_FOLLOWER", "Another broker leads the partition.", Unreachable),
    7: Code("REQUEST_TIMED_OUT", "The request timed out.", Unreachable),
    8: Code("BROKER_NOT_AVAILABLE", "The broker is not available.", Unreachable),
    10: Code("MESSAGE_TOO_LARGE", "The record is larger than the topic takes.", InvalidRequest),
    13: Code("NETWORK_EXCEPTION", "The server disconnected before a response was received.", Unreachable),
    17: Code("INVALID_TOPIC_EXCEPTION", "No topic can have that name.", InvalidRequest),
    19: Code("NOT_ENOUGH_REPLICAS", "Too few replicas are in sync.", Unreachable),
    29: Code("TOPIC_AUTHORIZATION_FAILED", "Topic authorization failed.", Unauthorized),
    31: Code("CLUSTER_AUTHORIZATION_FAILED", "Cluster authorization failed.", Unauthorized),
    33: Code("UNSUPPORTED_SASL_MECHANISM", "The broker does not support the requested SASL mechanism.", Unauthorized),
    34: Code("ILLEGAL_SASL_STATE", "Request is not valid given the current SASL state.", Unauthorized),
    35: Code("UNSUPPORTED_VERSION", "The version of API is not supported.", Rejected),
    41: Code("NOT_CONTROLLER", "This is not the correct controller for this cluster.", Unreachable),
    40: Code("INVALID_CONFIG", "Configuration is invalid.", InvalidRequest),
    42: Code(
        "INVALID_REQUEST",
        "This most likely occurs because of a request being malformed by the client library or the message was sent"
        " to an incompatible broker. See the broker logs for more details.",
        InvalidRequest,
    ),
    44: Code("POLICY_VIOLATION", "Request parameters do not satisfy the configured policy.", Rejected),
    58: Code("SASL_AUTHENTICATION_FAILED", "SASL Authentication failed.", Unauthorized),
    89: Code("THROTTLING_QUOTA_EXCEEDED", "The throttling quota has been exceeded.", Unreachable),
    91: Code("RESOURCE_NOT_FOUND", "A request illegally referred to a resource that does not exist.", Rejected),
}


def is_transient(code: int) -> bool:
    """Whether the same request may succeed in a moment."""
    return code in CODES and CODES[code].error is Unreachable


def error_of(code: int, message: str | None, *, hint: str | None = None) -> KquotaError:
    """The error for a code: Kafka's name and the broker's own text, or Kafka's text for the code where it has none."""
    known = CODES.get(code, Code(f"error {code}", "The broker gives no reason.", Rejected))
    return known.error(f"{known.name}: {message or known.text}", hint=hint)
