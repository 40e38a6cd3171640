"""The changelog is whole: its entries end as sentences do, and none is there twice."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def entries() -> list[str]:
    text = (ROOT / "CHANGELOG.md").read_text()
    blocks = re.split(r"\n(?=- |\n|#)", text)
    return [" ".join(block.split()) for block in blocks if block.startswith("- ")]


def test_every_entry_is_whole_and_there_once() -> None:
    """A merge can cut an entry in two, or keep both of its versions."""
    found = entries()
    assert len(found) > 100
    assert [entry for entry in found if not entry.endswith((".", "!", "?"))] == []
    starts = [entry[:60] for entry in found]
    assert sorted({start for start in starts if starts.count(start) > 1}) == []


def test_the_sections_are_those_of_keep_a_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    sections = re.findall(r"^### (.*)$", text, re.M)
    assert set(sections) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert re.findall(r"^## (.*)$", text, re.M)[0] == "[Unreleased]"
