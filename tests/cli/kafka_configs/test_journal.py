"""What the drop-in alters is in the journal, and nothing of it shows."""

import os
from pathlib import Path
from typing import Any

import pytest

from kquota import Entity, QuotaKey
from kquota.backends.kafka.raw import RawQuotas
from kquota.documents.journal import Entry, Journal
from kquota.errors import Uncertain
from tests.brokers.kafka import KafkaBroker
from tests.cli.conftest import Kquota, Ran
from tests.cli.kafka_configs.conftest import WARNING, Tool, node

PRODUCER = QuotaKey.PRODUCER_BYTE_RATE
CONSUMER = QuotaKey.CONSUMER_BYTE_RATE


def entries(journal: Path) -> list[Entry]:
    return list(Journal(journal).read().entries)


def only(journal: Path) -> tuple[str, dict[QuotaKey, float], dict[QuotaKey, float], str | None]:
    """The cluster, the values before and after, and the outcome of the only entry."""
    (entry,) = entries(journal)
    assert entry.command == "kafka-configs"
    (change,) = entry.plan.changes
    assert change.entity == Entity(user="u")
    return entry.cluster, dict(change.before), dict(change.after), entry.outcome


def test_a_change_in_zookeeper(tool: Tool, chroot: str, znodes: Any, journal: Path) -> None:
    znodes.create("/config/users/u", node(SCRAM__SHA__256="secret", producer_byte_rate="1"), makepath=True)
    line = f"--zookeeper {chroot} --user u --alter --add-config consumer_byte_rate=2 --delete-config producer_byte_rate"
    assert tool(line) == Ran(0, f"{WARNING}Completed updating config for entity: user-principal 'u'.\n", "")
    assert only(journal) == (f"zookeeper://{chroot}", {PRODUCER: 1}, {CONSUMER: 2}, "applied")
    (file,) = journal.glob("*.json")
    assert "SCRAM" not in file.read_text()


def test_a_change_through_brokers(tool: Tool, kraft: KafkaBroker, journal: Path) -> None:
    line = f"--bootstrap-server {kraft.bootstrap} --user u --alter"
    assert tool(f"{line} --add-config producer_byte_rate=5e3").code == 0
    try:
        assert only(journal) == (f"kafka://{kraft.bootstrap}", {}, {PRODUCER: 5000}, "applied")
    finally:
        tool(f"{line} --delete-config producer_byte_rate")


def test_a_change_that_the_broker_refuses(tool: Tool, kraft: KafkaBroker, journal: Path) -> None:
    line = f"--bootstrap-server {kraft.bootstrap} --user u --alter --add-config producer_byte_rate=1.5"
    assert tool(line).code == 1
    assert only(journal)[3] == "rolled back"


def test_a_change_whose_answer_was_lost(tool: Tool, monkeypatch: pytest.MonkeyPatch, journal: Path) -> None:
    """Nobody knows whether it was made."""

    def alter(*_: object) -> None:
        raise Uncertain("no answer")

    monkeypatch.setattr(RawQuotas, "describe", lambda *_: [])
    monkeypatch.setattr(RawQuotas, "alter", alter)
    assert tool("--bootstrap-server 127.0.0.1:1 --user u --alter --add-config producer_byte_rate=1").code == 1
    assert only(journal)[3] == "incomplete"


def test_another_writer_in_between(
    tool: Tool, chroot: str, znodes: Any, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry that stays has the values that the change met."""
    from kquota.documents import journal as documents

    znodes.create("/config/users/u", node(producer_byte_rate="1"), makepath=True)
    begin = documents.Journal.begin
    met = iter([b"2"])

    def meanwhile(self: Journal, *arguments: Any, **options: Any) -> Entry:
        if (value := next(met, None)) is not None:
            znodes.set("/config/users/u", node(producer_byte_rate=value.decode()))
        return begin(self, *arguments, **options)

    monkeypatch.setattr(documents.Journal, "begin", meanwhile)
    assert tool(f"--zookeeper {chroot} --user u --alter --add-config consumer_byte_rate=9").code == 0
    assert [(dict(entry.plan.changes[0].before), entry.outcome) for entry in entries(journal)] == [
        ({PRODUCER: 1}, "rolled back"),
        ({PRODUCER: 2}, "applied"),
    ]


@pytest.mark.parametrize("what", ["off", "nothing changes", "describe", "no folder"])
def test_no_entry(tool: Tool, chroot: str, journal: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Where a setting says so, where there is nothing to take back, and where the journal cannot be written."""
    change = "--alter --add-config producer_byte_rate=1"
    if what == "off":
        monkeypatch.setenv("KQUOTA_KAFKA_CONFIGS_JOURNAL", "off")
    elif what == "describe":
        change = "--describe"
    elif what == "no folder":
        journal.write_text("a file")
    elif what == "nothing changes":
        tool(f"--zookeeper {chroot} --user u {change}")
        for file in journal.glob("*.json"):
            file.unlink()
    ran = tool(f"--zookeeper {chroot} --user u {change}")
    assert (ran.code, ran.err) == (0, "")
    assert not list(journal.glob("*.json"))


def test_history_and_undo_know_it(kquota: Kquota, chroot: str, znodes: Any, tmp_path: Path) -> None:
    """The node gets back its bytes, credentials and all."""
    before = node(SCRAM__SHA__256="salt=a,stored_key=b,server_key=c,iterations=4096", producer_byte_rate="1")
    znodes.create("/config/users/u", before, makepath=True)
    journal = {"KQUOTA_JOURNAL": str(tmp_path / "j")}
    words = ["--zookeeper", chroot, "--user", "u", "--alter", "--add-config", "producer_byte_rate=7"]
    assert kquota("kafka-configs", *words, **journal).code == 0
    assert znodes.get("/config/users/u")[0] != before
    assert "kafka-configs" in kquota("history", **journal).out
    assert kquota("undo", "--zookeeper", chroot, "--yes", **journal).code == 0
    assert znodes.get("/config/users/u")[0] == before
    assert os.listdir(tmp_path / "j")
