"""The audit on a real Spark cluster, and as spark-submit runs it."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

from kquota.audit.engines import local
from kquota.audit.settings import AuditSettings
from kquota.core.change.history import QuotaHistory
from kquota.documents.quotas import read_quotas
from tests.audit import driver, oracle
from tests.audit.cluster import SparkCluster
from tests.audit.test_job import many_events
from tests.support.data import data_text
from tests.support.processes import ROOT, ran

SPARK_SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
QUOTAS = data_text("audit/cluster_quotas.yaml")


def run(cluster: SparkCluster, command: Sequence[str], folder: Path = ROOT) -> str:
    """What a process whose Spark is this cluster prints; it must succeed."""
    done = ran(command, folder, cluster.environment | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_findings_are_those_of_a_plain_replay_on_every_master(cluster: SparkCluster) -> None:
    """On one core, on four, and on two workers that have no kquota until the driver sends it."""
    masters = ["local[1]", "local[4]", cluster.master]
    options = ["--executor-python", str(cluster.python)]

    said = run(cluster, [sys.executable, "-m", "tests.audit.driver", *options, *masters]).splitlines()

    assert [line.partition(": equal")[0] for line in said] == masters
    assert len({line.partition(", ")[2] for line in said}) == 1
    assert " 0 counters" not in said[0]


@pytest.mark.parametrize(("processes", "examples"), [(1, 10), (2, 2)])
def test_findings_are_those_of_a_plain_replay_without_spark(processes: int, examples: int) -> None:
    """In this process, and in two of its own."""
    throttled = driver.compare(
        lambda splits, settings: local.audit(splits, settings, "usage", processes=processes), examples
    )

    assert throttled > 0


def test_spark_submit_of_what_one_command_packed(cluster: SparkCluster, tmp_path: Path) -> None:
    """The entry and the zip file; driver and executors take kquota out of it."""
    events = many_events()
    (tmp_path / "usage").mkdir()
    (tmp_path / "quotas.yaml").write_text(QUOTAS)
    oracle.write_files(events, tmp_path / "usage", 5)
    entry = run(cluster, [sys.executable, "-m", "kquota.cli.submit", "--py-files", "kquota.zip"], tmp_path).strip()

    # spark-submit mixes stderr into stdout: on a busy machine that is how far the audit is.
    run(
        cluster,
        [
            *(SPARK_SUBMIT, "--master", cluster.master, "--py-files", "kquota.zip", entry),
            *("usage", "--quotas", "quotas.yaml", "--out", "findings", "--out-json", "report.json"),
            *("--engine", "spark"),
        ],
        tmp_path,
    )

    expected = oracle.findings(events, AuditSettings(QuotaHistory.of(read_quotas(tmp_path / "quotas.yaml"))))
    assert oracle.as_expected(pq.read_table(tmp_path / "findings")) == expected
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["engine"], len(report["findings"])) == ("spark", len(expected))
    assert any(row.throttled for row in expected.values())

    # The generated logs, too: spark-submit brings the master and the package, the driver does as on every master.
    submitted = [SPARK_SUBMIT, "--master", cluster.master, "--py-files", "kquota.zip", f"{ROOT}/tests/audit/driver.py"]
    said = run(cluster, [*submitted, "--examples", "2"], tmp_path)

    assert said.startswith(f"{cluster.master}: equal, ")
    assert ", 0 counters" not in said


def test_the_package_is_the_same_file_wherever_it_is_packed(tmp_path: Path) -> None:
    """Byte for byte; with the schemas, without what Python compiled; and it works from where it is."""
    command = [sys.executable, "-m", "kquota.cli.submit", "--py-files"]
    for name in ("one.zip", "two.zip"):
        subprocess.run([*command, tmp_path / name], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)

    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        names = archive.namelist()
    assert {"kquota/audit/engines/stages.py", "kquota/documents/schemas/usage.schema.json"} <= set(names)
    assert not any(name.endswith(".pyc") for name in names)
    code = "import kquota; from kquota.documents.encoding import schema_names; print(kquota.__file__, *schema_names())"
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "one.zip")}
    said = subprocess.check_output([sys.executable, "-c", code], cwd=tmp_path, env=environment, text=True)
    assert str(tmp_path / "one.zip") in said
    assert "usage" in said.split()
