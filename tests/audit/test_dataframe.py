"""DataFrames and tables of Spark's catalogue as usage."""

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kquota.audit.engines import spark as job
from kquota.audit.settings import AuditSettings
from kquota.core.change.history import QuotaHistory
from kquota.errors import InputError
from tests.audit import oracle
from tests.audit.test_job import QUOTAS, many_events, many_findings
from tests.cli.conftest import quotas
from tests.support.processes import ran

EVENTS = many_events()
SETTINGS = AuditSettings(QuotaHistory.of(QUOTAS))


def test_a_table_of_the_catalogue(spark: Any, tmp_path: Path) -> None:
    """With timestamps, other columns, and rows in no order; the findings are those of a plain replay."""
    pq.write_table(oracle.usage_table(EVENTS), tmp_path / "usage.parquet", row_group_size=500)
    frame = spark.read.parquet(str(tmp_path / "usage.parquet"))
    frame = frame.selectExpr("timestamp_millis(time_ms) AS time_ms", "* EXCEPT (time_ms)", "'x' AS other")
    frame.repartition(5, "bytes").createOrReplaceTempView("usage_view")

    result = job.audit_table(spark, "usage_view", SETTINGS)

    assert oracle.as_expected(result.findings) == many_findings()
    assert (result.quality.events, result.quality.rejected) == (len(EVENTS), 0)
    assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "10000"


def test_a_format_that_spark_reads(spark: Any, tmp_path: Path) -> None:
    """Its own CSV reader, numbers as text; a bad row costs itself."""
    (tmp_path / "usage.csv").write_text(
        "time_ms,broker,user,client_id,api,bytes\n1700000000000,1,alice,a,produce,9000\n1700000000001,1,alice,a,produce,x\n"
    )
    frame = spark.read.csv(str(tmp_path / "usage.csv"), header=True)

    result = job.audit_dataframe(frame, SETTINGS)

    assert (result.quality.events, result.quality.rejected) == (1, 1)
    assert [(reject.source, reject.reason) for reject in result.rejects] == [
        ("the DataFrame", "bytes is not a whole number")
    ]


def test_a_table_from_the_shell(tmp_path: Path) -> None:
    """With a Spark of its own, whose name for the files below a folder is a table."""
    pq.write_table(oracle.usage_table(EVENTS), tmp_path / "usage.parquet")
    (tmp_path / "quotas.yaml").write_text(quotas(alice=2000))
    table = f"parquet.`{tmp_path / 'usage.parquet'}`"
    command = [sys.executable, "-m", "kquota", "audit", "--table", table, "--quotas", "quotas.yaml", "-o", "json"]

    done = ran(command, tmp_path)

    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["engine"], document["data"]["events"]) == ("spark", len(EVENTS))


def test_what_is_no_usage_table(spark: Any) -> None:
    with pytest.raises(InputError, match=r"table nowhere.usage: .*TABLE_OR_VIEW_NOT_FOUND"):
        job.audit_table(spark, "nowhere.usage", SETTINGS)
    with pytest.raises(InputError, match="column time_ms, user, api, bytes is missing"):
        job.audit_dataframe(spark.range(3), SETTINGS)
