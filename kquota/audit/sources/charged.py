"""What is read of the usual lines of a request log, and what brokers charged for them: a walk's numbers become rows.

It is what `request_line` makes of the same lines, by the tables of `sizes`. A line that is unusual is refused.

Importing this module loads numba.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from kquota.audit.batch import UNANSWERED
from kquota.audit.sources.connections import OPENING_API
from kquota.audit.sources.data_log import FORGOTTEN as FORGOTTEN_OFFSET
from kquota.audit.sources.event import MOST_MS, UNKNOWN, position_in
from kquota.audit.sources.joints import API_NAME, COUNT, FALSE, INTS, LIST, OBJECT, Key
from kquota.audit.sources.request_line import UNTOLD_FETCH_MS, UNTOLD_MS
from kquota.audit.sources.sizes import FETCH_PARTS, PRODUCE_VERSIONS, SHARE_FETCH_EMPTY, varint_size
from kquota.audit.sources.walk import (
    BAD,
    FIRST_CELL,
    FIRST_SLOT,
    FRACTION,
    INT,
    LINE,
    ODD,
    PARENT,
    POWERS,
    SHAPE,
    TEXT,
    TIME,
    TYPE,
    UNSET,
    called,
    entry,
    inlined,
)
from kquota.core.change.history import EARLIEST_MS, LATEST_MS

# --- Where the values of a line are kept.

(
    API, VERSION, CORRELATION, CLIENT_ID, CONNECTION, PRINCIPAL, SOFTWARE, TOTAL_MS, LOCAL_MS, REMOTE_MS, THROTTLE_MS,
    QUEUED_MS, SENT_MS, ACKS, STORED, TRANSACTIONAL_ID, ASKED, FORGOTTEN, REPLICA, STATE, STATE_REPLICA, EPOCH,
    ANSWERED, ERROR, HEADER, REQUEST, RESPONSE, INFORMATION, SLOTS,
) = range(FIRST_SLOT, FIRST_SLOT + 29)  # fmt: skip
NAME, ID, PARTITIONS = INDEX, AMOUNT, MORE = range(FIRST_CELL, FIRST_CELL + 3)
"""The cells of a topic, and of a partition: its index, and what SCHEMA says."""
(
    STORED_TOPIC, STORED_PARTITION, ANSWER_TOPIC, ANSWER_PARTITION, ASKED_TOPIC, ASKED_PARTITION, FORGOTTEN_TOPIC,
    FORGOTTEN_PARTITION, DELIVERED_TOPIC, DELIVERED_PARTITION,
) = range(1, 11)  # fmt: skip
"""The types of items."""


def _topics(cell: int, topic: int, name: str, partitions: str, values: Mapping[str, Key]) -> Key:
    """A list of topics, each with a list of partitions."""
    keys = {name: Key(TEXT, NAME), "topicId": Key(TEXT, ID)}
    return Key(LIST, cell, {**keys, partitions: Key(LIST, PARTITIONS, values, topic + 1)}, topic)


_odd: Final = Key(ODD)
_HEADER: Final = {
    "requestApiVersion": Key(INT, VERSION),
    "correlationId": Key(INT, CORRELATION),
    "clientId": Key(TEXT, CLIENT_ID),
    "requestApiKeyName": Key(API_NAME, API),
}
OTHERS: Final = {
    "isForwarded": _odd,
    "requestHeader": _odd,
    "connection": Key(TEXT, CONNECTION),
    "totalTimeMs": Key(TIME, TOTAL_MS),
    "localTimeMs": Key(TIME, LOCAL_MS),
    "remoteTimeMs": Key(TIME, REMOTE_MS),
    "throttleTimeMs": Key(INT, THROTTLE_MS),
    "responseQueueTimeMs": Key(TIME, QUEUED_MS),
    "sendTimeMs": Key(TIME, SENT_MS),
    "principal": Key(TEXT, PRINCIPAL),
}
_PRODUCE: Final = {
    "transactionalId": Key(TEXT, TRANSACTIONAL_ID),
    "acks": Key(INT, ACKS),
    "topicData": _topics(
        STORED, STORED_TOPIC, "name", "partitionData",
        {"index": Key(INT, INDEX), "recordsSizeInBytes": Key(INT, AMOUNT)},
    ),
}  # fmt: skip
_PRODUCED: Final = {
    "responses": _topics(
        ANSWERED, ANSWER_TOPIC, "name", "partitionResponses",
        {"index": Key(INT, INDEX), "errorCode": Key(INT, AMOUNT), "baseOffset": Key(INT, MORE)},
    ),
}  # fmt: skip
_FETCH: Final = {
    "replicaId": Key(INT, REPLICA),
    "replicaState": Key(OBJECT, STATE, {"replicaId": Key(INT, STATE_REPLICA)}),
    "sessionEpoch": Key(INT, EPOCH),
    "topics": _topics(
        ASKED, ASKED_TOPIC, "topic", "partitions",
        {"partition": Key(INT, INDEX), "fetchOffset": Key(INT, AMOUNT), "partitionMaxBytes": Key(INT, MORE)},
    ),
    "forgottenTopicsData": Key(
        LIST, FORGOTTEN,
        {
            "topic": Key(TEXT, NAME),
            "topicId": Key(TEXT, ID),
            "partitions": Key(INTS, PARTITIONS, item=FORGOTTEN_PARTITION),
        },
        FORGOTTEN_TOPIC,
    ),
}  # fmt: skip
_FETCHED: Final = {
    "responses": _topics(
        ANSWERED, DELIVERED_TOPIC, "topic", "partitions",
        {
            "partitionIndex": Key(INT, INDEX),
            "recordsSizeInBytes": Key(INT, AMOUNT),
            "abortedTransactions": Key(COUNT, MORE),
            **dict.fromkeys(("divergingEpoch", "currentLeader", "snapshotId"), _odd),
        },
    ),
}  # fmt: skip
SCHEMA: Final[dict[str, Mapping[str, Key]]] = {
    "": {
        **dict.fromkeys((*OTHERS, "request", "response"), _odd),
        "isForwarded": Key(FALSE),
        "requestHeader": Key(OBJECT, HEADER, _HEADER),
    },
    "PRODUCE": {
        **OTHERS,
        "request": Key(OBJECT, REQUEST, _PRODUCE),
        "response": Key(OBJECT, RESPONSE, _PRODUCED),
        "clientInformation": Key(OBJECT, INFORMATION, {"softwareName": Key(TEXT, SOFTWARE)}),
    },
    "FETCH": {
        **OTHERS,
        "request": Key(OBJECT, REQUEST, _FETCH),
        "response": Key(OBJECT, RESPONSE, _FETCHED),
    },
    "SHARE_FETCH": {
        **OTHERS,
        "response": Key(OBJECT, RESPONSE, {"errorCode": Key(INT, ERROR), "responses": Key(COUNT, ANSWERED)}),
    },
    OPENING_API.upper(): OTHERS,
}
"""What is done with each value of a line, by its API; of one that is not here OTHERS."""
_, PRODUCE, FETCH, SHARE_FETCH, OPENING = range(len(SCHEMA))
"""The numbers of APIs."""

# --- What was charged.

TIME_MS, BYTES, REQUEST_NS, POSITION, FOLLOWER, EMPTY, COLUMNS = range(7)
"""The columns of a line: when it was charged, its bytes, its time on a thread, its position, the follower that sent it
or -1, and whether it is a share fetch that found nothing."""
_MOST_BYTES: Final = 2**31 - 1
_PRODUCE_VERSIONS: Final = len(PRODUCE_VERSIONS)
_PARTS: Final = np.array([[*map(int, parts)] for parts in FETCH_PARTS])
_EMPTY: Final = np.array([SHARE_FETCH_EMPTY[version] for version in range(len(SHARE_FETCH_EMPTY))])

varint: Any = inlined(varint_size)
position_of: Any = inlined(position_in)


@inlined
def compact(length):
    """As `sizes.compact_size`."""
    return length + varint(length + 1)


@called
def produced(line, items, begin, end, lengths, row):
    """Whether a produce request is usual: its size as `sizes.produce_request_size`, its partition for a position."""
    version, many, transaction = line[VERSION], line[STORED], line[TRANSACTIONAL_ID]
    if line[ACKS] == UNSET or many < 0 or version < 0 or version >= _PRODUCE_VERSIONS:
        return False
    if version >= 3 and transaction < 0:
        return False
    size, flexible, place = 16 + lengths[line[CLIENT_ID]], version >= 9, UNSET
    if flexible:
        size += 2 + varint(many + 1) + (compact(lengths[transaction]) if transaction > 0 else 1)
    else:
        size += 4 + (2 + lengths[transaction] if version >= 3 else 0)
    for at in range(begin, end):
        item = items[at]
        if item[TYPE] == STORED_TOPIC:
            name, count = item[NAME], item[PARTITIONS]
            if count < 0 or (version < 13 and name <= 0):
                return False
            names = lengths[max(name, 0)]
            size += (16 if version >= 13 else compact(names)) + varint(count + 1) + 1 if flexible else 6 + names
        elif item[TYPE] == STORED_PARTITION:
            index, records = item[INDEX], item[AMOUNT]
            if index == UNSET or records < 0 or records > _MOST_BYTES:
                return False
            size += 5 + compact(records) if flexible else 8 + records
            place = 4 * min(index + 1, 31) if place == UNSET else place
    row[BYTES], row[POSITION] = size, max(place, 0) + (UNANSWERED if line[ACKS] == 0 else 0)
    return True


@called
def fetched(line, items, begin, end, lengths, crcs, row):
    """Whether a fetch is usual: its size as `sizes.fetch_response_size`, its position as `event.position_of`."""
    version, many = line[VERSION], line[ANSWERED]
    if many < 0 or line[ASKED] < 0 or version < 0 or version >= len(_PARTS):
        return False
    flexible, placed = version >= 12, False
    size = _PARTS[version, 0] + (varint(many + 1) if flexible else 0)
    for at in range(begin, end):
        item = items[at]
        if item[TYPE] == DELIVERED_TOPIC:
            name, count = item[NAME], item[PARTITIONS]
            if count < 0 or (version < 13 and name <= 0):
                return False
            size += _PARTS[version, 1] + count * _PARTS[version, 2] + (varint(count + 1) if flexible else 0)
            if version < 13:
                size += compact(lengths[name]) if flexible else lengths[name]
        elif item[TYPE] == DELIVERED_PARTITION:
            records, aborted = item[AMOUNT], item[MORE]
            if records < 0 or records > _MOST_BYTES or (aborted == UNSET and version >= 4):
                return False
            aborted = max(aborted, 0)
            size += records + aborted * _PARTS[version, 5]
            size += varint(records + 1) + varint(aborted + 1) if flexible else 0
        elif item[TYPE] == ASKED_TOPIC and item[PARTITIONS] < 0:
            return False
        elif item[TYPE] == ASKED_PARTITION:
            partition, offset, topic = item[INDEX], item[AMOUNT], items[item[PARENT]]
            if partition == UNSET or offset == UNSET:
                return False
            if not placed:
                placed = True
                name = topic[ID] if topic[ID] > 0 and lengths[topic[ID]] > 0 else topic[NAME]
                if name <= 0:
                    return False
                row[POSITION] = position_of(crcs[name], partition, offset)
    replica = line[STATE_REPLICA] if line[STATE] == 1 else line[REPLICA]
    if line[STATE] != 1 and replica == UNSET:
        replica = -1
    if replica == UNSET or (line[STATE] < 0 and line[STATE] != UNSET):
        return False
    row[BYTES] = UNKNOWN if line[THROTTLE_MS] > 0 and many == 0 else size
    row[FOLLOWER] = replica
    return True


@entry
def charge(lines, times, items, texts, crcs, seconds, usual, done, rows):
    """Fills `rows` and `done`, when each request was done with (epoch ms), and takes lines out of `usual`."""
    lengths, layouts, end = texts.entries[:, 2], texts.layouts, 0
    for number in range(len(rows)):
        line, row, begin = lines[number], rows[number], end
        while end < len(items) and items[end, LINE] == number:
            end += 1
        row[FOLLOWER] = -1
        if not usual[number]:
            continue
        usual[number] = False
        local, sent, queued = times[number, LOCAL_MS], times[number, SENT_MS], times[number, QUEUED_MS]
        throttle, version, api = line[THROTTLE_MS], line[VERSION], line[API]
        if not (0 <= local <= MOST_MS and 0 <= sent <= MOST_MS and 0 <= queued <= MOST_MS):
            continue
        if not (0 <= times[number, TOTAL_MS] <= MOST_MS and 0 <= throttle <= MOST_MS):
            continue
        if version == UNSET or line[CORRELATION] == UNSET:
            continue
        layout = layouts[line[SHAPE]]
        power = POWERS[layout[5] - layout[4]]
        done[number] = seconds[number] + line[FRACTION] * 1000 / power + 500 / power - sent - queued
        reads = api in (FETCH, SHARE_FETCH)
        charged = np.floor(done[number] - (UNTOLD_FETCH_MS if reads else UNTOLD_MS))
        if not EARLIEST_MS <= charged < LATEST_MS:
            continue
        row[TIME_MS], row[REQUEST_NS] = np.int64(charged), np.int64(np.rint(local * 1e6))
        if api == PRODUCE:
            usual[number] = produced(line, items, begin, end, lengths, row)
        elif api == FETCH:
            usual[number] = fetched(line, items, begin, end, lengths, crcs, row)
        elif api == SHARE_FETCH:
            answered, error = line[ANSWERED], line[ERROR]
            usual[number] = answered >= 0 and error != UNSET
            if throttle == 0 and error == 0 and answered == 0 and 0 <= version < len(_EMPTY):
                row[EMPTY], row[BYTES] = 1, _EMPTY[version]
        else:
            usual[number] = True


# --- What lines show of the data: as `DataLog.add`.

_MOST_INDEX: Final = 1 << 24
_MOST_ANSWERS: Final = 1 << 11


@inlined
def topic_of(item):
    """The number of a topic's name; less than 0 for that of its id, 0 for neither."""
    return item[NAME] if item[NAME] > 0 else min(-item[ID], 0)


