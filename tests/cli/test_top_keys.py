"""`kquota top` at a terminal: its keys, and the terminal afterwards."""

import contextlib
import fcntl
import io
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kquota import DEFAULT, Entity, QuotaKey, QuotaSnapshot
from kquota.cli import keys
from kquota.cli.board import Board, Row
from kquota.cli.commands.top import _COLUMNS, _rows
from kquota.cli.text import USUAL, Column, Layout
from kquota.core.findings.use import Counter, Observed, uses
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "tests" / "data" / "samples"
COLUMNS = (Column("NAME", whole=True), Column("RATE", number=True), Column("MORE", spare=1))


class AtTerminal:
    """`kquota top` on a pseudo-terminal of that width, over a page of metrics that may be replaced."""

    def __init__(self, folder: Path, columns: int) -> None:
        self.page, self.quotas = folder / "page.prom", folder / "quotas.json"
        shutil.copy(SAMPLES / "scrape-resource.prom", self.page)
        shutil.copy(SAMPLES / "quotas.json", self.quotas)
        self.columns = columns
        self.outer, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        self.before = termios.tcgetattr(self.outer)
        clean = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        live = ("--metrics", f"b1={self.page}", "--quotas", str(self.quotas), "--interval", "1s")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kquota", "top", *live],
            stdin=inner, stdout=inner, stderr=inner, cwd=folder, start_new_session=True,
            env=clean | {"TERM": "xterm", "PYTHONPATH": str(ROOT)},
            preexec_fn=lambda: fcntl.ioctl(inner, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )  # fmt: skip
        os.close(inner)
        self.heard = ""

    def press(self, text: str) -> None:
        os.write(self.outer, text.encode())

    def listen(self) -> None:
        """Reads what came since."""
        with contextlib.suppress(OSError):  # the end of a terminal
            while select.select([self.outer], [], [], 0.05)[0] and (part := os.read(self.outer, 65536)):
                self.heard += part.decode()

    @property
    def lines(self) -> list[str]:
        """The screen as it was drawn last."""
        frame = self.heard.rpartition("\x1b[H")[2]
        return [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line).rstrip() for line in frame.split("\r\n")]

    def until(self, true: Callable[[list[str]], object]) -> list[str]:
        """The lines for which it holds."""
        end = time.monotonic() + PATIENCE_S
        while True:
            self.listen()
            if true(self.lines):
                assert all(len(line) <= self.columns for line in self.lines)
                return self.lines
            assert time.monotonic() < end, "\n".join(self.lines)

    def ended(self, end: Callable[[], None]) -> int:
        """Its exit code, once that has ended it and it has left the terminal as it was.

        Python may drop the exception of a signal: whoever sits there tries again after a while.
        """
        begin = time.monotonic()
        while self.process.poll() is None and time.monotonic() < begin + PATIENCE_S:
            end()
            again = time.monotonic() + 60
            while self.process.poll() is None and time.monotonic() < again:
                self.listen()
        self.listen()
        assert self.heard.count("\x1b[?1049h") == self.heard.count("\x1b[?1049l") == 1
        assert self.heard.count("\x1b[?25l") == self.heard.count("\x1b[?25h") == 1
        assert termios.tcgetattr(self.outer) == self.before
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.outer)


@pytest.fixture(params=[80, 160])
def top(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AtTerminal]:
    running = AtTerminal(tmp_path, request.param)
    yield running
    running.close()


def counters(lines: list[str]) -> list[str]:
    """The counters of the table, as far as they are shown."""
    shown = (re.match(r"[> ]  (?:(?:THROTTLED|WITHIN|UNLIMITED) +)?((?:user|client-id)=\S+)", line) for line in lines)
    return [match[1] for match in shown if match is not None]


def marked(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith(">")]


def test_keys(top: AtTerminal) -> None:
    """Select, explain, show all, sort, filter, pause and quit."""
    lines = top.until(lambda lines: len(counters(lines)) == 4)
    assert "user=carol" in marked(lines)[0]
    assert ("left out: STATE, RATE, " in "".join(lines)) == (top.columns == 80)
    assert "q quit" in "".join(lines)
    top.press("\x1b[B" * 3)
    top.until(lambda lines: "user=alice" in "".join(marked(lines)))
    top.press("\r")
    lines = top.until(lambda lines: "  rule: user=alice, level 3, user" in lines)
    assert "user=alice: producer_byte_rate on b1: THROTTLED" in lines
    assert any(line.startswith("  take that back, by the ID that it prints: kquota undo ID") for line in lines)
    page = top.page.read_text()
    top.page.write_text("".join(line for line in page.splitlines(True) if 'user="alice"' not in line))
    top.until(lambda lines: "this counter is gone from the last look; Esc goes back" in lines)
    top.page.write_text(page)
    top.until(lambda lines: "  rule: user=alice, level 3, user" in lines)
    top.press("\x1b")
    top.until(lambda lines: len(counters(lines)) == 4)
    top.press("a")
    top.until(lambda lines: len(counters(lines)) > 10)
    top.press("ss")
    lines = top.until(lambda lines: any("sorted by COUNTER" in line for line in lines))
    assert counters(lines) == sorted(counters(lines), key=str.casefold)
    assert "user=alice" in marked(lines)[0]
    top.press("r")
    lines = top.until(lambda lines: any("sorted by COUNTER, greatest first" in line for line in lines))
    assert counters(lines) == sorted(counters(lines), key=str.casefold, reverse=True)
    top.press("/FRANKX\x7f\r")
    lines = top.until(lambda lines: any("filter: FRANK, " in line for line in lines))
    assert set(counters(lines)) == {"user=frank"}
    top.press("\x1b")
    top.until(lambda lines: len(set(counters(lines))) > 5)

    top.press(" ")
    lines = top.until(lambda lines: any("PAUSED" in line for line in lines))
    shown = counters(lines)
    top.page.write_text("")
    ages = {lines[1]}
    # The ages go on, and say so: it is drawn again without a look.
    while len(ages) < 3:
        ages.add(top.until(lambda lines: len(lines) > 5 and lines[1] not in ages)[1])
    assert counters(top.lines) == shown
    top.press(" ")
    top.until(lambda lines: "no counter of a quota was seen" in lines)
    assert top.ended(lambda: top.press("q")) == 0


