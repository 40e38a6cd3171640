"""Files that are damaged, odd, or no files at all: what can be read is read, and the rest is counted and named."""

import gzip
import json
import re
import time
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc

from kquota import Entity, InputError, QuotaKey, QuotaSnapshot
from kquota.audit import sources
from kquota.audit.batch import Tally
from kquota.audit.engines import local
from kquota.audit.engines import spark as job
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import MAX_LINE_BYTES, ReadSettings, Split, lines, plan_splits
from kquota.audit.sources.files import damage_of, open_text
from kquota.audit.sources.lost import ANY
from kquota.audit.sources.usage import to_batches
from kquota.core.change.history import QuotaHistory
from kquota.core.findings.verdicts import Verdict
from tests.audit.oracle import START_MS
from tests.audit.request_lines import fields, line
from tests.support.scheduling import examples

PRODUCE = QuotaKey.PRODUCER_BYTE_RATE
SETTINGS = AuditSettings(QuotaHistory.of(QuotaSnapshot({Entity(user="alice"): {PRODUCE: 100}})))
SETTINGS_OF_PLENTY = AuditSettings(QuotaHistory.of(QuotaSnapshot({Entity(user="alice"): {PRODUCE: 10**9}})))
ROWS = 300


def table(rows: int = ROWS) -> pa.Table:
    """A usage table of random sizes, so that it does not pack to nothing."""
    sizes = [zlib.crc32(str(number).encode()) % 100_000 for number in range(rows)]
    return pa.table(
        {
            "time_ms": [START_MS + 40 * number for number in range(rows)],
            "user": ["alice"] * rows,
            "client_id": [f"app-{size}" for size in sizes],
            "api": ["produce"] * rows,
            "bytes": sizes,
        }
    )


def json_lines(rows: int = ROWS) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in table(rows).to_pylist())


def csv_lines() -> bytes:
    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(table(), sink)
    return bytes(sink.getvalue())


def audit(*paths: Path, processes: int = 1, under: AuditSettings = SETTINGS) -> AuditResult:
    return local.audit(plan_splits(list(map(str, paths)), "auto"), under, "usage", processes=processes)


def unread(result: AuditResult) -> dict[str, str]:
    """The reasons by the names of the files."""
    return {Path(one.path).name: one.reason for one in result.quality.unread_files}


