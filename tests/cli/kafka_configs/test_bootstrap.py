"""The current tool on a real broker."""

from __future__ import annotations

import time

import pytest

from tests.brokers.kafka import KafkaBroker
from tests.cli.kafka_configs.conftest import Ran, Tool


@pytest.fixture
def bootstrap(kraft: KafkaBroker) -> str:
    return kraft.bootstrap


def settled(tool: Tool, line: str, out: str) -> Ran:
    """What a describe prints once it prints that, or at last; a broker's own copy of the metadata lags behind."""
    deadline = time.monotonic() + 60
    while (ran := tool(line)).out != out and time.monotonic() < deadline:
        time.sleep(0.01)
    return ran


@pytest.mark.parametrize(
    ("entity", "done", "title"),
    [
        ("--user b1", "config for user b1", "user-principal 'b1'"),
        ("--client b2", "config for client b2", "client-id 'b2'"),
        ("--user b3 --client c", "config for client c", "user-principal 'b3', client-id 'c'"),
        ("--user b4 --client-defaults", "config for user b4", "user-principal 'b4', the default client-id"),
        ("--user-defaults --client b5", "config for client b5", "the default user-principal, client-id 'b5'"),
        ("--user-defaults", "default config for users in the cluster", "the default user-principal"),
        (
            "--entity-type users --entity-name b6 --entity-type clients --entity-name c",
            "config for user b6",
            "user-principal 'b6', client-id 'c'",
        ),
        ("--ip 10.0.0.7", "config for ip 10.0.0.7", "ip '10.0.0.7'"),
        ("--ip-defaults", "default config for ips in the cluster", "the default ip"),
    ],
)
def test_alter_and_describe_on_a_broker(tool: Tool, bootstrap: str, entity: str, done: str, title: str) -> None:
    key = "connection_creation_rate" if "--ip" in entity else "producer_byte_rate"
    line = f"--bootstrap-server {bootstrap} {entity}"
    completed = Ran(0, f"Completed updating {done}.\n", "")
    assert tool(f"{line} --alter --add-config {key}=10485760") == completed
    shown = f"Quota configs for {title} are {key}=1.048576E7\n"
    assert settled(tool, f"{line} --describe", shown) == Ran(0, shown, "")
    assert tool(f"{line} --alter --delete-config {key}") == completed
    assert settled(tool, f"{line} --describe", "") == Ran(0, "", "")
    assert tool(f"{line} --alter --delete-config {key}") == Ran(1, "", f"Invalid config(s): {key}\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("producer_byte_rate=0", "Quota producer_byte_rate must be greater than 0"),
        ("producer_byte_rate=-1", "Quota producer_byte_rate must be greater than 0"),
        ("producer_byte_rate=1.5", "producer_byte_rate cannot be a fractional value."),
        ("producer_byte_rate=1e19", "Proposed value for producer_byte_rate is too large for a LONG."),
    ],
)
def test_what_the_broker_refuses(tool: Tool, bootstrap: str, change: str, message: str) -> None:
    line = f"--bootstrap-server {bootstrap} --user w --alter --add-config {change}"
    exception = "java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.InvalidRequestException"
    error = f"Error while executing config command with args '{line}'\n{exception}: {message}\n"
    assert tool(line) == Ran(1, "", error)


def test_values_as_the_broker_keeps_them(tool: Tool, bootstrap: str) -> None:
    line = f"--bootstrap-server {bootstrap} --user x"
    pairs = "producer_byte_rate=1e3,consumer_byte_rate=+5d,request_percentage=NaN,controller_mutation_rate=0.5"
    assert tool(f"{line} --alter --add-config {pairs}").code == 0
    values = "producer_byte_rate=1000.0, consumer_byte_rate=5.0, controller_mutation_rate=0.5, request_percentage=NaN"
    shown = f"Quota configs for user-principal 'x' are {values}\n"
    assert settled(tool, f"{line} --describe", shown).out == shown
    bad = tool(f"{line} --alter --add-config producer_byte_rate=10MB")
    assert bad == Ran(1, "", "Cannot parse quota configuration value for producer_byte_rate: 10MB\n")
