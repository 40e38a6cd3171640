"""The tool of 2.8 on a real ZooKeeper."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kquota import Entity, Rejected
from kquota.backends.zookeeper.raw import RawConfigs
from tests.cli.conftest import Ran
from tests.cli.kafka_configs.conftest import FORMAT, WARNING, Tool, node


def notifications(znodes: Any) -> list[str]:
    """The entity paths that were notified, in order."""
    names = sorted(znodes.get_children("/config/changes"))
    return [json.loads(znodes.get(f"/config/changes/{name}")[0])["entity_path"] for name in names]


@pytest.mark.parametrize(
    ("entity", "path", "title"),
    [
        ("--client app --user alice", "users/alice/clients/app", "user-principal 'alice', client-id 'app'"),
        ("--user=", "users/<default>", "default user-principal"),
        ("--entity-type clients --entity-name c --entity-type users --entity-default", "users/<default>/clients/c",
         "default user-principal, client-id 'c'"),
        ("--ip ::1", "ips/::1", "ips '::1'"),
        ("--ip <default>", "ips/<default>", "default ips"),
    ],
)  # fmt: skip
def test_alter_and_describe(tool: Tool, chroot: str, znodes: Any, entity: str, path: str, title: str) -> None:
    """Other entities are among the recorded answers of Kafka's own tool (`tests/test_kafka_configs.py`)."""
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


def test_a_chroot_that_is_not_there(tool: Tool, chroot: str) -> None:
    line = f"--zookeeper {chroot}-not"
    assert tool(f"{line} --describe --entity-type users") == Ran(0, WARNING, "")
    assert tool(f"{line} --describe --user u") == Ran(0, f"{WARNING}Configs for user-principal 'u' are \n", "")
    alter = f"{line} --user u --alter --add-config"
    assert tool(f"{alter} producer_byte_rate=1") == Ran(
        1, WARNING, "kquota: there is no chroot /{1}-not in ZooKeeper at {0}\n".format(*chroot.split("/"))
    )
    assert tool(f"{alter} a==") == Ran(1, WARNING, f"{FORMAT}\n")


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
    file.write_text("producer_byte_rate=10MB\n")
    assert tool(*words).err.endswith("type LONG (kafka-configs reads no units: write producer_byte_rate=10000000)\n")
    file.write_text("a=\\u12\n")
    assert tool(*words).code == 1
    file.write_text("")
    words = ("--zookeeper", chroot, "--user", "v", "--alter", "--add-config-file", str(file))
    assert tool(*words).out == f"{WARNING}Completed updating config for entity: user-principal 'v'.\n"
    assert znodes.get("/config/users/v")[0] == b'{"version":1,"config":{}}'
    assert notifications(znodes) == ["users/u", "users/v"]


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


def test_credentials_are_deleted_and_not_made(tool: Tool, chroot: str, znodes: Any) -> None:
    znodes.create("/config/users/u", node(SCRAM__SHA__256="s", producer_byte_rate="1"), makepath=True)
    line = f"--zookeeper {chroot} --user u --alter"
    made = tool(f"{line} --add-config SCRAM-SHA-512=[password=s]")
    assert (made.code, made.first) == (
        1,
        "kquota: SCRAM credentials are no quotas: alter them with Kafka's own kafka-configs",
    )
    assert tool(f"{line} --delete-config SCRAM-SHA-256").code == 0
    assert znodes.get("/config/users/u")[0] == node(producer_byte_rate="1")


def test_keys_of_credentials_are_hidden_on_a_terminal(
    tool: Tool, chroot: str, znodes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scram = "salt=a,stored_key=b,server_key=c,iterations=4096"
    znodes.create("/config/users/u", node(SCRAM__SHA__256=scram, producer_byte_rate="1"), makepath=True)
    line = f"--zookeeper {chroot} --describe --user u"
    shown = f"{WARNING}Configs for user-principal 'u' are SCRAM-SHA-256={{}},producer_byte_rate=1\n"
    assert tool(line).out == shown.format(scram)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert tool(line).out == shown.format("[hidden]")