@inlined
def key_of(items, item):
    """A number for the line, topic and partition of an item, less than 0 for what is unusual."""
    topic, index = items[item[PARENT]], item[INDEX]
    name = topic[NAME] if topic[NAME] != UNSET else topic[ID]
    if name < 0 or index < 0 or index >= _MOST_INDEX:
        return np.int64(-1)
    return (item[LINE] << 20 | name) << 24 | index


@inlined
def slot_of(known, key):
    """Where a key is in a table, or would be; what is of earlier lines counts as empty."""
    slot = (key ^ key >> 20) & (len(known) - 1)
    while known[slot, 0] != key and known[slot, 0] >> 44 == key >> 44:
        slot = (slot + 1) & (len(known) - 1)
    return slot


@called
def stored(items, begin, end, known, since_us, appended, count):
    """Adds what a produce request stored, where its answers tell; the new count, BAD for an unusual line."""
    answers = 0
    for at in range(begin, end):
        item = items[at]
        if item[TYPE] == ANSWER_TOPIC and item[PARTITIONS] < 0:
            return BAD
        if item[TYPE] == ANSWER_PARTITION:
            key, answers = key_of(items, item), answers + 1
            slot = slot_of(known, key)
            if (
                key < 0
                or known[slot, 0] == key
                or answers > _MOST_ANSWERS
                or item[AMOUNT] == UNSET
                or item[MORE] == UNSET
            ):
                return BAD
            known[slot, 0], known[slot, 1] = key, at
    for at in range(begin, end):
        item = items[at]
        if item[TYPE] == STORED_TOPIC and topic_of(item) == 0:
            return BAD
        if item[TYPE] == STORED_PARTITION:
            key = key_of(items, item)
            slot = slot_of(known, key)
            if key < 0 or known[slot, 0] != key:
                return BAD
            answer = items[known[slot, 1]]
            if answer[AMOUNT] == 0 and item[AMOUNT] > 0:
                row = appended[count]
                row[0], row[1], row[2], row[3] = since_us, topic_of(items[item[PARENT]]), item[INDEX], item[AMOUNT]
                row[4] = answer[MORE]
                count += 1
    return count


