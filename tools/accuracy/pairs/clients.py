"""The librdkafka clients of a pair, and the storm of sockets: each behaviour runs in a thread of its own.

All schedules are relative to one moment, so that two runs offer the same load at the same times. A producer's schedule
does not wait for the broker: records that cannot be sent stay in the client's queue, and go out when they can.
"""

import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, ThrottleEvent, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tools.accuracy.pairs.workload import STORM_IP, Client


@dataclass
class Facts:
    """What one client met. Times are in ms after the start of the schedule."""

    wanted_records: int = 0
    wanted_bytes: int = 0
    delivered_records: int = 0
    delivered_bytes: int = 0
    done_ms: int | None = None
    """When all that was wanted was delivered; None when the run ended before."""
    last_ms: int = 0
    """When the last record was delivered."""
    late_ms: int = 0
    """The most that a step of the schedule came late."""
    throttles: int = 0
    throttle_sum_ms: int = 0
    throttle_max_ms: int = 0
    """As the client's library reported them."""
    errors: Counter[str] = field(default_factory=Counter)
    per_s: Counter[int] = field(default_factory=Counter)
    """Payload bytes (for mutations partitions, for connections accepted ones) by the second of their delivery."""

    def document(self) -> dict[str, Any]:
        """The facts as JSON."""
        last = max(self.per_s, default=-1)
        return {**vars(self), "errors": dict(self.errors), "per_s": [self.per_s[i] for i in range(last + 1)]}


