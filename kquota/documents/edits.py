"""Edits of a document's text that leave everything else as somebody wrote it, comments included."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kquota.documents.encoding import parse, root_of, to_flow, to_json
from kquota.errors import InputError

if TYPE_CHECKING:
    from kquota.documents.reading import Node

Steps: TypeAlias = tuple[str | int, ...]
"""The keys and indexes that lead to a place."""
REMOVED: Final = object()
"""As the new value of a place: the key or the item is to go."""


def edited(path: Path, text: str, edits: Mapping[Steps, Any]) -> str:
    """The text of a YAML or JSON mapping with the values of some places replaced, added or `REMOVED`.

    An item is added to a list at the index of its length. JSON is written anew. Raises InputError for YAML that a
    splice cannot bring to the document that is meant, such as values with anchors.
    """
    if not edits:
        return text
    after = _applied(parse(path, text), edits)
    if _is_json(text):
        return to_json(after)
    with contextlib.suppress(InputError, _Unfit):
        splices = _Splices(text)
        splices.edit(root_of(text), edits)
        candidate = splices.made()
        if parse(path, candidate) == after:
            return candidate
    raise InputError(
        f"{path}: cannot be updated as it is written",
        hint="write it without anchors and merge keys, as 'kquota export' does, or edit it by hand",
    )


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _divided(edits: Mapping[Steps, Any]) -> tuple[dict[str | int, Any], dict[str | int, dict[Steps, Any]]]:
    """The edits of a node's own parts, and by part those of what is below it."""
    here, below = dict[str | int, Any](), dict[str | int, dict[Steps, Any]]()
    for (step, *rest), value in edits.items():
        if rest:
            below.setdefault(step, {})[tuple(rest)] = value
        else:
            here[step] = value
    return here, below


def _applied(data: Any, edits: Mapping[Steps, Any]) -> Any:
    """A copy of the data with the edits made."""
    here, below = _divided(edits)
    parts: dict[str | int, Any] = dict(enumerate(data)) if isinstance(data, list) else dict(data)
    parts |= {step: _applied(parts[step], inner) for step, inner in below.items()} | here
    kept = {step: part for step, part in parts.items() if part is not REMOVED}
    return [*kept.values()] if isinstance(data, list) else kept


class _Unfit(Exception):
    """The text is written in a way that a splice cannot edit."""


