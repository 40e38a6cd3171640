"""`kquota apply` of thousands of entities that is killed, loses its server, or meets a second writer: on real servers.

Afterwards every entity has its old or its new value, the journal tells the truth, a re-run completes, and nothing of
the other writer is lost.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from kquota import Alteration, Entity, QuotaBackend, QuotaKey, QuotaSnapshot, sandbox
from kquota.access import connect
from kquota.documents.encoding import to_json
from kquota.documents.journal import Entry, Journal
from kquota.documents.quotas import quotas_document
from tests.brokers.kafka import KafkaBroker
from tests.conftest import new_chroot
from tests.support.processes import ran

COUNT = 3_000
"""Three batches of an apply, so that it can end between two of them."""
KEY = QuotaKey.PRODUCER_BYTE_RATE
OLD = {Entity(user=f"u{number:05}"): {KEY: 1000} for number in range(0, COUNT, 2)}
"""Every second entity is there before, so that a plan creates as many as it updates."""
PATIENCE_S = 180.0
MEANWHILE_S = 5
"""How long an apply waits for a server that goes away."""
STOPS = """
import os, signal
from kquota.documents.journal import Journal
begin = Journal.begin
def stop_after(*arguments, **options):
    entry = begin(*arguments, **options)
    os.kill(os.getpid(), signal.SIGSTOP)
    return entry
