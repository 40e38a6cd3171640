"""Records a real request log: `python -m tests.brokers.record --out tests/data/request_log --seconds N`.

Starts a real broker, sets the quotas below, drives synthetic traffic against them with librdkafka clients for N seconds
(after a short prefill), and writes into the output folder what the broker logged (`kafka-request.log.gz`), the quotas
that were in force (`quotas.json`) and a `README.md`. The traffic is made to be worth an audit: counters held at their
limit, one shared by several clients, bursts, idle gaps longer than the quota window, lagging and tailing readers.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import json
import random
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers.kafka import KafkaBroker

QUOTAS: tuple[tuple[dict[str, Any], dict[str, float]], ...] = (
    ({"client-id": {"default": True}}, {"producer_byte_rate": 120_000}),
    ({"client-id": "feeder"}, {"producer_byte_rate": 50_000_000}),
    ({"user": "alice"}, {"producer_byte_rate": 300_000}),
    ({"user": "carol"}, {"consumer_byte_rate": 400_000}),
    ({"user": "frank"}, {"request_percentage": 0.5}),
    ({"user": "bob", "client-id": "etl"}, {"producer_byte_rate": 150_000}),
    ({"user": "bob", "client-id": "fraud-reader"}, {"consumer_byte_rate": 250_000}),
)
"""Entity and values; a user or client-id that none of them names is unlimited, but for the default client-id."""

TOPICS = {"history": 4, "orders": 3, "clicks": 2, "metrics": 1}
PREFILL_BYTES = 120_000_000
"""What lagging readers find on `history`: more than their quotas let them read in ten minutes."""

README = """\
# A recorded request log

`kafka-request.log.gz` is the unchanged JSON request log of one real broker: Apache Kafka {version} (KRaft, one node,
loopback, SASL/PLAIN), {lines} lines over {seconds} s, of which {throttled} carry a throttle time. `quotas.json` holds
the quotas that were in force all the time: they were set before the first client started, and never changed. Times are
in **UTC**. All traffic is synthetic; broker settings that matter are Kafka's defaults
(`quota.window.num=11`, `quota.window.size.seconds=1`).

Nothing was dropped from the log: it starts with the broker and ends when the clients were told to stop.

| user | client-id | does |
|---|---|---|
| alice | billing-1, billing-2, billing-3 | produce under one counter: at the limit, small steady, bursts every 20 s |
| bob | etl | produces without pause for 20 s, then rests for 20 s |
| bob | fraud-reader | reads a long backlog as fast as its quota lets it |
| carol | report-1, report-2 | one reads a backlog, one reads the newest records; they share a counter |
| dave | web-edge | produces around the default client-id quota, now over it and now under it |
| dave | cron | a few small records every few seconds |
| erin | sensor-gw | produces with acks=0 over the default client-id quota |
| frank | poller | asks for offsets as fast as it can, under a request quota |
| grace | feeder, archiver | fills the topics under a quota it never reaches; reads with none |

Record again (needs java, mvn and confluent-kafka; a minute more than the traffic; on a machine with nothing else to do,
because a broker that waits for a processor between a charge and its log line puts a wrong time on the line), then see
how well a replay predicts what the broker did:

    python -m tests.brokers.record --out tests/data/request_log --seconds {seconds_asked}
    python -m tests.brokers.accuracy tests/data/request_log

