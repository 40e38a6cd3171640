"""Java's classes, loaded and verified once for all tests: `python -m tests.support.archives` writes archives of them.

A JVM that finds the archive of its class path takes half the CPU time to start (JEP 350). Without an archive, or with
one of other jars, it starts as always.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyspark

from tests.brokers.kafka import NAME, KafkaBroker
from tests.support.processes import ARCHIVES, QUICK_SPARK, SPARK, writes_archive

_WORK = Path(__file__).with_name("spark_work.py")


class _Patient(KafkaBroker):
    """A broker that has the time to write its archive when it ends."""

    _patience_s = 240


def _write_kafka() -> None:
    with _Patient(jvm_flags=writes_archive(NAME)):
        pass


def _write_spark() -> None:
    """A JVM of spark-submit ends after its script, so the archive is complete when spark-submit is."""
    options = " ".join((QUICK_SPARK["SPARK_SUBMIT_OPTS"], *writes_archive(SPARK)))
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[1]", str(_WORK)]
    own = {**QUICK_SPARK, "SPARK_SUBMIT_OPTS": options, "SPARK_LOCAL_IP": "127.0.0.1"}
    subprocess.run(submit, env=os.environ | own, check=True, capture_output=True)


def main() -> None:
    """Writes the archives that are missing."""
    ARCHIVES.mkdir(parents=True, exist_ok=True)
    for name, write in ((NAME, _write_kafka), (SPARK, _write_spark)):
        if not (ARCHIVES / f"{name}.jsa").exists():
            write()


if __name__ == "__main__":
    main()
