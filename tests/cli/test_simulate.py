"""`kquota simulate` as a process."""

import contextlib
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from kquota import DEFAULT, Entity, QuotaKey, simulations
from kquota.cli.exit_codes import ExitCode
from kquota.documents.encoding import schema
from tests.cli.conftest import Golden, Kquota
from tests.support.data import DATA, data_rows, data_text
from tests.support.enforcement import (
    ClientQuotaManager,
    FetchSensor,
    ProduceSensor,
    RequestSensor,
    fetch_with_request,
    produce_with_request,
)

GOLDEN = Path(__file__).parent / "golden" / "simulate"
"""The answer to both, in each format: `test_every_format` says that it is."""


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """By day command lines share this process, and its machine code; `test_kernel.py` compares both kernels."""
    monkeypatch.setattr(simulations, "EVENT_S", 1e6)


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    shutil.copytree(DATA / "simulate", tmp_path, dirs_exist_ok=True)
    own = data_text("simulate/quotas.yaml").split("version: 1\n")[1]
    (tmp_path / "own.yaml").write_text(data_text("simulate/workload.yaml") + own)


@pytest.mark.parametrize("output", ["table", "json", "csv"])
def test_every_format(kquota: Kquota, golden: Golden, output: str) -> None:
    """The whole answer, in each format; what is left to say goes to stderr."""
    done = kquota("simulate", "workload.yaml", "--quotas", "quotas.yaml", "-o", output)

    assert done.code == 0
    golden(f"simulate.{output}", done.out)
    assert "no request_time" in done.err


def test_json_is_as_the_schema_says() -> None:
    """And the metrics carry Kafka's own names."""
    document = json.loads(GOLDEN.with_suffix(".json").read_text())

    jsonschema.validate(document, schema("simulation"))
    metrics = {counter["metrics"]["mbean"]: sorted(counter["metrics"]) for counter in document["counters"]}
    assert metrics["kafka.server:type=Produce,user=alice"] == ["byte-rate", "mbean", "throttle-time"]
    assert metrics["kafka.server:type=Request,user=carol"] == ["mbean", "request-time", "throttle-time"]
    assert metrics["kafka.server:type=ControllerMutation,user=admin"] == [
        *("mbean", "mutation-rate", "throttle-time", "tokens")
    ]
    assert metrics["kafka.server:type=socket-server-metrics,ip=10.0.0.1"] == ["connection-accept-rate", "mbean"]
    listener = document["acceptors"][0]["metrics"]
    assert listener["mbean"] == "kafka.server:type=socket-server-metrics,listener=PLAINTEXT"
    assert listener["ip-connection-accept-throttle-time"] > 0
    assert document["acceptors"][0]["broker_metrics"]["mbean"] == "kafka.server:type=socket-server-metrics"
    assert document["acceptors"][0]["acceptor_metrics"] == {
        "mbean": "kafka.network:type=Acceptor,name=AcceptorBlockedPercent,listener=PLAINTEXT",
        "AcceptorBlockedPercent": 0.0,
    }


def test_a_workload_brings_its_own_quotas(kquota: Kquota) -> None:
    """The same answer as with a file of quotas; an option goes first, the environment does not."""
    own = kquota("simulate", "own.yaml", "-o", "csv", KQUOTA_ZOOKEEPER="127.0.0.1:1")

    assert own.out == GOLDEN.with_suffix(".csv").read_text()


