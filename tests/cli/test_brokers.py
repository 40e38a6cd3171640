"""`kquota describe` and `kquota alter` of brokers, on a live one."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.brokers.kafka import KafkaBroker, password_of
from tests.cli.conftest import Golden, Kquota, Ran, validated

RATE = "max.connection.creation.rate"
LISTENER = f"listener.name.sasl_plaintext.{RATE}"


@pytest.fixture(scope="module")
def broker(configured: KafkaBroker) -> KafkaBroker:
    """A broker with static limits; alice may do nothing."""
    return configured


@pytest.fixture
def run(kquota: Kquota, broker: KafkaBroker) -> Iterator[Callable[..., Ran]]:
    """kquota with the broker in the environment; the limits that it set are gone afterwards."""

    def on_broker(*arguments: str) -> Ran:
        return kquota(*arguments, KQUOTA_BOOTSTRAP_SERVER=broker.bootstrap)

    yield on_broker
    for where in (("--broker", "1"), ("--broker-defaults",)):
        assert on_broker("alter", *where, "--delete-config", f"{RATE},{LISTENER}", "--wait").code == 0


def in_effect(ran: Ran, broker: object = 1) -> dict[str, tuple[object, str, list[object]]]:
    """(value, source, values shadowed) of the limits."""
    (entry,) = (each for each in validated(ran.out, "brokers")["brokers"] if each["broker"] == broker)
    return {
        config["name"]: (config["value"], config["source"], [each["value"] for each in config["shadows"]])
        for config in entry["configs"]
        if config["alterable"]
    }


def test_the_broker_wins_over_the_cluster_and_both_over_the_file(run: Callable[..., Ran]) -> None:
    """Each limit is in effect where it is set strongest, and what it hides is shown."""
    describe = ("describe", "--broker", "1", "-o", "json")

    assert in_effect(run(*describe))[RATE] == (5000, "STATIC_BROKER_CONFIG", [2147483647])

    assert run("alter", "--broker-defaults", "--add-config", f"{RATE}=400", "--wait").code == 0
    assert in_effect(run(*describe))[RATE] == (400, "DYNAMIC_DEFAULT_BROKER_CONFIG", [5000, 2147483647])

    assert run("alter", "--broker", "1", "--add-config", f"{RATE}=250/s,{LISTENER}=unlimited", "--wait").code == 0
    shown = in_effect(run(*describe))
    assert shown[RATE] == (250, "DYNAMIC_BROKER_CONFIG", [400, 5000, 2147483647])
    assert shown[LISTENER] == (2147483647, "DYNAMIC_BROKER_CONFIG", [])
    (entry,) = json.loads(run(*describe).out)["brokers"]
    (listener,) = (config for config in entry["configs"] if config["name"] == LISTENER)
    assert listener["beside"] == {
        "name": RATE,
        "value": 250,
        "source": "DYNAMIC_BROKER_CONFIG",
        "unless_inter_broker": False,
    }
    (internal,) = (config for config in entry["configs"] if config["name"] == f"listener.name.plaintext.{RATE}")
    assert internal["beside"] is None, "brokers speak to each other there"

    assert run("alter", "--broker", "1", "--delete-config", RATE, "--wait").code == 0
    assert in_effect(run(*describe))[RATE][:2] == (400, "DYNAMIC_DEFAULT_BROKER_CONFIG")


def test_kafkas_own_tool_agrees(run: Callable[..., Ran], broker: KafkaBroker) -> None:
    """On what is set, and at which level."""
    words = ("--entity-type", "brokers", "--entity-name", "1")
    assert run("alter", *words, "--add-config", f"{RATE}=250", "--wait").code == 0

    kafka = broker.kafka_configs("--describe", *words)

    assert f"{RATE}=250 sensitive=false" in kafka.stdout, kafka.stderr
    assert f"DYNAMIC_BROKER_CONFIG:{RATE}=250, STATIC_BROKER_CONFIG:{RATE}=5000" in kafka.stdout


@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml", "csv", "name"])
def test_describe_prints_every_format(run: Callable[..., Ran], golden: Golden, output: str) -> None:
    """The cluster-wide default and the broker."""
    where = ("--entity-type", "brokers", "--entity-default")
    assert run("alter", *where, "--add-config", f"{RATE}=400,{LISTENER}=90", "--wait").code == 0

    done = run("describe", "--entity-type", "brokers", "-o", output)

    assert (done.code, done.err) == (0, "")
    golden(f"describe_brokers.{output}", done.out)


def test_alter_reports_before_and_after(run: Callable[..., Ran], broker: KafkaBroker) -> None:
    """A dry run asks the broker and writes nothing; a second alter changes nothing."""
    alter = ("alter", "--broker", "1", "--add-config", f"{RATE}=250", "-o")

    dry = validated(run(*alter, "json", "--dry-run").out, "broker_alter")
    real = validated(run(*alter, "json", "--wait").out, "broker_alter")
    again = run(*alter, "table")
    csv = run("alter", "--broker", "1", "--delete-config", RATE, "-o", "csv", "--dry-run")
    table = run("alter", "--broker", "1", "--add-config", f"{RATE}=unlimited", "--dry-run")

    assert dry == real | {"dry_run": True}
    address = f"kafka://{broker.bootstrap}"
    assert real["cluster"] == {"address": address, "id": None}
    assert f"cluster: {address}\n" in table.err
    assert (real["before"], real["after"], real["changed"]) == ({}, {RATE: 250}, True)
    assert (again.code, again.out, again.rest) == (0, "", "nothing changes\n")
    assert csv.out == f"broker,config,before,after\nbroker=1,{RATE},250,\n"
    assert table.out.splitlines()[1].split("  ") == ["broker=1", RATE, "250 connections/s", "unlimited"]
    assert table.rest == "dry run: nothing was written\n"


def test_nobody_special_may_do_nothing(kquota: Kquota, broker: KafkaBroker, tmp_path: Path) -> None:
    """The broker's ACLs are told apart from its absence; the same client.properties as for quotas."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    for user in ("alice", "admin"):
        (tmp_path / f"{user}.properties").write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={module} required username="{user}" password="{password_of(user)}";\n'
        )
    where = ("--broker", "1", "--bootstrap-server", broker.sasl_bootstrap, "--command-config")

    told = kquota("describe", *where, "admin.properties", "-o", "name")
    refused = kquota("describe", *where, "alice.properties")
    stranger = kquota("describe", "--broker", "1", "--bootstrap-server", broker.sasl_bootstrap)

    assert (told.code, told.out) == (0, "broker=1\n")
    assert (refused.code, refused.out) == (5, "")
    assert "CLUSTER_AUTHORIZATION_FAILED" in refused.complaint
    assert "'kquota doctor' names the permission" in refused.complaint
    assert stranger.code == 5
    assert "the listener asks for a login, by PLAIN" in stranger.complaint
