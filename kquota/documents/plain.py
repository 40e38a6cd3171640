"""YAML as most people write it, read a hundred times as fast as by a whole YAML library, which pure Python makes slow.

Blocks of mappings and lists, flow collections on one line, and scalars of which everybody knows what they are. At
anything else the reader gives up, and the library decides: what both read, they read alike (a test).
"""

from __future__ import annotations

import json
import re
from typing import Any

Marks = dict[int, dict[Any, int]]
"""id of a mapping or list → key or index → the line, from 1, at which it stands; without those that are on one line."""


class NotPlain(Exception):
    """The text is not written plainly: another reader has to see."""


# A tab, another line end than LF, a byte order mark and what YAML does not take for printable.
_STRANGE = re.compile(r"[^\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_DOUBLE = r'"(?:[^"\\]|\\["\\bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4})*"'
_SINGLE = r"'[^']*'"
_WORD = r"[A-Za-z_][\w./%-]*"
_KEY = re.compile(rf"({_DOUBLE}|{_SINGLE}|[A-Za-z_][\w.-]*):(?: +(.*))?\Z", re.ASCII)
_SCALAR = rf"{_DOUBLE}|{_SINGLE}|-?[\w.%/][\w./%-]*(?: [\w./%-]+)*"
_TOKEN = re.compile(rf" *([{{}}\[\],]|{_SCALAR})", re.ASCII)
# One entry of a flow mapping whose value is a scalar: the same tokens, in one step instead of four.
_ENTRY = re.compile(rf" *({_SCALAR}): +({_SCALAR}) *([,}}])", re.ASCII)
_COMMENT = re.compile(r"(?: +(?:#.*)?)?\Z")
# Outside flow collections a text goes on to a comment or the end, whatever is in it but what makes it a mapping.
_FREE = re.compile(r"[^\W\d][^:#]*\Z")
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}\Z", re.ASCII)
_TEXT = re.compile(rf"{_WORD}(?: [\w./%-]+)*\Z|\d+(?:\.\d+)? ?[A-Za-z%][A-Za-z%/]*\Z", re.ASCII)
_WHOLE = re.compile(r"-?(?:0|[1-9]\d{0,17})\Z", re.ASCII)
_FRACTION = re.compile(r"-?(?:0|[1-9]\d{0,17})\.\d{1,18}\Z", re.ASCII)
_CONSTANTS = {"true": True, "false": False, "null": None}
# Readers of YAML 1.1 and 1.2 differ about these.
_DISPUTED = {"yes", "no", "on", "off", "y", "n", "true", "false", "null"}
_DEEPEST = 20
_MOST_KNOWN = 10_000


def read(text: str, marks: Marks | None = None) -> Any:
    """The document in the text; `marks` gets the lines. Raises NotPlain."""
    if _STRANGE.search(text):
        raise NotPlain
    return _Reader(text, marks).document()


