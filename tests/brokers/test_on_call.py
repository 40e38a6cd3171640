"""The page for the one on call, walked on a real broker that is slow by quotas of four kinds, and by none."""

import json
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kquota import Alteration, Entity, QuotaKey
from kquota.cli.commands.record import appender_text
from tests.brokers.kafka import BROKER, KafkaBroker
from tests.cli.conftest import Kquota, kquota  # noqa: F401 - a fixture
from tests.support.processes import started
from tests.support.waiting import interrupted

_ROOT = "    Root:\n      level: FATAL\n      AppenderRef:\n        ref: RequestAppender\n"
_SECONDS = 8.0
_LIMITED = ("alice", "bob", "dave")
HURRIED = "127.0.0.2"
"""The address of a client that connects all the time; all others are 127.0.0.1."""
_ASK = struct.pack(">ihhih5s", 15, 18, 0, 1, 5, b"hurry")
"""ApiVersions, version 0, with a client-id."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker whose request log is off, with quotas: two that bite, a shared one among them, and a generous one."""
    from kquota.backends.kafka import KafkaBackend

    logging = tmp_path_factory.mktemp("log4j") / "log4j2.yaml"
    logging.write_text(appender_text("log4j2") + _ROOT)
    with KafkaBroker(logging=logging) as running:
        admin = AdminClient(running.client("admin"))  # named: its futures fail once it is gone
        admin.create_topics([NewTopic("load", 4, 1)])["load"].result(60)
        rate = QuotaKey.PRODUCER_BYTE_RATE
        with KafkaBackend(running.bootstrap) as backend:
            answers = backend.alter(
                [
                    Alteration(Entity(user="alice"), {rate: 20_000}),
                    Alteration(Entity(user="bob"), {QuotaKey.REQUEST_PERCENTAGE: 0.2}),
                    Alteration(Entity(user="dave"), {rate: 60_000}),
                    Alteration(Entity(user="frank"), {rate: 10_000_000}),
                    Alteration(Entity(ip=HURRIED), {QuotaKey.CONNECTION_CREATION_RATE: 2}),
                ]
            )
            assert backend.wait_visible(answers) == ()
        yield running


def load(broker: KafkaBroker, user: str, client: str, size: int, pause: float) -> None:
    """Produces records of that size, a request each, for some seconds; on a busy machine until its quota is felt."""
    throttled = threading.Event()
    settings = {"client.id": client, "linger.ms": 0, "batch.num.messages": 1, "acks": "all"}
    producer = Producer({**broker.client(user), **settings, "throttle_cb": lambda event: throttled.set()})
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end or (user in _LIMITED and not throttled.is_set() and time.monotonic() < end + 300):
        producer.produce("load", b"x" * size)
        producer.poll(pause)
    producer.purge()
    producer.flush(1)


def walk(
    kquota: Kquota,  # noqa: F811
    broker: KafkaBroker,
    folder: Path,
    clients: list[tuple[str, str, int, float]],
    meanwhile: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """What the first two commands come to while these clients produce: (user, client-id, bytes, pause in s)."""
    first = broker.request_log.stat().st_size if broker.request_log.exists() else 0
    command = ["record", "--for", "1h", "--yes", "--journal", folder / "journal"]
    recording = started([*command, "--bootstrap-server", broker.bootstrap], folder)
    assert recording.stderr is not None
    while "on" not in (line := recording.stderr.readline()).split():
        assert line, "it ended before it began"
    threads = [threading.Thread(target=load, args=(broker, *client)) for client in clients]
    for thread in threads:
        thread.start()
    meanwhile()
    for thread in threads:
        thread.join()
    _, said = interrupted(recording, signal.SIGINT)
    assert recording.returncode == 130, said
    assert "switched back, WARN" in said
    with broker.request_log.open("rb") as stream:
        stream.seek(first)
        (folder / "kafka-request.log").write_bytes(stream.read())
    asked = ("--bootstrap-server", broker.bootstrap, "--in-force")
    audited = kquota("audit", "kafka-request.log", *asked, "-o", "json")
    assert audited.code == 0, audited.err
    found: dict[str, Any] = json.loads(audited.out)
    return found


def hurry(broker: KafkaBroker) -> int:
    """Connects until some connections gave no answer, asks one thing each time, and returns how many they are."""
    host, _, port = broker.bootstrap.partition(":")
    end, refused = time.monotonic() + _SECONDS, 0
    while time.monotonic() < end or (not refused and time.monotonic() < end + 300):
        try:
            with socket.create_connection((host, int(port)), 60, (HURRIED, 0)) as connection:
                connection.sendall(_ASK)
                refused += not connection.recv(4)
        except ConnectionError:
            refused += 1
    return refused


def verdicts(found: dict[str, Any]) -> dict[str, str]:
    """The verdict of the quota of each user or ip."""
    return {next(iter(each["entity"].values())): each["verdict"] for each in found["quotas"]}


def test_slow_by_a_byte_quota_a_shared_counter_a_request_quota_and_an_ip(
    kquota: Kquota,  # noqa: F811
    broker: KafkaBroker,
    tmp_path: Path,
) -> None:
    refused: list[int] = []
    found = walk(
        kquota,
        broker,
        tmp_path,
        [
            ("alice", "orders", 2000, 0.01),
            ("dave", "quiet", 500, 0.1),
            ("dave", "loud", 3000, 0.01),
            ("bob", "poll", 50, 0.001),
        ],
        lambda: refused.append(hurry(broker)),
    )
    # The client sees connections that close; the log has the others, which keep to the limit.
    assert refused[0] > 0
    assert verdicts(found) == {
        "alice": "throttled",
        "bob": "throttled",
        "dave": "throttled",
        "frank": "nobody seen",
        HURRIED: "undetermined",
    }
    by_counter = {each["sensor"]: each for each in found["findings"]}
    assert {each["client-id"] for each in by_counter["dave:"]["clients"]} == {"quiet", "loud"}
    # The log does not hold the time of network threads; the broker's own throttle times say that it was the quota.
    assert by_counter["bob:"]["logged"]["throttled_events"] > 0
    resolved = kquota(
        "resolve", "--bootstrap-server", broker.bootstrap, "--user", "dave", "--client", "quiet", "-o", "json"
    )
    assert '"limit": 60000' in resolved.out
    resolved = kquota("resolve", "--bootstrap-server", broker.bootstrap, "--ip", HURRIED, "-o", "json")
    assert '"limit": 2' in resolved.out


def test_slow_by_no_quota(
    kquota: Kquota,  # noqa: F811
    broker: KafkaBroker,
    tmp_path: Path,
) -> None:
    """The broker stands still for most of each second, as with a slow disk."""
    process = broker._running[BROKER]

    def stall() -> None:
        end = time.monotonic() + _SECONDS - 1
        while time.monotonic() < end:
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(0.7)
            os.kill(process.pid, signal.SIGCONT)
            time.sleep(0.3)

    found = walk(kquota, broker, tmp_path, [("frank", "slow", 500, 0.02)], stall)
    # Clients of the test before may still get an answer that they waited for.
    assert verdicts(found)["frank"] == "not throttled"
    assert all(each["verdict"] != "throttled" for each in found["findings"] if each["sensor"].startswith("frank:"))
