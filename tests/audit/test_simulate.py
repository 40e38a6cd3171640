"""Which kernel runs the clients of an audit: compiled code that is there, or what needs no compiling."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kquota.core.enforcement.kernel import Kernel, Mode, is_worth, kernel, kernel_for

KERNEL = sys.modules["kquota.core.enforcement.kernel"]

Install = Callable[[bool], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Install:
    """Makes the compiled loop one that is kept on the disk, or not."""

    def done(kept: bool) -> None:
        if kept:
            (tmp_path / "loop.run_traffic_0-209.py311.nbi").touch()
        loop: Any = SimpleNamespace(__name__="run_traffic_0", stats=SimpleNamespace(cache_path=str(tmp_path)))
        compiled = replace(kernel(Mode.PLAIN), mode=Mode.COMPILED, run_traffic=loop)
        kernels: dict[Mode, Kernel] = {Mode.AUTO: compiled, Mode.PLAIN: kernel(Mode.PLAIN)}
        monkeypatch.setattr(KERNEL, "kernel", kernels.__getitem__)
        monkeypatch.setitem(sys.modules, "numba", None)

    return done


@pytest.mark.parametrize(("kept", "compiled_from_s"), [(True, 0.0), (False, 12.0)])
def test_compiled_code_that_is_there_runs_more(install: Install, kept: bool, compiled_from_s: float) -> None:
    install(kept)
    assert kernel_for("run_traffic", compiled_from_s).mode is Mode.COMPILED
    assert kept or kernel_for("run_traffic", compiled_from_s - 1).mode is Mode.PLAIN


def test_without_numba_the_plain_kernel_runs_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KERNEL, "kernel", lambda mode: kernel(Mode.PLAIN))
    assert kernel_for("run_traffic", 0.1).mode is kernel_for("run_traffic", 1e6).mode is Mode.PLAIN


def test_little_work_does_not_load_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    assert [is_worth(seconds, 1.0, lambda: True) for seconds in (0.5, 0.7)] == [False, True]
    assert kernel_for("replay_many", 0.5).mode is Mode.PLAIN
    assert "numba" not in sys.modules
