"""The command as a whole: help, version, which tool it is, and how click hands it over."""

import click
import pytest

from kquota.cli.kafka_configs import command
from tests.brokers.kafka import VERSION
from tests.cli.kafka_configs.conftest import B, Tool, Z
from tests.differential.config_command import LAST_WITH_ZOOKEEPER


@pytest.mark.parametrize("line", ["", "--help", f"{Z} --describe --user u --help"])
def test_help_is_an_error(tool: Tool, line: str) -> None:
    ran = tool(*line.split()) if line != "--help" else tool("--help")
    assert (ran.code, ran.out) == (1, "")
    assert ran.first.startswith("This tool helps to manipulate and describe entity config for a topic, client,")
    assert "--entity-default" in ran.err


@pytest.mark.parametrize(
    ("line", "version"), [("--version", VERSION), (f"{Z} --version", f"{LAST_WITH_ZOOKEEPER} (Commit:")]
)
def test_version(tool: Tool, line: str, version: str) -> None:
    """The releases that the tests compare with."""
    ran = tool(line)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(version)


def test_the_environment_is_explained(tool: Tool) -> None:
    assert "KQUOTA_KAFKA_CONFIGS_JOURNAL " in tool("--help").err


def test_click_leaves_the_words_alone(capsys: pytest.CaptureFixture[str]) -> None:
    group = click.Group("kquota", commands={"kafka-configs": command})
    argv = ["kafka-configs", *B.split(), "--describe", "-user", "--", "--user", "--help"]
    assert group.main(argv, standalone_mode=False) == 1
    assert capsys.readouterr().err.startswith("Found multiple arguments for option user")
