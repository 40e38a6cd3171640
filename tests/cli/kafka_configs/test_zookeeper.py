"""The tool of 2.8 on a real ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kquota.backends.zookeeper.raw import RawConfigs
from kquota.core.quotas.entity import Entity
from kquota.errors import Rejected
from tests.cli.kafka_configs.conftest import FORMAT, WARNING, Ran, Tool, node


def notifications(znodes: Any) -> list[str]:
    """The entity paths that were notified, in order."""
    names = sorted(znodes.get_children("/config/changes"))
    return [json.loads(znodes.get(f"/config/changes/{name}")[0])["entity_path"] for name in names]


@pytest.mark.parametrize(
    ("entity", "path", "title"),
    [
        ("--user alice", "users/alice", "user-principal 'alice'"),
        ("--client app", "clients/app", "client-id 'app'"),
        ("--user-defaults", "users/<default>", "default user-principal"),
        ("--client-defaults", "clients/<default>", "default client-id"),
        ("--client app --user alice", "users/alice/clients/app", "user-principal 'alice', client-id 'app'"),
        ("--user a --client-defaults", "users/a/clients/<default>", "user-principal 'a', default client-id"),
        ("--user-defaults --client a", "users/<default>/clients/a", "default user-principal, client-id 'a'"),
        (
            "--user-defaults --client-defaults",
            "users/<default>/clients/<default>",
            "default user-principal, default client-id",
        ),
        ("--user CN=a,L=<default>", "users/CN%3Da%2CL%3D%3Cdefault%3E", "user-principal 'CN=a,L=<default>'"),
        ("--user <default>", "users/%3Cdefault%3E", "user-principal '<default>'"),
        ("--user=", "users/<default>", "default user-principal"),
        ("--entity-type clients --entity-name c --entity-type users --entity-default", "users/<default>/clients/c",
         "default user-principal, client-id 'c'"),
        ("--ip 127.0.0.1", "ips/127.0.0.1", "ips '127.0.0.1'"),
        ("--ip ::1", "ips/::1", "ips '::1'"),
        ("--ip-defaults", "ips/<default>", "default ips"),
        ("--ip <default>", "ips/<default>", "default ips"),
    ],
)  # fmt: skip
def test_alter_and_describe(tool: Tool, chroot: str, znodes: Any, entity: str, path: str, title: str) -> None:
    key = "connection_creation_rate" if path.startswith("ips") else "producer_byte_rate"
    words = ["--zookeeper", chroot, *entity.split()]
    done = Ran(0, f"{WARNING}Completed updating config for entity: {title}.\n", "")
    assert tool(*words, "--alter", "--add-config", f"{key}=5") == done
    assert znodes.get(f"/config/{path}")[0] == node(**{key: "5"})
    assert tool(*words, "--describe") == Ran(0, f"{WARNING}Configs for {title} are {key}=5\n", "")
    assert tool(*words, "--alter", "--delete-config", key) == done
    assert znodes.get(f"/config/{path}")[0] == b'{"version":1,"config":{}}'
    assert tool(*words, "--describe") == Ran(0, f"{WARNING}Configs for {title} are \n", "")
    again = tool(*words, "--alter", "--delete-config", f"{key}, foo")
    assert again == Ran(1, WARNING, f"Invalid config(s): {key},foo\n")
    assert notifications(znodes) == [path, path]


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("producer_byte_rate", ["0", "-1", "+5", "007", "9223372036854775807", "[5]"]),
        ("request_percentage", ["0", "-1", "12.3", "NaN", "Infinity", "1e3", "5d", "10000000"]),
    ],
)
def test_texts_are_stored_as_they_are(tool: Tool, chroot: str, znodes: Any, key: str, values: Sequence[str]) -> None:
    for value in values:
        assert tool("--zookeeper", chroot, "--user", "u", "--alter", "--add-config", f"{key}={value}").code == 0
        assert znodes.get("/config/users/u")[0] == node(**{key: value.strip("[]")})


@pytest.mark.parametrize(
    ("entity", "pair", "message"),
    [
        ("--user u", "producer_byte_rate=1.5", "Invalid value 1.5 for configuration producer_byte_rate: {}LONG"),
        ("--user u", "producer_byte_rate=1e3", "Invalid value 1e3 for configuration producer_byte_rate: {}LONG"),
        ("--user u", "producer_byte_rate=", "Invalid value  for configuration producer_byte_rate: {}LONG"),
        ("--user u", "producer_byte_rate=9223372036854775808",
         "Invalid value 9223372036854775808 for configuration producer_byte_rate: {}LONG"),
        ("--client c", "request_percentage=nan", "Invalid value nan for configuration request_percentage: {}DOUBLE"),
        ("--user u", "request_percentage=x,consumer_byte_rate=y",
         "Invalid value y for configuration consumer_byte_rate: {}LONG"),
        ("--ip 1.2.3.4", "connection_creation_rate=-01",
         "Invalid value -01 for configuration connection_creation_rate: Value must be at least 0"),
        ("--ip 1.2.3.4", "connection_creation_rate=2147483648",
         "Invalid value 2147483648 for configuration connection_creation_rate: {}INT"),
    ],
)  # fmt: skip
def test_values_that_kafka_cannot_parse(
    tool: Tool, chroot: str, znodes: Any, entity: str, pair: str, message: str
) -> None:
    line = f"--zookeeper {chroot} {entity} --alter --add-config {pair}"
    assert tool(line) == Ran(1, WARNING, f"{message.format('Not a number of type ')}\n")
    assert znodes.exists("/config") is None


@pytest.mark.parametrize(
    ("entity", "pairs", "unknown"),
    [
        ("--user u", "foo=1,bar=2", "bar, foo"),
        ("--user u", "=5", ""),
        ("--user u", "connection_creation_rate=1", "connection_creation_rate"),
        ("--client c", "SCRAM-SHA-256=[password=x]", "SCRAM-SHA-256"),
        ("--user-defaults", "SCRAM-SHA-256=[password=x]", "SCRAM-SHA-256"),
        ("--user u --client c", "SCRAM-SHA-512=[password=x]", "SCRAM-SHA-512"),
        ("--ip 1.2.3.4", "producer_byte_rate=1", "producer_byte_rate"),
    ],
)
def test_unknown_keys(tool: Tool, chroot: str, znodes: Any, entity: str, pairs: str, unknown: str) -> None:
    ran = tool(f"--zookeeper {chroot} {entity} --alter --add-config {pairs}")
    assert ran == Ran(1, WARNING, f"Unknown Dynamic Configuration: {unknown}.\n")
    assert znodes.exists("/config") is None


def test_the_rest_of_a_node_is_kept(tool: Tool, chroot: str, znodes: Any) -> None:
    scram = "salt=a,stored_key=b,server_key=c,iterations=4096"
    znodes.create("/config/users/u", node(SCRAM__SHA__256=scram, consumer_byte_rate="2"), makepath=True)
    line = f"--zookeeper {chroot} --user u --alter"
    assert tool(f"{line} --add-config request_percentage=3,producer_byte_rate=1").code == 0
    everything = {"SCRAM__SHA__256": scram, "request_percentage": "3", "producer_byte_rate": "1"}
    assert znodes.get("/config/users/u")[0] == node(**everything, consumer_byte_rate="2")
    described = f"Configs for user-principal 'u' are SCRAM-SHA-256={scram},request_percentage=3,producer_byte_rate=1,"
    assert tool(f"--zookeeper {chroot} --describe --user u").out == f"{WARNING}{described}consumer_byte_rate=2\n"
    both = "--delete-config producer_byte_rate,request_percentage --add-config producer_byte_rate=7"
    assert tool(f"{line} {both}").code == 0
    assert znodes.get("/config/users/u")[0] == node(SCRAM__SHA__256=scram, consumer_byte_rate="2")


def test_an_unknown_key_that_is_there_blocks_until_it_is_deleted(tool: Tool, chroot: str, znodes: Any) -> None:
    znodes.create("/config/users/u", node(foo="bar"), makepath=True)
    line = f"--zookeeper {chroot} --user u --alter"
    blocked = tool(f"{line} --add-config producer_byte_rate=1")
    assert blocked.first == "Unknown Dynamic Configuration: foo."
    assert tool(f"{line} --delete-config foo --add-config producer_byte_rate=1").code == 0
    assert znodes.get("/config/users/u")[0] == node(producer_byte_rate="1")


@pytest.mark.parametrize("data", [b"", b"not json", b"[1]", b'{"version":1}', b'{"version":1,"config":null}'])
def test_data_that_is_no_config_counts_as_none(tool: Tool, chroot: str, znodes: Any, data: bytes) -> None:
    znodes.create("/config/users/u", data, makepath=True)
    assert tool(f"--zookeeper {chroot} --describe --user u").out == f"{WARNING}Configs for user-principal 'u' are \n"
    assert tool(f"--zookeeper {chroot} --user u --alter --add-config producer_byte_rate=1").code == 0
    assert znodes.get("/config/users/u")[0] == node(producer_byte_rate="1")


@pytest.mark.parametrize("value", ["1024", "null", '{"a": [true]}'])
def test_a_value_that_is_no_string_is_an_error(tool: Tool, chroot: str, znodes: Any, value: str) -> None:
    znodes.create("/config/users/u", f'{{"version":1,"config":{{"k":{value}}}}}'.encode(), makepath=True)
    ran = tool(f"--zookeeper {chroot} --describe --user u")
    assert (ran.code, ran.out) == (1, WARNING)
    assert ran.err.startswith("the value of k in ZooKeeper is no text: ")


@pytest.fixture
def nine(znodes: Any) -> None:
    """Nine entities, each with its own value; u2 has none."""
    paths = ["users/u1", "users/<default>", "clients/c1", "clients/<default>", "ips/<default>"]
    paths += [f"users/{user}/clients/{client}" for user in ("u1", "<default>") for client in ("c1", "<default>")]
    for number, path in enumerate(paths):
        znodes.create(f"/config/{path}", node(k=str(number)), makepath=True)
    znodes.create("/config/users/u2", b'{"version":1,"config":{}}')


U1, DU, C1, DC = "user-principal 'u1'", "default user-principal", "client-id 'c1'", "default client-id"
PAIRS = {f"{U1}, {C1} are k=5", f"{U1}, {DC} are k=6", f"{DU}, {C1} are k=7", f"{DU}, {DC} are k=8"}


@pytest.mark.usefixtures("nine")
@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("--entity-type users", {f"{U1} are k=0", f"{DU} are k=1"}),
        ("--entity-type clients", {f"{C1} are k=2", f"{DC} are k=3"}),
        ("--entity-type ips", {"default ips are k=4"}),
        ("--entity-type users --entity-type clients", PAIRS),
        ("--entity-type clients --entity-type users", PAIRS),
        ("--entity-type users --entity-name u1 --entity-type clients", {f"{U1}, {C1} are k=5", f"{U1}, {DC} are k=6"}),
        ("--entity-type users --entity-default --entity-type clients", {f"{DU}, {C1} are k=7", f"{DU}, {DC} are k=8"}),
        # Kafka takes the name for the user's.
        ("--entity-type clients --entity-name c1 --entity-type users", set()),
        ("--entity-type clients --entity-default --entity-type users", {f"{DU}, {C1} are k=7", f"{DU}, {DC} are k=8"}),
        ("--entity-type clients --entity-name u1 --entity-type users", {f"{U1}, {C1} are k=5", f"{U1}, {DC} are k=6"}),
        ("--user u2", {"user-principal 'u2' are "}),
        ("--entity-type users --entity-name u1 --entity-name more", {f"{U1} are k=0"}),
        ("--entity-type ips --add-config-file ignored", {"default ips are k=4"}),
    ],
)
def test_partial_describes(tool: Tool, chroot: str, line: str, lines: set[str]) -> None:
    ran = tool(f"--zookeeper {chroot} --describe {line}")
    assert (ran.code, ran.err) == (0, "")
    described = ran.out.removeprefix(WARNING).splitlines()
    assert len(described) == len(lines)
    assert {text.removeprefix("Configs for ") for text in described} == lines


def test_older_names_are_listed_decoded(tool: Tool, chroot: str, znodes: Any) -> None:
    for name in ("my client", "a+b", "my%20client"):
        znodes.create(f"/config/clients/{name}", node(k=name), makepath=True)
    lines = tool(f"--zookeeper {chroot} --describe --entity-type clients").out.removeprefix(WARNING).splitlines()
    assert sorted(lines) == [
        "Configs for client-id 'a b' are k=a+b",
        "Configs for client-id 'my client' are k=my client",
        "Configs for client-id 'my client' are k=my%20client",
    ]
    znodes.create("/config/clients/50%", node(k="1"))
    assert "client-id '50%' are k=1" in tool(f"--zookeeper {chroot} --describe --entity-type clients").out


def test_names_that_no_node_can_have(tool: Tool, chroot: str) -> None:
    for action in ("--describe", "--alter --add-config producer_byte_rate=1"):
        ran = tool(f"--zookeeper {chroot} {action} --user ..")
        assert (ran.code, ran.out, len(ran.err.splitlines())) == (1, WARNING, 1)


def test_a_chroot_that_is_not_there(tool: Tool, chroot: str) -> None:
    line = f"--zookeeper {chroot}-not"
    assert tool(f"{line} --describe --entity-type users") == Ran(0, WARNING, "")
    assert tool(f"{line} --describe --user u") == Ran(0, f"{WARNING}Configs for user-principal 'u' are \n", "")
    alter = f"{line} --user u --alter --add-config"
    assert tool(f"{alter} producer_byte_rate=1") == Ran(
        1, WARNING, "kquota: there is no chroot /{1}-not in ZooKeeper at {0}\n".format(*chroot.split("/"))
    )
    assert tool(f"{alter} a==") == Ran(1, WARNING, f"{FORMAT}\n")


def test_a_name_for_each_type(tool: Tool, chroot: str) -> None:
    message = "--entity-name or --entity-default must be specified with each --entity-type for --alter\n"
    words = "--alter --entity-type users --entity-name u --entity-type clients --add-config producer_byte_rate=1"
    assert tool(f"--zookeeper {chroot} {words}") == Ran(1, WARNING, message)


def test_a_file_of_configs(tool: Tool, chroot: str, znodes: Any, tmp_path: Path) -> None:
    file = tmp_path / "quotas.properties"
    words = ("--zookeeper", chroot, "--user", "u", "--alter", "--add-config-file", str(file))
    file.write_text("# quotas\n! more\nproducer_byte_rate: 20\\\n  48  \nrequest_percentage 5\n")
    assert tool(*words).code == 0
    # Kafka's own tool would store "2048  ", on which brokers stop when they start.
    assert znodes.get("/config/users/u")[0] == node(request_percentage="5", producer_byte_rate="2048")
    file.write_text("producer_byte_rate=[1]\n")
    message = "Invalid value [1] for configuration producer_byte_rate: Not a number of type LONG"
    assert tool(*words).err == f"{message}\n"
    file.write_text("a=\\u12\n")
    assert tool(*words).code == 1
    file.write_text("")
    words = ("--zookeeper", chroot, "--user", "v", "--alter", "--add-config-file", str(file))
    assert tool(*words).out == f"{WARNING}Completed updating config for entity: user-principal 'v'.\n"
    assert znodes.get("/config/users/v")[0] == b'{"version":1,"config":{}}'
    assert notifications(znodes) == ["users/u", "users/v"]


def test_later_tools_change_no_quotas_in_zookeeper(tool: Tool, chroot: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KQUOTA_KAFKA_CONFIGS", "current")
    line = f"--zookeeper {chroot} --alter --user u --add-config producer_byte_rate=1"
    assert tool(line).first.startswith("--bootstrap-server must be specified to update users")
    assert tool(f"{line} --delete-config consumer_byte_rate").code == 1


def test_later_tools_delete_a_node_with_its_last_credential(
    tool: Tool, chroot: str, znodes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka since 3.5 (KAFKA-14285); the node of a user with pairs stays, empty."""
    line = f"--zookeeper {chroot} --alter --delete-config SCRAM-SHA-256 --user"
    znodes.create("/config/users/a", node(SCRAM__SHA__256="x"), makepath=True)
    znodes.create("/config/users/b/clients/c", node(producer_byte_rate="1"), makepath=True)
    znodes.set("/config/users/b", node(SCRAM__SHA__256="x"))
    znodes.create("/config/users/d", node(SCRAM__SHA__256="x"))
    assert tool(f"{line} d").code == 0
    assert znodes.get("/config/users/d")[0] == node()
    monkeypatch.setenv("KQUOTA_KAFKA_CONFIGS", "current")
    assert tool(f"{line} a").code == tool(f"{line} b").code == 0
    assert znodes.exists("/config/users/a") is None
    assert znodes.get("/config/users/b")[0] == node()
    assert notifications(znodes) == ["users/d", "users/a", "users/b"]


