"""YAML as nodes that know their places: values, lines and edits come from the same nodes.

The only module that knows the YAML library: its parser in C where the installation has it, else the same in Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import yaml

from kquota.errors import InputError

DEEPEST: Final = 100
"""Levels of nesting in a text; no document has ten."""
MOST_ALIASED: Final = 100_000
"""Values that the aliases of a text may stand for, beyond those that are written."""

_PARSER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG: Final = "tag:yaml.org,2002:"


@dataclass(slots=True)
class Node:
    """A part of a text: its value, where that is written, and the parts that a mapping or a list has."""

    value: Any
    start: Any
    """Where it begins: its `index` in the text, and its `line` and `column` from 0."""
    end: int
    """The index at which it ends; comments and blank lines behind a block are not in it."""
    flow: bool
    parts: dict[Any, tuple[Node, Node]]
    """By key the nodes of key and value; by index a node twice. Empty where only values were asked for."""
    size: int = 1
    """Values in it, those that aliases stand for included."""
    depth: int = 0
    key: Node | None = None
    """The key whose value comes next, while the text is read."""
    open: bool = False

    def line_of(self, steps: Sequence[object]) -> str:
        """`, line N` of the place that keys and indexes lead to, as far as they lead."""
        node, mark = self, self.start
        for step in steps:
            if step not in node.parts:
                break
            key, node = node.parts[step]
            mark = key.start
        return _line(mark)


_NO_PARTS: Final[dict[Any, tuple[Node, Node]]] = {}


_SCALARS: Final[Mapping[str, tuple[re.Pattern[str], Callable[[str], Any]]]] = {
    name: (re.compile(rf"(?:{pattern})\Z"), make)
    for name, pattern, make in (
        ("null", "null|Null|NULL|~|", lambda text: None),
        ("bool", "true|True|TRUE|false|False|FALSE", lambda text: text.lower() == "true"),
        (
            "int",
            "[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
            lambda text: int(text, 0 if text[1:2] in ("o", "x") else 10),
        ),
        (
            "float",
            r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
            lambda text: float(text.lower().replace(".inf", "inf").replace(".nan", "nan")),
        ),
    )
}
"""The types of YAML 1.2's core schema, which are also those of JSON."""


@lru_cache(10_000)
def _plain(text: str) -> Any:
    """The value of a scalar without quotation marks: thousands of entries have the same few."""
    return next((make(text) for pattern, make in _SCALARS.values() if pattern.match(text)), text)


def _tagged(tag: str, text: str) -> Any:
    """The value of a scalar that names its type. Raises ValueError."""
    name = tag.removeprefix(_TAG)
    if name in ("!", "str", "timestamp"):
        return text
    if name not in _SCALARS or not _SCALARS[name][0].match(text):
        raise ValueError
    return _SCALARS[name][1](text)


@lru_cache(2)
def nodes(text: str) -> tuple[Node, ...]:
    """The root of each document in a text. Raises InputError whose message begins with the line."""
    return roots(text, places=True)


def roots(text: str, *, places: bool = False) -> tuple[Node, ...]:
    """The same; only with `places`, nodes know their parts. Places take many times the memory of values."""
    try:
        return _Reader(places).read(text)
    except yaml.MarkedYAMLError as error:
        problem = " ".join(str(error.problem or error.context).split())
        if "expected '<document start>'" in problem or "expected <document start>" in problem:
            problem = "this is not one YAML document: look at the lines before this one"
        mark = error.problem_mark or error.context_mark
        # The parser in C counts a line behind the last one.
        line = min(mark.line, text.rstrip("\n").count("\n")) + 1
        if text.split("\n")[line - 1].lstrip(" ").startswith("\t"):
            problem = "it begins with a tab, and YAML is indented by blanks"
        raise InputError(f", line {line}: {problem[:200]}") from None
    except yaml.YAMLError as error:
        raise InputError(f": {' '.join(str(error).split())[:200]}") from None


