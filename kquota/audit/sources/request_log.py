"""Kafka's own request log as a source: files, rotated and gzip ones, into batches of what each request was charged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from struct import error as StructError
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np

from kquota.audit.batch import API_KINDS, Batch, Column, Tally
from kquota.audit.sources import CONTROLLER, ReadSettings, Split, blocks, broker_of, line_splits
from kquota.audit.sources.connections import OPENING_API, ConnectionLog
from kquota.audit.sources.data_log import DATA_APIS, DataLog
from kquota.audit.sources.event import UsageEvent
from kquota.audit.sources.files import File
from kquota.audit.sources.mutations import TopicLog
from kquota.audit.sources.request_fast import NOT_EXEMPT, ROW, UNSIZED, UNUSUAL, Names, reader
from kquota.audit.sources.request_line import Line, parse
from kquota.core.enforcement.kind import REQUEST
from kquota.core.findings.verdicts import ALWAYS, Need
from kquota.core.quotas.quota import QuotaKey

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
    zone = ZoneInfo(settings.zone)
    broker = broker_of(split, settings)
    connections = ConnectionLog(broker) if settings.addresses else None
    rows = _Rows(zone, broker, settings, connections)
    for block in blocks(split, tally):
        read_usual, read_rows = rows.read_usual, rows.rows
        for index, line in enumerate(block.lines):
            try:
                read_rows += read_usual(line)
                continue
            except UNUSUAL:
                if line.isspace():
                    continue
            try:
                parsed = parse(line.decode(), broker, zone)
                event = parsed.event
                if event.controller is not None:
                    rows.topics.add(event.controller.fields, event.controller.begun_ms, event.user, event.client_id)
                if connections is not None:
                    connections.add(event.ip, event.connection, event.time_ms, opens=event.api == OPENING_API)
                rows.see(parsed)
                reason = event.exemption
                if reason is None:
                    rows.add(event)
                else:
                    tally.spare(reason, 1, event.request_ns, whole=True)
            except ValueError as error:  # UnicodeDecodeError is one
                reason = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
                tally.reject(split.path, block.place(index), reason, line.decode(errors="replace").rstrip("\r\n"))
        if len(rows) >= BATCH_ROWS:
            yield from rows.batches(tally)
            rows = _Rows(zone, broker, settings, connections)
    yield from rows.batches(tally)
    if connections:
        yield connections


class _Rows:
    """The rows of a batch."""

    def __init__(self, zone: ZoneInfo, broker: str, settings: ReadSettings, connections: ConnectionLog | None) -> None:
        self._broker, self._settings = broker, settings
        self._names = Names(connections)
        self.rows = bytearray()
        self.data = DataLog(broker) if settings.data else None
        self.read_usual = reader(zone, self._names, self.data)
        self.topics = TopicLog(broker)

    def __len__(self) -> int:
        shown = 0 if self.data is None else self.data.rows
        return max(len(self.rows) // ROW.size + len(self.topics.requests), shown)

    def see(self, line: Line) -> None:
        """Adds what a line that is not usual shows of the data; nothing of one that is damaged."""
        fields, event = line.fields, line.event
        if self.data is None or fields is None or fields["isForwarded"] or event.api.upper() not in DATA_APIS:
            return
        who = (event.user, event.client_id, self._names.connections[event.connection], event.time_ms)
        with suppress(*UNUSUAL):
            self.data.add(fields, line.moment, who)

    def add(self, event: UsageEvent) -> None:
        """Adds what is not usual. Raises ValueError for a number that is out of range."""
        row = (
            event.time_ms,
            API_KINDS.get(event.api, REQUEST) + (0 if event.sized else UNSIZED),
            self._names.users[f":{event.user}"],
            self._names.clients[event.client_id],
            event.bytes,
            # acks=0: the broker counts the thread time as exempt, the bytes as any other.
            0 if event.acks == 0 else event.request_ns,
            -1 if event.throttle_ms is None else event.throttle_ms,
            self._names.connections[event.connection],
            event.position,
            event.request_ns if event.acks == 0 else NOT_EXEMPT,
        )
        try:
            self.rows += ROW.pack(*row)
        except StructError:
            raise ValueError("a number is out of range") from None

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
