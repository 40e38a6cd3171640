"""Kafka's request log as a source: files of lines into batches, and the account of what is not charged."""

from __future__ import annotations

from pathlib import Path

from kquota.audit import sources
from kquota.audit.batch import PRODUCE, Batch, Exemption, Tally
from kquota.audit.sources import ReadSettings, plan_splits
from tests.audit.request_lines import PARTITION, fetch, fields, line


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
