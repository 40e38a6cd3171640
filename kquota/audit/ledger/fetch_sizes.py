"""What throttled fetches would have held, from the data that producers appended to the same partitions.

A broker throttles a fetch after it has read the data: it charges the response, takes the charge back, and sends and
logs an empty one. Which bytes it had read follows from the log. A consumer says from which offset on it wants each
partition, and the log shows when each batch was appended. What was there at the moment of the fetch is what it would
have held (`ReplicaManager.readFromLog`, `LogSegment.read`):

* Partitions come in the order of the request; in a fetch session (KIP-227) delivered ones move to its end.
* A partition gives what it has, up to its own most bytes and to what is left of the whole response, cut anywhere. Its
  first batch comes whole where it is the first data of the response; else, if it does not fit, the partition gives
  nothing.
* Several limits hold for a response, such as ten seconds' worth of the quota (2.5 and later). The log shows only some
  of them. But whoever is throttled asks again, for the same and more: no response is larger than the largest one that
  the client got at about that time.

All of this is tried on the fetches that were delivered, whose sizes are known. Only where it comes out there to the
byte are the sizes of a client's throttled fetches taken from it. So nothing is taken from it where the log lacks the
producers of a partition, or shows no offsets (acks=0), or where transactions hide data.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from kquota.audit.batch import Batch, Column, Int64s
from kquota.audit.sources.data_log import FORGOTTEN, ID, Appended, DataLog, Fetched, Part, table
from kquota.audit.sources.sizes import fetch_response_size
from kquota.core.enforcement.kind import FETCH

SLACK_US: Final = 10_000
"""How far the times of a log may be off: what was appended so much sooner or later may be in a response or not."""
ALIKE_US: Final = 120_000_000
"""Responses of one client are cut at the same size for so long; a quota that changes can change it."""
LEAST_SHARE: Final = 0.9
"""Of the delivered fetches of a client so many come out to the byte where sizes are used."""

Place = tuple[str, int]
"""A topic, by its name or by its id behind `#`, and the number of a partition."""


class _Fetch(NamedTuple):
    """One fetch. Its `session` has what is asked for: the offset, and the most bytes."""

    read_us: int
    time_ms: int
    connection: int
    client: tuple[str, str]
    whole: bool
    layout: int
    asked: Sequence[tuple[Place, int, int]]
    delivered: Mapping[Place, int]


class _There(NamedTuple):
    """What a consumer finds in a partition from its offset on."""

    bytes: int
    first: int
    """The bytes of the first batch."""

    def gives(self, most: int, *, is_first: bool) -> int:
        """How much of it goes into a response, of which it `is_first` where no data comes before it."""
        if self.first > most:
            return self.first if is_first else 0
        return min(self.bytes, most)


_NOTHING: Final = _There(0, 0)


class _Partition:
    """The batches of a partition in the order of their offsets."""

    def __init__(self, batches: Int64s) -> None:
        """From rows of `Appended`."""
        times, _, _, sizes, offsets = batches.T
        self._offsets, once = np.unique(offsets, return_index=True)  # one that was sent twice is kept once
        self._since_us = np.maximum.accumulate(times[once])
        self._starts = np.concatenate([[0], np.cumsum(sizes[once])])
        """Where each batch begins, in bytes, and the end of the last one."""

    def _batch(self, offset: int) -> int:
        """The number of the batch with an offset; less than 0 where the log lacks it."""
        batch = int(np.searchsorted(self._offsets, offset))
        in_middle = batch < len(self._offsets) and self._offsets[batch] > offset
        return batch - 1 if in_middle else batch

    def there(self, offset: int, time_us: int) -> _There:
        """What there is from an offset on at that time; nothing where the log lacks its batch."""
        batch, end = self._batch(offset), int(np.searchsorted(self._since_us, time_us, "right"))
        if not 0 <= batch < end:
            return _NOTHING
        begin, behind, last = self._starts[[batch, batch + 1, end]].tolist()
        return _There(last - begin, behind - begin)

    def is_cut(self, offset: int, size: int) -> bool:
        """Whether so many bytes from an offset on end in the middle of a batch that is not the first."""
        begin = self._starts[self._batch(offset)]
        end = int(np.searchsorted(self._starts, begin + size))
        return bool(end < len(self._starts) and self._starts[end] > begin + size and self._starts[end - 1] > begin)


_UNKNOWN: Final = _Partition(np.zeros((0, len(Appended._fields)), np.int64))
"""A partition of which no batch is known: it is taken for empty, and delivered fetches show where it is not."""


_Asked = tuple[int, int]
"""From which offset on a partition is asked for, and how many bytes of it at most."""


def sizes_of(broker: str, logs: Sequence[DataLog]) -> Iterator[Batch]:
    """The throttled fetches of a broker whose sizes are known, with these; `detail` is the share that came out, in ppm.

    `logs` are the broker's own in any order, and what other brokers show for all.
    """
    names = {ID + topic_id: name for log in logs for topic_id, name in log.ids.items()}
    own = [log for log in logs if log.broker == broker and log.rows]
    fetches = sorted(_fetches(own, names), key=lambda fetch: (fetch.read_us, fetch.time_ms, fetch.connection))
    partitions = _partitions(own, names) if fetches else {}
    largest: dict[tuple[tuple[str, str], int], int] = defaultdict(int)
    for fetch in fetches:
        for span in (-1, 0, 1):
            name = fetch.client, fetch.read_us // ALIKE_US + span
            largest[name] = max(largest[name], sum(fetch.delivered.values()))
    sessions: dict[int, dict[Place, _Asked]] = {}
    checked: dict[tuple[str, str], list[bool]] = defaultdict(list)
    sized: list[tuple[_Fetch, int]] = []
    for fetch in fetches:
        session = {} if fetch.whole else sessions.get(fetch.connection)
        if session is None:
            continue  # the log does not show how it began
        sessions[fetch.connection], most_bytes = session, largest[fetch.client, fetch.read_us // ALIKE_US]
        for place, offset, most in fetch.asked:
            if offset == FORGOTTEN:
                session.pop(place, None)
            else:
                session[place] = (offset, most)
        if fetch.layout < 0:
            sized.append((fetch, _response_size(fetch, _held(fetch, session, partitions, most_bytes))))
            continue
        right = _comes_out(fetch, session, partitions, most_bytes)
        if any(fetch.delivered.values()) or not right:
            checked[fetch.client].append(right)
        for place, got in fetch.delivered.items():
            if got and not fetch.whole and place in session:
                session[place] = session.pop(place)  # what was delivered moves to the end
    shares = {client: float(np.mean(right)) for client, right in checked.items()}
    sized = [(fetch, size) for fetch, size in sized if shares.get(fetch.client, 0.0) >= LEAST_SHARE]
    if sized:
        yield Batch(
            broker=Column.constant(broker, len(sized)),
            user=Column.encode([fetch.client[0] for fetch, _ in sized]),
            client_id=Column.encode([fetch.client[1] for fetch, _ in sized]),
            kind=np.full(len(sized), FETCH, np.uint8),
            time_ms=np.array([fetch.time_ms for fetch, _ in sized]),
            bytes=np.array([size for _, size in sized]),
            connection=np.array([fetch.connection for fetch, _ in sized]),
            detail=np.array([int(shares[fetch.client] * 1e6) for fetch, _ in sized]),
        )


def _fetches(logs: Sequence[DataLog], names: Mapping[str, str]) -> Iterator[_Fetch]:
    """The fetches of the clients that were throttled once: where nobody was, there is nothing to do."""
    who = [([*log.users], [*log.clients], table(log.fetched, Fetched)) for log in logs]
    throttled = {
        (users[row.user], clients[row.client])
        for users, clients, rows in who
        for row in map(Fetched._make, rows[rows[:, 6] < 0].tolist())  # by their layout
    }
    for log, (users, clients, rows) in zip(logs, who, strict=True):
        if not throttled:
            return
        topics = [names.get(topic, topic) for topic in log.topics]
        parts = table(log.parts, Part)
        ends = np.cumsum(rows[:, 7] + rows[:, 8])
        for row, end in zip(map(Fetched._make, rows.tolist()), ends.tolist(), strict=True):
            client = users[row.user], clients[row.client]
            if client not in throttled:
                continue
            given, asked = end - row.delivered, end - row.delivered - row.asked
            yield _Fetch(
                row.read_us,
                row.time_ms,
                row.connection,
                client,
                bool(row.whole),
                row.layout,
                [((topics[topic], index), *rest) for topic, index, *rest in parts[asked:given].tolist()],
                {(topics[topic], index): size for topic, index, size, _ in parts[given:end].tolist()},
            )


def _partitions(logs: Sequence[DataLog], names: Mapping[str, str]) -> dict[Place, _Partition]:
    """The partitions of which batches are known."""
    pieces: dict[Place, list[Int64s]] = defaultdict(list)
    for log in logs:
        topics = [names.get(topic, topic) for topic in log.topics]
        rows = table(log.appended, Appended)
        order = np.lexsort((rows[:, 2], rows[:, 1]))
        for piece in np.split(rows[order], np.flatnonzero(np.diff(rows[order, 1:3], axis=0).any(axis=1)) + 1):
            if len(piece):
                pieces[topics[piece[0, 1]], int(piece[0, 2])].append(piece)
    return {place: _Partition(np.concatenate(batches)) for place, batches in pieces.items()}


def _held(
    fetch: _Fetch, session: Mapping[Place, _Asked], partitions: Mapping[Place, _Partition], left: int
) -> dict[Place, int]:
    """The bytes of each partition in a response that holds so many at most."""
    held: dict[Place, int] = {}
    seen = False
    for place, (offset, most) in session.items():
        there = partitions.get(place, _UNKNOWN).there(offset, fetch.read_us)
        held[place] = there.gives(min(most, left), is_first=not seen)
        seen |= held[place] > 0
        left = max(left - held[place], 0)
    return held


def _comes_out(
    fetch: _Fetch, session: Mapping[Place, _Asked], partitions: Mapping[Place, _Partition], left: int
) -> bool:
    """Whether a delivered fetch held what was there, or less where one of its partitions shows that it was cut."""
    less = cut = seen = False
    for place, (offset, most) in session.items():
        got, partition = fetch.delivered.get(place, 0), partitions.get(place, _UNKNOWN)
        early, late = (
            partition.there(offset, fetch.read_us + slack).gives(min(most, left), is_first=not seen)
            for slack in (-SLACK_US, SLACK_US)
        )
        if got > late:
            return False
        less |= got < early
        cut |= partition.is_cut(offset, got)
        seen |= got > 0
        left = max(left - got, 0)
    return cut or not less


def _response_size(fetch: _Fetch, held: Mapping[Place, int]) -> int:
    """The bytes of the response to a throttled fetch with so many bytes of each partition."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, _), size in held.items():
        if size or fetch.whole:  # in a session only what has data is answered
            topics.setdefault(topic, []).append({"recordsSizeInBytes": size, "abortedTransactions": None})
    responses = [{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()]
    return fetch_response_size(~fetch.layout, {"responses": responses})
