"""The librdkafka clients of a recording: what each of them does, until it is told to stop."""

import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

Config = dict[str, Any]


class Connectable(Protocol):
    """A broker or a cluster."""

    def client(self, user: str) -> dict[str, str | int | float | bool]:
        """Connection settings of that user for confluent-kafka."""
        ...


class Traffic:
    """The clients of one recording; each runs in a thread of its own until `stop` is set."""

    def __init__(self, broker: Connectable) -> None:
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

    def admin(self, user: str, client_id: str) -> AdminClient:
        return AdminClient({**self.broker.client(user), "client.id": client_id, "log_level": 0})

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


def create_topics(traffic: Traffic, topics: Mapping[str, tuple[int, int]]) -> None:
    """Creates topics; the values are the numbers of partitions and of replicas."""
    wanted = [NewTopic(name, partitions, replicas) for name, (partitions, replicas) in topics.items()]
    admin = traffic.admin("admin", "setup")  # held until all is answered: what is collected gives up
    for future in admin.create_topics(wanted).values():
        future.result(30)


def prefill(traffic: Traffic, size: int) -> None:
    """grace/feeder fills `history` with so many bytes, in large requests; grace/archiver reads a part of them."""
    producer = traffic.producer("grace", "feeder", batch_size=100_000, linger_ms=20)
    rng = random.Random(1)
    for _ in range(size // 15_000):
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


def mutate(traffic: Traffic, user: str, client_id: str, prefix: str, wait: float) -> None:
    """Creates topics, adds partitions and deletes topics, one request every `wait` seconds on average."""
    admin = traffic.admin(user, client_id)
    rng = random.Random(client_id)
    existing: dict[str, int] = {}
    made = 0
    while not traffic.stop.wait(wait * rng.uniform(0.5, 1.5)):
        what = rng.randrange(4) if len(existing) >= 4 else 0
        if what <= 1:
            names = [f"{prefix}-{made + number}" for number in range(rng.randint(1, 4))]
            made += len(names)
            sizes = {name: rng.randint(1, 4) for name in names}
            done = _done(admin.create_topics([NewTopic(name, count, 1) for name, count in sizes.items()]))
            existing.update({name: sizes[name] for name in done})
        elif what == 2:
            grown = {name: existing[name] + rng.randint(-1, 3) for name in rng.sample(sorted(existing), 2)}
            done = _done(admin.create_partitions([NewPartitions(name, max(count, 1)) for name, count in grown.items()]))
            existing.update({name: grown[name] for name in done})
        else:
            for name in _done(admin.delete_topics(rng.sample(sorted(existing), rng.randint(1, 3)))):
                del existing[name]


def _done(futures: Mapping[str, Any]) -> list[str]:
    """The topics whose request succeeded; what the broker rejects is part of the recording."""
    done = []
    for name, future in futures.items():
        try:
            future.result(60)
        except KafkaException:
            continue
        done.append(name)
    return done