Expect recordings to differ. Prefixes have whole milliseconds, and a charge that is put a millisecond to the other side
of a sample's edge changes what its counter sees for the next eleven seconds. In two recordings of this traffic, made
one after the other, the replayed throttle time of a counter (fetch counters following the log) was 0.98 to 1.01 of the
broker's in the one, which was kept, and 1.00 to 1.20 in the other; of the throttles of 10 ms and more, at least 97 %
were met in both, and no more than 3 % made up. A third had five counters of six within 1 % and one at 1.26: for three
seconds the replay's samples, which begin with events, had begun with others than the broker's.
"""

Stop = threading.Event
Config = dict[str, Any]


class Traffic:
    """The clients of one recording; each runs in a thread of its own until `stop` is set."""

    def __init__(self, broker: KafkaBroker) -> None:
        self.broker = broker
        self.stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    def start(self, act: Callable[..., None], *args: object) -> None:
        """Runs one client's behaviour in the background."""
        thread = threading.Thread(target=self._guarded, args=(act, *args), daemon=True)
        self._threads.append(thread)
        thread.start()

    def finish(self) -> None:
        """Ends all clients. Raises the first error one of them met."""
        self.stop.set()
        for thread in self._threads:
            thread.join(30)
        if self._errors:
            raise self._errors[0]

    def _guarded(self, act: Callable[..., None], *args: object) -> None:
        try:
            act(self, *args)
        except BaseException as error:
            self._errors.append(error)
            self.stop.set()

    def producer(self, user: str, client_id: str, **settings: object) -> Producer:
        # A short queue: what waits in it is not sent yet, and must not grow while the broker holds the client back.
        named = {key.replace("_", "."): value for key, value in settings.items()}
        defaults: Config = {"client.id": client_id, "queue.buffering.max.messages": 200, "log_level": 0}
        return Producer({**self.broker.client(user), **defaults, **named})

    def consumer(self, user: str, client_id: str, **settings: object) -> Consumer:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        defaults: Config = {"client.id": client_id, "group.id": client_id, "log_level": 0, "enable.auto.commit": False}
        return Consumer({**self.broker.client(user), **defaults, **named})

    def send(self, producer: Producer, topic: str, size: int, rng: random.Random) -> None:
        """One record of random bytes; waits while the producer's queue is full."""
        while not self.stop.is_set():
            try:
                producer.produce(topic, rng.randbytes(size))
            except BufferError:
                producer.poll(0.05)
            else:
                producer.poll(0)
                return

    def close(self, producer: Producer) -> None:
        """Drops what is queued: flushing a throttled producer may take for ever."""
        producer.purge()
        producer.flush(1)


