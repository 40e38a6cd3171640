"""`audit --follow` of a request log against the batch audit of the same log, in one process each.

    python -m benchmarks.follow [--lines 200000] [--turn 20000] [--repeat 3]

The log comes in turns of so many lines. Both make the same findings, which is checked, with predictions and without.
CPU seconds are what a noisy machine leaves comparable. Also printed: CPU of a line, what the turns alone cost, the
bytes of the counters' state, and the bytes of the spool.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from benchmarks.request_log import QUOTAS, write_log
from kquota.audit import local
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, plan_splits
from kquota.audit.stream.follow import Follower
from kquota.core.change.history import QuotaHistory


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
        counters, size = follower.state_bytes()
        spool = follower.spool_bytes
        follower.close()
    return Ran(spent, whole, counters, size, spool, result)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=200_000)
    parser.add_argument("--turn", type=int, default=20_000)
    parser.add_argument("--repeat", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "kafka-request.log"
        write_log(log, asked.lines)
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
                f"  --follow          {whole:6.2f} s CPU  {1e6 * whole / asked.lines:5.1f} us a line,"
                f" ratio {whole / least:.2f}"
            )
            print(f"  of it the turns   {turns:6.2f} s CPU  {1e6 * turns / asked.lines:5.1f} us a line")
            print(
                f"  state             {ran.state_bytes / max(ran.counters, 1):6.0f} bytes a counter ({ran.counters:,})"
            )
            print(f"  spool             {ran.spool_bytes / asked.lines:6.1f} bytes a line")


if __name__ == "__main__":
    main()
