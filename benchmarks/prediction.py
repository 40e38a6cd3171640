"""The cost of predictions: the same audit with and without them, in turns, in one process.

    python -m benchmarks.prediction [LOG --quotas FILE] [--rows 1000000] [--repeat 3]

Without a log it is a usage table with connections, of which more than half of the counters are throttled. Prints CPU
seconds of each and their ratio, which should be at most 1.5. The first round is not counted: it loads what is compiled.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kquota.audit.engines import local
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import plan_splits
from kquota.core.change.history import QuotaHistory
from kquota.core.quotas.entity import DEFAULT, Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.inputs import history_of

USERS, SECONDS, SIZE = 200, 600, 1000
START_MS = 1_773_219_600_000


def write_rows(path: Path, rows: int) -> QuotaHistory:
    """Paced producers of even and odd sizes; returns a limit that is below the rate of the largest tenth."""
    draws = np.random.default_rng(1)
    users = draws.integers(0, USERS, rows)
    names = np.char.add("user-", users.astype(str))
    table = pa.table(
        {
            "time_ms": np.sort(START_MS + draws.integers(0, 1000 * SECONDS, rows)),
            "user": names,
            "client_id": pa.array(["app"] * rows),
            "api": pa.array(["produce"] * rows),
            "bytes": (SIZE * (1 + users / USERS)).astype(np.int64),
            "connection": names,
        }
    )
    pq.write_table(table, path)
    mean = rows / USERS / SECONDS * SIZE
    return QuotaHistory.of(QuotaSnapshot({Entity(user=DEFAULT): {QuotaKey.PRODUCER_BYTE_RATE: int(1.9 * mean)}}))


def cpu_seconds(paths: Sequence[str], settings: AuditSettings) -> float:
    """Of one audit in this process."""
    begun = time.process_time()
    local.audit(plan_splits(paths, "auto"), settings, "the usage", processes=1)
    return time.process_time() - begun


def main() -> None:
    """Runs the benchmark and prints a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", nargs="?", type=Path)
    parser.add_argument("--quotas", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.log is None:
            path = Path(folder) / "usage.parquet"
            quotas = write_rows(path, options.rows)
        else:
            path, quotas = options.log, history_of(options.quotas)
        taken: dict[bool, list[float]] = {False: [], True: []}
        for number in range(options.repeat + 1):
            for predicts in taken:
                seconds = cpu_seconds([str(path)], AuditSettings(quotas, predicts=predicts))
                if number:
                    taken[predicts].append(seconds)
        without, with_ = (statistics.median(taken[predicts]) for predicts in (False, True))
    print(f"without predictions {without:.2f} s, with them {with_:.2f} s: {with_ / without:.2f} times")


if __name__ == "__main__":
    main()
