"""Spark Structured Streaming: whatever the batches and the kills, the findings are those of the batch audit."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kquota.audit.engines import spark as job
from kquota.audit.follow.follow import Follower
from kquota.audit.follow.frames import audit_frames
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.core.change.history import QuotaHistory
from kquota.core.findings.finding import Episode
from kquota.errors import InputError, Refused
from tests.audit import streamed
from tests.audit.test_job import QUOTAS


@pytest.fixture(scope="module")
def usage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files that come one in a batch, in the order of time."""
    return streamed.write(streamed.GENERATED, tmp_path_factory.mktemp("usage"))


def same(found: AuditResult, expected: AuditResult) -> None:
    assert found.findings.equals(expected.findings)
    assert found.quality == expected.quality
    assert found.quotas == expected.quotas
    assert found.predictions == expected.predictions


def test_a_stream_that_breaks_between_state_and_commit(spark: Any, usage: Path, tmp_path: Path) -> None:
    """It goes on with other batches; each episode has the content that one pass over the files gives."""
    seen: list[Episode] = []

    def break_once(episodes: Sequence[Episode]) -> None:
        seen.extend(episodes)
        if not (tmp_path / "broken").exists():
            (tmp_path / "broken").touch()
            raise OSError("the driver is gone")

    with contextlib.suppress(Exception):
        streamed.stream(spark, usage, tmp_path / "kept", 1, on_episodes=break_once)
    assert (tmp_path / "broken").exists()
    stream = streamed.stream(spark, usage, tmp_path / "kept", 2, on_episodes=break_once)
    found = stream.findings()

    same(found, job.audit_dataframe(spark.read.parquet(str(usage)), streamed.SETTINGS[streamed.GENERATED]))
    assert found.throttled
    assert not any(stream.late_of.values())
    follower = Follower([str(usage)], AuditSettings(QuotaHistory.of(QUOTAS), ordered=False))
    follower.turn()
    local = follower.turn().episodes
    follower.close()
    assert {(each.name, each.state): each for each in seen} == {(each.name, each.state): each for each in local}
    assert len(list((tmp_path / "kept" / "kquota" / "state").glob("*/*"))) <= 2 * len({e.broker for e in local})


def test_a_folder_of_another_audit(spark: Any, usage: Path, tmp_path: Path) -> None:
    streamed.stream(spark, usage, tmp_path, 4)
    frame = spark.readStream.schema(spark.read.parquet(str(usage)).schema).parquet(str(usage))
    with pytest.raises(Refused, match="other settle time"):
        audit_frames(frame, streamed.SETTINGS[streamed.GENERATED], tmp_path, settle_ms=7)
    with pytest.raises(InputError, match="column bytes is missing"):
        audit_frames(frame.drop("bytes"), streamed.SETTINGS[streamed.GENERATED], tmp_path)


@pytest.mark.parametrize("name", ["one", "3.9.1"])
def test_recorded_logs(spark: Any, tmp_path: Path, name: str) -> None:
    """What brokers logged, with fetches of unknown size, and several brokers side by side."""
    usage = streamed.write(name, tmp_path)
    stream = streamed.stream(spark, usage, tmp_path / "kept", 1)
    found = stream.findings()

    same(found, job.audit_dataframe(spark.read.parquet(str(usage)), streamed.SETTINGS[name]))
    assert found.throttled
    assert not any(stream.late_of.values())
    assert len(list((tmp_path / "kept" / "kquota" / "packed").glob("*/_SUCCESS"))) == streamed.FILES
