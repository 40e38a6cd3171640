"""The two halves of an audit, whatever runs them: splits → parcels by bucket → findings.

An engine (`local.py`, `spark.py`) says who runs `charged` for which splits, and who runs `found`
for the parcels of which bucket. Between them parcels are values, or bytes by `portable.encode`. `result` takes all
outputs.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, NamedTuple

import pyarrow as pa

from kquota.audit.batch import Batch, Tally
from kquota.audit.evidence.bounds import Window
from kquota.audit.evidence.connections import judge_connections
from kquota.audit.evidence.judge import judge
from kquota.audit.evidence.prediction import predictions
from kquota.audit.evidence.prediction_store import Predictions
from kquota.audit.evidence.verdict import settled
from kquota.audit.findings import SCHEMA, ordered
from kquota.audit.ledger.charge import Charger
from kquota.audit.ledger.demand import measured
from kquota.audit.ledger.fetch_sizes import sizes_of
from kquota.audit.ledger.replay import Replay
from kquota.audit.ledger.rows import CounterRef, Ledger, fingerprint
from kquota.audit.ledger.timeline import Timeline, in_step, worst
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings, Together
from kquota.audit.sources import Piece, Split, hidden, origins, read, request_log
from kquota.audit.sources.connections import ConnectionLog, limits_ips
from kquota.audit.sources.data_log import DataLog
from kquota.audit.sources.envelope import NOT_A_LINE
from kquota.audit.sources.lost import Lost
from kquota.audit.sources.mutations import TopicLog, batches
from kquota.audit.sources.requests import REQUESTS, check
from kquota.audit.sources.samples import Samples
from kquota.core.findings.demand import Measured
from kquota.core.findings.prediction import CounterName
from kquota.core.findings.verdicts import Governed, Governing, Verdict, gather, verdicts
from kquota.core.quotas.quota import QuotaKey
from kquota.core.resolve.resolver import Resolver
from kquota.errors import InputError

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
    return replace(settings, together=Together.BROKER) if logs and sizes_fetches(settings) else settings


def sizes_fetches(settings: AuditSettings) -> bool:
    """Whether the sizes of fetches matter: whether any consumer ever has a quota on bytes."""
    key = QuotaKey.CONSUMER_BYTE_RATE
    return any(Resolver.of(quotas, key).values for history in settings.variants for quotas in history.snapshots)


def charged(splits: Iterable[tuple[int, Split]], charger: Charger, buckets: int) -> Iterator[tuple[int, Parcel]]:
    """The first half: (bucket, parcel) of the splits of one task, numbered in the order of the export."""
    tally, settings = Tally(), charger.settings
    reading = replace(settings.read, addresses=limits_ips(settings.variants), data=sizes_fetches(settings))
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


@dataclass(frozen=True)
class Found:
    """What a reduce task finds of some counters: tables and governing for each of the settings' variants."""

    tables: Sequence[pa.Table]
    governing: Sequence[Governing]
    predictions: Sequence[Predictions] = ()
    timelines: dict[CounterName, Timeline] = field(default_factory=dict)
    measured: dict[CounterRef, Measured] = field(default_factory=dict)


Output = Tally | Found
"""What a reduce task gives."""


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
        for batch in batches_of(topics, settings):
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
    if settings.question is not None:
        asked = {replayed.refs[number]: each for number, each in measured(replayed, settings.question)}
        predicted = [Predictions() for _ in settings.variants]
    else:
        asked, predicted = (
            {},
            predictions(replayed) if settings.predicts else [Predictions() for _ in settings.variants],
        )
    timelines = (
        worst(replayed, _throttled_still(tables[0], predicted[0]), settings.timelines) if settings.timelines else {}
    )
    yield Found(tables, replayed.governing, predicted, timelines, asked)
    if connections:
        window = Window.of(settings.windows, settings.generation)
        opened = [judge_connections(connections, quotas, window) for quotas in settings.variants]
        yield Found([table for table, _ in opened], [governing for _, governing in opened])


def batches_of(topics: Sequence[tuple[tuple[int, int], TopicLog]], settings: AuditSettings) -> Iterator[Batch]:
    """What controllers charged for topics, from all that their logs hold of them."""
    logs: dict[str, list[TopicLog]] = {}
    for _, log in sorted(topics, key=lambda each: each[0]):
        logs.setdefault(log.broker, []).append(log)
    for _, mine in sorted(logs.items()):
        yield from batches(mine, settings.read.num_partitions)


