"""Kafka's request log as a source: files of lines into batches, and the account of what is not charged."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from kquota import Entity, QuotaKey, QuotaSnapshot
from kquota.audit import sources
from kquota.audit.batch import UNKNOWN, Batch, Exemption, Tally
from kquota.audit.engines import local
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, plan_splits
from kquota.core.change.history import QuotaHistory
from kquota.core.enforcement.kind import FETCH, PRODUCE
from tests.audit.request_lines import PARTITION, SHARED, STAMP, asking, compact, fetch, fields, line, share_fetch
from tests.support.enforcement import FetchSensor


def read(path: Path) -> tuple[Tally, list[Batch]]:
    tally = Tally()
    batches = [
        batch
        for split in plan_splits([str(path)], "request-log")
        for batch in sources.read(split, ReadSettings(broker="1"), tally)
        if isinstance(batch, Batch)
    ]
    return tally, batches


def test_what_is_exempt_is_accounted_and_not_charged(tmp_path: Path) -> None:
    """By reason, with the thread time that the log has; acks=0 spares the time, not the bytes."""
    careless = fields(response="", localTimeMs=2.0)
    careless["request"]["acks"] = 0
    idle = fields(version=3, response="", localTimeMs=0)
    idle["request"]["acks"] = 0
    lines = [
        fields(),
        careless,
        idle,
        fetch(
            [PARTITION], request={"topics": [], "replicaState": {"replicaId": 2, "replicaEpoch": 1}}, localTimeMs=3.0
        ),
        fetch([PARTITION], 12, request={"topics": [], "replicaId": 2}, localTimeMs=0.5, response={"responses": []}),
        fields("ALTER_PARTITION", 56, 3, request={}, response={"errorCode": 0}, localTimeMs=4.0),
        fields("ALTER_CONFIGS", 33, 2, request={}, response={}, isForwarded=True, localTimeMs=5.0),
        # Requests in flight when the logger was switched on came before the log.
        fields(request="", localTimeMs=6.0),
        fetch([PARTITION], request="", localTimeMs=7.0),
        fields(request=None, localTimeMs=8.0),
        fetch([PARTITION], request=None, localTimeMs=9.0),
        fields("CREATE_TOPICS", 19, 7, request=None, response={"throttleTimeMs": 0, "topics": []}, localTimeMs=10.0),
    ]
    path = tmp_path / "kafka-request.log"
    path.write_text("".join(map(line, lines)))

    tally, (batch,) = read(path)

    assert (tally.events, tally.exempt, tally.rejected) == (3, 9, 0)
    assert tally.exemptions == {
        "acks_0": Exemption(2, 2_000_000),
        "follower_fetch": Exemption(2, 3_500_000),
        "inter_broker": Exemption(1, 4_000_000),
        "forwarded": Exemption(1, 5_000_000),
        "in_flight": Exemption(5, 40_000_000),
    }
    assert batch.kind.tolist() == [PRODUCE] * 3
    assert batch.bytes.min() > 100
    assert batch.request_ns is not None
    assert batch.request_ns.tolist() == [1_250_000, 0, 0]


def test_share_fetches_with_records_have_no_sizes(tmp_path: Path) -> None:
    """Whichever parser read them; one that found nothing is like a fetch."""
    path = tmp_path / "kafka-request.log"
    usual = map(line, (fetch([PARTITION]), share_fetch([]), share_fetch([SHARED])))
    wrapped = f"{compact({'timeMillis': 1777890030456, 'message': compact(share_fetch([SHARED], localTimeMs=1.5))})}\n"
    path.write_text("".join([*usual, wrapped]))

    tally, (batch,) = read(path)

    assert (tally.events, tally.rejected) == (4, 0)
    assert batch.bytes.tolist() == [1072, 18, 0, 0]
    assert batch.kind.tolist() == [FETCH] * 4
    assert not isinstance(batch.bytes_complete, bool)
    assert batch.bytes_complete.tolist() == [True, True, False, False]


def test_a_share_fetch_with_records_leaves_its_counter_undetermined(tmp_path: Path) -> None:
    """And that of the fetches that it shares the counter with, but no other."""
    limits = QuotaSnapshot(
        {
            Entity(user="ann"): {QuotaKey.CONSUMER_BYTE_RATE: 1, QuotaKey.PRODUCER_BYTE_RATE: 1},
            Entity(user="idle"): {QuotaKey.CONSUMER_BYTE_RATE: 1000},
        }
    )
    values = [fields(), fetch([PARTITION]), share_fetch([SHARED]), share_fetch([], throttleTimeMs=70)]
    path = tmp_path / "kafka-request.log"
    path.write_text("".join(map(line, [*values, share_fetch([], principal="User:idle")])))

    result = local.audit(plan_splits([str(path)], "auto"), AuditSettings(QuotaHistory.of(limits)), "request-log")

    found = {(row["sensor"], row["key"]): row for row in result.findings.to_pylist()}
    assert {name: row["verdict"] for name, row in found.items()} == {
        ("ann:", "consumer_byte_rate"): "undetermined",
        ("ann:", "producer_byte_rate"): "throttled",
        ("idle:", "consumer_byte_rate"): "not throttled",
    }
    shared = found["ann:", "consumer_byte_rate"]
    assert (shared["events"], shared["logged_throttled_events"], shared["logged_throttle_time_ms"]) == (3, 1, 70)


SIZE = 200_073
"""What a broker charges for a fetch with 200,000 bytes of records."""


def fetches(path: Path, count: int, taken_back: Collection[int] = ()) -> Path:
    """A log of ann's fetches, 200 kB ten times a second; of those `taken_back` the broker sent nothing."""
    request = fetch([])["request"] | asking((0, 0))
    whole = fetch([PARTITION | {"recordsSizeInBytes": 200_000}], request=request)
    response = fetch([])["response"] | {"throttleTimeMs": 50}
    empty = fetch([], request=request, response=response, throttleTimeMs=50)
    stamps = [f"2026-05-04 10:20:{10 + number // 10},{number % 10}00" for number in range(count)]
    rows = [line(empty if number in taken_back else whole).replace(STAMP, stamp) for number, stamp in enumerate(stamps)]
    path.write_text("".join(rows))
    return path


