"""The usual lines of a JSON request log, fast: as rows of numbers.

A log is mostly produce requests, fetches and a few other calls, as the clients of today send them. Those are read here:
orjson, tables in place of computing, nothing made for a row but the row. An unusual line is refused: another form, an
old version, a request of a broker, damage. `request_line.parse_line`, which knows everything, reads it or says what is
wrong. So nothing is decided here: a row is what `parse_line` makes of the same line.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import tzinfo
from hashlib import blake2b
from struct import Struct
from struct import error as StructError
from typing import Any, Final
from zlib import crc32

from kquota.audit.sizes import FETCH_PARTS, FETCH_VERSIONS, PARTITION_TAGS, PRODUCE_VERSIONS, compact_size, varint_size
from kquota.audit.sources.connections import ConnectionLog
from kquota.audit.sources.data_log import DATA_APIS, DataLog
from kquota.audit.sources.event import MOST_MS, UNKNOWN, client_address
from kquota.audit.sources.request_line import UNTOLD_FETCH_MS, UNTOLD_MS, moment_before, sender_of, share_fetch_size
from kquota.core.change.history import EARLIEST_MS, LATEST_MS
from kquota.core.enforcement.kind import FETCH, PRODUCE, REQUEST

try:
    from orjson import loads
except ImportError:  # slower, and the same
    from json import loads  # type: ignore[assignment]

ROW: Final = Struct("=10q")
"""A row: time_ms, kind (and UNSIZED), user and client-id (codes of `Names`), bytes, request_ns, throttle_ms,
connection, position, as in a `Batch`; and the ns of thread time that are exempt, or NOT_EXEMPT."""
UNSIZED: Final = 4
"""Is added to the kind where the line does not hold the size (share fetches, old logs)."""
NOT_EXEMPT: Final = -1

UNUSUAL: Final = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError, StructError)
"""What `reader` raises for a line that it does not read."""

# Requests that are charged for their time only; an API that is not here is not usual.
_OTHERS: Final = frozenset(
    {
        "LIST_OFFSETS", "METADATA", "OFFSET_COMMIT", "OFFSET_FETCH", "FIND_COORDINATOR", "JOIN_GROUP", "HEARTBEAT",
        "LEAVE_GROUP", "SYNC_GROUP", "CONSUMER_GROUP_HEARTBEAT", "API_VERSIONS", "INIT_PRODUCER_ID", "END_TXN",
        "ADD_PARTITIONS_TO_TXN", "ADD_OFFSETS_TO_TXN", "TXN_OFFSET_COMMIT", "OFFSET_FOR_LEADER_EPOCH",
        "SHARE_GROUP_HEARTBEAT", "SHARE_ACKNOWLEDGE", "WRITE_SHARE_GROUP_STATE",
    }
)  # fmt: skip
_START: Final = b'{"isForwarded"'
_KAFKAS_OWN: Final = b"] DEBUG Completed request:" + _START
"""What follows the time in Kafka's own layout."""
_OWN_TIME, _OWN_START, _OWN_END = 24, 50, 24 + len(_KAFKAS_OWN)
_MILLIS: Final = {b"%03d" % millis: millis + 0.5 for millis in range(1000)}
"""Printed milliseconds are cut: their middle (see `request_line`)."""
_PRODUCE_VERSIONS: Final = frozenset(PRODUCE_VERSIONS[9:])
_FETCH_VERSIONS: Final = frozenset(FETCH_VERSIONS[12:])
"""Those with compact strings and arrays."""
_TAGS: Final = frozenset(name for name, _ in PARTITION_TAGS)


class Names:
    """Numbers for the names of one batch."""

    def __init__(self, log: ConnectionLog | None = None) -> None:
        self.users = _Users()
        self.clients = _Clients()
        self.connections = _Connections(log)


