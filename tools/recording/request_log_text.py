"""Records a log in the text form: `python -m tools.recording.request_log_text --out tests/data/request_log_text`.

Kafka 2.7.2, of the last release line that writes it, on the sandbox's ZooKeeper: librdkafka clients under quotas for
half a minute with the logger at TRACE (`trace.log.gz`), then the same at DEBUG (`debug.log.gz`). `quotas.json` is what
was in force. With `--version` another release: 1.1.1 and 2.4.1 start as they are, older ones want their JAAS settings
in a file.
"""

import argparse
import gzip
import json
import random
import sys
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers.zookeeper_mode import ZooKeeperModeBroker
from tests.support.sandbox import Sandbox
from tools.recording.kept import check_private

QUOTAS = (
    ({"user": "alice"}, {"producer_byte_rate": 60_000}),
    ({"user": "alice", "client-id": "careful"}, {"producer_byte_rate": 40_000}),
    ({"user": "alice", "client-id": "sure"}, {"producer_byte_rate": 30_000}),
    ({"user": "alice", "client-id": "exact"}, {"producer_byte_rate": 10_000_000}),
    ({"user": "admin"}, {"consumer_byte_rate": 50_000}),
)
"""Entity and values."""

_TYPES = {"user": "users", "client-id": "clients"}
_LOGGER = """\
log4j.appender.request=org.apache.log4j.FileAppender
log4j.appender.request.File={folder}/kafka-request.log
log4j.appender.request.layout=org.apache.log4j.PatternLayout
log4j.appender.request.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.kafka.request.logger={level}, request
log4j.additivity.kafka.request.logger=false
"""


class TextLogBroker(ZooKeeperModeBroker):
    """A broker of 2.7.2 that logs its requests."""

    def __init__(self, zookeeper: str, version: str) -> None:
        super().__init__(zookeeper)
        self.version = version
        scala = "2.13" if version >= "2.4" else "2.12"
        self.coordinates = (
            f"org.apache.kafka:kafka_{scala}:{version}",
            "org.slf4j:slf4j-log4j12:1.7.30",
            "javax.xml.bind:jaxb-api:2.3.1",
        )

    def log_at(self, level: str) -> None:
        """Starts it again with the request logger at that level."""
        path = self.folder / "log4j.properties"
        kept = path.read_text().partition("log4j.appender.request=")[0]
        path.write_text(kept + _LOGGER.format(folder=self.folder, level=level))
        self.request_log.unlink(missing_ok=True)
        self.restart()


def produce(broker: TextLogBroker, client_id: str, acks: str, seconds: float, size: int, **settings: str) -> None:
    """Sends to `orders` as fast as the broker lets it, one request at a time."""
    given = {"client.id": client_id, "acks": acks, "linger.ms": 5, "batch.size": 9000, "log_level": 0, **settings}
    producer = Producer({**broker.client("alice"), **given})
    rng = random.Random(client_id)
    transactional = "transactional.id" in settings
    if transactional:
        producer.init_transactions(30)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if transactional:
            producer.begin_transaction()
        for _ in range(10):
            producer.produce("orders", rng.randbytes(rng.randint(size // 2, size)), partition=rng.randint(0, 1))
            producer.poll(0.002)
        if transactional:
            producer.commit_transaction(30)
        else:
            producer.flush(30)


def consume(broker: TextLogBroker, seconds: float) -> None:
    """Reads `orders` from its beginning as `admin`."""
    consumer = Consumer(
        {
            **broker.client("admin"),
            "client.id": "reader",
            "group.id": "readers",
            "enable.auto.commit": False,
            "max.partition.fetch.bytes": 20_000,
            "fetch.max.bytes": 60_000,
            "message.max.bytes": 60_000,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition("orders", partition, 0) for partition in (0, 1)])
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        consumer.consume(100, 0.2)
    consumer.close()


def traffic(broker: TextLogBroker) -> None:
    """Every kind of producer, then a reader."""
    produce(broker, "plain", "1", 8, 1500)
    produce(broker, "careful", "0", 3, 900)
    produce(broker, "sure", "-1", 1, 300)
    produce(broker, "exact", "-1", 1, 300, **{"transactional.id": "orders-tx-1"})
    consume(broker, 8)


def record(broker: TextLogBroker, level: str, out: Path) -> None:
    """One run of the traffic with the logger at that level, packed into the folder."""
    broker.log_at(level)
    traffic(broker)
    text = broker.request_log.read_text(encoding="utf-8")
    text = text[: text.rindex("\n") + 1].replace(str(broker.folder), "/var/lib/kafka")
    check_private(text)
    with (
        (out / f"{level.lower()}.log.gz").open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=9, mtime=0) as packed,
    ):
        packed.write(text.encode())
    print(level, text.count("\n"), "lines")


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.recording.request_log_text", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--version", default="2.7.2", help="of Kafka")
    options = parser.parse_args(argv)
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    with Sandbox() as zookeeper, TextLogBroker(zookeeper.connect, options.version) as broker:
        for entity, values in QUOTAS:
            where = [
                word for kind, name in entity.items() for word in ("--entity-type", _TYPES[kind], "--entity-name", name)
            ]
            added = ",".join(f"{key}={value}" for key, value in values.items())
            broker.run_tool(
                "kafka.admin.ConfigCommand", "--zookeeper", zookeeper.connect, "--alter", "--add-config", added, *where
            )
        admin = AdminClient(broker.client("admin"))
        for future in admin.create_topics([NewTopic("orders", 2, 1)]).values():
            future.result(30)
        record(broker, "TRACE", out)
        record(broker, "DEBUG", out)
    quotas = [{"entity": entity, "values": values} for entity, values in QUOTAS]
    document = {"kind": "kquota.quotas", "version": 1, "quotas": quotas}
    (out / "quotas.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KafkaException as error:
        sys.exit(f"kafka: {error}")
