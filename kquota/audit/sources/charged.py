"""What is read of the usual lines of a request log, and what brokers charged for them: a walk's numbers become rows.

It is what `request_line` makes of the same lines, by the tables of `sizes`. A line that is unusual is refused.

Importing this module loads numba.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from kquota.audit.batch import UNANSWERED, UNKNOWN
from kquota.audit.sources.data_log import FORGOTTEN as FORGOTTEN_OFFSET
from kquota.audit.sources.data_log import OPENING_API
from kquota.audit.sources.event import MOST_MS, MOST_NUMBER, position_in
from kquota.audit.sources.joints import API_NAME, COUNT, FALSE, INTS, LIST, OBJECT, Key
from kquota.audit.sources.names import NOT_EXEMPT, UNSIZED
from kquota.audit.sources.request_line import UNTOLD_FETCH_MS, UNTOLD_MS
from kquota.audit.sources.sizes import FETCH_PARTS, PRODUCE_PARTS, SHARE_FETCH_EMPTY, varint_size
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
    ANSWERED, ERROR, HEADER, REQUEST, RESPONSE, INFORMATION, LISTENER, SLOTS,
) = range(FIRST_SLOT, FIRST_SLOT + 30)  # fmt: skip
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
    "listener": Key(TEXT, LISTENER),
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
    "FETCH": {**OTHERS, "request": Key(OBJECT, REQUEST, _FETCH), "response": Key(OBJECT, RESPONSE, _FETCHED)},
    "SHARE_FETCH": {
        **OTHERS,
        "response": Key(OBJECT, RESPONSE, {"errorCode": Key(INT, ERROR), "responses": Key(COUNT, ANSWERED)}),
    },
    OPENING_API.upper(): OTHERS,
}
"""What is done with each value of a line, by its API; of one that is not here OTHERS."""
_, PRODUCE, FETCH, SHARE_FETCH, OPENING = range(len(SCHEMA))
"""The numbers of APIs."""

# --- What was charged, and what lines show of the data.

TIME_MS, KIND, USER, CLIENT, BYTES, REQUEST_NS, THROTTLED_MS, PEER, POSITION, EXEMPT_NS, FOLLOWER, COLUMNS = range(12)
"""The columns of a line: those of a `names.ROW`, and the follower that sent it or -1."""
_MOST_BYTES: Final = 2**31 - 1
_MOST_INDEX: Final = 1 << 24
_MOST_ANSWERS: Final = 1 << 8


_PRODUCE_PARTS, _FETCH_PARTS = (
    np.array([[*map(int, parts), topic] for parts in versions])
    for versions, topic in ((PRODUCE_PARTS, STORED_TOPIC), (FETCH_PARTS, DELIVERED_TOPIC))
)
"""By version, the fixed parts of a message; and the type of its topics."""
_EMPTY: Final = np.array([SHARE_FETCH_EMPTY[version] for version in range(len(SHARE_FETCH_EMPTY))])

varint: Any = inlined(varint_size)
position_of: Any = inlined(position_in)


class Shown(NamedTuple):
    """What usual lines show of the data: rows as of `data_log`, an appended batch with the number of its line."""

    appended: Any
    fetched: Any
    """In place of user, client and connection there is the number of the line."""
    parts: Any
    counts: Any
    """How many rows of each there are; none is added where the first is less than 0."""


@called
def sized(items, begin, end, count, parts, lengths):
    """The size of lists of topics and partitions, with the fixed parts; BAD for what is unusual."""
    of_topic, of_partition, named, flexible, of_aborted = parts[1], parts[2], parts[3], parts[4], parts[5]
    size, topic = parts[0] + (varint(count + 1) if flexible else 0), parts[6]
    for at in range(begin, end):
        item = items[at]
        if item[TYPE] == topic:
            name, count = item[NAME], item[PARTITIONS]
            if count < 0 or (named and name <= 0):
                return np.int64(BAD)
            length = lengths[name] if named else 0
            size += of_topic + count * of_partition + length
            if flexible:
                size += varint(count + 1) + (varint(length + 1) if named else 0)
        elif item[TYPE] == topic + 1:
            records, aborted = item[AMOUNT], item[MORE]
            is_whole = item[INDEX] >= -1 and (aborted != UNSET or of_aborted == 0)
            if not is_whole or records < 0 or records > _MOST_BYTES:
                return np.int64(BAD)
            aborted = max(aborted, 0)
            size += records + aborted * of_aborted
            size += varint(records + 1) + varint(aborted + 1) if flexible else 0
    return size


@inlined
def topic_of(item):
    """The number of a topic's name, or less than 0 for its id; 0 for neither."""
    return item[NAME] if item[NAME] > 0 else min(-item[ID], 0)


