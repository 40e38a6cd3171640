"""`kquota resolve` from a file."""

import json
import math
from pathlib import Path

import pytest

from kquota import Entity, QuotaKey, QuotaSnapshot
from kquota.backends.memory import MemoryBackend
from kquota.cli import main, session
from tests.cli.conftest import Golden, Kquota, validated
from tests.cli.terminal import on_terminal
from tests.support.data import data_text

QUOTAS = data_text("cli/levels.yaml")


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The sample configuration, in YAML and in human units."""
    (tmp_path / "quotas.yaml").write_text(QUOTAS)
    return "quotas.yaml"


def test_the_level_and_the_counter_stay_on_a_narrow_terminal(file: str, tmp_path: Path) -> None:
    shown = on_terminal(["resolve", "--user", "user1", "--client", "clientA", "--quotas", file], tmp_path, COLUMNS="80")
    assert "user user1" in shown
    assert "3 user" in shown, "which says why"


@pytest.mark.parametrize(
    ("user", "client", "limit", "level", "znode", "sensor", "shadows"),
    [
        ("user1", "clientA", 1000000, 3, "/config/users/user1", "user1:", [6, 7]),
        ("user2", "clientA", 10485760, 1, "/config/users/user2/clients/clientA", "user2:clientA", [2, 6, 7]),
        ("user2", "clientB", 2000000, 2, "/config/users/user2/clients/<default>", "user2:clientB", [6]),
        ("user2", "", 3000000, 6, "/config/users/<default>", "user2:", []),
        ("CN=a", "clientA", 3000000, 6, "/config/users/<default>", "CN%3Da:", [7]),
    ],
)
def test_the_produce_quota_of_a_client(
    kquota: Kquota,
    file: str,
    user: str,
    client: str,
    limit: int,
    level: int,
    znode: str,
    sensor: str,
    shadows: list[int],
) -> None:
    """Limit, level, znode, counter (KIP-55's quota-id) and what is shadowed."""
    done = kquota("resolve", "--user", user, "--client", client, "--quotas", file, "-o", "json")

    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)["resolutions"][0]
    assert (found["limit"], found["level"], found["znode"], found["sensor"]) == (limit, level, znode, sensor)
    assert [shadow["level"] for shadow in found["shadows"]] == shadows


def test_table(kquota: Kquota, file: str, golden: Golden) -> None:
    """All keys of a client, for people."""
    done = kquota("resolve", "--user", "user2", "--client", "clientA", "--ip", "10.0.0.7", "--quotas", file)

    assert (done.code, done.err) == (0, "")
    golden("resolve.table", done.out)


@pytest.mark.parametrize(
    ("asked", "pairs"),
    [
        ("--user payments", "2 client-ids have limits of their own: a b, checkout"),
        ("--client checkout", "1 user has limits of its own: payments"),
        ("--user shop", ""),
    ],
)
def test_the_hint_names_quotas_of_pairs(kquota: Kquota, tmp_path: Path, asked: str, pairs: str) -> None:
    """The table is of a client without the other name; --all shows the pairs."""
    (tmp_path / "pairs.yaml").write_text(
        "kind: kquota.quotas\nversion: 1\nquotas:\n"
        "  - {entity: {user: payments}, values: {producer_byte_rate: 18MB}}\n"
        "  - {entity: {user: payments, client-id: checkout}, values: {producer_byte_rate: 300kB}}\n"
        "  - {entity: {user: payments, client-id: a b}, values: {producer_byte_rate: 200kB}}\n"
        "  - {entity: {user: payments, client-id: {default: true}}, values: {producer_byte_rate: 1MB}}\n"
    )

    done = kquota("resolve", *asked.split(), "--quotas", "pairs.yaml")

    hint = f" for another); {pairs} ('kquota resolve --all {asked}' shows them)\n" if pairs else " for another)\n"
    assert hint in done.err
    shown = kquota("resolve", "--all", *asked.split(), "--quotas", "pairs.yaml").out
    assert ("300 kB/s" in shown) == bool(pairs)


def test_one_address_of_two_entities(kquota: Kquota, tmp_path: Path) -> None:
    """Case 09: the last write decides, which nobody can see."""
    (tmp_path / "two.yaml").write_text(
        "kind: kquota.quotas\nversion: 1\nquotas:\n"
        '  - {entity: {ip: "::ffff:10.0.0.1"}, values: {connection_creation_rate: 5}}\n'
        '  - {entity: {ip: "10.0.0.1"}, values: {connection_creation_rate: 6}}\n'
    )
    for ip in ("10.0.0.1", "::ffff:10.0.0.1", "::ffff:a00:1"):
        done = kquota("resolve", "--quotas", "two.yaml", "--ip", ip)
        assert "not determined" in done.out
        assert "the last write decides" in done.err
    assert kquota("lint", "two.yaml").out.count("another spelling") == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (QUOTAS.replace("10MiB", "-1"), "quotas[1]: producer_byte_rate: -1 must be greater than 0"),
        (QUOTAS.replace("10MiB", ".nan"), "quotas[1]: producer_byte_rate: NaN is not a finite number"),
        (QUOTAS.replace("10MiB", "many"), "quotas[1]: producer_byte_rate: 'many' is not a number"),
        (QUOTAS.replace("10MiB", "[1]"), "quotas[1].values.producer_byte_rate"),
        (QUOTAS.replace("producer_byte_rate: 10MiB", "some_config: 1"), "quotas[1]: unknown quota key 'some_config'"),
        (QUOTAS.replace("user: user1}", "user: user1, ip: 10.0.0.7}"), "quotas[0]: INVALID_REQUEST"),
        (
            QUOTAS.replace("{user: user1}", "{user: user2, client-id: clientA}"),
            "quotas[1]: user=user2,client-id=clientA is given twice",
        ),
        (QUOTAS.replace("{user: user1}", "{group: g}"), "quotas[0].entity"),
        (QUOTAS.replace("version: 1", "version: 2"), "version"),
        (QUOTAS.replace("version: 1\n", ""), "'version' is a required property (add 'version: 1')"),
        ("quotas: []\n", "'kind' is a required property (add 'kind: kquota.quotas' and 'version: 1')"),
        (QUOTAS.replace("  - entity: {user: user2, client-id: clientA}", "  - entity: {user: user2"), "line "),
        ('{"kind": "kquota.quotas", "version": 1,\n "quotas": [}', "line 2"),
        ("", "expected a mapping at the top, found nothing"),
        ("[1, 2]", "expected a mapping at the top, found array"),
        ("a,b\n1,2\n", "expected a mapping at the top, found string"),
    ],
)
def test_a_bad_file_is_one_line(kquota: Kquota, tmp_path: Path, text: str, says: str) -> None:
    """The file, the place in it, the reason."""
    (tmp_path / "bad.yaml").write_text(text)

    done = kquota("resolve", "--user", "user1", "--quotas", "bad.yaml")

    assert (done.code, done.out) == (3, "")
    assert "bad.yaml" in done.complaint
    assert says in done.complaint


