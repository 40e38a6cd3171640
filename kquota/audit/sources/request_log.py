"""Kafka's own request log as a source: files, rotated and gzip ones, into batches of what each request was charged."""

from __future__ import annotations

import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import numpy as np

from kquota.audit import sources
from kquota.audit.batch import OTHER_LIBRARY, Batch, Column, Int64s, Tally
from kquota.audit.sources import CONTROLLER, PADDING, Block, ReadSettings, Split, blocks, broker_of, line_splits
from kquota.audit.sources.data_log import DATA_APIS, OPENING_API, ConnectionLog, DataLog
from kquota.audit.sources.envelope import COMPLETED, START, TOO_LONG, OtherZone, Pieces, message_in, parted
from kquota.audit.sources.event import client_address
from kquota.audit.sources.files import File
from kquota.audit.sources.lost import ANY, Gap, gap, notes
from kquota.audit.sources.moments import STAMP, LogZone, last_moment
from kquota.audit.sources.mutations import TopicLog
from kquota.audit.sources.names import NOT_EXEMPT, ROW, UNSIZED, Names, identity_of, row_of
from kquota.audit.sources.origins import (
    Connection,
    Origins,
    check,
    difference,
    headed,
    is_anywhere,
    origin_of,
    several,
    user_of,
)
from kquota.audit.sources.request_line import Line, parse
from kquota.audit.sources.requests import COLUMNS, ENOUGH, FEW, Requests, identity, in_turns, missing_alone
from kquota.core.enforcement.kernel import is_kept, is_worth
from kquota.core.enforcement.kind import REQUEST
from kquota.core.findings.verdicts import ALWAYS, Need
from kquota.core.quotas.quota import QuotaKey
from kquota.core.tabular import grouped

if TYPE_CHECKING:
    from kquota.audit.sources.scanner import Scanner

DIALECT = "request-log"
SIGHT: Final = {
    **dict.fromkeys(QuotaKey, ALWAYS),
    QuotaKey.CONTROLLER_MUTATION_RATE: Need(
        ((CONTROLLER, "there is no JSON log of a controller, which alone charges it"),)
    ),
}
"""What can be judged from it; of the connections of an ip only a lower bound, which each of its counters says."""
BATCH_ROWS = 200_000
_BYTES_PER_LINE = 900


def splits(file: File) -> list[Split]:
    """Pieces of a plain file; a gzip file whole. Raises InputError when it cannot be opened."""
    return line_splits(DIALECT, file, _BYTES_PER_LINE)


def read(split: Split, settings: ReadSettings, tally: Tally) -> Iterator[Batch | TopicLog | ConnectionLog | DataLog]:
    """The charged requests of one split, in the order of the log, and what it shows of topics, connections and data."""
    broker = broker_of(split, settings)
    connections = ConnectionLog(broker) if settings.addresses else None
    tally.requests = tally.requests or Requests()
    tally.requests.brokers[split.path] = broker
    zone, pieces = tally.requests.reading(split.path, settings.zone)
    scanner = _scanner(zone, split.rows)
    rows = _Rows(zone, broker, settings, connections, scanner, tally, pieces)
    for block in blocks(split, tally, _SCANNED_BYTES if scanner else None):
        if scanner is None or block.size > len(block.padded) - len(PADDING):
            for index, line in enumerate(block.lines):
                rows.read(line, partial(block.place, index), split.path)
        else:
            rows.scan(block, scanner, split.path)
        if len(rows) >= BATCH_ROWS:
            rows.check(split)
            yield from rows.batches()
            rows = _Rows(zone, broker, settings, connections, scanner, tally, pieces)
    for text in pieces.left():
        rows.reject(text, "the end of the line is missing", "end", split.path)
    rows.check(split)
    yield from rows.batches()
    if connections:
        yield connections


_END: Final = re.compile(r'principal\\*"*:.*listener|softwareVersion|kafka\.request\.logger\)', re.DOTALL)
"""What the end of a request has."""
_TORN: Final = re.compile("truncated|malformed|a request that is cut|field|several requests")
"""Why a line cannot be read that has the beginning of a request and the end of one, but not all between."""
_PACKED: Final = re.compile(rb"[\x01-\x08\x0e-\x1a\x1c-\x1f]")
"""What packed data has, and text has not."""
_HEADING: Final = 200
"""How long the lines are that may be headings: longer ones are pieces of others."""
_LOOKED_AT: Final = 32
"""How many of some thousand lines that are scanned are asked where they are from; and how many connections."""
_SCANNED_BYTES: Final = 2 << 20
_PLAIN_S, _COMPILING_S = 30e-6, 3.0
"""How long a line takes without the scanner, and how long compiling the scanner takes."""
_read = {"lines": 0}
"""How many lines this process was given to read."""


