"""A driver that loses an executor in the middle of an audit on a cluster, and a Python worker in that of the next.

    python -m tests.audit.killing MASTER FOLDER QUOTAS OUT

Kills each when the first tasks have finished, writes the findings to the folder OUT, and prints as JSON, for each of
the audits, which processes were executors then, which are at the end, and which one was killed.
"""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq

from kquota.audit.engines import spark
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import plan_splits
from kquota.core.change.history import QuotaHistory
from kquota.documents.quotas import read_quotas


def executors(application: str) -> list[psutil.Process]:
    """The executors of an application on this machine."""
    found = []
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
        except psutil.Error:
            continue
        if application in line and "org.apache.spark.executor.CoarseGrainedExecutorBackend" in line:
            found.append(process)
    return found


def python_workers(executor: psutil.Process) -> list[psutil.Process]:
    """The processes that run Python tasks: children of the daemon that the executor started."""
    return [worker for daemon in executor.children() for worker in daemon.children()]


def killer(session: Any, what: str, story: dict[str, Any], audited: threading.Event) -> None:
    """Kills an `executor` or a `worker` of one once some tasks of the session's job are done; tells in the story."""
    application = session.sparkContext.applicationId
    while not audited.is_set():
        done, known = spark.progress(session)
        present = executors(application)
        if 3 <= done < known and len(present) == 2:
            victims = present[:1] if what == "executor" else python_workers(present[0])[:1]
            if victims:
                victims[0].kill()
                story |= {"executors": [process.pid for process in present], "killed": victims[0].pid}
                return
        time.sleep(0.02)


def main() -> None:
    """Audits, kills, and tells."""
    master, folder, quotas, out = sys.argv[1:]
    session = spark.open_session(master)
    settings = AuditSettings(QuotaHistory.of(read_quotas(Path(quotas))))
    stories = {}
    for what in ("executor", "worker"):
        audited = threading.Event()
        story: dict[str, Any] = {}
        thread = threading.Thread(target=killer, args=(session, what, story, audited))
        thread.start()
        result = spark.audit(session, plan_splits([folder], "usage"), settings, folder)
        audited.set()
        thread.join()
        end = time.monotonic() + 60  # Spark starts another executor, also when the job is done before
        while len(executors(session.sparkContext.applicationId)) < 2 and time.monotonic() < end:
            time.sleep(0.1)
        story["executors after"] = [process.pid for process in executors(session.sparkContext.applicationId)]
        stories[what] = story
        pq.write_table(result.findings, Path(out) / f"{what}.parquet")
    session.stop()
    print(json.dumps(stories))


if __name__ == "__main__":
    main()
