"""A topic of usage records on a real broker."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kquota.audit import local
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, usage_topic
from kquota.audit.stream import sinks
from kquota.audit.stream.follow import Follower
from kquota.cli.main import run
from kquota.core.change.history import QuotaHistory
from kquota.errors import InputError, Unreachable
from tests.audit import oracle
from tests.audit.test_job import QUOTAS, many_events
from tests.brokers.kafka import KafkaBroker, password_of
from tests.cli.conftest import Kquota

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
    assert oracle.as_expected(result.findings) == oracle.findings(EVENTS, settings)
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
    (tmp_path / "quotas.json").write_text(
        json.dumps(
            {
                "kind": "kquota.quotas",
                "version": 1,
                "quotas": [{"entity": {"user": "alice"}, "values": {"producer_byte_rate": 2000}}],
            }
        )
    )
    where = ["--topic", "usage", "--bootstrap-server", broker.sasl_bootstrap, "--command-config", str(login)]

    done = kquota("audit", *where, "--quotas", str(tmp_path / "quotas.json"), "-o", "json")

    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["data"]["events"] == len(EVENTS)
    assert document["data"]["rejected"] == 1
    assert {finding["sensor"] for finding in document["findings"]} == {"alice:"}
    assert password_of("alice") not in done.out + done.err

    to = ("--follow", "--until-idle", "1s", "-o", "json")
    followed = kquota("audit", *where, "--quotas", str(tmp_path / "quotas.json"), *to)
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


@pytest.mark.parametrize(
    ("topic", "says"), [("empty", "empty, no usage events"), ("missing", "there is no such topic")]
)
def test_nothing_to_read(broker: KafkaBroker, topic: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        usage_topic.plan_topic(topic, broker.client("alice"), 30)


@pytest.fixture
def throttled(tmp_path: Path) -> tuple[str, ...]:
    """The command that follows usage in which three clients are throttled twice, until nothing comes."""
    rows = [
        {"broker": "1", "user": user, "client_id": "c", "api": "produce", "bytes": 9000, "time_ms": start + at}
        for start in (1_793_523_600_000, 1_793_523_700_000)
        for at in range(0, 20_000, 500)
        for user in ("alice", "bob", "zoë")
    ]
    (tmp_path / "usage.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = {"entity": {"user": {"default": True}}, "values": {"producer_byte_rate": 10_000}}
    (tmp_path / "quotas.json").write_text(json.dumps({"kind": "kquota.quotas", "version": 1, "quotas": [values]}))
    words = ("audit", "usage.jsonl", "--quotas", "quotas.json", "--checkpoint", "kept", "--follow")
    return (*words, "--until-idle", "1s", "-o", "json")


def written(broker: KafkaBroker, topic: str) -> list[tuple[int, str, dict[str, Any]]]:
    """(partition, key, document) of all records of a topic, each partition in its order."""
    with usage_topic.consuming({**broker.client("alice"), "isolation.level": "read_uncommitted"}) as (consumer, kafka):
        ends = usage_topic.ends(topic, consumer, kafka, 30)
        consumer.assign([kafka.TopicPartition(topic, partition, first) for partition, (first, _) in ends.items()])
        many, found = sum(end - first for first, end in ends.values()), list[tuple[int, str, dict[str, Any]]]()
        while len(found) < many:
            for each in consumer.consume(many, 1):
                if each.error() is None:
                    found.append((each.partition(), each.key().decode(), json.loads(each.value())))
    return found


def test_episodes_go_to_a_topic(
    broker: KafkaBroker,
    kquota: Kquota,
    throttled: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are there before the checkpoint is; after a kill in between they come again, with the same ids."""
    admin = AdminClient(broker.client("admin"))  # named: its futures fail once it is gone
    admin.create_topics([NewTopic("episodes", 3, 1)])["episodes"].result(60)
    to = ("--episodes", "topic:episodes", "--episodes", "lines.jsonl", "--bootstrap-server", broker.bootstrap)
    saving: list[int] = []

    def killed(_follower: Follower) -> None:
        saving.append(len(written(broker, "episodes")))
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Follower, "save", killed)
        patch.chdir(tmp_path)
        with pytest.raises(Killed):
            run([*throttled, *to])
    first = written(broker, "episodes")
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]

    assert saving == [len(first)]
    # The second episodes go on: they come as open at the end, which the kill prevents.
    assert [each["state"] for each in lines].count("began") == 6
    assert [each["state"] for each in lines].count("ended") == 3
    assert sorted(map(str, lines)) == sorted(str(document) for _, _, document in first)
    assert all(key == document["id"] for _, key, document in first)
    assert len({(partition, key) for partition, key, _ in first}) == len({key for _, key, _ in first})

    again = kquota(*throttled, *to)
    every = written(broker, "episodes")
    assert again.code == 0, again.err
    assert len(every) == 2 * len(first) + 3
    states = {(key, document["state"]): str(document) for _, key, document in every}
    assert len(states) == len(first) + 3
    assert all(states[key, document["state"]] == str(document) for _, key, document in every)
    last = {key: document["state"] for _, key, document in every}
    assert sorted(last.values()) == ["ended"] * 3 + ["open"] * 3


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize(
    ("topic", "code", "says"),
    [
        ("small", 3, "kquota: topic small: Broker: Message size too large (episodes are missing there; with"),
        ("nowhere", 3, "kquota: topic nowhere: there is no such topic"),
        ("", 3, "--episodes topic: without a name"),
    ],
)
def test_a_topic_that_takes_no_episodes(
    broker: KafkaBroker, kquota: Kquota, throttled: tuple[str, ...], tmp_path: Path, topic: str, code: int, says: str
) -> None:
    """One line, and no checkpoint that is ahead of the topic; nothing is created."""
    small = NewTopic("small", 1, 1, config={"max.message.bytes": "100"})
    admin = AdminClient(broker.client())
    if topic == "small":
        admin.create_topics([small])["small"].result(60)
    done = kquota(*throttled, "--episodes", f"topic:{topic}", "--bootstrap-server", broker.bootstrap)

    assert done.code == code
    assert says in done.complaint
    assert not (tmp_path / "kept" / "checkpoint").exists()
    assert "nowhere" not in admin.list_topics().topics