@pytest.mark.parametrize(
    ("client", "most", "left", "fields"),
    [
        ("api: produce, rate: 30MB", "16.4 MB/s", "68.1 MB", "more connections or size, less latency"),
        (
            "api: produce, rate: 1MB, size: 10kB, in_flight: 1, round_trip: 39ms",
            "250 kB/s",
            "3.75 MB",
            "more connections or size or in_flight, less latency or round_trip or think",
        ),
        (
            "api: fetch, rate: 300MB, max_bytes: 100kB",
            "50 MB/s",
            "1.25 GB",
            "more connections or max_bytes, less latency or round_trip or think",
        ),
    ],
)
def test_what_a_client_cannot_do_is_not_the_quotas_doing(
    kquota: Kquota, tmp_path: Path, client: str, most: str, left: str, fields: str
) -> None:
    """Gigabytes waited under a quota that throttled nobody, or less than the client's own loop, without a word."""
    workload = f"kind: kquota.workload\nversion: 1\nduration: 5s\nclients: [{{name: c, user: alice, {client}}}]\n"
    for limit in ("200MB", "1kB"):
        (tmp_path / "w.yaml").write_text(
            f"{workload}quotas: [{{entity: {{user: alice}}, values: {{producer_byte_rate: {limit}}}}}]\n"
        )
        done = kquota("simulate", "w.yaml")
        says = f"'c' does {most} at most, whatever the quotas: of what waits, {left} would wait without any"
        assert f"warning: {says} (to raise it: {fields})\n" in done.err
    assert "at most, whatever" not in kquota("simulate", "workload.yaml", "--quotas", "quotas.yaml").err


@pytest.mark.parametrize("options", [("--kafka-version", "3.7"), ()], ids=["3.7", "default"])
def test_exempt_thread_time_is_measured_and_charged_to_nobody(kquota: Kquota, options: tuple[str, ...]) -> None:
    """The time of requests among brokers and of acks=0, as `exempt-request-time` of the broker has it."""
    done = kquota("simulate", "exempt.yaml", "-o", "json", "--fail-on", "throttled", *options)

    assert (done.code, done.err) == (0, "")
    document = json.loads(done.out)
    jsonschema.validate(document, schema("simulation"))
    # 600 requests of 1 ms and 600 of 10 ms in 60 s are 11 % of a thread.
    assert document["exempt"] == [
        {
            "broker": "broker-0",
            "request_time_ns": 600 * 1_000_000 + 600 * 10_000_000,
            "metrics": {"mbean": "kafka.server:type=Request", "exempt-request-time": 11.0},
        }
    ]
    assert [client["throttled_requests"] for client in document["clients"]] == [0, 0, 0, 0]
    (counter,) = document["counters"]
    assert counter["key"] == "request_percentage"
    assert counter["total"] == pytest.approx(600 * 0.000_001)  # seconds, of the heartbeats alone


def test_a_size_that_is_not_given_is_said(kquota: Kquota, tmp_path: Path) -> None:
    clients = "".join(
        f"  - {{name: {name}, user: alice, api: produce, pace: 1{size}}}\n" for name, size in SIZES.items()
    )
    quotas = "quotas:\n  - {entity: {user: alice}, values: {producer_byte_rate: 1MB}}\n"
    (tmp_path / "w.yaml").write_text(f"kind: kquota.workload\nversion: 1\nduration: 10s\n{quotas}clients:\n{clients}")
    assert kquota("simulate", "w.yaml").err.startswith(
        "requests of 16384 bytes ('size' in the workload changes it): 'a'\n"
    )


SIZES = {"a": "", "b": ", size: 1000"}


@pytest.mark.parametrize(("arguments", "code", "says"), data_rows("refused/simulate.txt"))
def test_what_goes_wrong_is_one_line(kquota: Kquota, arguments: str, code: str, says: str) -> None:
    """The reason and the code of the table; nothing on stdout."""
    done = kquota("simulate", *arguments.split())

    assert (done.code, done.out) == (int(code), "")
    assert says in done.err.splitlines()[-1]


