"""Tables on a terminal: they fit it, whatever its width; the answer comes first; nothing adds up waits."""

import os
import pty
import re
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import click
import pytest
from rich.cells import cell_len

from kquota.cli.findings import _delayed, audited_view
from kquota.cli.report import words
from kquota.cli.text import Column, Layout, print_table, set_layout
from kquota.cli.views import Csv, show
from kquota.core.findings.finding import Basis, Finding
from kquota.core.findings.prediction import UNKNOWN, Interval, Prediction
from kquota.core.findings.verdicts import Verdict
from tests.cli.test_report import recorded

WIDTHS = (80, 100, 120, 200)
STYLED = re.compile(r"\x1b\[[0-9;]*m")
LONG = "CN=a-rather-long-name-of-some-application,OU=platform,O=example"


def shown(width: int, printing: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that a terminal of that width gets on stdout, without their colours."""
    outer, inner = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))
    heard: list[bytes] = []

    def listen() -> None:
        try:
            while part := os.read(outer, 65536):
                heard.append(part)
        except OSError:  # the other end is closed
            pass

    listener = threading.Thread(target=listen)
    listener.start()
    with open(inner, "w", encoding="utf-8") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        printing()
    listener.join()
    os.close(outer)
    return STYLED.sub("", b"".join(heard).decode()).replace("\r\n", "\n").splitlines()


def predicted(share: float, **changes: object) -> Prediction:
    """The prediction for clients of which that share of the time is muted."""
    known = Prediction(
        "paced",
        "gaps are shorter than answers",
        "throttled",
        Interval.exactly(1e9),
        Interval(1500.0, 1800.0, 2000.0),
        Interval.exactly(share),
        Interval.exactly(40_000.0),
        Interval.exactly(50_000.0),
        Interval.exactly(95_000.0),
        Interval.exactly(900_000.0),
    )
    return replace(known, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("told", [False, True], ids=["plain", "predicted"])
def test_the_audit_fits(width: int, told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is wider than the terminal, and who, the limit and the share of delayed requests are always there."""
    result, settings = recorded()
    predictions = {found.name: predicted(0.42, times_out=True) for found in result.found} if told else {}
    result = replace(result, predictions=predictions)

    lines = shown(width, lambda: show(audited_view(result, settings, None, show_all=True), "table"), monkeypatch)

    assert max(map(cell_len, lines)) <= width
    text = "\n".join(lines)
    first = next(number for number, line in enumerate(lines) if line.startswith("WHO"))
    head = set(" ".join(lines[: first + 1]).split())
    assert {"WHO", "QUOTA", "LIMIT", "LONGEST"} <= head
    assert "DELAYED" in head
    assert "WHEN" in head or (told and width == 80)  # a range of waits takes its room
    assert {"MUTED", "DELIVERED"} <= head or not told or width < 120
    assert "producer_byte_rate" in text
    assert "of client-id=" in text
    assert "300 kB/s" in text
    assert ("42 %" in text) or not told
    assert "CLIENTS" in head or width < 200


def test_connections_are_counted_in_a_narrow_cell() -> None:
    found = replace(recorded()[0].found[0], basis=Basis.CONNECTIONS)
    assert _delayed(found) == (found.verdict.value, f"of {found.events:,}", "connections")


@pytest.mark.parametrize("width", WIDTHS)
def test_long_names_fold(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is never cut off, and makes no line too wide; columns are left out by their rank."""
    columns = [
        Column("WHO"),
        Column("LIMIT", number=True),
        Column("A", spare=1, whole=True),
        Column("B", spare=2, whole=True),
    ]
    rows = [[LONG, "300 kB/s", "a" * 40, "b" * 60]]

    lines = shown(width, lambda: print_table(columns, rows), monkeypatch)

    assert max(map(cell_len, lines)) <= width
    assert ("A" in lines[0].split(), "B" in lines[0].split()) == (True, width >= 200)
    name = "".join(line[: len(LONG)].split("  ")[0].strip() for line in lines[1:])
    assert name.startswith(LONG[:12])


def test_the_answer_is_a_sentence() -> None:
    """How many, who is worst, and what that one meets: of the prediction where there is one."""
    result, _ = recorded()
    alice = next(found for found in result.found if found.sensor == "alice:")
    replayed = "42 % of its requests delayed, 2.0 s at the longest"
    silent = predicted(0.42, muted_share=UNKNOWN, throttle_time_max_ms=UNKNOWN)
    for prediction in (None, silent):
        assert words.suffering(replace(alice, prediction=prediction)) == replayed
    assert words.answer([replace(alice, prediction=None)]) == (
        "1 of 1 counter throttled somebody; worst: user alice on broker 1, 42 % of its requests delayed,"
        " 2.0 s at the longest"
    )
    unknown = replace(alice, prediction=None, verdict=Verdict.UNDETERMINED)
    calm = replace(unknown, verdict=Verdict.NOT_THROTTLED)
    assert words.answer([unknown]) == "1 of 1 counter undetermined"
    assert words.answer([unknown, calm, calm]) == "1 of 3 counters undetermined, nobody throttled by the rest"
    told = replace(alice, prediction=predicted(0.42))
    assert words.answer([told]) == (
        "1 of 1 counter throttled somebody; worst: user alice on broker 1, muted 42 % of the time,"
        " about 1.8 s (1.5 s to 2.0 s) at the longest"
    )
    wide = predicted(0.42, muted_share=Interval(0.19, 0.42, 1.0), throttle_time_max_ms=Interval(1100.0, 1100.0, None))
    assert words.suffering(replace(alice, prediction=wide)) == (
        "muted about 42 % (19 % to 100 %) of the time, ≥ 1.1 s at the longest"
    )
    edges = predicted(0.42, muted_share=Interval(0.51, 1.0, 1.0), throttle_time_max_ms=Interval(999.0, 999.0, 1300.0))
    assert words.suffering(replace(alice, prediction=edges)) == (
        "muted 51 % to 100 % of the time, 1.0 s to 1.3 s at the longest"
    )
    nobody_knows = replace(alice, prediction=predicted(0.42, throttle_time_max_ms=Interval.at_least(0)))
    assert words.longest(nobody_knows) == "-"  # a time of the replay is no wait of a client
    assert "may time out, and lose records or send them again" in words.answer(
        [replace(alice, prediction=predicted(0.42, times_out=True))]
    )


def test_harm_ranks() -> None:
    """What is not delivered counts first, then the muted time, then the longest wait; a sum of waits never does."""
    base = next(found for found in recorded()[0].found if found.sensor == "alice:")

    def finding(name: str, **changes: object) -> Finding:
        return replace(base, sensor=name, prediction=predicted(0.1, **changes))

    late = finding("late:", delivered_per_s=Interval.exactly(10_000.0))
    muted = replace(finding("muted:"), prediction=predicted(0.9))
    longest = finding("longest:", throttle_time_max_ms=Interval.exactly(9000.0))
    many = replace(finding("many:"), throttle_time_ms=10**12)

    order = sorted([many, longest, muted, late], key=lambda found: found.harm, reverse=True)
    assert [found.sensor for found in order] == ["late:", "muted:", "longest:", "many:"]
    assert late.harm.undelivered == pytest.approx(0.8)


def test_lines_of_csv_are_made_one_by_one() -> None:
    """A million of them as values would not fit into 2 GB."""
    result, settings = recorded()
    part = next(iter(audited_view(result, settings, None, show_all=True).parts("csv")))
    assert isinstance(part, Csv)
    assert not isinstance(part.rows, Sequence)
    names = [part.headings.index(name) for name in ("broker", "key", "sensor")]
    assert [tuple(line[name] for name in names) for line in part.rows] == [found.name for found in result.found]


def test_wide_leaves_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a narrow terminal each row is a block with all columns, and the usual table says so."""
    result, settings = recorded()
    view = audited_view(result, settings, None, show_all=True)
    lines = shown(80, lambda: show(view, "wide"), monkeypatch)
    assert max(map(cell_len, lines)) <= 80
    with click.Context(click.Command("audit")):
        set_layout(Layout(complete=True))
        blocks = shown(80, lambda: show(view, "wide"), monkeypatch)
    assert max(map(cell_len, blocks)) <= 80
    assert {"CLIENTS", "LOGGED", "PEAK"} <= {line.split()[0] for line in blocks if line.strip()}
