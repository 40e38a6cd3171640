"""Files by path and by URI: on this machine, and in an S3 that runs here."""

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyarrow import fs, orc

from kquota.audit import sources
from kquota.audit.batch import Batch, Tally
from kquota.audit.engines import local
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, files, plan_splits
from kquota.core.change.history import QuotaHistory
from kquota.errors import InputError
from tests.audit import oracle
from tests.audit.request_lines import STAMP, fields, line
from tests.audit.test_job import QUOTAS, many_events, many_findings

EVENTS = many_events()
SETTINGS = AuditSettings(QuotaHistory.of(QUOTAS))


@pytest.fixture(scope="module")
def s3() -> Iterator[tuple[Any, str]]:
    """A file system on an S3 server of this process, with a bucket `logs`; and the query of its URIs."""
    from moto.server import ThreadedMotoServer

    # Where credentials come from: never the URI. The metadata service of a cloud is not asked for them.
    given = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_EC2_METADATA_DISABLED": "true"}
    before = {name: os.environ.get(name) for name in given}
    os.environ |= given
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        address = f"{host}:{port}"
        system = fs.S3FileSystem(
            endpoint_override=address, scheme="http", region="eu-north-1", allow_bucket_creation=True
        )
        system.create_dir("logs")
        yield system, f"?region=eu-north-1&scheme=http&endpoint_override={address}"
    finally:
        server.stop()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def put(s3: tuple[Any, str], path: str, content: bytes) -> str:
    """Writes an object; its URI."""
    system, query = s3
    with system.open_output_stream(path, compression=None) as stream:
        stream.write(content)
    return f"s3://{path}{query}"


def test_the_topics_of_a_broker_beside_its_logs_are_no_logs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "clicks-0").mkdir(parents=True)
    for file in ("server.log", "data/meta.properties", "data/clicks-0/00000000000000000000.log"):
        (tmp_path / file).write_text("x\n")
    assert [Path(file.path).name for file in files.find(str(tmp_path))] == ["server.log"]
    with pytest.raises(InputError, match="a folder without files"):
        files.find(str(data))


@pytest.mark.parametrize("form", ["parquet", "orc", "csv", "csv.gz", "jsonl"])
@pytest.mark.parametrize("processes", [1, 2])
def test_usage_tables_in_s3(s3: tuple[Any, str], tmp_path: Path, form: str, processes: int) -> None:
    """Every form, also read by other processes; the findings are those of a plain replay."""
    if processes == 2 and form != "parquet":
        return
    table = oracle.usage_table(EVENTS)
    path = tmp_path / f"usage.{form}"
    match form:
        case "parquet":
            pq.write_table(table, path, row_group_size=1000)
        case "orc":
            orc.write_table(table, path)
        case "jsonl":
            table.to_pandas().to_json(path, orient="records", lines=True)
        case _:
            text = table.to_pandas().to_csv(index=False).encode()
            path.write_bytes(gzip.compress(text) if form.endswith("gz") else text)
    uri = put(s3, f"logs/{form}-{processes}/usage.{form}", path.read_bytes())

    result = local.audit(plan_splits([uri], "auto"), SETTINGS, uri, processes=processes)

    assert oracle.as_expected(result.findings) == many_findings()