def found(limit: int, *paths: Path) -> tuple[Any, ...]:
    """What an audit finds of ann's fetches in those files."""
    limits = QuotaSnapshot({Entity(user="ann"): {QuotaKey.CONSUMER_BYTE_RATE: limit}})
    splits = plan_splits([str(path) for path in paths], "auto")
    rows = local.audit(splits, AuditSettings(QuotaHistory.of(limits), read=ReadSettings(broker="1")), "files")
    (row,) = rows.findings.to_pylist()
    return tuple(row[name] for name in ("events", "throttled_events", "throttle_time_ms", "peak_rate"))


@pytest.mark.parametrize("taken_back", [(), range(100, 300, 9)])
def test_a_log_and_a_table_of_its_rows_are_one_recording(tmp_path: Path, taken_back: Collection[int]) -> None:
    """Alone and beside a file of other clients: a fetch without a size was taken back, whatever holds it."""
    log = fetches(tmp_path / "kafka-request.log", 300, taken_back)
    _, (batch,) = read(log)
    rows = [
        f"{time_ms},1,ann,app,fetch,{'' if size == UNKNOWN else size}\n"
        for time_ms, size in zip(batch.time_ms.tolist(), batch.bytes.tolist(), strict=True)
    ]
    header = "time_ms,broker,user,client_id,api,bytes\n"
    table, other = tmp_path / "usage.csv", tmp_path / "other.csv"
    table.write_text(header + "".join(rows))
    other.write_text(f"{header}{batch.time_ms[0]},1,zed,app,fetch,10\n")

    alone = found(1_000_000, log)

    assert alone[1] > 0
    assert (found(1_000_000, log, other), found(1_000_000, table)) == (alone, alone)


def test_a_proposed_quota_takes_back_what_it_throttles(tmp_path: Path) -> None:
    """While it was recorded nothing was throttled, so that the log has no take-backs of the proposed quota."""
    events, throttled, time_ms, peak = found(1_000_000, fetches(tmp_path / "kafka-request.log", 200))

    sensor = FetchSensor(1_000_000)
    verdicts = [sensor.fetch(100 * number, SIZE) for number in range(200)]
    delays = [verdict.throttle_ms for verdict in verdicts if verdict.throttle_ms > 0]
    assert (events, throttled, time_ms) == (200, len(delays), sum(delays))
    assert peak == max(verdict.rate for verdict in verdicts) < 1.2e6


def test_from_the_first_take_back_on_the_log_is_followed(tmp_path: Path) -> None:
    """From then on the counter holds what the broker's held; the fetches before are up to the proposed limit."""
    taken_back = range(100, 300, 4)

    _, throttled, _, peak = found(1_000_000, fetches(tmp_path / "kafka-request.log", 300, taken_back))

    sensor = FetchSensor(1_000_000)
    using, counter = sensor.kernel, sensor.counter
    verdicts = []
    for number in range(300):
        kind = FETCH if number < taken_back[0] else PRODUCE
        verdicts.append(using.charge_counter(counter, kind, 100 * number, float(SIZE), sensor.bound))
        if number in taken_back:
            using.note(counter, kind, 100 * number, -float(SIZE))
    assert throttled == sum(verdict.throttle_ms > 0 for verdict in verdicts)
    assert peak == max(verdict.rate for verdict in verdicts)
