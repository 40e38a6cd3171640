"""The audit of usage tables against the least that Spark and Arrow can do with them, and against DuckDB and Polars.

    python -m benchmarks.audit [--rows 5000000 50000000] [--hour-rows 10000000] [--repeat 3]
    python -m benchmarks.audit --shapes [--hour-rows 10000000] [--repeat 3]

There are two tables. In the first one each row is charged to one counter, and a groupBy by the second has nearly a
group for each row. In the second one users follow Zipf's law, all rows are of one hour, and each row is charged to two
counters: bytes and thread time. The least is one groupBy on Spark, and the reading of all columns without it. All run
on two cores, one after the other, in turns, and those that audit must find the same. `typed` is the command
`kquota audit` as people type it, in a process of its own, with the processes that it chooses. With `--shapes` it alone
runs beside the reading of the columns, on tables of several shapes. Prints the CPU seconds of the whole process tree
(driver, JVM, Python workers), wall seconds, and the peak resident memory: of all, and of the largest Python process.
CPU seconds are what a noisy machine leaves comparable.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import rivals
from benchmarks.usage import KEPT, Shape, hour_quotas, quotas, write_hour, write_usage
from kquota.audit.engines import local, spark
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import plan_splits
from kquota.core.change.history import QuotaHistory
from kquota.documents.encoding import to_json
from kquota.documents.quotas import quotas_document

SHAPES = (
    *(KEPT._replace(order=order) for order in ("by time", "a file a broker", "shuffled")),
    *(Shape(*each) for each in ((110, 10), (11_000, 10), (11_000, 33_333), (110_000, 10))),
)
"""Each user has nine counters, or fewer where it sends few requests; the quotas of an entity are three."""


_TICK_S = 0.01


class Meter:
    """The CPU time and the memory of this process and of everything it starts, looked at ten times a second.

    A process that has ended counts with what was last seen of it: PySpark's daemon ignores its workers' end, so that
    their time is in nobody's account. Children of this process itself are exact, as they are waited for.
    """

    def __init__(self) -> None:
        self._me = psutil.Process()
        self._below: dict[psutil.Process, float] = {}
        self._lock = threading.Lock()
        self.forget_peaks()
        threading.Thread(target=self._watch, daemon=True).start()

    def forget_peaks(self) -> None:
        """From now on `java`, `python` and `worker` (the largest one) are new peaks, of resident memory in MB."""
        self.java = self.python = self.worker = 0.0

    def cpu_seconds(self) -> float:
        """User and system time of all, since they were started."""
        return self._look()

    def _watch(self) -> None:
        while True:
            time.sleep(0.1)
            self._look()

    def _look(self) -> float:
        with self._lock:
            java, pythons = 0.0, [0.0]
            own = self._me.cpu_times()
            total = own.user + own.system
            for process in [self._me, *self._me.children(recursive=True)]:
                try:
                    with process.oneshot():
                        size, times = process.memory_info().rss / 2**20, process.cpu_times()
                        if process.name() == "java":
                            java += size
                        else:
                            pythons.append(size)
                        if process.ppid() == self._me.pid:
                            total += times.user + times.system
                        elif process != self._me:
                            self._below[process] = times.user + times.system
                except psutil.Error:
                    continue
            self.java, self.python = max(self.java, java), max(self.python, sum(pythons))
            self.worker = max(self.worker, *pythons)
            ended = self._me.cpu_times()
            return total + ended.children_user + ended.children_system + sum(self._below.values())


@dataclass(frozen=True, slots=True)
class Measured:
    """What some work cost."""

    cpu_s: float
    wall_s: float
    peak_mb: float
    worker_mb: float
    """The largest Python process."""
    answer: Any

    def __str__(self) -> str:
        return f"{self.cpu_s:.1f} ({self.wall_s:.1f}, {self.peak_mb:.0f}/{self.worker_mb:.0f})"


def measured(meter: Meter, work: Callable[[], Any]) -> Measured:
    """Does the work."""
    meter.forget_peaks()
    cpu, wall = meter.cpu_seconds(), time.perf_counter()
    answer = work()
    wall = time.perf_counter() - wall
    return Measured(meter.cpu_seconds() - cpu, wall, meter.java + meter.python, meter.worker, answer)


def main() -> None:
    """Runs the benchmark and prints a table for each number of rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--rows", type=int, nargs="*", default=[5_000_000], help="rows of the first table; none: leave it out"
    )
    parser.add_argument("--hour-rows", type=int, nargs="*", default=[10_000_000], help="the same of the second table")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--shapes", action="store_true", help="the command alone, on tables of several shapes")
    arguments = parser.parse_args()

    meter = Meter()
    if arguments.shapes:
        for rows in arguments.hour_rows:
            for shape in SHAPES:
                as_typed(meter, rows, shape, arguments.repeat)
        return
    session = spark.open_session("local[2]")
    session.conf.set("spark.sql.shuffle.partitions", 8)
    _grown({rows: by_bytes(session, meter, rows, arguments.repeat) for rows in arguments.rows})
    _grown({rows: by_two_counters(session, meter, rows, arguments.repeat) for rows in arguments.hour_rows})
    session.stop()