def test_a_folder_in_s3(s3: tuple[Any, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files without hidden ones, large ones in pieces; the broker is the name of the last folder."""
    monkeypatch.setattr(sources, "LINE_SPLIT_BYTES", 5000)
    monkeypatch.setattr(sources, "BLOCK_BYTES", 700)
    log = "".join(line(fields()).replace(STAMP, f"2026-05-04 10:20:{second},456") for second in range(10, 60)).encode()
    put(s3, "logs/all/broker 1/kafka-request.log", log)
    other = log.replace(b"10.0.0.2:50000", b"10.0.0.3:50000")
    put(s3, "logs/all/broker-2/kafka-request.log.gz", gzip.compress(other))
    put(s3, "logs/all/_SUCCESS", b"no data")
    put(s3, "logs/all/.hidden/x.log", b"no data")
    put(s3, "logs/all/broker-2/data/meta.properties", b"no data")
    put(s3, "logs/all/broker-2/data/clicks-0/00000000000000000000.log", b"no data")

    splits = plan_splits([f"s3://logs/all/{s3[1]}"], "auto")
    tally = Tally()
    batches = [batch for split in splits for batch in sources.read(split, ReadSettings(), tally)]

    assert len(splits) > 5
    assert (tally.events, tally.rejected) == (100, 0)
    assert sorted({name for batch in batches if isinstance(batch, Batch) for name in batch.broker.values}) == [
        "broker 1",
        "broker-2",
    ]
    assert plan_splits([f"s3a://logs/all/{s3[1]}"], "auto") == splits


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("s3://logs/missing", "no such file or folder"),
        ("s3://nowhere/x", "nowhere"),
    ],
)
def test_what_is_not_there(s3: tuple[Any, str], path: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        plan_splits([path + s3[1]], "auto")


@pytest.mark.parametrize("path", ["wasb://c@a/x", "dbfs:///x", "https://host/x.parquet"])
def test_a_file_system_that_is_not_known(path: str) -> None:
    with pytest.raises(InputError, match="is not known, only file, s3") as raised:
        plan_splits([path], "auto")
    assert raised.value.hint is not None
    assert "mount" in raised.value.hint


@pytest.mark.parametrize(
    "path",
    [
        "s3://AKIA:hunter2@bucket/x",
        "s3://bucket/x?secret_key=hunter2",
        "abfs://c@a.dfs.core.windows.net/x?sas_token=hunter2",
    ],
)
def test_a_uri_with_a_secret_is_refused_without_saying_it(path: str) -> None:
    with pytest.raises(InputError, match="must not hold credentials") as raised:
        plan_splits([path], "auto")
    assert "hunter2" not in f"{raised.value} {raised.value.hint}"


@pytest.mark.parametrize(
    ("places", "brokers"),
    [
        (["b1/a.log", "b1/a.log.1"], ["", ""]),
        (["b1/a.log", "b2/a.log"], ["b1", "b2"]),
        (["b1/logs/a.log", "b2/logs/a.log"], ["b1", "b2"]),
        (["b1/a.log", "b1/archive/a.log.1", "b2/a.log", "b2/archive/a.log.1"], ["b1", "b1", "b2", "b2"]),
        (["a.log", "archive/a.log.1"], ["", ""]),
        (["a.log", "b2/a.log"], ["x", "b2"]),
        (["a.log", "b2/logs/a.log"], ["x", "logs"]),
        (["b1/a.log", "b1/archive/a.log.1", "b1/archive/older/a.log.2"], ["", "", ""]),
        (["README", "b1/a.log", "b2/a.log"], ["x", "b1", "b2"]),
        (["README", "b1/logs/a.log", "b2/logs/a.log"], [".", "b1", "b2"]),
        (["host1/b1/a.log", "host2/b2/a.log"], ["b1", "b2"]),
        (["dc1/b1/a.log", "dc1/b2/a.log", "dc2/b1/a.log"], ["dc1/b1", "dc1/b2", "dc2"]),
        (["b1/logs/a.log", "b1/old/a.log", "b2/logs/a.log"], ["b1/logs", "b1/old", "b2"]),
        (["dt=2026-01-01/a.csv", "dt=2026-01-02/a.csv"], ["", ""]),
        (["2026-01-01/b1/a.log", "2026-01-01/b2/a.log", "2026-01-02/b1/a.log"], ["b1", "b2", "b1"]),
        (["b1/dt=1/hour=2/a.log", "b1/dt=1/hour=3/a.log", "b2/dt=2/hour=2/a.log"], ["b1", "b1", "b2"]),
        (["20260504/a.log", "20260505/a.log", "2026_05_06/a.log", "2026-05-07T10/a.log"], ["", "", "", ""]),
        (["20260504-b1/a.log", "20260504-b2/a.log"], ["20260504-b1", "20260504-b2"]),
        (["2026/05/04/10/a.log", "2026/05/04/11/a.log"], ["", ""]),
        (["2026/05/04/2001/a.log", "2026/05/05/2002/a.log"], ["2001", "2002"]),
        (["host=b1/dt=1/a.log", "host=b2/dt=1/a.log"], ["host=b1", "host=b2"]),
    ],
)
@pytest.mark.parametrize("root", ["/var/x/", "s3://bucket/x/"])
def test_folders_name_brokers(root: str, places: list[str], brokers: list[str]) -> None:
    """Two brokers are never taken for one; a folder of rotated logs, or of one day, is not a broker."""
    paths = [root + place for place in places]

    assert files.brokers_of(paths) == dict(zip(paths, brokers, strict=True))
    assert files.brokers_of(reversed(paths)) == files.brokers_of(paths)
