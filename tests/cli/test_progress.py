"""How far long work is, where stderr is no terminal."""

import sys
import threading

import pytest

from kquota.cli import progress
from tests.support.waiting import until


def test_a_pipe_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(progress, "_LINE_S", 0.05)
    monkeypatch.setattr(progress, "say", said.append)
    with progress.progress("starting Spark") as bar:
        until(lambda: said, "nothing was said")
        bar.watch(lambda: (1, 4), lambda: "auditing")
        until(lambda: any("auditing" in line for line in said), "what is watched was not said")

    assert said[0] == "starting Spark, 0 s so far"
    assert said[-1].startswith("auditing: 25 %, ")


def test_quiet_wants_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "quiet", lambda: True)
    before = threading.active_count()
    with progress.progress("auditing"):
        assert threading.active_count() == before


def test_a_moments_work_has_no_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with progress.progress("applying", shown=False) as bar:
        bar(1, 1)
    assert capsys.readouterr().err == ""
    with progress.progress("applying") as bar:
        bar(1, 2)
    assert "applying" in capsys.readouterr().err
