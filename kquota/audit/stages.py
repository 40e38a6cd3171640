"""The stages of an audit, whatever runs them: splits → packed blobs by bucket → findings.

An engine (`kquota.audit.local`, `kquota.audit.spark`) gives each map task some of the splits. It brings the blobs of
one bucket together in the order of their times, and gives them to one reduce task. It hands all outputs to `result`.
Where the sizes of fetches matter (`sizes_fetches`), it gives the blobs of the buckets behind the others to
`rebuild_blobs` between map and reduce. The blobs that come of it go to the reduce tasks with the rest.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
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
from kquota.audit.predicted import Predictions
from kquota.audit.prediction import Recorder
from kquota.audit.rebuilt import Rebuilder, first_us
from kquota.audit.replay import Replay
from kquota.audit.result import AuditResult, DataQuality
from kquota.audit.samples import Samples
from kquota.audit.segment import CounterRef, Segment
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import Piece, Split, hidden, read
from kquota.audit.sources.connections import ConnectionLog, judge_connections, limits_ips
from kquota.audit.sources.data_log import DataLog
from kquota.audit.sources.mutations import TopicLog, batches
from kquota.audit.timeline import CounterName, Timeline, Timelines, in_step
from kquota.core.findings.answers import AnswersOf, add_up
from kquota.core.findings.demand import Measured
from kquota.core.findings.verdicts import Governed, Governing, Verdict, gather, verdicts
from kquota.core.quotas.quota import QuotaKey
from kquota.core.resolve.resolver import Resolver
from kquota.errors import InputError

_MEASURED, _GOVERNING, _NOTED, _PREDICTED = "measured", "governing", "noted", "predicted"
_SEGMENT, _TOPICS, _OTHER, _SIZES = b"s", b"t", b"o", b"z"
"""The first byte of a blob: what follows."""
_FIRST_MS = -(1 << 63)
"""The time of what is to come before all segments."""

ROWS_PER_BUCKET = 4_000_000
"""A bucket for so many rows: tasks of a size that balances."""


class Blob(NamedTuple):
    """What goes from the map side to the reduce side."""

    bucket: int
    start_ms: int
    """The time of its first event, or _FIRST_MS; blobs of a bucket go to the reduce task in this order."""
    data: bytes


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
    yield from account_blobs(*account, tally.noted)


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
            told = pickle.dumps((ordinal, batch), protocol=5)
            yield Blob(crc32(batch.broker.encode()) % buckets, _FIRST_MS, _TOPICS + told)
            continue
        if isinstance(batch, ConnectionLog):
            seen = pickle.dumps(batch, protocol=5)
            yield Blob(crc32(batch.broker.encode()) % buckets, _FIRST_MS, _OTHER + seen)
            continue
        if isinstance(batch, DataLog):
            yield from _data_blobs(batch, buckets)
            continue
        for packer in packers:
            for bucket, segment in packer.pack(batch, ordinal):
                yield Blob(bucket, segment.base_ms, _SEGMENT + segment.dumps())
    yield from _sampled_blobs(sampled)


def account_blobs(quality: DataQuality, rejects: Sequence[Reject], noted: Mapping[str, set[str]]) -> Iterator[Blob]:
    """What was read, as blobs."""
    yield Blob(0, _FIRST_MS, _OTHER + pickle.dumps((quality, list(rejects)), protocol=5))
    yield Blob(0, _FIRST_MS, _OTHER + pickle.dumps((_NOTED, dict(noted)), protocol=5))


def segment_of(blob: Any) -> Segment | None:
    """The segment in the data of a blob; None where it holds something else."""
    return Segment.loads(memoryview(blob)[1:]) if bytes(blob[:1]) == _SEGMENT else None


def is_needed(blob: bytes, settings: AuditSettings) -> bool:
    """Whether an audit with these settings would have read what the blob holds; blobs of segments always are.

    For who reads before all quotas are known, and so reads connections in any case.
    """
    if blob[:1] != _OTHER or limits_ips(settings.variants):
        return True
    return not isinstance(pickle.loads(blob[1:]), ConnectionLog)  # noqa: S301 - written by this audit's own workers


def moved(blob: bytes, ordinal: tuple[int, int]) -> bytes:
    """The data of a blob whose usage has another place in the order of the export."""
    segment = segment_of(blob)
    if segment is not None:
        return _SEGMENT + replace(segment, ordinal=ordinal).dumps()
    if blob[:1] == _TOPICS:
        _, log = pickle.loads(blob[1:])  # noqa: S301 - written by this audit's own workers
        return _TOPICS + pickle.dumps((ordinal, log), protocol=5)
    return blob


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
        data = pickle.dumps((start_us, log), protocol=5)
        yield Blob(buckets + crc32(log.broker.encode()) % buckets, start_us // 1000, data)
    if shared := log.shared:
        data = pickle.dumps((None, shared), protocol=5)
        for bucket in range(buckets, 2 * buckets):
            yield Blob(bucket, _FIRST_MS, data)


def rebuild_blobs(blobs: Iterable[Any], settings: AuditSettings, buckets: int) -> Iterator[Blob]:
    """The stage between: from the data of some brokers, in the order of its times, the sizes of throttled fetches.

    They are packed as their fetches were, and so go to the tasks where these are.
    """
    shared: list[DataLog] = []
    brokers: dict[str, Rebuilder] = {}
    for blob in blobs:
        start_us, log = pickle.loads(blob)  # noqa: S301 - written by this audit's own workers
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
                    yield Blob(bucket, _FIRST_MS, _SIZES + segment.dumps())


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
        yield Blob(bucket, _FIRST_MS, _OTHER + pickle.dumps(samples, protocol=5))


Output = tuple[Any, Any]
"""What a reduce task finds: what it is, and the value."""


def packed_outputs(blobs: Iterable[Any], settings: AuditSettings) -> Iterator[bytes]:
    """The outputs of `replay_blobs` for another process, which gives `unpacked` outputs to `result`."""
    return (pickle.dumps(output, protocol=5) for output in replay_blobs(blobs, settings))


def unpacked(outputs: Iterable[Any]) -> Iterator[Output]:
    """The outputs that another process packed, each when it is its turn."""
    return (pickle.loads(output) for output in outputs)  # noqa: S301 - written by this audit's own workers


def replay_blobs(blobs: Iterable[Any], settings: AuditSettings) -> Iterator[Output]:
    """The reduce side: the data of the blobs of one bucket, in the order of their times."""
    watched = Timelines() if settings.timelines else None
    demand = None if settings.question is None else DemandCollector(settings, settings.question)
    recorder = Recorder() if settings.predicts and demand is None else None
    replayed = Replay(settings, [each for each in (watched, demand) if each is not None], recorder)
    samples: list[Samples] = []
    topics: list[tuple[tuple[int, int], TopicLog]] = []
    connections: list[ConnectionLog] = []
    remaining = iter(blobs)
    first = None
    for blob in remaining:
        kind, data = bytes(blob[:1]), memoryview(blob)[1:]
        if kind == _SEGMENT:
            first = blob
            break
        if kind == _SIZES:
            replayed.know(Segment.loads(data))
            continue
        item = pickle.loads(data)  # noqa: S301 - written by this audit's own workers
        if kind == _TOPICS:
            topics.append(item)
        elif isinstance(item, ConnectionLog):
            connections.append(item)
        elif isinstance(item, list):
            samples += item
        else:
            yield item
    charged: list[Segment] = []
    if topics:
        charged, tally = _charged(topics, settings)
        yield DataQuality.of(tally, 0), []
    events = () if first is None else (Segment.loads(memoryview(blob)[1:]) for blob in chain([first], remaining))
    for segment in merge(charged, events, key=lambda segment: segment.base_ms):
        replayed.add(segment)
    if samples:
        governing: list[dict[tuple[str, str], Governed]] = [{} for _ in settings.variants]
        judged, ungoverned = judge(samples, settings, governing)
        for variant, table in enumerate(judged):
            yield variant, table
        yield _GOVERNING, governing
        yield DataQuality(ungoverned=ungoverned), []
    tables = replayed.finish()
    for variant, table in enumerate(tables):
        yield variant, table
    yield _GOVERNING, replayed.governing
    if connections:
        window = Window.of(settings.windows, settings.generation)
        opened = [judge_connections(connections, quotas, window) for quotas in settings.variants]
        for variant, (table, _) in enumerate(opened):
            yield variant, table
        yield _GOVERNING, [governing for _, governing in opened]
    predictions = [Predictions() for _ in settings.variants]
    if recorder is not None:
        predictions = recorder.finish(replayed.refs, replayed.judged, settings)
        yield _PREDICTED, predictions
    if watched is not None:
        yield None, watched.worst(replayed.refs, _throttled_still(tables[0], predictions[0]), settings.timelines)
    if demand is not None:
        measured = {replayed.refs[counter]: told for counter, told in demand.finish()}
        yield _MEASURED, measured


def _throttled_still(findings: pa.Table, predictions: Predictions) -> pa.Table:
    """The findings without those that the replay throttles and the prediction does not."""
    names = zip(*(findings.column(name).to_pylist() for name in ("broker", "key", "sensor")), strict=True)
    throttled = (None, Verdict.THROTTLED.value)
    return findings.filter(pa.array([predictions.verdict((*name,)) in throttled for name in names], pa.bool_()))


def _charged(
    topics: Sequence[tuple[tuple[int, int], TopicLog]], settings: AuditSettings
) -> tuple[list[Segment], Tally]:
    """What controllers charged for topics, from all that their logs tell of them, in the order of the times."""
    logs: dict[str, list[TopicLog]] = {}
    for _, log in sorted(topics, key=lambda told: told[0]):
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
    predictions = [Predictions() for _ in settings.variants]
    for head, tail in outputs:
        if isinstance(head, DataQuality):
            # Answers are many where each client's requests are counted: they are added up once, at the end.
            answers.append(head.answers)
            quality += replace(head, answers={})
            rejects += tail
        elif head is None:
            timelines |= tail
        elif head == _MEASURED:
            measured |= tail
        elif head == _PREDICTED:
            for mine, found in zip(predictions, tail, strict=True):
                mine.update(found)
        elif head == _GOVERNING:
            for parts, part in zip(governing, tail, strict=True):
                parts.append(part)
        elif head == _NOTED:
            for dialect, shown in tail.items():
                noted.setdefault(dialect, set()).update(shown)
        else:
            tables[head].append(tail)
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
    # Where the demand is measured, what is held back is a part of the measure.
    return found if settings.question is not None else settled(found, settings, handlers=handlers)
