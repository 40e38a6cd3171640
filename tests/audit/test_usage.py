"""The canonical usage table in every form, on the local engine, against a plain replay."""

import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota.audit.batch import Batch, Tally
from kquota.audit.result import AuditResult
from kquota.audit.run import audit
from kquota.audit.sources import ReadSettings, plan_splits, read
from kquota.core.findings.verdicts import Verdict
from kquota.errors import InputError
from tests.audit import oracle
from tests.audit.test_job import QUOTAS, many_events, many_findings
from tests.audit.usage_files import FORMS, write_table
from tests.support.scheduling import examples

EVENTS = many_events()
TABLE = oracle.usage_table(EVENTS)


def retyped(table: pa.Table, **types: pa.DataType) -> pa.Table:
    """The table with other types of those columns."""
    for name, wanted in types.items():
        index = table.schema.get_field_index(name)
        column = table.column(index)
        if pa.types.is_timestamp(wanted):
            column = column.cast(pa.timestamp("ms", wanted.tz))
        table = table.set_column(index, name, column.cast(wanted))
    return table


WIDE = {
    "timestamps in ms": {"time_ms": pa.timestamp("ms")},
    "timestamps in us with a zone": {"time_ms": pa.timestamp("us", "Europe/Berlin")},
    "timestamps in ns": {"time_ms": pa.timestamp("ns")},
    "decimals": {"bytes": pa.decimal128(20, 0), "request_time_ns": pa.decimal128(38, 3)},
    "doubles": {"bytes": pa.float64()},
    "small integers": {"throttle_time_ms": pa.int16(), "bytes": pa.uint32()},
    "large strings": {"user": pa.large_string(), "client_id": pa.string_view()},
}


def usage_rows(api: str, users: Sequence[str]) -> list[dict[str, Any]]:
    """A request of 10 kB of each user, ten times a second, that nobody throttled."""
    return [
        {"time_ms": 1700000000000 + 100 * n, "user": users[n % len(users)], "client_id": "app", "api": api}
        | {"bytes": 10_000, "throttle_time_ms": 0}
        for n in range(100)
    ]


@given(
    form=st.sampled_from(FORMS),
    api=st.sampled_from(["produce", "fetch", "share_fetch"]),
    limit=st.integers(1_000, 100_000),
    lost=st.sets(st.integers(0, 99), max_size=60),
)
@settings(max_examples=examples(30), deadline=None)
def test_a_missing_size_never_hides_that_a_client_is_throttled(
    tmp_path_factory: pytest.TempPathFactory, form: str, api: str, limit: int, lost: set[int]
) -> None:
    """Nor that nothing is known of it; who lost nothing keeps the verdict."""
    rows = usage_rows(api, ["alice", "bob"])
    missing = [row | {"bytes": None} if n in lost else row for n, row in enumerate(rows)]
    quotas = {f"user={user}": {f"{KEY_OF[api]}_byte_rate": str(limit)} for user in ("alice", "bob")}

    def verdicts(some: list[dict[str, Any]]) -> dict[str, Verdict]:
        path = write_table(pa.Table.from_pylist(some), tmp_path_factory.mktemp("t") / form)
        return {str(quota.entity): quota.verdict for quota in audit(path, quotas).quotas}

    whole, part = verdicts(rows), verdicts(missing)

    for user, verdict in part.items():
        lacks = any(rows[n]["user"] in user for n in lost)
        assert verdict in ({Verdict.UNDETERMINED, Verdict.THROTTLED} if lacks else {whole[user]})
        assert verdict is not Verdict.THROTTLED or whole[user] is Verdict.THROTTLED


KEY_OF = {"produce": "producer", "fetch": "consumer", "share_fetch": "consumer"}


@pytest.mark.parametrize(
    ("text", "open_"),
    [
        ('{"time_ms":17', "alice bob"),
        ("no row at all", ""),
        ('{"time_ms": 1700000000000}', "alice bob"),
        ('{"time_ms": 1700000000000, "user": "alice", "client_id": "app", "api": "produce", "bytes": -1}', "alice"),
        ('{"time_ms": 1700000000000, "user": "alice", "client_id": "app", "api": "fetch", "bytes": -1}', ""),
    ],
)
def test_a_record_that_cannot_be_read_leaves_open_whose_it_may_be(tmp_path: Path, text: str, open_: str) -> None:
    """By the names that are left of it."""
    lines = [*map(json.dumps, usage_rows("produce", ["alice", "bob"])), text]
    (tmp_path / "usage.jsonl").write_text("\n".join(lines))
    quotas = {f"user={user}": {"producer_byte_rate": "1GB"} for user in ("alice", "bob")}

    found = audit(tmp_path / "usage.jsonl", quotas).quotas

    assert [quota.entity.user for quota in found if quota.verdict is Verdict.UNDETERMINED] == open_.split()


