"""The audit on a Spark Connect server, whose executors have no kquota until it is sent there."""

import signal
import sys

import pytest
from pyspark.sql import SparkSession

from kquota.audit.engines import spark
from kquota.errors import Unreachable
from tests.audit.cluster import ConnectServer
from tests.support.processes import ran


def test_findings_are_those_of_a_plain_replay() -> None:
    with ConnectServer() as server:
        command = [sys.executable, "-m", "tests.audit.driver", "--examples", "2", server.remote]
        done = ran(command)

        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout.startswith(f"{server.remote}: equal, ")
        assert " 0 counters" not in done.stdout


@pytest.mark.parametrize(("remote", "says"), [("sc://127.0.0.1:1", "refused"), ("sc://127.0.0.1:port", "port")])
def test_nobody_listens(remote: str, says: str) -> None:
    """One line, at once."""
    with pytest.raises(Unreachable, match=says):
        spark.open_session(remote)


def test_an_interrupt_that_spark_takes_for_a_failure_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """py4j answers a second Ctrl-C with an error of its own."""

    def start(_: object) -> None:
        signal.raise_signal(signal.SIGINT)
        raise RuntimeError("An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext")

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", start)
    with pytest.raises(KeyboardInterrupt):
        spark.open_session("local")
