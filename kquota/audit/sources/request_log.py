"""Kafka's own request log as a source: files, rotated and gzip ones, into batches of what each request was charged."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from kquota.audit.batch import API_KINDS, MUTATION, OTHER, Batch, Column, Tally
from kquota.audit.sources import ReadSettings, Split, broker_of, line_splits, lines
from kquota.audit.sources.mutations import UNKNOWN, Charge, TopicBook
from kquota.audit.sources.request_line import UsageEvent, parse_line

DIALECT = "request-log"
BATCH_ROWS = 200_000
_BYTES_PER_LINE = 900


def splits(file: Path) -> list[Split]:
    """Pieces of a plain file; a gzip file whole. Raises InputError when it cannot be opened."""
    return line_splits(DIALECT, file, _BYTES_PER_LINE)


def read(split: Split, settings: ReadSettings, tally: Tally) -> Iterator[Batch]:
    """The charged requests of one split, in the order of the log."""
    zone = ZoneInfo(settings.zone)
    broker = broker_of(split, settings)
    rows = 0
    groups: dict[tuple[bool, bool], list[UsageEvent]] = {}
    topics = TopicBook(settings.num_partitions)
    mutations: list[Mutation] = []
    for place, raw in lines(split):
        try:
            event = parse_line(raw.decode(), broker, zone)
            charges = () if event.controller is None else topics.read(event.controller.fields)
        except ValueError as error:  # UnicodeDecodeError is one
            reason = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
            tally.reject(split.path, place, reason, raw.decode(errors="replace").rstrip("\r\n"))
            continue
        if event.controller is not None:
            mutations += [Mutation(event.controller.begun_ms, event, charge) for charge in charges]
        if event.exempt:
            tally.exempt += 1
        else:
            # A batch knows its sizes, and what brokers answered, or it does not: rows of old logs may differ in that.
            groups.setdefault((event.sized, event.throttle_ms is not None), []).append(event)
            rows += 1
        if rows + len(mutations) >= BATCH_ROWS:
            yield from _batches(groups, mutations, broker)
            groups, mutations, rows = {}, [], 0
    yield from _batches(groups, mutations, broker)


class Mutation(NamedTuple):
    """A charge of the mutation quota."""

    time_ms: float
    event: UsageEvent
    charge: Charge


def _batches(
    groups: dict[tuple[bool, bool], list[UsageEvent]], mutations: list[Mutation], broker: str
) -> Iterator[Batch]:
    for (sized, answered), events in groups.items():
        yield _batch(events, broker, sized, answered)
    # A request that is accepted is answered, and logged, later than one that is rejected. The order is that of charges.
    mutations.sort(key=lambda mutation: mutation.time_ms)
    for known in (True, False):
        some = [mutation for mutation in mutations if (mutation.charge.partitions != UNKNOWN) is known]
        if some:
            yield _mutations(some, broker, complete=known)


def _mutations(mutations: list[Mutation], broker: str, *, complete: bool) -> Batch:
    rows = len(mutations)
    charges = [mutation.charge for mutation in mutations]
    return Batch(
        broker=Column.constant(broker, rows),
        user=Column.encode([mutation.event.user for mutation in mutations]),
        client_id=Column.encode([mutation.event.client_id for mutation in mutations]),
        kind=np.full(rows, MUTATION, np.uint8),
        time_ms=np.array([math.floor(mutation.time_ms) for mutation in mutations], np.int64),
        bytes=np.array([max(charge.partitions, 0) for charge in charges], np.int64),
        bytes_complete=complete,
        throttle_ms=np.array([charge.throttle_ms for charge in charges], np.int64),
        detail=np.array([not charge.strict for charge in charges], np.int64),
    )


def _batch(events: list[UsageEvent], broker: str, sized: bool, answered: bool) -> Batch:
    rows = len(events)

    def column(values: Iterator[int | None]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.fromiter(values, np.int64, rows)

    return Batch(
        broker=Column.constant(broker, rows),
        user=Column.encode([event.user for event in events]),
        client_id=Column.encode([event.client_id for event in events]),
        kind=np.fromiter((API_KINDS.get(event.api, OTHER) for event in events), np.uint8, rows),
        time_ms=column(event.time_ms for event in events),
        bytes=column(event.bytes for event in events),
        # acks=0: the broker counts the thread time as exempt, the bytes as any other.
        request_ns=column(0 if event.acks == 0 else event.request_ns for event in events),
        request_complete=False,
        bytes_complete=sized,
        throttle_ms=column(event.throttle_ms for event in events) if answered else None,
        connection=column(_fingerprint(event.connection) for event in events),
        detail=column(event.position for event in events),
        shows_outcome=True,
    )


@lru_cache(maxsize=65536)
def _fingerprint(connection: str) -> int:
    # The retry of a throttled fetch may be in another file, read by another process: the id must be the same there.
    return int.from_bytes(blake2b(connection.encode(), digest_size=8).digest(), "little", signed=True)
