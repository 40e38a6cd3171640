"""The recorded request log of a real broker, and the audit of it in one process."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pyarrow as pa

from kquota.audit import sources
from kquota.audit.batch import Batch, Tally
from kquota.audit.findings import ordered
from kquota.audit.pack import Packer
from kquota.audit.replay import find
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, plan_splits
from kquota.core.enforcement.generation import Generation
from kquota.core.history import QuotaHistory
from kquota.documents.quotas import read_quotas
from tests.brokers import accuracy

FOLDER = Path(__file__).parents[1] / "data" / "request_log"
LOG = FOLDER / "kafka-request.log.gz"
QUOTAS = FOLDER / "quotas.json"


@cache
def findings() -> pa.Table:
    """What the audit finds in the recorded log, under the quotas that were in force."""
    return audit(LOG, QUOTAS)


def audit(log: Path, quotas: Path, generation: Generation = Generation.N_PLUS_1_BY_LAST) -> pa.Table:
    """What the audit finds in a request log, in one process."""
    settings = AuditSettings(QuotaHistory.of(read_quotas(quotas)), generation, read=ReadSettings(broker="1"))
    packer, segments = Packer(settings.quotas, 1), []
    for number, split in enumerate(plan_splits([str(log)], "request-log")):
        for part, batch in enumerate(sources.read(split, settings.read, Tally())):
            assert isinstance(batch, Batch)
            segments += [segment for _, segment in packer.pack(batch, (number, part))]
    return ordered(find(segments, settings))


@cache
def by_throttle() -> dict[tuple[str, str], accuracy.Accuracy]:
    """Recall and precision of single throttles by (key, sensor), from the replay in `tests.brokers.accuracy`."""
    measured = accuracy.measure(accuracy.read_events(LOG), read_quotas(QUOTAS))
    return {
        (accuracy.KEYS[row.api].value, str(row.sensor)): row
        for row in measured
        if row.api == "produce" or not row.open_loop
    }


def accuracy_table() -> str:
    """Per throttled counter, the audit beside the broker itself, as a Markdown table."""
    lines = [
        "| counter | quota | limit, bytes/s | requests | throttled: broker | audit | total ms: broker | audit "
        "| ratio | recall | precision |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in findings().to_pylist():
        if not row["logged_throttled_events"] or row["verdict"] == "undetermined":
            continue
        single = by_throttle()[row["key"], row["sensor"]]
        lines.append(
            f"| `{row['sensor']}` | {row['key']} | {row['limit']:.0f} | {row['events']}"
            f" | {row['logged_throttled_events']} | {row['throttled_events']}"
            f" | {row['logged_throttle_time_ms']} | {row['throttle_time_ms']}"
            f" | {row['throttle_time_ms'] / row['logged_throttle_time_ms']:.3f}"
            f" | {100 * single.notable_recall:.1f} % | {100 * single.notable_precision:.1f} % |"
        )
    return "\n".join(lines) + "\n"
