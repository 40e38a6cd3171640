"""A probe's requests by librdkafka, and what it reports of them.

librdkafka reports a throttle time with the name of the broker and nothing of the request that was throttled. What was
sent and received, with sizes, versions and round trips, it writes to its debugging log (`debug=protocol`), which is
read here line by line. Log lines and throttle events come through one queue to the thread that polls. An event may
overtake the lines of its own request, but never the lines of an earlier request: see `Watch`.
"""

import logging
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from kquota.backends.kafka.librdkafka import error_of, errors
from kquota.core.findings.probe import Exchange
from kquota.errors import InputError, KquotaError, MissingDependency, Unreachable
from kquota.probe.load import Pace

_LINE: Final = re.compile(
    r"\[thrd:(?P<thread>.*?)\]: .*?: (?P<what>Sent|Received) (?P<api>\w+?)(?:Request|Response) "
    r"\(v(?P<version>\d+), (?P<size>\d+) bytes(?: @ \d+)?, CorrId (?P<id>\d+)(?:, rtt (?P<rtt>[\d.]+)ms)?\)"
)
_FRAME: Final = 4
"""The length in front of a request, which librdkafka counts and a broker does not charge."""
_FLEXIBLE_FETCH: Final = 12
_EMPTY_FETCH: Final = 64
"""No answer with a partition in it is that small."""
_OVERHEAD: Final = 1024
"""What a request is larger than its record at most: header, names, batch."""
_POLL_S: Final = 0.1
_CONTROL: Final = "kquota"
"""The client-id of what a probe does besides."""
Charge = Callable[[str, int, int, int], int]
"""(api, version, bytes sent, bytes received) → what the probed quota charges."""


def require() -> None:
    """Raises MissingDependency without confluent-kafka."""
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        raise MissingDependency("the probe needs confluent-kafka", extra="probe") from None


class Watch(logging.Handler):
    """What one client sent and received, and how it was throttled.

    Each answer goes to `exchanges`, the caller's list: what was seen is there whatever ends the run.

    A throttle event belongs to the last answer, or to the next: to the next while `awaits` is true, which whoever sends
    one request at a time sets, and where the last answer has an event already.

    `apis` are the messages that count, all without it. `on_answer` is called in the thread that polls, before anything
    that came later is served.
    """

    def __init__(
        self,
        exchanges: list[Exchange],
        charge: Charge,
        apis: frozenset[str] | None = None,
        on_answer: Callable[[Exchange], None] | None = None,
    ) -> None:
        super().__init__(logging.DEBUG)
        self.exchanges = exchanges
        self._charge, self._apis, self._on_answer = charge, apis, on_answer
        self.awaits = True
        self._sent: dict[tuple[str, int], int] = {}
        self._early_ms = 0

    @property
    def settings(self) -> dict[str, Any]:
        """What a client needs to be watched."""
        logger = logging.Logger("kquota.probe", logging.DEBUG)
        logger.addHandler(self)
        return {"debug": "protocol", "logger": logger, "throttle_cb": self._on_throttle, "error_cb": _ignore}

    @property
    def muted_until_ms(self) -> float:
        """When the last throttle is over, by the clock of the answers."""
        return self.exchanges[-1].answered_ms + self.exchanges[-1].throttle_ms if self.exchanges else 0.0

    def emit(self, record: logging.LogRecord) -> None:
        match = _LINE.search(record.getMessage())
        if match is None or (self._apis is not None and match["api"] not in self._apis):
            return
        api, version, size, correlation_id = match["api"], int(match["version"]), int(match["size"]), int(match["id"])
        if match["what"] == "Sent":
            self._sent[match["thread"], correlation_id] = size
            return
        sent = self._sent.pop((match["thread"], correlation_id), None)
        if sent is None:
            return
        now = time.time() * 1000
        charge = self._charge(api, version, sent, size)
        name = "ApiVersions" if api == "ApiVersion" else api
        exchange = Exchange(
            name, version, correlation_id, now - float(match["rtt"]), now, charge, throttle_ms=self._early_ms
        )
        self._early_ms = 0
        self.awaits = False
        self.exchanges.append(exchange)
        if self._on_answer is not None:
            self._on_answer(exchange)

    def _on_throttle(self, event: Any) -> None:
        throttle_ms = round(event.throttle_time * 1000)
        if throttle_ms <= 0:
            return  # the first answer after throttled ones
        last = self.exchanges[-1] if self.exchanges else None
        if self.awaits or self._sent or last is None or last.throttle_ms > 0:
            self._early_ms = throttle_ms
        else:
            self.exchanges[-1] = replace(last, throttle_ms=throttle_ms)


