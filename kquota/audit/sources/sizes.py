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


class _Fetch(NamedTuple):
    """The fixed parts of a fetch response in one version, in bytes."""

    body: int
    topic: int
    partition: int
    named: bool
    """Topics go by name, not by id."""
    flexible: bool
    aborted: int
    """One aborted transaction; 0 where the version has none."""


def _fetch_version(version: int) -> _Fetch:
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
    return _Fetch(body, topic, partition, version < 13, flexible, aborted)


FETCH_PARTS: Final = tuple(_fetch_version(version) for version in FETCH_VERSIONS)

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
    # api key, version, correlation id; the client-id's length is two bytes also in flexible versions
    size = 2 + 2 + 4 + 2 + (_length(client_id) if client_id else 0)
    size += 2 + 4  # acks, time-out
    if version >= 9:
        size += 1 + 1  # tag counts of header and body
        size += 1 if transactional_id is None else compact_size(_length(transactional_id))
        size += varint_size(len(topics) + 1)
        for topic in topics:
            partitions: Sequence[Mapping[str, Any]] = topic["partitionData"]
            size += 16 if version >= 13 else compact_size(_length(topic["name"]))
            size += varint_size(len(partitions) + 1) + 1
            for partition in partitions:
                records = partition.get("recordsSizeInBytes")
                # index, tag count, length
                size += 5 + (compact_size(records) if records is not None else _null_records(partition, 1))
        return size
    if version >= 3:
        size += 2 if transactional_id is None else 2 + _length(transactional_id)
    size += 4
    for topic in topics:
        partitions = topic["partitionData"]
        size += 2 + _length(topic["name"]) + 4 + 8 * len(partitions)  # each: index, length
        for partition in partitions:
            records = partition.get("recordsSizeInBytes")
            size += records if records is not None else _null_records(partition, 0)
    return size


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
    size, of_topic, of_partition, named, flexible, aborted_size = FETCH_PARTS[version]
    topics = response["responses"]
    if flexible:
        size += varint_size(len(topics) + 1)
    for topic in topics:
        partitions: Sequence[Mapping[str, Any]] = topic["partitions"]
        size += of_topic + len(partitions) * of_partition
        if named:
            length = _length(topic["topic"])
            size += compact_size(length) if flexible else length
        if flexible:
            size += varint_size(len(partitions) + 1)
        for partition in partitions:
            records = partition.get("recordsSizeInBytes")
            if records is None:
                records = _null_records(partition, 0)
                size += 1 if flexible else 0
            elif flexible:
                size += varint_size(records + 1)
            size += records
            aborted = partition["abortedTransactions"] if aborted_size else None
            if flexible:
                size += 1 if aborted is None else varint_size(len(aborted) + 1)
                for name, length in PARTITION_TAGS:
                    if name in partition:
                        size += length
            if aborted:
                size += len(aborted) * aborted_size
    return size


def _length(text: str) -> int:
    """The length in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def varint_size(number: int) -> int:
    """The length of an unsigned varint: seven bits a byte. It may be compiled."""
    return 1 + (number >= 1 << 7) + (number >= 1 << 14) + (number >= 1 << 21) + (number >= 1 << 28)


def compact_size(length: int) -> int:
    """A compact string, or a compact record set, with its length."""
    return length + varint_size(length + 1)


def _null_records(partition: Mapping[str, Any], size: int) -> int:
    """The size where the log gives none, which it does for null records. Raises KeyError where they are not null."""
    if partition["records"] is not None:
        raise KeyError("recordsSizeInBytes")
    return size
