"""The real broker of the tests does what tests rely on: throttling, a request log, the release."""

import json
import shutil
from pathlib import Path

from confluent_kafka import Producer, ThrottleEvent
from confluent_kafka.admin import AdminClient, NewTopic

from kquota import Alteration, Entity, QuotaKey
from kquota.backends.kafka import KafkaBackend
from tests.brokers.kafka import VERSION, KafkaBroker
from tests.support.waiting import until


def test_a_producer_over_its_quota_is_throttled_and_logged(broker: KafkaBroker) -> None:
    with KafkaBackend(broker.bootstrap) as backend:
        (altered,) = backend.alter([Alteration(Entity(user="alice"), {QuotaKey.PRODUCER_BYTE_RATE: 20_000})])
        assert altered.error is None
    admin = AdminClient(broker.client("admin"))  # named: its futures fail once it is gone
    admin.create_topics([NewTopic("load", 1, 1)])["load"].result(60)
    throttled: list[float] = []

    def on_throttle(event: ThrottleEvent) -> None:
        throttled.append(event.throttle_time)

    settings = {"client.id": "writer", "linger.ms": 0, "throttle_cb": on_throttle}
    producer = Producer({**broker.client("alice"), **settings})

    def is_throttled() -> bool:
        producer.produce("load", b"x" * 50_000)
        producer.flush(5)
        producer.poll(0.05)
        return any(throttled)

    until(is_throttled, "20 kB/s and yet no throttle")

    lines = [line for line in broker.request_log.read_text().splitlines() if '"clientId":"writer"' in line]
    requests = [json.loads(line[line.index("{") : line.rindex("}") + 1]) for line in lines]
    produced = [request for request in requests if request["requestHeader"]["requestApiKeyName"] == "PRODUCE"]
    assert {request["principal"] for request in produced} == {"User:alice"}
    assert max(request["throttleTimeMs"] for request in produced) > 0


def test_it_is_the_release_that_was_asked_for(broker: KafkaBroker) -> None:
    assert broker.version == VERSION
    assert (broker.folder / "kafka-request.log").exists()


def test_storage_is_formatted_as_by_kafkas_own_tool(broker: KafkaBroker, tmp_path: Path) -> None:
    """The tool runs for the first node of a kind; others get the same files, with ids of their own."""
    settings = (broker.folder / "server.properties").read_text()
    written: list[tuple[dict[str, bytes], dict[str, str]]] = []
    for name in ("tool", "copy"):
        properties, data = tmp_path / f"{name}.properties", tmp_path / name
        properties.write_text(f"{settings}log.dirs={data}\nunstable.of.this.test={tmp_path}\n")
        broker._format_storage(properties, f"{name}AAAAQACAAAAAAAAAAA")
        meta = dict(line.split("=") for line in (data / "meta.properties").read_text().splitlines() if line[0] != "#")
        files = (file for file in data.rglob("*") if file.is_file() and file.name != "meta.properties")
        written.append(({str(file.relative_to(data)): file.read_bytes() for file in files}, meta))
    shutil.rmtree(broker._storage_template(properties))

    (files_of_tool, meta), (files_of_copy, other) = written
    assert len(files_of_tool) == 1
    assert files_of_tool == files_of_copy
    assert [each.pop("cluster.id")[:4] for each in (meta, other)] == ["tool", "copy"]
    assert meta.pop("directory.id") != other.pop("directory.id")
    assert meta == other