@inlined
def key_of(items, item):
    """The topic and the partition of an item as one number, less than 0 for what is unusual."""
    topic, index = items[item[PARENT]], item[INDEX]
    name = topic[NAME] if topic[NAME] != UNSET else topic[ID]
    return np.int64(BAD) if name < 0 or index < 0 or index >= _MOST_INDEX else name << 24 | index


@called
def produced(line, items, begin, end, lengths, row):
    """Whether a produce request is usual: its size as `sizes.produce_request_size`, its partition for a position."""
    version, transaction = line[VERSION], line[TRANSACTIONAL_ID]
    if line[ACKS] == UNSET or line[STORED] < 0 or version < 0 or version >= len(_PRODUCE_PARTS):
        return False
    size = sized(items, begin, end, line[STORED], _PRODUCE_PARTS[version], lengths)
    if size < 0 or (version >= 3 and transaction < 0):
        return False
    length = lengths[max(transaction, 0)]
    if version >= 9:
        size += length + varint(length + 1) if transaction > 0 else 1
    elif version >= 3:
        size += 2 + length
    row[BYTES] = size + lengths[line[CLIENT_ID]]
    if line[ACKS] == 0:
        row[POSITION] += UNANSWERED
        row[REQUEST_NS], row[EXEMPT_NS] = 0, row[REQUEST_NS]
    for at in range(begin, end):
        if items[at, TYPE] == STORED_PARTITION:
            row[POSITION] += 4 * min(items[at, INDEX] + 1, 31)
            break
    return True


@called
def stored(items, begin, end, since_us, shown):
    """Adds what a produce request stored, by its answers; whether it is usual."""
    appended, count, answers = shown.appended, shown.counts[0], 0
    for at in range(begin, end):
        item = items[at]
        if item[TYPE] == ANSWER_TOPIC and item[PARTITIONS] < 0:
            return False
        if item[TYPE] == ANSWER_PARTITION:
            answers += 1
            is_whole = item[AMOUNT] != UNSET and item[MORE] != UNSET
            if key_of(items, item) < 0 or answers > _MOST_ANSWERS or not is_whole:
                return False
    for at in range(begin, end):
        item = items[at]
        if item[TYPE] == STORED_TOPIC and topic_of(item) == 0:
            return False
        if item[TYPE] == STORED_PARTITION:
            key, there = key_of(items, item), end - 1
            while there >= begin and (items[there, TYPE] != ANSWER_PARTITION or key_of(items, items[there]) != key):
                there -= 1
            if key < 0 or there < begin:
                return False
            answer, row = items[there], appended[count]
            if answer[AMOUNT] == 0 and item[AMOUNT] > 0:
                row[0], row[1], row[2], row[3] = since_us, topic_of(items[item[PARENT]]), item[INDEX], item[AMOUNT]
                row[4], row[5] = answer[MORE], item[LINE]
                count += 1
    shown.counts[0] = count
    return True


@called
def fetched(line, items, begin, end, lengths, crcs, row):
    """Whether a fetch is usual: its size as `sizes.fetch_response_size`, its position as `event.position_of`."""
    version, many, state = line[VERSION], line[ANSWERED], line[STATE]
    if many < 0 or line[ASKED] < 0 or version < 0 or version >= len(_FETCH_PARTS):
        return False
    size = sized(items, begin, end, many, _FETCH_PARTS[version], lengths)
    if size < 0:
        return False
    row[BYTES] = UNKNOWN if line[THROTTLE_MS] > 0 and many == 0 else size
    row[FOLLOWER] = -1
    if state == 1 or line[REPLICA] != UNSET:
        row[FOLLOWER] = line[STATE_REPLICA] if state == 1 else line[REPLICA]
    if row[FOLLOWER] == UNSET or (state < 0 and state != UNSET):
        return False
    for at in range(begin, end):
        item = items[at]
        if item[TYPE] == ASKED_TOPIC and item[PARTITIONS] < 0:
            return False
        if item[TYPE] == ASKED_PARTITION:
            topic = items[item[PARENT]]
            name = topic[ID] if topic[ID] > 0 and lengths[topic[ID]] > 0 else topic[NAME]
            if name <= 0 or item[INDEX] == UNSET or item[AMOUNT] == UNSET:
                return False
            row[POSITION] = position_of(crcs[name], item[INDEX], item[AMOUNT])
            break
    return True


