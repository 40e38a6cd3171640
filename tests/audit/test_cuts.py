"""Findings are a function of the rows alone, however they are cut into row groups, files and tasks, on every engine."""

import json
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota import DEFAULT, Entity, QuotaKey, QuotaSnapshot
from kquota.audit.engines import local
from kquota.audit.engines import spark as job
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, plan_splits
from kquota.core.change.history import QuotaHistory
from kquota.core.findings.verdicts import HELD_BACK
from tests.audit import oracle
from tests.audit.request_lines import PARTITION, SHARED, asking, fetch, fields, line, share_fetch
from tests.audit.usage_files import write_table

SCHEMA = pa.schema(
    [
        ("time_ms", pa.int64()),
        ("user", pa.string()),
        ("client_id", pa.string()),
        ("api", pa.string()),
        ("bytes", pa.int64()),
        ("request_time_ns", pa.int64()),
        ("throttle_time_ms", pa.int64()),
        ("connection", pa.string()),
        ("acks", pa.int64()),
    ]
)
OPTIONAL = ("client_id", "request_time_ns", "throttle_time_ms", "connection", "acks")
ALL_LIMITED = QuotaSnapshot(
    {
        Entity(user="alice"): {key: 20 for key in QuotaKey if key.allowed_for(Entity(user="alice"))},
        Entity(user=DEFAULT): {QuotaKey.CONSUMER_BYTE_RATE: 700, QuotaKey.PRODUCER_BYTE_RATE: 700},
    }
)


@st.composite
def rows(draw: st.DrawFn, *, apart: bool = False) -> list[dict[str, Any]]:
    """Rows of a usage table of which each may lack what is optional; `apart` no two have one time."""
    steps = st.sampled_from([1, 900, 30_000, 400_000] if apart else [0, 0, 1, 900, 30_000, 400_000])
    time_ms, made = oracle.START_MS, []
    for step in draw(st.lists(steps, min_size=2, max_size=40)):
        time_ms += step
        api = draw(st.sampled_from(["produce", "fetch", "fetch", "fetch", "share_fetch", "metadata"]))
        sizes: st.SearchStrategy[int | None] = st.integers(0, 9000)
        made.append(
            {
                "time_ms": time_ms,
                "user": draw(st.sampled_from(oracle.USERS)),
                "client_id": draw(st.sampled_from([None, *oracle.CLIENTS])),
                "api": api,
                "bytes": draw(sizes if api == "produce" else sizes | st.none()),
                "request_time_ns": draw(st.none() | st.integers(0, 40_000_000)),
                "throttle_time_ms": draw(st.none() | st.sampled_from([0, 25])),
                "connection": draw(st.sampled_from([None, "c1", "c2"])),
                "acks": draw(st.sampled_from([None, 0, 1])),
            }
        )
    return made


def write(made: Sequence[dict[str, Any]], path: Path, groups: int) -> None:
    """A file in the form that its name says; Parquet leaves out the columns that nothing is in."""
    table = pa.Table.from_pylist(list(made), SCHEMA)
    if path.suffix == ".parquet":
        table = table.drop_columns([name for name in OPTIONAL if table.column(name).null_count == len(table)])
    write_table(table, path, groups)


def found(paths: Sequence[Path], audit_settings: AuditSettings, processes: int = 1) -> pa.Table:
    splits = plan_splits(list(map(str, paths)), "usage")
    return local.audit(splits, audit_settings, "usage", processes=processes).findings


def cut(made: list[Any], places: Sequence[int]) -> list[list[Any]]:
    edges = sorted({0, len(made), *(place % len(made) for place in places)})
    return [made[begin:end] for begin, end in pairwise(edges)]


FORMS = st.lists(st.sampled_from(["parquet", "parquet", "orc", "csv", "jsonl"]), min_size=8, max_size=8)


@given(
    made=rows(),
    quotas=oracle.quota_histories(),
    places=st.lists(st.integers(0, 1000), max_size=6),
    forms=FORMS,
    groups=st.integers(1, 40),
)
@settings(max_examples=80, deadline=None)
def test_however_a_table_is_cut(
    made: list[dict[str, Any]], quotas: QuotaHistory, places: list[int], forms: list[str], groups: int
) -> None:
    """Into row groups and files of several forms, in the order of the export; all columns of the findings."""
    for snapshot in (quotas, QuotaHistory.of(ALL_LIMITED)):
        audit_settings = AuditSettings(snapshot, read=ReadSettings(broker="1"), per_client=True)
        with tempfile.TemporaryDirectory() as folder:
            whole = Path(folder) / "whole.parquet"
            write(made, whole, len(made))
            parts = [Path(folder) / f"{number}.{form}" for number, form in enumerate(forms)]
            for part, some in zip(parts, cut(made, places), strict=False):
                write(some, part, groups)
            expected = found([whole], audit_settings)
            assert found([part for part in parts if part.exists()], audit_settings).equals(expected)


@given(
    made=rows(apart=True), places=st.lists(st.integers(0, 1000), max_size=5), order=st.randoms(use_true_random=False)
)
@settings(max_examples=40, deadline=None)
def test_in_whatever_order_files_are_given(made: list[dict[str, Any]], places: list[int], order: Any) -> None:
    """Where no two rows have one time; of those that have, the export's order counts."""
    audit_settings = AuditSettings(QuotaHistory.of(ALL_LIMITED), read=ReadSettings(broker="1"))
    with tempfile.TemporaryDirectory() as folder:
        parts = []
        for number, some in enumerate(cut(made, places)):
            parts.append(Path(folder) / f"{number}.parquet")
            write(some, parts[-1], 7)
        expected = found(parts, audit_settings)
        order.shuffle(parts)
        assert found(parts, audit_settings).equals(expected)


