"""`kquota simulate` as a process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from kquota.documents.encoding import schema
from tests.cli.conftest import Kquota

WORKLOAD = """\
kind: kquota.workload
version: 1
duration: 2min
brokers: {count: 2, max.connection.creation.rate: 20}
changes:
  - {at: 40s, entity: {user: alice}, values: {producer_byte_rate: 2MB}}
clients:
  - {name: orders, user: alice, client-id: app1, api: produce, rate: 4MB, size: 40kB, start: 10s, stop: 60s}
  - {name: payments, user: alice, client-id: app2, api: produce, pace: 2, size: 10kB}
  - {name: etl, user: bob, api: fetch, rate: 400kB, size: 20kB, backlog: 20MB, max_bytes: 1MB}
  - {name: poller, user: carol, api: metadata, connections: 2, request_time: 1ms, think: 10ms}
  - {name: topics, user: admin, client-id: x, api: CreateTopics, pace: 1/min, topics: 7, partitions: 80}
  - {name: storm, api: connect, ip: 10.0.0.1, pace: 40, start: 30, stop: 35}
  - {name: many, count: 20, user: "u{n}", client-id: c, ip: "10.1.0.{n}", api: produce, pace: 1, size: 1000}
"""
QUOTAS = """\
kind: kquota.quotas
version: 1
quotas:
  - {entity: {user: alice}, values: {producer_byte_rate: 1MB}}
  - {entity: {user: {default: true}}, values: {consumer_byte_rate: 500kB, request_percentage: 5%}}
  - {entity: {user: admin}, values: {controller_mutation_rate: 5}}
  - {entity: {ip: {default: true}}, values: {connection_creation_rate: 5}}
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    """A workload, and quotas that bite it."""
    (tmp_path / "workload.yaml").write_text(WORKLOAD)
    (tmp_path / "quotas.yaml").write_text(QUOTAS)
    own = QUOTAS.split("version: 1\n")[1]
    (tmp_path / "own.yaml").write_text(WORKLOAD + own)
    (tmp_path / "calm.yaml").write_text(
        "kind: kquota.workload\nversion: 1\nduration: 1min\nclients: [{api: produce, user: alice, rate: 1kB}]\n"
    )


@pytest.mark.parametrize("output", ["table", "json", "csv"])
def test_every_format(kquota: Kquota, golden: Callable[[str, str], None], output: str) -> None:
    """The whole answer, in each format; what is left to say goes to stderr."""
    done = kquota("simulate", "workload.yaml", "--quotas", "quotas.yaml", "-o", output)

    assert done.code == 0
    golden(f"simulate.{output}", done.out)
    assert "no request_time" in done.err


def test_json_is_as_the_schema_says(kquota: Kquota) -> None:
    """And the metrics carry Kafka's own names."""
    document = json.loads(kquota("simulate", "workload.yaml", "--quotas", "quotas.yaml", "-o", "json").out)

    jsonschema.validate(document, schema("simulation"))
    metrics = {counter["metrics"]["mbean"]: sorted(counter["metrics"]) for counter in document["counters"]}
    assert metrics["kafka.server:type=Produce,user=alice"] == ["byte-rate", "mbean", "throttle-time"]
    assert metrics["kafka.server:type=Request,user=carol"] == ["mbean", "request-time", "throttle-time"]
    assert metrics["kafka.server:type=ControllerMutation,user=admin"] == ["mbean", "throttle-time", "tokens"]


def test_a_workload_brings_its_own_quotas(kquota: Kquota) -> None:
    """The same answer as with a file of quotas; an option goes first, the environment does not."""
    own = kquota("simulate", "own.yaml", "-o", "csv", KQUOTA_ZOOKEEPER="127.0.0.1:1")

    assert own.out == kquota("simulate", "workload.yaml", "--quotas", "quotas.yaml", "-o", "csv").out


def test_the_version_chooses_the_generation(kquota: Kquota) -> None:
    """3.7 and 4.0 keep different samples, and so throttle differently."""

    def answer(version: str) -> str:
        return kquota("simulate", "own.yaml", "-o", "csv", "--kafka-version", version).out

    assert answer("3.7") == answer("3.3.1")
    assert answer("3.7") != answer("4.0") == answer("3.8")


def test_fail_on_throttled(kquota: Kquota) -> None:
    """An answer for scripts, only when asked for."""
    assert kquota("simulate", "own.yaml", "--fail-on", "throttled").code == 1
    assert kquota("simulate", "calm.yaml", "--quotas", "quotas.yaml", "--fail-on", "throttled").code == 0


def test_a_chart_in_a_pipe(kquota: Kquota, golden: Callable[[str, str], None]) -> None:
    """Where it is asked for; the parts differ without colour."""
    done = kquota("simulate", "own.yaml", "--chart", "2", PYTHONIOENCODING="utf-8")

    golden("simulate.chart", done.out)
    assert "█ delivered   ▓ delivered late   ░ offered, not delivered   ─ limit" in done.out
    plain = kquota("simulate", "own.yaml", "--chart", "1", PYTHONIOENCODING="ascii:backslashreplace").out
    assert "# delivered   + delivered late   . offered, not delivered   - limit" in plain


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ("missing.yaml --quotas quotas.yaml", 3, "no such file"),
        ("quotas.yaml --quotas quotas.yaml", 3, "quotas.yaml: "),
        ("workload.yaml", 2, "no quotas"),
        ("own.yaml --kafka-version latest", 3, "not a Kafka version"),
        ("workload.yaml --zookeeper 127.0.0.1:1 --timeout 2", 4, "127.0.0.1:1"),
    ],
)
def test_what_goes_wrong_is_one_line(kquota: Kquota, arguments: str, code: int, says: str) -> None:
    """The reason and the code of the table; nothing on stdout."""
    done = kquota("simulate", *arguments.split())

    assert (done.code, done.out) == (code, "")
    assert says in done.err.splitlines()[-1]