@pytest.mark.parametrize("form", ["usage.parquet", "usage.csv.gz", "usage.jsonl"])
def test_a_record_that_cannot_be_read_is_outside_by_its_own_time(tmp_path: Path, form: str) -> None:
    """It made everybody undetermined who sent requests in another hour, as no line of a log does."""
    rows = [*usage_rows("produce", ["alice"]), usage_rows("produce", ["alice"])[0] | {"time_ms": 10**12, "bytes": -1}]
    path = write_table(pa.Table.from_pylist(rows), tmp_path / form)

    result = audit(path, {"user=alice": {"producer_byte_rate": "1GB"}}, since_ms=1_600_000_000_000)

    assert [quota.verdict for quota in result.quotas] == [Verdict.NOT_THROTTLED]
    assert (result.quality.rejected, result.quality.outside) == (0, 1)


@pytest.mark.parametrize("form", FORMS)
def test_every_form(tmp_path: Path, form: str) -> None:
    result = audit(write_table(TABLE, tmp_path / form), QUOTAS)

    assert oracle.as_expected(result.findings) == many_findings()
    assert (result.quality.events, result.quality.rejected) == (len(EVENTS), 0)


def test_share_fetches_are_charged_like_fetches(tmp_path: Path) -> None:
    events = [
        event._replace(api="Share_Fetch") if event.api == "fetch" and number % 2 else event
        for number, event in enumerate(EVENTS)
    ]

    result = audit(write_table(oracle.usage_table(events), tmp_path / "usage.parquet"), QUOTAS)

    assert oracle.as_expected(result.findings) == many_findings()


def test_a_share_fetch_without_its_size_leaves_its_counter_undetermined(tmp_path: Path) -> None:
    """No retry tells it: what a throttled one tried to read, the next one does not get."""
    rows = [
        {"time_ms": 1700000000000 + number, "user": user, "api": api, "bytes": size, "connection": "c"}
        for number, (user, api, size) in enumerate(
            [("alice", "share_fetch", None), ("alice", "share_fetch", 50), ("bob", "fetch", None), ("bob", "fetch", 50)]
        )
    ]
    limits = {f"user={user}": {"consumer_byte_rate": "1GB"} for user in ("alice", "bob")}

    result = audit(write_table(pa.Table.from_pylist(rows), tmp_path / "usage.jsonl"), limits)

    found = {row["sensor"]: row for row in result.findings.to_pylist()}
    assert {sensor: (row["verdict"], row["events"]) for sensor, row in found.items()} == {
        "alice:": ("undetermined", 2),
        "bob:": ("not throttled", 2),
    }
    assert (found["alice:"]["estimated_events"], found["bob:"]["estimated_events"]) == (0, 1)
    assert result.quality.rejected == 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("column", [True, False], ids=["a column of nulls", "no column"])
def test_no_thread_time_is_charged_with_acks_0(tmp_path: Path, form: str, column: bool) -> None:
    """That is known without the time, whether its column is there or not. Of other requests it is not known."""
    rows = [
        {"time_ms": 1700000000000 + number, "user": user, "api": api, "bytes": 5, "acks": acks}
        for number, (user, api, acks) in enumerate(
            [("alice", "produce", 0), ("alice", "produce", 0), ("bob", "produce", 0), ("bob", "produce", 1)]
        )
    ]
    table = pa.Table.from_pylist(rows)
    if column:
        table = table.append_column("request_time_ns", pa.nulls(len(rows), pa.int64()))
    limits = {f"user={user}": {"request_percentage": "10"} for user in ("alice", "bob")}

    result = audit(write_table(table, tmp_path / form), limits)

    assert {row["sensor"]: row["verdict"] for row in result.findings.to_pylist()} == {
        "alice:": "not throttled",
        "bob:": "undetermined",
    }


@pytest.mark.parametrize("form", ["usage.parquet", "usage.orc"])
@pytest.mark.parametrize("types", WIDE.values(), ids=WIDE)
def test_every_type_of_a_column(tmp_path: Path, form: str, types: dict[str, Any]) -> None:
    if types.keys() & {"user"} or any(map(pa.types.is_unsigned_integer, types.values())):
        form = "usage.parquet"  # ORC has neither

    result = audit(write_table(retyped(TABLE, **types), tmp_path / form), QUOTAS)

    assert oracle.as_expected(result.findings) == many_findings()
    assert (result.quality.events, result.quality.rejected) == (len(EVENTS), 0)


