"""`kquota sandbox` from start to stop."""

import json
import re
import shlex
from pathlib import Path
from urllib.request import urlopen

import click
import pytest

from kquota import sandbox
from kquota.cli.main import cli, run
from kquota.metrics.meters import requests_of
from kquota.sandbox import SandboxState
from tests.brokers.kafka import CONFIG_COMMAND, COORDINATES, NAME
from tests.brokers.maven import retrieve
from tests.brokers.nodes import SMALL
from tests.cli.conftest import Kquota, validated
from tests.support.processes import ran


def test_start_use_status_stop(kquota: Kquota, tmp_path: Path) -> None:
    """Stdout is the connect string; the data outlives a stop; a second start is refused and a second stop harmless."""
    kept = {"KQUOTA_SANDBOX": "here"}
    assert kquota("sandbox", "status", **kept).code == 4

    started = kquota("sandbox", "start", **kept)
    try:
        connect = started.out.strip()
        assert started.err == (
            f"its quotas: kquota describe --zookeeper {connect}\n"
            f"its end, which keeps its data: kquota sandbox stop --dir {tmp_path / 'here'}\n"
        )
        alter = ("alter", "--user", "alice", "--add-config", "producer_byte_rate=1MB", "--zookeeper", connect)
        assert kquota(*alter).code == 0
        status = kquota("sandbox", "status", "-o", "json", **kept)
        assert status.code == 0
        validated(status.out, "sandbox")
        assert json.loads(status.out)["connect"] == connect
        assert Path(json.loads(status.out)["log"]).is_file()
        assert json.loads(status.out)["log"] in kquota("sandbox", "status", **kept).first
        again = kquota("sandbox", "start", **kept)
        assert (again.code, again.out) == (0, f"{connect}\n")
        assert "runs already" in again.first
    finally:
        stopped = kquota("sandbox", "stop", **kept)
    assert (stopped.code, stopped.complaint) == (0, "stopped")
    assert kquota("sandbox", "stop", **kept).complaint == "not running"
    gone = kquota("sandbox", "status", "-o", "json", **kept)
    assert gone.code == 4
    validated(gone.out, "sandbox")

    restarted = kquota("sandbox", "start", **kept).out.strip()
    try:
        assert restarted == connect  # a context that names it holds
        assert "alice" in kquota("describe", "--zookeeper", restarted).out
    finally:
        kquota("sandbox", "stop", **kept)


def test_the_other_sandbox_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who started a broker and leaves out --broker is told."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("KQUOTA_SANDBOX", raising=False)
    running = SandboxState(1, 9092, "here", "token")
    monkeypatch.setattr(sandbox, "status", lambda folder: running if folder.name == "sandbox-broker" else None)
    assert (run(["sandbox", "status"]), run(["sandbox", "stop"])) == (4, 0)
    assert capsys.readouterr().err == 2 * "not running, but the broker is: with --broker\n"


