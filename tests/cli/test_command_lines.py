"""Command lines that are none, and what people type first: each gets one answer, with the line to write."""

import pytest

from kquota.cli.grammar import Command
from kquota.cli.main import cli
from tests.cli.conftest import Kquota, commands
from tests.support.data import data_rows


@pytest.mark.parametrize(("code", "line", "advice"), data_rows("refused/kquota.txt"))
def test_what_is_refused_gets_the_line_to_write(kquota: Kquota, code: str, line: str, advice: str) -> None:
    """On stderr, and nothing is asked of the cluster."""
    cluster = "KQUOTA_BOOTSTRAP_SERVER" if "broker" in line else "KQUOTA_ZOOKEEPER"
    done = kquota(*line.split(), **{cluster: "127.0.0.1:1"})
    assert (done.code, done.out) == (int(code), "")
    assert done.err.splitlines()[-1].startswith("Error: " if code == "2" else "kquota: ")
    assert advice in done.err or advice in " ".join(done.err.split())


def test_an_option_of_another_command_is_no_advice(kquota: Kquota) -> None:
    assert "--add-config" not in kquota("describe", "--set", "x").err


def test_no_command_lets_the_last_of_several_win() -> None:
    found = dict(commands(cli))
    assert [name for name, command in found.items() if not isinstance(command, Command)] == ["kafka-configs"]
