"""The audit of a stream on Spark against the batch audit of the same rows on Spark, in one session.

    python -m benchmarks.stream [--rows 3000000] [--batches 50000 1500000] [--repeat 1]

Rows of `benchmarks.usage` come in micro-batches of so many. At 50,000 rows a second 50,000 are a batch of each second,
and 1,500,000 one of each half minute. All contenders must find the same. Prints CPU seconds of the whole process tree:
of the batches, of the findings at the end, microseconds of a row in the batches, and the ratio of all to the batch
audit. The first turn is not counted: it warms the JVM and loads what is compiled.
"""

import argparse
import os
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.audit import Measured, Meter, measured
from benchmarks.usage import quotas, write_usage
from kquota.audit.engines import spark
from kquota.audit.follow.frames import AuditStream, audit_frames
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.core.change.history import QuotaHistory


def cut(whole: Path, folder: Path, rows: int) -> int:
    """Cuts a table into files of so many rows, in the order in which a stream takes them; returns how many."""
    folder.mkdir()
    with pq.ParquetFile(whole) as file:
        number = 0
        for number, batch in enumerate(file.iter_batches(rows), 1):
            path = folder / f"{number:06}.parquet"
            with pq.ParquetWriter(path, batch.schema) as writer:
                writer.write_batch(batch)
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return number


def streamed(session: Any, files: Path, settings: AuditSettings, checkpoint: Path) -> AuditStream:
    """Streams the files, one in a batch, until all are read."""
    frame = session.readStream.schema(session.read.parquet(str(files)).schema)
    frame = frame.option("maxFilesPerTrigger", 1).parquet(str(files))
    stream = audit_frames(frame, settings, checkpoint, trigger={"availableNow": True})
    stream.query.awaitTermination()
    return stream


def batched(frame: Any, settings: AuditSettings) -> tuple[int, int]:
    """The totals of the batch audit."""
    return totals(spark.audit_dataframe(frame, settings))


def found(stream: AuditStream) -> tuple[int, int]:
    """The totals of a stream."""
    return totals(stream.findings())


def totals(result: AuditResult) -> tuple[int, int]:
    """(events, throttled events) of all counters."""
    found = result.findings.to_pydict()
    return sum(found["events"]), sum(each or 0 for each in found["throttled_events"])


def main() -> None:
    """Runs the benchmark and prints a line for each size of batches."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--batches", type=int, nargs="+", default=[50_000, 1_500_000], help="rows of a micro-batch")
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    session = spark.open_session("local[2]")
    session.conf.set("spark.sql.shuffle.partitions", 4)
    meter, settings = Meter(), AuditSettings(QuotaHistory.of(quotas()))
    batch: list[float] = []
    taken: dict[int, list[tuple[Measured, Measured]]] = {rows: [] for rows in options.batches}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = folder / "usage.parquet"
        write_usage(whole, options.rows)
        counts = {rows: cut(whole, folder / f"by-{rows}", rows) for rows in options.batches}
        for turn in range(options.repeat + 1):
            frame = session.read.parquet(str(whole))
            audited = measured(meter, partial(batched, frame, settings))
            answers = {audited.answer}
            for rows, mine in taken.items():
                kept = folder / f"checkpoint-{rows}-{turn}"
                run = measured(meter, partial(streamed, session, folder / f"by-{rows}", settings, kept))
                end = measured(meter, partial(found, run.answer))
                answers.add(end.answer)
                if turn:
                    mine.append((run, end))
            assert len(answers) == 1, answers
            if turn:
                batch.append(audited.cpu_s)
    floor = statistics.median(batch)
    print(f"{options.rows:,} rows, two cores; the batch audit on Spark: {floor:.1f} CPU s")
    for rows, runs in taken.items():
        turns, ends = (statistics.median(pair[place].cpu_s for pair in runs) for place in (0, 1))
        print(
            f"{counts[rows]} batches of {rows:,}: {turns:.1f} s, {1e6 * turns / options.rows:.1f} µs a row;"
            f" findings {ends:.1f} s; together {(turns + ends) / floor:.2f} times the batch audit"
        )
    session.stop()


if __name__ == "__main__":
    main()