def _sizes(data: Sequence[DataLog], settings: AuditSettings) -> list[Ledger]:
    """The throttled fetches whose sizes follow from the data, charged as the fetches are."""
    charger = Charger(settings)
    for broker in sorted({log.broker for log in data if log.rows}):
        for batch in sizes_of(broker, data):
            charger.charge(batch)
    return list(charger.take((0, 0)))


def _throttled_still(findings: pa.Table, predictions: Predictions) -> pa.Table:
    """The findings without those that the replay throttles and the prediction does not."""
    names = zip(*(findings.column(name).to_pylist() for name in ("broker", "key", "sensor")), strict=True)
    throttled = (None, Verdict.THROTTLED.value)
    return findings.filter(pa.array([predictions.verdict((*name,)) in throttled for name in names], pa.bool_()))


def result(outputs: Iterable[Output], settings: AuditSettings, what: str, engine: str) -> AuditResult:
    """Puts the outputs of all reduce tasks together; errors call the input `what`.

    Raises InputError when there was nothing to audit: not one record, or not one that can be read.
    """
    tallies: list[Tally] = []
    measured: dict[CounterRef, Measured] = {}
    tables: list[list[pa.Table]] = [[] for _ in settings.variants]
    timelines: dict[CounterName, Timeline] = {}
    governing: list[list[Governing]] = [[] for _ in settings.variants]
    predictions = [Predictions() for _ in settings.variants]
    for output in outputs:
        if isinstance(output, Tally):
            tallies.append(output)
            continue
        for variant, (table, part) in enumerate(zip(output.tables, output.governing, strict=True)):
            tables[variant].append(table)
            governing[variant].append(part)
        for mine, found_there in zip(predictions, output.predictions, strict=bool(output.predictions)):
            mine.update(found_there)
        timelines |= output.timelines
        measured |= output.measured
    sketches = [each.noted.pop(REQUESTS, set()) for each in tallies]
    quality = Tally.total(tallies)
    quality.rejects.sort(key=lambda reject: (reject.source, len(reject.place), reject.place))
    noted = quality.noted
    # A log of exempt requests is usage, too: nobody is charged for it.
    if quality.events == quality.exempt == 0 and not any(map(len, tables[0])):
        if quality.rejected:
            first = next((reject for reject in quality.rejects if reject.reason != NOT_A_LINE), quality.rejects[0])
            raise InputError(
                f"{what}: none of {quality.rejected} records can be read; the first: {first.reason}",
                hint="expected Kafka's request log, a usage table, or samples; see --source",
            )
        raise InputError(f"{what}: no usage events or samples in it")
    findings, *before = (pa.concat_tables([SCHEMA.empty_table(), *mine]) for mine in tables)
    if timelines:
        assert quality.first_ms is not None
        assert quality.last_ms is not None
        judged = _throttled_still(findings, predictions[0])
        timelines = in_step(timelines, judged, settings.timelines, quality.first_ms, quality.last_ms)
    check(sketches)
    origins.check(what, (note for shown in noted.values() for note in shown))
    reasons = hidden(noted)
    # Usage tables may lack the thread time of a request; logs have the handlers' time of each.
    handlers = "request-log" in noted and noted.keys().isdisjoint(("usage", "usage-topic"))
    first_ms, last_ms = quality.first_ms, quality.last_ms
    quotas, *quotas_before = (
        verdicts(
            history if first_ms is None or last_ms is None else history.within(first_ms, last_ms),
            gather(parts),
            reasons,
        )
        for history, parts in zip(settings.variants, governing, strict=True)
    )
    found = AuditResult(
        findings,
        quality,
        before[0] if before else None,
        engine,
        timelines,
        measured,
        quotas,
        quotas_before[0] if quotas_before else (),
        predictions[0],
        predictions[1] if len(predictions) > 1 else {},
    )
    lost = Lost(noted)
    if settings.question is not None:
        # What is held back is a part of the measure.
        doubted = found.before if found.before is None or not lost else lost.doubted(found.before)
        return replace(found, findings=ordered([findings]), before=None if doubted is None else ordered([doubted]))
    return settled(found, settings, handlers=handlers, lost=lost)
