"""What a walk learns: the texts that stand between the values of lines. A schema says which values are read.

A value whose key is not in the schema is checked to be JSON, and skipped.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from kquota.audit.sources import walk
from kquota.audit.sources.names import WIDTH

SKIPPED, FALSE, API_NAME, OBJECT, LIST, ITEM, INTS, COUNT = range(walk.ODD + 1, walk.ODD + 9)
"""What else may be done with a value; of a list in COUNT only the length is kept, -1 for null."""
STRANGE: Final = -2
"""The value of an object that is something else."""
NOTHING: Final = 0
"""The number of the text null."""


class Key(NamedTuple):
    """What is done with the value of a key."""

    kind: int
    cell: int = 0
    keys: "Mapping[str, Key]" = MappingProxyType({})
    """Those of the object, or of each object of the list."""
    item: int = walk.COUNTED
    """The type of the items of a list."""


class _Frame(NamedTuple):
    """An object or a list that a value is in."""

    path: str
    close: bytes
    key: Key
    """What is done with it."""
    level: int
    """How many lists of items it is in."""


_skipped: Final = Key(SKIPPED)
_NAMED: Final = re.compile(rb'"([ !#-\[\]-\x7f]*)":')
_API_NAME: Final = re.compile(rb'"([A-Z_]+)"')
_WORD: Final = re.compile(rb"null|true|false")
_WORDS: Final = {(FALSE, b"false"): None, (walk.TEXT, b"null"): NOTHING, (COUNT, b"null"): -1}
"""What words mean where not any value is skipped."""
_DIGITS: Final = {SKIPPED: walk.NUMBER, walk.INT: walk.INT, walk.TIME: walk.TIME}
_STRINGS: Final = {SKIPPED: walk.STRING, walk.TEXT: walk.TEXT}
_VALUES: Final = {b'"': _STRINGS, **{bytes([code]): _DIGITS for code in b"-0123456789"}}
"""What is done with a value, by its first byte and what is wanted of it."""
_MOST_JOINTS: Final = 1 << 13
_MOST_MARKS: Final = 32
_DEEPEST: Final = 60


class Learner:
    """Learns joints, and numbers APIs: first the APIs of the schema, then whichever are met.

    The schema has the keys of a line by its API; under no name the keys that come before the API. Lines of the APIs in
    `unusual` are left.
    """

    def __init__(
        self, schema: Mapping[str, Mapping[str, Key]], others: Mapping[str, Key], unusual: frozenset[str]
    ) -> None:
        rows, marks = np.zeros((_MOST_JOINTS, walk.JOINT), np.int64), np.zeros((4 * _MOST_JOINTS, walk.MARK), np.int64)
        letters, behind = np.zeros(128 * _MOST_JOINTS, np.uint8), np.zeros((2, _MOST_JOINTS + 1), np.int64)
        self.joints = walk.Joints(rows, letters, marks, behind[0], behind[1], np.array([1, 0, 0]))
        self.apis, self.unusual = [*schema], unusual
        self._schema, self._others, self._paths = schema, others, {("", b""): 0}
        self._behind: list[tuple[tuple[_Frame, ...], bytes]] = [((self.line(""),), b"")]

    def line(self, api: str) -> _Frame:
        """The object of a line."""
        return _Frame(api, b"}", Key(OBJECT, keys=self._schema.get(api, self._others)), 0)

    def learn(self, path: int, text: bytes) -> None:
        """Learns the joint that a text begins with, behind the last value of a path."""
        rows, letters, marks, firsts, _, used = self.joints
        joint = _Joint(self, *self._behind[path], text)
        joint.read(is_first=path == 0)
        if joint.at > walk.LONGEST or len(joint.marks) > _MOST_MARKS:
            joint.kind, joint.at, joint.marks = walk.ODD, min(joint.at, walk.LONGEST), []
        number, begin, mark = used.tolist()
        end, last = begin + len(text[: joint.at]), mark + len(joint.marks)
        target = self._paths.setdefault((joint.path, joint.ending), len(self._paths))
        if target == len(self._behind):
            self._behind.append((tuple(joint.frames), joint.ending))
        rows[number] = begin, end - begin, firsts[path], target, joint.kind, joint.level, joint.cell, mark, last
        letters[begin:end] = np.frombuffer(text, np.uint8, end - begin)
        marks[mark:last] = np.array(joint.marks, np.int64).reshape(-1, walk.MARK)
        firsts[path] = number
        is_full = end > len(letters) - walk.LONGEST - WIDTH or last > len(marks) - _MOST_MARKS
        used[:] = len(rows) if is_full else number + 1, end, last


class _Joint:
    """A joint on the way from a text to a row; ODD where another reader is to say what it is."""

    def __init__(self, learner: Learner, frames: tuple[_Frame, ...], ending: bytes, text: bytes) -> None:
        self._learner, self._text, self.frames = learner, text, [*frames]
        self.at = len(ending)
        """How much of the text was read."""
        self.kind: int | None = None
        self.path, self.ending, self.level, self.cell = "", b"", 0, 0
        self.marks: list[tuple[int, int, int, int]] = []

    def read(self, *, is_first: bool) -> None:
        """Reads up to a value that differs from line to line: from behind a value, or from a first key."""
        while self.frames and self.kind is None:
            frame = self.frames[-1]
            if self._text.startswith(frame.close, self.at):
                self.frames.pop()
                self.at, is_first = self.at + 1, False
            elif is_first or self._text.startswith(b",", self.at):
                self.at += not is_first
                is_first = self._read_member(frame)
            else:
                self._leave(WIDTH)
        if self.kind is None:
            self.kind = walk.END

    def _leave(self, more: int) -> None:
        """What is unusual is in so many bytes more."""
        self.kind, self.at, self.marks = walk.ODD, self.at + more, []

    def _read_member(self, frame: _Frame) -> bool:
        """Reads a key and its value, or an item of a list; whether that opens an object or a list."""
        path, level, key = f"{frame.path}[]", frame.level, _skipped
        if frame.close == b"}":
            if (named := _NAMED.match(self._text, self.at)) is None:
                self._leave(8 * WIDTH)
                return False
            self.at, name = named.end(), named[1].decode()
            path, key = f'{frame.path}"{name}', frame.key.keys.get(name, _skipped)
        elif frame.key.kind != SKIPPED:
            self.marks.append((level, frame.key.cell, 0, frame.key.item))
            if frame.key.kind == LIST:
                level, key = level + 1, Key(ITEM, keys=frame.key.keys)
            elif frame.key.kind == INTS:
                level, key = level + 1, Key(walk.INT, walk.FIRST_CELL)
        return self._read_value(path, level, key)

    def _read_value(self, path: str, level: int, key: Key) -> bool:
        """Reads a value; whether that opens an object or a list."""
        here = self._text[self.at : self.at + 1]
        if key.kind == OBJECT:
            self.marks.append((level, key.cell, 1 if here == b"{" else STRANGE, walk.VALUE))
            key = key if here == b"{" else _skipped
        if here == b"{" and key.kind in (SKIPPED, OBJECT, ITEM):
            return self._open(_Frame(path, b"}", key, level))
        if here == b"[" and key.kind in (SKIPPED, LIST, INTS, COUNT):
            if key.kind != SKIPPED:
                self.marks.append((level, key.cell, 0, walk.VALUE))
            return self._open(_Frame(path, b"]", key, level))
        if word := _WORD.match(self._text, self.at):
            self._read_word(word, level, key)
        elif key.kind == API_NAME and (name := _API_NAME.match(self._text, self.at)):
            self._read_api(name, key)
        elif here in _VALUES and key.kind in _VALUES[here]:
            self.kind, self.path, self.level, self.cell = _VALUES[here][key.kind], path, level, key.cell
            self.ending = here if here == b'"' else b""
            self.at += len(self.ending)
        else:  # the first byte says enough of a value of another type, and nothing of a name or of damage
            self._leave(1 if here in (b"{", b"[", *_VALUES) and key.kind != API_NAME else WIDTH)
        return False

    def _open(self, frame: _Frame) -> bool:
        """Goes into an object or a list."""
        self.frames.append(frame)
        self.at += 1
        if len(self.frames) > _DEEPEST:
            self._leave(0)
        return True

    def _read_word(self, word: re.Match[bytes], level: int, key: Key) -> None:
        if key.kind != SKIPPED and (key.kind, word[0]) not in _WORDS:
            self._leave(1)
            return
        self.at, value = word.end(), _WORDS.get((key.kind, word[0]))
        if value is not None:
            self.marks.append((level, key.cell, value, walk.VALUE))

    def _read_api(self, named: re.Match[bytes], key: Key) -> None:
        """Reads the name of an API, which says what the line is read for."""
        self.at, name, apis = named.end(), named[1].decode(), self._learner.apis
        if name in self._learner.unusual:
            self._leave(0)
            return
        if name not in apis:
            apis.append(name)
        self.marks.append((0, key.cell, apis.index(name), walk.VALUE))
        header = self.frames[1]
        self.frames = [self._learner.line(name), header._replace(path=f"{name}{header.path}")]