def some_rows(*, apart: bool) -> list[dict[str, Any]]:
    """A few thousand rows, the same in every run; a null here and there, and unknown sizes in a few places only."""
    made = []
    for number in range(3000):
        api = ("produce", "fetch", "fetch", "metadata")[number % 4]
        rare = number % 501 == 2
        made.append(
            {
                "time_ms": oracle.START_MS + (number if apart else number // 3) * 37,
                "user": oracle.USERS[number % 3],
                "client_id": oracle.CLIENTS[number % 2],
                "api": api,
                "bytes": None if rare and api == "fetch" else number * 7919 % 4000,
                "request_time_ns": None if number == 1234 else 3_000_000,
                "throttle_time_ms": 25 if number == 777 else None,
                "connection": f"c{number % 5}",
            }
        )
    return made


def test_one_null_leaves_one_counter_undetermined(tmp_path: Path) -> None:
    """And one throttle time says of one counter that it was held back."""
    write(some_rows(apart=False), tmp_path / "usage.parquet", 5000)
    limits = {Entity(user=DEFAULT, client_id=DEFAULT): {QuotaKey.REQUEST_PERCENTAGE: 5.0}}

    table = found([tmp_path / "usage.parquet"], AuditSettings(QuotaHistory.of(QuotaSnapshot(limits))))

    assert len(table) > 3
    reasons = [reason for reason in table.column("reason").to_pylist() if reason is not None]
    assert len(reasons) == table.column("verdict").to_pylist().count("undetermined") == 2
    assert reasons.count(HELD_BACK) == 1
    logged = [hits for hits in table.column("logged_throttled_events").to_pylist() if hits is not None]
    assert logged == [1]


def test_on_every_engine(spark: Any, tmp_path: Path) -> None:
    """One process and two, Spark, and a DataFrame in any partitions; rows that have one time are in no order there."""
    for apart in (True, False):
        audit_settings = AuditSettings(QuotaHistory.of(ALL_LIMITED), read=ReadSettings(broker="1"))
        made, folder = some_rows(apart=apart), tmp_path / str(apart)
        folder.mkdir()
        write(made, folder / "whole.parquet", 5000)
        expected = found([folder / "whole.parquet"], audit_settings)
        parts = []
        for number, some in enumerate(cut(made, [700, 701, 1500])):
            parts.append(folder / f"{number}.parquet")
            write(some, parts[-1], 333)

        splits = plan_splits(list(map(str, parts)), "usage")
        assert sum(expected.column("estimated_events").to_pylist()) > 0
        assert found(parts, audit_settings, processes=2).equals(expected)
        assert job.audit(spark, splits, audit_settings, "usage").findings.equals(expected)
        frame = spark.createDataFrame(pa.Table.from_pylist(made, SCHEMA).to_pandas().astype(object), _spark_schema())
        frames = [frame.coalesce(1), frame.repartition(7), frame.orderBy("connection", "bytes")]
        tables = [job.audit_dataframe(each, audit_settings).findings for each in frames]
        assert all(table.equals(tables[0]) for table in tables)
        assert tables[0].equals(expected) or not apart


def _spark_schema() -> str:
    return ", ".join(f"{field.name} {'string' if field.type == pa.string() else 'long'}" for field in SCHEMA)


def log_line(number: int, kind: str) -> str:
    """A line of a request log of that kind, some of one ms."""
    stamp = f"2026-05-04 10:20:{30 + number // 9:02d},{number // 3 % 3 * 300:03d}"
    values = {
        "produce": fields(),
        "fetch": fetch([PARTITION], request=asking((0, 5))),
        "throttled": fetch([], throttleTimeMs=300, request=asking((0, 5))),
        "shared": share_fetch([SHARED]),
        "quiet": share_fetch([]),
    }
    return line(values[kind]).replace("2026-05-04 10:20:30,456", stamp)


@given(
    kinds=st.lists(st.sampled_from(["produce", "fetch", "throttled", "shared", "quiet"]), min_size=2, max_size=60),
    places=st.lists(st.integers(0, 1000), max_size=5),
    mixed=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_however_a_request_log_is_rotated(kinds: list[str], places: list[int], mixed: bool) -> None:
    """Also beside a usage table, which does not show what a broker took back."""
    limits = {Entity(user="ann"): {QuotaKey.CONSUMER_BYTE_RATE: 100, QuotaKey.PRODUCER_BYTE_RATE: 30}}
    audit_settings = AuditSettings(QuotaHistory.of(QuotaSnapshot(limits)), read=ReadSettings(broker="1"))
    lines = [log_line(number, kind) for number, kind in enumerate(kinds)]
    with tempfile.TemporaryDirectory() as folder:
        whole, table = Path(folder) / "whole.log", Path(folder) / "z.jsonl"
        whole.write_text("".join(lines))
        row = {"time_ms": 1_777_890_033_000, "user": "ann", "api": "fetch", "bytes": 500}
        table.write_text(json.dumps(row) + "\n")
        parts = []
        for number, some in enumerate(cut(lines, places)):
            parts.append(Path(folder) / f"{number}.log")
            parts[-1].write_text("".join(some))

        def audit(files: list[Path]) -> pa.Table:
            splits = plan_splits(list(map(str, files + [table] * mixed)), "auto")
            return local.audit(splits, audit_settings, "the log", processes=1).findings

        assert audit(parts).equals(audit([whole]))
