"""The audit on Spark: splits → charged on the executors → shuffle of ledgers by counter → findings.

Spark distributes; the executors read, resolve, order and enforce. What crosses the shuffle are ledgers, which cost a
fraction of what rows of strings do. What is small is one task, without a shuffle.
"""

import contextlib
import logging
import os
import re
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa

from kquota.audit.batch import Batch, Tally
from kquota.audit.engines import stages, under_spark_submit
from kquota.audit.engines.package import is_packed, named_package
from kquota.audit.engines.portable import decode, encode
from kquota.audit.evidence.whole import result
from kquota.audit.ledger.charge import Charger
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, Split, counted, usage
from kquota.errors import InputError, KquotaError, MissingDependency, Unreachable
from kquota.garbage import look_seldom

PARCELS = "bucket int, data binary"
PARCELS_SCHEMA = pa.schema([("bucket", pa.int32()), ("data", pa.binary())])
ROWS_PER_TASK = 200_000
"""Another task is worth its cost when there is so much more to read."""
_ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
LARGE_BATCHES = (_ARROW_ROWS, 100_000)
"""A setting of a session: rows that go to Python take a fifth less time so than with 10,000 at once."""
OUTPUT = "data binary"
OUTPUT_SCHEMA = pa.schema([("data", pa.binary())])