def _scanner(zone: tzinfo, lines: int) -> Scanner | None:
    """The scanner, where it is worth its time; None without numba, and for a few lines."""
    _read["lines"] += lines
    try:
        if not is_worth(_read["lines"] * _PLAIN_S, _COMPILING_S, _is_compiled):
            return None
        from kquota.audit.sources.scanner import Scanner
    except ImportError:
        return None
    return Scanner(zone)


def _is_compiled() -> bool:
    from kquota.audit.sources.walk import walk

    return is_kept(walk)


def _unwrapped(block: Block, zone: LogZone) -> tuple[bytes, list[bytes]]:
    """The text of a block with a collector's messages in place of its objects, and the lines as they are.

    Without such objects there are no lines; nor where a time may be of another zone, which the lines before it decide.
    """
    if not block.padded.startswith(b"{"):
        return block.padded, []
    lines = [line + b"\n" for line in block.text.removesuffix(b"\n").split(b"\n")]
    before = zone.before
    try:
        messages = [message_in(line, zone) if len(line) < sources.MAX_LINE_BYTES else None for line in lines]
    except OtherZone:
        zone.before = before
        return block.padded, []
    plain = [line if text is None else text.encode() + b"\n" for line, text in zip(lines, messages, strict=True)]
    return b"".join(plain) + PADDING, lines