def test_every_command_that_it_prints_is_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of a folder with a blank; each names the address that it needs, and which address is whose."""
    folder = tmp_path / "my sandbox"
    (folder / "clients").mkdir(parents=True)
    (folder / "clients" / "alice.properties").touch()
    running = SandboxState(1, 9092, str(folder), "token", "http://127.0.0.1:1/metrics", "127.0.0.1:9093")
    monkeypatch.setattr(sandbox, "status", lambda _: running)
    assert run(["sandbox", "status", "--dir", str(folder)]) == 0
    told = capsys.readouterr().err
    assert "every client of 127.0.0.1:9092 is ANONYMOUS; at 127.0.0.1:9093 log in alice:" in told
    lines = [shlex.split(line)[1:] for line in re.findall(r"(?<=[: ])kquota .*", told)]
    assert [line[0] for line in lines] == ["describe", "top", "record", "probe", "sandbox"]
    for line in lines:
        group: click.Command = cli
        while isinstance(group, click.Group):
            _, found, line = group.resolve_command(click.Context(group), line)
            assert found is not None
            group = found
        group.make_context("kquota", line)


def test_a_folder_that_holds_something_else_is_left_alone(kquota: Kquota) -> None:
    """One line, and nothing of it is touched."""
    done = kquota("sandbox", "start", "--dir", "/")

    assert done.code == 3
    assert done.complaint


def test_a_broker(kquota: Kquota, tmp_path: Path) -> None:
    """Of the Kafka that KAFKA_HOME names: quotas outlive a stop, and its page of metrics is one for top."""
    home = tmp_path / "kafka"
    home.mkdir()
    (home / "libs").symlink_to(retrieve(NAME, COORDINATES))
    sandbox = {"KQUOTA_SANDBOX": "here", "KAFKA_HOME": str(home), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    first = kquota("sandbox", "start", "--broker", **sandbox)
    connect = first.out.strip()
    try:
        there = {"KQUOTA_BOOTSTRAP_SERVER": connect}
        assert "its metrics: kquota top --metrics http" in first.err, "also where the address is captured"
        assert kquota("alter", "--user", "alice", "--add-config", "producer_byte_rate=1MB", **there).code == 0
        kquota("sandbox", "stop", "--broker", **sandbox)
        again = kquota("sandbox", "start", "--broker", "--user", "carol.1", "-o", "json", **sandbox)
        validated(again.out, "sandbox")
        assert json.loads(again.out)["connect"] == connect
        assert "alice" in kquota("describe", **there).out
        told = kquota("sandbox", "status", "--dir", json.loads(again.out)["directory"]).err
        assert "broker.log" in told, "which of the two it is shows the folder"
        log = json.loads(again.out)["request_log"]
        record = ("record", "--bootstrap-server", connect, "--log", log, "--size", "1GB")
        assert f"its requests: kquota {' '.join(record)}\n" in told
        assert kquota(*record, "--for", "90s", "--dry-run").code == 0
        other = kquota("sandbox", "start", KQUOTA_SANDBOX="here")
        assert (other.code, other.out) == (8, ""), "a broker's address is none for --zookeeper"
        top = kquota("top", "--once", "--metrics", json.loads(again.out)["metrics"], **there)
        assert (top.code, "1 page of metrics" in top.err) == (0, True)
        page = urlopen(json.loads(again.out)["metrics"]).read().decode()
        assert requests_of(page), "kquota record --metrics counts its requests"
        assert Path(json.loads(again.out)["request_log"]).is_file()

        login, users = json.loads(again.out)["login"], json.loads(again.out)["users"]
        assert [*users] == ["alice", "bob", "carol.1"]
        as_carol = ("--bootstrap-server", login, "--command-config", users["carol.1"])
        assert " ".join(as_carol) in again.err
        load = ("--topic", "load", "--create-topic", "--duration", "1s", "--yes")
        probe = kquota("probe", "produce", *load, "-o", "json", *as_carol)
        assert (probe.code, json.loads(probe.out)["client"]["user"]) == (0, "carol.1")
        java = [
            "java",
            *SMALL,
            "-cp",
            f"{home}/libs/*",
            CONFIG_COMMAND,
            *as_carol,
            "--describe",
            "--entity-type",
            "users",
        ]
        assert "alice" in ran(java).stdout, "Kafka's own client"
        assert kquota("sandbox", "start", "--broker", "--user", "dora", **sandbox).code == 8, "it has to start anew"
    finally:
        kquota("sandbox", "stop", "--broker", **sandbox)


def test_a_home_without_kafka(kquota: Kquota, tmp_path: Path) -> None:
    """One line says where the jars were looked for."""
    done = kquota("sandbox", "start", "--broker", KQUOTA_SANDBOX="here", KAFKA_HOME=str(tmp_path))
    assert done.code != 0
    assert "has no kafka_*.jar" in done.complaint