def _grown(medians: dict[int, dict[str, float]]) -> None:
    """Prints how the CPU seconds grow with the rows."""
    if len(medians) < 2:
        return
    fewest, most = min(medians), max(medians)
    print(f"from {fewest} to {most} rows: {most / fewest:.1f} times the rows", end="")
    for name in ("audit", "local"):
        print(f", {medians[most][name] / medians[fewest][name]:.1f} times the CPU seconds of {name}", end="")
    print()


def by_bytes(session: Any, meter: Meter, rows: int, repeat: int) -> dict[str, float]:
    """Quotas of bytes, and nearly a group of the groupBy for each row. Returns the median CPU seconds of each."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "usage.parquet"
        write_usage(path, rows)
        splits, tested = plan_splits([str(path)], "usage"), quotas()
        settings = AuditSettings(QuotaHistory.of(tested))
        contenders: dict[str, Callable[[], Any]] = {
            "groupBy": lambda: _grouped(session, path, "bytes"),
            "audit": lambda: _totals(spark.audit(session, splits, settings, "usage"), rows),
            "DataFrame": lambda: _totals(spark.audit_dataframe(session.read.parquet(str(path)), settings), rows),
            "local": lambda: _totals(local.audit(splits, settings, "usage"), rows),
            "DuckDB": lambda: rivals.duckdb_audit(path, tested),
            "Polars": lambda: rivals.polars_audit(path, tested),
        }
        print(f"quotas of bytes: {_described(path, rows)}")
        # The rows of a DataFrame have no order within a ms.
        medians = _in_turns(meter, contenders, repeat, alike={"audit", "local", "DuckDB", "Polars"})
        for name in ("audit", "DataFrame", "local"):
            others = [f"{medians[name] / medians[other]:.2f} of {other}" for other in ("groupBy", "DuckDB", "Polars")]
            print(f"{name}: {', '.join(others)} (medians of CPU seconds)")
        return medians


def by_two_counters(session: Any, meter: Meter, rows: int, repeat: int) -> dict[str, float]:
    """Quotas of bytes and of thread time in one hour: each row is charged to two counters.

    The groupBy has far fewer groups than rows here. The floor without Spark is Arrow's reading of the same columns.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "usage-0.parquet"
        write_hour(Path(folder), rows)
        splits, tested = plan_splits([str(path)], "usage"), hour_quotas(rows)
        settings = AuditSettings(QuotaHistory.of(tested))
        (Path(folder) / "quotas.json").write_text(to_json(quotas_document(tested)))
        contenders: dict[str, Callable[[], Any]] = {
            "groupBy": lambda: _grouped(session, path, "bytes", "request_time_ns"),
            "audit": lambda: _totals(spark.audit(session, splits, settings, "usage"), rows),
            "columns": lambda: _read_columns(path),
            "one process": lambda: _totals(local.audit(splits, settings, "usage", processes=1), rows),
            "two": lambda: _totals(local.audit(splits, settings, "usage", processes=2), rows),
            "typed": lambda: _typed(path, Path(folder) / "quotas.json", rows),
        }
        print(f"quotas of bytes and of thread time: {_described(path, rows)}")
        medians = _in_turns(meter, contenders, repeat, alike={"audit", "one process", "two"})
        floors = {"audit": "groupBy", "one process": "columns", "two": "columns", "typed": "columns"}
        for name, floor in floors.items():
            print(f"{name}: {medians[name] / medians[floor]:.2f} of {floor} (medians of CPU seconds)")
        return medians | {"local": medians["one process"]}