def _ignore(_error: object) -> None:
    """Errors come back from what was asked for; librdkafka would print them otherwise."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a topic, and the broker that leads it."""

    topic: str
    number: int
    leader: int


class Control:
    """What a probe does besides its load, on a connection of its own that no probe has muted."""

    def __init__(self, settings: dict[str, Any], timeout_s: float) -> None:
        from confluent_kafka.admin import AdminClient

        self._timeout_s = timeout_s
        self._admin = AdminClient({**settings, "client.id": _CONTROL, "error_cb": _ignore, "log_level": 0})

    def partition(self, topic: str, number: int) -> Partition:
        """The partition of a topic that exists. Raises InputError when it does not."""
        from confluent_kafka import TopicCollection

        with errors(f"topic {topic!r}"):
            (future,) = self._admin.describe_topics(TopicCollection([topic]), request_timeout=self._timeout_s).values()
            description = future.result(self._timeout_s)
        for partition in description.partitions:
            if partition.id == number:
                if partition.leader is None:
                    raise Unreachable(f"partition {number} of topic {topic!r} has no leader now")
                return Partition(topic, number, partition.leader.id)
        raise InputError(f"topic {topic!r} has no partition {number}")

    def create(self, topic: str, created: list[str]) -> None:
        """Creates a topic of one partition, and returns when it can be used. Raises InputError when it exists.

        `created` gets its name as soon as it is there, also when the wait for that is interrupted.
        """
        from confluent_kafka.admin import NewTopic

        with errors(f"topic {topic!r}"):
            (future,) = self._admin.create_topics(
                [NewTopic(topic, 1)], operation_timeout=self._timeout_s, request_timeout=self._timeout_s
            ).values()
            try:
                future.result(self._timeout_s)
            except KeyboardInterrupt:
                future.result(self._timeout_s)
                created.append(topic)
                raise
            created.append(topic)
        end = time.monotonic() + self._timeout_s
        while True:
            try:
                self.partition(topic, 0)
                return
            except KquotaError:
                if time.monotonic() > end:
                    raise
                time.sleep(_POLL_S)

    def delete(self, topics: list[str]) -> list[str]:
        """Deletes topics, and returns the topics that are left: none, unless the cluster refuses."""
        from confluent_kafka import KafkaError, KafkaException

        left = list(topics)
        end = time.monotonic() + self._timeout_s
        while left and time.monotonic() < end:
            futures = self._admin.delete_topics(left, request_timeout=self._timeout_s)
            left = []
            for topic, future in futures.items():
                try:
                    future.result(self._timeout_s)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        left.append(topic)
            if left:
                time.sleep(_POLL_S)
        return left


def produce(settings: dict[str, Any], partition: Partition, pace: Pace, exchanges: list[Exchange]) -> None:
    """One record a request, acknowledged by all replicas, never sent again. Raises Rejected and its like."""
    from confluent_kafka import Producer

    watch = Watch(exchanges, lambda _api, _version, sent, _received: sent - _FRAME, frozenset({"Produce"}))
    load = pace.load
    producer = Producer({**settings, **watch.settings, "linger.ms": 0, "retries": 0, "message.max.bytes": 100_000_000})
    value = os.urandom(load.size)
    try:
        while pace.allows(load.size + _OVERHEAD):
            if not _due(watch, pace, producer.poll):
                continue
            outcome: list[Any] = []
            before = len(watch.exchanges)

            def delivered(error: Any, _message: Any, outcome: list[Any] = outcome) -> None:
                outcome.append(error)

            producer.produce(partition.topic, value, partition=partition.number, on_delivery=delivered)
            while not outcome and not pace.is_over:
                producer.poll(min(_POLL_S, pace.left_s()))
            if outcome and outcome[0] is not None:
                raise error_of(outcome[0], f"topic {partition.topic!r}")
            pace.spend(_drain(watch, before, producer.poll))
    finally:
        producer.purge()


_LARGEST_ANSWER = 100_000_000
"""librdkafka's own bound: it drops the connection at a larger answer, which the broker has charged."""