@called
def named(items, begin, end, kind, parts, count):
    """Adds the partitions of a type that a fetch names; how many there are then, BAD for what is unusual."""
    if count < 0:
        return BAD
    for at in range(begin, end):
        item, asks = items[at], kind == ASKED_PARTITION
        if item[TYPE] == kind - 1 and item[PARTITIONS] < 0:
            return BAD
        if item[TYPE] == kind:
            topic, amount, row = topic_of(items[item[PARENT]]), item[AMOUNT], parts[count]
            if kind == FORGOTTEN_PARTITION:
                amount = FORGOTTEN_OFFSET
            if topic == 0 or item[INDEX] == UNSET or amount == UNSET or (asks and item[MORE] == UNSET):
                return BAD
            row[0], row[1], row[2], row[3] = topic, item[INDEX], amount, item[MORE] if asks else 0
            count += 1
    return count


@called
def consumed(line, items, begin, end, number, time_ms, read_us, shown):
    """Adds what a fetch asks for and gets; whether it is usual."""
    begun, version, row = shown.counts[2], line[VERSION], shown.fetched[shown.counts[1]]
    asked = count = begun
    for kind in (ASKED_PARTITION, FORGOTTEN_PARTITION, DELIVERED_PARTITION):
        asked = count if kind == DELIVERED_PARTITION else asked
        count = named(items, begin, end, kind, shown.parts, count)
    if count < 0:
        return False
    row[0], row[1], row[2], row[5] = read_us, time_ms, number, line[EPOCH] <= 0
    row[6] = ~version if line[THROTTLE_MS] > 0 and line[ANSWERED] == 0 else version
    row[7], row[8] = asked - begun, count - asked
    shown.counts[1] += 1
    shown.counts[2] = count
    return True


@entry
def charge(lines, times, items, texts, crcs, seconds, usual, rows, shown):
    """Fills `rows` and what is `shown`, and takes lines out of `usual`.

    The kind, the names, and the library of a producer in its position are there already.
    """
    lengths, layouts, end = texts.entries[:, 2], texts.layouts, np.int64(0)
    shows = shown.counts[0] >= 0
    for number in range(len(rows)):
        line, row, begin = lines[number], rows[number], end
        while end < len(items) and items[end, LINE] == number:
            end += 1
        row[FOLLOWER], row[EXEMPT_NS], row[THROTTLED_MS] = -1, NOT_EXEMPT, line[THROTTLE_MS]
        if not usual[number]:
            continue
        usual[number] = False
        local, sent, queued = times[number, LOCAL_MS], times[number, SENT_MS], times[number, QUEUED_MS]
        throttle, version, api = line[THROTTLE_MS], line[VERSION], line[API]
        if not (0 <= local <= MOST_MS and 0 <= sent <= MOST_MS and 0 <= queued <= MOST_MS):
            continue
        if not (0 <= times[number, TOTAL_MS] <= MOST_MS and 0 <= throttle <= MOST_MS):
            continue
        if version == UNSET or line[LISTENER] == UNSET or abs(line[CORRELATION]) > MOST_NUMBER:
            continue
        layout = layouts[line[SHAPE]]
        power = POWERS[layout[5] - layout[4]]
        done = seconds[number] + line[FRACTION] * 1000 / power + 500 / power - sent - queued
        reads = api in (FETCH, SHARE_FETCH)
        charged = np.floor(done - (UNTOLD_FETCH_MS if reads else UNTOLD_MS))
        if not EARLIEST_MS <= charged < LATEST_MS:
            continue
        row[TIME_MS], row[REQUEST_NS] = np.int64(charged), np.int64(np.rint(local * 1e6))
        remote = times[number, REMOTE_MS]
        tells = remote >= 0 and line[RESPONSE] == 1
        if api == PRODUCE:
            usual[number] = produced(line, items, begin, end, lengths, row)
            if shows and usual[number] and line[ACKS] != 0:
                since_us = np.int64(np.rint((done - local) * 1000))
                usual[number] = tells and stored(items, begin, end, since_us, shown)
        elif api == FETCH:
            usual[number] = fetched(line, items, begin, end, lengths, crcs, row)
            if shows and usual[number] and row[FOLLOWER] < 0:
                read_us = np.int64(np.rint((done - (0 if remote > 0 else local / 2)) * 1000))
                usual[number] = tells and consumed(line, items, begin, end, number, row[TIME_MS], read_us, shown)
        elif api == SHARE_FETCH:
            answered, error = line[ANSWERED], line[ERROR]
            usual[number] = answered >= 0 and error != UNSET
            if throttle == 0 and error == 0 and answered == 0 and 0 <= version < len(_EMPTY):
                row[BYTES] = _EMPTY[version]
            else:
                row[KIND] += UNSIZED
        else:
            usual[number] = True
