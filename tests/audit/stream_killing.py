"""A driver that loses an executor in the middle of each of some streams on a cluster.

    python -m tests.audit.stream_killing MASTER CHECKPOINTS FOLDER...

The folders are those of `tests.audit.streamed`. Prints as JSON, by the name of each folder, whether an executor was
killed, how many batches and throttles there were, and whether the findings are those of the batch audit.
"""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from kquota.audit.engines import spark as job
from tests.audit import streamed
from tests.audit.killing import executors


def kill_once(session: Any, killed: list[psutil.Process], _: object) -> None:
    """Kills an executor of the session, unless one was killed."""
    if not killed:
        killed += executors(session.sparkContext.applicationId)[:1]
        killed[0].kill()


def main() -> None:
    master, checkpoints, *folders = sys.argv[1:]
    session = job.open_session(master)
    stories = {}
    for usage in map(Path, folders):
        killed: list[psutil.Process] = []
        kept = Path(checkpoints) / usage.name
        found = streamed.stream(session, usage, kept, 1, on_episodes=partial(kill_once, session, killed)).findings()
        expected = job.audit_dataframe(session.read.parquet(str(usage)), streamed.SETTINGS[usage.name])
        stories[usage.name] = {
            "killed": bool(killed),
            "equal": found.findings.equals(expected.findings) and found.quality == expected.quality,
            "batches": len(list((kept / "kquota" / "packed").glob("*/_SUCCESS"))),
            "throttled": found.throttled,
        }
    session.stop()
    print(json.dumps(stories))


if __name__ == "__main__":
    main()