class _Rows:
    """The rows of a batch."""

    def __init__(
        self,
        zone: LogZone,
        broker: str,
        settings: ReadSettings,
        connections: ConnectionLog | None,
        scanner: Scanner | None,
        tally: Tally,
        pieces: Pieces,
    ) -> None:
        self._zone, self._broker, self._connections, self._settings = zone, broker, connections, settings
        self._names, self._tally, self._pieces = Names(), tally, pieces
        self.rows = bytearray()
        self._origins = Origins(broker)
        self._last: Line | None = None
        """The request whose members the next lines may have."""
        self._numbers: list[Any] = [np.zeros((0, COLUMNS), np.int64)]
        self._halves = 0
        """How many more ends of requests than beginnings could not be read."""
        self._repeated = tally.repeated
        self.data = DataLog(broker) if settings.data else None
        self.topics = TopicLog(broker)
        if scanner is not None:
            scanner.begin(self._names, self.data, tally.requests, settings.counts, firsts=connections is not None)

    def __len__(self) -> int:
        shown = 0 if self.data is None else self.data.rows
        return max(len(self.rows) // ROW.size + len(self.topics.requests), shown)

    def scan(self, block: Block, scanner: Scanner, path: str) -> None:
        """Adds the lines of a block."""
        text, wrapped = _unwrapped(block, self._zone)
        apart = LogZone.no_cache(self._zone.key)  # a line that is looked at again must not count as the line before
        stop = len(text) - len(PADDING)
        stop += text[stop - 1] != ord("\n")
        buffer = np.frombuffer(text, np.uint8)
        at = number = 0
        while at < stop:
            usual = scanner.read(buffer, at, stop, path)
            self._tally.repeated += usual.repeated
            self._tally.outside += usual.outside
            self._numbers.append(usual.numbers)
            if usual.followers:
                self._tally.spare("follower_fetch", usual.followers, usual.followers_ns, whole=True)
            if self._connections is not None:
                for connection, time_ms, opens in usual.firsts:
                    self._connections.add(client_address(connection), connection, time_ms, opens=opens)
            whole, self.rows = self.rows, bytearray()
            owners: list[int] = []
            headings, heads = [0], [self._pieces.heading]
            for line, begin in usual.odd:
                data = wrapped[number + line] if wrapped else text[begin : text.index(b"\n", begin) + 1]
                at_byte = begin if block.whole else sum(map(len, wrapped[: number + line])) or begin
                place = partial(block.place_of, number + line, at_byte)
                self.read(data[: sources.MAX_LINE_BYTES], place, path)
                owners += [line] * (len(self.rows) // ROW.size - len(owners))
                if self._pieces.heading is not heads[-1]:
                    headings, heads = [*headings, line], [*heads, self._pieces.heading]
            few = np.flatnonzero(np.isin(usual.rows[:, 7], np.unique(usual.rows[:, 7])[:_LOOKED_AT]))
            few = np.sort(np.random.default_rng(0).permutation(few)[:_LOOKED_AT])  # brokers may take turns
            for line, begin in zip(usual.lines[few].tolist(), usual.begins[few].tolist(), strict=True):
                data = wrapped[number + line] if wrapped else text[begin : text.index(b"\n", begin)]
                before, start, rest = data.decode().partition(START)
                heading = heads[bisect(headings, line) - 1]
                if heading or not start or origin_of(before, rest[rest.rindex("}") + 1 :]):
                    parsed = parse(data.decode(), apart)
                    if signs := {**parsed.origin, **heading}:
                        self._sign(signs, parsed)
            rows = np.concatenate([usual.rows, self._table()])
            if owners:  # in the order of the log
                rows = rows[np.argsort(np.concatenate([usual.lines, np.array(owners, np.int64)]), kind="stable")]
            self.rows = whole
            self.rows += rows.tobytes()
            at, number = usual.stop, number + usual.count

    def read(self, line: bytes, place: Callable[[], str], path: str) -> None:
        """Adds what a line shows; one that is no request is tallied."""
        if line.isspace():
            return
        try:
            text = self._pieces.whole(line.decode())
        except UnicodeDecodeError:
            if _PACKED.search(line):  # by `cat` of a log with its packed rotations, which may hold any requests
                self._tally.note(DIALECT, *ANY)
            self.reject(line.decode(errors="replace"), "not UTF-8 text", place(), path)
            return
        if text is not None:
            parts = parted(text)
            for part in parts:
                try:
                    self._take(parse(part, self._zone), path)
                except ValueError as error:
                    self.reject(part, str(error), place(), path)
            if len(parts) > 1 and len(line) >= sources.MAX_LINE_BYTES:
                self._tally.reject(path, place(), TOO_LONG, "")
                self._tally.note(DIALECT, *ANY)

    def _take(self, parsed: Line, path: str) -> None:
        """Adds a request. Raises ValueError for a number that is out of range, or a text that is no name."""
        event = parsed.event
        if not self._settings.counts(event.time_ms):
            self._tally.outside += 1
            return
        key, row = identity_of(event, self._names), row_of(event, self._names)
        if not self._tally.requests.news(np.array([key], np.uint64), path)[0]:
            self._tally.repeated += 1
            return
        if event.controller is not None:
            self.topics.add(event.controller.fields, event.controller.begun_ms, event.user, event.client_id)
        if self._connections is not None:
            self._connections.add(event.ip, event.connection, event.time_ms, opens=event.api == OPENING_API)
        self._see(parsed)
        self._last = parsed
        reason = event.exemption
        if reason is None:
            self.rows += row
        else:
            self._tally.spare(reason, 1, event.request_ns, whole=True)
        if signs := {**parsed.origin, **self._pieces.heading}:
            self._sign(signs, parsed)
        own = reason == "follower_fetch" or (event.api == "produce" and event.position & 3 == OTHER_LIBRARY)
        connection = self._names.connections[event.connection]
        self._numbers.append([(connection, event.number, own, event.request_ns, event.time_ms)])

    def _sign(self, signs: Mapping[str, str], line: Line) -> None:
        """Adds the signs of where a line is from."""
        self._origins.add(signs, line.event, line.fields or {}, self._names.connections[line.event.connection])

    def reject(self, text: str, reason: str, place: str, path: str) -> None:
        """Tallies a line that is no request, and notes which request it may have been."""
        is_torn = _TORN.match(reason) and _END.search(text)  # of two requests, and others may have been between them
        with suppress(ValueError):
            time = last_moment(text, text.find(COMPLETED), self._zone)
            if time is not None and not is_torn and not self._settings.counts(time[0]):
                self._tally.outside += 1
                return
        self._tally.reject(path, place, reason, text.rstrip("\r\n"))
        if lost := set(notes(text)):
            self._tally.note(DIALECT, *lost)
            self._halves -= 1
            if is_torn:
                self._tally.note(DIALECT, *ANY)
        elif _END.search(text):
            self._halves += place not in ("line 1", "byte 0")  # where a log begins, no request of it is lost
        elif len(text) <= _HEADING and STAMP.search(text) is None:  # a line with a time is of another logger
            self._pieces.heading, behind = headed(self._pieces.heading, text)
            if behind is None:
                self._last = None
            elif self._last is not None:
                self._sign(behind, self._last)

    def _see(self, line: Line) -> None:
        """Adds what a line shows of the data; nothing of one that is damaged."""
        fields, event = line.fields, line.event
        if fields is None or fields["isForwarded"] or event.api.upper() not in DATA_APIS:
            return
        if event.api.upper() == "METADATA":
            with suppress(KeyError, TypeError):
                self._tally.requests.cluster_sizes.add(len(fields["response"]["brokers"]))
        if self.data is None:
            return
        who = (event.user, event.client_id, self._names.connections[event.connection], event.time_ms)
        with suppress(KeyError, TypeError, AttributeError, ValueError, OverflowError):
            self.data.add(fields, line.moment, who)

    def check(self, split: Split) -> None:
        """Notes what requests show together.

        Raises InputError where several brokers wrote the lines: a quota holds for each broker by itself. So it does
        where the same requests are there with two times.
        """
        numbers = np.concatenate(self._numbers)
        connection, number, request_ns = numbers[:, (0, 1, 3)].T.astype(np.uint64)
        named = identity(crc32(self._broker.encode()), connection, number)
        _, owners, counts = np.unique(named, return_inverse=True, return_counts=True)
        self._tally.requests.check_times(identity(named, request_ns)[counts[owners] < FEW], split.path)
        if shown := {*self._tally.requests.shown(numbers, split.path)}:  # a file that is no log notes nothing
            self._tally.note(DIALECT, *shown)
        # Of requests of one number and one time nobody knows whether they are one.
        is_alike = self._tally.repeated > self._repeated and counts.max(initial=0) >= ENOUGH
        if is_alike or self._halves > 0:
            self._tally.note(DIALECT, *ANY)
        is_alone = self._tally.requests.cluster_sizes == {1} and not any(isinstance(note, Gap) for note in shown)
        connected = [*self._connected(split.path)]
        if is_alone:
            clients_of = grouped((one for one, _ in connected), lambda one: one.client[:-1])
            known = {
                crc32(f"{who}".encode()): sorted({one.number for one in peers}) for who, peers in clients_of.items()
            }
            sequences = [*missing_alone(numbers[:, 0], numbers[:, 1], known)]
            self._tally.note(DIALECT, *gap(self._broker, len(numbers), sequences))
        clients: dict[tuple[str, str, str, int], set[int]] = defaultdict(set)
        for connection, log in connected:
            self._origins.connected(connection, f"log {log + 1} in {split.path}" if log else split.path)
            if connection.client[-1] != REQUEST and is_anywhere(connection.name):
                clients[connection.client].add(connection.number)
        shared = in_turns(numbers[:, 0], numbers[:, 1], (sorted(peers) for peers in clients.values() if len(peers) > 1))
        why = "connections of one client share its numbers of requests" if shared else None
        noted = set(self._origins.notes())
        if self._settings.broker is not None:  # somebody says that it is one broker
            self._tally.several_brokers = why or difference(split.path, noted)
            return
        if why is not None:
            raise several(split.path, why)
        check(split.path, noted)
        self._tally.note(DIALECT, *noted)

    def _connected(self, path: str) -> Iterator[tuple[Connection, int]]:
        """The connections of charged requests in each of the logs that are in one file."""
        if not self.rows:
            return
        table, names = self._table(), {number: text for text, number in self._names.connections.items()}
        logs = self._tally.requests.logs_in(path, table[:, 0])
        owners = table[:, 7] + logs
        order = np.lexsort((table[:, 0], owners))
        starts = np.flatnonzero(np.diff(owners[order], prepend=~owners[order[:1]]))
        ends = np.append(starts[1:], len(table)) - 1
        kinds = np.minimum.reduceat(table[order, 1] % UNSIZED, starts)
        firsts, lasts_ms = table[order[starts]].T[[7, 2, 3, 0]], table[order[ends], 0]
        lists = [column.tolist() for column in (*firsts, lasts_ms, kinds, ends - starts, logs[order[starts]])]
        for number, user, client, first_ms, last_ms, kind, again, log in zip(*lists, strict=True):
            name = names[number]
            who = (user_of(self._names.users.names[user], name), self._names.clients.names[client])
            yield Connection(name, number, (*who, client_address(name), kind), first_ms, last_ms, again), log

    def _table(self) -> Int64s:
        """The rows as a table."""
        return np.frombuffer(bytes(self.rows), np.int64).reshape(-1, ROW.size // 8)

    def batches(self) -> Iterator[Batch | TopicLog | DataLog]:
        """What was added."""
        if self.rows:
            yield self._batch()
        if self.topics:
            yield self.topics
        if self.data:
            yield self.data

    def _batch(self) -> Batch:
        time_ms, kind, user, client, size, request_ns, throttle_ms, connection, position, exempt_ns = (
            np.ascontiguousarray(self._table().T)
        )
        exempt_ns = exempt_ns[exempt_ns != NOT_EXEMPT]
        if len(exempt_ns):
            self._tally.spare("acks_0", len(exempt_ns), int(exempt_ns.sum()), whole=False)
        return Batch(
            broker=Column.constant(self._broker, len(time_ms)),
            user=Column(user.astype(np.int32), self._names.users.names),
            client_id=Column(client.astype(np.int32), self._names.clients.names),
            kind=(kind % UNSIZED).astype(np.uint8),
            time_ms=time_ms,
            bytes=size,
            request_ns=request_ns,
            request_complete=False,
            bytes_complete=kind < UNSIZED,
            throttle_ms=throttle_ms,
            connection=connection,
            detail=position,
        )
