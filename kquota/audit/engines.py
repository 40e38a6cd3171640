"""Which engine runs an audit: Spark, or this machine alone."""

from __future__ import annotations

import os
from collections.abc import Sequence

from kquota.audit.sources import Split

LOCAL_BYTES = 256 << 20
"""Up to this size of all files `auto` does without Spark: about as long as Spark takes to start."""


def under_spark_submit() -> bool:
    """Whether spark-submit started this process and has configured Spark."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def choose(engine: str, splits: Sequence[Split], master: str | None) -> str:
    """`local` or `spark`: as asked for, else (`auto`) by what Spark is there and by the size of the input."""
    if engine != "auto":
        return engine
    if master is not None or under_spark_submit():
        return "spark"
    return "local" if sum(split.size for split in splits) <= LOCAL_BYTES else "spark"
