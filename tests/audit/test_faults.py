"""What happens to an audit when a part of it is lost: it finishes with the same findings, or says why in a line."""

import contextlib
import json
import resource
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from kquota.audit.engines import local
from kquota.audit.engines import spark as job
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import plan_splits
from kquota.core.change.history import QuotaHistory
from kquota.documents.quotas import read_quotas
from kquota.errors import InputError, MissingDependency, Unreachable
from tests.audit import oracle, streamed
from tests.audit.cluster import SparkCluster
from tests.audit.test_cluster import QUOTAS
from tests.audit.test_job import many_events
from tests.audit.usage_files import write_table
from tests.support.processes import ran


@pytest.fixture
def usage(tmp_path: Path) -> Path:
    """A folder of twelve files."""
    (tmp_path / "usage").mkdir()
    (tmp_path / "quotas.yaml").write_text(QUOTAS)
    oracle.write_files(many_events(), tmp_path / "usage", 12)
    return tmp_path / "usage"


@pytest.fixture
def audit_settings(usage: Path) -> AuditSettings:
    """Those of the quotas beside it."""
    return AuditSettings(QuotaHistory.of(read_quotas(usage.parent / "quotas.yaml")))


def test_an_executor_is_killed_in_the_middle(
    cluster: SparkCluster, usage: Path, audit_settings: AuditSettings, tmp_path: Path
) -> None:
    """With what it had packed already; then one of its Python processes: another one does the work again."""
    for file in usage.glob("*.parquet"):
        file.unlink()
    packed = write_table(oracle.usage_table(many_events() * 4), usage.parent / "usage.jsonl.gz")
    for number in range(24):
        shutil.copy(packed, usage / f"{number:04}.jsonl.gz")

    killing = [sys.executable, "-m", "tests.audit.killing", cluster.master, usage, tmp_path / "quotas.yaml", tmp_path]
    done = ran(killing, environment=cluster.environment)

    assert done.returncode == 0, done.stderr[-3000:]
    stories = json.loads(done.stdout)
    expected = local.audit(plan_splits([str(usage)], "usage"), audit_settings, "usage", processes=1)
    assert expected.throttled
    for what, story in stories.items():
        before, after = set(story["executors"]), set(story["executors after"])
        assert len(before) == len(after) == 2
        assert len(after - before) == (1 if what == "executor" else 0)
        assert (story["killed"] in before) == (what == "executor")
        assert story["killed"] not in after
        assert pq.read_table(tmp_path / f"{what}.parquet").equals(expected.findings)


def test_an_executor_is_killed_in_the_middle_of_a_stream(cluster: SparkCluster, tmp_path: Path) -> None:
    """Of generated usage, and of what two brokers and a controller logged: the findings are those of one go."""
    names = (streamed.GENERATED, "4.4.0")
    folders = [streamed.write(name, tmp_path) for name in names]
    (tmp_path / "kept").mkdir()
    killing = [sys.executable, "-m", "tests.audit.stream_killing", cluster.master, tmp_path / "kept", *folders]
    done = ran(killing, environment=cluster.environment)
    assert done.returncode == 0, done.stderr[-3000:]
    stories = json.loads(done.stdout.splitlines()[-1])
    assert all(story.pop("throttled") > 0 for story in stories.values())
    assert stories == {name: {"killed": True, "equal": True, "batches": streamed.FILES} for name in names}


def test_a_process_of_the_local_engine_is_killed(usage: Path, audit_settings: AuditSettings) -> None:
    """One line, and no process is left."""
    mine = psutil.Process()
    before = set(mine.children(recursive=True))

    def kill(done: int, known: int) -> None:
        for child in set(mine.children()) - before:
            with contextlib.suppress(psutil.Error):
                if "resource_tracker" not in " ".join(child.cmdline()):
                    child.kill()

    with pytest.raises(Unreachable, match="a process of the audit was killed"):
        local.audit(plan_splits([str(usage)], "usage"), audit_settings, "usage", processes=2, progress=kill)


UNGUARDED = """\
from kquota.audit.engines import local
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import plan_splits
from kquota.core.change.history import QuotaHistory
from kquota.documents.quotas import read_quotas
from pathlib import Path

print("begun")
settings = AuditSettings(QuotaHistory.of(read_quotas(Path("quotas.yaml"))))
for _ in range(2):
    print(len(local.audit(plan_splits(["usage"], "usage"), settings, "usage", processes=2).findings))
print(Path(__file__).name, __spec__)
"""


def test_a_script_without_a_guard_is_not_run_again(usage: Path, audit_settings: AuditSettings) -> None:
    """Spawned processes import the main module, else: with a traceback each, and before that all that it does."""
    (usage.parent / "script.py").write_text(UNGUARDED)

    done = ran([sys.executable, "script.py"], usage.parent)

    expected = len(local.audit(plan_splits([str(usage)], "usage"), audit_settings, "usage", processes=1).findings)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n") == ["begun", str(expected), str(expected), "script.py None", ""]
    assert expected > 0


@pytest.mark.parametrize("processes", [1, 2])
def test_a_file_that_went_away(usage: Path, audit_settings: AuditSettings, processes: int) -> None:
    """A part of the input is never left out in silence."""
    splits = plan_splits([str(usage)], "usage")
    (usage / "0005.parquet").unlink()

    with pytest.raises(InputError, match=r"0005.parquet: No such file"):
        local.audit(splits, audit_settings, "usage", processes=processes)


def test_a_file_that_went_away_on_spark(spark: Any, usage: Path, audit_settings: AuditSettings) -> None:
    """The same line, from an executor."""
    splits = plan_splits([str(usage)], "usage")
    (usage / "0005.parquet").unlink()

    with pytest.raises(InputError, match=r"^\S*0005.parquet: No such file or directory$"):
        job.audit(spark, splits, audit_settings, "usage")


@pytest.mark.parametrize("processes", [1, 2])
def test_the_disk_is_full(usage: Path, audit_settings: AuditSettings, processes: int) -> None:
    """One line that names the folder and what to do."""
    splits = plan_splits([str(usage)], "usage")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The limit of a file's size is as near as a test comes to a full disk; processes inherit it.
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, limits[1]))
    try:
        with pytest.raises(InputError, match="File too large") as caught:
            local.audit(splits, audit_settings, "usage", processes=processes)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "TMPDIR" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        ("import os; os.kill(os.getpid(), 9)", Unreachable, "its workers were killed"),
        ("raise OSError(28, 'No space left on device')", InputError, "No space left on device"),
        ("import pyarrow_is_not_here", MissingDependency, "No module named 'pyarrow_is_not_here'"),
        ("raise ValueError('a bug')", RuntimeError, "the Spark job failed: ValueError: a bug"),
    ],
)
def test_why_a_spark_job_failed(spark: Any, code: str, error: type[Exception], says: str) -> None:
    """In a line, and not in Spark's hundred."""

    def task(batches: Iterator[Any]) -> Iterator[Any]:
        exec(code)
        yield from batches

    with pytest.raises(error, match=says) as caught:
        job.collect(spark.range(4).mapInArrow(task, "id long"))
    assert len(str(caught.value).splitlines()) == 1
