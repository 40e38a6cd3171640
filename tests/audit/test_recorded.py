"""The recorded log of a real broker: what the audit predicts is what the broker did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator

from kquota.audit import spark as job
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, plan_splits
from kquota.core.history import QuotaHistory
from kquota.documents.encoding import schema
from kquota.documents.quotas import read_quotas
from tests.audit import recorded
from tests.cli.conftest import Kquota

ROWS = recorded.findings().to_pylist()
THROTTLED = [row for row in ROWS if row["logged_throttled_events"] and row["verdict"] != "undetermined"]


@pytest.mark.parametrize("row", THROTTLED, ids=lambda row: f"{row['key']} {row['sensor']}")
def test_total_throttle_time(row: dict[str, Any]) -> None:
    """Produce within 2 %, fetch within 10 % of what the broker itself logged."""
    within = 0.02 if row["key"] == "producer_byte_rate" else 0.10

    assert row["throttle_time_ms"] == pytest.approx(row["logged_throttle_time_ms"], rel=within)
    assert row["throttled_events"] == pytest.approx(row["logged_throttled_events"], rel=within)


@pytest.mark.parametrize("row", THROTTLED, ids=lambda row: f"{row['key']} {row['sensor']}")
def test_single_throttles(row: dict[str, Any]) -> None:
    """At least 95 % recall and precision for throttles of 10 ms and more; both replays agree on the total."""
    single = recorded.by_throttle()[row["key"], row["sensor"]]

    assert single.notable_recall >= 0.95
    assert single.notable_precision >= 0.95
    assert (single.predicted_count, single.predicted_ms) == (row["throttled_events"], row["throttle_time_ms"])


def test_the_log_is_worth_auditing() -> None:
    """Several counters of both kinds, one of them shared, and one that was never throttled."""
    assert len([row for row in THROTTLED if row["key"] == "producer_byte_rate"]) >= 3
    assert len([row for row in THROTTLED if row["key"] == "consumer_byte_rate"]) >= 2
    assert any(row["client_count"] > 1 for row in THROTTLED)
    assert any(row["verdict"] == "not throttled" for row in ROWS)
    assert sum(row["events"] for row in ROWS) > 30_000


def test_the_request_quota_is_undetermined() -> None:
    """Half of it is time that no log holds: no number is given, only a lower bound of the peak."""
    (row,) = [row for row in ROWS if row["key"] == "request_percentage"]

    assert row["verdict"] == "undetermined"
    assert row["throttled_events"] is row["throttle_time_ms"] is None
    assert row["peak_rate"] > 0


def test_spark_finds_the_same(spark: Any) -> None:
    """Distributed or not."""
    settings = AuditSettings(QuotaHistory.of(read_quotas(recorded.QUOTAS)), read=ReadSettings(broker="1"))

    result = job.audit(spark, plan_splits([str(recorded.LOG)], "auto"), settings, "the log")

    assert result.findings.equals(recorded.findings())


def test_from_the_shell_and_by_spark_submit(kquota: Kquota, tmp_path: Path) -> None:
    """The two front doors give the same JSON, which validates; --out writes the same findings; exit 1 if asked for."""
    arguments = [str(recorded.LOG), "--quotas", str(recorded.QUOTAS), "--broker", "1", "-o", "json"]
    submit = Path(sys.executable).with_name("spark-submit")
    entry = subprocess.run(
        [sys.executable, "-m", "kquota.cli.submit"], capture_output=True, text=True, check=True
    ).stdout.strip()

    shell = kquota("audit", *arguments, "--out", "out", "--fail-on", "throttled")
    submitted = subprocess.run(
        [submit, "--master", "local[2]", entry, *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        timeout=300,
        check=False,
    )

    assert shell.code == 1
    assert shell.err == ""
    document = json.loads(shell.out)
    Draft202012Validator(schema("audit")).validate(document)
    assert submitted.returncode == 0, submitted.stderr[-2000:]
    assert document["engine"] == "local"
    assert json.loads(submitted.stdout) == document | {"engine": "spark"}
    assert pq.read_table(tmp_path / "out" / "findings.parquet").equals(recorded.findings())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
