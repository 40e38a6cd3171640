"""Help is complete and tells the truth."""

from __future__ import annotations

import click
import pytest

from kquota.cli.main import COMMANDS, cli


def command(name: str) -> click.Command:
    """The command of that name."""
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_the_short_help_is_the_commands_own(name: str) -> None:
    """It is written twice so that --help is quick."""
    assert command(name).get_short_help_str(limit=200) == COMMANDS[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_and_every_option_help(name: str) -> None:
    """As users expect of the best tools."""
    found = command(name)

    assert found.help is not None
    assert "Examples:" in found.help
    assert all(option.help for option in found.params if isinstance(option, click.Option))
