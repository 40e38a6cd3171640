"""A topic of usage records on a real broker."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kquota.audit.engines import local
from kquota.audit.follow.follow import Follower
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, usage_topic
from kquota.core.change.history import QuotaHistory
from kquota.errors import InputError
from tests.audit import oracle
from tests.audit.test_job import QUOTAS, many_events, many_findings
from tests.brokers.kafka import KafkaBroker, password_of
from tests.cli.conftest import Kquota, quotas

EVENTS = many_events()


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    """A broker with the topic `usage`: events in three partitions, some in transactions, and records that are none."""
    with KafkaBroker(heap="384m") as broker:
        admin = AdminClient(broker.client("admin"))
        topics = [NewTopic("usage", 3, 1), NewTopic("empty", 1, 1)]
        for future in admin.create_topics(topics).values():
            future.result(60)
        rows = [json.dumps(row).encode() for row in oracle.usage_table(EVENTS).to_pylist()]
        plain = Producer(broker.client("admin"))
        for number, row in enumerate(rows[:3000]):
            plain.produce("usage", row, partition=number % 3)
        plain.produce("usage", b"no JSON", partition=1)
        plain.produce("usage", None, key=b"k", partition=1)
        assert plain.flush(60) == 0
        careful: Any = Producer({**broker.client("admin"), "transactional.id": "t"})
        careful.init_transactions(30)
        for keep in (True, False):
            careful.begin_transaction()
            for number, row in enumerate(rows[3000:]):
                careful.produce("usage", row, partition=number % 3)
            # What is aborted was sent; an end before the broker knows of a partition is INVALID_TXN_STATE.
            assert careful.flush(60) == 0
            if keep:
                careful.commit_transaction(30)
            else:
                careful.abort_transaction(30)
        yield broker


@pytest.mark.parametrize("processes", [1, 2])
def test_what_a_topic_holds(broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch, processes: int) -> None:
    """Each event once, whatever the pieces; what is no event is counted, what was aborted is not there."""
    monkeypatch.setattr(usage_topic, "SPLIT_RECORDS", 700)
    client = broker.client("alice")
    settings = AuditSettings(QuotaHistory.of(QUOTAS), read=ReadSettings(kafka=client))

    splits = usage_topic.plan_topic("usage", client, 30)
    result = local.audit(splits, settings, "topic usage", processes=processes)

    assert len(splits) >= 6
    assert oracle.as_expected(result.findings) == many_findings()
    assert (result.quality.events, result.quality.rejected) == (len(EVENTS), 1)
    (reject,) = result.rejects
    assert (reject.source, reject.place, reject.text) == ("usage/1", "offset 1000", "no JSON")


def test_from_the_shell(broker: KafkaBroker, kquota: Kquota, tmp_path: Path) -> None:
    """Logged in by the file of the other commands; the quotas are those of a file, or of the cluster."""
    login = tmp_path / "client.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=org.apache.kafka.common.security.plain."
        f'PlainLoginModule required username="alice" password="{password_of("alice")}";\n'
    )
    (tmp_path / "quotas.json").write_text(quotas(alice=2000))
    where = ["--topic", "usage", "--bootstrap-server", broker.sasl_bootstrap, "--command-config", str(login)]

    done = kquota("audit", *where, "--quotas", str(tmp_path / "quotas.json"), "-o", "json")

    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["data"]["events"] == len(EVENTS)
    assert document["data"]["rejected"] == 1
    assert {finding["sensor"] for finding in document["findings"]} == {"alice:"}
    assert password_of("alice") not in done.out + done.err

    to = ("--until-idle", "1s", "-o", "json")
    followed = kquota("follow", *where, "--quotas", str(tmp_path / "quotas.json"), *to)
    assert (followed.code, followed.out) == (0, done.out)

    live = kquota("audit", *where)
    assert live.code == 0
    assert f"no quotas are set in kafka://{broker.sasl_bootstrap}" in live.err


def test_a_topic_that_is_followed(broker: KafkaBroker, tmp_path: Path) -> None:
    """Through a kill and an open transaction, whose records come with its end; the findings are the batch audit's."""
    admin = AdminClient(broker.client("admin"))
    admin.create_topics([NewTopic("followed", 3, 1)])["followed"].result(60)
    client = broker.client("alice")
    settings = AuditSettings(QuotaHistory.of(QUOTAS), read=ReadSettings(kafka=client))
    rows = [json.dumps(row).encode() for row in oracle.usage_table(EVENTS).to_pylist()]
    producer: Any = Producer({**broker.client("admin"), "transactional.id": "followed"})
    producer.init_transactions(30)

    def follower() -> Follower:
        return Follower(["followed"], settings, topic=True, checkpoint_folder=tmp_path / "kept", settle_ms=10**9)

    following = follower()
    assert following.turn().read_bytes == 0
    with pytest.raises(InputError, match="empty, no usage events"):
        following.result("topic followed")
    for part in range(3):
        producer.begin_transaction()
        for number, row in enumerate(rows[part::3]):
            producer.produce("followed", row, partition=2 - number % (part + 1))
        assert producer.flush(60) == 0
        events = following.quality.events
        following.turn()
        assert following.quality.events == events
        producer.commit_transaction(30)
        # The broker answers before the end is in all partitions.
        end, events = time.monotonic() + 60, sum(len(rows[mine::3]) for mine in range(part + 1))
        while following.quality.events < events and time.monotonic() < end:
            following.turn()
        following.save()
        if part == 1:
            following.close()
            following = follower()
        assert following.quality.events == events
    following.end()
    found = following.result("topic followed")
    following.close()
    expected = local.audit(usage_topic.plan_topic("followed", client, 30), settings, "topic followed", processes=1)

    assert found.findings.equals(expected.findings)
    assert (found.quality, found.quotas, found.predictions) == (expected.quality, expected.quotas, expected.predictions)
    assert password_of("alice").encode() not in (tmp_path / "kept" / "checkpoint").read_bytes()
    assert not usage_topic._kept


@pytest.mark.parametrize("command", ["audit", "follow"])
def test_a_cluster_that_never_answers(kquota: Kquota, tmp_path: Path, command: str) -> None:
    """It is given up after --timeout."""
    (tmp_path / "quotas.json").write_text(quotas(alice=2000))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = ("--bootstrap-server", f"127.0.0.1:{silent.getsockname()[1]}", "--timeout", "0.5")
        kquota("audit", "--help")  # its libraries are not in the time
        begun = time.monotonic()
        done = kquota(command, "--topic", "t", *where, "--quotas", "quotas.json")
        took = time.monotonic() - begun

    assert done.code == 4
    assert "topic t: " in done.complaint
    assert took < usage_topic.PATIENCE_S / 2
