"""Which kernel runs the clients of an audit: compiled code that is there, or what needs no compiling."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kquota.core.enforcement.kernel import UNCOMPILED_ROWS, Kernel, Mode, is_worth, kernel, kernel_for

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


@pytest.mark.parametrize(("kept", "most"), [(True, 0), (False, UNCOMPILED_ROWS)])
def test_compiled_code_that_is_there_runs_more(install: Install, kept: bool, most: int) -> None:
    install(kept)
    assert kernel_for(most + 1).mode is Mode.COMPILED
    assert most == 0 or kernel_for(most).mode is Mode.PLAIN


def test_without_numba_the_plain_kernel_runs_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KERNEL, "kernel", lambda mode: kernel(Mode.PLAIN))
    assert kernel_for(1).mode is kernel_for(10**6).mode is Mode.PLAIN


def test_few_rows_do_not_load_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    assert [is_worth(rows) for rows in (10_000, 10_001)] == [False, True]
    assert kernel_for(500).mode is Mode.PLAIN
    assert "numba" not in sys.modules
