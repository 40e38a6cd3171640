"""What brokers charged for the usual lines of a request log: the numbers of a walk, compiled into numbers of rows.

It is what `request_line` makes of the same lines, by the tables of `sizes`. A line that is unusual is refused.

Importing this module loads numba.
"""

from collections import namedtuple
from typing import Any, Final

import numpy as np

from kquota.audit.batch import UNANSWERED
from kquota.audit.sources.event import MOST_MS, UNKNOWN, position_in
from kquota.audit.sources.request_line import UNTOLD_FETCH_MS, UNTOLD_MS
from kquota.audit.sources.sizes import PRODUCE_VERSIONS, varint_size
from kquota.audit.sources.walk import (
    FIRST_CELL,
    FRACTION,
    LINE,
    PARENT,
    POWERS,
    SHAPE,
    TYPE,
    UNSET,
    called,
    entry,
    inlined,
)
from kquota.core.change.history import EARLIEST_MS, LATEST_MS

TIME_MS, BYTES, REQUEST_NS, POSITION, REPLICA, EMPTY, COLUMNS = range(7)
"""The columns of a line: when it was charged, its bytes, its time on a thread, its position, the follower that sent it
or -1, and whether it is a share fetch that found nothing."""
_MOST_BYTES: Final = 2**31 - 1
_PRODUCE_VERSIONS: Final = len(PRODUCE_VERSIONS)
_ONE, _TWO, _THREE = FIRST_CELL, FIRST_CELL + 1, FIRST_CELL + 2


PATHS: Final = {
    "api": "requestHeader.requestApiKeyName",
    "version": "requestHeader.requestApiVersion",
    "correlation": "requestHeader.correlationId",
    "client_id": "requestHeader.clientId",
    "local": "localTimeMs",
    "sent": "sendTimeMs",
    "queued": "responseQueueTimeMs",
    "total": "totalTimeMs",
    "throttle": "throttleTimeMs",
    "acks": "request.acks",
    "stored": "request.topicData",
    "transaction": "request.transactionalId",
    "asked": "request.topics",
    "replica": "request.replicaId",
    "state": "request.replicaState",
    "state_replica": "request.replicaState.replicaId",
    "given": "response.responses",
    "error": "response.errorCode",
}
"""What counts of a line."""
ITEMS: Final = {
    "stored_topic": "PRODUCE.request.topicData",
    "stored_part": "PRODUCE.request.topicData.partitionData",
    "given_topic": "FETCH.response.responses",
    "given_part": "FETCH.response.responses.partitions",
    "asked_topic": "FETCH.request.topics",
    "asked_part": "FETCH.request.topics.partitions",
}
"""Which lists it has."""
APIS: Final = {"produce": "PRODUCE", "fetch": "FETCH", "share_fetch": "SHARE_FETCH"}
Slots: Any = namedtuple("Slots", (*PATHS, *ITEMS, *APIS))  # type: ignore[misc]
"""Where a walk leaves them: slots, the numbers of lists, and of words."""

varint: Any = inlined(varint_size)
position_of: Any = inlined(position_in)


@inlined
def compact(length):
    """As `sizes.compact_size`."""
    return length + varint(length + 1)


@called
def produced(line, items, begin, end, slots, lengths, row):
    """Whether a produce request is usual: its size as `sizes.produce_request_size`, its partition for a position."""
    version, many, transaction = line[slots.version], line[slots.stored], line[slots.transaction]
    if line[slots.acks] == UNSET or many < 0 or version < 0 or version >= _PRODUCE_VERSIONS:
        return False
    if version >= 3 and transaction < 0:
        return False
    size, flexible, place = 16 + lengths[line[slots.client_id]], version >= 9, UNSET
    if flexible:
        size += 2 + varint(many + 1) + (compact(lengths[transaction]) if transaction > 0 else 1)
    else:
        size += 4 + (2 + lengths[transaction] if version >= 3 else 0)
    for at in range(begin, end):
        item = items[at]
        if item[TYPE] == slots.stored_topic:
            name, count = item[_ONE], item[_THREE]
            if count < 0 or (version < 13 and name <= 0):
                return False
            names = lengths[max(name, 0)]
            size += (16 if version >= 13 else compact(names)) + varint(count + 1) + 1 if flexible else 6 + names
        elif item[TYPE] == slots.stored_part:
            index, records = item[_ONE], item[_TWO]
            if index == UNSET or records < 0 or records > _MOST_BYTES:
                return False
            size += 5 + compact(records) if flexible else 8 + records
            place = 4 * min(index + 1, 31) if place == UNSET else place
    row[BYTES], row[POSITION] = size, max(place, 0) + (UNANSWERED if line[slots.acks] == 0 else 0)
    return True


