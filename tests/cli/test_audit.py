"""`kquota audit` as a process: what goes wrong is one line, and nothing is written."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from jsonschema import Draft202012Validator

from kquota.cli.exit_codes import ExitCode
from kquota.documents.encoding import schema
from tests.cli.conftest import Kquota

QUOTAS = (
    '{"kind":"kquota.quotas","version":1,"quotas":[{"entity":{"user":"alice"},"values":{"producer_byte_rate":1000}}]}'
)
LINE = (
    '[2026-03-11 09:00:0%d,113] DEBUG Completed request:{"isForwarded":false,"requestHeader":{"requestApiKey":0,'
    '"requestApiVersion":11,"correlationId":1,"clientId":"app-%d","requestApiKeyName":"PRODUCE"},"request":'
    '{"transactionalId":null,"acks":-1,"timeoutMs":30000,"topicData":[{"name":"orders","partitionData":[{"index":0,'
    '"recordsSizeInBytes":40105}]}]},"response":{"responses":[],"throttleTimeMs":0},"connection":'
    '"10.0.0.1:9093-10.0.0.2:51822-0-118","totalTimeMs":4.3,"requestQueueTimeMs":0.05,"localTimeMs":2.1,'
    '"remoteTimeMs":1.9,"throttleTimeMs":398,"responseQueueTimeMs":0.04,"sendTimeMs":0.18,"securityProtocol":'
    '"SASL_SSL","principal":"User:alice","listener":"SASL_SSL","clientInformation":{"softwareName":"x",'
    '"softwareVersion":"1"}} (kafka.request.logger)\n'
)


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    """A file of each kind."""
    (tmp_path / "quotas.json").write_text(QUOTAS)
    (tmp_path / "none.json").write_text('{"kind":"kquota.quotas","version":1,"quotas":[]}')
    (tmp_path / "bad.json").write_text(QUOTAS.replace("1000", "-1"))
    (tmp_path / "bad.properties").write_text("quota.window.num=0\n")
    (tmp_path / "empty.log").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "broker-7").mkdir()
    (tmp_path / "broker-7" / "kafka-request.log").write_text("".join(LINE % (n, n % 2) for n in range(9)) + "garbage\n")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ("folder --quotas quotas.json", 3, "folder without files"),
        ("empty.log --quotas quotas.json", 3, "empty"),
        ("missing.log --quotas quotas.json", 3, "no such file"),
        ("quotas.json --quotas quotas.json", 3, "none of 1 records can be read"),
        ("broker-7 --quotas bad.json", 3, "greater than 0"),
        ("broker-7 --quotas folder", 3, "is a directory"),
        ("broker-7 --quotas none.json", 3, "no quotas"),
        ("broker-7 --quotas quotas.json --kafka-version latest", 3, "not a Kafka version"),
        ("broker-7 --quotas quotas.json --server-properties bad.properties", 3, "quota.window.num: 0 is not between 1"),
        ("broker-7 --quotas quotas.json --log-timezone Mars/Olympus", 3, "unknown time zone"),
        ("broker-7 --zookeeper 127.0.0.1:1 --timeout 2", 4, "127.0.0.1:1"),
    ],
)
def test_what_goes_wrong_is_one_line(kquota: Kquota, tmp_path: Path, arguments: str, code: int, says: str) -> None:
    """The reason and the code of the table; nothing on stdout, no file left."""
    before = sorted(tmp_path.rglob("*"))

    done = kquota("audit", *arguments.split())

    assert (done.code, done.out) == (code, "")
    assert says in done.complaint
    assert sorted(tmp_path.rglob("*")) == before


def test_a_master_that_is_none(kquota: Kquota) -> None:
    """Spark's reason in one line, without its stack trace."""
    done = kquota("audit", "broker-7", "--quotas", "quotas.json", "--master", "nonsense")

    assert (done.code, done.out) == (4, "")
    assert "Master must either be" in done.complaint


