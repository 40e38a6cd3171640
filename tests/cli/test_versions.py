"""What brokers of an old version do, the same in every command that takes `--kafka-version`."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytest_mock import MockerFixture

from kquota import DEFAULT, Entity, QuotaKey, QuotaSnapshot
from kquota.cli.main import run
from kquota.core.change.broker import BrokerConfig, Source
from tests.backends.test_kafka_peers import Peer, of_2_6

START_MS = 1_773_219_600_000
"""2026-03-11 09:00:00 UTC."""

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Runs a command line in this process: its code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        return code, *capfd.readouterr()

    return call


def write(path: Path, *quotas: tuple[dict[str, Any], dict[str, float]]) -> None:
    entries = [{"entity": entity, "values": values} for entity, values in quotas]
    path.write_text(json.dumps({"kind": "kquota.quotas", "version": 1, "quotas": entries}))


@pytest.fixture
def files(tmp_path: Path) -> None:
    """A minute of requests without a client-id, far over a limit of 1000 B/s; the same as a workload."""
    write(tmp_path / "default.json", ({"client-id": {"default": True}}, {"producer_byte_rate": 1000}))
    write(tmp_path / "none.json")
    write(
        tmp_path / "new.json",
        ({"user": "alice"}, {"request_percentage": 1.0, "controller_mutation_rate": 1.0, "producer_byte_rate": 1000}),
        ({"ip": {"default": True}}, {"connection_creation_rate": 1}),
    )
    rows = (f"{START_MS + 1000 * number},1,alice,,produce,5000,50000000\n" for number in range(60))
    (tmp_path / "usage.csv").write_text("time_ms,broker,user,client_id,api,bytes,request_time_ns\n" + "".join(rows))
    (tmp_path / "server.properties").write_text("quota.producer.default=1000\n")
    client = {"user": "alice", "pace": 1, "request_time": "50ms"}
    clients = [
        {**client, "name": "p", "api": "produce", "size": 5000, "loop": "open"},
        {**client, "name": "t", "api": "create-topics", "topics": 10, "partitions": 100},
        {"name": "c", "api": "connect", "pace": 20},
    ]
    workload = {"kind": "kquota.workload", "version": 1, "duration": 60, "metrics_read": "never", "clients": clients}
    (tmp_path / "workload.json").write_text(json.dumps(workload))


def found(out: str, list_: str) -> set[tuple[str, bool]]:
    """The keys in a document of findings or counters, and whether something was throttled."""
    return {(each["key"], bool(each.get("throttled_requests") or each.get("throttled_events")))
            for each in json.loads(out)[list_]}  # fmt: skip


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    "quotas", [("--quotas", "default.json"), ("--quotas", "none.json", "--server-properties", "server.properties")]
)
@pytest.mark.parametrize(("version", "limited"), [("1.1", True), ("2.0", False), ("2.8", False)])
def test_the_empty_client_id_is_the_same_to_all(
    command: Command, quotas: tuple[str, ...], version: str, limited: bool
) -> None:
    """Before 2.0 it has the default, of the cluster or of the brokers' own file, and never since (KAFKA-13341)."""
    enforced = (*quotas, "--kafka-version", version)

    code, out, _ = command("resolve", "--user", "alice", "--client", "", "-o", "json", *enforced)
    assert (code, json.loads(out)["resolutions"][0]["limit"]) == (0, 1000 if limited else None)

    code, out, _ = command("audit", "usage.csv", "--engine", "local", "-o", "json", *enforced)
    assert (code, found(out, "findings")) == (0, {("producer_byte_rate", True)} if limited else set())

    code, out, _ = command("simulate", "workload.json", "-o", "json", *enforced)
    assert (code, found(out, "counters")) == (0, {("producer_byte_rate", True)} if limited else set())

    code, out, _ = command("plan", "none.json", "--prune", "--usage", "usage.csv", "-o", "json", *enforced)
    expected = {"no longer throttled"} if limited and "default.json" in quotas else set()
    comparison = json.loads(out).get("comparison") or {"clients": []}
    assert {each["outcome"] for each in comparison["clients"]} == expected


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("version", "enforced"),
    [
        ("0.10.0", set()),
        ("0.10.2", {"producer_byte_rate"}),
        ("2.6", {"producer_byte_rate", "request_percentage"}),
        ("2.7", {"producer_byte_rate", "request_percentage", "controller_mutation_rate"}),
        ("2.8", {"producer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"}),
    ],
)
def test_what_a_version_does_not_know_is_named_and_limits_nobody(
    command: Command, version: str, enforced: set[str]
) -> None:
    every = {key.value for key in QuotaKey} - {"consumer_byte_rate"}
    options = ("--quotas", "new.json", "--kafka-version", version)

    _, out, _ = command("resolve", "--user", "alice", "--client", "", "--ip", "10.0.0.1", "-o", "json", *options)
    resolutions = json.loads(out)["resolutions"]
    assert {each["key"] for each in resolutions if each["limit"] is not None} == enforced
    ignored = {each["key"]: each["not_enforced"] for each in resolutions if each["not_enforced"]}
    assert ignored.keys() == every - enforced
    assert all(each[0]["reason"].startswith(f"not enforced by Kafka {version}: ") for each in ignored.values())

    _, out, _ = command("resolve", "--user", "alice", "--client", "", "-o", "tree", *options)
    assert out.count("not enforced by Kafka") == len(every - enforced - {"connection_creation_rate"})

    _, out, err = command("simulate", "workload.json", "-o", "json", *options)
    assert {key for key, _ in found(out, "counters")} == enforced
    assert {key for key in every if f"warning: {key} of " in err} == every - enforced

    _, out, err = command("audit", "usage.csv", "--engine", "local", "-o", "json", *options)
    assert {key for key, throttled in found(out, "findings") if throttled} == enforced & {
        "producer_byte_rate",
        "request_percentage",
    }
    assert {key for key in every if f"warning: {key} of " in err} == every - enforced

    _, out, _ = command("lint", "new.json", "--kafka-version", version, "-o", "json")
    assert {each["key"] for each in json.loads(out)["findings"] if each["rule"] == "not-enforced"} == every - enforced


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(("version", "said"), [("0.10.2", 2), ("1.1", 3), ("2.4", 1), ("2.5", 0)])
def test_what_is_only_nearly_so_is_said(command: Command, version: str, said: int) -> None:
    """Responses that were held back, sums of delays, fetches without a bound."""
    for arguments in (("simulate", "workload.json"), ("audit", "usage.csv", "--engine", "local")):
        _, _, err = command(*arguments, "--quotas", "default.json", "--kafka-version", version)
        assert err.count(f"Kafka {version} is approximated: ") == said


