"""A share consumer (KIP-932) under a quota, on a real broker: what it is charged, and what an audit says of its log."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kquota import Alteration, Entity, QuotaKey, QuotaSnapshot
from kquota.audit.engines import local
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import plan_splits
from kquota.audit.sources.sizes import SHARE_FETCH_EMPTY
from kquota.backends.kafka import KafkaBackend
from kquota.core.change.history import QuotaHistory
from tests.audit.request_lines import parse_line
from tests.brokers.kafka import COORDINATES, VERSION, KafkaBroker
from tests.brokers.maven import retrieve
from tests.support.processes import java
from tests.support.waiting import until

CONSUMER = Path(__file__).with_name("ShareConsumer.java")
TOPIC = "shared"
BATCHES, BATCH_RECORDS, RECORD_BYTES = 700, 2, 5_000
FETCHED = 5
"""Batches that a share fetch acquires. What is throttled stays acquired, and a group may have 2000 records so."""
SHARER = Entity("ANONYMOUS", "sharer")
LIMIT = 200_000
# The second is for what other tests may have left on this broker.
QUOTAS = {QuotaKey.CONSUMER_BYTE_RATE: LIMIT, QuotaKey.REQUEST_PERCENTAGE: 1_000_000}
FREE = {
    QuotaKey.PRODUCER_BYTE_RATE: 1_000_000_000,
    QuotaKey.CONSUMER_BYTE_RATE: 1_000_000_000,
    QuotaKey.REQUEST_PERCENTAGE: 1_000_000,
}
"""Of the clients that are not to be throttled: other tests leave defaults on this broker that stop everybody."""
OTHERS = [Entity("ANONYMOUS", "share-filler"), Entity("ANONYMOUS", "warm-up")]
THROTTLES = 11
"""About as many as there are until the first sample is dropped. Later a ms decides which one a request is in, and that
the log does not tell."""
PARTITION_BYTES = 18 + 24
"""In a share fetch's response, version 1 and later: a topic; and a partition but for records and acquired ranges."""
RANGE_BYTES = 19


@dataclass(frozen=True)
class Line:
    """A line of the log that a request of the share consumer or of the producer made."""

    text: str
    fields: Any

    @property
    def partitions(self) -> list[Any]:
        """All that are in the response."""
        return [partition for topic in self.fields["response"]["responses"] for partition in topic["partitions"]]

    @property
    def throttle_ms(self) -> int:
        """What the broker applied."""
        applied: int = self.fields["throttleTimeMs"]
        return applied


def lines(broker: KafkaBroker, client_id: str, api: str) -> list[Line]:
    """Those of that client and API, in the order of the log."""
    found = []
    for text in broker.request_log.read_text(encoding="utf-8").splitlines():
        if text.endswith(")") and f'"clientId":"{client_id}"' in text and f'"{api}"' in text:
            found.append(Line(text, json.loads(text[text.index("{") : text.rindex("}") + 1])))
    return found


def fill(broker: KafkaBroker) -> None:
    """Creates the topic, and batches of the same size in it."""
    admin = AdminClient(broker.client())
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(60)
    config = {"client.id": "share-filler", "batch.num.messages": BATCH_RECORDS, "linger.ms": 500}
    producer = Producer({**broker.client(), **config, "max.in.flight": 1})
    for _ in range(BATCHES * BATCH_RECORDS):
        producer.produce(TOPIC, bytes(RECORD_BYTES))
        producer.poll(0)
    assert producer.flush(60) == 0


