"""Kafka's request log as a source: files of lines into batches, and the account of what is not charged."""

from __future__ import annotations

from pathlib import Path

from kquota.audit import local, sources
from kquota.audit.batch import Batch, Exemption, Tally
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, plan_splits
from kquota.core.change.history import QuotaHistory
from kquota.core.enforcement.kind import FETCH, PRODUCE
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot
from tests.audit.request_lines import PARTITION, SHARED, compact, fetch, fields, line, share_fetch


def read(path: Path) -> tuple[Tally, list[Batch]]:
    """All batches of a file."""
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
    ]
    path = tmp_path / "kafka-request.log"
    path.write_text("".join(map(line, lines)))

    tally, (batch,) = read(path)

    assert (tally.events, tally.exempt, tally.rejected) == (3, 4, 0)
    assert tally.exemptions == {
        "acks_0": Exemption(2, 2_000_000),
        "follower_fetch": Exemption(2, 3_500_000),
        "inter_broker": Exemption(1, 4_000_000),
        "forwarded": Exemption(1, 5_000_000),
    }
    assert batch.kind.tolist() == [PRODUCE] * 3
    assert batch.bytes.min() > 100
    assert batch.request_ns is not None
    assert batch.request_ns.tolist() == [1_250_000, 0, 0]


def test_share_fetches_with_records_have_no_sizes(tmp_path: Path) -> None:
    """Whichever parser read them; one that found nothing is like a fetch."""
    path = tmp_path / "kafka-request.log"
    usual = map(line, (fetch([PARTITION]), share_fetch([]), share_fetch([SHARED])))
    wrapped = f"{compact({'timeMillis': 1777890030456, 'message': compact(share_fetch([SHARED]))})}\n"
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
