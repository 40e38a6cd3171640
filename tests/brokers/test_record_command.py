"""`kquota record` on a real broker with the appender that kquota prints: what it switches, counts and gives back."""

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kquota.backends.kafka.brokers import KafkaLoggers
from kquota.cli.commands.record import appender_text
from kquota.core.change.recording import LOGGER, Level
from tests.brokers.kafka import KafkaBroker
from tests.cli.conftest import Kquota, Ran, kquota, validated  # noqa: F401 - a fixture
from tests.support.processes import started
from tests.support.waiting import PATIENCE_S, interrupted, until


@pytest.fixture(scope="module")
def broker(configured: KafkaBroker) -> KafkaBroker:
    """A broker whose request log is configured as `kquota record --appender log4j2` says."""
    return configured


@pytest.fixture
def loggers(broker: KafkaBroker) -> Iterator[KafkaLoggers]:
    """The broker's loggers, as they are without kquota afterwards."""
    with KafkaLoggers(broker.bootstrap) as opened:
        yield opened
        opened.set_level(1, "WARN")


@pytest.fixture
def run(kquota: Kquota, broker: KafkaBroker, tmp_path: Path) -> Callable[..., Ran]:  # noqa: F811
    def on_broker(*arguments: str) -> Ran:
        where = {} if "--bootstrap-controller" in arguments else {"KQUOTA_BOOTSTRAP_SERVER": broker.bootstrap}
        return kquota(*arguments, KQUOTA_JOURNAL=str(tmp_path / "journal"), **where)

    return on_broker


def document(ran: Ran) -> dict[str, Any]:
    return validated(ran.out, "record")


def test_it_counts_what_it_recorded_and_sets_the_old_level_again(
    run: Callable[..., Ran], broker: KafkaBroker, loggers: KafkaLoggers
) -> None:
    before = broker.request_log.stat().st_size
    ran = run("record", "--for", "1s", "--yes", "--log", str(broker.request_log), "-o", "json")
    assert ran.code == 0, ran.err
    found = document(ran)
    assert (found["recorded"]["ended_by"], found["recorded"]["exact"]) == ("time", True)
    assert [(each["before"], each["outcome"], each["now"]) for each in found["nodes"]] == [
        ("WARN", "switched back", "WARN")
    ]
    grown = broker.request_log.stat().st_size - before
    assert 0 < found["recorded"]["bytes"] <= grown
    (space,) = found["log_dirs"]
    assert 0 < space["usable_bytes"] < space["total_bytes"]
    assert "principal, client-id, address and topics" in ran.err
    assert "switched back" in run("history").out
    size = broker.request_log.stat().st_size
    run("describe")
    assert broker.request_log.stat().st_size == size


def test_lines_have_microseconds_and_are_audited(
    run: Callable[..., Ran], broker: KafkaBroker, loggers: KafkaLoggers, tmp_path: Path
) -> None:
    recording = ("record", "--for", "1h", "--requests", "1", "--yes", "--log", str(broker.request_log))
    assert run(*recording).code == 0
    ran = run(*recording)
    assert ran.code == 0, ran.err
    assert "ended by requests" in ran.err
    quotas = (
        "kind: kquota.quotas\nversion: 1\nquotas:\n- entity: {user: ANONYMOUS}\n  values: {request_percentage: 50}\n"
    )
    (tmp_path / "quotas.yaml").write_text(quotas)
    told = re.search(r"'kquota (audit [^']+)' says who was throttled", ran.err)
    assert told is not None
    audited = run(*told[1].split(), "--quotas", "quotas.yaml", "-o", "json")
    assert audited.code == 0, audited.err
    assert json.loads(audited.out)["data"]["outside"] > 0, "the recording before this one is left out"
    assert [each["verdict"] for each in json.loads(audited.out)["quotas"]] == ["not throttled"]
    stamp = broker.request_log.read_text().splitlines()[-1].partition("]")[0]
    assert len(stamp.rpartition(",")[2]) == 6, stamp


def test_a_file_that_stays_empty_is_named_and_not_to_be_audited(run: Callable[..., Ran]) -> None:
    ran = run("record", "--for", "1s", "--yes", "--log", "elsewhere.log")
    assert ran.code == 0
    assert "no line came into the file of --log" in ran.err
    assert "kquota audit" not in ran.err


def test_a_level_that_was_not_set_is_taken_away(run: Callable[..., Ran], loggers: KafkaLoggers) -> None:
    loggers.set_level(1, None)
    assert loggers.level(1) == Level("INFO", inherited=True)
    assert run("record", "--for", "1s", "--yes").code == 0
    assert loggers.level(1) == Level("INFO", inherited=True)
    set_root(loggers, "ERROR")
    assert loggers.level(1) == Level("ERROR", inherited=True), "it follows the root, as before"
    set_root(loggers, "INFO")


