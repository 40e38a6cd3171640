"""Java's classes, loaded and verified once for all tests: `python -m tests.support.archives` writes archives of them.

A JVM that finds the archive of its class path takes half the CPU time to start (JEP 350). Without an archive, or with
one of other jars, it starts as always.
"""

import os
import subprocess
import sys
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
    own = {"SPARK_SUBMIT_OPTS": options, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    subprocess.run(submit, env={**os.environ, **QUICK_SPARK, **own}, check=True, capture_output=True)


def main() -> None:
    """Writes the archives that are missing. Tests pass without them, so a failure is only reported."""
    ARCHIVES.mkdir(parents=True, exist_ok=True)
    for name, write in ((NAME, _write_kafka), (SPARK, _write_spark)):
        if not (ARCHIVES / f"{name}.jsa").exists():
            try:
                write()
            except (RuntimeError, OSError, subprocess.CalledProcessError) as problem:
                said = getattr(problem, "stderr", None) or b""
                print(f"no archive of classes for {name}: {problem}\n{said.decode()[-2000:]}", file=sys.stderr)


if __name__ == "__main__":
    main()
