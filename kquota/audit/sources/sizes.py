"""What a broker charges for a produce request and for a fetch response, from the fields of a request-log line.

Of share fetches (KIP-932) brokers log `records` without their size, so only the size of an empty response is known.

The log has no message sizes, only the sizes of the record sets; the rest follows from the message schemas, which are
restated here: `ProduceRequest.json`, `FetchResponse.json`, `ShareFetchResponse.json` and `RequestHeader.json` of Apache
Kafka, every version that was ever released (Produce 0-13, Fetch 0-18, ShareFetch 0-2; the newest are in Kafka 4.4).
`tests/differential/test_sizes.py` compares with Kafka's own message classes.

A client held at its limit amplifies an error in the size many times, so these are exact to the byte. Not in a log, and
so not counted: tagged fields that a newer client may add to its requests (none is known to).

These functions are called once for each line of a log, hence the tables and the flat code.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

PRODUCE_VERSIONS: Final = range(14)
FETCH_VERSIONS: Final = range(19)

# 4 on top of the body, throttle time, error code, error message, topics, node endpoints, tag count; and from version 1
# on the time-out of the acquisition locks.
SHARE_FETCH_EMPTY: Final = {0: 14, 1: 18, 2: 18}
"""The bytes charged for a share fetch with no partition in its response, by version, as `ShareFetchResponse.sizeOf`."""


class _Parts(NamedTuple):
    """The fixed parts of a message in one version, in bytes."""

    body: int
    topic: int
    partition: int
    named: bool
    """Topics go by name, not by id."""
    flexible: bool
    """Lengths are varints, and one more than they are; 0 is null."""
    aborted: int
    """One aborted transaction; 0 where the version has none."""


def _produce_version(version: int) -> _Parts:
    flexible = version >= 9
    # api key, version, correlation id, length of the client-id; acks, time-out; tag counts of header and body
    body = 2 + 2 + 4 + 2 + 2 + 4 + (1 + 1 if flexible else 4)
    topic = (16 if version >= 13 else 0 if flexible else 2) + (1 if flexible else 4)
    # index, length; the tag count of a partition stands where a fetch has the count of aborted transactions
    return _Parts(body, topic, 4 if flexible else 8, version < 13, flexible, 0)


def _fetch_version(version: int) -> _Parts:
    flexible = version >= 12
    body = 4  # charged on top of the body; in the old days the size of the frame's length
    body += 4 if version >= 1 else 0  # throttle time
    body += 2 + 4 if version >= 7 else 0  # error code, session id
    body += 1 if flexible else 4  # tag count; or array length, which is a varint in a flexible version
    topic = (16 if version >= 13 else 0 if flexible else 2) + (1 if flexible else 4)
    partition = 4 + 2 + 8  # index, error code, high watermark
    partition += 8 if version >= 4 else 0  # last stable offset
    partition += 8 if version >= 5 else 0  # log start offset
    partition += 4 if version >= 11 else 0  # preferred read replica
    if flexible:
        partition += 1  # tag count
    else:
        partition += 4 + (4 if version >= 4 else 0)  # lengths of the records and of the aborted transactions
    aborted = 0 if version < 4 else 8 + 8 + (1 if flexible else 0)
    return _Parts(body, topic, partition, version < 13, flexible, aborted)


PRODUCE_PARTS: Final = tuple(map(_produce_version, PRODUCE_VERSIONS))
FETCH_PARTS: Final = tuple(map(_fetch_version, FETCH_VERSIONS))

# The tagged fields of a partition in a fetch response: tag and length (a byte each), two numbers, a tag count.
PARTITION_TAGS: Final = (
    ("divergingEpoch", 2 + 4 + 8 + 1),
    ("currentLeader", 2 + 4 + 4 + 1),
    ("snapshotId", 2 + 8 + 4 + 1),
)


def produce_request_size(header: Mapping[str, Any], request: Mapping[str, Any]) -> int:
    """The bytes charged for a produce request: header and body, without the 4 bytes of the frame's length.

    `header` and `request` are `requestHeader` and `request` of a line. It is what `KafkaApis.handleProduceRequest`
    records (`request.sizeInBytes`), also for requests whose partitions all failed.

    Raises ValueError for a version that is not known, KeyError, TypeError or AttributeError for fields that do
    not match the schema.
    """
    version = header["requestApiVersion"]
    if version not in PRODUCE_VERSIONS:
        raise ValueError(f"produce version {version!r} is not known: its size cannot be computed")
    client_id = header["clientId"]
    transactional_id = request["transactionalId"] if version >= 3 else None
    topics = request["topicData"]
    size = _sized(PRODUCE_PARTS[version], topics, "name", "partitionData")
    size += _length(client_id) if client_id else 0
    if version < 3:
        return size
    length = 0 if transactional_id is None else _length(transactional_id)
    if version < 9:
        return size + 2 + length
    return size + length + varint_size(0 if transactional_id is None else length + 1)


def fetch_response_size(version: int, response: Mapping[str, Any]) -> int:
    """The bytes charged for a fetch response: 4 and its body, without header and node endpoints.

    `response` is a line's `response`. It is what `KafkaApis.handleFetchRequest` records:
    `FetchContext.getResponseSize`, which ends in `FetchResponse.sizeOf` = `4 + data.size(cache, version)`. That is
    computed before node endpoints are added (version 16, after a change of leader; read in Kafka 4.4) and before a
    down-conversion (Fetch 0-3, Kafka 3 and older; the log has the size after it). The log of a throttled fetch shows
    the empty response that was sent, not what was charged and taken back.

    Raises ValueError for a version that is not known, KeyError, TypeError or AttributeError for fields that do
    not match the schema.
    """
    if version not in FETCH_VERSIONS:
        raise ValueError(f"fetch version {version!r} is not known: its size cannot be computed")
    return _sized(FETCH_PARTS[version], response["responses"], "topic", "partitions", PARTITION_TAGS)


def _sized(
    parts: _Parts, topics: Sequence[Any], name: str, partitions: str, tags: Sequence[tuple[str, int]] = ()
) -> int:
    """The size of a message with lists of topics and partitions, of which the members are called so."""
    size, of_topic, of_partition, named, flexible, of_aborted = parts
    size += varint_size(len(topics) + 1) if flexible else 0
    for topic in topics:
        some: Sequence[Mapping[str, Any]] = topic[partitions]
        length = _length(topic[name]) if named else 0
        size += of_topic + length + len(some) * of_partition
        if flexible:
            size += varint_size(len(some) + 1) + (varint_size(length + 1) if named else 0)
        for partition in some:
            records = partition.get("recordsSizeInBytes")
            if records is None and partition["records"] is not None:
                raise KeyError("recordsSizeInBytes")  # the log gives no size of null records alone
            listed = partition["abortedTransactions"] if of_aborted else None
            aborted = 0 if listed is None else len(listed)
            size += (0 if records is None else records) + aborted * of_aborted
            if flexible:
                size += varint_size(0 if records is None else records + 1) + varint_size(aborted + 1)
                size += sum(length for tag, length in tags if tag in partition)
    return size


def _length(text: str) -> int:
    """The length in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def varint_size(number: int) -> int:
    """The length of an unsigned varint: seven bits a byte. It may be compiled."""
    return 1 + (number >= 1 << 7) + (number >= 1 << 14) + (number >= 1 << 21) + (number >= 1 << 28)