Journal.begin = stop_after
from kquota.__main__ import main
main()
"""
"""A kquota that stops itself before its first write: what happens then does not depend on who is faster."""


@dataclass
class Cluster:
    """Where to apply to, by the command line and directly."""

    options: Mapping[str, str]
    journal: Journal
    folder: Path

    @property
    def words(self) -> list[str]:
        """The options, as a command line has them."""
        return [word for name, value in self.options.items() for word in (f"--{name.replace('_', '-')}", value)]

    def open(self) -> QuotaBackend:
        return connect(timeout_s=30, **self.options)  # type: ignore[arg-type]

    def apply(self, rate: int, timeout_s: int = 60, *, stops: bool = False) -> subprocess.Popen[str]:
        """Starts to give all entities that rate; a server that is gone is waited for that long.

        With `stops` the process stops itself (SIGSTOP) when the journal knows the plan and nothing is written yet.
        """
        file = self.folder / f"{rate}.json"
        quotas = QuotaSnapshot({Entity(user=f"u{number:05}"): {KEY: rate} for number in range(COUNT)})
        file.write_text(to_json(quotas_document(quotas)))
        arguments = ["apply", str(file), "--yes", "--force", "-o", "json", "--timeout", str(timeout_s)]
        arguments += ["--journal", str(self.journal.folder)]
        return subprocess.Popen(
            [sys.executable, *(("-c", STOPS) if stops else ("-m", "kquota")), *arguments, *self.words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            env={name: value for name, value in os.environ.items() if not name.startswith("KQUOTA_")},
        )

    def last(self) -> Entry:
        return self.journal.read().entries[-1]

    @staticmethod
    def await_stop(process: subprocess.Popen[str]) -> None:
        """Until the process has stopped itself."""
        observed = psutil.Process(process.pid)
        deadline = time.monotonic() + PATIENCE_S
        while observed.status() != psutil.STATUS_STOPPED:
            assert process.poll() is None, "it ended, and did not stop"
            assert time.monotonic() < deadline, "nothing was begun"
            time.sleep(0.005)

    def await_begin(self, entries: int) -> None:
        """Until the journal has one entry more: the first write is near."""
        deadline = time.monotonic() + PATIENCE_S
        while sum(1 for _ in self.journal.folder.glob("*.json")) <= entries:
            assert time.monotonic() < deadline, "nothing was begun"
            time.sleep(0.005)

    def rates(self, backend: QuotaBackend) -> dict[str, int | float | None]:
        snapshot = backend.describe()
        return {f"u{number:05}": snapshot.get(Entity(user=f"u{number:05}"), {}).get(KEY) for number in range(COUNT)}


@pytest.fixture(params=["zookeeper", "bootstrap_server"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "journal").mkdir()
    journal = Journal(tmp_path / "journal")
    if request.param == "zookeeper":
        yield Cluster({"zookeeper": new_chroot(request.getfixturevalue("zookeeper"))}, journal, tmp_path)
    else:
        with KafkaBroker() as broker:
            yield Cluster({"bootstrap_server": broker.bootstrap}, journal, tmp_path)


def test_killed_at_any_moment_it_leaves_old_or_new_and_a_rerun_completes(cluster: Cluster) -> None:
    moments = random.Random(20261121)
    with cluster.open() as backend:
        backend.wait_visible(backend.alter([Alteration(entity, values) for entity, values in OLD.items()]))
        for rate in (2000, 3000, 4000):
            before = cluster.rates(backend)
            process = cluster.apply(rate, stops=True)
            cluster.await_stop(process)
            # The first one dies where it stands; the others may be done before.
            if rate > 2000:
                process.send_signal(signal.SIGCONT)
            # Another writer, at entities that the plan does not name and at other keys of those that it does.
            time.sleep(moments.uniform(0, 0.2))
            other = Entity(user=f"other-{rate}")
            (theirs,) = backend.alter([Alteration(other, {KEY: rate})])
            assert theirs.error is None
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=PATIENCE_S)
            assert process.returncode == -signal.SIGKILL or rate > 2000
            time.sleep(1)  # what the broker had in hand

            after = cluster.rates(backend)
            assert all(after[name] in (before[name], rate) for name in after)
            entry = cluster.last()
            if process.returncode == -signal.SIGKILL:
                assert (entry.outcome, entry.finished) in ((None, None), ("applied", entry.finished))
            assert entry.plan.changes[0].after == {KEY: rate}

            again = cluster.apply(rate)
            _, err = again.communicate(timeout=PATIENCE_S)
            assert again.returncode == 0, err
            with cluster.open() as fresh:
                assert set(cluster.rates(fresh).values()) == {rate}
                assert dict(fresh.describe()[other]) == {KEY: rate}


def test_a_second_writer_makes_it_roll_back_and_keeps_its_own(cluster: Cluster) -> None:
    """The rival alters an entity that comes late in the plan, while the first ones are written."""
    rival = Entity(user=f"u{COUNT - 2:05}")
    with cluster.open() as backend:
        backend.wait_visible(backend.alter([Alteration(entity, values) for entity, values in OLD.items()]))
        before = cluster.rates(backend)
        process = cluster.apply(2000)
        cluster.await_begin(0)
        (theirs,) = backend.alter([Alteration(rival, {KEY: 77})])
        assert theirs.error is None
        _, err = process.communicate(timeout=PATIENCE_S)
    with cluster.open() as fresh:
        after = cluster.rates(fresh)
        entry = cluster.last()
        if process.returncode == 0:  # it was faster, and the rival wrote over what it found
            assert entry.outcome == "applied"
            assert after == dict.fromkeys(after, 2000) | {rival.user: 77}
        else:
            assert f"kquota: {rival}: was changed by somebody else: {KEY} is 77 B/s, and was " in err
            assert after == before | {rival.user: 77}
            # All that this apply wrote is taken back, and the other value is known to be another's.
            assert (process.returncode, entry.outcome) == (7, "rolled back")
            assert str(rival) in (entry.error or "")


@pytest.mark.parametrize("delay_s", [0.0, 0.1])
def test_a_server_that_goes_away_ends_it_in_time(tmp_path: Path, delay_s: float) -> None:
    data = tmp_path / "zookeeper"
    state = sandbox.start(data)
    try:
        (tmp_path / "journal").mkdir()
        cluster = Cluster({"zookeeper": state.connect}, Journal(tmp_path / "journal"), tmp_path)
        with cluster.open() as backend:
            backend.alter([Alteration(entity, values) for entity, values in OLD.items()])
            before = cluster.rates(backend)
        process = cluster.apply(2000, MEANWHILE_S)
        cluster.await_begin(0)
        time.sleep(delay_s)
        sandbox.stop(data)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode in (0, 4, 9), err
        assert "Traceback" not in err
        entry = cluster.last()
        sandbox.start(data, state.port)
        with cluster.open() as backend:
            after = cluster.rates(backend)
            assert all(after[name] in (before[name], 2000) for name in after)
            if entry.outcome == "applied":
                assert set(after.values()) == {2000}
            elif entry.outcome == "rolled back":
                assert after == before
            again = cluster.apply(2000)
            _, err = again.communicate(timeout=PATIENCE_S)
            assert again.returncode == 0, err
            assert set(cluster.rates(backend).values()) == {2000}
    finally:
        sandbox.stop(data)


def test_a_broker_that_is_killed_and_comes_back_leaves_old_or_new(tmp_path: Path) -> None:
    """By SIGKILL: before the first write until apply has given up, then in the middle and started again at once."""
    (tmp_path / "journal").mkdir()
    # Its controller lets it come back only when it has missed the one that was killed.
    with KafkaBroker(settings={"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "300"}) as broker:
        cluster = Cluster({"bootstrap_server": broker.bootstrap}, Journal(tmp_path / "journal"), tmp_path)
        with cluster.open() as backend:
            backend.wait_visible(backend.alter([Alteration(entity, values) for entity, values in OLD.items()]))
        for rate, gives_up in ((2000, True), (3000, False)):
            with cluster.open() as backend:
                before = cluster.rates(backend)
            process = cluster.apply(rate, MEANWHILE_S, stops=True)
            cluster.await_stop(process)
            if not gives_up:
                process.send_signal(signal.SIGCONT)
                time.sleep(0.1)
            broker.kill()
            process.send_signal(signal.SIGCONT)
            if gives_up:
                process.wait(PATIENCE_S)
            broker.start_again()
            _, err = process.communicate(timeout=PATIENCE_S)
            assert process.returncode in ((4, 9) if gives_up else (0, 4, 9)), err
            assert "Traceback" not in err

            entry = cluster.last()
            with cluster.open() as backend:
                after = cluster.rates(backend)
                assert all(after[name] in (before[name], rate) for name in after)
                assert entry.plan.changes[0].after == {KEY: rate}
                if process.returncode == 0:
                    assert (entry.outcome, set(after.values())) == ("applied", {rate})
                elif entry.outcome == "rolled back":
                    assert after == before
                else:
                    # What is there cannot be told without the broker; the journal says so, and holds the way back.
                    assert entry.outcome == "incomplete"
                    assert "127.0.0.1" in (entry.error or "")
                    assert f"'kquota undo {entry.name} --bootstrap-server 127.0.0.1:" in err
                    assert len(err.splitlines()) < 50

                again = cluster.apply(rate)
                _, err = again.communicate(timeout=PATIENCE_S)
                assert again.returncode == 0, err
            with cluster.open() as fresh:
                assert set(cluster.rates(fresh).values()) == {rate}


def test_the_journal_of_a_killed_apply_leads_back(cluster: Cluster) -> None:
    with cluster.open() as backend:
        backend.wait_visible(backend.alter([Alteration(entity, values) for entity, values in OLD.items()]))
        before = cluster.rates(backend)
    process = cluster.apply(2000)
    cluster.await_begin(0)
    time.sleep(0.1)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    time.sleep(1)
    undo = ["undo", "--yes", "--journal", cluster.journal.folder, *cluster.words, "-o", "json"]
    done = ran([sys.executable, "-m", "kquota", *undo])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcome"] == "applied"
    with cluster.open() as fresh:
        assert cluster.rates(fresh) == before
