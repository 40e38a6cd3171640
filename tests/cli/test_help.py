"""Help is complete and tells the truth."""

import json
import re
from pathlib import Path

import click
import pytest
from jsonschema import Draft202012Validator

from kquota.cli import grammar
from kquota.cli.commands.help import TOPICS, text_of
from kquota.cli.main import ALIASES, COMMANDS, GROUPS, cli
from kquota.cli.params import ClusterOption
from kquota.documents.encoding import schema
from tests.cli.conftest import Kquota

SCHEMAS = Path(__file__).parents[2] / "schemas"


def command(name: str) -> click.Command:
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


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_at_most_twenty_options_and_help_all_the_others(name: str) -> None:
    found = command(name)
    whole = click.Context(found)
    whole.meta[grammar.ALL_OPTIONS] = True
    every, usual = (
        set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", found.get_help(context), re.MULTILINE))
        for context in (whole, click.Context(found))
    )
    assert len(usual - {"--help", "--help-all", "--bootstrap-server", "--quiet"}) <= 20
    assert (usual - {"--help-all"} < every) == ("--help-all" in usual)
    shown = {option.opts[-1] for option in found.params if isinstance(option, click.Option)}
    assert every - shown <= {"--help", "--client", "--format"}


def test_help_all_is_one_more_help(kquota: Kquota) -> None:
    done = kquota("alter", "--help-all")
    assert (done.code, done.err) == (0, "")
    assert "--entity-type" in done.out
    assert "--entity-type" not in kquota("alter", "--help").out


def test_a_newcomer_is_shown_three_commands(kquota: Kquota) -> None:
    done = kquota()
    assert (done.code, done.out) == (2, "")
    assert [line.split()[1] for line in done.err.splitlines() if line.startswith("  ")] == [
        "describe",
        "resolve",
        "alter",
    ]


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_is_a_short_readable_page(kquota: Kquota, topic: str) -> None:
    done = kquota("help", topic)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert text_of(topic).removeprefix("# ").splitlines()[0] == lines[0].removeprefix("# ")  # a file's is a comment
    assert len(lines) <= (112 if topic in ("kip", "glossary", "columns", "connection") else 52)  # lists to look up in
    too_wide = [line for line in text_of(topic).splitlines() if len(line) > 80]  # only what is to be copied
    assert [line for line in too_wide if not re.match(" {4}(kquota|scp|docker|kubectl|awk|  - )", line)] == []
    # What it mentions is there.
    for name in re.findall(r"kquota help ([a-z-]+)", done.out.replace("\n", " ")):
        assert name in TOPICS
    for name in re.findall(r"kquota ([a-z]+)", done.out.replace("\n", " ")):
        assert name in COMMANDS


def test_the_options_of_the_cluster_stand_once(kquota: Kquota) -> None:
    """A command's help refers to the topic, which has each of them; Tab completes them all the same."""
    for name in ("describe", "alter", "audit", "simulate"):
        text = " ".join(kquota(name, "--help").out.split())
        assert "see 'kquota help connection'" in text
        assert "KQUOTA_BOOTSTRAP_SERVER" not in text
    topic = kquota("help", "connection").out
    options = [param for param in command("describe").params if isinstance(param, ClusterOption)]
    assert len(options) == 8
    for option in options:
        assert f"  {option.opts[0]} " in topic
        assert not option.envvar or str(option.envvar) in topic
    completed = command("describe").shell_complete(click.Context(command("describe"), info_name="describe"), "--boot")
    assert {item.value for item in completed} == {"--bootstrap-server", "--bootstrap-controller"}
    assert "connection" not in kquota("schema", "--help").out


def test_help_of_commands(kquota: Kquota) -> None:
    assert kquota("help").out.startswith(kquota("--help").out)
    assert kquota("help", "alter").out == kquota("alter", "--help").out


def test_every_schema_is_one_and_is_printed(kquota: Kquota) -> None:
    names = [line.split()[0] for line in kquota("schema").out.splitlines()]
    assert names == sorted(file.name.removesuffix(".schema.json") for file in SCHEMAS.glob("*.json"))
    for name in names:
        Draft202012Validator.check_schema(schema(name))
        assert schema(name)["title"]
    assert len({line.index(schema(line.split()[0])["title"]) for line in kquota("schema").out.splitlines()}) == 1
    assert json.loads(kquota("schema", "quotas").out) == schema("quotas")


@pytest.mark.parametrize("name", ["config", "migrate", "sandbox"])
def test_a_group_says_all_of_its_commands(kquota: Kquota, name: str) -> None:
    group = command(name)
    assert isinstance(group, click.Group)
    text = " ".join(kquota(name, "--help").out.split())
    for child in group.commands.values():
        assert child.get_short_help_str(limit=200) in text


@pytest.mark.parametrize("alias", ALIASES)
def test_words_that_people_try(kquota: Kquota, alias: str) -> None:
    """The command that is meant runs, and a note names it."""
    done = kquota(alias, "--help")
    assert (done.code, done.err) == (0, f"'kquota {alias}' is 'kquota {ALIASES[alias]}'\n")
    assert f"Usage: kquota {ALIASES[alias]} " in done.out


def test_every_command_is_in_one_group() -> None:
    assert sorted(COMMANDS) == sorted(name for group in GROUPS.values() for name in group)
    assert not ALIASES.keys() & COMMANDS.keys()


def test_options_of_the_cluster_that_a_command_lists_itself(kquota: Kquota) -> None:
    """Its help does not say that they are elsewhere."""
    assert "kquota help connection" not in kquota("config", "set-context", "--help").out
    assert "kquota help connection" in kquota("describe", "--help").out
