"""A driver that loses an executor in the middle of a stream on a cluster.

    python -m tests.audit.stream_killing MASTER FOLDER CHECKPOINT

Prints as JSON whether one was killed, how many batches there were, and whether the findings are those of the batch
audit.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from kquota.audit import spark as job
from kquota.audit.stream.frames import audit_frames
from tests.audit.killing import executors
from tests.audit.test_stream import NOW, SETTINGS


def main() -> None:
    """Streams, kills, compares."""
    master, folder, checkpoint = sys.argv[1:]
    session = job.open_session(master)
    session.conf.set("spark.sql.shuffle.partitions", 2)
    batch = session.read.parquet(folder)
    killed: list[int] = []

    def kill_once(_: object) -> None:
        if not killed:
            victim = executors(session.sparkContext.applicationId)[0]
            victim.kill()
            killed.append(victim.pid)

    frame = session.readStream.schema(batch.schema).option("maxFilesPerTrigger", 1).parquet(folder)
    stream = audit_frames(frame, SETTINGS, Path(checkpoint), trigger=NOW, on_episodes=kill_once)
    stream.query.awaitTermination()
    found, expected = stream.findings(), job.audit_dataframe(batch, SETTINGS)
    equal = found.findings.equals(expected.findings) and found.quality == expected.quality
    batches = len(list((Path(checkpoint) / "kquota" / "packed").glob("*/_SUCCESS")))
    session.stop()
    print(json.dumps({"killed": bool(killed), "equal": equal, "batches": batches}))


if __name__ == "__main__":
    main()
