"""`kquota follow` as a process."""

import contextlib
import gzip
import json
import signal
import threading
import time
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from kquota import (
    Alteration,
    Entity,
    KquotaError,
    QuotaFilter,
    QuotaKey,
    QuotaSnapshot,
    Unauthorized,
    Unreachable,
)
from kquota.access import Access, connect
from kquota.audit.follow.follow import Follower
from kquota.audit.settings import AuditSettings
from kquota.backends.memory import MemoryBackend
from kquota.cli.commands import follow
from kquota.core.change.history import QuotaHistory
from kquota.core.quotas.selector import EVERYTHING
from tests.cli.conftest import Kquota, validated
from tests.conftest import new_chroot
from tests.support.processes import started
from tests.support.sandbox import Sandbox
from tests.support.waiting import until

RECORDED = Path("tests/data/request_log").resolve()
QUOTAS = str(RECORDED / "quotas.json")
ALICE, PRODUCER = Entity(user="alice"), QuotaKey.PRODUCER_BYTE_RATE


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Some lines of a real broker's log, in which clients are throttled."""
    path = tmp_path / "kafka-request.log"
    with gzip.open(RECORDED / "kafka-request.log.gz") as file:
        path.write_bytes(b"".join(islice(file, 3000, 5500)) + b"half a line")
    return path


@pytest.mark.parametrize("since", [(), ("--since", "2026-11-20T14:23:15")])
def test_until_idle_prints_the_document_of_the_batch_audit(
    kquota: Kquota, log: Path, tmp_path: Path, since: tuple[str, ...]
) -> None:
    arguments = (str(log), "--quotas", QUOTAS, "-o", "json", *since)
    batch = kquota("audit", *arguments)
    to = tmp_path / "episodes.jsonl"
    followed = kquota("follow", *arguments, "--until-idle", "1s", "--episodes", str(to))
    assert (followed.code, followed.out) == (batch.code, batch.out)
    assert batch.code == 0
    assert (json.loads(batch.out)["data"]["outside"] > 0) == bool(since)
    episodes = [validated(line, "episode") for line in to.read_text().splitlines()]
    assert {each["state"] for each in episodes} == {"began", "open"}
    names = {each["id"] for each in episodes}
    assert names == {each["id"] for each in episodes if each["state"] == "began"}


def test_a_checkpoint_says_that_another_since_counts(kquota: Kquota, log: Path, tmp_path: Path) -> None:
    arguments = ("follow", str(log), "--quotas", QUOTAS, "--checkpoint", str(tmp_path / "kept"), "--until-idle", "1s")
    since = ("--since", "2026-11-20T14:23:15")
    assert "going on" not in kquota(*arguments, *since).err
    for options, said in (((), "checkpoint, with the --since of its first start\n"), (since, "checkpoint\n")):
        assert f"going on from the {said}" in kquota(*arguments, *options).err


def test_sigterm_ends_it_with_the_findings_so_far(log: Path, tmp_path: Path) -> None:
    with started(["follow", log, "--quotas", QUOTAS, "-o", "json"], tmp_path) as process:
        assert process.stdout is not None
        lost = threading.Timer(600, process.kill)
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
        (("audit", "--follow"), "'kquota follow' is a command of its own"),
        (("follow", "--engine", "spark"), "runs on this machine"),
        (("follow", "-"), "write what comes from a pipe to a file first"),
        (("follow", "--episodes", "topic:t"), "a file of JSON lines or to an Alertmanager"),
    ],
)
def test_what_cannot_be_followed(kquota: Kquota, log: Path, arguments: tuple[str, ...], said: str) -> None:
    ran = kquota(arguments[0], str(log), "--quotas", QUOTAS, *arguments[1:])
    assert ran.code in (2, 3)
    assert said in ran.err


