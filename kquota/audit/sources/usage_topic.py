"""A Kafka topic of usage records, each a JSON object as in JSON lines: what it holds when the audit starts.

Each piece is a range of offsets of a partition, read by whichever process is given it. Nothing is committed, and the
group of the consumers is none that brokers get to know.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

from kquota.audit.batch import Batch, Tally
from kquota.audit.sources import ReadSettings, Split, usage
from kquota.backends.kafka import librdkafka
from kquota.errors import InputError, MissingDependency, Unreachable

DIALECT = "usage-topic"
SIGHT = usage.SIGHT
SPLIT_RECORDS = 500_000
PATIENCE_S = 30.0
"""How long nothing may come of a topic that answered before: brokers restart, and leaders move."""


def plan_topic(topic: str, settings: Mapping[str, Any], timeout_s: float) -> list[Split]:
    """Cuts a topic, up to its ends of now, into splits. `settings` configure a librdkafka client.

    It waits at most `timeout_s` for each answer.
    Raises InputError for a topic that is not there or empty, Unreachable when brokers do not answer, MissingDependency.
    """
    splits: list[Split] = []
    with consuming(settings) as (consumer, kafka):
        for partition, (first, end) in ends(topic, consumer, kafka, timeout_s).items():
            splits += pieces(topic, partition, first, end)
    if not splits:
        raise InputError(f"topic {topic}: empty, no usage events in it")
    return splits


def pieces(topic: str, partition: int, first: int, end: int) -> Iterator[Split]:
    """The offsets of a partition from `first` to before `end`, cut into splits."""
    for start in range(first, end, SPLIT_RECORDS):
        stop = min(start + SPLIT_RECORDS, end)
        yield Split(DIALECT, f"{topic}/{partition}", start, stop, stop - start, (stop - start) * 150)


def ends(topic: str, consumer: Any, kafka: Any, timeout_s: float) -> dict[int, tuple[int, int]]:
    """Partition → (its first offset, its last stable one), in order. Waits at most `timeout_s` for each answer.

    Raises InputError, Unreachable, Unauthorized.
    """
    where = f"topic {topic}"
    with librdkafka.errors(where):
        metadata = consumer.list_topics(topic, timeout_s).topics[topic]
        if metadata.error is not None:
            raise librdkafka.error_of(metadata.error, where)
        return {
            partition: consumer.get_watermark_offsets(kafka.TopicPartition(topic, partition), timeout_s)
            for partition in sorted(metadata.partitions)
        }


@contextlib.contextmanager
def consuming(settings: Mapping[str, Any], *, keep: bool = False) -> Iterator[tuple[Any, Any]]:
    """(a consumer, the library). With `keep`, all that reads with these settings inside uses this consumer."""
    key = tuple(sorted((name, str(value)) for name, value in settings.items()))
    if key in _kept:
        yield _kept[key]
        return
    consumer, kafka = _consumer(settings)
    if keep:
        _kept[key] = consumer, kafka
    try:
        yield consumer, kafka
    finally:
        _kept.pop(key, None)
        consumer.close()


_kept: dict[tuple[tuple[str, str], ...], tuple[Any, Any]] = {}
"""Consumers that are kept open in this process, by their settings."""


def read(split: Split, settings: ReadSettings, tally: Tally) -> Iterator[Batch]:
    """The events in one range of offsets. Raises Unreachable: half a topic is not audited."""
    assert settings.kafka is not None, "the splits of a topic are read with the client that they were planned with"
    tables = usage.json_tables(_records(split, settings.kafka), split.path, settings, tally, DIALECT)
    return usage.to_batches(tables, split.path, settings, "", tally, dialect=DIALECT)


def _records(split: Split, settings: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """(place, value) of the records; those without a value are left out."""
    topic, _, number = split.path.rpartition("/")
    with consuming(settings) as (consumer, kafka):
        try:
            consumer.assign([kafka.TopicPartition(topic, int(number), split.start)])
            deadline = time.monotonic() + PATIENCE_S
            while True:
                for message in consumer.consume(min(split.end - split.start, 10_000), 0.5):
                    deadline = time.monotonic() + PATIENCE_S
                    error = message.error()
                    if error is not None and error.code() == kafka.KafkaError._PARTITION_EOF:
                        return
                    if error is not None:
                        raise librdkafka.error_of(error, f"topic {split.path}")
                    if message.offset() >= split.end:
                        return
                    if message.value() is not None:
                        yield f"offset {message.offset()}", message.value()
                    if message.offset() == split.end - 1:
                        return
                if time.monotonic() > deadline:
                    raise Unreachable(
                        f"topic {split.path}: no answer for {PATIENCE_S:.0f} s, before offset {split.end}"
                    )
        except kafka.KafkaException as error:
            raise librdkafka.error_of(error.args[0], f"topic {split.path}") from None


def _consumer(settings: Mapping[str, Any]) -> tuple[Any, Any]:
    """(a consumer, the library)."""
    try:
        import confluent_kafka
    except ImportError:
        raise MissingDependency("reading a topic needs confluent-kafka", extra="audit,probe") from None
    own = {
        "group.id": "kquota-audit",  # a consumer must have one; without commits and subscriptions nobody learns of it
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "log_level": 0,
    }
    return confluent_kafka.Consumer({**settings, **own}), confluent_kafka
