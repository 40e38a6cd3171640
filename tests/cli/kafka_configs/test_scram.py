"""Credentials in ZooKeeper: made as Kafka makes them, shown as Kafka shows them but on terminals."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest

from kquota.cli.kafka_configs.failures import Refusal
from kquota.cli.kafka_configs.scram import stored_credential
from tests.cli.kafka_configs.conftest import WARNING, Ran, Tool, node


def test_credentials_are_made_as_kafka_makes_them(tool: Tool, chroot: str, znodes: Any) -> None:
    line = f"--zookeeper {chroot} --user u --alter --add-config"
    assert tool(f"{line} SCRAM-SHA-512=[iterations=5000,password=s],producer_byte_rate=1").code == 0
    config = json.loads(znodes.get("/config/users/u")[0])["config"]
    assert list(config) == ["SCRAM-SHA-512", "producer_byte_rate"]
    assert re.fullmatch(r"salt=\S+=*,stored_key=\S{88},server_key=\S{88},iterations=5000", config["SCRAM-SHA-512"])
    few = "Iterations 1 is less than the minimum 4096 required for SCRAM_SHA_512\n"
    assert tool(f"{line} SCRAM-SHA-512=[iterations=1,password=s]") == Ran(1, WARNING, few)
    assert stored_credential("SCRAM-SHA-256", "password=s").endswith(",iterations=4096")
    for wrong, message in (
        ("pasword=s", "Invalid credential property SCRAM_SHA_256=********"),
        ("iterations=abc", "Invalid credential property SCRAM_SHA_256=iterations=abc"),
        ("iterations=8192", "Invalid credential property SCRAM_SHA_256=iterations=8192"),
        ("iterations=8192,pasword=s", "Invalid credential property SCRAM_SHA_256=iterations=8192,********"),
        ("iterations=8k,password=s", "Invalid credential property SCRAM_SHA_256=iterations=8k,password=********"),
        ("", "Invalid credential property SCRAM_SHA_256="),
        ("iterations=,password=s", 'For input string: ""'),
        ("password=", "Empty key"),
        ("iterations=8192,password=", "Empty key"),
        ("iterations=1,password=", "Iterations 1 is less than the minimum 4096 required for SCRAM_SHA_256"),
        ("iterations=99999999999,password=s", 'For input string: "99999999999"'),
    ):
        with pytest.raises(Refusal, match=f"^{re.escape(message)}$"):
            stored_credential("SCRAM-SHA-256", wrong)


def test_an_empty_password_is_no_credential(tool: Tool, chroot: str, znodes: Any) -> None:
    """As where the variable of a script is empty."""
    line = f"--zookeeper {chroot} --user u --alter --add-config SCRAM-SHA-256=[password=]"
    assert tool(line) == Ran(1, WARNING, "Empty key\n")
    assert znodes.exists("/config") is None


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
