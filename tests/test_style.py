"""The style of everything that people read: `docs/style.md`, as far as a program can check it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kquota.cli.commands.help import TOPICS, text_of
from tests.support import examples
from tools.prose import faults, sentences

ROOT = examples.README.parent
PAGES = [page for page in examples.pages() if page.name != "style.md"]


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_the_pages(page: Path) -> None:
    assert faults(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("topic", TOPICS)
def test_the_topics(topic: str) -> None:
    assert faults(text_of(topic)) == []


def test_the_rules_find_faults() -> None:
    assert faults("The answer tells it for ever.") == [
        "'tells': The answer tells it for ever.",
        "'for ever': The answer tells it for ever.",
    ]
    assert len(faults("word " * 26)) == 1
    assert list(sentences("# Head\n\nOne. Two:\n\n    code\n\n| a | b |\n\n* item `x y`\n")) == [
        "One.",
        "Two:",
        "item X",
    ]