@pytest.mark.parametrize(
    ("damage", "reason", "lost"),
    [
        (lambda packed: packed[:-8] + b"\0\0\0\0" + packed[-4:], "incorrect data check", 0),
        (lambda packed: packed[:-4], "cut off", 0),
        (lambda packed: packed[:-8], "cut off", 0),
        (lambda packed: packed + b"and more", "something follows", 0),
        (lambda packed: packed + packed[:5], "cut off", 0),
        (lambda packed: packed + packed[: len(packed) // 2], "cut off", 0),
        (lambda packed: packed + b"\0" * 1024, None, 0),
        (lambda packed: packed + packed, None, 0),
        (lambda packed: packed[: len(packed) // 2], "cut off", ROWS * 0.6),
        (
            lambda packed: packed[: len(packed) // 2] + b"\xff" * 99 + packed[len(packed) // 2 :],
            "gzip data",
            ROWS * 0.6,
        ),
    ],
)
@pytest.mark.parametrize("content", [json_lines, csv_lines], ids=["JSON lines", "CSV"])
def test_no_good_line_is_lost_before_the_damage(
    tmp_path: Path, damage: Callable[[bytes], bytes], reason: str | None, lost: float, content: Callable[[], bytes]
) -> None:
    """Neither by a bad checksum, nor a bad end, nor what follows it; the file is named."""
    name = "usage.csv.gz" if content is csv_lines else "usage.jsonl.gz"
    (tmp_path / name).write_bytes(damage(gzip.compress(content())))

    result = audit(tmp_path / name)

    assert result.quality.events >= ROWS - lost
    if reason is None:
        assert result.quality.unread_files == ()
    else:
        assert reason in unread(result)[name]
        assert result.quality.rejected >= 1
    (quota,) = audit(tmp_path / name, under=SETTINGS_OF_PLENTY).quotas
    assert quota.verdict is (Verdict.NOT_THROTTLED if reason is None else Verdict.UNDETERMINED)


@given(text=st.binary(max_size=300), place=st.integers(0, 10_000), byte=st.integers(0, 255), times=st.integers(1, 5))
def test_unpacks_what_gzip_unpacks(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, place: int, byte: int, times: int
) -> None:
    """Whatever byte is changed: either there is damage, or the text is what Python's gzip makes of it."""
    packed = bytearray(b"".join(gzip.compress(text * number) for number in range(times)))
    packed[place % len(packed)] = byte
    path = tmp_path_factory.mktemp("packed") / "x.gz"
    path.write_bytes(packed)

    with open_text(str(path)) as stream:
        found, damage = stream.read(), damage_of(stream)

    if packed[:2] != b"\x1f\x8b":
        assert found == bytes(packed)
        return
    try:
        expected = gzip.decompress(packed)
    except (OSError, EOFError, zlib.error):
        assert damage is not None
    else:
        # RFC 1952 has readers refuse flags that they do not know; Python's gzip does not.
        assert "unknown header flags" in str(damage) or (found, damage) == (expected, None)


def test_blank_lines_cost_next_to_nothing(tmp_path: Path) -> None:
    """And lines behind them have their numbers; 100 MB of them took more than a minute."""
    good = json_lines(3).splitlines(keepends=True)
    text = good[0] + b"\n" * 20_000_000 + good[1] + b" \r\n" * 5_000_000 + b"{\n" + good[2]
    path = tmp_path / "usage.jsonl.gz"
    path.write_bytes(gzip.compress(text, 1))
    tally, before = Tally(), time.process_time()

    found = list(lines(Split("usage", str(path), 0, -1), tally))

    assert time.process_time() - before < 30
    assert [place for place, _ in found] == ["line 1", "line 20000002", "line 25000003", "line 25000004"]
    assert [text for _, text in found] == [good[0], good[1], b"{\n", good[2]]


def test_a_line_without_an_end_costs_next_to_nothing(tmp_path: Path) -> None:
    """Zeros, as a file system leaves them after a power cut: 200 MB of them took 8 s, most of it copying."""
    good = json_lines(1)
    path = tmp_path / "usage.jsonl.gz"
    path.write_bytes(gzip.compress(bytes(1 << 20)) * 200 + gzip.compress(b"\n" + good))
    tally, before = Tally(), time.process_time()
    with gzip.open(path) as file:
        while file.read(1 << 20):
            pass
    unpacked = time.process_time()

    found = list(lines(Split("usage", str(path), 0, -1), tally))

    # Of the same process, and so on any machine.
    assert time.process_time() - unpacked < 5 * (unpacked - before)
    assert [(place, len(text)) for place, text in found] == [("line 1", MAX_LINE_BYTES), ("line 2", len(good))]


def test_a_line_without_an_end_is_not_read_from_each_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once by the split in which it begins, and once more by the splits inside it, each its own part."""
    monkeypatch.setattr(sources, "LINE_SPLIT_BYTES", 1 << 20)
    good, size = json_lines(2), 64 << 20
    path = tmp_path / "usage.jsonl"
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(size)
        file.write(b"\n" + good)
    splits = plan_splits([str(path)], "usage")
    before = bytes_read()

    found = [one for split in splits for one in lines(split, Tally())]

    assert bytes_read() - before < 3 * size
    assert [text for _, text in found] == [bytes(MAX_LINE_BYTES), *good.splitlines(keepends=True)]
    assert [place for place, _ in found][:2] == ["byte 0", f"byte {size + 1}"]


def test_what_is_behind_the_end_of_a_long_line_may_be_anybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log store's answer of 20 MB in one line: clients of its last requests were nobody seen."""
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 4000)
    path, tally = tmp_path / "answer.json", Tally()
    path.write_text(json.dumps([{"line": line(fields(version=version)).strip()} for version in range(3, 9)]) + "\n")

    for split in plan_splits([str(path)], "auto"):
        assert [*sources.read(split, ReadSettings(), tally)]

    assert 1 < tally.events < 6
    assert tally.noted["request-log"] >= {*ANY}
    assert "more than 16 MiB" in tally.rejects[-1].reason


def bytes_read() -> int:
    """How much this process has read so far."""
    (count,) = re.findall(r"rchar: (\d+)", Path("/proc/self/io").read_text())
    return int(count)


@given(parts=st.lists(st.sampled_from([b"\n", b"\r\n", b" \t\n", b"x\n", b"{}\n", b"long enough\n"]), max_size=900))
@settings(max_examples=examples(50), deadline=None)
def test_places_are_the_same_among_blank_lines(tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]) -> None:
    """In a whole file and in a piece of one."""
    path = tmp_path_factory.mktemp("lines") / "usage.jsonl"
    text = b"".join(parts) * 3
    path.write_bytes(text)
    wanted = [(number, part) for number, part in enumerate(text.splitlines(keepends=True), 1) if part.strip()]

    whole = list(lines(Split("usage", str(path), 0, -1), Tally()))

    assert whole == [(f"line {number}", part) for number, part in wanted]
    cut = len(text) // 2
    pieces = [Split("usage", str(path), 0, cut), Split("usage", str(path), cut, len(text))]
    places = [place for piece in pieces for place, _ in lines(piece, Tally())]
    offsets = [place.start() for place in re.finditer(rb"[^\n]*\S[^\n]*\n", text)]
    assert len(text) < 2 or places == [f"byte {offset}" for offset in offsets]


@pytest.mark.parametrize(
    "changes",
    [
        {"totalTimeMs": 9.2e15},
        {"sendTimeMs": 9.2e15},
        {"responseQueueTimeMs": -5.0},
        {"localTimeMs": -1e9},
        {"localTimeMs": 1e12},
        {"throttleTimeMs": -3},
        {"throttleTimeMs": 2**40},
    ],
)
def test_times_that_no_request_has_are_counted(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "kafka-request.log"
    path.write_text("".join(line(fields(sendTimeMs=0.1 * n)) for n in range(3)) + line(fields(**changes)))

    quality = audit(path).quality

    assert (quality.events, quality.rejected) == (3, 1)
    assert quality.first_ms == quality.last_ms


def damaged_parquet(path: Path) -> None:
    """Three row groups, of which the data of the second is damaged."""
    pq.write_table(table(), path, row_group_size=100, compression="zstd", use_dictionary=False)
    group = pq.ParquetFile(path).metadata.row_group(1)
    start, data = group.column(4).data_page_offset, bytearray(path.read_bytes())
    data[start : start + 200] = b"\xff" * 200
    path.write_bytes(data)


def cut_parquet(path: Path) -> None:
    pq.write_table(table(), path)
    path.write_bytes(path.read_bytes()[:-100])


def bad_orc(path: Path) -> None:
    orc.write_table(table(), path)
    data = bytearray(path.read_bytes())
    data[3:1500] = b"\xff" * 1497
    path.write_bytes(data)


def holding(content: bytes) -> Callable[[Path], None]:
    """Writes a file with that content."""

    def write(path: Path) -> None:
        path.write_bytes(content)

    return write


def with_column(name: str, values: list[Any], *, instead: bool = True) -> Callable[[Path], None]:
    """Writes a table with that column, in the place of its own or beside it."""
    mine, column = table(), pa.array(values * ROWS)
    whole = mine.set_column(1, name, column) if instead else mine.append_column(name, column)
    return lambda path: pq.write_table(whole, path)


USER_TWICE = b"time_ms,user,user,api,bytes\n1700000000000,alice,bob,produce,5\n"
FAULTS = [
    ("x.parquet", damaged_parquet, "row group 2 is damaged", 100),
    ("x.parquet", holding(b"PAR1 and then something else"), "not a Parquet file", 1),
    ("x.parquet", cut_parquet, "not a Parquet file", 1),
    ("x.parquet", with_column("user", [["alice"]]), "column user is list", 1),
    ("x.parquet", with_column("user", [{"name": "alice"}]), "column user is struct", 1),
    ("x.parquet", with_column("user", ["alice"], instead=False), "column user is there more than once", 1),
    ("x.parquet", with_column("strict", [[True]], instead=False), "column strict is list", 1),
    ("x.log.zst", holding(b"\x28\xb5\x2f\xfd"), "zstd, which is not read", 1),
    ("x.jsonl.gz", holding(gzip.compress(json_lines())[:40]), "damaged gzip data: it is cut off", 1),
    ("x.orc", bad_orc, "stripe 1 is damaged", ROWS),
    ("x.orc", holding(b"ORC and then something else"), "not an ORC file", 1),
    ("x.csv", holding(b"a,b\n1,2\n"), "column time_ms, user, api, bytes is missing", 1),
    ("x.csv", holding(USER_TWICE), "column user is there more than once", 1),
]


@pytest.mark.parametrize(("name", "write", "reason", "records"), FAULTS)
def test_a_file_that_cannot_be_read_does_not_end_the_others(
    tmp_path: Path, name: str, write: Callable[[Path], None], reason: str, records: int
) -> None:
    """It is named, and what it is known to hold is counted; alone, it is an error."""
    write(tmp_path / name)
    pq.write_table(table(), tmp_path / "good.parquet")
    (tmp_path / "good.jsonl").write_bytes(json_lines())

    result = audit(tmp_path)

    assert reason in unread(result)[name]
    assert result.quality.rejected == records
    assert result.quality.events == 2 * ROWS + (200 if write is damaged_parquet else 0)
    (quota,) = audit(tmp_path, under=SETTINGS_OF_PLENTY).quotas
    is_part = reason.startswith(("row group", "stripe", "not a", "zstd", "damaged"))
    assert quota.verdict is (Verdict.UNDETERMINED if is_part else Verdict.NOT_THROTTLED), (
        "others are none of the export"
    )
    if write is not damaged_parquet:
        with pytest.raises(InputError, match=reason):
            audit(tmp_path / name)


def test_files_that_cannot_be_read_on_every_engine(spark: Any, tmp_path: Path) -> None:
    """What can be read and what is said of the rest is the same."""
    for number, (name, write, *_) in enumerate(FAULTS):
        write(tmp_path / f"{number}-{name}")
    (tmp_path / "packed.jsonl.gz").write_bytes(gzip.compress(json_lines())[:-4])
    splits = plan_splits([str(tmp_path)], "auto")

    expected = local.audit(splits, SETTINGS, "usage", processes=1)

    assert len(expected.quality.unread_files) == len(FAULTS) + 1
    for result in (local.audit(splits, SETTINGS, "usage", processes=2), job.audit(spark, splits, SETTINGS, "usage")):
        assert result.findings.equals(expected.findings)
        assert result.quality == expected.quality
        assert result.rejects == expected.rejects
    frame = spark.createDataFrame(
        [(START_MS, ["alice"], "produce", 5)], "time_ms long, user array<string>, api string, bytes long"
    )
    with pytest.raises(InputError, match="column user is list"):
        job.audit_dataframe(frame, SETTINGS)


@pytest.mark.parametrize("name", ["user", "client_id", "api", "broker", "connection"])
def test_what_is_not_utf_8_costs_its_row(tmp_path: Path, name: str) -> None:
    """Also in a dictionary, and as bytes."""
    raw = pa.array([b"alice", b"\xff\xfe", b"alice"])
    for number, column in enumerate((raw, raw.view(pa.string()))):
        mine = table(3)
        mine = (
            mine.set_column(mine.schema.names.index(name), name, column)
            if name in mine.schema.names
            else mine.append_column(name, column)
        )
        pq.write_table(mine, tmp_path / f"{number}.parquet")

        result = audit(tmp_path / f"{number}.parquet")

        assert (result.quality.events, result.quality.rejected) == (2, 1)
        assert [reject.reason for reject in result.rejects] == [f"{name} is not UTF-8 text"]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_every_unit(unit: str) -> None:
    """Those that are out of range are counted."""
    ticks = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}[unit]
    moment = int(datetime(2026, 5, 4, tzinfo=UTC).timestamp())
    column = pa.array([moment * ticks, 2**63 - 1, -(2**63) + 1, None]).cast(pa.timestamp(unit))
    mine = table(4).set_column(0, "time_ms", column)
    tally = Tally()

    (batch,) = to_batches(mine.to_batches(), "a table", ReadSettings("1"), "", tally)

    assert batch.time_ms.tolist() == [moment * 1000]
    assert tally.rejected == 3
    assert {reject.reason for reject in tally.rejects} == {"time_ms is not a time in epoch ms"}


def test_a_file_that_is_given_twice_is_read_once(tmp_path: Path) -> None:
    """By its path, its folder, a link, or another name of it."""
    path = tmp_path / "logs" / "usage.jsonl"
    path.parent.mkdir()
    path.write_bytes(json_lines())
    (tmp_path / "link.jsonl").symlink_to(path)
    (tmp_path / "hard.jsonl").hardlink_to(path)
    again: list[str] = []

    given = [path, path.parent, tmp_path / "link.jsonl", tmp_path / "hard.jsonl", tmp_path / "logs" / ".." / "logs"]
    splits = plan_splits(list(map(str, given)), "auto", lambda file, _: again.append(file))

    assert local.audit(splits, SETTINGS, "usage", processes=1).quality.events == ROWS
    assert [Path(one).name for one in again] == ["usage.jsonl"] * 2 + ["hard.jsonl", "usage.jsonl"]


@pytest.mark.parametrize("below", [".", "logs", "logs/dt=2026-01-01"])
def test_a_broker_is_named_by_its_folder_where_there_are_several(tmp_path: Path, below: str) -> None:
    """A single one has no name, unless one is given."""
    for number in (1, 2):
        folder = tmp_path / f"broker-{number}" / below
        folder.mkdir(parents=True)
        (folder / "usage.jsonl").write_bytes(json_lines(5))

    both, one = audit(tmp_path), audit(tmp_path / "broker-1")

    assert set(both.findings.column("broker").to_pylist()) == {"broker-1", "broker-2"}
    assert set(one.findings.column("broker").to_pylist()) == {""}
