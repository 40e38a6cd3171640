"""The recordings, tables and files in `tests/data`."""

import re
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"


def data_text(name: str) -> str:
    """A file of that folder, as text."""
    return (DATA / name).read_text(encoding="utf-8")


def data_rows(name: str) -> list[tuple[str, ...]]:
    r"""The rows of a table there, whose cells stand apart by ` | `; # begins a comment, and \n is a line end."""
    lines = (line for line in data_text(name).splitlines() if line and not line.startswith("#"))
    return [tuple(cell.strip().replace(r"\n", "\n") for cell in re.split(r" \|(?: |$)", line)) for line in lines]


def wrong_documents(name: str) -> list[tuple[str, str]]:
    """The documents of a file there, each with what is said of it, which stands above the document."""
    text = data_text(name).removeprefix("# says: ")
    documents = (document.partition("\n") for document in text.split("---\n# says: "))
    return [(document.removesuffix("\n"), says) for says, _, document in documents]
