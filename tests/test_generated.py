"""What is generated from the code is up to date."""

from pathlib import Path

import pytest

from tools import generate


@pytest.mark.parametrize("path", sorted(generate.paths()), ids=lambda path: Path(path).name)
def test_is_not_stale(path: Path) -> None:
    """`make generate` would change nothing."""
    assert path.read_text(encoding="utf-8") == generate.content(path)


def test_no_file_is_left_over() -> None:
    """A page of a command that is gone goes too."""
    written = {path for path in generate.paths() if path.parent.name == "man"}

    assert {*(generate.ROOT / "man").iterdir()} == written
