"""The journal that a cluster keeps, on a real ZooKeeper and a real broker: hosts at once, kills, and lost answers.

JOURNAL_ROUNDS says how often; `make nightly` plays fifty rounds.
"""

import contextlib
import functools
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kquota import Entity, InputError, QuotaKey, QuotaSnapshot, Unreachable
from kquota.access import connect
from kquota.backends import wire
from kquota.backends.kafka import journal as topic
from kquota.backends.kafka.connection import Connection
from kquota.backends.kafka.connection import Lost as LostConnection
from kquota.backends.kafka.session import Session as KafkaSession
from kquota.backends.zookeeper.session import Lost, Session
from kquota.changes import journal_of
from kquota.core.change.journal_store import packed, unpacked
from kquota.core.change.plan import plan
from kquota.documents.journal import Entry, Journal
from kquota.leases import read_entries
from kquota.state import CLUSTER
from tests.conftest import new_chroot
from tests.documents.test_journal import NOW, begin
from tests.support.waiting import until

ROUNDS = int(os.environ.get("JOURNAL_ROUNDS", "1"))
Settings = dict[str, str]
KEY = QuotaKey.PRODUCER_BYTE_RATE


@pytest.fixture(params=["zookeeper", "bootstrap_server"])
def settings(request: pytest.FixtureRequest) -> Settings:
    """A cluster; its journal has no entries."""
    if request.param == "zookeeper":
        return {"zookeeper": new_chroot(request.getfixturevalue("zookeeper"))}
    where = {"bootstrap_server": request.getfixturevalue("broker").bootstrap}
    with opened(where) as journal:
        journal.remove(journal.read().entries)
    return where


@contextlib.contextmanager
def opened(settings: Settings) -> Iterator[Journal]:
    """The cluster's journal, as a host of its own has it."""
    with connect(timeout_s=30, **settings) as backend:  # type: ignore[arg-type]
        yield journal_of(backend, CLUSTER)


