"""The options that go with every command: what --quiet leaves out, and where --color colours."""

from pathlib import Path

import click
import pytest

from kquota.cli.main import COMMANDS, cli
from kquota.cli.streams import warn, warned
from tests.cli.conftest import Kquota
from tests.cli.terminal import on_terminal
from tests.support.data import data_text

ESCAPE = "\x1b["
QUOTAS = data_text("cli/streams.yaml")
EMPTY = "{kind: kquota.quotas, version: 1, quotas: []}"


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    (tmp_path / "quotas.yaml").write_text(QUOTAS)
    (tmp_path / "empty.yaml").write_text(EMPTY)
    (tmp_path / "usage.csv").write_text(
        "time_ms,broker,user,client_id,api,bytes,throttle_time_ms\n1773219600000,1,alice,app,produce,10,0\n"
    )


PLAN = ("plan", "quotas.yaml", "--quotas", "empty.yaml")
COLOURED = (
    PLAN,
    ("diff", "empty.yaml", "quotas.yaml"),
    ("lint", "quotas.yaml"),
    ("describe", "--help"),
    ("resolve", "--user", "alice", "--quotas", "quotas.yaml"),
    ("resolve", "--user", "alice", "--quotas", "quotas.yaml", "-o", "tree"),
)


@pytest.mark.parametrize(
    ("arguments", "note"),
    [
        (PLAN, "2 entities to create, 0 to update, 0 to delete; limits are per broker\n"),
        (("diff", "quotas.yaml", "quotas.yaml"), "no difference\n"),
        (("lint", "empty.yaml"), "nothing found\n"),
        (
            ("history", "--journal", "journal"),
            "no entries in the journal journal; journals of other people are not seen"
            " (--journal cluster is one for all of them)\n",
        ),
        (("resolve", "--who", "user=alice", "--quotas", "quotas.yaml"), "user=alice governs 2 of 2 known clients\n"),
        (
            ("audit", "usage.csv", "--quotas", "quotas.yaml"),
            "nobody throttled by 1 counter (2 quotas set: 1 not throttled, 1 nobody seen)\n"
            "quotas: quotas.yaml (2 set); 1 request read, 0 without a quota, 0 exempt (local engine)\n"
            "nobody seen whom these govern: user=<default> consumer_byte_rate\n",
        ),
        (
            ("recommend", "usage.csv", "--quotas", "quotas.yaml", "--key", "producer_byte_rate"),
            "1 quota: 1 kept; every value holds per broker\n"
            "nobody seen whom these govern: user=<default> consumer_byte_rate\n"
            "next: -o yaml writes a quotas file, with the reason for each value; 'kquota plan' reads it\n",
        ),
        (("sandbox", "stop", "--dir", "sandbox"), "not running\n"),
    ],
)
def test_quiet_leaves_out_what_is_no_answer(kquota: Kquota, arguments: tuple[str, ...], note: str) -> None:
    said = kquota(*arguments)
    before, after = kquota("--quiet", *arguments), kquota(*arguments, "--quiet")
    assert (said.code, said.err) == (0, note)
    assert (before.code, before.out, before.err) == (after.code, after.out, after.err) == (0, said.out, "")


def test_quiet_apply_says_nothing_unless_it_goes_wrong(kquota: Kquota, chroot: str) -> None:
    there = {"KQUOTA_ZOOKEEPER": chroot, "KQUOTA_JOURNAL": "journal"}
    done = kquota("apply", "quotas.yaml", "--yes", "--quiet", **there)
    assert (done.code, done.err) == (0, "")
    assert "producer_byte_rate" in done.out
    done = kquota("apply", "empty.yaml", "--prune", "--quiet", **there)
    assert done.code == 8
    assert "would be deleted" in done.err
    assert "stdin is not a terminal" in done.err


