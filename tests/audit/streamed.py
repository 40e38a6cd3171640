"""Usage that comes in files, one in a micro-batch, and the audit of it as a stream on Spark."""

import os
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kquota.audit.follow.frames import AuditStream, audit_frames
from kquota.audit.settings import AuditSettings
from kquota.core.change.history import QuotaHistory
from tests.audit import oracle, recorded
from tests.audit.test_job import QUOTAS, many_events

NOW: Final = {"availableNow": True}
GENERATED: Final = "generated"
SETTINGS: Final = {GENERATED: AuditSettings(QuotaHistory.of(QUOTAS))} | {
    each.name: AuditSettings(each.history) for each in recorded.RECORDINGS
}
"""The settings for each usage, by its name: generated usage, or the name of a recording."""
FILES: Final = 4


def write(name: str, folder: Path) -> Path:
    """Writes that usage in the order of time, as FILES files in a folder of this name; returns that folder."""
    (whole,) = [recorded.usage_of(each) for each in recorded.RECORDINGS if each.name == name] or [_generated()]
    whole = whole.sort_by("time_ms")
    rows = -(-len(whole) // FILES)
    place = folder / name
    place.mkdir()
    for number in range(FILES):
        path = place / f"{number}.parquet"
        pq.write_table(whole.slice(number * rows, rows), path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return place


def _generated() -> pa.Table:
    return oracle.usage_table(many_events())


def stream(spark: Any, usage: Path, folder: Path, files: int, **how: Any) -> AuditStream:
    """Streams the files that `write` wrote, so many in a batch, until all are read."""
    frame = spark.readStream.schema(spark.read.parquet(str(usage)).schema)
    frame = frame.option("maxFilesPerTrigger", files).parquet(str(usage))
    stream = audit_frames(frame, SETTINGS[usage.name], folder, trigger=NOW, **how)
    stream.query.awaitTermination()
    return stream