@dataclass
class Run:
    """One run: when it starts, how long its schedules are, and when it ends."""

    connect: Callable[[str], Mapping[str, Any]]
    """Connection settings of a user."""
    plaintext: tuple[str, int]
    """A listener without passwords, for the storm."""
    expected: Mapping[str, int]
    """Records that a consumer is to see, by the name of their source."""
    start: float = 0.0
    """Epoch seconds."""
    seconds: float = 75.0
    """Length of the schedules."""
    spread: Mapping[str, int] = field(default_factory=dict)
    """Partitions of a topic, among which producers draw one for each record; else their library chooses."""
    stop: threading.Event = field(default_factory=threading.Event)
    facts: dict[str, Facts] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)
    ready: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    go: threading.Event = field(default_factory=threading.Event)

    def ms(self) -> int:
        """Now."""
        return round((time.time() - self.start) * 1000)

    def until(self, at_s: float, facts: Facts, pump: Callable[[float], object] | None = None) -> bool:
        """Waits for that second of the schedule, serving callbacks; False when the run is over."""
        while not self.stop.is_set():
            left = self.start + at_s - time.time()
            if left <= 0:
                facts.late_ms = max(facts.late_ms, round(-left * 1000))
                return True
            if pump is None:
                self.stop.wait(min(left, 0.2))
            else:
                pump(min(left, 0.05))
        return False

    def delivered(self, facts: Facts, size: int, records: int = 1) -> None:
        """Counts what came through."""
        now = self.ms()
        facts.delivered_records += records
        facts.delivered_bytes += size
        facts.last_ms = now
        facts.per_s[max(now, 0) // 1000] += size
        if facts.done_ms is None and facts.delivered_records == facts.wanted_records:
            facts.done_ms = now

    def wait_for_start(self) -> None:
        """Reports that a client is connected, and waits until the run has its start."""
        self.ready.release()
        self.go.wait()

    def begin(self, start_s: float) -> None:
        """Sets the start, in epoch seconds."""
        self.start = start_s
        self.go.set()


def _throttled(facts: Facts) -> Callable[[ThrottleEvent], None]:
    def heard(event: ThrottleEvent) -> None:
        ms = round(event.throttle_time * 1000)
        facts.throttles += ms > 0
        facts.throttle_sum_ms += ms
        facts.throttle_max_ms = max(facts.throttle_max_ms, ms)

    return heard


def schedule(client: Client, seconds: float) -> list[float]:
    """When a paced client sends, in seconds: evenly, or as a Poisson process drawn from its name."""
    per_s = client.options["per_s"]
    if not client.options.get("poisson"):
        return [index / per_s for index in range(round(seconds * per_s))]
    rng, times, now = random.Random(client.name), [], 0.0
    while (now := now + rng.expovariate(per_s)) < seconds:
        times.append(now)
    return times


def _value(client: Client, rng: random.Random) -> bytes:
    size = int(client.options["size"])
    if not client.options.get("text"):
        return rng.randbytes(size)
    return rng.randbytes(size // 2).hex().encode()


def _producer(run: Run, client: Client, facts: Facts, **more: Any) -> Producer:
    defaults = {
        "client.id": client.id,
        "queue.buffering.max.messages": 1_000_000,
        "message.timeout.ms": 600_000,
        "log_level": 0,
        "throttle_cb": _throttled(facts),
    }
    producer = Producer({**run.connect(client.user), **defaults, **client.settings, **more})
    producer.list_topics(client.options["topic"], timeout=30)
    return producer


def _acked(run: Run, facts: Facts, size: int) -> Callable[[KafkaError | None, Message], None]:
    def heard(error: KafkaError | None, _message: Message) -> None:
        if error is None:
            run.delivered(facts, size)
        else:
            facts.errors[error.name()] += 1

    return heard


def _send(run: Run, producer: Producer, client: Client, facts: Facts, rng: random.Random) -> None:
    value, topic = _value(client, rng), client.options["topic"]
    partition = rng.randrange(run.spread[topic]) if topic in run.spread else -1
    producer.produce(topic, value, partition=partition, on_delivery=_acked(run, facts, len(value)))


def _drain(run: Run, producer: Producer) -> None:
    while not run.stop.is_set() and len(producer):
        producer.poll(0.1)
    producer.purge()
    producer.flush(1)


def paced(run: Run, client: Client, facts: Facts) -> None:
    """Records by the clock; then what is left is sent."""
    rng, producer = random.Random(client.name), _producer(run, client, facts)
    times = schedule(client, run.seconds)
    facts.wanted_records, facts.wanted_bytes = len(times), len(times) * int(client.options["size"])
    run.wait_for_start()
    for at in times:
        if not run.until(at, facts, producer.poll):
            break
        _send(run, producer, client, facts, rng)
    _drain(run, producer)


def bursts(run: Run, client: Client, facts: Facts) -> None:
    """Several records at once, then silence."""
    rng, producer = random.Random(client.name), _producer(run, client, facts, **{"batch.size": 200_000})
    every, count = client.options["every"], client.options["count"]
    rounds = int((run.seconds - 0.001) // every)
    facts.wanted_records, facts.wanted_bytes = rounds * count, rounds * count * client.options["size"]
    run.wait_for_start()
    for index in range(rounds):
        if not run.until((index + 1) * every, facts, producer.poll):
            break
        for _ in range(count):
            _send(run, producer, client, facts, rng)
    _drain(run, producer)


def at_once(run: Run, client: Client, facts: Facts) -> None:
    """All records in one moment."""
    rng, producer = random.Random(client.name), _producer(run, client, facts)
    count = client.options["count"]
    facts.wanted_records, facts.wanted_bytes = count, count * client.options["size"]
    run.wait_for_start()
    if run.until(client.options["at"] * run.seconds, facts, producer.poll):
        for _ in range(count):
            _send(run, producer, client, facts, rng)
    _drain(run, producer)


def synchronous(run: Run, client: Client, facts: Facts) -> None:
    """Sends, waits for the answer, thinks; for the time of the schedule."""
    rng, producer = random.Random(client.name), _producer(run, client, facts)
    run.wait_for_start()
    run.until(0, facts)
    while run.ms() < run.seconds * 1000 and not run.stop.is_set():
        facts.wanted_records += 1
        facts.wanted_bytes += client.options["size"]
        _send(run, producer, client, facts, rng)
        while len(producer) and not run.stop.is_set():
            producer.poll(0.1)
        run.stop.wait(client.options["think"])
    facts.done_ms = facts.last_ms


def saturating(run: Run, client: Client, facts: Facts) -> None:
    """As fast as the broker takes it, for the time of the schedule; what is queued then is dropped."""
    rng, producer = random.Random(client.name), _producer(run, client, facts, **{"queue.buffering.max.messages": 200})
    run.wait_for_start()
    run.until(0, facts)
    while run.ms() < run.seconds * 1000 and not run.stop.is_set():
        try:
            _send(run, producer, client, facts, rng)
        except BufferError:
            producer.poll(0.02)
        else:
            facts.wanted_records += 1
            facts.wanted_bytes += client.options["size"]
            producer.poll(0)
    producer.purge()
    producer.flush(1)
    facts.done_ms = facts.last_ms


def transactions(run: Run, client: Client, facts: Facts) -> None:
    """Some records in a transaction, by the clock; the next one begins when the one before is committed."""
    rng = random.Random(client.name)
    producer = _producer(run, client, facts, **{"transactional.id": client.name, "transaction.timeout.ms": 600_000})
    every, count = client.options["every"], client.options["count"]
    rounds = round(run.seconds / every)
    facts.wanted_records, facts.wanted_bytes = rounds * count, rounds * count * client.options["size"]
    producer.init_transactions(60)
    run.wait_for_start()
    for index in range(rounds):
        if not run.until(index * every, facts, producer.poll):
            return
        producer.begin_transaction()
        for _ in range(count):
            _send(run, producer, client, facts, rng)
        producer.commit_transaction(600)


def consume(run: Run, client: Client, facts: Facts) -> None:
    """Reads partitions from where they began, until the run ends; two clients may share the partitions of a topic."""
    consumer = Consumer(
        {
            **run.connect(client.user),
            "client.id": client.id,
            "group.id": client.name,
            "enable.auto.commit": False,
            "log_level": 0,
            "throttle_cb": _throttled(facts),
            **client.settings,
        }
    )
    topic = client.options["topic"]
    partitions = sorted(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    mine, of = client.options.get("share", (0, 1))
    facts.wanted_records = run.expected[client.options["expect"]] if of == 1 else -1
    run.wait_for_start()
    run.until(0, facts)
    consumer.assign([TopicPartition(topic, each, 0) for each in partitions if each % of == mine])
    while not run.stop.is_set():
        for message in consumer.consume(500, 0.1):
            if message.error() is None:
                value = message.value()
                run.delivered(facts, len(value) if isinstance(value, (bytes, str)) else 0)
            else:
                facts.errors[message.error().name()] += 1
    consumer.close()


def ask(run: Run, client: Client, facts: Facts) -> None:
    """Asks for the offsets of a partition, by the clock, one question after the other."""
    consumer = Consumer({**run.connect(client.user), "client.id": client.id, "group.id": client.name, "log_level": 0})
    consumer.list_topics(client.options["topic"], timeout=30)
    times = schedule(client, run.seconds)
    facts.wanted_records = len(times)
    run.wait_for_start()
    for at in times:
        if not run.until(at, facts):
            break
        try:
            consumer.get_watermark_offsets(TopicPartition(client.options["topic"], 0), 60, cached=False)
        except KafkaException as error:
            facts.errors[error.args[0].name()] += 1
        else:
            run.delivered(facts, 1)
    consumer.close()


def mutate(run: Run, client: Client, facts: Facts) -> None:
    """Creates topics by the clock, one request after the other."""
    admin = AdminClient({**run.connect(client.user), "client.id": client.id, "log_level": 0})
    admin.list_topics(timeout=30)
    every, partitions = client.options["every"], client.options["partitions"]
    facts.wanted_records = round(run.seconds / every)
    run.wait_for_start()
    for index in range(facts.wanted_records):
        if not run.until(index * every, facts):
            break
        (future,) = admin.create_topics(
            [NewTopic(f"{client.name}-{index}", partitions, 1)], operation_timeout=120, request_timeout=120
        ).values()
        try:
            future.result(150)
        except KafkaException as error:
            facts.errors[error.args[0].name()] += 1
        else:
            run.delivered(facts, partitions)


_ASK_VERSIONS = struct.pack(">hhih5s", 18, 0, 1, 5, b"storm")


def storm(run: Run, client: Client, facts: Facts) -> None:
    """Connections of their own address, by the clock, each with one request; the broker accepts or closes them."""
    rng, times, now = random.Random(client.name), [], 0.0
    while (now := now + rng.expovariate(client.options["per_s"])) < run.seconds:
        times.append(now)
    facts.wanted_records = len(times)
    run.wait_for_start()
    threads = []
    for at in times:
        if not run.until(at, facts):
            break
        threads.append(threading.Thread(target=_connect, args=(run, facts), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join(20)


_counting = threading.Lock()


def _connect(run: Run, facts: Facts) -> None:
    """One connection: accepted when it is answered, refused when it is closed without an answer."""
    began = time.monotonic()
    try:
        with socket.create_connection(run.plaintext, 20, (STORM_IP, 0)) as connection:
            connection.sendall(struct.pack(">i", len(_ASK_VERSIONS)) + _ASK_VERSIONS)
            answered = bool(connection.recv(4))
    except OSError:
        answered = False
    waited = round((time.monotonic() - began) * 1000)
    with _counting:
        if answered:
            run.delivered(facts, 1)
        else:
            facts.errors["refused"] += 1
            facts.throttles += 1
            facts.throttle_sum_ms += waited
            facts.throttle_max_ms = max(facts.throttle_max_ms, waited)


BEHAVIOURS: Mapping[str, Callable[[Run, Client, Facts], None]] = {
    each.__name__: each
    for each in (paced, bursts, at_once, synchronous, saturating, transactions, consume, ask, mutate, storm)
}


def launch(run: Run, clients: list[Client]) -> None:
    """Starts the clients in threads. Returns when all are connected; `run.begin` sets them going.

    Raises the error of a client that does not get so far.
    """
    failed: list[BaseException] = []

    def act(client: Client) -> None:
        try:
            BEHAVIOURS[client.does](run, client, run.facts[client.name])
        except BaseException as error:
            failed.append(error)
            run.facts[client.name].errors[f"{type(error).__name__}: {error}"] += 1
            run.ready.release()
        finally:
            run.finished.add(client.name)

    for client in clients:
        run.facts[client.name] = Facts()
        threading.Thread(target=act, args=(client,), daemon=True, name=client.name).start()
    for _ in clients:
        if not run.ready.acquire(timeout=120):
            raise RuntimeError("a client did not connect")
    if failed:
        raise failed[0]
