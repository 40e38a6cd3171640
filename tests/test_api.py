"""The public API: whole, lazy, and as the README shows it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import kquota


@pytest.mark.parametrize("name", kquota.__all__)
def test_every_name_is_there(name: str) -> None:
    """Each is what its own module calls so."""
    assert getattr(kquota, name) is not None
    assert name in dir(kquota)


def test_another_name_is_not() -> None:
    """As for any module."""
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        kquota.nonsense  # noqa: B018


def test_a_name_brings_its_own_module_only() -> None:
    """The errors do not cost a backend."""
    code = "import sys; from kquota import KquotaError; print(*(m for m in sys.modules if m.startswith('kquota')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["kquota", "kquota.errors"]


def test_the_example_of_the_readme_runs(
    chroot: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a real ZooKeeper."""
    monkeypatch.setenv("KQUOTA_JOURNAL", str(tmp_path))
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)

    exec(example.replace("localhost:2181", chroot), {})

    assert "producer_byte_rate 10000000 alice:app1" in capsys.readouterr().out
