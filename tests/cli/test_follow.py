"""`kquota audit --follow` as a process."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import threading
from itertools import islice
from pathlib import Path

import pytest

from tests.cli.conftest import Kquota
from tests.cli.test_config import validated

RECORDED = Path("tests/data/request_log").resolve()
QUOTAS = str(RECORDED / "quotas.json")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Some lines of a real broker's log, in which clients are throttled."""
    path = tmp_path / "kafka-request.log"
    with gzip.open(RECORDED / "kafka-request.log.gz") as file:
        path.write_bytes(b"".join(islice(file, 3000, 5500)) + b"half a line")
    return path


def test_until_idle_prints_the_document_of_the_batch_audit(kquota: Kquota, log: Path, tmp_path: Path) -> None:
    arguments = ("audit", str(log), "--quotas", QUOTAS, "-o", "json")
    batch = kquota(*arguments)
    to = tmp_path / "episodes.jsonl"
    followed = kquota(*arguments, "--follow", "--until-idle", "1s", "--episodes", str(to))
    assert (followed.code, followed.out) == (batch.code, batch.out)
    assert batch.code == 0
    episodes = [validated(line, "episode") for line in to.read_text().splitlines()]
    assert {each["state"] for each in episodes} == {"began", "open"}
    names = {each["id"] for each in episodes}
    assert names == {each["id"] for each in episodes if each["state"] == "began"}


def test_sigterm_ends_it_with_the_findings_so_far(log: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kquota", "audit", str(log), "--quotas", QUOTAS, "--follow", "-o", "json"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lost = threading.Timer(240, process.kill)
        lost.start()
        first = validated(process.stdout.readline(), "episode")
        assert first["state"] == "began"
        process.send_signal(signal.SIGTERM)
        rest, said = process.communicate()
        lost.cancel()
    assert process.returncode == 0, said
    last = validated(rest.splitlines()[-1], "audit")
    assert last["data"]["rejected"] == 1
    assert last["data"]["events"] > 2400


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--until-idle", "5s"), "--until-idle goes with --follow"),
        (("--follow", "--engine", "spark"), "runs on this machine"),
    ],
)
def test_what_cannot_be_followed(kquota: Kquota, log: Path, arguments: tuple[str, ...], said: str) -> None:
    ran = kquota("audit", str(log), "--quotas", QUOTAS, *arguments)
    assert ran.code == 2
    assert said in ran.err
