"""The two halves of an audit, whatever runs them: splits → parcels by bucket → findings.

An engine (`local.py`, `spark.py`) says who runs `charged` for which splits, and who runs `found`
for the parcels of which bucket. Between them parcels are values, or bytes by `portable.encode`. What was found is put
together in `kquota/audit/evidence/whole.py`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, NamedTuple

from kquota.audit.batch import Batch, Tally
from kquota.audit.evidence.bounds import Window
from kquota.audit.evidence.connections import judge_connections
from kquota.audit.evidence.judge import judge
from kquota.audit.evidence.prediction import predictions
from kquota.audit.evidence.prediction_store import Predictions
from kquota.audit.evidence.whole import Found, Output, throttled_still
from kquota.audit.ledger.charge import Charger
from kquota.audit.ledger.demand import measured
from kquota.audit.ledger.fetch_sizes import sizes_of
from kquota.audit.ledger.replay import Replay
from kquota.audit.ledger.rows import Ledger, fingerprint
from kquota.audit.ledger.timeline import worst
from kquota.audit.settings import AuditSettings, Together
from kquota.audit.sources import Piece, Split, read, request_log
from kquota.audit.sources.data_log import ConnectionLog, DataLog
from kquota.audit.sources.mutations import TopicLog, batches
from kquota.audit.sources.requests import REQUESTS
from kquota.audit.sources.samples import Samples
from kquota.core.findings.verdicts import Governed

ROWS_PER_BUCKET: Final = 1_000_000
"""A bucket for so many rows: the counters of one bucket at a time are in the memory of a process."""
ROWS_AT_ONCE: Final = 1_000_000
"""So many charged rows become one ledger for each bucket."""


class Placed(NamedTuple):
    """What one log shows of topics, or of the data, and its place in the order of the export."""

    ordinal: tuple[int, int]
    log: TopicLog | DataLog


Parcel = Ledger | Placed | ConnectionLog | Samples | Tally
"""What goes from the first half to the second."""


def deal(splits: Sequence[Split], most: int) -> list[list[tuple[int, Split]]]:
    """The splits, numbered in the order of the export, dealt to at most that many tasks: neighbours to one."""
    count = max(1, min(most, len(splits)))
    numbered = list(enumerate(splits))
    edges = [len(splits) * task // count for task in range(count + 1)]
    return [numbered[begin:end] for begin, end in pairwise(edges)]


def bucket_count(splits: Sequence[Split], cores: int) -> int:
    """How many buckets an audit of these splits needs on that many cores."""
    return max(2 * cores, -(-sum(split.rows for split in splits) // ROWS_PER_BUCKET))


def rebuilding(splits: Sequence[Split], settings: AuditSettings) -> AuditSettings:
    """The settings; where the sizes of throttled fetches are rebuilt, all counters of a broker are kept together."""
    logs = any(split.dialect == request_log.DIALECT for split in splits)
    return replace(settings, together=Together.BROKER) if logs and settings.sizes_fetches else settings


def charged(splits: Iterable[tuple[int, Split]], charger: Charger, buckets: int) -> Iterator[tuple[int, Parcel]]:
    """The first half: (bucket, parcel) of the splits of one task, numbered in the order of the export."""
    tally, settings = Tally(), charger.settings
    reading = replace(settings.read, addresses=settings.limits_ips, data=settings.sizes_fetches)
    pieces = (
        ((number, part), piece) for number, split in splits for part, piece in enumerate(read(split, reading, tally))
    )
    yield from charged_pieces(pieces, tally, charger, buckets)


def charged_pieces(
    pieces: Iterable[tuple[tuple[int, int], Piece]], tally: Tally, charger: Charger, buckets: int
) -> Iterator[tuple[int, Parcel]]:
    """The same of (ordinal, piece) that have been read; `tally` is complete when they end."""
    ungoverned = charger.ungoverned
    first = last = (0, 0)
    for ordinal, piece in pieces:
        if not isinstance(piece, Batch):
            yield from placed(piece, ordinal, buckets)
            continue
        # Between the rows of one ledger there are none of another.
        if charger.rows and (ordinal[0] > last[0] + 1 or charger.rows >= ROWS_AT_ONCE):
            yield from _parted(charger, first, buckets)
        first, last = (first if charger.rows else ordinal), ordinal
        charger.charge(piece)
    yield from _parted(charger, first, buckets)
    if tally.requests is not None:
        tally.note(REQUESTS, *tally.requests.sketch())
        tally.requests = None
    tally.ungoverned = charger.ungoverned - ungoverned
    yield 0, tally


def _parted(charger: Charger, ordinal: tuple[int, int], buckets: int) -> Iterator[tuple[int, Parcel]]:
    for ledger in charger.take(ordinal):
        yield from ledger.parted(buckets)


def placed(
    piece: Samples | TopicLog | ConnectionLog | DataLog, ordinal: tuple[int, int], buckets: int
) -> Iterator[tuple[int, Parcel]]:
    """(bucket, parcel) of a piece that is not charged yet: it waits for the rest of its broker."""
    broker = piece.series.broker if isinstance(piece, Samples) else piece.broker
    parcel = Placed(ordinal, piece) if isinstance(piece, TopicLog | DataLog) else piece
    home = fingerprint(broker) % buckets
    yield home, parcel
    if isinstance(piece, DataLog) and (shared := piece.shared):
        yield from ((bucket, Placed(ordinal, shared)) for bucket in range(buckets) if bucket != home)


def found(parcels: Iterable[Parcel], settings: AuditSettings) -> Iterator[Output]:
    """The second half: what the parcels of one bucket show."""
    ledgers: list[Ledger] = []
    samples: list[Samples] = []
    connections: list[ConnectionLog] = []
    topics: list[tuple[tuple[int, int], TopicLog]] = []
    data: list[DataLog] = []
    for parcel in parcels:
        match parcel:
            case Ledger():
                ledgers.append(parcel)
            case Samples():
                samples.append(parcel)
            case ConnectionLog():
                connections.append(parcel)
            case Placed(ordinal, TopicLog() as log):
                topics.append((ordinal, log))
            case Placed(_, DataLog() as log):
                data.append(log)
            case Tally():
                yield parcel
    if topics:
        charger, tally = Charger(settings), Tally()
        logs = [log for _, log in sorted(topics, key=lambda topic: topic[0])]
        for batch in batches(logs, settings.read.num_partitions):
            tally.saw(batch.time_ms, 0)  # a topic is no request of its own
            charger.charge(batch)
        ledgers += charger.take((0, 0))
        yield tally
    if samples:
        governing: list[dict[tuple[str, str], Governed]] = [{} for _ in settings.variants]
        judged, ungoverned = judge(samples, settings, governing)
        yield Found(judged, governing)
        yield Tally(ungoverned=ungoverned)
    replayed = Replay(ledgers, settings, _sizes(data, settings))
    tables = replayed.tables()
    asked, predicted = {}, [Predictions() for _ in settings.variants]
    if settings.question is not None:
        asked = {replayed.refs[number]: demand for number, demand in measured(replayed, settings.question)}
    elif settings.predicts:
        predicted = predictions(replayed)
    timelines = (
        worst(replayed, throttled_still(tables[0], predicted[0]), settings.timelines) if settings.timelines else {}
    )
    yield Found(tables, replayed.governing, predicted, timelines, asked)
    if connections:
        window = Window.of(settings.windows, settings.generation)
        opened = [judge_connections(connections, quotas, window) for quotas in settings.variants]
        yield Found([table for table, _ in opened], [governing for _, governing in opened])


def _sizes(data: Sequence[DataLog], settings: AuditSettings) -> list[Ledger]:
    """The throttled fetches whose sizes follow from the data, charged as the fetches are."""
    brokers = sorted({log.broker for log in data if log.rows})
    if not brokers:
        return []
    charger = Charger(settings)
    for broker in brokers:
        for batch in sizes_of(broker, data):
            charger.charge(batch)
    return list(charger.take((0, 0)))