def as_typed(meter: Meter, rows: int, shape: Shape, repeat: int) -> None:
    """The command and its floor on a table of that shape."""
    with tempfile.TemporaryDirectory() as folder:
        usage, file = Path(folder) / "usage", Path(folder) / "quotas.json"
        usage.mkdir()
        write_hour(usage, rows, shape)
        file.write_text(to_json(quotas_document(hour_quotas(rows, shape))))
        contenders: dict[str, Callable[[], Any]] = {
            "columns": lambda: [*map(_read_columns, sorted(usage.iterdir()))],
            "typed": lambda: _typed(usage, file, rows),
        }
        print(f"{rows} rows, {shape.users} users, {shape.entities} entities with quotas, {shape.order}")
        medians = _in_turns(meter, contenders, repeat, alike={"typed"})
        print(f"typed: {medians['typed'] / medians['columns']:.2f} of columns (medians of CPU seconds)", flush=True)


def _described(path: Path, rows: int) -> str:
    return f"{rows} rows, {path.stat().st_size / 2**20:.0f} MB of Parquet, two cores; CPU seconds (wall, peak MB)"


def _grouped(session: Any, path: Path, *values: str) -> None:
    """The floor on Spark: the sums of each client's seconds."""
    from pyspark.sql import functions as f

    usage = session.read.parquet(str(path))
    second = (f.col("time_ms") / 1000).cast("long").alias("second")
    sums = usage.groupBy("broker", "user", "client_id", second).agg(*(f.sum(value) for value in values))
    sums.write.format("noop").mode("overwrite").save()


def _read_columns(path: Path) -> None:
    """The floor without Spark: every column once, in one thread."""
    with pq.ParquetFile(path) as file:
        for _ in file.iter_batches(1 << 20, use_threads=False):
            pass


def _totals(result: AuditResult, rows: int) -> tuple[int, int]:
    """(throttled events, their throttle time in ms) of all counters."""
    assert result.quality.events == rows
    throttled, time_ms = (pc.sum(result.findings[name]) for name in ("throttled_events", "throttle_time_ms"))
    return throttled.as_py(), time_ms.as_py()


def _typed(usage: Path, quotas: Path, rows: int) -> None:
    """The command, which prints its table."""
    command = [sys.executable, "-m", "kquota", "audit", str(usage), "--quotas", str(quotas), "--engine", "local"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert f"{rows:,} requests read" in done.stderr, done.stderr


def _in_turns(
    meter: Meter, contenders: dict[str, Callable[[], Any]], repeat: int, *, alike: set[str]
) -> dict[str, float]:
    """Runs the contenders in turns, and prints what each cost. Returns the median CPU seconds of each.

    The contenders in `alike` must have the same answer.
    """
    print(f"{'':8}" + "".join(f"{name:>24}" for name in contenders))
    cpu: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(repeat + 1):
        line, answers = f"{'warm-up' if turn == 0 else f'run {turn}':8}", set()
        for name, work in contenders.items():
            found = measured(meter, work)
            if turn:  # the first turn warms the JVM and fills the compiler's cache
                cpu[name].append(found.cpu_s)
            if name in alike:
                answers.add(found.answer)
            line += f"{found!s:>24}"
        print(line, flush=True)
        assert len(answers) == 1, answers
    # What takes no time by the clock of processes takes less than one of its ticks.
    return {name: max(statistics.median(seconds), _TICK_S) for name, seconds in cpu.items()}


if __name__ == "__main__":
    main()