def test_without_java(kquota: Kquota, tmp_path: Path) -> None:
    """What to install is said."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "sh", "ps", "dirname", "uname", "cat"):
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)

    arguments = ["audit", "broker-7", "--quotas", "quotas.json", "--engine", "spark"]
    done = kquota(*arguments, PATH=str(tools), JAVA_HOME="")

    assert (done.code, done.out) == (8, "")
    assert "apt-get install openjdk-17-jdk-headless" in done.complaint


def test_interrupted(tmp_path: Path) -> None:
    """Ctrl-C, here while Spark starts: code 130, no traceback, no process left."""
    command = [sys.executable, "-m", "kquota", "audit", "broker-7", "--quotas", "quotas.json", "--engine", "spark"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment
    ) as process:
        deadline = time.monotonic() + 180
        while not psutil.Process(process.pid).children() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        # The pipes close when the last process that holds them is gone, the JVM included.
        out, err = process.communicate(timeout=120)

    assert (process.returncode, out, err.strip()) == (130, "", "kquota: interrupted")


def test_the_settings_of_a_broker(kquota: Kquota, tmp_path: Path) -> None:
    """Windows and static defaults come from its server.properties; an option on the command line wins."""
    (tmp_path / "server.properties").write_text(
        "quota.producer.default=1000\nquota.window.num=5\nquota.window.size.seconds=3\n"
    )
    options = ["--server-properties", "server.properties", "--kafka-version", "2.8", "--quota-window-size-seconds", "2"]
    done = kquota("audit", "broker-7", "--quotas", "none.json", *options, "-o", "json")

    assert done.code == 0
    report = json.loads(done.out)
    assert report["enforcement"] == {
        "generation": "n_by_start",
        "quota_window_num": 5,
        "quota_window_size_seconds": 2,
    }
    entities = [(finding["sensor"], finding["entity"], finding["limit"]) for finding in report["findings"]]
    assert sorted(entities) == [(f":app-{n}", {"client-id": {"default": True}}, 1000) for n in (0, 1)]


@pytest.mark.parametrize("output", ["table", "csv"])
def test_garbage_is_quarantined_and_the_rest_is_audited(
    kquota: Kquota, tmp_path: Path, golden: Callable[[str, str], None], output: str
) -> None:
    """One folder gives no broker a name; the bad line is kept with its reason; how to do so on Spark is said."""
    done = kquota("audit", "broker-7", "--quotas", "quotas.json", "-o", output)

    assert done.code == 0
    golden(f"audit.{output}", done.out)
    warning, *rest = done.err.splitlines()
    assert "1 record cannot be read, quarantined in kquota-quarantine.jsonl" in warning
    assert rest == (
        [
            "1 of 1 limit throttled somebody; worst: user alice, muted 100 % of the time,"
            " about 3 min 50 s (30.1 s to 9 min 12 s) at the longest, would time out, reconnect and send again",
            "times out: the wait is longer than the clients' time-out, so they reconnect and send again",
            "9 requests read, 0 without a quota, 0 exempt (local engine)",
            "1 quota set: 1 throttled",
            "on Spark, with the same findings: --engine spark, or spark-submit $(python -m kquota.cli.submit) …",
            "next: --report FILE.html shows when and who; 'kquota recommend' proposes limits that are enough",
        ]
        if output == "table"
        else []
    )
    (reject,) = map(json.loads, (tmp_path / "kquota-quarantine.jsonl").read_text().splitlines())
    assert reject["place"] == "line 10"
    assert reject["text"] == "garbage"


def test_a_file_that_is_not_read_is_named_and_not_passed_over(kquota: Kquota, tmp_path: Path) -> None:
    """On stderr, in every output, and by the exit code; `--fail-on` comes first."""
    (tmp_path / "broker-7" / "bad.parquet").write_bytes(b"PAR1")
    arguments = ("audit", "broker-7", "--quotas", "quotas.json")

    table, document, markdown = (kquota(*arguments, "-o", output) for output in ("table", "json", "markdown"))

    assert {table.code, document.code, markdown.code} == {ExitCode.PARTIAL}
    assert "warning: not read to its end: " in table.err
    assert "broker-7/bad.parquet: not a Parquet file" in table.err
    assert "; 1 file not read to the end (local engine)" in table.err
    data = json.loads(document.out)
    Draft202012Validator(schema("audit")).validate(data)
    (unread,) = data["data"]["unread_files"]
    assert (Path(unread["path"]).name, unread["reason"][:18]) == ("bad.parquet", "not a Parquet file")
    assert "Not read to the end: " in markdown.out
    assert kquota(*arguments, "--fail-on", "throttled").code == ExitCode.DIFFERENT


def test_a_file_that_is_given_twice_is_read_once(kquota: Kquota) -> None:
    """With a warning."""
    done = kquota("audit", "broker-7", "broker-7/kafka-request.log", "--quotas", "quotas.json")

    assert "broker-7/kafka-request.log: given more than once, and read once" in done.err
    assert "9 requests read" in done.err


@pytest.mark.parametrize(
    "arguments", ["audit pipe --quotas quotas.json", "simulate --events pipe --quotas quotas.json"], ids=str.split
)
def test_a_pipe_is_not_waited_for(kquota: Kquota, tmp_path: Path, arguments: str) -> None:
    os.mkfifo(tmp_path / "pipe")

    done = kquota(*arguments.split())

    assert done.code == ExitCode.INPUT
    assert "pipe: not a file or a folder" in done.complaint
