"""The demo that the README promises, as a newcomer runs it."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_demo_names_the_throttled_clients_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """It ends with the audit of the recorded log on Spark, and the same without; no process and no file is left."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    before = {item.name for item in ROOT.iterdir()}

    done = subprocess.run(
        ["bash", str(ROOT / "tests" / "demo.sh")],
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": path, "TMPDIR": str(tmp_path)},
        timeout=900,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    _, on_spark, locally = done.stdout.split("$ kquota audit")
    clients = ("user alice", "user carol", "user bob with client-id etl", "client-id sensor-gw")
    assert all(name in on_spark for name in clients)
    assert "--engine local" in locally
    assert "The findings of both are the same" in locally
    said = [line for line in done.stderr.splitlines() if line.endswith(" engine)")]
    assert [line.rpartition("(")[2] for line in said] == ["spark engine)", "local engine)"]
    assert said[0].replace("spark", "local") == said[1]
    assert done.stderr.count("6 of 9 limits throttled somebody") == 2
    assert list(tmp_path.iterdir()) == []
    assert {item.name for item in ROOT.iterdir()} <= before | {"__pycache__", ".pytest_cache", ".hypothesis"}
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in processes
