"""`kquota migrate check`: a real ZooKeeper against a real broker that holds what migrations left."""

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kquota import Alteration, Entity, QuotaKey
from kquota.access import connect
from kquota.core.quotas.quota import parse_value
from tests.brokers.kafka import KafkaBroker
from tests.brokers.migration import Migration
from tests.cli.conftest import Golden, Kquota, validated
from tests.conftest import new_chroot
from tests.support.data import data_rows
from tests.support.sandbox import Sandbox
from tests.support.waiting import until

SCRAM = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=8192"
ROWS = data_rows("cli/migrated.txt")
ZOOKEEPER = {entity: quotas for entity, quotas, _ in ROWS if quotas}
KRAFT = {entity: quotas for entity, _, quotas in ROWS if quotas}


def alterations(quotas: Mapping[str, str]) -> list[Alteration]:
    return [
        Alteration(Entity.parse(entity), {key: parse_value(key, text)})
        for entity, values in quotas.items()
        for name, _, text in (each.partition("=") for each in values.split(","))
        for key in [QuotaKey.parse(name)]
    ]


@pytest.fixture
def sides(chroot: str, znodes: Any, broker: KafkaBroker) -> Iterator[tuple[str, ...]]:
    """The options that name both; the broker's quotas are gone afterwards."""
    for backend, quotas in (
        (connect(zookeeper=chroot), ZOOKEEPER),
        (connect(bootstrap_server=broker.bootstrap), KRAFT),
    ):
        with backend:
            results = backend.alter(alterations(quotas))
            assert [result.error for result in results] == [None] * len(quotas)
            assert backend.wait_visible(results) == ()
    data = {"version": 1, "config": {"SCRAM-SHA-256": SCRAM}}
    znodes.create("/config/users/carol", json.dumps(data).encode())
    yield ("--zookeeper", chroot, "--bootstrap-server", broker.bootstrap)
    with connect(bootstrap_server=broker.bootstrap) as backend:
        left = [Alteration(entity, remove=frozenset(values)) for entity, values in backend.describe().items()]
        assert backend.wait_visible(backend.alter(left)) == ()


def test_every_damage_is_named_and_mended(
    kquota: Kquota, sides: tuple[str, ...], golden: Golden, chroot: str, broker: KafkaBroker
) -> None:
    """The report is as the schema has it, shows no credential, and its commands make both sides equal."""
    check = ("migrate", "check", *sides)

    table = kquota(*check)
    plain = kquota(*check, "-o", "json")
    failing = kquota(*check, "--fail-on", "differences", "-o", "yaml")

    assert (table.code, plain.code, failing.code) == (0, 0, 1)
    golden("migrate.table", table.out.replace(chroot, "ZOOKEEPER").replace(broker.bootstrap, "BROKER"))
    document = validated(plain.out, "migration")
    found = {(each["damage"], each["where"]) for each in document["findings"]}
    assert found == {
        ("named-default", r"KRaft user=\<default>"),
        ("undecoded-name", "KRaft user=CN%3Da%2CO%3Db"),
        ("different", "KRaft user=alice"),
        ("missing", "KRaft user=bob"),
        ("extra", "KRaft client-id=new"),
        ("undecoded-name", "KRaft user=alice,client-id=my%20app"),
        ("missing", "KRaft ip=<default>"),
    }
    assert not any(secret in table.out + plain.out + failing.out for secret in ("c2FsdA", "c3RvcmVk", "c2VydmVy"))

    for finding in document["findings"]:
        for command in finding["commands"]:
            words = shlex.split(command)
            assert words[0] == "kquota"
            assert kquota(*words[1:], "--wait").code == 0, command
    left = kquota(*check, "--fail-on", "differences", "-o", "json")
    assert json.loads(left.out)["findings"] == []


def test_a_zookeeper_without_quotas_is_perhaps_the_wrong_one(
    kquota: Kquota, sides: tuple[str, ...], zookeeper: Sandbox, broker: KafkaBroker
) -> None:
    """Each quota would be an extra one, with a command that deletes it."""
    empty = new_chroot(zookeeper)
    done = kquota("migrate", "check", "--zookeeper", empty, "--bootstrap-server", broker.bootstrap)
    assert "ZooKeeper has no quota at all: is its chroot that of the brokers' zookeeper.connect?" in done.err


