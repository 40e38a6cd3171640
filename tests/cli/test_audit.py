"""`kquota audit` as a process: what goes wrong is one line, and nothing is written."""

import json
import re
import shutil
import signal
import socket
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from kquota.cli.exit_codes import ExitCode
from tests.audit.test_requests import whole_log
from tests.cli.conftest import Golden, Kquota, validated
from tests.support.data import data_rows
from tests.support.processes import started
from tests.support.waiting import interrupted, until

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
    (tmp_path / "quotas.json").write_text(QUOTAS)
    (tmp_path / "none.json").write_text('{"kind":"kquota.quotas","version":1,"quotas":[]}')
    (tmp_path / "bad.json").write_text(QUOTAS.replace("1000", "-1"))
    (tmp_path / "bad.properties").write_text("quota.window.num=0\n")
    (tmp_path / "empty.log").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "broker-7").mkdir()
    (tmp_path / "broker-7" / "kafka-request.log").write_text("".join(LINE % (n, n % 2) for n in range(9)) + "garbage\n")


@pytest.mark.parametrize(("arguments", "code", "says"), data_rows("refused/audit.txt"))
def test_what_goes_wrong_is_one_line(kquota: Kquota, tmp_path: Path, arguments: str, code: str, says: str) -> None:
    """The reason and the code of the table; nothing on stdout, no file left."""
    before = sorted(tmp_path.rglob("*"))

    done = kquota("audit", *arguments.split())

    assert (done.code, done.out) == (int(code), "")
    assert says in (done.err if code == "2" else done.complaint)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_stream_of_several_brokers_is_taken_apart(kquota: Kquota, tmp_path: Path) -> None:
    """By the command on the page that the refusal names."""
    lines = ((n % 3, (LINE % (n, n % 2)).replace("10.0.0.1:", f"10.0.0.{7 + n % 3}:")) for n in range(9))
    (tmp_path / "stream.log").write_text("".join(f"kafka-{broker} kafka {line}" for broker, line in lines))
    refused = kquota("audit", "stream.log", "--quotas", "quotas.json")
    assert (refused.code, "'kquota help request-log' has a command" in refused.complaint) == (3, True)
    (command,) = re.findall(r"^    (awk .*)", kquota("help", "request-log").out, re.MULTILINE)
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    done = kquota("audit", "logs", "--quotas", "quotas.json")
    assert "9 requests read" in done.err
    assert "kafka-0 and 2 more" in done.out


def test_a_row_is_of_all_brokers(kquota: Kquota, tmp_path: Path) -> None:
    """The worst one is named, and `-o wide` has a row for each."""
    logs = tmp_path / "logs"
    for broker, size in (("broker-7", "40105"), ("broker-8", "90105")):
        (logs / broker).mkdir(parents=True)
        lines = (
            "".join(LINE % (n, n % 2) for n in range(9))
            .replace("40105", size)
            .replace("10.0.0.1:", f"10.0.{size[0]}.1:")
        )
        (logs / broker / "kafka-request.log").write_text(lines)
    done = kquota("audit", "logs", "--quotas", "quotas.json")
    (row,) = [line for line in done.out.splitlines() if "user alice" in line]
    assert "broker-8 and 1 more" in row
    assert "of 18" in row
    assert "worst: user alice on broker-8, " in done.err
    wide = kquota("audit", "logs", "--quotas", "quotas.json", "-o", "wide").out.splitlines()
    assert [line.split("  ")[1].strip() for line in wide[1:]] == ["broker-8", "broker-7"]


def test_a_time_of_the_day_is_the_last_one(kquota: Kquota, tmp_path: Path) -> None:
    begin = datetime.now(UTC) - timedelta(hours=1)
    lines = "".join(LINE % (n, n % 2) for n in range(9)).replace("2026-03-11 09:00", f"{begin:%Y-%m-%d %H:%M}")
    (tmp_path / "broker-7" / "kafka-request.log").write_text(lines)
    done = kquota("audit", "broker-7", "--quotas", "quotas.json", "--since", f"{begin:%H:%M}:04")
    assert "4 records outside --since and --until" in done.err


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
    arguments = ["audit", "broker-7", "--quotas", "quotas.json", "--engine", "spark"]
    with started(arguments, tmp_path) as process:
        until(lambda: psutil.Process(process.pid).children(), "Spark does not start")
        # The pipes close when the last process that holds them is gone, the JVM included.
        out, err = interrupted(process, signal.SIGINT)

    # On a busy machine a line before it says how long Spark has been starting.
    assert (process.returncode, out, err.strip().splitlines()[-1]) == (130, "", "kquota: interrupted")