def test_what_one_host_writes_another_one_sees(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(settings) as one, opened(settings) as other:
        assert other.read().entries == ()
        entry = begin(one)
        assert other.read().entries == (entry,)
        assert (other.is_written(entry), other.is_abandoned(entry)) == (True, False)
        ended = one.finish(entry, "applied", now=NOW)
        assert (other.read().entries, other.is_written(ended)) == ((ended,), False)
        stopped = begin(other)
        other.release(stopped)
        assert (one.is_written(stopped), one.is_abandoned(stopped), stopped.number) == (False, True, 2)
        with opened(settings) as third:
            gone = begin(third)
        monkeypatch.setattr(topic, "ALIVE_S", 0.0)  # a writer that stops says no word
        assert one.is_abandoned(gone)
        other.remove([entry])
        assert [each.id for each in one.read().entries] == [stopped.id, gone.id]
        for _ in range(25):
            one.finish(begin(one), "applied", now=NOW)
        assert [each.number for each in read_entries(other).entries] == list(range(2, 29))


def test_a_writer_that_lives_is_heard_of(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes: by its session, or by records that it repeats."""
    monkeypatch.setattr(topic, "_BEAT_S", 0.1)
    monkeypatch.setattr(topic, "ALIVE_S", 2.0)
    with opened(settings) as one, opened(settings) as other:
        entry = begin(one)
        time.sleep(3)
        until(lambda: other.is_written(entry), "its writer is not heard of")
        one.finish(entry, "applied", now=NOW)
        assert [each.outcome for each in other.read().entries] == ["applied"]


def test_large_entries_are_packed(settings: Settings) -> None:
    with opened(settings) as one:
        large = plan(QuotaSnapshot({}), {Entity(user=f"u{n}"): {KEY: n + 1} for n in range(3000)})
        entry = one.begin(Entry("", "kafka://a", "apply", NOW, large))
        one.finish(entry, "incomplete", now=NOW, unknown=[each.entity for each in large.changes])
        assert [each.plan for each in one.read().entries] == [large]
        noise = Journal(CLUSTER, random.Random(1).randbytes(900_000).hex(), kept_in=one.kept_in)
        with pytest.raises(InputError, match="the journal of a cluster takes 1,000,000"):
            begin(noise)


def test_what_is_packed_comes_back_whole() -> None:
    assert unpacked(packed(b"{}" * 99_999, 200_000, 1 << 20)) == b"{}" * 99_999
    assert isinstance(unpacked(b"x! no"), InputError)


def test_a_throttled_read_is_waited_for(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker answers such a fetch with nothing, and says for how long it takes no more."""
    throttled = [50]
    ask = KafkaSession.ask

    def without(session: KafkaSession, requests: Any, kind: type, *rest: Any, **more: Any) -> list[Any]:
        answers = ask(session, requests, kind, *rest, **more)
        if kind is wire.FetchResponse and throttled:
            answers = [answers[0]._replace(topics=[], throttle_time_ms=throttled.pop())]
        return answers

    monkeypatch.setattr(KafkaSession, "ask", without)
    with opened({"bootstrap_server": broker.bootstrap}) as journal:
        entry = begin(journal)
        assert (throttled, entry in journal.read().entries) == ([], True)
        throttled.append(60_000)
        with pytest.raises(Unreachable, match="holds back reads of topic '__kquota_journal' for 60 s"):
            journal.read()
        journal.remove([entry])


def test_writers_at_once_lose_and_double_nothing(settings: Settings) -> None:
    written: list[Entry] = []

    def write() -> None:
        with opened(settings) as journal:
            for _ in range(2 + ROUNDS):
                written.append(journal.finish(begin(journal), "applied", now=NOW))

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with opened(settings) as journal:
        entries = journal.read().entries
    assert sorted(entry.number for entry in written) == [entry.number for entry in entries]
    assert len({entry.number for entry in entries}) == 4 * (2 + ROUNDS)
    assert sorted(written, key=lambda entry: entry.number) == [*entries]


def test_lost_answers_lose_and_double_nothing(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each third request is carried out, and its answer is lost."""
    count = 0
    committed, asked = Session.commit, Connection.ask

    def commit(self: Session, transactions: Any, window: int) -> Iterator[Any]:
        nonlocal count
        for outcome in committed(self, transactions, window):
            count += 1
            yield Lost() if count % 3 == 0 else outcome

    def ask(self: Connection, *arguments: Any) -> list[Any]:
        nonlocal count
        answers = asked(self, *arguments)
        count += 1
        if count % 3 == 0:
            raise LostConnection("reset")
        return answers

    with opened(settings) as journal:
        journal.finish(begin(journal), "applied", now=NOW)
        with monkeypatch.context() as patch:
            patch.setattr(Session, "commit", commit)
            patch.setattr(Connection, "ask", ask)
            written = [journal.finish(begin(journal), "applied", now=NOW) for _ in range(5 + ROUNDS)]
        assert count > 10
    with opened(settings) as journal:
        assert journal.read().entries[1:] == tuple(written)
        assert [entry.number for entry in written] == list(range(2, 7 + ROUNDS))


def write_until_killed(settings: Settings, file: Path) -> None:
    """Writes entries, and down which of them it knows to be there."""
    with opened(settings) as journal, file.open("w", buffering=1) as known:
        while True:
            entry = begin(journal)
            known.write(f"{entry.id} None\n")
            journal.finish(entry, "applied", now=NOW)
            known.write(f"{entry.id} applied\n")


def _has_begun(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0


def test_two_hosts_that_are_killed_lose_and_double_nothing(settings: Settings, tmp_path: Path) -> None:
    """What a writer was told stays, and is there once; no number is given twice, nothing is in pieces."""
    context = multiprocessing.get_context("forkserver")
    known: dict[str, str] = {}
    chance = random.Random(7)
    with opened(settings) as journal:
        for turn in range(ROUNDS):
            files = [tmp_path / f"{turn}-{number}" for number in range(2)]
            writers = [context.Process(target=write_until_killed, args=(settings, file)) for file in files]
            for writer in writers:
                writer.start()
            for file in files:
                until(functools.partial(_has_begun, file))
            time.sleep(chance.uniform(0, 0.3))
            for writer in writers:
                assert writer.pid is not None
                os.kill(writer.pid, signal.SIGKILL)
                writer.join()
            for file in files:
                known |= dict(line.split() for line in file.read_text().splitlines() if line.count(" "))
            pages = journal.read()
            assert pages.unreadable == ()
            there = {entry.id: str(entry.outcome) for entry in pages.entries}
            assert {id: outcome for id, outcome in known.items() if there.get(id) not in (outcome, "applied")} == {}
            # An entry more for each kill: what was begun before its writer heard of it.
            assert len(there) <= len(known) + 2 * (turn + 1)
            numbers = [entry.number for entry in pages.entries]
            assert len(numbers) == len(set(numbers)), numbers
        print(f"{ROUNDS} rounds, {len(known)} entries known, {len(there)} there")