class _Users(dict[str, int]):
    """Principals; `names` are those of their users."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __missing__(self, principal: str) -> int:
        _, colon, user = principal.partition(":")
        if not colon:
            raise ValueError(principal)
        self[principal] = len(self.names)
        self.names.append(user)
        return self[principal]


class _Clients(dict[str | None, int]):
    """Client-ids; that of null is empty."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __missing__(self, client_id: str | None) -> int:
        if client_id is not None and not isinstance(client_id, str):
            raise TypeError(client_id)
        self[client_id] = len(self.names)
        self.names.append(client_id or "")
        return self[client_id]


class _Connections(dict[str, int]):
    """An id for each connection, the same in every process: a retry may be in a file that another one reads.

    `fresh` are those that the log has not been shown yet; nothing without a log.
    """

    def __init__(self, log: ConnectionLog | None) -> None:
        super().__init__()
        self.log = log
        self.fresh: list[str] = []

    def first(self, time_ms: int, *, opens: bool) -> None:
        """Shows the log the first request of the connection that was asked for last."""
        connection = self.fresh[-1]
        self.fresh.clear()
        assert self.log is not None
        self.log.add(client_address(connection), connection, time_ms, opens=opens)

    def __missing__(self, connection: str) -> int:
        client_address(connection)
        if self.log is not None:
            self.fresh.append(connection)
        self[connection] = connection_id(connection)
        return self[connection]


def connection_id(connection: str) -> int:
    """The number of a connection in a batch."""
    return int.from_bytes(blake2b(connection.encode(), digest_size=8).digest(), "little", signed=True)


class _Seconds(dict[bytes, float]):
    """Epoch ms of `[YYYY-MM-DD HH:MM:SS,`."""

    def __init__(self, zone: tzinfo) -> None:
        super().__init__()
        self.zone = zone

    def __missing__(self, stamp: bytes) -> float:
        moment = moment_before(stamp.decode() + "000] ", 26, self.zone)
        if stamp[:1] != b"[" or stamp[20:] not in (b",", b".") or moment is None:
            raise ValueError(stamp)
        self[stamp] = moment - 0.5
        return self[stamp]


class _CompactSizes(dict[str | None, int]):
    """The sizes of compact strings."""

    def __missing__(self, text: str | None) -> int:
        self[text] = 1 if text is None else compact_size(len(text.encode()))
        return self[text]


class _Lengths(dict[str | None, int]):
    """The lengths of client-ids."""

    def __missing__(self, text: str | None) -> int:
        self[text] = 0 if text is None else len(text.encode())
        return self[text]