def test_sigterm_leaves_no_ledger_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here while a Prometheus does not answer."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with started(["audit", "--prometheus", url, "--quotas", "quotas.json", "--since", "1h"], tmp_path) as process:
            accepted, _ = silent.accept()
            assert [*tmp_path.glob("kquota-audit-*")]
            out, err = interrupted(process, signal.SIGTERM)
            accepted.close()  # at once, its error would clean up at the same time

    assert (process.returncode, out, err.strip().splitlines()[-1]) == (143, "", "kquota: interrupted")
    assert not [*tmp_path.glob("kquota-audit-*")]


def test_the_settings_of_a_broker(kquota: Kquota, tmp_path: Path) -> None:
    """Windows and static defaults come from its server.properties; an option on the command line wins."""
    (tmp_path / "server.properties").write_text(
        "quota.producer.default=1000\nquota.window.num=5\nquota.window.size.seconds=3\n"
    )
    options = ["--server-properties", "server.properties", "--kafka-version", "2.8", "--quota-window-size-seconds", "2"]
    done = kquota("audit", "broker-7", "--quotas", "none.json", *options, "-o", "json")

    assert done.code == 0
    report = json.loads(done.out)
    assert report["enforcement"] == {"generation": "n_by_start", "quota_window_num": 5, "quota_window_size_seconds": 2}
    entities = [(finding["sensor"], finding["entity"], finding["limit"]) for finding in report["findings"]]
    assert sorted(entities) == [(f":app-{n}", {"client-id": {"default": True}}, 1000) for n in (0, 1)]


@pytest.mark.parametrize("output", ["table", "csv"])
def test_garbage_is_quarantined_and_the_rest_is_audited(
    kquota: Kquota, tmp_path: Path, golden: Golden, output: str
) -> None:
    """One folder gives no broker a name; the bad line is kept with its reason; how to do so on Spark is said."""
    done = kquota("audit", "broker-7", "--quotas", "quotas.json", "-o", output)

    assert done.code == 0
    golden(f"audit.{output}", done.out)
    warning, *rest = done.err.splitlines()
    assert "1 record cannot be read, quarantined in " in warning
    golden(f"audit.{output}.stderr", "".join(f"{line}\n" for line in rest))
    kept = tmp_path / ".state" / "kquota" / "quarantine.jsonl"
    (reject,) = map(json.loads, kept.read_text().splitlines())
    assert kept.stat().st_mode & 0o777 == 0o600
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
    assert "; 1 file not read to the end (local engine" in table.err
    data = validated(document.out, "audit")
    (unread,) = data["data"]["unread_files"]
    assert (Path(unread["path"]).name, unread["reason"][:18]) == ("bad.parquet", "not a Parquet file")
    assert "\nWarning: not read to its end: " in markdown.out
    assert kquota(*arguments, "--fail-on", "throttled").code == ExitCode.DIFFERENT


def test_what_fail_on_found_is_said(kquota: Kquota) -> None:
    done = kquota("audit", "broker-7", "--quotas", "quotas.json", "--fail-on", "throttled", "--fail-on", "undetermined")
    assert done.code == ExitCode.DIFFERENT
    assert "exit code 1, as --fail-on asks: throttled\n" in done.err
    assert "Did you mean '--only'?" in kquota("recommend", "broker-7", "--user", "alice").err


def test_a_folder_may_hold_what_kquota_wrote(kquota: Kquota, tmp_path: Path) -> None:
    """Quotas beside the log, and records that an audit before could not read, are no usage; the warning names files."""
    told = ("--quotas", "quotas.json", "-o", "json")
    alone = kquota("audit", "broker-7", *told)
    shutil.copy(tmp_path / "quotas.json", tmp_path / "broker-7")
    (tmp_path / "broker-7" / "later.yaml").write_text("# Soon\nkind: kquota.quotas\nversion: 1\nquotas: []\n")
    shutil.move(tmp_path / ".state" / "kquota" / "quarantine.jsonl", tmp_path / "broker-7")
    done = kquota("audit", "broker-7", *told)
    followed = kquota("follow", "broker-7", *told, "--until-idle", "1s")

    documents = [{**json.loads(ran.out), "warnings": None} for ran in (alone, done, followed)]
    assert documents[0] == documents[1] == documents[2]
    assert "quotas.json: left out: a document kquota.quotas" in done.err
    assert "later.yaml: left out: a document kquota.quotas" in done.err
    assert "quarantine.jsonl: left out: records that could not be read before" in done.err
    assert "broker-7/kafka-request.log)" in alone.err
    only = kquota("audit", "quotas.json", "--quotas", "quotas.json")
    assert (only.code, "a document kquota.quotas" in only.err) == (3, True)