STATIC = "quota.producer.default=777\nquota.window.num=3\n"


def test_the_static_defaults_of_a_broker_are_the_ninth_level(kquota: Kquota, file: str, tmp_path: Path) -> None:
    """Below all others; the property stands where the entity would."""
    (tmp_path / "server.properties").write_text(STATIC)
    arguments = ("--quotas", file, "--server-properties", "server.properties", "--kafka-version", "2.8")
    (tmp_path / "none.yaml").write_text("kind: kquota.quotas\nversion: 1\nquotas: []\n")

    shadowed = kquota("resolve", "--user", "user1", "--client", "clientA", *arguments)
    assert "quota.producer.default (777 B/s)" in shadowed.out

    alone = ("--client", "app", "--quotas", "none.yaml", *arguments[2:])
    table = kquota("resolve", *alone).out.splitlines()
    assert table[1].startswith("producer_byte_rate")
    assert "9 static default client-id" in table[1]
    assert "quota.producer.default" in table[1]

    found = json.loads(kquota("resolve", *alone, "-o", "json").out)["resolutions"][0]
    assert (found["limit"], found["level"], found["entity"], found["znode"]) == (777, 9, None, None)
    assert found["sensor"] == ":app"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--ip", "10.0.0.0/24"], "'10.0.0.0/24' is a network, and quotas are for single addresses"),
        (["--ip", "10.0.0.999"], "'10.0.0.999' is no address: a part of it is above 255"),
        (["--user", "<default>"], "whom that default governs shows --who 'user=<default>'"),
    ],
)
def test_a_name_that_no_client_has(kquota: Kquota, tmp_path: Path, arguments: list[str], says: str) -> None:
    """With what was meant, in the words of this command."""
    (tmp_path / "none.yaml").write_text("kind: kquota.quotas\nversion: 1\nquotas: []\n")

    done = kquota("resolve", *arguments, "--quotas", "none.yaml")

    assert done.code == 0
    assert says in done.err
    assert "--user-defaults" not in done.err
    tree = kquota("resolve", *arguments, "--quotas", "none.yaml", "-o", "tree").out
    assert "unlimited" in tree
    assert "counter of" not in tree


def test_a_stored_value_that_is_no_number(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Kafka's tool stores NaN: JSON, which has no number for it, has Java's word, and all other users are there."""
    quotas = {
        Entity(user="n"): {QuotaKey.REQUEST_PERCENTAGE: math.nan},
        Entity(user="o"): {QuotaKey.REQUEST_PERCENTAGE: 5.0},
    }
    monkeypatch.setattr(session, "open_backend", lambda options: MemoryBackend(QuotaSnapshot(quotas)))
    assert main.run(["resolve", "--user", "n", "--zookeeper", "nowhere:2181", "--brokers", "3", "-o", "json"]) == 0
    found = {each["key"]: each for each in validated(capfd.readouterr().out, "resolution")["resolutions"]}
    assert (found["request_percentage"]["limit"], found["request_percentage"]["limit_on_brokers"]) == ("NaN", "NaN")
    assert main.run(["resolve", "--all", "--zookeeper", "nowhere:2181", "-o", "json"]) == 0
    assert '"user": "o"' in capfd.readouterr().out


@pytest.mark.parametrize("output", ["table", "wide", "csv", "json", "yaml"])
def test_brokers_have_no_znodes(
    output: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Their quotas may be in KRaft. Quotas in ZooKeeper have paths, which the table shows with -o wide."""
    quotas = QuotaSnapshot({Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: 1000.0}})
    monkeypatch.setattr(session, "open_backend", lambda options: MemoryBackend(quotas))
    ask = ["resolve", "--user", "alice", "--client", "app", "-o", output]
    assert main.run([*ask, "--bootstrap-server", "nowhere:9092"]) == 0
    on_brokers = capfd.readouterr().out
    assert main.run([*ask, "--zookeeper", "nowhere:2181"]) == 0
    in_zookeeper = capfd.readouterr().out
    assert "/config/" not in on_brokers
    assert ("/config/users/alice" in in_zookeeper) == (output != "table")
    if output == "json":
        assert {each["znode"] for each in validated(on_brokers, "resolution")["resolutions"]} == {None}