class _Reader:
    def __init__(self, text: str, marks: Marks | None) -> None:
        self._lines: list[tuple[int, str, int]] = []
        """(indent, content, number)"""
        for number, line in enumerate(text.split("\n"), 1):
            content = line.lstrip(" ")
            if content and content[0] != "#":
                self._lines.append((len(line) - len(content), content, number))
        if self._lines and self._lines[0][:2] == (0, "---"):
            del self._lines[0]
        self._lines.append((-1, "", 0))
        self._marks = marks
        self._known: dict[str, Any] = {}
        self._scalars: dict[str, Any] = {}

    def document(self) -> Any:
        value, at = self._block(0, self._lines[0][0], 0)
        if at != len(self._lines) - 1:
            raise NotPlain
        return value

    def _block(self, at: int, indent: int, depth: int) -> tuple[Any, int]:
        if depth > _DEEPEST or indent < 0:
            raise NotPlain
        return (self._list if self._lines[at][1].startswith("- ") else self._mapping)(at, indent, depth)

    def _mapping(self, at: int, indent: int, depth: int) -> tuple[dict[str, Any], int]:
        result: dict[str, Any] = {}
        lines = self._lines
        places: dict[Any, int] | None = None if self._marks is None else self._marks.setdefault(id(result), {})
        here, content, number = lines[at]
        while here == indent:
            match = _KEY.match(content)
            if match is None:
                raise NotPlain
            key, rest = match.groups()
            key = self._key(key)
            if key in result:
                raise NotPlain
            if places is not None:
                places[key] = number
            at += 1
            here, content, number = lines[at]
            if rest and rest[0] != "#":
                result[key] = self._inline(rest)
            elif here > indent or (here == indent and content.startswith("- ")):
                result[key], at = self._block(at, here, depth + 1)
                here, content, number = lines[at]
            else:
                raise NotPlain
        if here > indent:
            raise NotPlain
        return result, at

    def _list(self, at: int, indent: int, depth: int) -> tuple[list[Any], int]:
        result: list[Any] = []
        lines = self._lines
        places: dict[Any, int] | None = None if self._marks is None else self._marks.setdefault(id(result), {})
        here, content, number = lines[at]
        while here == indent and content.startswith("- "):
            if places is not None:
                places[len(result)] = number
            item = content[2:].lstrip(" ")
            if _KEY.match(item):
                inner = indent + len(content) - len(item)
                lines[at] = (inner, item, number)
                value, at = self._mapping(at, inner, depth + 1)
            else:
                value = self._inline(item)
                at += 1
            result.append(value)
            here, content, number = lines[at]
        if here > indent:
            raise NotPlain
        return result, at

    def _key(self, text: str) -> str:
        value = text if text[0] not in "\"'" else self._scalar(text)
        if value is text and text.lower() in _DISPUTED:
            raise NotPlain
        assert isinstance(value, str)
        return value

    def _inline(self, text: str) -> Any:
        """A scalar or a flow collection, with a comment behind it."""
        known = self._known.get(text)
        if known is not None:
            # Each has its own: an edit of one is none of the others.
            return known.copy() if isinstance(known, dict) else known
        if not text.startswith("{") and _FREE.match(text):
            value = self._scalar(text.rstrip(" "), free=True)
        else:
            value, at = self._value(text, 0, 0)
            if _COMMENT.match(text, at) is None:
                raise NotPlain
        if len(self._known) < _MOST_KNOWN and _is_flat(value):
            self._known[text] = value
        return value

    def _value(self, text: str, at: int, depth: int) -> tuple[Any, int]:
        match = _TOKEN.match(text, at)
        if match is None or depth > _DEEPEST:
            raise NotPlain
        part, at = match[1], match.end()
        if part == "{":
            return self._flow_mapping(text, at, depth)
        if part == "[":
            return self._flow_list(text, at, depth)
        return self._scalar(part), at

    def _flow_mapping(self, text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
        result: dict[str, Any] = {}
        while True:
            entry = _ENTRY.match(text, at)
            if entry is not None:
                key = self._known_scalar(entry[1])
                if not isinstance(key, str) or key in result:
                    raise NotPlain
                result[key] = self._known_scalar(entry[2])
                at = entry.end()
                if entry[3] == "}":
                    return result, at
                continue
            match = _TOKEN.match(text, at)
            if match is None:
                raise NotPlain
            part, at = match[1], match.end()
            if part == "}" and not result:
                return result, at
            if part in "{}[],":
                raise NotPlain
            key = self._scalar(part)
            if not isinstance(key, str) or key in result or text[at : at + 2] != ": ":
                raise NotPlain
            result[key], at = self._value(text, at + 2, depth + 1)
            match = _TOKEN.match(text, at)
            if match is None or match[1] not in "},":
                raise NotPlain
            at = match.end()
            if match[1] == "}":
                return result, at

    def _flow_list(self, text: str, at: int, depth: int) -> tuple[list[Any], int]:
        result: list[Any] = []
        while True:
            match = _TOKEN.match(text, at)
            if match is not None and match[1] == "]" and not result:
                return result, match.end()
            value, at = self._value(text, at, depth + 1)
            result.append(value)
            match = _TOKEN.match(text, at)
            if match is None or match[1] not in "],":
                raise NotPlain
            at = match.end()
            if match[1] == "]":
                return result, at

    def _known_scalar(self, text: str) -> Any:
        """The value of a scalar: thousands of entries have the same few."""
        value = self._scalars.get(text)
        if value is None:
            value = self._scalar(text)
            if len(self._scalars) < _MOST_KNOWN:
                self._scalars[text] = value
        return value

    @staticmethod
    def _scalar(text: str, *, free: bool = False) -> Any:
        if text[0] == '"':
            return json.loads(text)
        if text[0] == "'":
            return text[1:-1]
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if (free or _TEXT.match(text) or _ADDRESS.match(text)) and text.lower() not in _DISPUTED:
            return text
        if _WHOLE.match(text):
            return int(text)
        if _FRACTION.match(text):
            return float(text)
        raise NotPlain


def _is_flat(value: Any) -> bool:
    """Whether it is a scalar, or a mapping of scalars."""
    if isinstance(value, dict):
        return not any(isinstance(part, dict | list) for part in value.values())
    return not isinstance(value, list)
