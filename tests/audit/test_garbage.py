"""Every source of events: a file with 5 % garbage loses exactly the garbage, and says where it went."""

import gzip
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from kquota import Entity, QuotaKey, QuotaSnapshot
from kquota.audit import sources
from kquota.audit.engines import local
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, plan_splits
from kquota.core.change.history import QuotaHistory
from tests.audit import recorded
from tests.audit.oracle import START_MS
from tests.audit.test_request_text import FOLDER

GOOD = 2000
SETTINGS = AuditSettings(
    QuotaHistory.of(
        QuotaSnapshot({Entity(user=name): {QuotaKey.PRODUCER_BYTE_RATE: 9_000} for name in ("alice", "bob")})
    ),
    read=ReadSettings(broker="1"),
)


def spoiled(lines: list[bytes], seed: int) -> tuple[list[bytes], list[int]]:
    """The lines with 5 % of garbage among them, and the numbers of those lines."""
    random = Random(seed)
    whole = [line for line in lines if len(line) > 100]

    def garbage() -> bytes:
        line = random.choice(whole)
        return random.choice(
            [
                b"\xff\xfe\x00 no text at all",
                b"\tat kafka.server.KafkaApis.handle(KafkaApis.scala:42)",
                b"{",
                b"null",
                line[: random.randrange(30, len(line) // 2)],
                line[len(line) // 2 :],
                random.randbytes(50).replace(b"\n", b"").replace(b"\r", b"") + b"\x80x",
            ]
        )

    result: list[bytes] = []
    places = []
    bad = {random.randrange(len(lines)) for _ in range(len(lines) // 20)}
    for number, line in enumerate(lines):
        if number in bad:
            result.append(garbage())
            places.append(len(result))
        result.append(line)
    return result, places


def json_log() -> list[bytes]:
    with gzip.open(recorded.LOG) as file:
        return [line.rstrip(b"\n") for line in itertools.islice(file, 0, None, 20)]


def text_log() -> list[bytes]:
    with gzip.open(FOLDER / "trace.log.gz") as file:
        return [line.rstrip(b"\n") for line in file]


def rows() -> list[dict[str, Any]]:
    random = Random(3)
    return [
        {
            "time_ms": START_MS + 40 * number,
            "broker": "1",
            "user": random.choice(["alice", "bob"]),
            "client_id": f"app-{number % 3} with a name that makes the line longer than a hundred characters in all",
            "api": "produce",
            "bytes": random.randrange(3000),
        }
        for number in range(GOOD)
    ]


def json_lines() -> list[bytes]:
    return [json.dumps(row).encode() for row in rows()]


@pytest.mark.parametrize(
    ("name", "lines"), [("kafka-request.log.gz", json_log), ("usage.jsonl.gz", json_lines)], ids=["log", "usage"]
)
def test_what_was_before_the_damage_of_a_gzip_file_counts(
    tmp_path: Path, name: str, lines: Callable[[], list[bytes]]
) -> None:
    path = tmp_path / name
    packed = gzip.compress(b"\n".join([*lines(), b""]))
    path.write_bytes(packed[: len(packed) * 3 // 4])

    quality = findings(path, "auto").quality

    assert quality.rejected == 1
    assert 0.4 * len(lines()) < quality.events + quality.exempt < len(lines())


def findings(path: Path, dialect: str) -> Any:
    return local.audit(plan_splits([str(path)], dialect), SETTINGS, str(path), processes=1)


def facts(result: Any) -> pa.Table:
    """The findings, but for what requests that could not be read leave open."""
    return result.findings.drop_columns(["reason", "peak_rate_max"])


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize(
    ("dialect", "lines", "name"),
    [
        pytest.param("request-log", json_log, "kafka-request.log", id="request log"),
        pytest.param("request-log", text_log, "kafka-request.log", id="request log as text"),
        pytest.param("usage", json_lines, "usage.jsonl", id="JSON lines"),
    ],
)
def test_lines(tmp_path: Path, dialect: str, lines: Callable[[], list[bytes]], name: str, packed: bool) -> None:
    good = lines()
    all_of_it, places = spoiled(good, 7)

    def write(kind: str, content: list[bytes]) -> Path:
        path = tmp_path / kind / (f"{name}.gz" if packed else name)
        path.parent.mkdir()
        data = b"".join(line + b"\n" for line in content)
        path.write_bytes(gzip.compress(data) if packed else data)
        return path

    clean, path = findings(write("clean", good), dialect), write("spoiled", all_of_it)
    result = findings(path, dialect)

    assert len(clean.findings) >= 1
    assert facts(result).equals(facts(clean))
    assert (result.quality.events, result.quality.exempt) == (clean.quality.events, clean.quality.exempt)
    assert result.quality.rejected == len(places) >= len(good) * 0.045
    assert [(reject.source, reject.place) for reject in result.rejects] == [
        (str(path), f"line {place}") for place in places
    ]
    assert all(reject.reason for reject in result.rejects)


def test_lines_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There a place is a byte."""
    monkeypatch.setattr(sources, "LINE_SPLIT_BYTES", 100_000)
    all_of_it, places = spoiled(json_log(), 11)
    path = tmp_path / "kafka-request.log"
    path.write_bytes(b"".join(line + b"\n" for line in all_of_it))
    starts = [0]
    for line in all_of_it:
        starts.append(starts[-1] + len(line) + 1)

    result = findings(path, "request-log")

    assert sorted(int(reject.place.removeprefix("byte ")) for reject in result.rejects) == [
        starts[place - 1] for place in places
    ]


def spoiled_rows() -> tuple[pa.Table, list[int]]:
    """A table of which 5 % of the rows cannot be events, and the numbers of those."""
    random, table = Random(5), rows()
    bad = sorted(random.sample(range(GOOD), GOOD // 20))
    for number in bad:
        name, value = random.choice([("time_ms", 5), ("user", None), ("api", None), ("bytes", -7), ("bytes", None)])
        table[number][name] = value
    return pa.Table.from_pylist(table), [number + 1 for number in bad]


@pytest.mark.parametrize(
    ("name", "write"),
    [
        pytest.param("usage.parquet", pq.write_table, id="Parquet"),
        pytest.param("usage.orc", orc.write_table, id="ORC"),
        pytest.param("usage.csv", pyarrow.csv.write_csv, id="CSV"),
    ],
)
def test_rows(tmp_path: Path, name: str, write: Callable[[pa.Table, Path], Any]) -> None:
    table, places = spoiled_rows()
    path = tmp_path / name
    write(table, path)
    good = table.filter(pa.array([number + 1 not in places for number in range(GOOD)]))
    (tmp_path / "clean").mkdir()
    write(good, tmp_path / "clean" / name)

    result, clean = findings(path, "usage"), findings(tmp_path / "clean" / name, "usage")

    assert len(clean.findings) == 2
    assert facts(result).equals(facts(clean))
    assert result.quality.events == GOOD - len(places) == clean.quality.events
    assert sorted(int(reject.place.removeprefix("row ")) for reject in result.rejects) == places
    assert {reject.source for reject in result.rejects} == {str(path)}
