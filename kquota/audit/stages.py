"""The stages of an audit, whatever runs them: splits → packed blobs by bucket → findings.

An engine (`kquota.audit.local`, `kquota.audit.spark`) gives each map task some of the splits. It brings the blobs of
one bucket together in the order of their times, and gives them to one reduce task. It hands all outputs to `result`.
Where the sizes of fetches matter (`sizes_fetches`), it gives the blobs of the buckets behind the others to
`rebuild_blobs` between map and reduce. The blobs that come of it go to the reduce tasks with the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import chain
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow as pa

from kquota.audit.batch import Reject, Tally
from kquota.audit.bounds import Window
from kquota.audit.demand import DemandCollector
from kquota.audit.findings import ordered
from kquota.audit.held_back import settled
from kquota.audit.judge import judge
from kquota.audit.pack import Packer
from kquota.audit.portable import decode, encode
from kquota.audit.predicted import Predictions
from kquota.audit.prediction import Recorder
from kquota.audit.rebuilt import Rebuilder, first_us
from kquota.audit.replay import Replay
from kquota.audit.result import AuditResult, DataQuality
from kquota.audit.samples import Samples
from kquota.audit.segment import CounterRef, Segment
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import Piece, Split, hidden, origins, read
from kquota.audit.sources.connections import ConnectionLog, judge_connections, limits_ips
from kquota.audit.sources.data_log import DataLog
from kquota.audit.sources.lost import Lost
from kquota.audit.sources.mutations import TopicLog, batches
from kquota.audit.sources.requests import REQUESTS, check
from kquota.audit.timeline import CounterName, Timeline, Timelines, in_step
from kquota.core.findings.answers import AnswersOf, add_up
from kquota.core.findings.demand import Measured
from kquota.core.findings.verdicts import Governed, Governing, Verdict, gather, verdicts
from kquota.core.quotas.quota import QuotaKey
from kquota.core.resolve.resolver import Resolver
from kquota.errors import InputError

_FIRST_MS = -(1 << 63)
"""The time of what is to come before all segments."""

ROWS_PER_BUCKET = 4_000_000
"""A bucket for so many rows: tasks of a size that balances."""


class Account(NamedTuple):
    """What was read, some of what could not be, and what each source shows (`Tally.noted`)."""

    quality: DataQuality
    rejects: list[Reject]
    noted: dict[str, set[str]]


class Topics(NamedTuple):
    """What one log shows of topics, and its place in the order of the export."""

    ordinal: tuple[int, int]
    log: TopicLog


class Sizes(NamedTuple):
    """The sizes of throttled fetches, packed as the fetches are."""

    segment: Segment


class Sampled(NamedTuple):
    """The samples of one split."""

    samples: list[Samples]


Parcel = Segment | Topics | ConnectionLog | Sampled | Sizes | Account
"""What the data of a blob for the reduce side hold."""


class Blob(NamedTuple):
    """What goes from the map side to the reduce side."""

    bucket: int
    start_ms: int
    """The time of its first event, or _FIRST_MS; blobs of a bucket go to the reduce task in this order."""
    data: bytes
    """A `Parcel`, by `portable.encode`; of the stage between, what a log shows of the data."""


def deal(splits: Sequence[Split], most: int) -> list[list[tuple[int, Split]]]:
    """The splits, numbered in the order of the export, dealt to at most that many tasks."""
    count = max(1, min(most, len(splits)))
    tasks: list[list[tuple[int, Split]]] = [[] for _ in range(count)]
    for number, split in enumerate(splits):
        tasks[number % count].append((number, split))
    return tasks


def bucket_count(splits: Sequence[Split], cores: int, rows_per_bucket: int = ROWS_PER_BUCKET) -> int:
    """How many buckets an audit of these splits needs on that many cores."""
    return max(2 * cores, -(-sum(split.rows for split in splits) // rows_per_bucket))


def pack_splits(splits: Iterable[tuple[int, Split]], packers: Packers) -> Iterator[Blob]:
    """The map side: reads the splits of one task."""
    tally, settings = Tally(), packers.settings
    reading = replace(settings.read, addresses=limits_ips(settings.variants), data=sizes_fetches(settings))
    events = (
        ((number, part), batch) for number, split in splits for part, batch in enumerate(read(split, reading, tally))
    )
    return pack_events(events, tally, packers)


def pack_events(events: Iterable[tuple[tuple[int, int], Piece]], tally: Tally, packers: Packers) -> Iterator[Blob]:
    """The map side of events that have been read: (ordinal, batch) pairs; `tally` is complete when they end."""
    begun = packers.begin()
    yield from pack_pieces(events, begun, packers.buckets)
    account = (DataQuality.of(tally, begun[0].ungoverned), tally.rejects)
    sketched = {} if tally.requests is None else {REQUESTS: tally.requests.sketch()}
    yield from account_blobs(*account, tally.noted | sketched)


def pack_pieces(
    events: Iterable[tuple[tuple[int, int], Piece]], packers: Sequence[Packer], buckets: int
) -> Iterator[Blob]:
    """The same by given packers, one for each variant, and without the account of what was read."""
    sampled: dict[int, list[Samples]] = {}
    number = None
    for ordinal, batch in events:
        if ordinal[0] != number:
            yield from _sampled_blobs(sampled)
            sampled, number = {}, ordinal[0]
        if isinstance(batch, Samples):
            sampled.setdefault(crc32(batch.series.broker.encode()) % buckets, []).append(batch)
            continue
        if isinstance(batch, TopicLog):
            yield Blob(crc32(batch.broker.encode()) % buckets, _FIRST_MS, encode(Topics(ordinal, batch)))
            continue
        if isinstance(batch, ConnectionLog):
            yield Blob(crc32(batch.broker.encode()) % buckets, _FIRST_MS, encode(batch))
            continue
        if isinstance(batch, DataLog):
            yield from _data_blobs(batch, buckets)
            continue
        for packer in packers:
            for bucket, segment in packer.pack(batch, ordinal):
                yield Blob(bucket, segment.base_ms, encode(segment))
    yield from _sampled_blobs(sampled)


def account_blobs(quality: DataQuality, rejects: Sequence[Reject], noted: Mapping[str, set[str]]) -> Iterator[Blob]:
    """What was read, as blobs."""
    yield Blob(0, _FIRST_MS, encode(Account(quality, list(rejects), dict(noted))))


def segment_of(blob: Any) -> Segment | None:
    """The segment in the data of a blob; None where it holds something else."""
    parcel = decode(blob)
    return parcel if isinstance(parcel, Segment) else None


def is_needed(blob: bytes, settings: AuditSettings) -> bool:
    """Whether an audit with these settings would have read what the blob holds; blobs of segments always are.

    For who reads before all quotas are known, and so reads connections in any case.
    """
    return limits_ips(settings.variants) or not isinstance(decode(blob), ConnectionLog)


def moved(blob: bytes, ordinal: tuple[int, int]) -> bytes:
    """The data of a blob whose usage has another place in the order of the export."""
    parcel = decode(blob)
    if isinstance(parcel, Segment):
        return encode(replace(parcel, ordinal=ordinal))
    return encode(parcel._replace(ordinal=ordinal)) if isinstance(parcel, Topics) else blob


def sizes_fetches(settings: AuditSettings) -> bool:
    """Whether the sizes of fetches matter: whether any consumer ever has a quota on bytes."""
    key = QuotaKey.CONSUMER_BYTE_RATE
    return any(Resolver.of(quotas, key).values for history in settings.variants for quotas in history.snapshots)


def _data_blobs(log: DataLog, buckets: int) -> Iterator[Blob]:
    """What a log shows of the data, for the task of its broker; what concerns all brokers' data for all the tasks.

    Those tasks have buckets of their own, behind the others: from `buckets` to before `2 * buckets`.
    """
    if log.rows:
        start_us = first_us(log)
        data = encode((start_us, log))
        yield Blob(buckets + crc32(log.broker.encode()) % buckets, start_us // 1000, data)
    if shared := log.shared:
        data = encode((None, shared))
        for bucket in range(buckets, 2 * buckets):
            yield Blob(bucket, _FIRST_MS, data)


def rebuild_blobs(blobs: Iterable[Any], settings: AuditSettings, buckets: int) -> Iterator[Blob]:
    """The stage between: from the data of some brokers, in the order of its times, the sizes of throttled fetches.

    They are packed as their fetches were, and so go to the tasks where these are.
    """
    shared: list[DataLog] = []
    brokers: dict[str, Rebuilder] = {}
    for blob in blobs:
        start_us, log = decode(blob)
        if start_us is None:
            shared.append(log)
            continue
        if log.broker not in brokers:
            brokers[log.broker] = Rebuilder(log.broker, shared)
        brokers[log.broker].add(log, start_us)
    for number, (_, rebuilder) in enumerate(sorted(brokers.items())):
        for batch in rebuilder.finish():
            for variant, quotas in enumerate(settings.variants):
                packer = Packer(quotas, buckets, variant, False, settings.kept)
                for bucket, segment in packer.pack(batch, (number, 0)):
                    yield Blob(bucket, _FIRST_MS, encode(Sizes(segment)))


KEPT_CLIENTS = 1_000_000
"""Packers that have met more are not kept for another task: their tables would grow with every one."""


class Packers:
    """The packers of one process, one for each variant of the quotas.

    An engine makes this value for each process and hands it to the process's tasks, one after the other. The packers
    are made for the first task, and know for the next ones whom they met. A copy for another process has no packers.
    """

    def __init__(self, settings: AuditSettings, buckets: int) -> None:
        self.settings = settings
        self.buckets = buckets
        self._packers: list[Packer] = []

    def __reduce__(self) -> tuple[type[Packers], tuple[AuditSettings, int]]:
        return Packers, (self.settings, self.buckets)

    def begin(self) -> list[Packer]:
        """The packers for another task, which introduce everybody anew: an engine may run a task anywhere and twice."""
        if not self._packers or any(packer.known > KEPT_CLIENTS for packer in self._packers):
            settings = self.settings
            self._packers = [
                Packer(quotas, self.buckets, variant, settings.per_client, settings.kept)
                for variant, quotas in enumerate(settings.variants)
            ]
        for packer in self._packers:
            packer.begin()
        return self._packers


def _sampled_blobs(sampled: Mapping[int, list[Samples]]) -> Iterator[Blob]:
    """The samples of one split, by bucket."""
    for bucket, samples in sampled.items():
        yield Blob(bucket, _FIRST_MS, encode(Sampled(samples)))


@dataclass(frozen=True)
class Found:
    """What a reduce task finds of some counters: tables and governing for each of the settings' variants."""

    tables: Sequence[pa.Table]
    governing: Sequence[Governing]
    predictions: Sequence[Predictions] = ()
    timelines: dict[CounterName, Timeline] = field(default_factory=dict)
    measured: dict[CounterRef, Measured] = field(default_factory=dict)