@pytest.mark.parametrize("quotas", ["", "--quotas none.json"])
def test_without_quotas_the_log_itself_answers(kquota: Kquota, tmp_path: Path, quotas: str) -> None:
    """Who was throttled, when, which share and how long; that the quota is not known, and what to give."""
    calm = LINE.replace('"throttleTimeMs":398', '"throttleTimeMs":0').replace("User:alice", "User:bob") % (9, 7)
    with (tmp_path / "broker-7" / "kafka-request.log").open("a") as log:
        other = calm.replace('"correlationId":1', '"correlationId":2')
        log.write(calm + other.replace("User:bob", "User:alice").replace("app-7", "app-1"))

    table, comma, document, comment = (
        kquota("audit", "broker-7", *quotas.split(), "-o", output) for output in ("table", "csv", "json", "markdown")
    )

    assert {table.code, comma.code, document.code, comment.code} == {0}
    assert [line.split() for line in table.out.splitlines()] == [
        ["USER", "CLIENT-ID", "REQUESTS", "DELAYED", "LONGEST", "WHEN", "(UTC)"],
        [
            *("alice", "app-0", "produce", "100", "%", "of", "5", "398", "ms"),
            "2026-03-11",
            "09:00:00",
            "to",
            "09:00:08",
        ],
        [*("alice", "app-1", "produce", "80", "%", "of", "5", "398", "ms"), "2026-03-11", "09:00:01", "to", "09:00:07"],
    ]
    assert (
        "in the log itself, the brokers throttled 2 clients: user alice with client-id app-0 up to 398 ms,"
        " user alice with client-id app-1 up to 398 ms (of 3 clients)"
    ) in table.err
    assert ("no quotas are set in none.json" if quotas else "--quotas FILE, --bootstrap-server") in table.err
    assert [line.split(",")[1:6] for line in comma.out.splitlines()[1:]] == [
        ["alice", "app-0", "produce", "5", "5"],
        ["alice", "app-1", "produce", "5", "4"],
        ["bob", "app-7", "produce", "1", "0"],
    ]
    data = validated(document.out, "audit")
    assert (data["findings"], data["quotas"], data["recorded_under"]["throttled"]) == ([], [], True)
    assert [each["throttled_share"] for each in data["logged"]] == [1, 0.8, 0]
    assert "| `alice` | `app-1` | produce | 80 % of 5 | 398 ms |" in comment.out
    assert "bob" in kquota("audit", "broker-7", *quotas.split(), "--all").out


def test_usage_without_throttle_times_is_no_calm_log(kquota: Kquota, tmp_path: Path) -> None:
    """What nobody recorded is not known; samples need quotas."""
    (tmp_path / "usage.csv").write_text("time_ms,user,client_id,api,bytes\n1773219600000,alice,app,produce,10\n")

    done = kquota("audit", "usage.csv")

    assert (done.code, done.out) == (0, "")
    assert "does not record what brokers answered: who was throttled is not known" in done.err


def test_a_throttled_log_is_never_called_calm(kquota: Kquota, tmp_path: Path) -> None:
    """The first line begins with what the log says, where no quota is proved to throttle; the quotas are named."""
    (tmp_path / "time.json").write_text(QUOTAS.replace('"producer_byte_rate":1000', '"request_percentage":50'))
    (tmp_path / "others.json").write_text(QUOTAS.replace("alice", "bob"))

    blind, apart = (kquota("audit", "broker-7", "--quotas", name) for name in ("time.json", "others.json"))

    logged = "in the log itself, the brokers throttled 2 clients: user alice with client-id app-0 up to 398 ms"
    for done in (blind, apart):
        (first,) = (line for line in done.err.splitlines() if line.startswith("in the log itself"))
        assert first.startswith(logged)
    assert "under these quotas: none of 1 counter for certain, 1 undetermined" in blind.err
    assert "quotas: time.json (1 set)" in blind.err
    assert "under these quotas: no client has a limit (1 quota set: 1 nobody seen)" in apart.err
    comment = kquota("audit", "broker-7", "--quotas", "time.json", "-o", "markdown").out
    assert comment.startswith("**In the log itself, the brokers throttled 2 clients: ")


def test_the_live_quotas_are_named_in_a_pipe(kquota: Kquota, chroot: str) -> None:
    """KQUOTA_ZOOKEEPER may be of another cluster than the log."""
    assert kquota("apply", "quotas.json", "--zookeeper", chroot, "--yes").code == 0
    for output in ("table", "json"):
        done = kquota("audit", "broker-7", "-o", output, KQUOTA_ZOOKEEPER=chroot)
        assert f"quotas: live, zookeeper://{chroot} (1 set)" in done.err


