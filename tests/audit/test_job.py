"""The audit on a real Spark: from files to findings."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota import DEFAULT, Entity, QuotaKey, QuotaSnapshot
from kquota.audit import sources
from kquota.audit.batch import UNKNOWN, Batch, Column
from kquota.audit.engines import local
from kquota.audit.engines import spark as job
from kquota.audit.ledger.charge import Charger
from kquota.audit.ledger.replay import Replay
from kquota.audit.ledger.rows import Ledger
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, plan_splits
from kquota.core.change.history import QuotaHistory
from kquota.core.enforcement.kind import FETCH
from tests.audit import oracle
from tests.audit.oracle import Event
from tests.audit.usage_files import write_table
from tests.support.data import data_rows
from tests.support.scheduling import examples

QUOTAS = QuotaSnapshot(
    {
        Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: 2000, QuotaKey.REQUEST_PERCENTAGE: 5.0},
        Entity(user=DEFAULT, client_id=DEFAULT): {QuotaKey.CONSUMER_BYTE_RATE: 1500},
    }
)


def run(spark: Any, path: Path, audit_settings: AuditSettings, dialect: str = "auto") -> AuditResult:
    """Audits a file or a folder."""
    return job.audit(spark, plan_splits([str(path)], dialect), audit_settings, str(path))


def many_events() -> list[Event]:
    """A few thousand events, the same in every run."""
    events = []
    for number in range(4000):
        user, client = oracle.USERS[number % 3], oracle.CLIENTS[number % 2]
        api = "produce" if number % 5 < 3 else "fetch"
        time = oracle.START_MS + number * 37 + (number // 700) * 15_000
        events.append(Event(time, oracle.BROKERS[number % 2], user, client, api, number * 7919 % 4000, 3_000_000, 0))
    return events


@cache
def many_findings() -> Mapping[tuple[str, str, str], oracle.Expected]:
    return oracle.findings(many_events(), AuditSettings(QuotaHistory.of(QUOTAS)))


def write_parquet(events: list[Event], folder: Path) -> Path:
    """Two files of several row groups, with timestamps instead of numbers in the second."""
    table = oracle.usage_table(events)
    half = len(events) // 2
    pq.write_table(table.slice(0, half), folder / "a.parquet", row_group_size=300)
    stamped = table.slice(half)
    index = stamped.schema.get_field_index("time_ms")
    stamped = stamped.set_column(index, "time_ms", stamped.column(index).cast(pa.timestamp("ms", "UTC")))
    pq.write_table(stamped, folder / "b.parquet", row_group_size=700)
    return folder


@pytest.mark.parametrize("form", ["", "usage.csv", "usage.jsonl.gz"], ids=["Parquet", "CSV", "JSON lines"])
def test_every_form_of_the_usage_table(spark: Any, tmp_path: Path, form: str) -> None:
    """The findings are those of a plain replay, whatever the file."""
    events, audit_settings = many_events(), AuditSettings(QuotaHistory.of(QUOTAS))

    path = write_table(oracle.usage_table(events), tmp_path / form) if form else write_parquet(events, tmp_path)

    result = run(spark, path, audit_settings)

    assert oracle.as_expected(result.findings) == many_findings()
    assert sum(row.throttled > 0 for row in many_findings().values()) > 2
    assert result.quality.events == len(events)
    assert result.quality.rejected == 0
    assert (result.quality.first_ms, result.quality.last_ms) == (events[0].time_ms, events[-1].time_ms)


@pytest.mark.parametrize("processes", [1, 2])
def test_without_spark_the_findings_are_the_same(tmp_path: Path, processes: int) -> None:
    """In this process and in two others; in two variants; the engine is named."""
    events = many_events()
    later = QuotaSnapshot({Entity(user="bob"): {QuotaKey.PRODUCER_BYTE_RATE: 900}})
    history = QuotaHistory((QUOTAS, later), (oracle.START_MS + 60_000,))
    audit_settings = AuditSettings(history, against=QuotaHistory.of(later))
    splits = plan_splits([str(write_parquet(events, tmp_path))], "auto")
    steps: list[tuple[int, int]] = []

    result = local.audit(
        splits, audit_settings, "usage", processes=processes, progress=lambda done, known: steps.append((done, known))
    )

    assert oracle.as_expected(result.findings) == oracle.findings(events, audit_settings)
    assert oracle.as_expected(result.before) == oracle.findings(events, AuditSettings(QuotaHistory.of(later)))
    assert {row["limit_changes"] for row in result.findings.to_pylist()} == {0}
    assert (result.engine, result.quality.events) == ("local", len(events))
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert steps[-1][0] == steps[-1][1]


def test_what_is_written_can_be_joined(spark: Any, tmp_path: Path) -> None:
    """By Spark and by Arrow, whatever the names are; a second audit replaces what the first one wrote."""
    out = tmp_path / "out"
    events = [event._replace(broker=f"a/b=c %20 {event.broker}") for event in many_events()]
    found = local.audit(
        plan_splits([str(write_parquet(events, tmp_path))], "auto"), AuditSettings(QuotaHistory.of(QUOTAS)), "usage"
    )
    found.write(out)
    only = replace(found, findings=found.findings.filter(pc.equal(found.findings["key"], "producer_byte_rate")))

    read = spark.read.parquet(str(out))
    assert read.count() == len(found.findings)
    asked = spark.createDataFrame([("producer_byte_rate", events[0].broker)], "key string, broker string")
    assert {row.broker for row in read.join(asked, ["key", "broker"]).collect()} == {events[0].broker}
    assert oracle.as_expected(pq.read_table(out)) == oracle.as_expected(found.findings)
    only.write(out)
    assert oracle.as_expected(pq.read_table(out)) == oracle.as_expected(only.findings)
    assert [str(file.relative_to(out)) for file in out.rglob("*") if file.is_file()] == [
        "key=producer_byte_rate/findings.parquet"
    ]
    replace(found, findings=found.findings.slice(0, 0)).write(out)
    assert len(pq.read_table(out)) == 0


@pytest.mark.parametrize(("row", "reason"), data_rows("refused/usage_rows.txt"))
def test_a_bad_row_costs_only_itself(tmp_path: Path, row: str, reason: str) -> None:
    """It is kept with its reason, and the rest is read."""
    path = tmp_path / "usage.csv"
    path.write_text(
        f"time_ms,user,client_id,api,bytes\n1700000000000,alice,,produce,7\n{row}\n1700000000001,bob,b,fetch,8\n"
    )

    tally, batches = read(path)

    assert [reject.reason for reject in tally.rejects] == [reason]
    assert row.split(",")[0] in tally.rejects[0].text
    assert [size for batch in batches for size in batch.bytes] == [7, 8]


def read(path: Path) -> tuple[Any, list[Any]]:
    """(tally, batches) of a file, in this process."""
    from kquota.audit.batch import Tally

    tally = Tally()
    batches = [
        batch
        for split in plan_splits([str(path)], "auto")
        for batch in sources.read(split, ReadSettings(broker="1"), tally)
    ]
    return tally, batches


@pytest.mark.parametrize(("line", "reason"), data_rows("refused/usage_lines.txt"))
def test_a_bad_json_line_costs_only_itself(tmp_path: Path, line: str, reason: str) -> None:
    """As for CSV."""
    good = '{"time_ms": 1700000000000, "user": "a", "api": "fetch", "bytes": 9}'
    path = tmp_path / "usage.jsonl"
    path.write_text(f"{good}\n{line}\n\n{good}\n")

    tally, batches = read(path)

    assert len(tally.rejects) == 1
    assert reason in tally.rejects[0].reason
    assert sum(len(batch) for batch in batches) == 2


@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
@settings(max_examples=examples(30))
def test_throttled_fetches_have_the_same_sizes_however_the_usage_is_cut(seed: int, parts: int) -> None:
    """What a retry tells is looked for beyond the end of a ledger, and what was read last before its beginning."""
    random = np.random.default_rng(seed)
    count = 400
    times = oracle.START_MS + np.cumsum(random.choice([5, 900, 40_000], count, p=[0.6, 0.35, 0.05]))
    size = np.where(random.random(count) < 0.3, UNKNOWN, random.integers(100, 4000, count))
    column = Column.constant("x", count)
    batch = Batch(
        broker=column,
        user=column,
        client_id=Column(random.integers(0, 2, count).astype(np.int32), ["a", "b"]),
        kind=np.full(count, FETCH, np.uint8),
        time_ms=times,
        bytes=size,
        connection=random.integers(1, 4, count),
        detail=random.integers(0, 3, count),
    )
    audit_settings = AuditSettings(
        QuotaHistory.of(QuotaSnapshot({Entity(user="x"): {QuotaKey.CONSUMER_BYTE_RATE: 1500}}))
    )

    def findings(pieces: Sequence[Any]) -> list[dict[str, Any]]:
        charger = Charger(audit_settings)
        ledgers: list[Ledger] = []
        for number, rows in enumerate(pieces):
            charger.charge(batch.take(rows))
            ledgers += charger.take((number, 0))
        found: list[dict[str, Any]] = Replay(ledgers, audit_settings).tables()[0].to_pylist()
        return found

    assert findings(np.array_split(np.arange(count), parts)) == findings([np.arange(count)])
