"""What throttled fetches would have held, from the data that producers appended to the same partitions.

A broker throttles a fetch after it has read the data: it charges the response, takes the charge back, and sends and
logs an empty one. Which bytes it had read follows from the log: the partitions of the fetch in their order, the
offset in each, and the batches that were there at that moment (`ReplicaManager.readFromLog`, `LogSegment.read`):

* A fetch session (KIP-227) keeps its partitions in an order of its own; delivered partitions move to its end.
* A partition gives what it has, up to its own most bytes and to what is left of the whole response, cut anywhere. Its
  first batch comes whole where it is the first data of the response; else, if it does not fit, the partition gives
  nothing.
* Three limits hold for a response: the fetch's own most bytes, the broker's most bytes, and ten seconds' worth of the
  quota (2.5 and later). Which quota was in force then, the log does not say: what the responses were cut at shows it.
* Consumers see what all followers have copied, and consumers of committed records see nothing behind an open
  transaction. A transaction's end is a batch of its own, of MARKER_BYTES.

All of this is tried on the fetches that were delivered, whose sizes are known. Only where it comes out there to the
byte are the sizes of throttled ones taken from it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from kquota.audit.batch import Batch, Column, Int64s
from kquota.audit.sources.data_log import NO_TRANSACTION, UNKNOWN_OFFSET, DataLog
from kquota.audit.sources.sizes import FETCH_PARTS, compact_size, varint_size
from kquota.core.enforcement.kind import FETCH

MARKER_BYTES: Final = 78
"""A batch with the end of a transaction: its header, and one control record."""
FETCH_MAX_BYTES: Final = 55 << 20
"""The broker's `fetch.max.bytes`, Kafka's default."""
SLACK_US: Final = 10_000
"""How far the times of a log may be off: what was appended so much sooner or later may be in a response or not."""
COARSE_US: Final = 1_000
"""A log with whole milliseconds may put a batch so much behind the fetch that waited for it."""
LEAST_SHARE: Final = 0.9
"""Of the delivered fetches of a client, and of a partition, so many come out to the byte where sizes are used."""
KEPT_BATCHES: Final = 100_000
"""So many batches of a partition are remembered at least; a response holds fewer, or is full."""
KEPT_SESSIONS: Final = 100_000
"""So many connections and sessions are remembered; a broker has 1,000 sessions by default."""
MOST_LATE: Final = 1_000
"""A batch comes at most so many others too late: brokers work on few requests at the same moment."""
SETTLE_ROWS: Final = 500_000
"""So many rows wait before those that can be looked at are."""

_NEVER: Final = 1 << 62
_APPENDED, _COPIED, _ENDED, _FETCHED = range(4)


class _Partition:
    """The batches of a partition as far as they are known, in the order of their offsets.

    A batch without a known offset has that of the one before it, as a place among the others.
    """

    __slots__ = ("bases", "known", "open", "replicas", "stable", "starts", "topic", "visible")

    def __init__(self, topic: int) -> None:
        self.topic = topic
        self.bases: list[int] = []
        self.known: list[bool] = []
        self.starts: list[int] = [0]
        """Where each batch begins, in bytes, and the end of the last one."""
        self.visible: list[int] = []
        """Since when consumers can read each batch, in µs; never earlier than the one before."""
        self.stable: list[int] = []
        """Since when those can that read what is committed."""
        self.replicas: dict[int, int] = {}
        self.open: dict[int, int] = {}
        """Open transactions, and how many batches were before each."""

    def append(self, base: int, size: int, time_us: int, transaction: int) -> None:
        """Adds a batch."""
        bases = self.bases
        place = len(bases)
        if base == UNKNOWN_OFFSET:
            base, known = bases[-1] if bases else UNKNOWN_OFFSET, False
        else:
            known = True
            # Requests that are worked on at the same moment: the lines' times may be in another order than the offsets.
            while place and bases[place - 1] > base:
                place -= 1
                if len(bases) - place > MOST_LATE:
                    # Offsets that begin anew: those of another topic with this name, or after a truncation.
                    self._forget(len(bases))
                    place = 0
            if place and bases[place - 1] == base and self._is_known(base):
                return  # sent twice by an idempotent producer, and kept once
        if place == len(bases):
            self.starts.append(self.starts[-1] + size)
        else:
            self.starts[place + 1 :] = [start + size for start in self.starts[place:]]
            self.open = {each: count + (count >= place) for each, count in self.open.items()}
        bases.insert(place, base)
        self.known.insert(place, known)
        if transaction != NO_TRANSACTION:
            self.open.setdefault(transaction, place)
        for times in (self.visible, self.stable):
            times.insert(place, _NEVER)
        self.advance(time_us, place)
        if len(bases) > 2 * KEPT_BATCHES:
            self._forget(KEPT_BATCHES)

    def advance(self, time_us: int, place: int | None = None) -> None:
        """Sets since when batches can be read, after what changed at that time."""
        count = len(self.bases)
        copied = bisect_left(self.bases, min(self.replicas.values())) if self.replicas else count
        for times, end in (
            (self.visible, copied),
            (self.stable, min([copied, *self.open.values()])),
        ):
            first = bisect_left(times, _NEVER) if place is None else place
            latest = max(time_us, times[first - 1] if first else 0)
            for at in range(first, end):
                times[at] = latest if times[at] == _NEVER else max(times[at], latest)

    def _is_known(self, base: int) -> bool:
        return self.known[bisect_left(self.bases, base)]

    def _forget(self, count: int) -> None:
        """Drops the oldest batches."""
        for rows in (self.bases, self.known, self.starts, self.visible, self.stable):
            del rows[:count]
        self.open = {each: max(before - count, 0) for each, before in self.open.items()}

    def find(self, offset: int, hint: int | None) -> int | None:
        """The number of the batch that is read first from that offset; None where it cannot be known.

        `hint` is how far a consumer has come, in bytes: it decides where offsets are missing.
        """
        bases = self.bases
        last = bisect_right(bases, offset) - 1
        if last < 0:
            return None
        first = bisect_left(bases, bases[last])
        if bases[first] == offset:
            return first
        if first < last or not self.known[first]:
            if hint is not None and self.starts[first] <= hint <= self.starts[last + 1]:
                return bisect_right(self.starts, hint) - 1
            return 0 if offset == self.starts[0] == 0 else None
        # It is in the middle of this batch, or behind the last one.
        return first + 1 if last + 1 == len(bases) else first


class _Asked:
    """A partition in a fetch session, or in the last fetch of a connection without one."""

    __slots__ = ("delivered", "most", "offset", "position")

    def __init__(self, offset: int, most: int) -> None:
        self.offset, self.most = offset, most
        self.position: int | None = None
        """Where it was read from, in bytes of the partition."""
        self.delivered = 0
        """How many bytes the answer held."""

    def ask(self, offset: int, most: int) -> None:
        """Takes the next request."""
        self.most = most
        if offset != self.offset:
            if self.position is not None:
                self.position += self.delivered
            self.offset = offset
        self.delivered = 0


_Session = dict[int, _Asked]


class _Checked:
    """How many delivered fetches there were with data, and how many of them came out to the byte."""

    __slots__ = ("exact", "fetches")

    def __init__(self) -> None:
        self.fetches = self.exact = 0

    @property
    def share(self) -> float:
        """0 where there were none."""
        return self.exact / self.fetches if self.fetches else 0.0


class _Request(NamedTuple):
    """One fetch."""

    read_us: int
    time_ms: int
    coarse: int
    connection: int
    client: int
    session: int
    epoch: int
    opened: int
    committed: int
    most: int
    layout: int
    asked: Sequence[tuple[int, int, int]]
    forgotten: Sequence[int]
    delivered: Sequence[tuple[int, int]]


class _Names(dict[str, int]):
    """Numbers for names."""

    def __missing__(self, name: str) -> int:
        self[name] = len(self)
        return self[name]


@dataclass
class _Found:
    """Sizes of throttled fetches, as columns."""

    time_ms: array[int] = field(default_factory=lambda: array("q"))
    client: array[int] = field(default_factory=lambda: array("q"))
    connection: array[int] = field(default_factory=lambda: array("q"))
    size: array[int] = field(default_factory=lambda: array("q"))
    group: array[int] = field(default_factory=lambda: array("q"))
    """Which partitions it would have held."""


class Rebuilder:
    """Rebuilds the fetches of one broker; `shared` are the parts that all brokers' logs show for all.

    The rules are tried on all fetches of clients that were throttled once. Where nobody was, there is nothing to do.
    """

    def __init__(self, broker: str, shared: Iterable[DataLog]) -> None:
        self.broker = broker
        self._ids: dict[str, list[tuple[int, str]]] = {}
        ended: dict[tuple[str, int], None] = {}
        for log in shared:
            for (name, topic_id), first_us in log.ids.items():
                self._ids.setdefault(name, []).append((first_us, topic_id))
            ended |= dict.fromkeys(log.ended)
        self._throttled = {(user, client) for log in shared for on, user, client in log.throttled if on == broker}
        for name, known in self._ids.items():
            earliest: dict[str, int] = {}
            for first_us, topic_id in sorted(known):
                earliest.setdefault(topic_id, first_us)
            self._ids[name] = [(first_us, topic_id) for topic_id, first_us in earliest.items()]
        self._names = {topic_id: name for name, known in self._ids.items() for _, topic_id in known}
        self._ended = sorted(ended, key=lambda each: each[1])
        self._ended_up_to = 0
        self._topics, self._transactions = _Names(), _Names()
        self._clients: dict[tuple[str, str], int] = {}
        self._places: dict[tuple[int, int], int] = {}
        self._keys: list[str] = []
        """The topics by their numbers."""
        self._partitions: list[_Partition] = []
        self._in_transaction: dict[int, set[int]] = {}
        self._sessions: dict[int, _Session] = {}
        self._connections: dict[int, _Session] = {}
        self._caps: dict[int, int] = {}
        """What the responses of each client were last cut at."""
        self._largest: dict[int, int] = {}
        """The largest response that each client got."""
        self._waiting_for_cap: dict[int, list[_Throttled]] = {}
        """Throttled fetches that would have been larger than any response of their client."""
        self._by_client: dict[int, _Checked] = {}
        self._by_partition: dict[int, _Checked] = {}
        self._found = _Found()
        self._groups: dict[tuple[int, ...], int] = {}
        self._waiting: list[tuple[DataLog, Int64s]] = []

    def add(self, log: DataLog, first_us: int) -> None:
        """Takes the next part of the log, in the order of the parts' first times: `first_us` is its own."""
        if sum(len(events) for _, events in self._waiting) >= SETTLE_ROWS:
            self._run(first_us)
        if self._throttled:
            self._waiting.append((log, _events(log, self._throttled)))

    def finish(self) -> Iterator[Batch]:
        """The throttled fetches whose sizes are known, with these; `detail` is the share that came out, in ppm."""
        self._run(_NEVER)
        for client in [*self._waiting_for_cap]:
            self._settle(client, _NEVER, self._caps.get(client, FETCH_MAX_BYTES))
        shares = {
            number: min(
                (self._by_partition[place].share for place in group if place in self._by_partition), default=1.0
            )
            if all(place in self._by_partition for place in group)
            else 0.0
            for group, number in self._groups.items()
        }
        found = self._found
        clients = np.array(found.client, np.int64)
        of_client = {client: checked.share for client, checked in self._by_client.items()}
        share = np.array(
            [
                min(shares[group], of_client.get(client, 0.0))
                for group, client in zip(found.group, found.client, strict=True)
            ]
        )
        rows = np.flatnonzero(share >= LEAST_SHARE)
        if len(rows) == 0:
            return
        names = list(self._clients)
        yield Batch(
            broker=Column.constant(self.broker, len(rows)),
            user=Column(clients[rows].astype(np.int32), [user for user, _ in names]),
            client_id=Column(clients[rows].astype(np.int32), [client for _, client in names]),
            kind=np.full(len(rows), FETCH, np.uint8),
            time_ms=np.array(found.time_ms, np.int64)[rows],
            bytes=np.array(found.size, np.int64)[rows],
            connection=np.array(found.connection, np.int64)[rows],
            detail=np.floor(share[rows] * 1e6).astype(np.int64),
        )

    def _run(self, before_us: int) -> None:
        """Takes the events before that time, in their order."""
        chosen = []
        rest = []
        for number, (log, events) in enumerate(self._waiting):
            early = events[:, 0] < before_us
            if early.any():
                chosen.append(np.column_stack([events[early], np.full(int(early.sum()), number)]))
            if not early.all():
                rest.append((log, events[~early]))
        if chosen:
            readers = [self._reader(log) for log, _ in self._waiting]
            table = np.concatenate(chosen)
            for time_us, kind, row, number in table[np.lexsort(table.T[[2, 3, 1, 0]])].tolist():
                self._end(time_us)
                readers[number](time_us, kind, row)
        self._waiting = rest
        if before_us == _NEVER:
            self._end(_NEVER)

    def _end(self, time_us: int) -> None:
        """Ends the transactions that were ended up to that time."""
        ended = self._ended
        while self._ended_up_to < len(ended) and ended[self._ended_up_to][1] <= time_us:
            name, ended_us = ended[self._ended_up_to]
            self._ended_up_to += 1
            transaction = self._transactions[name]
            for place in sorted(self._in_transaction.pop(transaction, ())):
                partition = self._partitions[place]
                partition.open.pop(transaction, None)
                partition.append(UNKNOWN_OFFSET, MARKER_BYTES, ended_us, NO_TRANSACTION)
                partition.advance(ended_us)

    def _place(self, topic: str, index: int, time_us: int) -> int:
        """The number of a partition; a topic goes by its id, or by its name where that is not known."""
        known = self._ids.get(topic)
        if topic.startswith("#"):
            topic = topic[1:]
        elif known is not None:
            # Of topics that were made anew under the same name, the last one that had been heard of.
            topic = known[max(bisect_right(known, (time_us, "~")) - 1, 0)][1]
        key = (self._topics[topic], index)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self._partitions)
            self._partitions.append(_Partition(key[0]))
            self._keys += list(self._topics)[len(self._keys) :] if len(self._keys) < len(self._topics) else []
        return place

    def _reader(self, log: DataLog) -> Callable[[int, int, int], None]:
        """A function that takes an event of a log."""
        topics, fetched, parts = list(log.topics), log.fetched, log.parts
        appended, copied = np.column_stack(log.appended).tolist(), np.column_stack(log.copied).tolist()
        requests, rows = np.column_stack(fetched).tolist(), np.column_stack(parts).tolist()
        ends = np.cumsum(fetched.asked + fetched.forgotten + fetched.delivered).tolist()
        transactions = [self._transactions[name] for name in log.transactions]
        users, clients = list(log.users), list(log.clients)

        def take(time_us: int, kind: int, row: int) -> None:
            if kind == _APPENDED:
                begun_us, _, topic, index, size, base, transaction = appended[row]
                place = self._place(topics[topic], index, begun_us)
                if transaction != NO_TRANSACTION:
                    transaction = transactions[transaction]
                    self._in_transaction.setdefault(transaction, set()).add(place)
                self._partitions[place].append(base, size, begun_us, transaction)
            elif kind == _COPIED:
                begun_us, topic, index, replica, offset = copied[row]
                partition = self._partitions[self._place(topics[topic], index, begun_us)]
                partition.replicas[replica] = offset
                partition.advance(begun_us)
            else:
                (read_us, time_ms, coarse, connection, user, client, session, epoch, opened, committed, most, layout,
                 asked, forgotten, delivered) = requests[row]  # fmt: skip
                mine = [
                    (self._place(topics[topic], index, read_us), first, second)
                    for topic, index, first, second in rows[ends[row] - asked - forgotten - delivered : ends[row]]
                ]
                self._fetch(
                    _Request(
                        read_us,
                        time_ms,
                        coarse,
                        connection,
                        self._clients.setdefault((users[user], clients[client]), len(self._clients)),
                        session,
                        epoch,
                        opened,
                        committed,
                        most,
                        layout,
                        mine[:asked],
                        [place for place, _, _ in mine[asked : asked + forgotten]],
                        [(place, size) for place, size, _ in mine[asked + forgotten :]],
                    )
                )

        return take

    def _fetch(self, request: _Request) -> None:
        session = self._session_of(request)
        throttled = request.layout < 0
        if session is not None:
            if throttled:
                self._rebuild(request, session)
            else:
                self._check(request, session)
        if throttled or session is None:
            return
        if request.opened and request.epoch == 0:
            self._keep(self._sessions, request.opened, session)
        for place, size in request.delivered:
            asked = session.get(place)
            if asked is not None:
                asked.delivered = size
                if size and request.epoch > 0:
                    session[place] = session.pop(place)

    def _session_of(self, request: _Request) -> _Session | None:
        """The partitions of a fetch in their order; None where the log does not show how the session began."""
        if request.epoch > 0:
            session = self._sessions.get(request.session)
            if session is None:
                return None
            self._keep(self._sessions, request.session, session)
        else:
            before = self._connections.get(request.connection, {})
            session = {place: before[place] for place, _, _ in request.asked if place in before}
            session = {place: session.get(place) or _Asked(offset, most) for place, offset, most in request.asked}
            self._keep(self._connections, request.connection, session)
        for place, offset, most in request.asked:
            if place in session:
                session[place].ask(offset, most)
            else:
                session[place] = _Asked(offset, most)
        for place in request.forgotten:
            session.pop(place, None)
        return session

    def _keep(self, table: dict[int, _Session], key: int, session: _Session) -> None:
        table.pop(key, None)
        table[key] = session
        if len(table) > KEPT_SESSIONS:
            del table[next(iter(table))]

    def _rebuild(self, request: _Request, session: _Session) -> None:
        """Takes a throttled fetch: adds its size, or keeps it until the client's cap shows."""
        now = request.read_us + (COARSE_US if request.coarse else 0)
        there = []
        for place, asked in session.items():
            found = self._there(place, asked, request.committed, now)
            if found is None:
                return
            if found.bytes > 0 or request.epoch <= 0:
                there.append((place, asked.most, found))
        kept = _Throttled(request, there)
        cap = self._caps.get(request.client)
        held = _held(there, min(request.most, FETCH_MAX_BYTES, cap or FETCH_MAX_BYTES))
        if held is None:
            return
        if cap is not None or sum(held.values()) <= self._largest.get(request.client, 0):
            self._add(kept, held)
        else:
            self._waiting_for_cap.setdefault(request.client, []).append(kept)

    def _settle(self, client: int, most: int, cap: int) -> None:
        """Adds the fetches that wait for the client's cap: those of at most that size, each cut at the cap."""
        waiting = self._waiting_for_cap.pop(client, [])
        rest = []
        for kept in waiting:
            held = _held(kept.there, min(kept.request.most, FETCH_MAX_BYTES, cap))
            if held is None:
                continue
            if sum(held.values()) <= most:
                self._add(kept, held)
            else:
                rest.append(kept)
        if rest:
            self._waiting_for_cap[client] = rest

    def _add(self, kept: _Throttled, held: dict[int, int]) -> None:
        request = kept.request
        if request.epoch > 0:
            held = {place: size for place, size in held.items() if size}
        found = self._found
        found.time_ms.append(request.time_ms)
        found.client.append(request.client)
        found.connection.append(request.connection)
        found.size.append(self._response_size(~request.layout, held))
        group = tuple(sorted(place for place, size in held.items() if size))
        found.group.append(self._groups.setdefault(group, len(self._groups)))

    def _response_size(self, version: int, records: dict[int, int]) -> int:
        """As `sizes.fetch_response_size`, of those partitions with so many bytes of records."""
        parts = FETCH_PARTS[version]
        topics: dict[int, int] = {}
        for place in records:
            topic = self._partitions[place].topic
            topics[topic] = topics.get(topic, 0) + 1
        size = parts.body + sum(records.values()) + len(records) * parts.partition + len(topics) * parts.topic
        if parts.flexible:
            size += varint_size(len(topics) + 1) + sum(varint_size(count + 1) for count in topics.values())
            size += sum(varint_size(each + 1) + 1 for each in records.values())
        if parts.named:
            for topic in topics:
                key = self._keys[topic]
                length = len(self._names.get(key, key).encode(errors="surrogatepass"))
                size += compact_size(length) if parts.flexible else length
        return size

    def _check(self, request: _Request, session: _Session) -> None:
        """Compares what a delivered fetch held with what the rules say, partition by partition."""
        delivered = {place: size for place, size in request.delivered if size}
        total = sum(delivered.values())
        now = request.read_us + (COARSE_US if request.coarse else 0)
        most = min(request.most, FETCH_MAX_BYTES)
        cap = self._caps.get(request.client, most)
        if total > cap and len(delivered) > 1:
            self._caps.pop(request.client, None)  # another quota
            cap = most
        left = min(most, cap)
        good, seen = True, False
        for place, asked in session.items():
            real = delivered.get(place, 0)
            got = self._read(place, asked, request.committed, now, left, first=not seen)
            if got is None and not total:
                # Who is answered with nothing has read all that there is.
                partition = self._partitions[place]
                times = partition.stable if request.committed else partition.visible
                asked.position = partition.starts[bisect_right(times, now)]
            if got or real:
                fits = got == real or self._fits(place, asked, request.committed, now, left, real, first=not seen)
                if (
                    not fits
                    and got is not None
                    and got > real > 0
                    and self._is_cut(place, asked, real)
                    and total < most
                ):
                    # At less than the client asked for: at what its quota allows, as the next ones have to show.
                    self._caps[request.client] = total
                    self._settle(request.client, total, total)
                    if cap == most:
                        return
                checked = self._by_partition.setdefault(place, _Checked())
                checked.fetches += 1
                checked.exact += fits
                good = good and fits
            if real:
                seen = True
                left = max(left - real, 0)
        if total > self._largest.get(request.client, 0):
            self._largest[request.client] = total
            self._settle(request.client, total, most)
        if total or not good:
            checked = self._by_client.setdefault(request.client, _Checked())
            checked.fetches += 1
            checked.exact += good

    def _fits(
        self, place: int, asked: _Asked, committed: int, now_us: int, left: int, real: int, *, first: bool
    ) -> bool:
        """Whether so much was there at some moment within the slack: up to the end of a batch that came meanwhile."""
        early = self._read(place, asked, committed, now_us - SLACK_US, left, first=first)
        late = self._read(place, asked, committed, now_us + SLACK_US, left, first=first)
        if early is None or late is None or not early <= real <= late:
            return False
        starts, end = self._partitions[place].starts, (asked.position or 0) + real
        at = bisect_left(starts, end)
        return real in (early, late) or (at < len(starts) and starts[at] == end)

    def _is_cut(self, place: int, asked: _Asked, size: int) -> bool:
        """Whether so many bytes of a partition end in the middle of a batch that is not the first."""
        starts, begin = self._partitions[place].starts, asked.position or 0
        first, last = bisect_right(starts, begin), bisect_left(starts, begin + size)
        return last > first and (last == len(starts) or starts[last] != begin + size)

    def _read(self, place: int, asked: _Asked, committed: int, now_us: int, left: int, *, first: bool) -> int | None:
        """How much a partition gives; None where nobody can tell."""
        found = self._there(place, asked, committed, now_us)
        return None if found is None else found.gives(min(asked.most, left), first=first)

    def _there(self, place: int, asked: _Asked, committed: int, now_us: int) -> _There | None:
        """What a consumer finds in a partition; None where nobody can tell."""
        partition = self._partitions[place]
        if not partition.bases:
            return _There(0, 0)  # nothing was produced that the log shows; if there was, delivered fetches show that
        times = partition.stable if committed else partition.visible
        end = partition.starts[bisect_right(times, now_us)]
        batch = partition.find(asked.offset, asked.position)
        if batch is None:
            # What comes before is not known; what is known may fill the response all the same.
            return _There(end - partition.starts[0], None) if asked.offset < partition.bases[0] else None
        begin = asked.position = partition.starts[batch]
        return _There(end - begin, partition.starts[batch + 1] - begin if end > begin else 0)


