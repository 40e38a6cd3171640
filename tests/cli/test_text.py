import contextlib
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kquota.cli.text import Column, columns_that_fit, fold, print_table, safe

cells = st.text(st.sampled_from("ab9 .[]\\ü日é"), max_size=12).map(str.strip)


@given(st.lists(st.booleans(), min_size=1, max_size=4), st.data())
@settings(deadline=None)
def test_a_table_in_a_pipe_is_that_of_rich(numbers: list[bool], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(*[cells] * len(numbers)), min_size=1, max_size=5))
    drawn, out = io.StringIO(), io.StringIO()
    console = Console(file=drawn, width=1000, highlight=False)
    table = Table(box=None, pad_edge=False)
    for number in numbers:
        table.add_column("HEAD", justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)
    with contextlib.redirect_stdout(out):
        print_table([Column("HEAD", number=number) for number in numbers], rows)

    assert out.getvalue().splitlines() == [line.rstrip() for line in drawn.getvalue().splitlines()]


def test_the_parts_of_a_cell_are_on_one_line_of_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([Column("A"), Column("B", number=True)], [(("x", "", "y"), 1), ("", 22)])

    assert capsys.readouterr().out == "A     B\nx y   1\n     22\n"


def test_control_characters_are_spelled_out() -> None:
    assert safe("a\x1b[31m\n\u202eb é") == "a\\x1b[31m\\n\\u202eb é"


def test_a_narrow_column_stays_where_a_wide_one_does_not_fit() -> None:
    columns = [Column("WHO"), Column("BROKER", spare=1), Column("AGE", spare=2)]
    assert columns_that_fit(columns, [10, 20, 5], 20) == ([0, 2], True)
    assert columns_that_fit(columns, [10, 8, 5], 20) == ([0, 1], True)
    assert columns_that_fit(columns, [30, 8, 5], 20) == ([0], False)


def test_a_column_stays_while_it_tells_rows_apart() -> None:
    columns = [Column("WHO"), Column("RATE", spare=1), Column("BROKER", spare=2, tells=True)]
    rows = [("alice", "9 MB/s", "b1"), ("alice", "8 MB/s", "b2")]
    assert columns_that_fit(columns, [10, 10, 6], 20, rows) == ([0, 2], True)
    assert columns_that_fit(columns, [10, 10, 6], 22, rows[:1]) == ([0, 1], True)


def test_a_rate_keeps_its_unit_together() -> None:
    assert fold("client-id=app1 (1 MB/s), x", 19) == ["client-id=app1", "(1 MB/s), x"]
    assert fold("of producer_byte_rate", 19) == ["of", "producer_byte_rate"]
    assert fold("/var/log/kafka", 9) == ["/var/log/", "kafka"]