def test_interrupted(tmp_path: Path) -> None:
    """Ctrl-C in the middle of a long run, on a terminal with a progress bar: code 130 and one line."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "kquota", "simulate", "long.yaml", "--quotas", "quotas.yaml", "-o", "csv"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "TERM": "xterm", "COLUMNS": "80"}
    shown = b""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, cwd=tmp_path, env=environment) as process:
        os.close(theirs)
        while not re.search(rb"simulating.* [1-9]\d?%", shown):  # far enough to be in the middle
            shown += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # the other end of a terminal is gone
            while part := os.read(ours, 65536):
                shown += part
        assert process.wait(300) == 130
        assert process.stdout is not None
        assert process.stdout.read() == b""
    os.close(ours)

    assert b"kquota: interrupted" in shown
    assert b"Traceback" not in shown


def test_recorded_requests_are_replayed(kquota: Kquota, tmp_path: Path) -> None:
    """Each request meets the managers in the order of the export, at the same ms too."""
    produce = ClientQuotaManager(QuotaKey.PRODUCER_BYTE_RATE, ProduceSensor, {Entity(user="alice"): 1_000_000})
    fetch = ClientQuotaManager(QuotaKey.CONSUMER_BYTE_RATE, FetchSensor, {Entity(user=DEFAULT): 500_000})
    request = ClientQuotaManager(QuotaKey.REQUEST_PERCENTAGE, RequestSensor, {Entity(user=DEFAULT): 5.0})
    lines = ["time_ms,broker,user,client_id,api,bytes,request_time_ns"]
    expected: dict[str, int] = {}
    for number in range(4000):
        now = 1_700_000_000_000 + number // 3 * 50
        user, api = ("alice", "bob")[number % 2], ("produce", "fetch", "fetch")[number % 3]
        size, nanos = 60_000 + number, 1_700_000 + 100 * number
        lines.append(f"{now},b1,{user},app,{api},{size},{nanos}")
        requests = request.charge(user, "app")
        bandwidth = (produce if api == "produce" else fetch).charge(user, "app")
        assert requests is not None
        assert bandwidth is not None
        if isinstance(bandwidth.sensor, ProduceSensor):
            throttle = produce_with_request(bandwidth.sensor, requests.sensor, now, size, nanos, -1)
        else:
            throttle = fetch_with_request(bandwidth.sensor, requests.sensor, now, size, nanos)
        client = f"{user}:app ({api}, b1)"
        expected[client] = expected.get(client, 0) + max(throttle.throttle_ms, 0)
    (tmp_path / "usage.csv").write_text("\n".join(lines) + "\n")

    done = kquota("simulate", "--events", "usage.csv", "--quotas", "quotas.yaml", "-o", "json")

    document = json.loads(done.out)
    jsonschema.validate(document, schema("simulation"))
    assert {client["name"]: client["throttle_time_ms"] for client in document["clients"]} == expected
    assert sum(expected.values()) > 0


@pytest.mark.parametrize(
    ("options", "charged"),
    [((), "epochs:"), (("--kafka-version", "2.0"), "replicas:")],
    ids=["default", "2.0"],
)
def test_the_version_says_which_recorded_requests_are_exempt(
    kquota: Kquota, tmp_path: Path, options: tuple[str, ...], charged: str
) -> None:
    """OFFSET_FOR_LEADER_EPOCH is exempt until 2.1, ALTER_PARTITION since 3.2."""
    rows = "".join(
        f"{1_700_000_000_000 + 100 * number},{user},{api},0,90000000\n"
        for number in range(300)
        for user, api in (("epochs", "offset_for_leader_epoch"), ("replicas", "alter_partition"))
    )
    (tmp_path / "usage.csv").write_text("time_ms,user,api,bytes,request_time_ns\n" + rows)
    done = kquota("simulate", "--events", "usage.csv", "--quotas", "thread_time.yaml", "-o", "json", *options)

    (client,) = json.loads(done.out)["clients"]
    assert (done.code, client["name"], client["throttled_requests"] > 0) == (0, charged, True)


def test_a_consumer_takes_a_mib_a_partition(kquota: Kquota) -> None:
    """A real consumer of one partition on Kafka 4.4.0 got 2.57 MB/s, and waited for 2.0 s at the longest."""

    (client,) = json.loads(kquota("simulate", "partition.yaml", "-o", "json").out)["clients"]

    assert 2_500_000 < client["delivered_rate"] < 3_300_000
    assert client["throttle_time_max_ms"] <= 2000


def test_a_job_says_when_it_was_done(kquota: Kquota, tmp_path: Path) -> None:
    """5 GB at 10 MB/s: the time, and the share of that time for which it waited, whatever the simulation's length."""

    def simulated(minutes: int, *options: str) -> str:
        (tmp_path / "w.yaml").write_text(
            f"kind: kquota.workload\nversion: 1\nduration: {minutes}min\n"
            "quotas: [{entity: {user: bob}, values: {producer_byte_rate: 10MB}}]\n"
            "clients: [{name: load, user: bob, api: produce, size: 100kB, requests: 50000}]\n"
        )
        return kquota("simulate", "w.yaml", *options).out

    short, long = (simulated(minutes).splitlines()[1] for minutes in (10, 30))
    assert short == long
    assert re.match(r"load produce +5 GB +5 GB 100 %, done at 8:20 .* 90 %  mean", short)
    assert "60 %, not done" in simulated(5)
    heading, row = (line.split(",") for line in simulated(10, "-o", "csv").splitlines())
    assert int(dict(zip(heading, row, strict=True))["delivered_until_ms"]) // 1000 == 500