Output = Account | Found
"""What a reduce task gives."""


def packed_outputs(blobs: Iterable[Any], settings: AuditSettings) -> Iterator[bytes]:
    """The outputs of `replay_blobs` for another process, which gives `unpacked` outputs to `result`."""
    return map(encode, replay_blobs(blobs, settings))


def unpacked(outputs: Iterable[Any]) -> Iterator[Output]:
    """The outputs that another process packed, each when it is its turn."""
    return map(decode, outputs)


def replay_blobs(blobs: Iterable[Any], settings: AuditSettings) -> Iterator[Output]:
    """The reduce side: the data of the blobs of one bucket, in the order of their times."""
    watched = Timelines() if settings.timelines else None
    demand = None if settings.question is None else DemandCollector(settings, settings.question)
    recorder = Recorder() if settings.predicts and demand is None else None
    replayed = Replay(settings, [each for each in (watched, demand) if each is not None], recorder)
    samples: list[Samples] = []
    topics: list[Topics] = []
    connections: list[ConnectionLog] = []
    parcels: Iterator[Parcel] = map(decode, blobs)
    first: list[Segment] = []
    for parcel in parcels:
        match parcel:
            case Segment():
                first.append(parcel)
                break
            case Sizes(segment):
                replayed.know(segment)
            case Topics():
                topics.append(parcel)
            case ConnectionLog():
                connections.append(parcel)
            case Sampled(some):
                samples += some
            case Account():
                yield parcel
    charged: list[Segment] = []
    if topics:
        charged, tally = _charged(topics, settings)
        yield Account(DataQuality.of(tally, 0), [], {})
    # What comes before all segments has come.
    segments: Iterator[Any] = chain(first, parcels)
    for segment in merge(charged, segments, key=lambda segment: segment.base_ms):
        replayed.add(segment)
    if samples:
        governing: list[dict[tuple[str, str], Governed]] = [{} for _ in settings.variants]
        judged, ungoverned = judge(samples, settings, governing)
        yield Found(judged, governing)
        yield Account(DataQuality(ungoverned=ungoverned), [], {})
    tables = replayed.finish()
    predictions = [Predictions() for _ in settings.variants]
    if recorder is not None:
        predictions = recorder.finish(replayed.refs, replayed.judged, settings)
    yield Found(
        tables,
        replayed.governing,
        predictions,
        {}
        if watched is None
        else watched.worst(replayed.refs, _throttled_still(tables[0], predictions[0]), settings.timelines),
        {}
        if demand is None
        else {ref: told for counter, told in demand.finish() if (ref := replayed.refs[counter]) is not None},
    )
    if connections:
        window = Window.of(settings.windows, settings.generation)
        opened = [judge_connections(connections, quotas, window) for quotas in settings.variants]
        yield Found([table for table, _ in opened], [governing for _, governing in opened])