class _Splices:
    """Pieces of a YAML text, and what comes in their place."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._pieces: list[tuple[int, int, str]] = []

    def made(self) -> str:
        """The text with the pieces replaced; what is added may stand in a piece that goes."""
        out, position = [], 0
        for start, end, new in sorted(self._pieces, key=lambda piece: piece[:2]):
            out += [self._text[position:start], new]
            position = max(position, end)
        return "".join([*out, self._text[position:]])

    def edit(self, node: Node, edits: Mapping[Steps, Any], key: Node | None = None) -> None:
        """Takes down the edits of everything below a node; the key is that which the node stands at."""
        if node.flow or not node.parts:
            self._write_anew(node, edits)
            return
        here, below = _divided(edits)
        for step, inner in below.items():
            if step not in node.parts:  # it is merged from elsewhere
                raise _Unfit
            self.edit(node.parts[step][1], inner, node.parts[step][0])
        if here:
            self._edit(key, node, here)

    def _write_anew(self, node: Node, edits: Mapping[Steps, Any]) -> None:
        """Replaces what is written between braces or brackets, which has no comments."""
        after = _applied(node.value, edits)
        start, text = node.start.index, to_flow(after)
        if re.search(r"(?:^|\s)#", self._text[start : node.end]):
            raise _Unfit
        if isinstance(after, list) and not node.parts:
            # `quotas: []` becomes a list with a line for each part of an item.
            start = len(self._text[:start].rstrip())
            text = "".join(self._newline + line for item in after for line in _item_lines(item, "  "))
        self._pieces.append((start, node.end, text))

    def _edit(self, key: Node | None, node: Node, edits: Mapping[str | int, Any]) -> None:
        removed = [step for step, value in edits.items() if value is REMOVED]
        added = {step: value for step, value in edits.items() if step not in node.parts and value is not REMOVED}
        for step, value in edits.items():
            if step in node.parts and value is not REMOVED:
                self._replace(*node.parts[step], value)
        for step in removed:
            self._remove_lines(*node.parts[step])
        if added:
            self._add_lines(node, added)
        elif len(removed) == len(node.parts):  # leaves `[]` or `{}`
            if key is None or key is node:
                raise _Unfit
            colon = key.end + 1
            self._pieces.append((colon, colon, " []" if isinstance(node.value, list) else " {}"))

    def _replace(self, key: Node, value: Node, new: Any) -> None:
        start, end = value.start.index, value.end
        if not value.flow:
            start = key.end + 1  # behind the colon
        blank = "" if self._text[start - 1 : start].isspace() else " "
        self._pieces.append((start, end, blank + to_flow(new)))

    def _remove_lines(self, key: Node, value: Node) -> None:
        """Removes a key or an item with the comments right above it and behind it."""
        first = key.start.index
        if value is key:  # an item of a list, behind its dash
            first = len(self._text[:first].rstrip()) - 1
        start = self._line_start(first)
        if self._text[start:first].strip(" ") or (value is key and self._text[first] != "-"):
            raise _Unfit
        end = self._next_line(value.end)
        while start > 0:
            above = self._line_start(start - 1)
            if not self._text[above:start].lstrip(" ").startswith("#"):
                break
            start = above
        before = self._text[self._line_start(start - 1) : start]
        # Two blank lines would be left where there was one on each side.
        while (not before.strip() or before.rstrip().endswith(":")) and end < len(self._text):
            following = self._text.find("\n", end) + 1 or len(self._text)
            if self._text[end:following].strip():
                break
            end = following
        self._pieces.append((start, end, ""))

    def _add_lines(self, node: Node, added: Mapping[str | int, Any]) -> None:
        children = [*node.parts.values()]
        first, last = children[0][0], children[-1]
        line_start = self._line_start(last[0].start.index)
        at = self._next_line(last[1].end)
        if isinstance(node.value, list):
            # The dash may stand on a line of its own.
            before = self._text[: last[0].start.index].rstrip()
            line_start = self._line_start(len(before))
            dash = re.fullmatch(r"( *)-", before[line_start:])
            if dash is None:
                raise _Unfit
            apart = len(children) > 1 and self._is_blank_above(line_start)
            lines = []
            for value in added.values():
                lines += [""] if apart else []
                lines += _item_lines(value, dash[1])
        else:
            indent = " " * first.start.column
            lines = [f"{indent}{key}: {to_flow(value)}" for key, value in added.items()]
        text = "".join(line + self._newline for line in lines)
        if not self._text[:at].endswith("\n"):
            text = self._newline + text.removesuffix(self._newline)
        self._pieces.append((at, at, text))

    def _is_blank_above(self, line_start: int) -> bool:
        """Whether a blank line parts the item there, with the comments on top of it, from the one before."""
        while line_start > 0:
            above = self._line_start(line_start - 1)
            line = self._text[above:line_start].strip()
            if not line.startswith("#"):
                return not line
            line_start = above
        return False

    def _line_start(self, index: int) -> int:
        return self._text.rfind("\n", 0, index) + 1

    def _next_line(self, index: int) -> int:
        """The start of the line after the one that `index` is in, or ends."""
        if index > 0 and self._text[index - 1] == "\n":
            return index
        newline = self._text.find("\n", index)
        return len(self._text) if newline < 0 else newline + 1


def _item_lines(item: Mapping[str, Any], indent: str) -> list[str]:
    """An item of a list with a line for each of its keys."""
    return [
        f"{indent}{'- ' if number == 0 else '  '}{key}: {to_flow(value)}"
        for number, (key, value) in enumerate(item.items())
    ]