def test_topics_and_connections_are_replayed_as_the_audit_does(kquota: Kquota, tmp_path: Path) -> None:
    """Each kind of quota meets what the audit says of the same table."""
    (tmp_path / "usage.csv").write_text(
        "time_ms,user,api,bytes,partitions,ip\n"
        + "".join(
            f"{1_700_000_000_000 + 100 * number},alice,create_topics,,7,\n"
            f"{1_700_000_000_000 + 100 * number},,connect,,,10.0.0.7\n"
            f"{1_700_000_000_000 + 100 * number},alice,produce,300000,,\n"
            for number in range(100)
        )
    )

    simulated = kquota("simulate", "--events", "usage.csv", "--quotas", "kinds.yaml", "-o", "json")
    audited = kquota("audit", "usage.csv", "--quotas", "kinds.yaml", "--fail-on", "throttled", "-o", "json")

    document, findings = json.loads(simulated.out), json.loads(audited.out)["findings"]
    names = ("key", "throttle_time_ms", "throttle_time_max_ms")
    met = {tuple(counter[name] for name in names) for counter in document["counters"]}
    assert met == {tuple(finding[name] for name in names) for finding in findings}
    assert (len(met), audited.code) == (3, ExitCode.DIFFERENT)
    clients = {client["name"] for client in document["clients"]}
    assert clients == {"alice: (produce)", "alice: (other)", "alice: (create-topics)", "10.0.0.7"}
    told = kquota("simulate", "--events", "usage.csv", "--quotas", "kinds.yaml", "--fail-on", "throttled")
    assert told.code == ExitCode.DIFFERENT
    assert "3 of 3 counters throttled somebody; worst: user alice, 19.1 s at the longest; 300 requests" in told.err


def test_a_quota_whose_usage_a_recording_does_not_show_is_undetermined(kquota: Kquota, tmp_path: Path) -> None:
    (tmp_path / "usage.csv").write_text("time_ms,user,api,bytes\n1700000000000,alice,create_topics,0\n")

    done = kquota("simulate", "--events", "usage.csv", "--quotas", "mutations.yaml", "--fail-on", "undetermined")

    assert done.code == ExitCode.DIFFERENT
    assert "controller_mutation_rate is undetermined: the table has no partitions column" in done.err


