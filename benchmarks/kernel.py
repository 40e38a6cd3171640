"""The enforcement kernel, compiled and plain, against Kafka's own `Sensor.record` in a warmed-up JVM.

    python -m benchmarks.kernel [--events 5000000] [--plain-events 300000] [--repeat 5]

One sequence of produce requests of one counter (0 to 2 ms apart, 1 to 2000 bytes) goes through all three, on one core,
in turns, under quotas that throttle none, about half and all of it, in both generations; plain Python gets the first
part of it. Kafka's side is the real classes: record, check, and the delay of a violation, without finding the sensor.
The delays of all three are compared event by event. Times are CPU time; the best of the repeats counts.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kquota.core.enforcement import Generation, Kernel, Mode, QuotaWindows, kernel
from kquota.core.enforcement.kind import PRODUCE
from kquota.core.enforcement.replay import Events
from tests.differential.oracle import RELEASES, kafka_classes

SOURCE = Path(__file__).with_name("SensorRecord.java")
QUOTAS = (2_000_000, 1_000_000, 500_000)
"""In bytes per second; the sequence has about a million."""
START = 1_700_000_000_000


class Kafka:
    """The JVM with Kafka's sensor; the events are there already."""

    def __init__(self, process: subprocess.Popen[str], delays: Path, errors: Path) -> None:
        self._process, self._delays, self._errors = process, delays, errors

    def run(self, windows: QuotaWindows, quota: int) -> tuple[float, Any]:
        """(CPU seconds, delays) of the whole sequence."""
        assert self._process.stdin is not None
        print(windows.samples, windows.window_ms, float(quota), file=self._process.stdin, flush=True)
        seconds = int(self._answer()) / 1e9
        assert self._answer() == "written"
        return seconds, np.fromfile(self._delays, dtype="<i8")

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._errors.read_text()
        return line.strip()


@contextlib.contextmanager
def started(generation: Generation, times: Any, sizes: Any) -> Iterator[Kafka]:
    """Kafka's classes of that generation in a JVM."""
    java = shutil.which("java")
    assert java is not None, "java is not on PATH"
    with tempfile.TemporaryDirectory() as folder:
        events, delays, errors = (Path(folder, name) for name in ("events", "delays", "errors"))
        np.concatenate([times, sizes]).astype("<i8").tofile(events)
        command = [java, "-Xmx2g", "-XX:+UseSerialGC", "-cp", kafka_classes(generation), str(SOURCE)]
        with (
            errors.open("w") as complaints,
            subprocess.Popen(
                [*command, str(events), str(delays)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
            ) as process,
        ):
            try:
                yield Kafka(process, delays, errors)
            finally:
                assert process.stdin is not None
                process.stdin.close()


def replay(using: Kernel, generation: Generation, windows: QuotaWindows, quota: int, times: Any, sizes: Any) -> Any:
    """(CPU seconds, delays) of the kernel; its columns are ready, as the audit has them."""
    column, delays = using.column, using.column(times * 0, "int64")
    events = Events(
        column([0], "int64"),
        column([PRODUCE], "int8"),
        column([float(quota)], "float64"),
        column([0, len(times)], "int64"),
        column(times, "int64"),
        column(sizes, "float64"),
    )
    counters, out = using.new_counters(1, windows, generation), using.new_summaries(1)
    every = column([], "bool"), column([], "float64")
    met = column(times * 0.0, "float64"), column(times < 0, "bool")
    started_at = time.thread_time()
    using.replay_many(counters, events, out, *every, delays, *met)
    return time.thread_time() - started_at, np.asarray(delays)


def main() -> None:
    """Runs the benchmark and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--plain-events", type=int, default=300_000)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()

    if hasattr(os, "sched_setaffinity"):  # Linux
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    chance = np.random.default_rng(20)
    times = START + np.cumsum(chance.integers(0, 3, arguments.events))
    sizes = chance.integers(1, 2001, arguments.events)
    windows, part = QuotaWindows(), min(arguments.plain_events, arguments.events)
    compiled, plain = kernel(Mode.COMPILED), kernel(Mode.PLAIN)

    print(f"{arguments.events} produce requests, one core; million events a second of CPU time, best of the repeats")
    print(
        f"{'':24} {'throttled':>9} {'Kafka':>7} {'compiled':>9} {'plain':>7} {'compiled/Kafka':>15} {'plain/Kafka':>12}"
    )
    for generation, release in RELEASES.items():
        with started(generation, times, sizes) as kafka:
            for quota in QUOTAS * 2:  # warm-up
                kafka.run(windows, quota)
                replay(compiled, generation, windows, quota, times[:part], sizes[:part])
            for quota in QUOTAS:
                best = {"kafka": 0.0, "compiled": 0.0, "plain": 0.0}
                for _ in range(arguments.repeat):
                    seconds, answers = kafka.run(windows, quota)
                    best["kafka"] = max(best["kafka"], len(times) / seconds)
                    seconds, delays = replay(compiled, generation, windows, quota, times, sizes)
                    best["compiled"] = max(best["compiled"], len(times) / seconds)
                    assert np.array_equal(delays, answers), "the compiled kernel differs from Kafka"
                    seconds, delays = replay(plain, generation, windows, quota, times[:part], sizes[:part])
                    best["plain"] = max(best["plain"], part / seconds)
                    assert np.array_equal(delays, answers[:part]), "the plain kernel differs from Kafka"
                rates = " ".join(
                    f"{best[name] / 1e6:{width}.2f}" for name, width in (("kafka", 7), ("compiled", 9), ("plain", 7))
                )
                ratios = f"{best['compiled'] / best['kafka']:15.1f} {best['plain'] / best['kafka']:12.2f}"
                print(f"{f'{quota} B/s, {release}':24} {np.mean(answers > 0):9.0%} {rates} {ratios}", flush=True)


if __name__ == "__main__":
    main()
