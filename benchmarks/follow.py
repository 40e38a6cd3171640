"""`kquota follow` of a request log against the batch audit of the same log, in one process each.

    python -m benchmarks.follow [--lines 200000] [--turn 20000] [--users 200] [--repeat 3]
    python -m benchmarks.follow --latency 5000 [--users 200]

The log comes in turns of so many lines. Both make the same findings, which is checked, with predictions and without.
CPU seconds are what a noisy machine leaves comparable. Also printed: CPU of a line, what the turns alone cost, the
bytes of the counters' state, and the bytes of the spool. Each user has two counters.

With --latency, a log grows by so many lines a second for twenty seconds. Printed is the time from the first delay of an
episode, when its line is written, to the line that `kquota follow` prints of it.
"""

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from benchmarks.request_log import QUOTAS, line, write_log
from kquota.audit.engines import local
from kquota.audit.engines.portable import encode
from kquota.audit.follow.follow import Follower
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, plan_splits
from kquota.core.change.history import QuotaHistory
from kquota.documents.encoding import to_json
from kquota.documents.quotas import quotas_document

_STARTS_S: Final = 120.0
"""So long kquota has to start."""
_GROWS_S: Final = 20.0


class Ran(NamedTuple):
    """What following a log cost."""

    turns_s: float
    whole_s: float
    counters: int
    state_bytes: int
    spool_bytes: int
    result: AuditResult


def follow(lines: list[bytes], settings: AuditSettings, turn: int) -> Ran:
    """Follows a log that grows by so many lines a turn; writing it does not count."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "kafka-request.log"
        follower, spent = Follower([str(log)], settings), 0.0
        for start in range(0, len(lines), turn):
            with open(log, "ab") as file:
                file.writelines(lines[start : start + turn])
            begun = time.process_time()
            follower.turn()
            spent += time.process_time() - begun
        begun = time.process_time()
        follower.end()
        result = follower.result("log")
        whole = spent + time.process_time() - begun
        states = [*follower._counters.values()]
        counters, size = sum(len(state.refs) for state in states), sum(len(encode(state.kept())) for state in states)
        spool = follower._spool.size
        follower.close()
    return Ran(spent, whole, counters, size, spool, result)


def latencies(rate: int, users: int, settle: str) -> tuple[list[float], int]:
    """(seconds from a line to its episode in order, lines that were written) of a log that grows for a while."""
    random, found, started = Random(5), list[tuple[float, float]](), threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        log, quotas = Path(folder) / "kafka-request.log", Path(folder) / "quotas.json"
        # Of a minute ago, so that an episode says that kquota has started.
        first = (line(number, int(time.time() * 1000) - 60_000 + 2 * number, random, 3) for number in range(15_000))
        log.write_text("".join(first))
        quotas.write_text(to_json(quotas_document(QUOTAS)))
        command = [sys.executable, "-m", "kquota", "follow", str(log), "--broker", "1", "--quotas", str(quotas)]
        command += ["--settle", settle, "-o", "json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            lines = process.stdout

            def listen() -> None:
                for text in lines:
                    episode = json.loads(text)
                    if episode["kind"] == "kquota.episode" and episode["state"] == "began":
                        started.set()
                        found.append((episode["begin_ms"] / 1000, time.time()))

            listening = threading.Thread(target=listen)
            listening.start()
            started.wait(_STARTS_S)
            begun, number = time.time(), 0
            with open(log, "a", encoding="utf-8", buffering=1 << 16) as file:
                while (now := time.time()) < begun + _GROWS_S:
                    # A machine that makes lines more slowly writes fewer of them.
                    for _ in range(min(int(rate * (now - begun)) - number, rate // 10)):
                        file.write(line(number, int(time.time() * 1000), random, users))
                        number += 1
                    file.flush()
                    time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            listening.join()
    return sorted(printed - began for began, printed in found if began >= begun), number


def show_latencies(rate: int, users: int) -> None:
    """Measures and prints latencies with the settle time as it is, and without."""
    for settle in ("500ms", "0s"):
        found, written = latencies(rate, users, settle)
        print(
            f"{rate:,} lines/s asked for, {written / _GROWS_S:,.0f} written, --settle {settle}: {len(found)} episodes"
        )
        if found:
            places = (len(found) // 2, len(found) * 95 // 100, -1)
            half, most, longest = (found[place] for place in places)
            print(f"  from line to episode: median {half:.2f} s, 95 % {most:.2f} s, longest {longest:.2f} s")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--turn", type=int, default=20_000)
    parser.add_argument("--users", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--latency", type=int, metavar="LINES/S")
    asked = parser.parse_args()
    if asked.latency is not None:
        show_latencies(asked.latency, asked.users)
        return
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "kafka-request.log"
        write_log(log, asked.lines, users=asked.users)
        with open(log, "rb") as file:
            lines = file.readlines()
        for predicts in (True, False):
            settings = AuditSettings(QuotaHistory.of(QUOTAS), predicts=predicts, read=ReadSettings(broker="1"))
            batch: list[float] = []
            runs: list[Ran] = []
            follow(lines[:2000], settings, 1000)  # compiles, or loads what was compiled
            for _ in range(asked.repeat):
                begun = time.process_time()
                expected = local.audit(plan_splits([str(log)], "auto"), settings, "log", processes=1)
                batch.append(time.process_time() - begun)
                runs.append(follow(lines, replace(settings), asked.turn))
                assert runs[-1].result.findings.equals(expected.findings)
            least = statistics.median(batch)
            whole, turns = (
                statistics.median(each) for each in zip(*((run.whole_s, run.turns_s) for run in runs), strict=True)
            )
            ran = runs[-1]
            print(f"{asked.lines:,} lines in turns of {asked.turn:,}, predictions {'on' if predicts else 'off'}")
            print(f"  batch audit       {least:6.2f} s CPU  {1e6 * least / asked.lines:5.1f} us a line")
            print(
                f"  follow            {whole:6.2f} s CPU  {1e6 * whole / asked.lines:5.1f} us a line,"
                f" ratio {whole / least:.2f}"
            )
            print(f"  of it the turns   {turns:6.2f} s CPU  {1e6 * turns / asked.lines:5.1f} us a line")
            print(
                f"  state             {ran.state_bytes / max(ran.counters, 1):6.0f} bytes a counter ({ran.counters:,})"
            )
            print(f"  spool             {ran.spool_bytes / asked.lines:6.1f} bytes a line")


if __name__ == "__main__":
    main()
