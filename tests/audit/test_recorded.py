"""The recorded logs of real brokers: what the audit predicts is what the brokers did."""

import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from kquota.audit.engines import spark as job
from kquota.audit.follow.follow import SETTLE_MS
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, plan_splits
from kquota.core.change.history import QuotaHistory
from kquota.documents.quotas import read_quotas
from tests.audit import oracle, recorded
from tests.audit.recorded import Recording
from tests.cli.conftest import Kquota, validated
from tests.support.processes import ran
from tools.accuracy.throttles import logs_of

CLUSTERS = [recording for recording in recorded.RECORDINGS if recording is not recorded.ONE]
COUNTERS = Path(__file__).with_name("recorded_counters.json")
# Written down: collecting the tests takes no audit.
NAMES: list[list[str]] = json.loads(COUNTERS.read_text(encoding="utf-8"))
THROTTLED = [pytest.param(*name, id=" ".join(name)) for name in NAMES]
WITHIN = {"producer_byte_rate": 0.02, "consumer_byte_rate": 0.10, "controller_mutation_rate": 0.05}


def find(recording: str, *counter: str) -> dict[str, Any]:
    (rows,) = (recorded.throttled(each) for each in recorded.RECORDINGS if each.name == recording)
    (row,) = [row for row in rows if (row["broker"], row["key"], row["sensor"]) == counter]
    return row


def test_every_throttled_counter_is_compared(request: pytest.FixtureRequest) -> None:
    """`pytest --update-golden` writes them down."""
    if request.config.getoption("--update-golden"):
        lines = ",\n".join(json.dumps(counter, ensure_ascii=False) for counter in recorded.counters())
        COUNTERS.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    assert sorted(tuple(name) for name in NAMES) == sorted(recorded.counters())


@pytest.mark.parametrize(("recording", "broker", "key", "sensor"), THROTTLED)
def test_total_throttle_time(recording: str, broker: str, key: str, sensor: str) -> None:
    """Produce within 2 %, fetch within 10 % of what the broker itself logged; rejected topics to the last one."""
    row = find(recording, broker, key, sensor)
    within = WITHIN[key]

    assert row["throttle_time_ms"] == pytest.approx(row["logged_throttle_time_ms"], rel=within)
    exact = key == "controller_mutation_rate"
    assert row["throttled_events"] == pytest.approx(row["logged_throttled_events"], rel=0 if exact else within)


@pytest.mark.parametrize(("recording", "broker", "key", "sensor"), THROTTLED)
def test_single_throttles(recording: str, broker: str, key: str, sensor: str) -> None:
    """At least 95 % recall and precision for throttles of 10 ms and more; both replays agree on the total."""
    row = find(recording, broker, key, sensor)
    (of,) = (each for each in recorded.RECORDINGS if each.name == recording)
    single = recorded.by_throttle(of)[broker, key, sensor]

    assert single.notable_recall >= 0.95
    assert single.notable_precision >= 0.95
    assert (single.predicted_count, single.predicted_ms) == (row["throttled_events"], row["throttle_time_ms"])


def test_lines_are_a_little_out_of_order() -> None:
    """By less than half of the time that a follower waits for a line."""
    pairs = recorded.DATA / "pairs"
    others = [Recording(each.name, each, "") for each in sorted(pairs.iterdir()) if each.is_dir()]
    lags = []
    for recording in (*recorded.RECORDINGS, *others):
        usage = recorded.usage_of(recording)
        brokers = usage.column("broker").to_numpy(zero_copy_only=False)
        times = usage.column("time_ms").to_numpy()
        for broker in np.unique(brokers):
            own = times[brokers == broker]
            lags.append(int((np.maximum.accumulate(own) - own).max()))

    assert 0 < max(lags) < SETTLE_MS / 2


def test_the_log_is_worth_auditing() -> None:
    """Several counters of both kinds, one of them shared, and one that was never throttled."""
    rows = recorded.throttled(recorded.ONE)
    all_rows = recorded.findings().to_pylist()
    assert len([row for row in rows if row["key"] == "producer_byte_rate"]) >= 3
    assert len([row for row in rows if row["key"] == "consumer_byte_rate"]) >= 2
    assert any(row["client_count"] > 1 for row in rows)
    assert any(row["verdict"] == "not throttled" for row in all_rows)
    assert sum(row["events"] for row in all_rows) > 30_000