def test_what_is_no_whole_number_costs_its_row(tmp_path: Path) -> None:
    table = pa.table(
        {
            "time_ms": [1700000000000] * 4,
            "user": ["alice"] * 4,
            "api": ["produce"] * 4,
            "bytes": pa.array([Decimal("1.5"), Decimal("10"), Decimal("1e19"), Decimal("7.0")], pa.decimal128(38, 1)),
        }
    )
    result = audit(write_table(table, tmp_path / "usage.parquet"), QUOTAS)

    assert (result.quality.events, result.quality.rejected) == (2, 2)
    assert {reject.reason for reject in result.rejects} == {"bytes is not a whole number"}


ROW = b"1700000000000,alice,app1,produce,600\n"


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(b"\xe6\xff,too few\n", id="too few fields"),
        pytest.param(b"1700000000000,al\xe6ice,app1,produce,600\n", id="a name in Latin-1"),
        pytest.param(b"\xff\xff\xff\xff\n", id="no fields"),
    ],
)
def test_a_line_that_is_no_text_costs_itself(tmp_path: Path, damage: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "usage.csv").write_bytes(
        b"time_ms,user,client_id,api,bytes\n" + ROW * 30_000 + damage + "1700000000000,zoë,,fetch,5\n".encode() + ROW
    )
    result = audit(tmp_path / "usage.csv", QUOTAS)

    assert (result.quality.events, result.quality.rejected) == (30_002, 1)
    assert [(reject.place, reject.reason) for reject in result.rejects] == [("line 30002", "not UTF-8 text")]
    assert capfd.readouterr().err == ""


def of_lines(path: Path, text: bytes) -> AuditResult:
    (path / "usage.csv").write_bytes(text)
    return audit(path / "usage.csv", QUOTAS)


OPEN = "a quote is not closed"


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["Unix", "Windows", "old Mac"])
def test_a_quote_that_is_not_closed_costs_its_line(tmp_path: Path, end: bytes) -> None:
    """Not those up to the next quote, which were neither read nor counted."""
    row = ROW.rstrip()
    lines = [
        b"time_ms,user,client_id,api,bytes",
        b'1700000000000,"zed,app1,produce,600',
        *[row] * 50,
        b'1700000000000,zed",app1,produce,600',
        b"too,few",
        b'1700000000000,5"disk,"zed,produce,600',
        b'1700000000000,"5""disk","a, ""b""",produce,600',
        b'1700000000000,the "disk",,produce,"600"',
        b'1700000000000,alice,app1,produce,"600',
    ]

    result = of_lines(tmp_path, end.join(lines))

    assert (result.quality.events, result.quality.rejected) == (52, 5)
    assert {(reject.place, reject.reason) for reject in result.rejects} == {
        *((f"line {number}", OPEN) for number in (2, 53, 55, 58)),
        ("line 54", "2 fields instead of 5"),
    }


@given(
    lines=st.lists(st.text('",a', max_size=9), max_size=9),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    last=st.booleans(),
)
def test_a_line_of_a_csv_file_is_a_row(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], end: str, last: bool
) -> None:
    """Which can be read or cannot, whatever quotes it has and whatever is in the lines around it."""
    path = tmp_path_factory.mktemp("lines") / "usage.csv"
    path.write_text(end.join(["api,bytes,time_ms,user", *lines, "produce,1,1700000000000,alice" + end * last]))
    [split] = plan_splits([str(path)], "usage")
    tally = Tally()

    assert sum(len(piece) for piece in read(split, ReadSettings(), tally) if isinstance(piece, Batch)) == 1
    assert tally.rejected == len(list(filter(None, lines)))


@pytest.mark.parametrize(
    ("encoding", "name"), [("utf-16", "UTF-16 text"), ("utf-16-be", "UTF-16 text"), ("cp1252", "iconv -f CP1252")]
)
def test_a_csv_file_of_another_encoding(tmp_path: Path, encoding: str, name: str) -> None:
    """It is named, with what makes UTF-8 of it."""
    text = "time_ms,user,client_id,api,bytes,größe\n1700000000000,alice,app1,produce,600,1\n"
    (tmp_path / "usage.csv").write_bytes(text.encode(encoding))
    tally = Tally()
    try:
        [split] = plan_splits([str(tmp_path / "usage.csv")], "auto")
        assert [*read(split, ReadSettings(), tally)] == []
        told = "".join(reject.reason for reject in tally.rejects)
    except InputError as error:
        told = f"{error.message} {error.hint}"
    assert name in told