class _Reader:
    """Puts nodes together, of the events that the parser finds."""

    def __init__(self, places: bool) -> None:
        self._places = places
        self._roots: list[Node] = []
        self._open: list[Node] = []
        self._anchors: dict[str, Node] = {}
        self._aliased = 0

    def read(self, text: str) -> tuple[Node, ...]:
        for event in yaml.parse(text, _PARSER):
            kind = type(event)
            if kind is yaml.ScalarEvent:
                self._add(self._anchored(event, _scalar(event)))
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                if event.tag not in (None, "!", f"{_TAG}map" if kind is yaml.MappingStartEvent else f"{_TAG}seq"):
                    raise _wrong(event.start_mark, f"it is not of the type {event.tag.rpartition(':')[2]}")
                if len(self._open) >= DEEPEST:
                    raise _too_deep(event.start_mark)
                value: Any = {} if kind is yaml.MappingStartEvent else []
                node = Node(value, event.start_mark, event.end_mark.index, event.flow_style, {}, open=True)
                self._open.append(self._anchored(event, node))
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                self._add(self._closed(event))
            elif kind is yaml.AliasEvent:
                self._add(self._alias(event))
            elif kind is yaml.DocumentStartEvent:
                self._anchors.clear()
        return tuple(self._roots)

    def _anchored(self, event: Any, node: Node) -> Node:
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _alias(self, event: Any) -> Node:
        node = self._anchors.get(event.anchor)
        if node is None:
            raise _wrong(event.start_mark, f"found undefined alias '{event.anchor}'")
        if node.open:
            raise _wrong(event.start_mark, "an alias in it stands for what it is a part of")
        self._aliased += node.size
        if self._aliased > MOST_ALIASED:
            raise _wrong(event.start_mark, f"its aliases stand for more than {MOST_ALIASED:,} values")
        return node

    def _closed(self, event: Any) -> Node:
        node = self._open.pop()
        node.open = False
        if node.flow:
            node.end = event.end_mark.index
        elif node.parts:
            node.end = next(reversed(node.parts.values()))[1].end
        if isinstance(node.value, dict) and node.value.get("<<") is not None:
            _merge(node)
        return node

    def _add(self, node: Node) -> None:
        """Takes a node that is whole into the one that it is a part of."""
        if not self._open:
            self._roots.append(node)
            return
        parent = self._open[-1]
        parent.size += node.size
        if node.depth >= parent.depth:
            parent.depth = node.depth + 1
            if parent.depth > DEEPEST:
                raise _too_deep(node.start)
        if isinstance(parent.value, list):
            if self._places:
                parent.parts[len(parent.value)] = (node, node)
            parent.value.append(node.value)
        elif parent.key is None:
            if isinstance(node.value, dict | list):
                raise _wrong(node.start, "a key is not a text")
            if node.value in parent.value:
                raise _wrong(node.start, f"{node.value!r} is given twice")
            parent.key = node
        else:
            key, parent.key = parent.key, None
            if self._places or key.value == "<<":
                parent.parts[key.value] = (key, node)
            parent.value[key.value] = node.value


def _merge(node: Node) -> None:
    """Gives a mapping the entries of `<<` that it has not itself."""
    merged = node.value.pop("<<")
    for mapping in merged if isinstance(merged, list) else [merged]:
        if not isinstance(mapping, dict):
            raise _wrong(node.parts["<<"][1].start, "what << merges is not a mapping")
        for key, value in mapping.items():
            node.value.setdefault(key, value)


def _scalar(event: Any) -> Node:
    text = event.value
    try:
        value = text if event.implicit[1] else _plain(text) if event.implicit[0] else _tagged(event.tag, text)
    except ValueError:  # Python reads no numbers of thousands of digits
        kind = "int" if event.tag is None else event.tag.rpartition(":")[2]
        raise _wrong(event.start_mark, f"it is not of the type {kind}") from None
    return Node(value, event.start_mark, event.end_mark.index, True, _NO_PARTS)


def _wrong(mark: Any, problem: str) -> InputError:
    return InputError(f"{_line(mark)}: {problem}")


def _too_deep(mark: Any) -> InputError:
    return _wrong(mark, f"it is nested more than {DEEPEST} levels deep")


def _line(mark: Any) -> str:
    return f", line {mark.line + 1}"


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represented(dumper: _Dumper, text: str) -> Any:
    return dumper.represent_scalar(f"{_TAG}str", text, style=None if text.isprintable() else '"')


_Dumper.add_representer(str, _represented)
_Dumper.add_representer(type(None), lambda dumper, _: dumper.represent_scalar(f"{_TAG}null", ""))
for _name, (_pattern, _) in _SCALARS.items():
    # A text that another type looks like stands between quotation marks.
    _Dumper.add_implicit_resolver(f"{_TAG}{_name}", _pattern, None)


def dumped(document: Mapping[str, Any]) -> str:
    """Block-style YAML in the document's own order of keys."""
    return str(yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120, indent=2))
