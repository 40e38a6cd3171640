"""Spark Structured Streaming: whatever the batches and the kills, the findings are those of the batch audit."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kquota.audit import spark as job
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.stream.follow import Follower
from kquota.audit.stream.frames import AuditStream, audit_frames
from kquota.core.change.history import QuotaHistory
from kquota.core.findings.episode import Episode
from kquota.errors import InputError, Refused
from tests.audit import oracle
from tests.audit.cluster import SparkCluster
from tests.audit.test_job import QUOTAS, many_events

ROOT = Path(__file__).parents[2]
SETTINGS = AuditSettings(QuotaHistory.of(QUOTAS))
NOW = {"availableNow": True}


@pytest.fixture(scope="module")
def usage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files that come one in a batch, in the order of time."""
    folder = tmp_path_factory.mktemp("usage")
    table = oracle.usage_table(sorted(many_events(), key=lambda event: event.time_ms))
    rows = -(-len(table) // 4)
    for number in range(4):
        path = folder / f"{number}.parquet"
        pq.write_table(table.slice(number * rows, rows), path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return folder


def streamed(spark: Any, usage: Path, folder: Path, files: int, **how: Any) -> AuditStream:
    """Streams the files of the folder until all are read."""
    frame = spark.readStream.schema(spark.read.parquet(str(usage)).schema)
    frame = frame.option("maxFilesPerTrigger", files).parquet(str(usage))
    stream = audit_frames(frame, SETTINGS, folder, trigger=NOW, **how)
    stream.query.awaitTermination()
    return stream


def same(found: AuditResult, expected: AuditResult) -> None:
    assert found.findings.equals(expected.findings)
    assert found.quality == expected.quality
    assert found.quotas == expected.quotas
    assert found.predictions == expected.predictions


@pytest.fixture(autouse=True)
def few_partitions(spark: Any) -> Iterator[None]:
    """So little data needs no more."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


def test_a_stream_that_breaks_between_state_and_commit(spark: Any, usage: Path, tmp_path: Path) -> None:
    """It goes on with other batches; each episode has the content that one pass over the files gives."""
    seen: list[Episode] = []

    def break_once(episodes: Sequence[Episode]) -> None:
        seen.extend(episodes)
        if not (tmp_path / "broken").exists():
            (tmp_path / "broken").touch()
            raise OSError("the driver is gone")

    with contextlib.suppress(Exception):
        streamed(spark, usage, tmp_path / "kept", 1, on_episodes=break_once)
    assert (tmp_path / "broken").exists()
    stream = streamed(spark, usage, tmp_path / "kept", 2, on_episodes=break_once)
    found = stream.findings()

    same(found, job.audit_dataframe(spark.read.parquet(str(usage)), SETTINGS))
    assert found.throttled
    assert not any(stream.late_of.values())
    follower = Follower([str(usage)], AuditSettings(QuotaHistory.of(QUOTAS), ordered=False))
    follower.turn()
    local = follower.turn().episodes
    follower.close()
    assert {(each.name, each.state): each for each in seen} == {(each.name, each.state): each for each in local}
    assert len(list((tmp_path / "kept" / "kquota" / "state").glob("*/*"))) <= 2 * len({e.broker for e in local})


def test_a_folder_of_another_audit(spark: Any, usage: Path, tmp_path: Path) -> None:
    streamed(spark, usage, tmp_path, 4)
    frame = spark.readStream.schema(spark.read.parquet(str(usage)).schema).parquet(str(usage))
    with pytest.raises(Refused, match="other settle time"):
        audit_frames(frame, SETTINGS, tmp_path, settle_ms=7)
    with pytest.raises(InputError, match="column bytes is missing"):
        audit_frames(frame.drop("bytes"), SETTINGS, tmp_path)


def test_an_executor_is_killed_on_a_cluster(cluster: SparkCluster, usage: Path, tmp_path: Path) -> None:
    """The same findings as in one go, with one executor lost in the middle."""
    command = [sys.executable, "-m", "tests.audit.stream_killing", cluster.master, str(usage), str(tmp_path)]
    environment = cluster.environment | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    story = json.loads(done.stdout.splitlines()[-1])
    assert story == {"killed": True, "equal": True, "batches": 4}
