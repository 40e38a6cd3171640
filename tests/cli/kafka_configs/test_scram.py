"""Credentials in ZooKeeper: made as Kafka makes them, shown as Kafka shows them but on terminals."""

import json
import re
import sys
from typing import Any

import pytest

from kquota.cli.kafka_configs.options import Refusal
from kquota.cli.kafka_configs.zookeeper import stored_credential
from tests.cli.kafka_configs.conftest import WARNING, Tool, node


def test_credentials_are_made_as_kafka_makes_them(tool: Tool, chroot: str, znodes: Any) -> None:
    line = f"--zookeeper {chroot} --user u --alter --add-config"
    assert tool(f"{line} SCRAM-SHA-512=[iterations=5000,password=s],producer_byte_rate=1").code == 0
    config = json.loads(znodes.get("/config/users/u")[0])["config"]
    assert list(config) == ["SCRAM-SHA-512", "producer_byte_rate"]
    assert re.fullmatch(r"salt=\S+=*,stored_key=\S{88},server_key=\S{88},iterations=5000", config["SCRAM-SHA-512"])
    assert tool(f"{line} SCRAM-SHA-512=[iterations=1,password=s]").first.startswith("Iterations 1 is less than")
    assert stored_credential("SCRAM-SHA-256", "password=s").endswith(",iterations=4096")


@pytest.mark.parametrize(
    "wrong",
    [
        *("pasword=s", "iterations=8192", "iterations=8192,pasword=s", "iterations=8k,password=s", "", "password="),
        *("iterations=,password=s", "iterations=1,password=s", "iterations=99999999999,password=s"),
    ],
)
def test_wrong_credentials_are_refused_and_not_shown(wrong: str) -> None:
    """An empty password among them, as where the variable of a script is empty."""
    with pytest.raises(Refusal) as refused:
        stored_credential("SCRAM-SHA-256", wrong)
    assert "=s" not in str(refused.value)


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
