"""The demo that the README promises, as a newcomer runs it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.processes import ran

TESTS = Path(__file__).resolve().parent
DATA = Path("data", "request_log")


def test_the_demo_names_the_throttled_clients_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """It ends with the audit of the recorded log on Spark, and the same without; no process and no file is left."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # In a folder of its own: what other tests leave in the checkout meanwhile is not the demo's.
    checkout, temporary = tmp_path / "checkout", tmp_path / "tmp"
    shutil.copytree(TESTS / DATA, checkout / "tests" / DATA)
    demo = shutil.copy(TESTS / "demo.sh", checkout / "tests")
    temporary.mkdir()
    before = sorted(checkout.rglob("*"))

    done = ran(["bash", demo], environment={"PATH": path, "TMPDIR": str(temporary)})

    assert done.returncode == 0, done.stderr
    _, on_spark, locally = done.stdout.split("$ kquota audit")
    clients = ("user alice", "user carol", "user bob with client-id etl", "client-id sensor-gw")
    assert all(name in on_spark for name in clients)
    assert "--engine local" in locally
    assert "The findings of both are the same" in locally
    said = [line for line in done.stderr.splitlines() if " engine; " in line]
    assert [line.rpartition("(")[2].partition(";")[0] for line in said] == ["spark engine", "local engine"]
    assert said[0].replace("spark", "local") == said[1]
    assert done.stderr.count("6 of 9 counters throttled somebody") == 2
    assert list(temporary.iterdir()) == []
    assert sorted(checkout.rglob("*")) == before
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in processes