def prefill(traffic: Traffic) -> None:
    """grace/feeder fills `history` in large requests."""
    producer = traffic.producer("grace", "feeder", batch_size=100_000, linger_ms=20)
    rng = random.Random(1)
    for _ in range(PREFILL_BYTES // 15_000):
        traffic.send(producer, "history", rng.randint(2_000, 28_000), rng)
    left = producer.flush(60)
    assert left == 0, f"{left} records of the prefill were not delivered"
    # Every kind of line once before it counts: the first of a kind costs the broker some 20 ms of class loading between
    # the charge and the time stamp, which a broker that has been up for a while does not have.
    for acks in ("0", "1"):
        careless = traffic.producer("grace", "feeder", acks=acks, linger_ms=0)
        for _ in range(300):
            traffic.send(careless, "metrics", 200, rng)
            careless.flush(1)
    consumer = traffic.consumer("grace", "archiver")
    consumer.assign([TopicPartition("history", 0, 0)])
    for _ in range(200):
        consumer.consume(100, 0.05)
    consumer.close()


def saturate(traffic: Traffic, user: str, client_id: str, topic: str, size: int, on: float, off: float) -> None:
    """Sends without pause for `on` seconds, then rests for `off` seconds."""
    producer = traffic.producer(user, client_id, linger_ms=2, batch_size=12_000)
    rng = random.Random(client_id)
    while not traffic.stop.is_set():
        until = time.monotonic() + on
        while time.monotonic() < until and not traffic.stop.is_set():
            traffic.send(producer, topic, rng.randint(size // 2, size), rng)
        if off:
            producer.flush(5)
            traffic.stop.wait(off)
    traffic.close(producer)


def steady(
    traffic: Traffic, user: str, client_id: str, topic: str, size: int, per_s: float, swing: float, acks: str
) -> None:
    """Random arrivals, `per_s` on average, swinging by that share of it over 60 s."""
    producer = traffic.producer(user, client_id, linger_ms=10, acks=acks)
    rng = random.Random(client_id)
    started = time.monotonic()
    while not traffic.stop.is_set():
        phase = ((time.monotonic() - started) % 60) / 60
        rate = per_s * (1 + swing * (1 if phase < 0.5 else -1))
        traffic.send(producer, topic, rng.randint(size // 2, size * 3 // 2), rng)
        traffic.stop.wait(rng.expovariate(rate))
    traffic.close(producer)


def burst(traffic: Traffic, user: str, client_id: str, topic: str, size: int, count: int, every: float) -> None:
    """`count` records at once, then silence."""
    producer = traffic.producer(user, client_id, linger_ms=20, batch_size=200_000)
    rng = random.Random(client_id)
    while not traffic.stop.wait(every):
        for _ in range(count):
            traffic.send(producer, topic, rng.randint(size // 2, size), rng)
        producer.flush(1)
    traffic.close(producer)


def read_backlog(
    traffic: Traffic, user: str, client_id: str, partitions: tuple[int, ...], fetch_bytes: int, partition_bytes: int
) -> None:
    """Reads `history` from its beginning, as fast as the broker lets it."""
    consumer = traffic.consumer(
        user,
        client_id,
        fetch_max_bytes=fetch_bytes,
        max_partition_fetch_bytes=partition_bytes,
        message_max_bytes=fetch_bytes,
    )
    consumer.assign([TopicPartition("history", partition, 0) for partition in partitions])
    while not traffic.stop.is_set():
        consumer.consume(500, 0.2)
    consumer.close()


def tail(traffic: Traffic, user: str, client_id: str, topics: list[str], partition_bytes: int) -> None:
    """A group of one that reads new records as they come, and commits."""
    consumer = traffic.consumer(
        user,
        client_id,
        auto_offset_reset="latest",
        enable_auto_commit=True,
        max_partition_fetch_bytes=partition_bytes,
    )
    consumer.subscribe(topics)
    while not traffic.stop.is_set():
        consumer.consume(500, 0.2)
    consumer.close()


def ask(traffic: Traffic, user: str, client_id: str) -> None:
    """Asks for the offsets of a partition again and again: little data, many requests."""
    consumer = traffic.consumer(user, client_id)
    while not traffic.stop.is_set():
        for _ in range(40):
            if not traffic.stop.is_set():
                consumer.get_watermark_offsets(TopicPartition("metrics", 0), 30, cached=False)
        traffic.stop.wait(2)
    consumer.close()


def set_quotas(broker: KafkaBroker) -> None:
    """Sets `QUOTAS` with Kafka's own tool."""
    for entity, values in QUOTAS:
        where: list[str] = []
        for kind, name in entity.items():
            where += ["--entity-type", "users" if kind == "user" else "clients"]
            where += ["--entity-default"] if isinstance(name, dict) else ["--entity-name", name]
        added = ",".join(f"{key}={value}" for key, value in values.items())
        done = broker.kafka_configs("--alter", "--add-config", added, *where)
        if done.returncode != 0:
            raise RuntimeError(f"cannot set {added} on {entity}: {done.stdout}{done.stderr}")


def drive(broker: KafkaBroker, seconds: float) -> None:
    """All the traffic of a recording."""
    admin = AdminClient(broker.client("admin"))
    for future in admin.create_topics([NewTopic(name, count, 1) for name, count in TOPICS.items()]).values():
        future.result(30)
    traffic = Traffic(broker)
    prefill(traffic)
    traffic.start(saturate, "alice", "billing-1", "orders", 6_000, 45, 0)
    traffic.start(steady, "alice", "billing-2", "orders", 700, 25, 0.3, "all")
    traffic.start(burst, "alice", "billing-3", "orders", 40_000, 25, 20)
    traffic.start(saturate, "bob", "etl", "clicks", 7_000, 20, 20)
    traffic.start(steady, "dave", "web-edge", "clicks", 3_500, 34, 0.25, "1")
    traffic.start(burst, "dave", "cron", "metrics", 900, 3, 4)
    traffic.start(steady, "erin", "sensor-gw", "metrics", 3_000, 50, 0.4, "0")
    traffic.start(read_backlog, "bob", "fraud-reader", (0, 1), 50_000, 25_000)
    traffic.start(read_backlog, "carol", "report-1", (2, 3), 60_000, 30_000)
    traffic.start(tail, "carol", "report-2", ["orders"], 40_000)
    traffic.start(tail, "grace", "archiver", ["clicks"], 1_000_000)
    traffic.start(ask, "frank", "poller")
    traffic.stop.wait(seconds)
    traffic.finish()


def check_private(text: str) -> None:
    """Raises RuntimeError when the log names this machine: its host name or one of its folders."""
    names = {socket.gethostname(), socket.getfqdn(), str(Path.home()), str(Path.cwd()), tempfile.gettempdir()}
    found = sorted(name for name in names - {"", "/", "localhost"} if name in text)
    if found:
        raise RuntimeError(f"the log names this machine ({', '.join(found)}): not kept")


def statistics(lines: list[str]) -> tuple[collections.Counter[str], int, collections.Counter[str]]:
    """Requests by API, throttled requests, and throttled requests by `user client-id api`."""
    apis: collections.Counter[str] = collections.Counter()
    throttled: collections.Counter[str] = collections.Counter()
    for line in lines:
        request = json.loads(line[line.index("{") : line.rindex("}") + 1])
        header = request["requestHeader"]
        api = f"{header['requestApiKeyName']} v{header['requestApiVersion']}"
        apis[api] += 1
        if request["throttleTimeMs"] > 0:
            throttled[f"{request['principal']} {header['clientId']} {api}"] += 1
    return apis, throttled.total(), throttled


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.brokers.record", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--seconds", type=float, default=240, help="length of the traffic")
    options = parser.parse_args(argv)
    with KafkaBroker(heap="1g") as broker:
        set_quotas(broker)
        drive(broker, options.seconds)
        version = broker.version
        broker_log = broker.request_log.read_text(encoding="utf-8")
    text = broker_log[: broker_log.rindex("\n") + 1]  # whole lines
    check_private(text)
    lines = text.splitlines()
    apis, throttled, by_client = statistics(lines)
    options.out.mkdir(parents=True, exist_ok=True)
    # No file name and no time in the archive: equal logs make equal files.
    with (
        (options.out / "kafka-request.log.gz").open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=9, mtime=0) as packed,
    ):
        packed.write(text.encode())
    quotas = [{"entity": entity, "values": values} for entity, values in QUOTAS]
    document = {"kind": "kquota.quotas", "version": 1, "quotas": quotas}
    (options.out / "quotas.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    span = (_seconds(lines[-1]) - _seconds(lines[0])) % 86_400
    facts = {"version": version, "lines": len(lines), "seconds": round(span), "throttled": throttled}
    readme = README.format(**facts, seconds_asked=f"{options.seconds:g}")
    (options.out / "README.md").write_text(readme, encoding="utf-8")
    print(
        f"{len(lines)} requests, {throttled} throttled, {(options.out / 'kafka-request.log.gz').stat().st_size} bytes"
    )
    for name, count in [*apis.most_common(), *by_client.most_common()]:
        print(f"{count:8} {name}")
    return 0


def _seconds(line: str) -> float:
    """The time of day of a line, `[2026-01-31 23:59:59,999]`, in seconds."""
    hours, minutes, seconds = line[12:24].replace(",", ".").split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KafkaException as error:
        sys.exit(f"kafka: {error}")
