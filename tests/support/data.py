"""The recordings, tables and files in `tests/data`."""

from pathlib import Path

DATA = Path(__file__).parents[1] / "data"


def data_text(name: str) -> str:
    """A file of that folder, as text."""
    return (DATA / name).read_text(encoding="utf-8")