def test_changes_of_a_workload_and_its_rates_are_as_old_as_its_brokers(command: Command, tmp_path: Path) -> None:
    workload = {
        "kind": "kquota.workload", "version": 1, "duration": 20, "quotas": [], "kafka_version": "2.6",
        "brokers": {"max.connection.creation.rate": 1},
        "changes": [{"at": 1, "entity": {"ip": "10.0.0.1"}, "values": {"connection_creation_rate": 1}}],
        "clients": [{"api": "connect", "ip": "10.0.0.1", "pace": 20}],
    }  # fmt: skip
    (tmp_path / "workload.json").write_text(json.dumps(workload))

    code, out, err = command("simulate", "workload.json", "--fail-on", "throttled")
    assert code == 0, out
    assert "connection_creation_rate of ip=10.0.0.1: not enforced by Kafka 2.6: since 2.8 (KIP-612)" in err
    assert "max.connection.creation.rate: not enforced by Kafka 2.6: since 2.7 (KIP-612)" in err
    assert command("simulate", "workload.json", "--fail-on", "throttled", "--kafka-version", "2.8")[0] == 1


def test_a_log_of_exempt_requests_is_no_empty_log(command: Command, tmp_path: Path) -> None:
    """Requests among brokers are counted, and nobody is throttled for them."""
    write(tmp_path / "q.json", ({"user": "alice"}, {"producer_byte_rate": 1000}))
    body = "RequestHeader(apiKey=STOP_REPLICA, apiVersion=1, clientId=0, correlationId=1) -- {},response:{error_code=0}"
    times = (
        "10.0.0.1:9092-10.0.0.2:5000-4;totalTime:4.0,requestQueueTime:0.1,localTime:0.75,remoteTime:1.0,throttleTime:0,"
        "responseQueueTime:0.5,sendTime:1.25,securityProtocol:PLAINTEXT,principal:User:ANONYMOUS,listener:PLAINTEXT"
    )
    (tmp_path / "kafka-request.log").write_text(
        f"[2026-11-21 12:00:00,500] DEBUG Completed request:{body} from connection {times} (kafka.request.logger)\n"
    )
    audit = ("audit", "kafka-request.log", "--quotas", "q.json", "--kafka-version", "2.5", "--engine", "local")

    for output in ("table", "json", "csv", "markdown"):
        code, out, _ = command(*audit, "-o", output)
        assert code == 0
        if output == "json":
            assert json.loads(out)["data"]["exempt"] == 1
    assert command(*audit, "--report", "r.html")[0] == 0
    assert (tmp_path / "r.html").exists()


