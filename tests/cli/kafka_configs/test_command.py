"""The command as a whole: help, version, which tool it is, and how click hands it over."""

from __future__ import annotations

import click
import pytest

from kquota.cli.kafka_configs import command
from tests.cli.kafka_configs.conftest import B, Ran, Tool, Z


@pytest.mark.parametrize("line", ["", "--help", f"{Z} --describe --user u --help"])
def test_help_is_an_error(tool: Tool, line: str) -> None:
    ran = tool(*line.split()) if line != "--help" else tool("--help")
    assert (ran.code, ran.out) == (1, "")
    assert ran.first.startswith("This tool helps to manipulate and describe entity config for a topic, client,")
    assert "--entity-default" in ran.err


@pytest.mark.parametrize(("line", "version"), [("--version", "4."), (f"{Z} --version", "2.8.0 (Commit:")])
def test_version(tool: Tool, line: str, version: str) -> None:
    ran = tool(line)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(version)


def test_the_environment_chooses_the_tool(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KQUOTA_KAFKA_CONFIGS", "current")
    refused = "Invalid entity type ips, the entity type must be one of users, brokers with a --zookeeper argument\n"
    assert tool(f"{Z} --describe --entity-type ips") == Ran(1, "", refused)
    monkeypatch.setenv("KQUOTA_KAFKA_CONFIGS", "1.0")
    assert tool("--version").first == "kquota: KQUOTA_KAFKA_CONFIGS is '1.0', not one of 2.8, current"


def test_click_leaves_the_words_alone(capsys: pytest.CaptureFixture[str]) -> None:
    group = click.Group("kquota", commands={"kafka-configs": command})
    argv = ["kafka-configs", *B.split(), "--describe", "-user", "--", "--user", "--help"]
    assert group.main(argv, standalone_mode=False) == 1
    assert capsys.readouterr().err.startswith("Found multiple arguments for option user")
