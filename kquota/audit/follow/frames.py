"""The audit of a streaming DataFrame of Spark: each micro-batch is packed once; counters go on from batch to batch.

    checkpoint/kquota/about                 what the audit is of, compared at a restart
    checkpoint/kquota/packed/<batch>        the packed usage of a batch, for the findings
    checkpoint/kquota/state/<broker>/<batch>  the counters of a broker after a batch
    checkpoint/kquota/episodes/<batch>.jsonl  the episodes that began or ended in a batch, if any did

Most of what a small batch costs is the price of a Spark job, so a batch is one job. Its map tasks pack; its reduce
tasks write what was packed and take the counters on. What is the same for each batch goes to a process once.

Spark may run a batch again after a kill. It begins with the newest state before the batch, and writes the same files
anew, whole or not at all. So a repetition changes nothing. Episodes are passed on once more, with the same names.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kquota.audit.batch import Batch, Tally
from kquota.audit.engines import spark, stages
from kquota.audit.engines.portable import decode, encode
from kquota.audit.follow import checkpoint
from kquota.audit.follow.counters import Counters
from kquota.audit.follow.follow import by_broker
from kquota.audit.ledger.charge import Charger
from kquota.audit.ledger.rows import fingerprint
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import usage
from kquota.core.findings.finding import Episode
from kquota.documents.audit import episode_document
from kquota.documents.encoding import to_json_line
from kquota.errors import InputError
from kquota.files import replacing
from kquota.garbage import look_seldom

_PACKED: Final = f"{spark.PARCELS}, start_ms long, broker string"
_SCHEMA: Final = spark.PARCELS_SCHEMA.append(pa.field("start_ms", pa.int64())).append(pa.field("broker", pa.string()))
_WHAT: Final = "the stream"
_SUCCESS: Final = "_SUCCESS"
"""In the folder of a batch when all of it is there."""
_BUCKETS: Final = 16
"""So many tasks can make the findings; each costs a ledger for every task and broker of a batch."""


@dataclass
class AuditStream:
    """A streaming audit: `query` is Spark's StreamingQuery, which the caller waits for or stops."""

    session: Any
    settings: AuditSettings
    folder: Path
    query: Any = None
    late_of: dict[str, int] = field(default_factory=dict)
    """Broker → events that came after its settle time: no episode has them, the findings do."""

    def findings(self) -> AuditResult:
        """The findings of all batches so far, as `audit_dataframe` finds them in the same rows. Raises InputError."""
        done = [str(success.parent) for success in sorted((self.folder / "packed").glob(f"*/{_SUCCESS}"))]
        if not done:
            raise InputError(f"{_WHAT}: no usage events in it")
        buckets = stages.bucket_count([], 2 * spark.cores_of(self.session))
        packed = self.session.read.schema(_PACKED).parquet(*done).drop("broker")
        # Which counters go together is decided by their homes, as many buckets as there are now.
        parcels = packed.selectExpr(f"pmod(bucket, {buckets}) AS bucket", "data")
        return spark.found(parcels, buckets, self.settings, _WHAT)

    def stop(self) -> None:
        """Stops the query."""
        if self.query is not None:
            self.query.stop()


def audit_frames(
    frame: Any,
    settings: AuditSettings,
    folder: Path,
    *,
    settle_ms: int = 1000,
    on_episodes: Callable[[Sequence[Episode]], None] | None = None,
    trigger: dict[str, Any] | None = None,
) -> AuditStream:
    """Audits a streaming DataFrame with the columns of a usage table (`schemas/usage.schema.json`).

    `folder` holds Spark's checkpoint and kquota's own, on a file system that all executors share. `on_episodes` gets
    the episodes of each batch on the driver. `trigger` is Spark's own, by default a batch a second. Raises InputError
    for a missing column, and Refused for a checkpoint of other quotas, of other settings or of another version.
    """
    usage.require_columns(_WHAT, frame.columns)
    session = frame.sparkSession
    if spark.is_remote(session):
        raise InputError(f"{_WHAT}: Spark Connect is not supported", hint="start the session on the cluster's master")
    settings = replace(settings, ordered=False)
    own = folder.absolute() / "kquota"
    _claim(own, settings, settle_ms)
    stream = AuditStream(session, settings, own)
    columns = [name for name in usage.COLUMNS if name in frame.columns]
    charger = spark.shared(session, Charger(replace(settings, per_client=True)))

    # A broker's counters are the work of one task; more tasks than cores only cost.
    tasks = spark.cores_of(session)

    def take(batch: Any, number: int) -> None:
        batch.sparkSession.conf.set(*spark.LARGE_BATCHES)  # the session is the query's own
        place = own / "packed" / f"{number:09d}"
        place.mkdir(exist_ok=True)
        packed = batch.select(*columns).mapInArrow(partial(_mapped, charger), _PACKED)
        placed = packed.selectExpr("*", f"pmod(hash(broker), {tasks}) AS task")
        of_brokers = placed.repartitionById(tasks, "task").drop("task")
        reducer = partial(_reduced, charger, settle_ms, own / "state", place, number)
        rows = spark.collect(of_brokers.sortWithinPartitions("broker", "start_ms").mapInArrow(reducer, spark.OUTPUT))
        reported: list[Episode] = []
        written: set[str] = {_SUCCESS}
        for data in rows.column("data"):
            name, brokers = decode(data.as_buffer())
            written.add(name)
            for broker, episodes, late in brokers:
                reported += episodes
                stream.late_of[broker] = late
        for stray in place.iterdir():
            if stray.name not in written:
                stray.unlink()  # of the batch before a kill, which had other tasks
        (place / _SUCCESS).touch()
        reported.sort(key=lambda episode: (episode.begin_ms, episode.name, episode.state.value))
        if reported:
            _write(own / "episodes" / f"{number:09d}.jsonl", "".join(
                to_json_line(episode_document(episode)) + "\n" for episode in reported).encode())  # fmt: skip
        if on_episodes is not None and reported:
            on_episodes(reported)

    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(folder.absolute() / "spark"))
    stream.query = writer.trigger(**(trigger or {"processingTime": "1 second"})).start()
    return stream