def reader(zone: tzinfo, names: Names, data: DataLog | None = None) -> Callable[[bytes], bytes]:
    """A function that makes a ROW of a line; it raises one of UNUSUAL for what is not usual.

    `zone` is the zone of the log's times, `names` takes the names that are met, and `data` what is shown of the data.
    """
    floor, pack = math.floor, ROW.pack
    users, clients, connections = names.users, names.clients, names.connections
    seconds, compact_sizes, lengths = _Seconds(zone), _CompactSizes(), _Lengths()
    fresh = connections.fresh

    def read(line: bytes) -> bytes:
        if line[_OWN_TIME:_OWN_END] == _KAFKAS_OWN:
            start = _OWN_START
            moment = seconds[line[:21]] + _MILLIS[line[21:24]]
        else:
            start = line.index(_START)
            prefix = line[:start].decode()
            found = moment_before(prefix, len(prefix), zone)
            if found is None:
                raise ValueError(prefix)
            moment = found
        fields = loads(line[start : line.rindex(b"}") + 1])
        if fields["isForwarded"] is not False:
            raise ValueError("forwarded")
        header = fields["requestHeader"]
        api, version, client_id = header["requestApiKeyName"], header["requestApiVersion"], header["clientId"]
        throttle_ms = fields["throttleTimeMs"]
        sent_ms, queued_ms, local_ms = fields["sendTimeMs"], fields["responseQueueTimeMs"], fields["localTimeMs"]
        if not (
            0 <= sent_ms <= MOST_MS
            and 0 <= queued_ms <= MOST_MS
            and 0 <= local_ms <= MOST_MS
            and 0 <= fields["totalTimeMs"] <= MOST_MS
            and 0 <= throttle_ms <= MOST_MS
        ):
            raise ValueError("out of range")
        request_ns = round(local_ms * 1e6)
        position, exempt_ns = 0, NOT_EXEMPT
        if api == "PRODUCE":
            kind: int = PRODUCE
            if version not in _PRODUCE_VERSIONS:
                raise ValueError(version)
            request = fields["request"]
            topics = request["topicData"]
            # As `sizes.produce_request_size`; counts take a byte.
            size = 19 + lengths[client_id] + compact_sizes[request["transactionalId"]]
            for topic in topics:
                partitions = topic["partitionData"]
                size += 18 if version >= 13 else 2 + compact_sizes[topic["name"]]
                for partition in partitions:
                    records = partition["recordsSizeInBytes"]
                    size += 5 + records + (1 if records < 127 else 2 if records < 16383 else varint_size(records + 1))
                if len(partitions) >= 127:
                    raise ValueError("many partitions")
            acks = request["acks"]
            position = sender_of(fields, topics, acks)
            if len(topics) >= 127 or type(acks) is not int:
                raise ValueError("many topics")
            if acks == 0:
                request_ns, exempt_ns = 0, request_ns
        elif api == "FETCH":
            kind = FETCH
            if version not in _FETCH_VERSIONS:
                raise ValueError(version)
            request = fields["request"]
            if "replicaState" in request or request.get("replicaId", -1) != -1:
                raise ValueError("a broker's")
            position = _position(request["topics"])
            topics = fields["response"]["responses"]
            if throttle_ms > 0 and not topics:
                size = UNKNOWN
            else:
                # As `sizes.fetch_response_size`; counts take a byte.
                size, of_topic, of_partition, named, _, _ = FETCH_PARTS[version]
                size += 1
                for topic in topics:
                    partitions = topic["partitions"]
                    size += of_topic + 1 + len(partitions) * (of_partition + 1)
                    if named:
                        size += compact_sizes[topic["topic"]]
                    for partition in partitions:
                        records, aborted = partition["recordsSizeInBytes"], partition["abortedTransactions"]
                        size += records + (1 if records < 127 else 2 if records < 16383 else varint_size(records + 1))
                        if (aborted is not None and aborted != []) or not _TAGS.isdisjoint(partition):
                            raise ValueError("aborted transactions, or tagged fields")
                    if len(partitions) >= 127:
                        raise ValueError("many partitions")
                if len(topics) >= 127:
                    raise ValueError("many topics")
        elif api == "SHARE_FETCH":
            empty = share_fetch_size(version, throttle_ms, fields["response"])
            kind, size = (FETCH + UNSIZED, 0) if empty is None else (FETCH, empty)
        elif api in _OTHERS:
            kind, size = REQUEST, 0
        else:
            raise ValueError(api)
        untold = UNTOLD_FETCH_MS if kind % UNSIZED == FETCH else UNTOLD_MS
        if type(throttle_ms) is not int or size < UNKNOWN:
            raise ValueError("out of range")
        time_ms = floor(moment - sent_ms - queued_ms - untold)
        if not EARLIEST_MS <= time_ms < LATEST_MS:
            raise ValueError("out of range")
        row = pack(
            time_ms,
            kind,
            users[fields["principal"]],
            clients[client_id],
            size,
            request_ns,
            throttle_ms,
            connections[fields["connection"]],
            position,
            exempt_ns,
        )
        if data is not None and api in DATA_APIS:
            user, connection = users.names[users[fields["principal"]]], connections[fields["connection"]]
            data.add(fields, moment, (user, client_id or "", connection, time_ms))
        if fresh:
            connections.first(time_ms, opens=api == "API_VERSIONS")
        return row

    return read


def _position(topics: Any) -> int:
    """As `request_line.position_of` the first partition."""
    for topic in topics:
        for partition in topic["partitions"]:
            name = topic.get("topicId") or topic.get("topic")
            return crc32(f"{name} {partition['partition']} {partition['fetchOffset']}".encode())
    return 0