def test_a_request_log_is_replayed(kquota: Kquota) -> None:
    """The recorded log of a real broker: the totals of the broker's own throttle times within 1 %."""
    folder = Path(__file__).parents[1] / "data" / "request_log"
    arguments = ("--events", str(folder / "kafka-request.log.gz"), "--quotas", str(folder / "quotas.json"))

    done = kquota("simulate", *arguments, "-o", "json")

    totals = {counter["sensor"]: counter["throttle_time_ms"] for counter in json.loads(done.out)["counters"]}
    assert totals["alice:"] == pytest.approx(501_566, rel=0.01)
    assert totals[":web-edge"] == pytest.approx(184_620, rel=0.01)
    assert totals["bob:etl"] == pytest.approx(139_391, rel=0.01)
    assert "requests of unknown size, left out: 1455" in done.err
    assert "the usage lacks thread time (a request log that of network threads)" in done.err


def test_a_coarse_export_gives_ranges(kquota: Kquota, tmp_path: Path) -> None:
    """Bins of 10 s at 0.9 of the limit: lumps are throttled, an even flow is not, and nobody knows."""
    lines = [f"{1_700_000_000_000 + 10_000 * number},b1,alice,app,produce,9000000" for number in range(30)]
    (tmp_path / "usage.csv").write_text("\n".join(["time_ms,broker,user,client_id,api,bytes", *lines]) + "\n")

    done = kquota("simulate", "--events", "usage.csv", "--quotas", "quotas.yaml", "-o", "json")

    (client,) = json.loads(done.out)["clients"]
    assert client["throttle_time_range_ms"][0] == 0
    assert client["throttle_time_range_ms"][1] == client["throttle_time_ms"] > 0
    assert "in bins of 10 s: results are ranges" in done.err
    assert "thread time" in done.err  # its quotas have a request_percentage
    assert "thread time" not in kquota("simulate", "--events", "usage.csv", "--quotas", "bytes.yaml").err


def test_clients_arrive_at_the_listeners_of_the_brokers_own_configuration(kquota: Kquota) -> None:
    """And limits of brokers alone need no quotas."""
    done = kquota("simulate", "listener.yaml", "--server-properties", "listeners.properties", "-o", "json")

    assert (done.code, done.err) == (0, "")
    (acceptor,) = json.loads(done.out)["acceptors"]
    assert (acceptor["listener"], acceptor["waited"] > 0) == ("EXT", True)
    assert 50 < acceptor["acceptor_metrics"]["AcceptorBlockedPercent"] <= 100
    assert acceptor["metrics"]["connection-accept-rate"] == pytest.approx(5, abs=1)
    assert acceptor["broker_metrics"]["broker-connection-accept-rate"] == acceptor["metrics"]["connection-accept-rate"]
    mean = acceptor["wait_ms"] / acceptor["waited"]
    assert 0 < acceptor["metrics"]["connection-accept-throttle-time"] == mean <= acceptor["wait_max_ms"]
    assert acceptor["metrics"]["ip-connection-accept-throttle-time"] is None
    refused = kquota("simulate", "listener.yaml", "--quotas", "quotas.yaml")
    assert (refused.code, "there is no listener 'EXT'" in refused.complaint) == (3, True)


def test_a_brokers_own_configuration_counts(kquota: Kquota) -> None:
    """Its static defaults, for the versions that had them, its windows, and its limits of connections."""

    def run(*options: str) -> tuple[int, int]:
        """(throttled produce requests, ms that connections waited to be accepted)"""
        done = kquota("simulate", "brokers.yaml", "--quotas", "none.yaml", "-o", "json", *options)
        assert done.code == 0, done.err
        document = json.loads(done.out)
        jsonschema.validate(document, schema("simulation"))
        producer = next(client for client in document["clients"] if client["name"] == "p")
        return producer["throttled_requests"], sum(acceptor["wait_ms"] for acceptor in document["acceptors"])

    assert run() == (0, 0)
    throttled, waited = run("--server-properties", "server.properties", "--kafka-version", "2.8")
    assert throttled > 0
    assert waited > 0
    assert run("--server-properties", "server.properties", "--kafka-version", "4.0")[0] == 0
    wide, _ = run("--server-properties", "server.properties", "--kafka-version", "2.8", "--quota-window-num", "30")
    assert 0 < wide != throttled
