"""The rules of `docs/style.md` that a program can check: long sentences, and constructions that send a reader back."""

import re
from collections.abc import Iterator

MOST_WORDS = 25

BANNED = (
    r"\b(?:tells?|told)\b",
    r"\bthat of\b",
    r"\bthose (?:which|that|of)\b",
    r"\bthe ones? (?:that|which|of)\b",
    r"\bwhat is (?:none|no)\b",
    r"\bfor ever\b",
    r"\bcalled so\b",
)
"""Pronouns that stand for a noun further up, and verbs that stand for five others."""

_CODE = re.compile(r"`[^`]*`|(?<!\w)'[^' ][^']*'(?!\w)|\"[^\"]*\"|\(https?:[^)]*\)")
_BLOCK = re.compile(r"^ *```.*?^ *```$|^<!--.*?-->$|^ *\|.*?$|^#.*?$|^ *!\[.*?$", re.DOTALL | re.MULTILINE)
_ITEM = re.compile(r"^ *(?:[*-]|\d+\.|>) ?", re.MULTILINE)


def sentences(text: str) -> Iterator[str]:
    """The sentences of Markdown or of a docstring; code, tables and headings are none, and a colon ends one."""
    text = _CODE.sub("X", _ITEM.sub("\n\n", _BLOCK.sub("\n", text)))
    for paragraph in re.split(r"\n\s*\n", text):
        if not paragraph.lstrip("\n").startswith("  "):
            text = " ".join(paragraph.replace("*", "").split())
            yield from filter(None, re.split(r"(?<=[.!?:;])\s+", text))


def faults(text: str) -> list[str]:
    """What the rules have against a text: one line each."""
    found = []
    for sentence in sentences(text):
        words = len(sentence.split())
        if words > MOST_WORDS:
            found.append(f"{words} words: {sentence}")
        found += [f"{match[0]!r}: {sentence}" for rule in BANNED if (match := re.search(rule, sentence))]
    return found
