"""One way out: a command's answer is printed in one place, and that place knows how tables are laid out."""

import click
import pytest
from click.testing import CliRunner, Result

from kquota.cli.streams import warn
from kquota.cli.text import Column, sort_key
from kquota.cli.views import Csv, Note, Table, View, shown_as


@click.command()
@shown_as("table", "json", "yaml", "csv", "name")
def answer() -> View:
    """An answer in each format; only one of them is computed."""
    rows = [("bob", "10 MB/s"), ("bob", "-"), ("alice", "9 kB/s")]
    headings = [Column("WHO", once=True), Column("LIMIT (B)", number=True)]
    return View(
        screen=lambda: [Note("3 rows"), Table(headings, rows), Note("be careful", by=warn)],
        document=lambda: {"kind": "answer"},
        csv=lambda: Csv(("who", "limit"), rows),
        others={"name": lambda: ["alice", "bob"]},
        code=1,
    )


@click.command()
@shown_as("text", "json")
def lines() -> View:
    return View(screen=lambda: ["one", "two"], document=lambda: iter([{"n": 1}, {"n": 2}]))


def run(command: click.Command, *arguments: str) -> Result:
    return CliRunner().invoke(command, arguments, standalone_mode=False)


@pytest.mark.parametrize(
    ("arguments", "out"),
    [
        ([], "WHO    LIMIT (B)\nbob      10 MB/s\n               -\nalice     9 kB/s\n"),
        (["-o", "json"], '{\n  "kind": "answer"\n}\n'),
        (["-o", "yaml"], "kind: answer\n"),
        (["-o", "csv"], "who,limit\nbob,10 MB/s\nbob,-\nalice,9 kB/s\n"),
        (["-o", "name"], "alice\nbob\n"),
        (["--no-headers"], "bob    10 MB/s\n             -\nalice   9 kB/s\n"),
        (["--sort-by", "limit"], "WHO    LIMIT (B)\nbob            -\nalice     9 kB/s\nbob      10 MB/s\n"),
        (["--sort-by", "-limit (b)"], "WHO    LIMIT (B)\nbob      10 MB/s\nalice     9 kB/s\nbob            -\n"),
        (["--sort-by", "WHO", "-o", "csv", "--no-headers"], "alice,9 kB/s\nbob,10 MB/s\nbob,-\n"),
    ],
)
def test_an_answer_in_each_format(arguments: list[str], out: str) -> None:
    """Each format, with and without headings, and in the order of a column: amounts by their size."""
    ran = run(answer, *arguments)
    assert ran.exception is None
    assert (ran.stdout, ran.return_value) == (out, 1)
    is_screen = "-o" not in arguments
    assert ran.stderr == ("3 rows\nkquota: warning: be careful\n" if is_screen else "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sort-by", "who", "-o", "json"], "--sort-by is for tables: -o table or csv"),
        (["--no-headers", "-o", "name"], "--no-headers is for tables: -o table or csv"),
    ],
)
def test_what_cannot_be_laid_out_is_a_usage_error(arguments: list[str], message: str) -> None:
    """It is said before anything is printed."""
    ran = run(answer, *arguments)
    assert isinstance(ran.exception, click.UsageError)
    assert (ran.exception.message, ran.output) == (message, "")


def test_documents_by_the_line() -> None:
    """An iterator of documents is JSON lines; a command without tables has no options of tables."""
    assert run(lines, "-o", "json").stdout == '{"n": 1}\n{"n": 2}\n'
    assert run(lines).stdout == "one\ntwo\n"
    assert isinstance(run(lines, "--no-headers").exception, click.NoSuchOption)


def sort_again(cells: list[str]) -> list[str]:
    """The cells in the order of a table, from the opposite one."""
    turned = [*reversed(cells)]
    turned.sort(key=sort_key)
    return turned


def test_cells_in_their_order() -> None:
    """Amounts by their size whatever their unit, before texts; names that begin with a digit are texts."""
    ordered = [
        *("", "398 ms", "12.5 s", "2 min 5 s", "3 h 3 min", "64 days", "unlimited"),
        *("10.0.0.7", "2026-01-01 09:00:00", "alice", "Bob", "clara"),
    ]
    assert sort_again(ordered) == ordered
    sizes = ["-", "0 B/s", "999 B/s", "1 kB/s", "1 KiB/s", "2 MB/s", "2 MiB/s", "1 GB/s", "unlimited"]
    assert sort_again(sizes) == sizes
    assert sorted(["1,500", "900", "120 %", "45%"], key=sort_key) == ["45%", "120 %", "900", "1,500"]