def test_another_writer_is_not_overwritten(chroot: str, znodes: Any) -> None:
    znodes.create("/config/users/u", node(a="1"), makepath=True)
    seen = []

    def change(data: bytes | None) -> dict[str, str]:
        seen.append(data)
        if len(seen) == 1:
            znodes.set("/config/users/u", node(a="2"))
        return {**json.loads(data or b"")["config"], "b": "3"}

    with RawConfigs(chroot) as raw:
        raw.change(Entity(user="u"), change)
    assert seen == [node(a="1"), node(a="2")]
    assert znodes.get("/config/users/u")[0] == node(a="2", b="3")
    assert notifications(znodes) == ["users/u"]


def test_nothing_is_written_while_migrating(tool: Tool, chroot: str, znodes: Any) -> None:
    znodes.create("/controller", b'{"version":2,"brokerid":3000,"kraftControllerEpoch":7}')
    ran = tool(f"--zookeeper {chroot} --user u --alter --add-config producer_byte_rate=1")
    assert (ran.code, ran.out) == (1, WARNING)
    assert ran.err.startswith("kquota: the cluster at ")
    assert "is migrating to KRaft (kraftControllerEpoch 7)" in ran.err
    assert znodes.exists("/config") is None
    with RawConfigs(chroot) as raw, pytest.raises(Rejected):
        raw.change(Entity(user="u"), lambda _: {})


