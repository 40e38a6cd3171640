"""The messages of the protocol as one table, in the notation of Kafka's own definitions.

A line is a struct: its name, and its fields in their order, each as `name type`. `[]T` is an array of T, `?` allows
null, `3+` says which version brought the field, and `= 7` what a field is that nobody gives. Each becomes a named
tuple in `MESSAGES`; `APIS` has the versions of each pair that are spoken here.
"""

import enum
import json
import re
from collections import namedtuple
from functools import cache
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


_STRUCTS: Final = """
# Before v3 the request has no body. With UNSUPPORTED_VERSION the response is in v0, whatever was asked (KIP-511).
ApiVersionsRequest: client_software_name string 3+ = "", client_software_version string 3+ = ""
ApiVersion: api_key int16, min_version int16, max_version int16
ApiVersionsResponse: error_code int16, api_keys []ApiVersion, throttle_time_ms int32 1+ = 0

SaslHandshakeRequest: mechanism string
SaslHandshakeResponse: error_code int16, mechanisms []string
SaslAuthenticateRequest: auth_bytes bytes
SaslAuthenticateResponse:
  error_code int16, error_message string?, auth_bytes bytes, session_lifetime_ms int64 1+ = 0

# No keys ask for all; synonyms are what is set for each key at every level. The value of a sensitive config is null.
DescribeConfigsResource: resource_type int8, resource_name string, configuration_keys []string?
DescribeConfigsRequest:
  resources []DescribeConfigsResource, include_synonyms bool, include_documentation bool 3+ = false
DescribeConfigsSynonym: name string, value string?, source int8
DescribeConfigsResourceResult:
  name string, value string?, read_only bool, config_source int8, is_sensitive bool,
  synonyms []DescribeConfigsSynonym, config_type int8 3+ = 0, documentation string? 3+ = null
DescribeConfigsResult:
  error_code int16, error_message string?, resource_type int8, resource_name string,
  configs []DescribeConfigsResourceResult
DescribeConfigsResponse: throttle_time_ms int32, results []DescribeConfigsResult

# The value is null where a config is deleted.
AlterableConfig: name string, config_operation int8, value string?
AlterConfigsResource: resource_type int8, resource_name string, configs []AlterableConfig
IncrementalAlterConfigsRequest: resources []AlterConfigsResource, validate_only bool
AlterConfigsResourceResponse: error_code int16, error_message string?, resource_type int8, resource_name string
IncrementalAlterConfigsResponse: throttle_time_ms int32, responses []AlterConfigsResourceResponse

# The nodes of a kind that are alive, and where clients of the listener that was asked find them. Of controllers,
# controller_id is the active one. Before v1 only brokers are told, and the type is null.
DescribeClusterRequest: include_cluster_authorized_operations bool, endpoint_type int8 1+ = 1
DescribeClusterBroker: broker_id int32, host string, port int32, rack string?
DescribeClusterResponse:
  throttle_time_ms int32, error_code int16, error_message string?, endpoint_type int8 1+, cluster_id string,
  controller_id int32, brokers []DescribeClusterBroker, cluster_authorized_operations int32 = -2147483648

# Without a topic in the request there is none in the response.
MetadataRequest: topics []string = [], allow_auto_topic_creation bool = false
MetadataPartition:
  error_code int16, partition_index int32, leader_id int32, leader_epoch int32 7+, replica_nodes []int32,
  isr_nodes []int32, offline_replicas []int32 5+ = []
MetadataTopic: error_code int16, name string, is_internal bool, partitions []MetadataPartition
MetadataResponse:
  throttle_time_ms int32, brokers []DescribeClusterBroker, cluster_id string?, controller_id int32,
  topics []MetadataTopic = []

# Topics are for the journal of a cluster and for probes. Null deletes a key; records.py reads batches of records.
CreateTopicsAssignment: partition_index int32, broker_ids []int32
CreateTopicsConfig: name string, value string?
CreatableTopic:
  name string, num_partitions int32, replication_factor int16, assignments []CreateTopicsAssignment,
  configs []CreateTopicsConfig
CreateTopicsRequest: topics []CreatableTopic, timeout_ms int32, validate_only bool = false
CreatedTopic: name string, error_code int16, error_message string?
CreateTopicsResponse: throttle_time_ms int32, topics []CreatedTopic
DeleteTopicsRequest: topics []string, timeout_ms int32
DeletedTopic: name string, error_code int16
DeleteTopicsResponse: throttle_time_ms int32, topics []DeletedTopic
ProducePartition: index int32, records bytes?
ProduceTopic: name string, partitions []ProducePartition
ProduceRequest: transactional_id string?, acks int16, timeout_ms int32, topics []ProduceTopic
ProducedPartition: index int32, error_code int16, base_offset int64, log_append_time_ms int64
ProducedTopic: name string, partitions []ProducedPartition
ProduceResponse: topics []ProducedTopic, throttle_time_ms int32
FetchPartition:
  partition int32, current_leader_epoch int32 9+, fetch_offset int64, log_start_offset int64 5+,
  partition_max_bytes int32
FetchTopic: topic string, partitions []FetchPartition
ForgottenTopic: topic string, partitions []int32
FetchRequest:
  replica_id int32, max_wait_ms int32, min_bytes int32, max_bytes int32, isolation_level int8, session_id int32 7+,
  session_epoch int32 7+, topics []FetchTopic, forgotten_topics_data []ForgottenTopic 7+ = [], rack_id string 11+ = ""
AbortedTransaction: producer_id int64, first_offset int64
FetchedPartition:
  partition_index int32, error_code int16, high_watermark int64, last_stable_offset int64, log_start_offset int64 5+,
  aborted_transactions []AbortedTransaction?, preferred_read_replica int32 11+, records bytes?
FetchedTopic: topic string, partitions []FetchedPartition
FetchResponse: throttle_time_ms int32, error_code int16 7+, session_id int32 7+, topics []FetchedTopic
# The timestamp -1 asks for the offset of the next record, and -2 for the offset of the first one.
ListOffsetsPartition: partition_index int32, timestamp int64
ListOffsetsTopic: name string, partitions []ListOffsetsPartition
ListOffsetsRequest: replica_id int32, isolation_level int8, topics []ListOffsetsTopic
ListedPartition: partition_index int32, error_code int16, timestamp int64, offset int64
ListedTopic: name string, partitions []ListedPartition
ListOffsetsResponse: throttle_time_ms int32, topics []ListedTopic

# Null asks for all replicas (KIP-113). The bytes of a log dir's volume (KIP-827) are -1 where they are not known.
# Before v3 the error of the whole request is null.
DescribableLogDirTopic: topic string, partitions []int32
DescribeLogDirsRequest: topics []DescribableLogDirTopic?
DescribeLogDirsPartition: partition_index int32, partition_size int64, offset_lag int64, is_future_key bool
DescribeLogDirsTopic: name string, partitions []DescribeLogDirsPartition
DescribeLogDirsResult:
  error_code int16, log_dir string, topics []DescribeLogDirsTopic, total_bytes int64 4+ = -1,
  usable_bytes int64 4+ = -1
DescribeLogDirsResponse: throttle_time_ms int32, error_code int16 3+, results []DescribeLogDirsResult

# A match is a name with MATCH_EXACT, else null. The name of a default entity is null.
ComponentData: entity_type string, match_type int8, match string?
DescribeClientQuotasRequest: components []ComponentData, strict bool
EntityData: entity_type string, entity_name string?
ValueData: key string, value float64
QuotaEntry: entity []EntityData, values []ValueData
DescribeClientQuotasResponse:
  throttle_time_ms int32, error_code int16, error_message string?, entries []QuotaEntry?

# The value is 0.0 where a quota is removed, as Java's client has it. The results are in no particular order.
OpData: key string, value float64, remove bool
AlterEntry: entity []EntityData, ops []OpData
AlterClientQuotasRequest: entries []AlterEntry, validate_only bool
AlterEntryResult: error_code int16, error_message string?, entity []EntityData
AlterClientQuotasResponse: throttle_time_ms int32, entries []AlterEntryResult

# Null or no user at all asks for every user (KIP-554). A user without credentials is RESOURCE_NOT_FOUND.
UserName: name string
DescribeUserScramCredentialsRequest: users []UserName?
CredentialInfo: mechanism int8, iterations int32
DescribeUserScramCredentialsResult:
  user string, error_code int16, error_message string?, credential_infos []CredentialInfo
DescribeUserScramCredentialsResponse:
  throttle_time_ms int32, error_code int16, error_message string?, results []DescribeUserScramCredentialsResult
"""

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


for _line in re.sub(r"\n +", " ", re.sub(r"#.*\n", "", _STRUCTS)).split("\n"):
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