def audit(session: Any, splits: Sequence[Split], settings: AuditSettings, what: str) -> AuditResult:
    """Audits the usage exports in these splits on a Spark session; errors call them `what`.

    Raises InputError when there is nothing to audit: not one record, or not one that can be read.
    """
    cores = cores_of(session)
    charging = stages.rebuilding(splits, settings)
    tasks = stages.deal(splits, min(4 * cores, -(-sum(split.rows for split in splits) // ROWS_PER_TASK)))
    buckets = stages.bucket_count(splits, cores) if len(tasks) > 1 else 1
    charger = shared(session, Charger(charging))
    table = pa.table({"id": pa.array(range(len(tasks)), pa.int32()), "task": [encode(task) for task in tasks]})
    if len(tasks) == 1 and not is_remote(session):
        # Spark SQL, which costs more than all of the rest, is not even loaded.
        job = session.sparkContext.parallelize(table.to_batches(), 1).mapPartitions(partial(_whole, charger))
        return _result(pa.Table.from_batches(_collected(job.collect), OUTPUT_SCHEMA), settings, what)
    # From Arrow: of plain rows PySpark's own workers, started for nothing else, would make Java's.
    plan = session.createDataFrame(table)
    # Both repartitions name the partition itself: hashing would put two of a handful into one and leave another empty.
    parcels = plan.repartitionById(len(tasks), "id").mapInArrow(partial(_charged, charger, buckets), PARCELS)
    return found(parcels, buckets, charging, what)


def audit_dataframe(frame: Any, settings: AuditSettings, what: str = "the DataFrame") -> AuditResult:
    """Audits a DataFrame with the columns of a usage table (`schemas/usage.schema.json`), from whatever Spark reads.

    A DataFrame is slower than files that the executors read themselves, and its rows have no order: within one ms,
    events of smaller values come first, so that the findings do not depend on the partitions. Raises InputError when a
    column is missing, and as `audit`.
    """
    usage.require_columns(what, frame.columns)
    settings = replace(settings, ordered=False)
    session = frame.sparkSession
    buckets = stages.bucket_count([], 2 * cores_of(session))
    columns = [name for name in usage.COLUMNS if name in frame.columns]
    before = session.conf.get(_ARROW_ROWS)
    session.conf.set(*LARGE_BATCHES)
    try:
        charger = shared(session, Charger(settings))
        parcels = frame.select(*columns).mapInArrow(partial(_charged_rows, charger, buckets, what), PARCELS)
        return found(parcels, buckets, settings, what)
    finally:
        session.conf.set(_ARROW_ROWS, before)


def audit_table(session: Any, name: str, settings: AuditSettings) -> AuditResult:
    """Audits a table of the session's catalogue. Raises InputError for one that is not there, and as `audit`."""
    from pyspark.errors import PySparkException

    try:
        frame = session.table(name)
    except PySparkException as error:
        raise InputError(f"table {name}: {str(error).splitlines()[0]}") from None
    return audit_dataframe(frame, settings, f"table {name}")


def found(parcels: Any, buckets: int, settings: AuditSettings, what: str) -> AuditResult:
    """The findings from parcels."""
    by_bucket = parcels.repartitionById(buckets, "bucket")
    return _result(collect(by_bucket.mapInArrow(partial(_found, settings), OUTPUT)), settings, what)


def _result(rows: pa.Table, settings: AuditSettings, what: str) -> AuditResult:
    return result((decode(blob.as_buffer()) for blob in rows.column("data")), settings, what, "spark")


def collect(rows: Any) -> pa.Table:
    """The rows of a DataFrame. Raises InputError, MissingDependency and Unreachable for what fails on executors."""
    return _collected(rows.toArrow)


def _collected(action: Callable[[], Any]) -> Any:
    """What an action of Spark gives; its failure in a line."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return action()
    except (PySparkException, Py4JError) as error:
        # Ctrl-C in the middle of a call surfaces as whatever PySpark's clean-up made of it.
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise _failure(str(error)) from error


def _failure(message: str) -> Exception:
    """Why the job failed, in a line."""
    if "Python worker exited unexpectedly" in message or "ExecutorLostFailure" in message:
        hint = "out of memory? give the executors more of it (spark.executor.memoryOverhead), or fewer cores each"
        return Unreachable("the Spark job failed: its workers were killed", hint=hint)
    if cause := re.search(
        r"^Caused by: (java\.\S+: (No space left on device|Disk quota exceeded).*)$", message, re.MULTILINE
    ):
        return InputError(f"the Spark job failed: {cause[2]}", hint="spark.local.dir names other folders")
    # The message holds the worker's whole traceback; its last line is the reason.
    ends = ("JVM stacktrace", "SQLSTATE")
    lines = [line for text in message.splitlines() if (line := text.strip()) and not line.startswith(ends)]
    name, _, reason = (lines or ["unknown: Spark gives no reason"])[-1].partition(": ")
    if name.startswith("kquota.") and name.endswith(("InputError", "UnreadableFile")):
        return InputError(reason, hint="executors read the files themselves, each at the same path")
    if name == "ModuleNotFoundError":
        hint = "PYSPARK_PYTHON names the executors' Python, which needs pyarrow, pandas, numpy and numba"
        return MissingDependency(f"the Spark job failed: {reason}", hint=hint)
    if name == "OSError":
        return InputError(f"the Spark job failed: {reason}")
    return RuntimeError(f"the Spark job failed: {name}: {reason}")


class _Sent(NamedTuple):
    """A value that is sent with every task."""

    value: Any


def shared(session: Any, value: Any) -> Any:
    """Something with the `value`, which each process of the executors has once, and keeps as long as its tasks name it.

    Spark Connect has no broadcasts: each task has its own copy there.
    """
    return _Sent(value) if is_remote(session) else session.sparkContext.broadcast(value)


_Batches = Iterable[pa.RecordBatch]


def _splits(batches: _Batches) -> Iterator[tuple[int, Split]]:
    """The splits of a task."""
    look_seldom()
    return (split for batch in batches for task in batch.column("task") for split in decode(task.as_buffer()))


def _charged(charger: Any, buckets: int, batches: _Batches) -> Iterator[pa.RecordBatch]:
    for bucket, parcel in stages.charged(_splits(batches), charger.value, buckets):
        yield row_of(PARCELS_SCHEMA, bucket, encode(parcel))


def _whole(charger: Any, batches: _Batches) -> Iterator[pa.RecordBatch]:
    """Both halves in one task."""
    parcels = (parcel for _, parcel in stages.charged(_splits(batches), charger.value, 1))
    for output in stages.found(parcels, charger.value.settings):
        yield row_of(OUTPUT_SCHEMA, encode(output))


def _charged_rows(charger: Any, buckets: int, what: str, batches: _Batches) -> Iterator[pa.RecordBatch]:
    look_seldom()
    number, tally = partition(), Tally()
    reading = charger.value.settings.read
    pieces = (((number, part), batch) for part, batch in enumerate(batches_of(batches, reading, what, tally)))
    for bucket, parcel in stages.charged_pieces(pieces, tally, charger.value, buckets):
        yield row_of(PARCELS_SCHEMA, bucket, encode(parcel))


def batches_of(batches: _Batches, reading: ReadSettings, what: str, tally: Tally) -> Iterator[Batch]:
    """The usage in the rows of a task, which errors call `what`."""
    tables = joined(batches, usage.BATCH_ROWS)
    for batch in usage.to_batches(tables, what, reading, "", tally):
        yield counted(batch, reading, tally)


def partition() -> int:
    """The number of the partition that this task works on."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())


def joined(batches: _Batches, rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at least so many."""
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        pending.append(batch)
        if sum(part.num_rows for part in pending) >= rows:
            yield pa.concat_batches(pending)
            pending = []
    if pending:
        yield pa.concat_batches(pending)


def _found(settings: AuditSettings, batches: _Batches) -> Iterator[pa.RecordBatch]:
    look_seldom()
    parcels = (decode(blob.as_buffer()) for batch in batches for blob in batch.column("data"))
    for output in stages.found(parcels, settings):
        yield row_of(OUTPUT_SCHEMA, encode(output))


def row_of(schema: pa.Schema, *values: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([value], field.type) for value, field in zip(values, schema, strict=True)], schema=schema
    )


def is_remote(session: Any) -> bool:
    """Whether this is a session of Spark Connect, which has no Spark context here."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def cores_of(session: Any) -> int:
    if not is_remote(session):
        return max(1, int(session.sparkContext.defaultParallelism))
    from pyspark.sql import functions as f

    # A range is cut into as many parts as there are cores; of these here none is empty.
    return int(session.range(1 << 16).select(f.spark_partition_id().alias("part")).distinct().count())


def progress(session: Any) -> tuple[int, int]:
    """(tasks done, tasks known) of the stages that run now; Spark Connect reports none."""
    if is_remote(session):
        return 0, 0
    tracker = session.sparkContext.statusTracker()
    done = known = 0
    for stage in tracker.getActiveStageIds():
        info = tracker.getStageInfo(stage)
        if info is not None:
            done, known = done + info.numCompletedTasks, known + info.numTasks
    return done, known


def open_session(master: str | None = None) -> Any:
    """A Spark session: as spark-submit set it up, a server's (`sc://…`), else a quiet session of our own.

    Raises MissingDependency without PySpark, Java, or what Spark Connect needs; Unreachable when Spark does not start.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingDependency("the audit needs PySpark", extra="audit") from None
    builder = SparkSession.builder.appName("kquota audit").config("spark.ui.showConsoleProgress", False)
    # Ledgers have some MB each, and a bucket of one busy counter has many of them.
    builder = builder.config("spark.sql.execution.arrow.maxBytesPerBatch", 64 << 20)
    if master is not None and master.startswith("sc://"):
        _reach(master)
        builder = builder.remote(master)
    elif not under_spark_submit():
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        quiet = Path(__file__).with_name("log4j2.properties").as_uri()
        builder = (
            builder.master(master or "local[*]")
            .config("spark.ui.enabled", False)
            .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={quiet}")
        )
        if (master or "local").startswith("local"):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            # Nothing leaves the machine, so nothing needs its outside name, which may not resolve.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    with _held_interrupt() as interrupted:
        with _quiet_launch() as output:
            try:
                session = builder.getOrCreate()
            except Exception as error:
                if interrupted():  # py4j makes an error of its own of a second Ctrl-C
                    raise KeyboardInterrupt from None
                raise _launch_error(error, output()) from error
        if not is_remote(session):
            session.sparkContext.setLogLevel("FATAL")
        _ship(session)
        if interrupted():
            session.stop()
            raise KeyboardInterrupt
    return session


def _reach(remote: str) -> None:
    """Raises Unreachable where nobody listens: Spark Connect itself would try for many minutes."""
    place = urlsplit(remote)
    try:
        host, port = place.hostname, place.port or 15002
    except ValueError as error:
        raise Unreachable(f"{remote}: {error}", hint="sc://HOST:PORT") from None
    try:
        socket.create_connection((host, port), timeout=10).close()
    except OSError as error:
        raise Unreachable(f"no Spark Connect server at {host}:{port}: {error.strerror or error}") from None


def _ship(session: Any) -> None:
    """Sends the executors this very code, where they are not this process's children on this machine."""
    if is_packed():
        return
    name, content = named_package()
    if is_remote(session):
        with tempfile.TemporaryDirectory(prefix="kquota-audit-") as folder:
            Path(folder, name).write_bytes(content)
            session.addArtifacts(str(Path(folder, name)), pyfile=True)
        return
    context = session.sparkContext
    if context.master == "local" or context.master.startswith("local["):
        return
    from pyspark import SparkFiles

    # Spark serves the file from where it lies for as long as there are executors to come, and removes this folder then.
    place = Path(SparkFiles.getRootDirectory(), "kquota", name)
    place.parent.mkdir()
    place.write_bytes(content)
    context.addPyFile(str(place))


def _launch_error(error: Exception, output: str) -> KquotaError:
    """Why Spark did not start, in a line."""
    if isinstance(error, ImportError):
        return MissingDependency(f"Spark Connect: {error}".splitlines()[0], hint="pip install 'pyspark[connect]'")
    if "JAVA_GATEWAY_EXITED" in str(error) and ("JAVA_HOME" in output or "UnsupportedClassVersion" in output):
        hint = "install a JDK: apt-get install openjdk-17-jdk-headless"
        return MissingDependency("Spark needs Java 17 or later", hint=hint)
    lines = [line.strip() for line in f"{output}\n{error}".splitlines() if line.strip() and "incubator" not in line]
    reasons = [line for line in lines if "Exception" in line or "Error" in line] or lines[-1:] or [type(error).__name__]
    return Unreachable(
        f"Spark did not start: {reasons[0][:300]}",
        hint="check --master and the Java that is used; --engine local needs neither",
    )


@contextlib.contextmanager
def _held_interrupt() -> Iterator[Callable[[], bool]]:
    """Holds Ctrl-C back while Spark starts: a JVM that is left in the middle of it would stay. A second one is obeyed.

    PySpark's own handler, which calls the JVM in the middle of a call and prints what comes of it, is taken back.
    Yields a function that tells whether Ctrl-C was pressed.
    """
    # py4j reports an interrupted call to the root logger; a handler that does nothing keeps that off the terminal.
    logging.getLogger().addHandler(logging.NullHandler())
    presses = 0

    def hold(*_: object) -> None:
        nonlocal presses
        presses += 1
        if presses > 1:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # signals are not ours to handle
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, hold)
    try:
        yield lambda: presses > 0
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _quiet_launch() -> Iterator[Callable[[], str]]:
    """Gives the JVM that is launched inside another stderr: it announces its incubator modules to everybody.

    Yields a function that tells what was said there.
    """
    if under_spark_submit():
        yield lambda: ""
        return
    ours = os.dup(2)
    with tempfile.TemporaryFile() as theirs:

        def said() -> str:
            theirs.seek(0)
            return theirs.read().decode(errors="replace")

        sys.stderr.flush()
        os.dup2(theirs.fileno(), 2)
        try:
            yield said
        finally:
            os.dup2(ours, 2)
            os.close(ours)