def test_warnings_are_kept_for_the_documents_of_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """Each once, and none that is over by then; outside of a command line there is nobody to keep them for."""
    with click.Context(click.Command("audit")):
        for text in ("a file was left out", "falling behind", "a file was left out"):
            warn(text, kept=text != "falling behind")
        assert warned() == ["a file was left out"]
    assert warned() == []
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_quiet_keeps_warnings(kquota: Kquota, tmp_path: Path) -> None:
    (tmp_path / "quotas.yaml").write_text(QUOTAS.replace("quotas:", "protected: [{user: alice}]\nquotas:"))
    assert "warning: apply will refuse this" in kquota(*PLAN, "--quiet").complaint


@pytest.mark.parametrize("arguments", COLOURED)
def test_a_pipe_is_coloured_when_asked_only(kquota: Kquota, arguments: tuple[str, ...]) -> None:
    plain = kquota(*arguments, NO_COLOR="")
    assert ESCAPE not in plain.out + plain.err
    coloured = kquota(*arguments, "--color", "always", NO_COLOR="1", TERM="dumb")
    assert (ESCAPE in coloured.out) == ("--help" not in arguments)
    assert coloured.code == plain.code
    assert [line.rstrip() for line in click.unstyle(coloured.out).splitlines()] == plain.out.splitlines()
    assert kquota("--color", "always", *arguments).out == kquota(*arguments, "--color", "always").out
    assert kquota("--color", "always", *arguments, "--color", "never").out == plain.out


@pytest.mark.parametrize("order", [(), ("--sort-by", "key"), ("--sort-by", "-key")])
def test_rows_keep_their_colour_when_they_are_sorted(kquota: Kquota, tmp_path: Path, order: tuple[str, ...]) -> None:
    """What is created is green, what is updated yellow and what is deleted red, wherever its row stands."""
    values = "producer_byte_rate: 1MB, request_percentage: 50"
    (tmp_path / "live.yaml").write_text(QUOTAS.replace("producer_byte_rate: 1MB", values))
    values = "consumer_byte_rate: 2MB, request_percentage: 60"
    (tmp_path / "quotas.yaml").write_text(QUOTAS.replace("producer_byte_rate: 1MB", values))
    shown = kquota("plan", "quotas.yaml", "--quotas", "live.yaml", "--prune", *order, "--color", "always").out
    _, *rows = shown.splitlines()
    colours = {"+": f"{ESCAPE}32m", "~": f"{ESCAPE}33m", "-": f"{ESCAPE}31m"}
    marks = [click.unstyle(row)[0] for row in rows]
    assert sorted(marks) == ["+", "-", "~"]
    assert [row.partition("m")[0] + "m" for row in rows] == [colours[mark] for mark in marks]


@pytest.mark.parametrize(
    ("arguments", "options", "no_color", "coloured"),
    [
        (PLAN, [], "", True),
        (COLOURED[-1], ["--color", "auto"], "1", False),
        (PLAN, ["--color", "always"], "1", True),
        (PLAN, ["--color", "never"], "", False),
    ],
)
def test_a_terminal_is_coloured_unless_told_not_to(
    tmp_path: Path, arguments: tuple[str, ...], options: list[str], no_color: str, coloured: bool
) -> None:
    shown = on_terminal([*arguments, *options], tmp_path, NO_COLOR=no_color)
    assert "alice" in shown or "user" in shown
    assert (ESCAPE in shown) == coloured


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "kafka-configs"])
def test_every_command_takes_them(name: str) -> None:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    commands = [found, *(found.commands.values() if isinstance(found, click.Group) else [])]
    for command in commands:
        assert {"quiet", "color", "debug"} <= {param.name for param in command.params}
        assert "--quiet" in (command.epilog or "")


def test_debug_may_stand_behind_the_command(kquota: Kquota) -> None:
    done = kquota("plan", "missing.yaml", "--quotas", "empty.yaml", "--debug")
    assert done.code == 3
    assert "Traceback" in done.err