@pytest.mark.parametrize(
    ("raised", "waits"), [(None, True), (InputError("the disk is full"), True), (KeyboardInterrupt(), False)]
)
def test_closing_a_topic_hides_no_error(
    broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch, raised: BaseException | None, waits: bool
) -> None:
    """It waits for what is on its way, but not when a second signal ends all at once."""
    asked: list[bool] = []

    def lost() -> None:
        asked.append(True)
        raise Unreachable("the brokers are gone")

    topic = sinks.Topic("usage", broker.client())
    monkeypatch.setattr(topic, "confirm", lost)

    def follow() -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(topic.close)
            if raised is not None:
                raise raised

    with pytest.raises(Unreachable if raised is None else type(raised)):
        follow()
    assert bool(asked) == waits


def test_a_login_that_the_topic_refuses(
    broker: KafkaBroker, kquota: Kquota, throttled: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "client.properties").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=org.apache.kafka.common.security.plain."
        'PlainLoginModule required username="alice" password="wrong";\n'
    )
    where = ("--bootstrap-server", broker.sasl_bootstrap, "--command-config", "client.properties")
    done = kquota(*throttled, "--episodes", "topic:usage", *where)

    assert done.code == 5
    assert "topic usage: " in done.complaint
    assert "wrong" not in done.err


@pytest.mark.parametrize("follow", [(), ("--follow",), ("--follow", "--until-idle", "1s", "--episodes", "topic:t")])
def test_a_cluster_that_never_answers(kquota: Kquota, tmp_path: Path, follow: tuple[str, ...]) -> None:
    """It is given up after --timeout."""
    quotas = [{"entity": {"user": "alice"}, "values": {"producer_byte_rate": 2000}}]
    (tmp_path / "quotas.json").write_text(json.dumps({"kind": "kquota.quotas", "version": 1, "quotas": quotas}))
    (tmp_path / "usage.jsonl").touch()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = ("--bootstrap-server", f"127.0.0.1:{silent.getsockname()[1]}", "--timeout", "0.5")
        what = ("usage.jsonl",) if "--episodes" in follow else ("--topic", "t")
        kquota("audit", "--help")  # its libraries are not in the time
        begun = time.monotonic()
        done = kquota("audit", *what, *where, "--quotas", "quotas.json", *follow)
        took = time.monotonic() - begun

    assert done.code == 4
    assert "topic t: " in done.complaint
    assert took < usage_topic.PATIENCE_S / 2


def test_a_password_is_not_shown() -> None:
    assert "hunter2" not in repr(AuditSettings(QuotaHistory.of(QUOTAS), read=ReadSettings(kafka={"x": "hunter2"})))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "what to audit: "),
        (("x.log", "--table", "t"), "give only one of files and --table"),
        (("--table", "t", "--engine", "local"), "--table is Spark's"),
        (("--topic", "t"), "no brokers"),
    ],
)
def test_what_to_audit_is_one_thing(kquota: Kquota, arguments: tuple[str, ...], says: str) -> None:
    done = kquota("audit", *arguments, "--quotas", "q.yaml")
    assert done.code == 2
    assert says in done.err
