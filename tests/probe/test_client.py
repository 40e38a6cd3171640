"""What a probe's client sends next, by what the broker answered. Real brokers are in tests/cli/test_probe.py."""

import re
import time
from typing import Any

import pytest

from kquota.backends import wire
from kquota.backends.addresses import Server
from kquota.backends.kafka.connection import Measured
from kquota.backends.kafka.records import batch_of
from kquota.core.findings.probe import Exchange, Load, Probe
from kquota.errors import Conflict, InputError, Rejected
from kquota.probe.client import Client, Pace, Partition

BATCH = batch_of("", b"x" * 100, 0)


class Broker:
    """A connection on which a broker answers with the next of these; the first records of the log have the offset 5."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.requests = list(answers), list[Any]()

    def ask(self, requests: list[Any], kind: type, deadline: object) -> list[Any]:
        part = wire.ListedPartition(0, 0, -1, 5)
        return [wire.ListOffsetsResponse(0, [wire.ListedTopic("t", [part])])]

    def measured(self, request: Any, kind: type, deadline: object) -> Measured:
        self.requests.append(request)
        now = time.time() * 1000
        return Measured(self.answers.pop(0), 1000, 150, now, now)


def drive(kind: Probe, broker: Broker, most: int = 10**6) -> list[Exchange]:
    exchanges: list[Exchange] = []
    pace = Pace(Load(1e9, 100, 10.0, most))
    client = Client(broker, Partition("t", 0, 1, Server("b", 9092)), pace, exchanges, 1.0)  # type: ignore[arg-type]
    with pytest.raises(IndexError):  # the broker has no more answers
        client.drive(kind)
    return exchanges


def produced(throttle_ms: int, code: int = 0) -> Any:
    return wire.ProduceResponse([wire.ProducedTopic("t", [wire.ProducedPartition(0, code, 0, -1)])], throttle_ms)


def fetched(records: bytes, end: int, code: int = 0) -> Any:
    part = wire.FetchedPartition(0, code, end, end, 0, None, -1, records)
    return wire.FetchResponse(0, 0, 0, [wire.FetchedTopic("t", [part])])


def at(offset: int) -> bytes:
    return offset.to_bytes(8) + BATCH[8:]


def test_a_throttle_is_waited_out() -> None:
    begin = time.monotonic()
    exchanges = drive(Probe.PRODUCE, Broker(produced(0), produced(120), produced(80)))
    assert 0.2 <= time.monotonic() - begin < 60
    assert [(each.charge, each.throttle_ms) for each in exchanges] == [(1000, 0), (1000, 120), (1000, 80)]


def test_what_the_broker_refuses_ends_the_load() -> None:
    broker = Broker(produced(0), produced(0, code=44), produced(0))
    with pytest.raises(Rejected, match=r"POLICY_VIOLATION: topic 't'"):
        drive(Probe.PRODUCE, broker)
    assert len(broker.answers) == 1


def test_a_topic_that_is_deleted_meanwhile() -> None:
    """It was taken for a broker that is out of reach, and what the probe had seen was lost."""
    broker = Broker(produced(0), produced(120), produced(1200), produced(0, code=3), produced(0))
    said = "topic 't' was deleted after 4 requests (2 of them delayed, by 1.3 s in all)"
    with pytest.raises(Conflict, match=re.escape(said)):
        drive(Probe.PRODUCE, broker)
    assert len(broker.answers) == 1


def test_a_partition_is_read_again_from_its_beginning() -> None:
    """A throttled fetch comes empty, and is asked for again."""
    throttled = wire.FetchResponse(30, 0, 0, [])
    broker = Broker(fetched(at(5) + at(6), 8), throttled, fetched(at(7), 8), fetched(at(5), 8), fetched(b"", 8, code=1))
    exchanges = drive(Probe.FETCH, broker)
    offsets = [request.topics[0].partitions[0].fetch_offset for request in broker.requests]
    assert offsets == [5, 7, 7, 5, 6, 5]
    assert [each.throttle_ms for each in exchanges] == [0, 30, 0, 0, 0]


def test_a_partition_without_records() -> None:
    with pytest.raises(InputError, match="partition 0 of topic 't' has no records"):
        drive(Probe.FETCH, Broker(fetched(b"", 5)))


def test_no_request_is_sent_beyond_the_bound() -> None:
    pace = Pace(Load(1e9, 100, 10.0, 2_500))
    broker, exchanges = Broker(*[produced(0)] * 5), list[Exchange]()
    Client(broker, Partition("t", 0, 1, Server("b", 9092)), pace, exchanges, 1.0).drive(Probe.PRODUCE)  # type: ignore[arg-type]
    assert (len(exchanges), pace.exhausted) == (2, True)
