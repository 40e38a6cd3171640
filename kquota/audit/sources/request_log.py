"""Kafka's own request log as a source: files, rotated and gzip ones, into batches of what each request was charged."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import tzinfo
from functools import partial
from struct import error as StructError
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import numpy as np

from kquota.audit import sources
from kquota.audit.batch import Batch, Column, Tally
from kquota.audit.sources import CONTROLLER, Block, ReadSettings, Split, blocks, broker_of, line_splits
from kquota.audit.sources.connections import OPENING_API, ConnectionLog
from kquota.audit.sources.data_log import DATA_APIS, DataLog
from kquota.audit.sources.event import client_address
from kquota.audit.sources.files import File, UnreadableFile
from kquota.audit.sources.lost import notes
from kquota.audit.sources.mutations import TopicLog
from kquota.audit.sources.names import NOT_EXEMPT, ROW, UNSIZED, WIDTH, Names, row_of
from kquota.audit.sources.request_line import Line, parse
from kquota.core.enforcement.kernel import is_kept
from kquota.core.findings.verdicts import ALWAYS, Need
from kquota.core.quotas.quota import QuotaKey

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
_LOCAL: Final = re.compile(r"(?P<host>.+?):(?P<port>[0-9]+)-")
"""Where a connection ends at the broker."""
_BYTES_PER_LINE = 900


def splits(file: File) -> list[Split]:
    """Pieces of a plain file; a gzip file whole. Raises InputError when it cannot be opened."""
    return line_splits(DIALECT, file, _BYTES_PER_LINE)


def read(split: Split, settings: ReadSettings, tally: Tally) -> Iterator[Batch | TopicLog | ConnectionLog | DataLog]:
    """The charged requests of one split, in the order of the log, and what it shows of topics, connections and data."""
    zone = ZoneInfo(settings.zone)
    broker = broker_of(split, settings)
    connections = ConnectionLog(broker) if settings.addresses else None
    scanner = _scanner(zone, split.rows)
    rows = _Rows(zone, broker, settings, connections, scanner)
    for some in _together(blocks(split, tally), _SCANNED_BYTES if scanner else 0):
        if scanner is None or some[0].size > len(some[0].text):
            for block in some:
                for index, line in enumerate(block.lines):
                    rows.read(line, partial(block.place, index), split.path, tally)
        else:
            rows.scan(some, scanner, split.path, tally)
        if len(rows) >= BATCH_ROWS:
            rows.check(split.path)
            yield from rows.batches(tally)
            rows = _Rows(zone, broker, settings, connections, scanner)
    rows.check(split.path)
    yield from rows.batches(tally)
    if connections:
        yield connections


_SCANNED_BYTES: Final = 4 << 20
_WORTH_IT, _WORTH_COMPILING = 20_000, 400_000
"""Where a process reads fewer lines, loading the compiled scanner takes longer than it saves; or compiling it."""
_read = {"lines": 0}
"""How many lines this process was given to read."""


def _scanner(zone: tzinfo, lines: int) -> Scanner | None:
    """The scanner, where it is worth its time; None without numba, and for a few lines."""
    _read["lines"] += lines
    if _read["lines"] < _WORTH_IT:
        return None
    try:
        from kquota.audit.sources.scanner import Scanner
        from kquota.audit.sources.walk import walk
    except ImportError:
        return None
    return Scanner(zone) if _read["lines"] >= _WORTH_COMPILING or is_kept(walk) else None


def _together(some: Iterable[Block], size: int) -> Iterator[list[Block]]:
    """Blocks one behind the other, of so many bytes at least; each that was cut is alone."""
    held: list[Block] = []
    for block in some:
        cut = block.size > len(block.text)
        if held and (cut or block.offset - held[0].offset >= size):
            yield held
            held = []
        held.append(block)
        if cut:
            yield held
            held = []
    if held:
        yield held


class _Rows:
    """The rows of a batch."""

    def __init__(
        self,
        zone: ZoneInfo,
        broker: str,
        settings: ReadSettings,
        connections: ConnectionLog | None,
        scanner: Scanner | None,
    ) -> None:
        self._zone, self._broker, self._connections, self._settings = zone, broker, connections, settings
        self._names = Names()
        self.rows = bytearray()
        self.data = DataLog(broker) if settings.data else None
        self.topics = TopicLog(broker)
        if scanner is not None:
            scanner.begin(self._names, self.data, firsts=connections is not None)

    def __len__(self) -> int:
        shown = 0 if self.data is None else self.data.rows
        return max(len(self.rows) // ROW.size + len(self.topics.requests), shown)

    def scan(self, some: list[Block], scanner: Scanner, path: str, tally: Tally) -> None:
        """Adds the lines of blocks that are one behind the other."""
        first = some[0]
        text = b"".join(block.text for block in some)
        if not text.endswith(b"\n"):
            text += b"\n"
        buffer = np.frombuffer(text + b"\n" * WIDTH, np.uint8)
        at = number = 0
        while at < len(text):
            found = scanner.read(buffer, at, len(text))
            if found.followers:
                tally.spare("follower_fetch", found.followers, found.followers_ns, whole=True)
            if self._connections is not None:
                for connection, time_ms, opens in found.firsts:
                    ip = client_address(connection)
                    self._connections.add(ip, connection, time_ms, opens=opens)
            whole, self.rows = self.rows, bytearray()
            owners: list[int] = []
            for line, begin in found.odd:
                place = partial(first.place_of, number + line, begin)
                self.read(text[begin : text.index(b"\n", begin) + 1][: sources.MAX_LINE_BYTES], place, path, tally)
                owners += [line] * (len(self.rows) // ROW.size - len(owners))
            others = np.frombuffer(bytes(self.rows), np.int64).reshape(-1, ROW.size // 8)
            order = np.argsort(np.concatenate([found.lines, np.array(owners, np.int64)]), kind="stable")
            self.rows = whole
            self.rows += np.concatenate([found.rows, others])[order].tobytes()
            at, number = found.stop, number + found.count

    def read(self, line: bytes, place: Callable[[], str], path: str, tally: Tally) -> None:
        """Adds what a line shows; one that is no request is tallied."""
        if line.isspace():
            return
        try:
            parsed = parse(line.decode(), self._broker, self._zone)
            event = parsed.event
            if event.controller is not None:
                self.topics.add(event.controller.fields, event.controller.begun_ms, event.user, event.client_id)
            if self._connections is not None:
                self._connections.add(event.ip, event.connection, event.time_ms, opens=event.api == OPENING_API)
            self._see(parsed)
            reason = event.exemption
            if reason is None:
                self.rows += row_of(event, self._names)
            else:
                tally.spare(reason, 1, event.request_ns, whole=True)
        except ValueError as error:  # UnicodeDecodeError is one
            reason = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
            text = line.decode(errors="replace").rstrip("\r\n")
            tally.reject(path, place(), reason, text)
            if lost := set(notes(text)):
                tally.note(DIALECT, *lost)

    def _see(self, line: Line) -> None:
        """Adds what a line shows of the data; nothing of one that is damaged."""
        fields, event = line.fields, line.event
        if self.data is None or fields is None or fields["isForwarded"] or event.api.upper() not in DATA_APIS:
            return
        who = (event.user, event.client_id, self._names.connections[event.connection], event.time_ms)
        with suppress(KeyError, TypeError, AttributeError, ValueError, StructError):
            self.data.add(fields, line.moment, who)

    def check(self, path: str) -> None:
        """Raises UnreadableFile where one listener has several addresses: a quota holds for each broker by itself."""
        if self._settings.broker is not None:
            return
        hosts: dict[str, set[str]] = {}
        for connection in self._names.connections:
            local = _LOCAL.match(connection)
            if local is not None and not local["host"].startswith(("127.", "::1", "0:0:0:0:0:0:0:1", "/")):
                hosts.setdefault(local["port"], set()).add(local["host"])
        for port, found in hosts.items():
            if len(found) > 1:
                some = ", ".join(sorted(found)[:3])
                raise UnreadableFile(
                    f"{path}: lines of several brokers: port {port} is that of {some}",
                    hint="give each broker a file in a folder of its own, or --broker NAME where it is one broker",
                )

    def batches(self, tally: Tally) -> Iterator[Batch | TopicLog | DataLog]:
        """What was added."""
        if self.rows:
            yield self._batch(tally)
        if self.topics:
            yield self.topics
        if self.data:
            yield self.data

    def _batch(self, tally: Tally) -> Batch:
        table = np.frombuffer(self.rows, np.int64).reshape(-1, ROW.size // 8)
        time_ms, kind, user, client, size, request_ns, throttle_ms, connection, position, exempt_ns = (
            np.ascontiguousarray(table.T)
        )
        exempt_ns = exempt_ns[exempt_ns != NOT_EXEMPT]
        if len(exempt_ns):
            tally.spare("acks_0", len(exempt_ns), int(exempt_ns.sum()), whole=False)
        return Batch(
            broker=Column.constant(self._broker, len(table)),
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
