"""Which engine runs an audit: Spark, or this machine alone."""

import os
from collections.abc import Sequence

from kquota.audit.sources import Split

LOCAL_BYTES = 2 << 30
"""Up to this size of all files `auto` does without Spark, which on one machine costs more at any size measured.

`benchmarks.audit`: half the CPU time for 50 million rows (300 MB); 200 million took 24 seconds and 1 GB on two cores.
"""
DRIVER_BYTES = 8 << 20
"""Up to this size of all files, `auto` does without executors under spark-submit, too.

The driver has read the beginning of each file by then. 300 rows cost 28 seconds of processor time with executors, and
10 without: most of these are the JVM of spark-submit itself.
"""


def under_spark_submit() -> bool:
    """Whether spark-submit started this process and has configured Spark."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def choose(engine: str, splits: Sequence[Split], master: str | None) -> str:
    """`local` or `spark`: as asked for, else (`auto`) by what Spark is there and by the size of the input."""
    if engine != "auto":
        return engine
    # YARN takes a driver on the cluster that never started Spark for one that failed.
    if master is not None or "SPARK_YARN_STAGING_DIR" in os.environ:
        return "spark"
    most = DRIVER_BYTES if under_spark_submit() else LOCAL_BYTES
    return "local" if sum(split.size for split in splits) <= most else "spark"