def _claim(own: Path, settings: AuditSettings, settle_ms: int) -> None:
    """Makes the folder one of this audit. Raises Refused where it is another audit's."""
    file, about = own / "about", checkpoint.about(settings, settle_ms)
    try:
        if file.exists():
            checkpoint.compare(file.read_bytes(), own.parent, about)
        for name in ("packed", "state", "episodes"):
            (own / name).mkdir(parents=True, exist_ok=True)
        _write(file, checkpoint.heading(about))
    except OSError as error:
        raise InputError(f"{own}: cannot use it for checkpoints: {error.strerror or error}") from None


def _write(path: Path, data: bytes) -> None:
    with replacing(path) as aside:
        aside.write_bytes(data)


def _kept(file: Path) -> Any:
    """What was kept of the counters of a broker. Raises InputError where it is damaged."""
    try:
        return decode(file.read_bytes())
    except ValueError as error:
        raise InputError(f"{file}: the counters are damaged: {error}", hint="begin anew without them") from None


def _mapped(shared: Any, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Charges the rows of a task; ledgers bear the name of their broker."""
    look_seldom()
    number, tally = spark.partition(), Tally()
    charger: Charger = shared.value
    before = charger.ungoverned
    rows = spark.batches_of(batches, charger.settings.read, _WHAT, tally)
    for part, (batch, broker) in enumerate(by_broker(rows)):
        assert isinstance(batch, Batch)
        charger.charge(batch)
        for whole in charger.take((number, part)):
            for bucket, ledger in whole.parted(_BUCKETS):
                yield spark.row_of(_SCHEMA, bucket, encode(ledger), int(ledger.time.min()), broker)
    if tally.events or tally.exempt or tally.rejected:
        tally.ungoverned = charger.ungoverned - before
        yield spark.row_of(_SCHEMA, 0, encode(tally), None, None)


def _reduced(
    shared: Any, settle_ms: int, state: Path, packed: Path, number: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Takes the counters of some brokers from their state before the batch to their state after it.

    What is packed goes to a file in the folder `packed`, which bears the number of the task.
    """
    look_seldom()
    settings: AuditSettings = shared.value.settings
    waiting: dict[str, list[Any]] = {}
    taken = list(batches)
    if not taken:
        return
    name = f"part-{spark.partition():05d}.parquet"
    with replacing(packed / name) as aside:
        pq.write_table(pa.Table.from_batches(taken, _SCHEMA), aside, use_dictionary=["broker"])
    for batch in taken:
        for broker, data in zip(batch.column("broker").to_pylist(), batch.column("data"), strict=True):
            if broker is not None:
                waiting.setdefault(broker, []).append(data.as_buffer())
    brokers: list[tuple[str, list[Episode], int]] = []
    for broker, blobs in waiting.items():
        place = state / str(fingerprint(broker))
        place.mkdir(exist_ok=True)
        versions = sorted(int(file.name) for file in place.iterdir() if file.name.isdigit())
        before = [version for version in versions if version < number]
        if before:
            counters = Counters.going_on(_kept(place / str(before[-1])), settings, settle_ms)
        else:
            counters = Counters(settings, settle_ms)
        counters.take(map(decode, blobs))
        episodes = counters.episodes()
        counters.forget()
        _write(place / str(number), encode(counters.kept()))
        for version in before[:-1]:
            (place / str(version)).unlink(missing_ok=True)
        brokers.append((broker, episodes, counters.late))
    yield spark.row_of(spark.OUTPUT_SCHEMA, encode((name, brokers)))