@called
def fetched(line, items, begin, end, slots, lengths, crcs, parts, row):
    """Whether a fetch is usual: its size as `sizes.fetch_response_size`, its position as `event.position_of`."""
    version, many = line[slots.version], line[slots.given]
    if many < 0 or line[slots.asked] < 0 or version < 0 or version >= len(parts):
        return False
    flexible, placed = version >= 12, False
    size = parts[version, 0] + (varint(many + 1) if flexible else 0)
    for at in range(begin, end):
        item = items[at]
        if item[TYPE] == slots.given_topic:
            name, count = item[_ONE], item[_THREE]
            if count < 0 or (version < 13 and name <= 0):
                return False
            size += parts[version, 1] + count * parts[version, 2] + (varint(count + 1) if flexible else 0)
            if version < 13:
                size += compact(lengths[name]) if flexible else lengths[name]
        elif item[TYPE] == slots.given_part:
            records, aborted = item[_TWO], item[_THREE]
            if records < 0 or records > _MOST_BYTES or (aborted == UNSET and version >= 4):
                return False
            aborted = max(aborted, 0)
            size += records + aborted * parts[version, 5]
            size += varint(records + 1) + varint(aborted + 1) if flexible else 0
        elif item[TYPE] == slots.asked_topic and item[_THREE] < 0:
            return False
        elif item[TYPE] == slots.asked_part:
            partition, offset, topic = item[_ONE], item[_TWO], items[item[PARENT]]
            if partition == UNSET or offset == UNSET:
                return False
            if not placed:
                placed = True
                name = topic[_TWO] if topic[_TWO] > 0 and lengths[topic[_TWO]] > 0 else topic[_ONE]
                if name <= 0:
                    return False
                row[POSITION] = position_of(crcs[name], partition, offset)
    replica = line[slots.state_replica] if line[slots.state] == 1 else line[slots.replica]
    if line[slots.state] != 1 and replica == UNSET:
        replica = -1
    if replica == UNSET or (line[slots.state] < 0 and line[slots.state] != UNSET):
        return False
    row[BYTES] = UNKNOWN if line[slots.throttle] > 0 and many == 0 else size
    row[REPLICA] = replica
    return True


@entry
def charge(lines, times, items, slots, texts, crcs, seconds, parts, empty, usual, done, rows):
    """Fills `rows` and `done`, when each request was done with (epoch ms), and takes lines out of `usual`."""
    lengths, layouts, end = texts.entries[:, 2], texts.layouts, 0
    for number in range(len(rows)):
        line, row, begin = lines[number], rows[number], end
        while end < len(items) and items[end, LINE] == number:
            end += 1
        row[REPLICA] = -1
        if not usual[number]:
            continue
        usual[number] = False
        local, sent, queued = times[number, slots.local], times[number, slots.sent], times[number, slots.queued]
        throttle, version, api = line[slots.throttle], line[slots.version], line[slots.api]
        if not (0 <= local <= MOST_MS and 0 <= sent <= MOST_MS and 0 <= queued <= MOST_MS):
            continue
        if not (0 <= times[number, slots.total] <= MOST_MS and 0 <= throttle <= MOST_MS):
            continue
        if version == UNSET or line[slots.correlation] == UNSET:
            continue
        layout = layouts[line[SHAPE]]
        power = POWERS[layout[5] - layout[4]]
        done[number] = seconds[number] + line[FRACTION] * 1000 / power + 500 / power - sent - queued
        reads = api == slots.fetch or api == slots.share_fetch
        charged = np.floor(done[number] - (UNTOLD_FETCH_MS if reads else UNTOLD_MS))
        if not EARLIEST_MS <= charged < LATEST_MS:
            continue
        row[TIME_MS], row[REQUEST_NS] = np.int64(charged), np.int64(np.rint(local * 1e6))
        if api == slots.produce:
            usual[number] = produced(line, items, begin, end, slots, lengths, row)
        elif api == slots.fetch:
            usual[number] = fetched(line, items, begin, end, slots, lengths, crcs, parts, row)
        elif api == slots.share_fetch:
            answered, error = line[slots.given], line[slots.error]
            usual[number] = answered >= 0 and error != UNSET
            if throttle == 0 and error == 0 and answered == 0 and 0 <= version < len(empty):
                row[EMPTY], row[BYTES] = 1, empty[version]
        else:
            usual[number] = True
