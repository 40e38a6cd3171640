"""The audit of a usage table against the least that Spark can do with it: one groupBy over the same file.

    python -m benchmarks.audit [--rows 5000000] [--repeat 3]

Both run in one session, one after the other, in turns. Prints the CPU seconds of the whole process tree (driver, JVM,
Python workers), their ratio, and the peak resident memory. CPU seconds are what a noisy machine leaves comparable.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from benchmarks.usage import quotas, write_usage
from kquota.audit import spark as job
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import plan_splits
from kquota.core.history import QuotaHistory


def tree() -> list[psutil.Process]:
    """This process and everything it started."""
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def cpu_seconds() -> float:
    """User and system time of the tree, with that of children that have ended."""
    total = 0.0
    for process in tree():
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


class PeakMemory:
    """Samples the tree's resident memory while it is open; `java` and `python` hold the peaks in MB."""

    def __enter__(self) -> PeakMemory:
        self.java = self.python = self.worker = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def _sample(self) -> None:
        while not self._stop.wait(0.2):
            java, pythons = 0.0, [0.0]
            for process in tree():
                try:
                    size = process.memory_info().rss / 2**20
                    if process.name() == "java":
                        java += size
                    else:
                        pythons.append(size)
                except psutil.Error:
                    continue
            self.java, self.python = max(self.java, java), max(self.python, sum(pythons))
            self.worker = max(self.worker, *pythons)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def measured(work: Callable[[], Any]) -> tuple[float, float, PeakMemory]:
    """(CPU seconds, wall seconds, peak memory) of the work."""
    with PeakMemory() as memory:
        cpu, wall = cpu_seconds(), time.perf_counter()
        work()
        return cpu_seconds() - cpu, time.perf_counter() - wall, memory


def main() -> None:
    """Runs the benchmark and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "usage.parquet"
        write_usage(path, arguments.rows)
        session = job.open_session("local[2]")
        session.conf.set("spark.sql.shuffle.partitions", 8)
        settings = AuditSettings(QuotaHistory.of(quotas()))

        def baseline() -> None:
            from pyspark.sql import functions as f

            usage = session.read.parquet(str(path))
            second = (f.col("time_ms") / 1000).cast("long").alias("second")
            sums = usage.groupBy("broker", "user", "client_id", second).agg(f.sum("bytes"))
            sums.write.format("noop").mode("overwrite").save()

        def audit() -> None:
            result = job.audit(session, plan_splits([str(path)], "usage"), settings, "usage")
            assert result.quality.events == arguments.rows

        print(f"{arguments.rows} rows, {path.stat().st_size / 2**20:.0f} MB of Parquet, local[2]")
        headings = f"{'groupBy CPU s':>14} {'audit CPU s':>12} {'ratio':>6} {'wall s':>14}"
        print(f"{'':8} {headings} {'JVM MB':>7} {'worker MB':>10}")
        ratios = []
        for turn in range(arguments.repeat + 1):
            base, audited = measured(baseline), measured(audit)
            ratio = audited[0] / base[0]
            if turn:  # the first turn warms the JVM and fills the compiler's cache
                ratios.append(ratio)
            memory = audited[2]
            print(
                f"{'warm-up' if turn == 0 else f'run {turn}':8} {base[0]:14.1f} {audited[0]:12.1f} {ratio:6.2f}"
                f" {base[1]:6.1f}/{audited[1]:.1f} {memory.java:9.0f} {memory.worker:10.0f}"
            )
        print(f"median ratio of CPU seconds, audit / groupBy: {statistics.median(ratios):.2f}")
        session.stop()


if __name__ == "__main__":
    main()