@pytest.mark.usefixtures("files")
def test_quotas_out_of_a_pipe_are_read_once(command: Command, tmp_path: Path) -> None:
    """As `--quotas <(command)` has them."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write((tmp_path / "new.json").read_bytes())
    code, out, _ = command("audit", "usage.csv", "--quotas", f"/dev/fd/{reading}", "--engine", "local", "-o", "json")
    os.close(reading)
    assert (code, bool(found(out, "findings"))) == (0, True)


@pytest.mark.parametrize(("threads", "rules"), [(2, ["request-above-capacity"]), (8, [])])
def test_lint_asks_the_brokers_for_their_threads(
    command: Command, mocker: MockerFixture, threads: int, rules: list[str]
) -> None:
    backend = mocker.patch("kquota.cli.session.open_backend").return_value.__enter__.return_value
    backend.describe.return_value = QuotaSnapshot({Entity(user="alice"): {QuotaKey.REQUEST_PERCENTAGE: 500.0}})
    backend.release.return_value = (4, 4, 0)
    configs = mocker.patch("kquota.cli.session.open_broker_configs").return_value.__enter__.return_value
    configs.describe.return_value = {
        DEFAULT: (),
        1: tuple(
            BrokerConfig(name, threads, Source.STATIC_BROKER_CONFIG)
            for name in ("num.io.threads", "num.network.threads")
        ),
    }

    _, out, _ = command("lint", "--bootstrap-server", "localhost:9092", "-o", "json")
    assert [each["rule"] for each in json.loads(out)["findings"]] == rules
    assert configs.describe.call_count == 1
    _, out, _ = command(
        "lint", "--bootstrap-server", "localhost:9092", "--threads", "9", "--callback", "C", "-o", "json"
    )
    assert configs.describe.call_count == 1


@pytest.mark.parametrize("arguments", [("resolve", "--user", "alice"), ("lint",), ("simulate", "w.yaml")])
def test_a_live_clusters_release_is_the_default(command: Command, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "w.yaml").write_text(
        "kind: kquota.workload\nversion: 1\nduration: 1\nclients: [{name: a, api: produce, rate: 1MB, size: 1000}]\n"
    )
    with Peer(lambda request, header: of_2_6(request)) as peer:
        _, _, said = command(*arguments, "--bootstrap-server", peer.bootstrap)
        _, _, given = command(*arguments, "--bootstrap-server", peer.bootstrap, "--kafka-version", "3.9")
    assert "Kafka 2.6, by what the brokers serve" in said
    assert "by what the brokers serve" not in given