@pytest.mark.parametrize("top", [80], indirect=True)
@pytest.mark.parametrize("end", ["Ctrl-C", "SIGTERM", "SIGHUP"])
def test_the_terminal_is_as_before(top: AtTerminal, end: str) -> None:
    """However it ends; Ctrl-Z does not leave the shell with its screen."""
    top.until(lambda lines: len(counters(lines)) == 4)
    top.press("\x1a")
    ends = {
        "Ctrl-C": (lambda: top.press("\x03"), 130),
        "SIGTERM": (lambda: top.process.send_signal(signal.SIGTERM), 143),
        "SIGHUP": (lambda: top.process.send_signal(signal.SIGHUP), 129),
    }
    tried, code = ends[end]
    assert top.ended(tried) == code


@pytest.mark.parametrize(
    ("sent", "pressed"),
    [
        ("q", ["q"]),
        ("\x1b[A\x1bOBé\r", ["up", "down", "é", "enter"]),
        ("\x1b[5~\x1b[15~\x1b[1;5C\x01", ["page up"]),
        ("\x1b", ["escape"]),
    ],
)
def test_names_of_keys(sent: str, pressed: list[str]) -> None:
    assert keys.names(sent) == pressed


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The outer end of a terminal that is stdin."""
    outer, inner = pty.openpty()
    with open(inner, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield outer
    with contextlib.suppress(OSError):  # the test has closed it
        os.close(outer)


@pytest.mark.timeout(300)
def test_no_key_is_waited_for_after_a_ctrl_c(terminal: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It empties the terminal's memory, here in the moment between the look and the reading."""
    look = select.select

    def interrupted(*arguments: Any) -> Any:
        found = look(*arguments)
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
        return found

    with keys.reading() as read:
        os.write(terminal, b"x")
        with monkeypatch.context() as patched:
            patched.setattr(select, "select", interrupted)
            assert read(600) == []
        os.write(terminal, b"y")
        assert read(600) == ["y"]
        os.close(terminal)
        assert read(600) == [keys.END]


def drawn(board: Board, rows: list[Row], width: int, height: int) -> list[str]:
    screen = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    with screen.capture() as capture:
        screen.print(board.screen(screen, [], board.rows(rows), None))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_the_marked_row_stays_on_the_screen() -> None:
    """And the mark stays with its thing, wherever that comes to stand."""
    rows = [Row(number, (f"client-{number}", f"{number} kB/s", "x" * 30), "") for number in range(100)]
    board = Board(COLUMNS, USUAL, everything=False)
    for key in ("end", "up", "up", "page up"):
        drawn(board, rows, 60, 12)
        board.press(key, board.rows(rows))
    lines = drawn(board, rows, 60, 12)
    (mark,) = marked(lines)
    place = int(mark.split("client-")[1].split()[0])
    assert len(lines) == 12
    assert place == 99 - 2 - 9
    assert not any("…" in line for line in lines[:-1])
    for key in ("s", "s"):
        board.press(key, board.rows(rows))
    lines = drawn(board, rows, 60, 12)
    assert marked(lines) == [mark]
    assert "sorted by RATE, greatest first" in lines[-2]
    board.press("s", board.rows(rows))
    assert board.rows(rows[:3]) == rows[:3]
    assert board.selected(rows[:3]) == 0


def test_80_columns_say_by_which_quota() -> None:
    """The whole name of a key took the room of SET FOR, RATE and SHARE."""
    keys = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE)
    quotas = QuotaSnapshot({Entity(user="alice", client_id=DEFAULT): dict.fromkeys(keys, 1_000_000)})
    for rate, column in ((1_010_000, " SET FOR "), (950_000, " SHARE ")):
        observed = [
            Observed(Counter("1", key, "alice", "nightly-batch"), 1000, rate_of, 870 * (rate_of > 1e6))
            for key, rate_of in zip(keys, (1_010_000, rate), strict=True)
        ]
        rows = _rows(uses(observed, quotas, source=""), 1000)
        heading, *shown = drawn(Board(_COLUMNS, USUAL, everything=False), rows, 80, 10)
        assert column in heading
        assert all("  producer" in line or "  consumer" in line for line in shown[:2])


def test_a_narrow_screen_cuts_texts_and_no_numbers() -> None:
    rows = [Row(1, ("a" * 50, "1,234 kB/s", "more"), "")]
    (line,) = marked(drawn(Board(COLUMNS, Layout(headings=False), everything=False), rows, 30, 10))
    assert line.endswith("a…  1,234 kB/s")
    assert len(line) == 30
