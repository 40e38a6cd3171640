"""The audit on a Spark Connect server, whose executors have no kquota until it is sent there."""

import sys

import pytest

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
