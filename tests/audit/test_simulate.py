"""Which kernel runs the clients of an audit: compiled code that is there, or what needs no compiling."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kquota.audit.evidence import simulate
from kquota.audit.evidence.simulate import UNCOMPILED_ROWS, UNLOADED_ROWS, kernel_for
from kquota.core.enforcement.kernel import Kernel, Mode, kernel

Install = Callable[[bool, bool], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Install:
    """Makes the compiled loop one that is loaded, or that is kept on the disk, or none of both."""

    def done(loaded: bool, kept: bool) -> None:
        if kept:
            (tmp_path / "loop.run_traffic_0-209.py311.nbi").touch()
        loop: Any = SimpleNamespace(
            __name__="run_traffic_0", signatures=[1] if loaded else [], stats=SimpleNamespace(cache_path=str(tmp_path))
        )
        compiled = replace(kernel(Mode.PLAIN), mode=Mode.COMPILED, run_traffic=loop)
        kernels: dict[Mode, Kernel] = {Mode.AUTO: compiled, Mode.PLAIN: kernel(Mode.PLAIN)}
        monkeypatch.setattr(simulate, "kernel", kernels.__getitem__)

    return done


@pytest.mark.parametrize(
    ("loaded", "kept", "most"), [(True, True, 0), (False, True, UNLOADED_ROWS), (False, False, UNCOMPILED_ROWS)]
)
def test_compiled_code_that_is_there_runs_more(install: Install, loaded: bool, kept: bool, most: int) -> None:
    install(loaded, kept)
    assert kernel_for(most + 1).mode is Mode.COMPILED
    assert most == 0 or kernel_for(most).mode is Mode.PLAIN


def test_without_numba_the_plain_kernel_runs_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "kernel", lambda mode: kernel(Mode.PLAIN))
    assert kernel_for(1).mode is kernel_for(10**6).mode is Mode.PLAIN
