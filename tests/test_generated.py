"""What is generated from the code is up to date, and of use."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import generate


@pytest.mark.parametrize("path", sorted(generate.files()), ids=lambda path: Path(path).name)
def test_is_not_stale(path: Path) -> None:
    """`make generate` would change nothing."""
    assert path.read_text(encoding="utf-8") == generate.files()[path]


def test_no_file_is_left_over() -> None:
    """A page of a command that is gone goes too."""
    written = {path for path in generate.files() if path.parent.name in ("man", "completions")}
    found = {path for folder in ("man", "completions") for path in (generate.ROOT / folder).iterdir()}

    assert found == written


@pytest.mark.parametrize(("word", "expected"), [("res", "resolve"), ("describe --user-d", "--user-defaults")])
def test_bash_completes(word: str, expected: str) -> None:
    """The script works in a real bash."""
    bash = shutil.which("bash")
    assert bash is not None
    words = ["kquota", *word.split()]
    script = f"""
        source {generate.ROOT}/completions/kquota.bash
        COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}
        _kquota_completion kquota; printf '%s\\n' "${{COMPREPLY[@]}}"
    """

    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [bash, "-c", script], capture_output=True, text=True, check=True, env=os.environ | {"PATH": path}
    )

    assert done.stdout.split() == [expected]