@pytest.mark.parametrize("recording", CLUSTERS, ids=lambda recording: recording.name)
def test_the_cluster_is_worth_auditing(recording: Recording) -> None:
    """Two brokers and a controller, counters with a default's limit, shared ones, and limits that changed."""
    rows = recorded.throttled(recording)

    for broker in ("broker-2", "broker-3"):
        for key in ("producer_byte_rate", "consumer_byte_rate"):
            mine = [row for row in rows if (row["broker"], row["key"]) == (broker, key)]
            assert len(mine) >= 3
            assert any("<default>" in row["entity"] for row in mine)
            assert any(row["client_count"] > 1 for row in mine)
            assert any(row["limit_changes"] == 2 for row in mine)
    topics = [row for row in rows if row["broker"] == "controller-1"]
    assert {row["key"] for row in topics} == {"controller_mutation_rate"}
    assert sum(row["logged_throttled_events"] for row in topics) > 100


@pytest.mark.parametrize("recording", CLUSTERS, ids=lambda recording: recording.name)
def test_both_kinds_of_client(recording: Recording) -> None:
    """Java's and librdkafka's, all of them on TLS; quotas reject topics one by one, or delay the client."""
    software: set[str] = set()
    rejected = delayed = 0
    for log in logs_of(recording.folder).values():
        with gzip.open(log, "rt", encoding="utf-8") as lines:
            for line in lines:
                if '"listener":"CLIENTS"' in line:
                    assert '"securityProtocol":"SASL_SSL"' in line
                    software.update(re.findall(r'"softwareName":"([^"]+)"', line))
                elif '"errorCode":89' in line:
                    rejected += 1
                elif '"CREATE_TOPICS"' in line and not re.search(r'"response":.*"throttleTimeMs":0,"topics"', line):
                    delayed += 1

    assert {"apache-kafka-java", "confluent-kafka-python"} <= software
    assert min(rejected, delayed) > 10


@pytest.mark.parametrize("recording", CLUSTERS, ids=lambda recording: recording.name)
def test_a_cluster_from_the_shell(kquota: Kquota, tmp_path: Path, recording: Recording) -> None:
    """A folder of logs for each node, and the history of the quotas."""
    nodes = [str(log.parent) for log in logs_of(recording.folder).values()]
    quotas = str(recording.folder / "quotas.json")

    done = kquota(
        "audit", *nodes, "--quotas", quotas, "--num-partitions", "3", "--engine", "local", "--out", "out", "-o", "json"
    )

    assert done.code == 0
    found = oracle.as_expected(pq.read_table(tmp_path / "out"))
    assert found == oracle.as_expected(recorded.findings_of(recording))


def test_the_request_quota_is_undetermined() -> None:
    """Half of it is time that no log holds: no number is given, only a lower bound of the peak."""
    (row,) = [row for row in recorded.findings().to_pylist() if row["key"] == "request_percentage"]

    assert row["verdict"] == "undetermined"
    assert row["throttled_events"] is row["throttle_time_ms"] is None
    assert row["peak_rate"] > 0


def test_spark_finds_the_same(spark: Any) -> None:
    settings = AuditSettings(QuotaHistory.of(read_quotas(recorded.QUOTAS)), read=ReadSettings(broker="1"))

    result = job.audit(spark, plan_splits([str(recorded.LOG)], "auto"), settings, "the log")

    assert result.findings.equals(recorded.findings())


@pytest.mark.server
def test_from_the_shell_and_by_spark_submit(kquota: Kquota, tmp_path: Path) -> None:
    """The two front doors give the same JSON, which validates; --out writes the same findings; exit 1 if asked for."""
    arguments = [str(recorded.LOG), "--quotas", str(recorded.QUOTAS), "--broker", "1", "-o", "json"]
    submit = Path(sys.executable).with_name("spark-submit")
    entry = ran([sys.executable, "-m", "kquota.cli.submit"]).stdout.strip()

    shell = kquota("audit", *arguments, "--out", "out", "--fail-on", "throttled")
    command = [submit, "--master", "local[2]", entry, *arguments, "--engine", "spark"]
    submitted = ran(command, tmp_path, {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"})

    assert shell.code == 1
    assert shell.err == "wrote out\nexit code 1, as --fail-on asks: throttled\n"
    document = validated(shell.out, "audit")
    assert submitted.returncode == 0, submitted.stderr[-2000:]
    assert document["engine"] == "local"
    assert json.loads(submitted.stdout) == document | {"engine": "spark"}
    assert oracle.as_expected(pq.read_table(tmp_path / "out")) == oracle.as_expected(recorded.findings())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