@called
def consumed(items, begin, end, item_type, parts, count):
    """Adds the partitions of a type that a fetch names; the new count, BAD for an unusual line."""
    for at in range(begin, end):
        item = items[at]
        if item[TYPE] == item_type - 1 and item[PARTITIONS] < 0:
            return BAD
        if item[TYPE] == item_type:
            topic, asks = topic_of(items[item[PARENT]]), item_type == ASKED_PARTITION
            if topic == 0 or item[INDEX] == UNSET or (asks and item[MORE] == UNSET):
                return BAD
            row = parts[count]
            row[0], row[1], row[3] = topic, item[INDEX], item[MORE] if asks else 0
            row[2] = FORGOTTEN_OFFSET if item_type == FORGOTTEN_PARTITION else item[AMOUNT]
            count += 1
    return count


@entry
def show(lines, times, items, rows, done, usual, known, appended, fetched, parts, counts):
    """Adds what usual lines show of the data to tables, whose lengths are `counts`, and takes lines out of `usual`.

    In place of user, client and connection, `fetched` has the number of a line.
    """
    end = 0
    for number in range(len(lines)):
        line, begin = lines[number], end
        while end < len(items) and items[end, LINE] == number:
            end += 1
        api, remote, local = line[API], times[number, REMOTE_MS], times[number, LOCAL_MS]
        produces = api == PRODUCE and line[ACKS] != 0
        if not usual[number] or not (produces or (api == FETCH and rows[number, FOLLOWER] < 0)):
            continue
        usual[number] = remote >= 0 and line[RESPONSE] == 1
        if not usual[number]:
            continue
        if produces:
            since_us = np.int64(np.rint((done[number] - local) * 1000))
            count = stored(items, begin, end, known, since_us, appended, counts[0])
            usual[number] = count >= 0
            counts[0] = max(count, counts[0])
            continue
        asked = consumed(items, begin, end, ASKED_PARTITION, parts, counts[2])
        gone = consumed(items, begin, end, FORGOTTEN_PARTITION, parts, asked) if asked >= 0 else asked
        given = consumed(items, begin, end, DELIVERED_PARTITION, parts, gone) if gone >= 0 else gone
        usual[number] = given >= 0
        if given >= 0:
            row, version = fetched[counts[1]], line[VERSION]
            row[0] = np.int64(np.rint((done[number] - (0 if remote > 0 else local / 2)) * 1000))
            row[1], row[2], row[5] = rows[number, TIME_MS], number, line[EPOCH] <= 0
            row[6] = ~version if line[THROTTLE_MS] > 0 and line[ANSWERED] == 0 else version
            row[7], row[8] = gone - counts[2], given - gone
            counts[1], counts[2] = counts[1] + 1, given
