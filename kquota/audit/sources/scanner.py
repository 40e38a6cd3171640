"""The usual lines of a JSON request log, many at once: a compiled walk makes columns of them, and these become rows.

`charged.SCHEMA` is all that is read of a line. Nothing is decided here: a row is what `request_line.parse` makes of the
same line, and a line that is unusual in any way is left to it: requests about topics, among brokers or forwarded, a
field that is missing or out of range.

Importing this module loads numba.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo
from functools import cache
from typing import Any, Final
from zlib import crc32

import numpy as np

from kquota.audit.batch import API_KINDS, JAVA, OTHER_LIBRARY, Int64s
from kquota.audit.sources import charged as of
from kquota.audit.sources import walk
from kquota.audit.sources.charged import SLOTS, Shown, charge
from kquota.audit.sources.data_log import DATA_APIS, ID, DataLog
from kquota.audit.sources.envelope import START
from kquota.audit.sources.joints import Learner
from kquota.audit.sources.moments import layout_before, second_of
from kquota.audit.sources.mutations import TOLD_APIS
from kquota.audit.sources.names import WIDTH, Names
from kquota.audit.sources.request_line import EXEMPT_APIS, NO_NAMES
from kquota.audit.sources.requests import Requests, identity
from kquota.core.enforcement.kind import REQUEST

Columns = Any
Flags = Any

_START: Final = np.frombuffer(START.encode() + bytes(WIDTH), np.uint8)
_BLANKS: Final = np.frombuffer(b"\t\n\v\f\r ", np.uint8)
_LINES, _ITEMS, _TEXTS, _LETTERS, _MOST_SHAPES = 1 << 12, 1 << 15, 1 << 16, 1 << 22, 1000

# --- Texts and their meanings.

_NEW: Final = np.iinfo(np.int64).min
_INVALID: Final = _NEW + 1


class _Meaning:
    """A number for each text, made when it is first met; `_INVALID` where that cannot be."""

    def __init__(self, make: Callable[[Any], int]) -> None:
        self._make = make
        self._values = np.empty(_TEXTS + 1, np.int64)
        self.forget()

    def of(self, scanner: Scanner, numbers: Int64s) -> Int64s:
        """The numbers of texts; a text without one is `_INVALID`."""
        numbers = np.maximum(numbers, -1)
        values = self._values[numbers]
        if (new := values == _NEW).any():
            for number in set(numbers[new].tolist()):
                try:
                    self._values[number] = self._make(scanner.text(number))
                except (ValueError, TypeError, AttributeError):
                    self._values[number] = _INVALID
            values = self._values[numbers]
        return values

    def forget(self) -> None:
        """The texts have other numbers now. The last value stands for a missing text."""
        self._values[:-1], self._values[-1] = _NEW, _INVALID


@cache
def _learner(unusual: frozenset[str]) -> Learner:
    """What a process learns of joints: every split of its logs has the same ones."""
    return Learner(of.SCHEMA, of.OTHERS, unusual)


@dataclass(frozen=True)
class Usual:
    """What was read of some lines."""

    rows: Columns
    """As of `names.ROW`, a line each."""
    lines: Int64s
    """Which lines these are."""
    begins: Int64s
    """Where each of them begins."""
    odd: list[tuple[int, int]]
    """(line, where it begins) of those that are left, but for blank ones."""
    repeated: int
    """How many requests were there before; no row is of them."""
    outside: int
    """How many are outside the time that counts; no row is of them."""
    count: int
    """How many lines there are in all."""
    stop: int
    """Where the last one ends."""
    followers: int
    followers_ns: int
    numbers: Columns
    """`requests.COLUMNS` of each."""
    firsts: list[tuple[str, int, bool]]
    """(connection, time, whether that opened it) of the earliest line of each connection, where that is asked for."""


class Scanner:
    """Reads lines of one log. Its times are in `zone`."""

    def __init__(self, zone: tzinfo) -> None:
        self._zone = zone
        cells = np.empty(_LINES * SLOTS + _ITEMS * walk.CELLS, np.int64)
        room = np.array([_LINES * SLOTS, _ITEMS, SLOTS])
        scratch, bases, state = np.zeros(walk.LONGEST, np.uint8), np.zeros(3, np.int64), np.zeros(6, np.int64)
        self._store = walk.Store(cells, cells.view(np.float64), room, scratch, bases, state)
        numbers = np.zeros((_TEXTS, 3), np.int64), np.zeros(_LETTERS, np.uint8)
        layouts = np.zeros((_TEXTS, 6), np.int64)
        self._texts = walk.Texts(np.empty(4 * _TEXTS, np.int32), *numbers, np.zeros(2, np.int64), layouts)
        self._shapes = 0
        self._seconds = _Meaning(lambda text: int(second_of(text[:19], text[19:] or None, zone)))
        self._software = _Meaning(
            lambda text: JAVA if text == "apache-kafka-java" else OTHER_LIBRARY if text not in NO_NAMES else 0
        )
        self._meanings = [self._seconds, self._software]
        self._forget()

    def _forget(self) -> None:
        """Begins anew with texts."""
        self._texts.slots[:] = -1
        self._texts.used[:] = 1, 0
        self._texts.layouts[:] = 0
        self._crcs = np.zeros(0, np.int64)
        for meaning in self._meanings:
            meaning.forget()

    def text(self, number: int) -> str | None:
        """The text of that number."""
        if number == 0:
            return None
        _, start, length = self._texts.entries[number].tolist()
        letters: bytes = self._texts.letters[start : start + length].tobytes()
        return letters.decode()

    def crcs(self) -> Int64s:
        """The CRCs of all texts."""
        letters, old = memoryview(self._texts.letters), len(self._crcs)
        places = self._texts.entries[old : self._texts.used[0], 1:].tolist()
        new = np.array([crc32(letters[start : start + length]) for start, length in places], np.int64)
        self._crcs = np.concatenate([self._crcs, new])
        return self._crcs

    def begin(
        self,
        names: Names,
        data: DataLog | None,
        requests: Requests,
        counts: Callable[[Int64s], Flags],
        *,
        firsts: bool = False,
    ) -> None:
        """The names that are met from now on go there, what is shown of the data, and which requests were read.

        `counts` says which times count.
        """
        self._data, self._wants_firsts, self._requests, self._counts = data, firsts, requests, counts
        self._users = _Meaning(names.users.__getitem__)
        self._clients = _Meaning(names.clients.__getitem__)
        self._connections = _Meaning(names.connections.__getitem__)
        unusual = TOLD_APIS | EXEMPT_APIS | DATA_APIS - {"PRODUCE", "FETCH"}
        self._learner = _learner(frozenset(unusual))
        self._meanings[2:] = [self._users, self._clients, self._connections]
        if data is not None:
            self._topics = _Meaning(lambda text: data.topics.setdefault(text, len(data.topics)))
            self._ids = _Meaning(lambda text: data.topics.setdefault(ID + text, len(data.topics)))
            self._data_users = _Meaning(lambda text: data.users.setdefault(text.partition(":")[2], len(data.users)))
            self._data_clients = _Meaning(lambda text: data.clients.setdefault(text or "", len(data.clients)))
            self._meanings += [self._topics, self._ids, self._data_users, self._data_clients]

    def read(self, buffer: Any, start: int, stop: int, path: str = "") -> Usual:
        """Reads lines of a file, some thousands at most.

        `buffer` goes on behind `stop`, an end of a line, by WIDTH such ends.
        """
        state, texts = self._store.state, self._texts
        state[:3] = start, 0, 0
        while True:
            reason = walk.walk(buffer, stop, _START, self._learner.joints, texts, self._store)
            at, _, _, length, joint, place = state.tolist()
            if reason == walk.NEW_SHAPE:
                self._learn(int(self._store.cells[int(state[1]) * SLOTS + walk.SHAPE]), bytes(buffer[at : at + length]))
            elif reason == walk.NEW_JOINT:
                line = bytes(buffer[place : place + walk.LONGEST])
                self._learner.learn(joint, line[: line.find(b"\n") + 1 or None])
            else:
                break
        usual = _Reading(self, buffer).usual(path)
        used = texts.used.tolist()
        if reason == walk.FULL and (used[0] > _TEXTS - 1024 or used[1] > _LETTERS - 32 * walk.LONGEST):
            self._forget()
        return usual

    def _learn(self, shape: int, before: bytes) -> None:
        """Learns where the time stands in what has that shape."""
        self._shapes += 1
        layout = None
        try:
            text = before.decode()
            if self._shapes <= _MOST_SHAPES and text.isascii() and "\n" not in text and START not in text:
                layout = layout_before(text, self._zone)
        except (ValueError, OverflowError):
            pass
        self._texts.layouts[shape] = (2, 0, 0, 0, 0, 0) if layout is None else (1, *layout)


class _Reading:
    """Some lines on the way from columns to rows."""

    def __init__(self, scanner: Scanner, buffer: Any) -> None:
        self.scanner, self.buffer, store = scanner, buffer, scanner._store
        self.stop, self.count, items = store.state[:3].tolist()
        self._rows = store.cells[: self.count * SLOTS].reshape(-1, SLOTS)
        self._items = store.cells[_LINES * SLOTS :][: items * walk.CELLS].reshape(-1, walk.CELLS)
        self._lines = np.ascontiguousarray(self._rows.T)
        self.usual_lines = self._lines[walk.USUAL] == 1

    def _room(self) -> Shown:
        """Room for what the lines show of the data, where that is wanted."""
        is_wanted, items = self.scanner._data is not None, len(self._items)
        appended, fetched, parts = (
            np.empty(shape if is_wanted else (0, 0), np.int64) for shape in ((items, 6), (self.count, 9), (items, 4))
        )
        return Shown(appended, fetched, parts, np.full(3, is_wanted - 1))

    def meant(self, meaning: _Meaning, numbers: Int64s) -> Int64s:
        """The numbers of texts of usual lines; without one a line is not usual."""
        meant = meaning.of(self.scanner, np.where(self.usual_lines, numbers, walk.UNSET))
        self.refuse(meant == _INVALID)
        return meant

    def refuse(self, lines: Any) -> None:
        """These are not usual."""
        self.usual_lines[lines] = False

    def usual(self, path: str) -> Usual:
        """The rows of the lines that are usual."""
        scanner = self.scanner
        rows, shown = np.zeros((self.count, of.COLUMNS), np.int64), self._room()
        self._name(rows)
        seconds = self.meant(scanner._seconds, self._lines[walk.SECOND])
        charge(
            self._rows,
            self._rows.view(np.float64),
            self._items,
            scanner._texts,
            scanner.crcs(),
            seconds,
            self.usual_lines,
            rows,
            shown,
        )
        outside = self.usual_lines & ~scanner._counts(rows[:, of.TIME_MS])
        self.refuse(outside)
        numbers = self._numbers(rows)
        repeated = self.usual_lines & ~self._news(numbers, path)
        self.refuse(repeated)
        if scanner._data is not None:
            self._show(scanner._data, shown, rows[:, of.PEER])
        follows = self.usual_lines & (rows[:, of.FOLLOWER] >= 0)
        numbers[follows, 2] = 1
        lines = np.flatnonzero(self.usual_lines & ~follows)
        begins = self._lines[walk.BEGIN]
        blank = np.isin(self.buffer[begins], _BLANKS) & (np.diff(begins, append=self.stop) <= 2)
        odd = np.flatnonzero(~self.usual_lines & ~repeated & ~outside & ~blank)
        return Usual(
            rows[lines, : of.FOLLOWER],
            lines,
            begins[lines],
            list(zip(odd.tolist(), begins[odd].tolist(), strict=True)),
            int(repeated.sum()),
            int(outside.sum()),
            self.count,
            self.stop,
            int(follows.sum()),
            int(numbers[follows, 3].sum()),
            numbers[self.usual_lines],
            self._firsts(rows) if scanner._wants_firsts else [],
        )

    @property
    def _apis(self) -> Int64s:
        """The number of each line's API among the names that the scanner learned."""
        apis: Int64s = np.maximum(self._lines[of.API], 0)
        return apis

    def _name(self, rows: Columns) -> None:
        """Fills in what each request is, and who sent it."""
        scanner = self.scanner
        kinds = np.array([API_KINDS.get(name.lower(), REQUEST) for name in scanner._learner.apis])
        rows[:, of.KIND] = kinds[self._apis]
        for meaning, slot, column in (
            (scanner._users, of.PRINCIPAL, of.USER),
            (scanner._clients, of.CLIENT_ID, of.CLIENT),
            (scanner._connections, of.CONNECTION, of.PEER),
        ):
            rows[:, column] = self.meant(meaning, self._lines[slot])
        software = self._lines[of.SOFTWARE]
        known = self.usual_lines & (software != walk.UNSET)
        rows[known, of.POSITION] = scanner._software.of(scanner, software[known])
        self.refuse(rows[:, of.POSITION] == _INVALID)

    def _numbers(self, rows: Columns) -> Int64s:
        """`requests.COLUMNS` of each line."""
        own = (self._apis == of.PRODUCE) & (rows[:, of.POSITION] & 3 == OTHER_LIBRARY)
        spent_ns = np.maximum(rows[:, of.REQUEST_NS], rows[:, of.EXEMPT_NS])
        return np.column_stack([rows[:, of.PEER], self._lines[of.CORRELATION], own, spent_ns, rows[:, of.TIME_MS]])

    def _news(self, numbers: Int64s, path: str) -> Flags:
        """Which usual lines are requests that were not there before."""
        known, new = np.flatnonzero(self.usual_lines), np.zeros(self.count, bool)
        apis = np.array([crc32(name.encode()) for name in self.scanner._learner.apis])[self._apis]
        connection, correlation, _, spent_ns, time_ms = numbers.T
        parts = (connection, correlation, apis, time_ms, spent_ns)
        keys = identity(*(part[known].astype(np.uint64) for part in parts))
        new[known] = self.scanner._requests.news(keys, path, walk.added)
        return new

    def _firsts(self, rows: Columns) -> list[tuple[str, int, bool]]:
        """(connection, time, whether that opened it) of the earliest usual line of each connection."""
        opens, time_ms, connections = self._apis == of.OPENING, rows[:, of.TIME_MS], rows[:, of.PEER]
        order = np.lexsort((~opens, time_ms))
        order = order[self.usual_lines[order]]
        return [
            (self.scanner.text(int(self._lines[of.CONNECTION][first])) or "", int(time_ms[first]), bool(opens[first]))
            for first in order[np.unique(connections[order], return_index=True)[1]].tolist()
        ]

    def _show(self, data: DataLog, shown: Shown, connections: Int64s) -> None:
        """Adds to the data what `DataLog.add` would add of each line."""
        scanner, usual = self.scanner, self.usual_lines
        appended, fetched, parts = (table[:count] for table, count in zip(shown, shown.counts.tolist(), strict=False))
        for topics in appended[:, 1], parts[:, 0]:
            names, ids = (np.where(numbers > 0, numbers, walk.UNSET) for numbers in (topics, -topics))
            topics[:] = np.where(topics > 0, scanner._topics.of(scanner, names), scanner._ids.of(scanner, ids))
        lines = fetched[:, 2].copy()
        fetched[:, 2] = connections[lines]
        fetched[:, 3] = scanner._data_users.of(scanner, self._lines[of.PRINCIPAL][lines])
        fetched[:, 4] = scanner._data_clients.of(scanner, self._lines[of.CLIENT_ID][lines])
        owners = np.repeat(lines, fetched[:, 7] + fetched[:, 8])
        data.appended.frombytes(appended[usual[appended[:, 5]], :5].tobytes())
        data.fetched.frombytes(fetched[usual[lines]].tobytes())
        data.parts.frombytes(parts[usual[owners]].tobytes())
