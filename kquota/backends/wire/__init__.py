"""Pure codec of the Kafka messages that quotas need.

ApiVersions, SaslHandshake, SaslAuthenticate, DescribeClientQuotas and AlterClientQuotas; for the limits of brokers
DescribeCluster, DescribeConfigs and IncrementalAlterConfigs; for kafka-configs DescribeUserScramCredentials; for the
room of logs DescribeLogDirs; for the journal of a
cluster Metadata, CreateTopics, Produce and Fetch. Both directions of requests and responses, from one table of
messages. Sources: the message definitions `ApiVersionsRequest.json` … `DescribeUserScramCredentialsResponse.json`,
`RequestHeader` and `ResponseHeader` of Kafka's clients; KIP-35, 113, 152, 226, 339, 412, 511, 546, 554, 700, 827, 919.
"""

from typing import TYPE_CHECKING, Any

from kquota.backends.wire.frames import RequestHeader as RequestHeader
from kquota.backends.wire.frames import api_of as api_of
from kquota.backends.wire.frames import decode_request as decode_request
from kquota.backends.wire.frames import decode_response as decode_response
from kquota.backends.wire.frames import encode_request as encode_request
from kquota.backends.wire.frames import encode_response as encode_response
from kquota.backends.wire.messages import *  # noqa: F403 - every message, and the numbers in them
from kquota.backends.wire.types import LONGEST_STRING as LONGEST_STRING
from kquota.backends.wire.types import FrameError as FrameError

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The messages of the table."""