def test_quotas_that_cannot_be_read_for_a_while(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said once, the quotas of before count meanwhile, and a refusal ends it."""
    before, after = (QuotaSnapshot({ALICE: {PRODUCER: value}}) for value in (100, 200))
    lost = Unreachable("the cluster is gone")
    answers: list[QuotaSnapshot | KquotaError] = [before, lost, lost, before, after, Unauthorized("not yours")]

    class Scripted(MemoryBackend):
        def describe(self, filter: QuotaFilter = EVERYTHING) -> QuotaSnapshot:
            answer = answers.pop(0)
            if isinstance(answer, KquotaError):
                raise answer
            return answer

    monkeypatch.setattr(follow, "open_backend", lambda _: contextlib.nullcontext(Scripted()))
    monkeypatch.setattr(follow, "_QUOTAS_S", 0)
    with follow._Watched(0, Access(zookeeper="127.0.0.1:1"), lambda snapshot: snapshot) as watched:
        follower = Follower([str(tmp_path)], AuditSettings(QuotaHistory.of(before)), live=watched.live())
        with pytest.raises(Unauthorized):
            until(lambda: watched.changes(follower, None))
        follower.close()
    said = capsys.readouterr().err.splitlines()

    assert len(said) == 3
    assert said[0].startswith("kquota: warning: the cluster is gone; the quotas of before count")
    assert said[1] == "the quotas can be read again"
    assert said[2].startswith("the quotas have changed: others count from ")
    assert follower.history is not None
    assert follower.history.snapshots == (before, after)


def test_a_cluster_that_shows_no_quotas_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection must not keep the process."""
    closed = []

    class Barred(MemoryBackend):
        def describe(self, filter: QuotaFilter = EVERYTHING) -> QuotaSnapshot:
            raise Unauthorized("not yours")

        def close(self) -> None:
            closed.append(self)

    monkeypatch.setattr(follow, "open_backend", lambda _: contextlib.closing(Barred()))
    watched = follow._Watched(0, Access(zookeeper="127.0.0.1:1"), lambda snapshot: snapshot)
    with pytest.raises(Unauthorized), watched:
        pass
    assert len(closed) == 1


def test_quotas_of_a_cluster_change_meanwhile(kquota: Kquota, zookeeper: Sandbox, tmp_path: Path) -> None:
    """An episode under the new limit; the findings are those of an audit under the history that is kept."""
    chroot, log, kept = new_chroot(zookeeper), tmp_path / "usage.jsonl", tmp_path / "kept"

    def requests(first_ms: int) -> None:
        row = {"broker": "1", "user": "alice", "client_id": "c", "api": "produce", "bytes": 500}
        with open(log, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(row | {"time_ms": first_ms + at}) + "\n" for at in range(0, 20_000, 500))

    def periods() -> list[dict[str, Any]]:
        path = kept / follow.HISTORY
        return list(json.loads(path.read_text())["periods"]) if path.exists() else []

    with connect(zookeeper=chroot) as writer:
        writer.alter([Alteration(ALICE, {PRODUCER: 10_000})])
    requests(time.time_ns() // 1_000_000 - 30_000)
    arguments = ("follow", str(log), "--zookeeper", chroot, "--checkpoint", str(kept), "-o", "json")
    with started(arguments, tmp_path) as process:
        assert process.stdout is not None
        lost = threading.Timer(600, process.kill)
        lost.start()
        until(lambda: len(periods()) == 1)
        with connect(zookeeper=chroot) as writer:
            writer.alter([Alteration(ALICE, {PRODUCER: 100})])
        until(lambda: len(periods()) == 2)
        since = round(datetime.fromisoformat(periods()[1]["from"]).timestamp() * 1000)
        requests(since)
        began = validated(process.stdout.readline(), "episode")
        process.send_signal(signal.SIGTERM)
        rest, said = process.communicate()
        lost.cancel()
    found = validated(rest.splitlines()[-1], "audit")
    again = kquota(*arguments, "--until-idle", "1s")
    batch = kquota("audit", str(log), "--quotas", str(kept / follow.HISTORY), "-o", "json")

    assert process.returncode == 0, said
    assert "the quotas have changed: others count from " in said
    assert (began["state"], began["limit"], began["begin_ms"] >= since) == ("began", 100, True)
    assert (found, again.out) == (json.loads(batch.out), batch.out)