def _throttled_still(findings: pa.Table, predictions: Predictions) -> pa.Table:
    """The findings without those that the replay throttles and the prediction does not."""
    names = zip(*(findings.column(name).to_pylist() for name in ("broker", "key", "sensor")), strict=True)
    throttled = (None, Verdict.THROTTLED.value)
    return findings.filter(pa.array([predictions.verdict((*name,)) in throttled for name in names], pa.bool_()))


def _charged(topics: Sequence[Topics], settings: AuditSettings) -> tuple[list[Segment], Tally]:
    """What controllers charged for topics, from all that their logs tell of them, in the order of the times."""
    logs: dict[str, list[TopicLog]] = {}
    for _, log in sorted(topics, key=lambda each: each.ordinal):
        logs.setdefault(log.broker, []).append(log)
    tally = Tally()
    segments = []
    for variant, quotas in enumerate(settings.variants):
        packer = Packer(quotas, 1, variant, settings.per_client, settings.kept)
        for _, mine in sorted(logs.items()):
            for part, batch in enumerate(batches(mine, settings.read.num_partitions)):
                tally.saw(batch.time_ms, 0)  # a topic is no request of its own
                segments += [segment for _, segment in packer.pack(batch, (0, part))]
    return sorted(segments, key=lambda segment: segment.base_ms), tally


