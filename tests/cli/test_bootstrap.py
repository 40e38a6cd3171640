"""`kquota` on a live broker: the same commands, the same answers."""

import json
import re
from pathlib import Path

import pytest

from tests.brokers.kafka import KafkaBroker, password_of
from tests.cli.conftest import Kquota


@pytest.fixture
def login(tmp_path: Path) -> str:
    """A client.properties as it is written for Kafka's own tools."""
    (tmp_path / "client.properties").write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="admin" password="{password_of("admin")}";\n'
    )
    return "client.properties"


def test_alter_describe_resolve(kquota: Kquota, broker: KafkaBroker, login: str) -> None:
    """What one command writes, the next one and Kafka's own tool see."""
    cluster = ("--bootstrap-server", broker.sasl_bootstrap, "--command-config", login)
    keys = "producer_byte_rate=10MB,request_percentage=12.5%"

    altered = kquota(
        "alter", *cluster, "--user", "alice", "--client-defaults", "--add-config", keys, "--wait", "-o", "json"
    )
    described = kquota("describe", *cluster, "--user", "alice", "--client-defaults", "-o", "csv")
    resolved = kquota("resolve", *cluster, "--user", "alice", "--client", "app1", "-o", "json")
    kafka = broker.kafka_configs("--describe", "--user", "alice", "--client-defaults")
    deleted = kquota(
        "alter", *cluster, "--user", "alice", "--client-defaults", "--delete-config", "producer_byte_rate", "-o", "csv"
    )

    assert [done.code for done in (altered, described, resolved, deleted)] == [0, 0, 0, 0], altered.err
    assert json.loads(altered.out)["results"][0]["after"] == {
        "producer_byte_rate": 10_000_000,
        "request_percentage": 12.5,
    }
    assert described.out.splitlines()[1:] == [
        "alice,<default>,,producer_byte_rate,10000000,bytes/s",
        "alice,<default>,,request_percentage,12.5,% of one thread",
    ]
    assert json.loads(resolved.out)["resolutions"][0]["sensor"] == "alice:app1"
    assert "producer_byte_rate=1.0E7" in kafka.stdout
    assert "request_percentage,12.5,12.5" in deleted.out


def test_the_controller_of_a_combined_node(kquota: Kquota, broker: KafkaBroker) -> None:
    """It alters and does not show, which each command says in its own words."""
    listeners = re.search(r"CONTROLLER://(127\.0\.0\.1:\d+)", (broker.folder / "server.properties").read_text())
    assert listeners is not None
    cluster = ("--bootstrap-controller", listeners[1])
    alter = ("alter", *cluster, "--user", "dave", "--add-config", "request_percentage=5%")

    altered = kquota(*alter, KQUOTA_BOOTSTRAP_SERVER="127.0.0.1:1")
    ran = [
        kquota("describe", *cluster),
        kquota("resolve", "--user", "dave", *cluster),
        kquota("alter", *cluster, "--user", "dave", "--delete-config", "request_percentage", "--strict-delete"),
    ]
    csv = kquota(
        "alter", *cluster, "--user", "dave", "--add-config", "producer_byte_rate=5MB", "--delete-config",
        "consumer_byte_rate", "-o", "csv",
    )  # fmt: skip
    usage = [
        kquota(*alter, "--wait"),
        kquota(*alter, "--bootstrap-server", broker.bootstrap),
        kquota("describe", "--broker", "1", *cluster),
        kquota("resolve", "--user", "dave", *cluster, "--quotas", "quotas.yaml"),
    ]

    assert (altered.code, altered.rest) == (0, "")
    assert "not in the journal: 'kquota undo' cannot take back what went through a controller" in altered.err
    assert f"cluster: controller://{listeners[1]}" in altered.err
    assert altered.out.splitlines()[1].split() == ["user=dave", "request_percentage", "?", "5", "%"]
    assert [done.code for done in ran] == [6, 6, 6]
    assert all("DescribeClientQuotas" in done.complaint and "--bootstrap-server" in done.complaint for done in ran)
    assert csv.out.splitlines()[1:] == ["user=dave,producer_byte_rate,?,5000000", "user=dave,consumer_byte_rate,?,"]
    assert "controllers do not show the current limits" in csv.complaint
    assert [done.code for done in usage] == [2, 2, 2, 2]
    assert broker.kafka_configs("--describe", "--user", "dave").stdout.split()[-1] == "producer_byte_rate=5000000.0"