@contextmanager
def share_consumer(broker: KafkaBroker, client_id: str, folder: Path) -> Iterator[Callable[[], list[Line]]]:
    """A share consumer, in a group of its own, that reads the topic from its beginning; and its share fetches."""
    settings = {"bootstrap.servers": broker.bootstrap, "client.id": client_id, "group.id": client_id}
    settings["max.poll.records"] = str(FETCHED * BATCH_RECORDS)
    properties, log = folder / f"{client_id}.properties", folder / f"{client_id}.log"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [java(), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-cp", f"{retrieve(f'kafka-{VERSION}', COORDINATES)}/*", str(CONSUMER), str(properties), TOPIC]
    command += ["share.auto.offset.reset=earliest"]
    with log.open("wb") as output:
        consumer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT)
    try:

        def seen() -> list[Line]:
            assert consumer.poll() is None, log.read_text()
            return lines(broker, client_id, "SHARE_FETCH")

        yield seen
        consumer.communicate(timeout=120)
        assert consumer.returncode == 0, log.read_text()
    finally:
        consumer.kill()
        consumer.wait(10)


@pytest.fixture(scope="module")
def shared(kraft: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> list[Line]:
    """The share fetches of a consumer that reads faster than its quota."""
    folder = tmp_path_factory.mktemp("sharers")
    with KafkaBackend(kraft.bootstrap) as backend:
        assert backend.wait_visible(backend.alter([Alteration(other, FREE) for other in OTHERS])) == ()
        fill(kraft)
        # The first share fetch of a broker takes long, after its charge too: the line tells another time.
        with share_consumer(kraft, "warm-up", folder) as seen:
            until(lambda: len(seen()) >= 50, "the share consumer finds nothing")
        assert backend.wait_visible(backend.alter([Alteration(SHARER, QUOTAS)])) == ()
        with share_consumer(kraft, "sharer", folder) as seen:
            until(lambda: sum(line.throttle_ms > 0 for line in seen()) >= THROTTLES, "it is not throttled")
        backend.alter([Alteration(SHARER, remove=frozenset(QUOTAS))])
        backend.alter([Alteration(other, remove=frozenset(FREE)) for other in OTHERS])
    return lines(kraft, "sharer", "SHARE_FETCH")


def batch_bytes(broker: KafkaBroker) -> int:
    """The size of a batch in the topic, from the requests that wrote them."""
    sizes = {
        partition["recordsSizeInBytes"]
        for line in lines(broker, "share-filler", "PRODUCE")
        for topic in line.fields["request"]["topicData"]
        for partition in topic["partitionData"]
    }
    (size,) = sizes
    return int(size)


def charges(shared: list[Line], batch: int) -> Iterator[int]:
    """What each share fetch is charged, if one that is throttled acquires what comes next and keeps it."""
    offsets = count(0, FETCHED * BATCH_RECORDS)
    full = SHARE_FETCH_EMPTY[2] + PARTITION_BYTES + 3 + FETCHED * batch + RANGE_BYTES
    for line in shared:
        acquired = [each for partition in line.partitions for each in partition["acquiredRecords"]]
        if acquired:
            (only,) = acquired
            assert (only["firstOffset"], only["deliveryCount"]) == (next(offsets), 1)
            assert only["lastOffset"] - only["firstOffset"] == FETCHED * BATCH_RECORDS - 1
            yield full
        elif line.throttle_ms:
            next(offsets)
            yield full
        else:
            yield SHARE_FETCH_EMPTY[2]


def audit(path: Path, dialect: str) -> dict[str, Any]:
    """The finding on the share consumer's bytes."""
    quotas = QuotaHistory.of(QuotaSnapshot({SHARER: {QuotaKey.CONSUMER_BYTE_RATE: LIMIT}}))
    result = local.audit(plan_splits([str(path)], dialect), AuditSettings(quotas), dialect, processes=1)
    assert result.quality.rejected == 0
    (finding,) = result.findings.to_pylist()
    assert finding["key"] == "consumer_byte_rate"
    return dict(finding)


def test_the_log_does_not_tell_the_size(shared: list[Line], tmp_path: Path) -> None:
    """So a counter that is charged for records is undetermined; what the broker did is told."""
    records = [partition for line in shared for partition in line.partitions]
    assert {partition["records"] for partition in records} == {""}
    assert not any("recordsSizeInBytes" in partition for partition in records)
    path = tmp_path / "kafka-request.log"
    path.write_text("".join(f"{line.text}\n" for line in shared))

    finding = audit(path, "request-log")

    assert (finding["verdict"], finding["throttled_events"]) == ("undetermined", None)
    assert finding["events"] == len(shared)
    assert finding["logged_throttled_events"] == sum(line.throttle_ms > 0 for line in shared) >= THROTTLES
    assert finding["logged_throttle_time_ms"] == sum(line.throttle_ms for line in shared)


def test_with_its_size_a_share_fetch_is_charged_like_a_fetch(
    shared: list[Line], kraft: KafkaBroker, tmp_path: Path
) -> None:
    """On the same counter, and taken back when it is throttled: else the second throttle was twice as long.

    The log tells when a request was completed, not when it was charged: on a busy machine that is many ms later.
    """
    rows = []
    for line, size in zip(shared, charges(shared, batch_bytes(kraft)), strict=True):
        event = parse_line(line.text, UTC)
        row = {"time_ms": event.time_ms, "broker": "1", "user": event.user, "client_id": event.client_id}
        rows.append(row | {"api": event.api, "bytes": size, "throttle_time_ms": event.throttle_ms})
    path = tmp_path / "usage.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    finding = audit(path, "usage")

    assert finding["verdict"] == "throttled"
    assert finding["throttled_events"] == pytest.approx(finding["logged_throttled_events"], abs=2)
    assert finding["throttle_time_ms"] == pytest.approx(finding["logged_throttle_time_ms"], rel=0.3)