def test_equal_sides_and_filters(kquota: Kquota, sides: tuple[str, ...]) -> None:
    """Nothing to say about what is right; the damaged name is found under the right one."""
    check = ("migrate", "check", *sides, "--fail-on", "differences")

    right = kquota(*check, "--client", "same")
    damaged = kquota(*check, "--user", "CN=a,O=b", "-o", "json")

    assert (right.code, right.out, right.err.splitlines()[-1]) == (0, "", "no differences")
    assert damaged.code == 1
    assert [each["where"] for each in json.loads(damaged.out)["findings"]] == ["KRaft user=CN%3Da%2CO%3Db"]


def test_both_sides_are_needed(kquota: Kquota, broker: KafkaBroker) -> None:
    for arguments in (("--zookeeper", "127.0.0.1:1"), ("--bootstrap-server", broker.bootstrap)):
        done = kquota("migrate", "check", *arguments)
        assert (done.code, done.out) == (2, "")


def test_a_side_that_cannot_be_reached(kquota: Kquota, chroot: str, broker: KafkaBroker) -> None:
    for zookeeper, server in ((chroot, "127.0.0.1:1"), ("127.0.0.1:1", broker.bootstrap)):
        done = kquota("migrate", "check", "--zookeeper", zookeeper, "--bootstrap-server", server, "--timeout", "5")
        assert (done.code, done.out) == (4, "")
        assert "127.0.0.1:1" in done.complaint


def test_a_migrating_cluster_is_not_written_to_directly(kquota: Kquota, chroot: str, znodes: Any) -> None:
    """A KRaft controller owns the metadata: what is written to ZooKeeper would be lost."""
    controller = {"version": 2, "brokerid": 3000, "timestamp": "1", "kraftControllerEpoch": 7}
    znodes.create("/controller", json.dumps(controller).encode())

    for more in ((), ("--dry-run",)):
        done = kquota("alter", "--zookeeper", chroot, "--user", "a", "--add-config", "producer_byte_rate=1", *more)

        assert (done.code, done.out) == (6, "")
        assert "migrating to KRaft (kraftControllerEpoch 7)" in done.complaint
    assert znodes.exists("/config") is None


def test_a_real_migration(kquota: Kquota, chroot: str) -> None:
    """What Kafka 3.7.0 makes of quotas is what the check looks for; its commands mend all that requests can reach."""
    alter = ("alter", "--zookeeper", chroot, "--user", "new", "--add-config", "producer_byte_rate=1")
    with connect(zookeeper=chroot) as backend:
        backend.alter(alterations(ZOOKEEPER))
    with Migration(chroot) as cluster:
        check = ("migrate", "check", "--zookeeper", chroot, "--bootstrap-server", cluster.bootstrap, "-o", "json")
        direct, early = kquota(*alter), kquota(*check)
        cluster.finish()
        found = json.loads(kquota(*check).out)["findings"]
        for finding in found:
            for command in finding["commands"]:
                assert kquota(*shlex.split(command)[1:], "--wait").code == 0, command

        def left_over() -> list[Any]:
            return list(json.loads(kquota(*check).out)["findings"])

        # The controller writes to ZooKeeper a moment later.
        until(lambda: not any(finding["commands"] for finding in left_over()))
        left = left_over()

    assert (direct.code, early.code) == (6, 6)
    assert "migrating to KRaft" in direct.complaint
    assert "run with ZooKeeper" in early.complaint
    assert {(each["damage"], each["where"]) for each in found} == {
        ("named-default", 'KRaft user=""'),
        ("undecoded-name", "KRaft user=CN%3Da%2CO%3Db"),
        ("undecoded-name", "KRaft user=alice,client-id=my%20app"),
        ("named-default", 'KRaft ip=""'),
    }
    assert {(each["damage"], each["where"], len(each["commands"])) for each in left} == {
        ("named-default", 'KRaft user=""', 0),
        ("named-default", 'KRaft ip=""', 0),
    }
