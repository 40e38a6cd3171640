"""Turns of kquota's writers: one at a time, whoever holds it and however it ends."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kquota import DEFAULT, Conflict, Entity, InputError, QuotaKey
from kquota.backends.kafka import turns
from kquota.backends.kafka.turns import Turns, Written, Wrote
from kquota.errors import Stopped

ALICE = Entity(user="alice")
WROTE: Written = {
    ALICE: {QuotaKey.PRODUCER_BYTE_RATE: Wrote(5, 4), QuotaKey.REQUEST_PERCENTAGE: Wrote(None, 50.0)},
    Entity(user=DEFAULT, client_id="äpp"): {QuotaKey.CONSUMER_BYTE_RATE: Wrote(7, None)},
    Entity(ip="10.0.0.1"): {QuotaKey.CONNECTION_CREATION_RATE: Wrote(None, None, blind=True)},
}


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KQUOTA_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setattr(turns, "_WAIT_S", 0.2)
    return tmp_path / "locks"


def named(name: str) -> Turns:
    return Turns(lambda: name, "broker:9092")


def test_one_writer_of_a_cluster_at_a_time() -> None:
    first, second, elsewhere = named("a"), named("a"), named("b")
    held = "another kquota is writing to the cluster a for more than 0"
    with first.alone(), first.alone(), elsewhere.alone(), pytest.raises(Conflict, match=held), second.alone():
        pass
    with second.alone():
        pass


def test_a_writer_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_WAIT_S", 30.0)
    inside: list[int] = []
    most = []

    def write() -> None:
        for _ in range(20):
            with named("a").alone():
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 160


def test_a_writer_that_is_stopped_waits_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_WAIT_S", 30.0)
    asked = itertools.count()
    with named("a").alone():
        with pytest.raises(Stopped, match="stopped while another kquota is writing to the cluster a"):
            named("a").alone(stop=lambda: next(asked) == 3).__enter__()
        assert next(asked) == 4
    with named("a").alone(stop=lambda: True):  # nobody is waited for, so nothing is asked
        pass


def test_the_turn_of_a_killed_writer_is_over(locks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_WAIT_S", 30.0)
    code = (
        "from kquota.backends.kafka.turns import Turns\nwith Turns(lambda: 'a', '').alone():\n"
        "    print('held', flush=True)\n    input()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ.copy()
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    monkeypatch.setattr(turns, "_WAIT_S", 0.05)
    with pytest.raises(Conflict), named("a").alone():
        pass
    holder.send_signal(signal.SIGKILL)
    holder.communicate(timeout=60)
    with named("a").alone():
        pass


def test_the_next_writer_looks_for_what_the_one_before_wrote(locks: Path) -> None:
    heard: list[Written] = []
    first = named("a")
    with first.alone(heard.append):
        first.wrote(WROTE)
    with named("a").alone(heard.append):
        pass
    assert heard == [WROTE]
    # After a while every broker shows it; and what was noted by nobody's rules is no note.
    (file,) = locks.iterdir()
    note = json.loads(file.read_text())
    for text in (
        json.dumps(note | {"time_s": time.time() - 60}),
        json.dumps(note | {"time_s": time.time() + 60}),
        json.dumps(note | {"wrote": [[["a"], {"zork": 1}]]}),
        "[1]",
        "{",
        "",
    ):
        file.write_text(text)
        with named("a").alone(heard.append):
            pass
    assert heard == [WROTE]


def test_nobody_looks_for_what_a_killed_writer_may_have_written_over(locks: Path) -> None:
    """Each later writer would wait for it until it gives up."""
    heard: list[Written] = []
    first, killed = named("a"), named("a")
    with first.alone():
        first.wrote(WROTE)
    with killed.alone(heard.append):
        killed.writes()
        # Its end, which a kill takes away, would note what it wrote.
    with named("a").alone(heard.append):
        pass
    assert heard == [WROTE]


def test_a_folder_that_was_named_must_do_and_the_usual_one_need_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KQUOTA_LOCKS", str(tmp_path / "file" / "locks"))
    with pytest.raises(InputError, match="the lock of writers cannot be held") as refused, named("a").alone():
        pass
    assert "KQUOTA_LOCKS" in str(refused.value.hint)
    monkeypatch.delenv("KQUOTA_LOCKS")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with named("a").alone():
        pass
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with named("a").alone():
        pass
    assert [file.suffix for file in (tmp_path / "state" / "kquota" / "locks").iterdir()] == [".lock"]