def test_a_byte_order_mark_hides_nothing(tool: Tool, chroot: str, znodes: Any) -> None:
    """Jackson skips it; an alter keeps the other keys."""
    znodes.create("/config/users/u", b"\xef\xbb\xbf" + node(producer_byte_rate="1"), makepath=True)
    line = f"--zookeeper {chroot} --user u"
    assert tool(f"{line} --describe").out == f"{WARNING}Configs for user-principal 'u' are producer_byte_rate=1\n"
    assert tool(f"{line} --alter --add-config consumer_byte_rate=2").code == 0
    assert znodes.get("/config/users/u")[0] == node(producer_byte_rate="1", consumer_byte_rate="2")


def test_since_3_9_an_empty_change_of_nobody_makes_no_node(
    tool: Tool, chroot: str, znodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka deletes what holds nothing, which is nobody here, and notifies the brokers all the same."""
    monkeypatch.setenv("KQUOTA_KAFKA_CONFIGS", "3.9")
    empty = tmp_path / "empty.properties"
    empty.write_text("")
    words = ["--zookeeper", chroot, "--alter", "--entity-type", "users", "--entity-name", "nobody"]
    assert tool(*words, "--add-config-file", str(empty)).code == 0
    assert znodes.exists("/config/users/nobody") is None
    assert notifications(znodes) == ["users/nobody"]