def result(outputs: Iterable[Output], settings: AuditSettings, what: str, engine: str) -> AuditResult:
    """Puts the outputs of all reduce tasks together; errors call the input `what`.

    Raises InputError when there was nothing to audit: not one record, or not one that can be read.
    """
    quality = DataQuality()
    answers: list[AnswersOf] = []
    rejects: list[Reject] = []
    measured: dict[CounterRef, Measured] = {}
    tables: list[list[pa.Table]] = [[] for _ in settings.variants]
    timelines: dict[CounterName, Timeline] = {}
    governing: list[list[Governing]] = [[] for _ in settings.variants]
    noted: dict[str, set[str]] = {}
    sketches: list[set[str]] = []
    predictions = [Predictions() for _ in settings.variants]
    for output in outputs:
        if isinstance(output, Account):
            # Answers are many where each client's requests are counted: they are added up once, at the end.
            answers.append(output.quality.answers)
            quality += replace(output.quality, answers={})
            rejects += output.rejects
            sketches.append(output.noted.pop(REQUESTS, set()))
            for dialect, shown in output.noted.items():
                noted.setdefault(dialect, set()).update(shown)
            continue
        for variant, (table, part) in enumerate(zip(output.tables, output.governing, strict=True)):
            tables[variant].append(table)
            governing[variant].append(part)
        for mine, found_there in zip(predictions, output.predictions, strict=bool(output.predictions)):
            mine.update(found_there)
        timelines |= output.timelines
        measured |= output.measured
    quality = replace(quality, answers=add_up(answers))
    # A log of exempt requests is usage, too: nobody is charged for it.
    if quality.events == quality.exempt == 0 and not any(map(len, tables[0])):
        if quality.rejected:
            first = min(rejects, key=lambda reject: (reject.source, len(reject.place), reject.place))
            raise InputError(
                f"{what}: none of {quality.rejected} records can be read; the first: {first.reason}",
                hint="expected Kafka's request log, a usage table, or samples; see --source",
            )
        raise InputError(f"{what}: no usage events or samples in it")
    rejects.sort(key=lambda reject: (reject.source, len(reject.place), reject.place))
    findings, *before = (ordered(mine) for mine in tables)
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
    quotas, *quotas_before = (
        verdicts(history, gather(parts), reasons) for history, parts in zip(settings.variants, governing, strict=True)
    )
    found = AuditResult(
        findings,
        quality,
        tuple(rejects),
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
        return found if found.before is None or not lost else replace(found, before=lost.doubted(found.before))
    return settled(found, settings, handlers=handlers, lost=lost)