def test_a_dry_run_and_a_refusal_switch_nothing(run: Callable[..., Ran], loggers: KafkaLoggers) -> None:
    ran = run("record", "--dry-run", "-o", "json")
    assert (ran.code, document(ran)["recorded"]) == (0, None)
    refused = run("record")
    assert refused.code == 8
    assert "how much broker 1 will write is not known" in refused.err
    unmetered = run("record", "--size", "1GB", "--yes")
    assert unmetered.code == 2
    assert "--size needs --metrics or --log for each broker: 1 has none" in unmetered.err
    twice = run("record", "--yes", "--metrics", "http://127.0.0.1:1", "--log", "x")
    assert "broker 1: --metrics and --log exclude each other" in twice.err
    unknown = run("record", "--broker", "7", "--yes")
    assert (unknown.code, "no broker 7 alive" in unknown.err) == (3, True)
    assert loggers.level(1) == Level("WARN")
    assert "no entries in the journal" in run("history").err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_switches_back(
    broker: KafkaBroker, loggers: KafkaLoggers, tmp_path: Path, number: signal.Signals
) -> None:
    with recording(broker, loggers, tmp_path) as process:
        _, said = interrupted(process, number)
    assert process.returncode == 128 + number, said
    assert loggers.level(1) == Level("WARN")
    assert "switched back" in said


def test_after_a_kill_the_next_reconcile_switches_back(
    run: Callable[..., Ran], broker: KafkaBroker, loggers: KafkaLoggers, tmp_path: Path
) -> None:
    with recording(broker, loggers, tmp_path) as process:
        assert run("reconcile").code == 0
        assert loggers.level(1).name == "DEBUG", "its recorder is alive"
        process.kill()
    assert loggers.level(1).name == "DEBUG"
    found = run("record", "--dry-run")
    assert "switched on by" in found.err
    ran = run("reconcile")
    assert ran.code == 0, ran.err
    assert loggers.level(1) == Level("WARN")
    again = run("reconcile")
    assert (again.code, again.out) == (0, "")
    assert "ended by 2" in run("history").out


def test_undo_switches_back_but_not_what_somebody_else_set(
    run: Callable[..., Ran], broker: KafkaBroker, loggers: KafkaLoggers, tmp_path: Path
) -> None:
    with recording(broker, loggers, tmp_path) as process:
        process.kill()
    loggers.set_level(1, "TRACE")
    ran = run("undo", "--yes", "-o", "json")
    assert ran.code == 7, ran.err
    assert [each["outcome"] for each in document(ran)["nodes"]] == ["changed by somebody else"]
    assert loggers.level(1).name == "TRACE"
    assert run("undo", "--yes").code == 3, "the lease is over"


def test_controllers_log_their_requests_too(
    run: Callable[..., Ran], broker: KafkaBroker, loggers: KafkaLoggers
) -> None:
    ran = run("record", "--bootstrap-controller", broker.controller, "--for", "1s", "--yes", "-o", "json")
    assert ran.code == 0, ran.err
    found = document(ran)
    assert (found["node_type"], found["log_dirs"]) == ("controller", [])
    assert [each["outcome"] for each in found["nodes"]] == ["switched back"]
    assert loggers.level(1) == Level("WARN")


def set_root(loggers: KafkaLoggers, level: str) -> None:
    """Sets the level of the broker's root logger."""
    from kquota.backends import wire

    resource = wire.AlterConfigsResource(wire.LOGGER_RESOURCE, "1", [wire.AlterableConfig("root", wire.SET, level)])
    request = wire.IncrementalAlterConfigsRequest([resource], False)
    with loggers._nodes.asking(1) as session:
        session.ask([request], wire.IncrementalAlterConfigsResponse)


class recording:
    """A `kquota record` of an hour in a process of its own, once the logger is on."""

    def __init__(self, broker: KafkaBroker, loggers: KafkaLoggers, folder: Path) -> None:
        command = ["record", "--for", "1h", "--yes", "--journal", folder / "journal"]
        self._process = started([*command, "--bootstrap-server", broker.bootstrap], folder)
        self._loggers = loggers

    def __enter__(self) -> subprocess.Popen[str]:
        until(lambda: self._process.poll() is not None or self._loggers.level(1).name == "DEBUG")
        assert self._process.poll() is None, self._process.communicate()
        return self._process

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(PATIENCE_S)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()


def test_the_logger_is_the_one_that_the_appender_configures() -> None:
    for name in ("log4j2", "log4j1"):
        assert LOGGER in appender_text(name)
