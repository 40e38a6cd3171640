"""A real broker under real quotas, read by Kafka's own JmxTool: the audit agrees with what the broker says it did."""

import subprocess
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kquota import Alteration, Entity, QuotaKey, QuotaSnapshot
from kquota.audit.engines import local
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, plan_splits
from kquota.backends.kafka import KafkaBackend
from kquota.core.change.history import QuotaHistory
from tests.brokers.kafka import AT_ONCE, KafkaBroker
from tests.support.processes import free_ports
from tools.recording.samples import jmx_flags, jmx_tool, running

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
LIMITS = {"alice": 20_000, "bob": 10_000_000}
"""alice sends more, bob a small part of it."""
READINGS = 5


def send(broker: KafkaBroker, user: str, over: threading.Event) -> None:
    """Records of 2 kB, as fast as the broker takes them for alice; now and then for bob."""
    producer = Producer({**broker.client(user), "client.id": user, "queue.buffering.max.messages": 50, "linger.ms": 5})
    while not over.wait(0.02 if user == "alice" else 0.2):
        try:
            producer.produce("t", bytes(2000))
        except BufferError:
            producer.poll(0.05)
        producer.poll(0)
    producer.purge()
    producer.flush(1)


def readings(broker_jmx: int, file: Path, deadline_s: float = 180) -> None:
    """Has JmxTool write that many rows; the first has no rates yet."""
    command = jmx_tool(broker_jmx, "--object-name=kafka.server:type=Produce,*", "--reporting-interval", "2000")
    deadline = time.monotonic() + deadline_s
    with file.open("wb") as output, running(command, stdout=output, stderr=subprocess.DEVNULL):
        while file.read_bytes().count(b"\n") <= READINGS:
            assert time.monotonic() < deadline, file.read_text()
            time.sleep(0.1)
    file.write_bytes(b"".join(file.read_bytes().splitlines(True)[: READINGS + 1]))  # it may have gone on


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What JmxTool said."""
    (port,) = free_ports(1)
    folder = tmp_path_factory.mktemp("broker-1")
    over = threading.Event()
    with KafkaBroker(settings=AT_ONCE, jvm_flags=jmx_flags(port)) as broker:
        admin = AdminClient(broker.client())
        (created,) = admin.create_topics([NewTopic("t", 1, 1)]).values()
        created.result(60)
        with KafkaBackend(broker.bootstrap) as backend:
            backend.alter([Alteration(Entity(user=user), set={PRODUCE: limit}) for user, limit in LIMITS.items()])
        clients = [threading.Thread(target=send, args=(broker, user, over)) for user in LIMITS]
        for client in clients:
            client.start()
        try:
            # The counters are there, and alice was throttled, before the tool looks for them.
            deadline = time.monotonic() + 60
            while '"throttleTimeMs":0,' not in (log := broker.request_log.read_text()) or not _throttled(log):
                assert time.monotonic() < deadline, "nobody was throttled"
                time.sleep(0.2)
            readings(port, folder / "kafka-jmx.csv")
        finally:
            over.set()
            for client in clients:
                client.join(30)
    return folder / "kafka-jmx.csv"


def _throttled(log: str) -> bool:
    """Whether both users produced, and a produce request was throttled."""
    lines = [line for line in log.splitlines() if '"requestApiKeyName":"PRODUCE"' in line]
    return any('"principal":"User:bob"' in line for line in lines) and any(
        '"throttleTimeMs":0,' not in line.partition('"totalTimeMs"')[2] for line in lines
    )


@pytest.mark.parametrize("in_force", [True, False])
def test_the_audit_agrees_with_the_broker(recorded: Path, in_force: bool) -> None:
    """Under the quotas that were in force; without knowing that they were, it never contradicts."""
    quotas = QuotaHistory.of(QuotaSnapshot({Entity(user=user): {PRODUCE: limit} for user, limit in LIMITS.items()}))
    settings = AuditSettings(quotas, in_force=in_force, read=ReadSettings(broker="1"))

    result = local.audit(plan_splits([str(recorded)], "auto"), settings, "JmxTool's output")

    found = {row["sensor"]: row for row in result.findings.to_pylist()}
    assert (result.quality.rejected, set(found)) == (0, {"alice:", "bob:"})
    assert found["alice:"]["logged_throttled_events"] == READINGS
    assert found["alice:"]["verdict"] in ({"throttled"} if in_force else {"throttled", "undetermined"})
    assert found["alice:"]["peak_rate"] > 0.5 * LIMITS["alice"]
    assert (found["bob:"]["verdict"], found["bob:"]["logged_throttled_events"]) == ("not throttled", 0)