def test_a_throttled_client_without_a_quota_is_named(kquota: Kquota, tmp_path: Path) -> None:
    """Beside throttled counters, too; and a limit that changed says so."""
    with (tmp_path / "broker-7" / "kafka-request.log").open("a") as log:
        log.write((LINE % (9, 7)).replace("User:alice", "User:bob"))
    low = json.loads(QUOTAS)["quotas"]
    high = json.loads(QUOTAS.replace("1000", "2000"))["quotas"]
    periods = [{"quotas": high}, {"from": "2026-03-11T09:00:04Z", "quotas": low}]
    history = {"kind": "kquota.quota-history", "version": 1, "periods": periods}
    (tmp_path / "history.json").write_text(json.dumps(history))

    done = kquota("audit", "broker-7", "--quotas", "history.json")

    assert "none of these quotas governs: 1 client: user bob with client-id app-7 up to 398 ms" in done.err
    assert "1 kB/s changed 1 time" in " ".join(done.out.split())
    assert "producer_byte_rate of user=alice" in done.out


def test_undetermined_limits_do_not_bury_the_others(kquota: Kquota, tmp_path: Path) -> None:
    """Those without a throttled request are one line; --all shows them."""
    with (tmp_path / "broker-7" / "kafka-request.log").open("a") as log:
        log.write(
            (LINE % (9, 7)).replace("User:alice", "User:bob").replace('"throttleTimeMs":398', '"throttleTimeMs":0')
        )
    text = QUOTAS.replace('{"user":"alice"}', '{"user":{"default":true}}').replace(
        "producer_byte_rate", "request_percentage"
    )
    (tmp_path / "time.json").write_text(text.replace("1000", "0.01"))

    done, every = (kquota("audit", "broker-7", "--quotas", "time.json", *more) for more in ((), ("--all",)))

    assert "1 undetermined limit without a throttled request in the log: user bob request_percentage" in done.err
    assert ("user alice" in done.out, "user bob" in done.out, "user bob" in every.out) == (True, False, True)


def test_a_table_for_people_has_the_worst_counters(kquota: Kquota, tmp_path: Path) -> None:
    """The others are counted; where the rows are sorted, nothing is left out before."""
    # Without connections, nobody's clients are played: that would take its time.
    rows = [f"{1_773_219_600_000 + number},user-{number},app,produce,90000" for number in range(502)]
    (tmp_path / "busy.csv").write_text("\n".join(["time_ms,user,client_id,api,bytes", *rows]))
    (tmp_path / "quotas.json").write_text(QUOTAS.replace('"alice"', '{"default":true}'))
    ways: tuple[tuple[str, ...], ...] = ((), ("--all",), ("--sort-by", "WHO"))

    few, *every = (kquota("audit", "busy.csv", "--quotas", "quotas.json", *more) for more in ways)

    assert "502 of 502 counters throttled somebody" in few.err
    assert "left out, with less harm: 2 counters (--all shows all, -o csv too)" in few.err
    assert [done.out.count("user-") for done in (few, *every)] == [500, 502, 502]


def test_json_goes_to_a_file_too(kquota: Kquota, tmp_path: Path) -> None:
    """spark-submit sends the driver's stderr to stdout, so that warnings stand before the JSON there."""
    arguments = ("audit", "broker-7", "--quotas", "quotas.json")
    printed = kquota(*arguments, "-o", "json")
    done = kquota(*arguments, "--out-json", "out.json")

    assert done.code == printed.code
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads(printed.out)


def test_nobody_was_throttled_as_far_as_the_log_shows(kquota: Kquota, tmp_path: Path) -> None:
    """Without quotas too, it is said that requests are missing, and no program takes the log for all."""
    lines = [line for place, line in enumerate(whole_log()) if place % 60 < 30]
    (tmp_path / "a.log").write_text("".join(f"{line}\n" for line in lines))

    done = kquota("audit", "a.log", "-o", "json")

    assert json.loads(done.out)["recorded_under"]["throttled"] is None
    assert "was delayed; about 90 of 210 requests are not in the log" in kquota("audit", "a.log").err


@pytest.mark.parametrize("ms", ["", ",113"])
def test_times_without_ms_are_said(kquota: Kquota, tmp_path: Path, ms: str) -> None:
    """Rates come from the times: in whole seconds a burst is earlier, or later, by up to one."""
    lines = [LINE.replace(",113", ms).replace('"correlationId":1', f'"correlationId":{each}') for each in range(30)]
    (tmp_path / "a.log").write_text("".join(line % (number % 10, 1) for number, line in enumerate(lines)))

    done = kquota("audit", "a.log", "--quotas", "quotas.json")

    shown = kquota("audit", "a.log", "--quotas", "quotas.json", "--report", "report.html", "-o", "markdown").out
    for text in (done.err, shown, (tmp_path / "report.html").read_text()):
        assert ("times of the log are whole seconds" in text) is (ms == "")