def fetch(settings: dict[str, Any], partition: Partition, pace: Pace, exchanges: list[Exchange]) -> None:
    """Reads the partition from its beginning, and again when it is at the end.

    The next fetch goes out when the records of the last one were taken, so waiting before that keeps the rate. No group
    is joined and no offset is committed. Raises Rejected and its like, InputError for a partition without records.
    """
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    load = pace.load
    # A broker answers with a whole batch, which may be larger; one more may be under way when the bound is met.
    largest = load.size + _OVERHEAD

    def on_answer(exchange: Exchange) -> None:
        nonlocal largest
        largest = max(largest, exchange.charge)
        pace.spend(exchange.charge)
        watch.awaits = exchange.charge > _EMPTY_FETCH  # a throttled fetch brings nothing
        while pace.allows(2 * largest) and pace.wait_s() > 0:
            time.sleep(min(pace.wait_s(), _POLL_S))

    def charge(_api: str, version: int, _sent: int, received: int) -> int:
        # 4 and the body, without the header: the correlation id is not in librdkafka's number, its tag count is.
        return received + 4 - (1 if version >= _FLEXIBLE_FETCH else 0)

    watch = Watch(exchanges, charge, frozenset({"Fetch"}), on_answer)
    consumer = Consumer(
        {
            **settings,
            **watch.settings,
            "group.id": settings["client.id"],
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
            "message.max.bytes": max(load.size, 1000),
            "fetch.max.bytes": load.size,
            "max.partition.fetch.bytes": load.size,
            "receive.message.max.bytes": max(largest, _LARGEST_ANSWER),
            "fetch.wait.max.ms": 100,
            "fetch.queue.backoff.ms": 1,
            "queued.min.messages": 1,
        }
    )
    start = TopicPartition(partition.topic, partition.number, OFFSET_BEGINNING)
    try:
        consumer.assign([start])
        found = False
        while pace.allows(2 * largest):
            # One record at a time: the bound may have been met by the answer that they are of.
            message = consumer.poll(min(_POLL_S, pace.left_s()))
            error = None if message is None else message.error()
            if error is None:
                found = found or message is not None
            elif error.code() != KafkaError._PARTITION_EOF:
                raise error_of(error, f"topic {partition.topic!r}")
            elif not found:
                raise InputError(f"partition {partition.number} of topic {partition.topic!r} has no records")
            elif pace.allows(2 * largest):
                consumer.seek(start)
    finally:
        consumer.close()


def request(settings: dict[str, Any], partition: Partition, pace: Pace, exchanges: list[Exchange]) -> None:
    """Asks the leader of the partition for its last offset. Raises Rejected and its like."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

    watch = Watch(exchanges, lambda *_sizes: 0)  # every request of a client takes thread time
    admin = AdminClient({**settings, **watch.settings})
    asked = TopicPartition(partition.topic, partition.number)
    while pace.allows(1):
        if not _due(watch, pace, admin.poll):
            continue
        before = len(watch.exchanges)
        (future,) = admin.list_offsets({asked: OffsetSpec.latest()}).values()
        pace.spend(1)
        if not _await(future, pace, admin.poll):
            return
        with errors(f"topic {partition.topic!r}"):
            future.result()
        _drain(watch, before, admin.poll)


def _due(watch: Watch, pace: Pace, poll: Callable[[float], Any]) -> bool:
    """Polls until the next request is due and the throttle is over, or for a moment; whether it is due."""
    muted_s = watch.muted_until_ms / 1000 - time.time()
    wait_s = max(pace.wait_s(), min(muted_s, pace.left_s()))
    if wait_s <= 0:
        watch.awaits = True
        return not pace.is_over
    poll(min(wait_s, _POLL_S))
    return False


def _await(future: Any, pace: Pace, poll: Callable[[float], Any]) -> bool:
    """Polls until the future is done or the time is up; whether it is done."""
    while not future.done() and not pace.is_over:
        poll(min(0.005, pace.left_s()))
    return bool(future.done())


def _drain(watch: Watch, before: int, poll: Callable[[float], Any]) -> int:
    """Serves what is queued, the answer's own throttle event with it; returns the charges of the answers since."""
    end = time.monotonic() + 1
    while poll(0) or (len(watch.exchanges) == before and time.monotonic() < end):
        pass
    return sum(exchange.charge for exchange in watch.exchanges[before:])