class _There(NamedTuple):
    """What a consumer finds in a partition from its offset on."""

    bytes: int
    one: int | None
    """The first batch; None where what is there is more than that, and begins with batches that the log lacks."""

    def gives(self, most: int, *, first: bool) -> int | None:
        """How much of it goes into a response; None where it cannot be known."""
        if self.one is None:
            return most if self.bytes >= most else None
        if self.bytes <= 0:
            return 0
        if self.one > most:
            return self.one if first else 0
        return min(self.bytes, most)


class _Throttled(NamedTuple):
    """A throttled fetch, and what there was for it: (partition, the most bytes of it, what was found)."""

    request: _Request
    there: list[tuple[int, int, _There]]


def _held(there: Sequence[tuple[int, int, _There]], left: int) -> dict[int, int] | None:
    """The bytes of each partition in a response that holds so many at most; None where nobody can tell."""
    held: dict[int, int] = {}
    seen = False
    for place, most, found in there:
        got = found.gives(min(most, left), first=not seen)
        if got is None:
            return None
        held[place] = got
        seen = seen or got > 0
        left = max(left - got, 0)
    return held


def _events(log: DataLog, clients: Collection[tuple[str, str]] | None = None) -> Int64s:
    """(time in µs, kind, row) of all that a log shows; fetches when all is known that they may hold.

    Those of some (user, client-id) only, where they are given.
    """
    appended, copied, fetched = log.appended, log.copied, log.fetched
    columns = (
        (appended.begun_us, _APPENDED),
        (copied.begun_us, _COPIED),
        (fetched.read_us + SLACK_US, _FETCHED),
    )
    events = np.concatenate(
        [
            np.column_stack([times, np.full(len(times), kind, np.int64), np.arange(len(times), dtype=np.int64)])
            for times, kind in columns
        ]
    )
    if clients is None:
        return events
    users, names = list(log.users), list(log.clients)
    mine = [(users[user], names[name]) in clients for user, name in zip(fetched.user, fetched.client, strict=True)]
    chosen: Int64s = events[np.concatenate([np.ones(len(events) - len(mine), bool), np.array(mine, bool)])]
    return chosen


def first_us(log: DataLog) -> int:
    """The time of the first event of a log; a log without events comes before all others."""
    events = _events(log)
    return int(events[:, 0].min()) if len(events) else -_NEVER
