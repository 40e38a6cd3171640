"""The usual lines of a JSON request log, many at once: a compiled walk makes columns of them, and these become rows.

`charged.SCHEMA` is all that is read of a line. Nothing is decided here: a row is what `request_line.parse` makes of the same
line, and a line that is unusual in any way is left to it: requests about topics, among brokers or forwarded, a field
that is missing or out of range.

Importing this module loads numba.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np

from kquota.audit.batch import API_KINDS, JAVA, OTHER_LIBRARY, Int64s
from kquota.audit.sources import charged as of
from kquota.audit.sources.charged import COLUMNS, SLOTS, charge
from kquota.audit.sources.data_log import DATA_APIS, FORGOTTEN, ID, DataLog
from kquota.audit.sources.envelope import START
from kquota.audit.sources.joints import Learner
from kquota.audit.sources.moments import Layout, layout_before, second_of
from kquota.audit.sources.mutations import TOLD_APIS
from kquota.audit.sources.names import NOT_EXEMPT, UNSIZED, WIDTH, Names
from kquota.audit.sources.request_line import EXEMPT_APIS, NO_NAMES
from kquota.audit.sources.requests import Requests, identity
from kquota.audit.sources.walk import (
    BEGIN,
    CELLS,
    FIRST_CELL,
    FULL,
    LINE,
    LONGEST,
    NEW_JOINT,
    NEW_SHAPE,
    PARENT,
    SECOND,
    SHAPE,
    TYPE,
    UNSET,
    USUAL,
    Found,
    Texts,
    added,
    walk,
)
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


class _Items(NamedTuple):
    """The items of one kind of list, in the order of the log."""

    rows: Int64s
    """Their own numbers, which are the parents of others."""
    line: Int64s
    parent: Int64s
    cells: Columns


@dataclass(frozen=True)
class Usual:
    """What was read of some lines."""

    rows: Columns
    """As of `names.ROW`, a line each."""
    lines: Int64s
    """Which lines these are."""
    begins: Int64s
    """Where each of them begins."""
    odd: list[tuple[int, int, bool]]
    """(line, where it begins, whether it is known to be new) of those that are left, but for blank ones."""
    repeated: int
    """How many requests were there before; no row is of them."""
    count: int
    """How many lines there are in all."""
    stop: int
    """Where the last one ends."""
    followers: int
    followers_ns: int
    numbers: Columns
    """(connection, number, whether its client numbers each broker's requests alone, thread time) of each."""
    firsts: list[tuple[str, int, bool]]
    """(connection, time, whether that opened it) of the earliest line of each connection, where that is asked for."""


class Scanner:
    """Reads lines of one log. Its times are in `zone`."""

    def __init__(self, zone: tzinfo) -> None:
        self._zone, self._learner = zone, Learner(of.SCHEMA, of.OTHERS)
        cells, room = np.empty(_LINES * SLOTS + _ITEMS * CELLS, np.int64), np.array([_LINES * SLOTS, _ITEMS, SLOTS])
        scratch, bases, state = np.zeros(LONGEST, np.uint8), np.zeros(3, np.int64), np.zeros(6, np.int64)
        self._found = Found(cells, cells.view(np.float64), room, scratch, bases, state)
        numbers = np.zeros((_TEXTS, 3), np.int64), np.zeros(_LETTERS, np.uint8)
        layouts = np.zeros((_TEXTS, 6), np.int64)
        self._texts = Texts(np.empty(4 * _TEXTS, np.int32), *numbers, np.zeros(2, np.int64), layouts)
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

    def begin(self, names: Names, data: DataLog | None, requests: Requests, *, firsts: bool = False) -> None:
        """The names that are met from now on go there, what is shown of the data, and which requests were read."""
        self._data, self._wants_firsts, self._requests = data, firsts, requests
        self._users = _Meaning(names.users.__getitem__)
        self._clients = _Meaning(names.clients.__getitem__)
        self._connections = _Meaning(names.connections.__getitem__)
        unusual = TOLD_APIS | EXEMPT_APIS | ((DATA_APIS - {"PRODUCE", "FETCH"}) if data is not None else frozenset())
        self._learner.unusual = unusual
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
        state, texts = self._found.state, self._texts
        state[:3] = start, 0, 0
        while True:
            reason = walk(buffer, stop, _START, self._learner.joints, texts, self._found)
            at, _, _, length, joint, place = state.tolist()
            if reason == NEW_SHAPE:
                self._learn(int(self._found.cells[int(state[1]) * SLOTS + SHAPE]), bytes(buffer[at : at + length]))
            elif reason == NEW_JOINT:
                line = bytes(buffer[place : place + LONGEST])
                self._learner.learn(joint, line[: line.find(b"\n") + 1 or None])
            else:
                break
        usual = _Reading(self, buffer).usual(path)
        used = texts.used.tolist()
        if reason == FULL and (used[0] > _TEXTS - 1024 or used[1] > _LETTERS - 32 * LONGEST):
            self._forget()
        return usual

    def _learn(self, shape: int, before: bytes) -> None:
        """Learns where the time stands in what has that shape."""
        self._shapes += 1
        layout: Layout | None = None
        try:
            text = before.decode()
            if self._shapes <= _MOST_SHAPES and text.isascii() and "\n" not in text and START not in text:
                layout = layout_before(text, self._zone)
        except ValueError:
            pass
        self._texts.layouts[shape] = (2, 0, 0, 0, 0, 0) if layout is None else (1, *layout)


class _Reading:
    """Some lines on the way from columns to rows."""

    def __init__(self, scanner: Scanner, buffer: Any) -> None:
        self.scanner, self.buffer, found = scanner, buffer, scanner._found
        self.stop, self.count, items = found.state[:3].tolist()
        self._rows = found.cells[: self.count * SLOTS].reshape(-1, SLOTS)
        self._item_rows = found.cells[_LINES * SLOTS :][: items * CELLS].reshape(-1, CELLS)
        self._lines, self._items = np.ascontiguousarray(self._rows.T), self._item_rows.T
        self.usual_lines = self._lines[USUAL] == 1

    def items(self, item: int) -> _Items:
        """The items of a type."""
        rows = np.flatnonzero(self._items[TYPE] == item)
        some = self._items[:, rows]
        return _Items(rows, some[LINE], some[PARENT], some[FIRST_CELL:])

    def meant(self, meaning: _Meaning, numbers: Int64s) -> Int64s:
        """The numbers of texts of usual lines; without one a line is not usual."""
        found = meaning.of(self.scanner, np.where(self.usual_lines, numbers, UNSET))
        self.refuse(found == _INVALID)
        return found

    def refuse(self, lines: Any) -> None:
        """These are not usual."""
        self.usual_lines[lines] = False

    def usual(self, path: str) -> Usual:
        """The rows of the lines that are usual."""
        scanner = self.scanner
        api, correlation = np.maximum(self._lines[of.API], 0), self._lines[of.CORRELATION]
        names = scanner._learner.apis
        kinds = np.array([API_KINDS.get(name.lower(), REQUEST) for name in names])[api]
        users, clients, connections = (
            self.meant(meaning, self._lines[slot])
            for meaning, slot in (
                (scanner._users, of.PRINCIPAL),
                (scanner._clients, of.CLIENT_ID),
                (scanner._connections, of.CONNECTION),
            )
        )
        seconds = self.meant(scanner._seconds, self._lines[SECOND])
        software = self._lines[of.SOFTWARE]
        known = self.usual_lines & (software != UNSET)
        library = np.zeros(self.count, np.int64)
        library[known] = scanner._software.of(scanner, software[known])
        self.refuse(library == _INVALID)
        rows, done = np.zeros((self.count, COLUMNS), np.int64), np.zeros(self.count)
        charge(
            self._rows,
            self._rows.view(np.float64),
            self._item_rows,
            scanner._texts,
            scanner.crcs(),
            seconds,
            self.usual_lines,
            done,
            rows,
        )
        time_ms, size, spent_ns, position, replica, empty = rows.T
        produced, fetched, shared = (api == each for each in (of.PRODUCE, of.FETCH, of.SHARE_FETCH))
        throttle, version = self._lines[of.THROTTLE_MS], self._lines[of.VERSION]
        careless = produced & (self._lines[of.ACKS] == 0)
        request_ns = np.where(careless, 0, spent_ns)
        exempt_ns = np.where(careless, spent_ns, NOT_EXEMPT)
        position = position + library
        kinds[shared & (empty == 0)] += UNSIZED
        known, new = np.flatnonzero(self.usual_lines), np.zeros(self.count, bool)
        parts = (connections, correlation, np.array([crc32(name.encode()) for name in names])[api], time_ms, spent_ns)
        keys = identity(*(part[known].astype(np.uint64) for part in parts))
        new[known] = scanner._requests.news(keys, path, added)
        repeated = self.usual_lines & ~new
        self.usual_lines &= new
        if scanner._data is not None:
            self._show(scanner._data, done, time_ms, replica, produced, fetched, throttle, version)
        follows = self.usual_lines & (replica >= 0)
        lines = np.flatnonzero(self.usual_lines & ~follows)
        columns = (
            time_ms,
            kinds,
            users,
            clients,
            size,
            request_ns,
            throttle,
            connections,
            position,
            exempt_ns,
        )
        firsts = []
        if scanner._wants_firsts:
            opens = api == of.OPENING
            order = np.lexsort((~opens, time_ms))
            order = order[self.usual_lines[order]]
            for first in order[np.unique(connections[order], return_index=True)[1]].tolist():
                connection = scanner.text(int(self._lines[of.CONNECTION][first])) or ""
                firsts.append((connection, int(time_ms[first]), bool(opens[first])))
        begins, blank = np.append(self._lines[BEGIN], self.stop), np.isin(self.buffer[self._lines[BEGIN]], _BLANKS)
        odd = np.flatnonzero(~self.usual_lines & ~repeated & ~(blank & (np.diff(begins) <= 2)))
        own = follows | (produced & (position & 3 == OTHER_LIBRARY))
        read = np.flatnonzero(self.usual_lines)
        return Usual(
            np.stack([column[lines] for column in columns], axis=1),
            lines,
            self._lines[BEGIN][lines],
            list(zip(odd.tolist(), self._lines[BEGIN][odd].tolist(), new[odd].tolist(), strict=True)),
            int(repeated.sum()),
            self.count,
            self.stop,
            int(follows.sum()),
            int(request_ns[follows].sum()),
            np.stack([connections[read], correlation[read], own[read].astype(np.int64), spent_ns[read]], axis=1),
            firsts,
        )

    def _show(self, data: DataLog, done: Any, charged: Int64s, replica: Int64s, produced: Flags,
              fetched: Flags, throttle: Int64s, version: Int64s) -> None:  # fmt: skip
        """Adds to the data what `DataLog.add` would add of each line."""
        scanner, refuse = self.scanner, self.refuse
        remote, local, response = (
            self._lines[of.REMOTE_MS].view(np.float64),
            self._lines[of.LOCAL_MS].view(np.float64),
            self._lines[of.RESPONSE],
        )
        both = produced | fetched
        refuse(both & ((remote < 0) | (response == UNSET) | ((response != 1) & (self._lines[of.ACKS] != 0))))
        usable = self.usual_lines
        since_us, read_us = (
            np.rint(np.where(usable, each * 1000, 0)).astype(np.int64)
            for each in (done - local, done - np.where(remote > 0, 0, local / 2))
        )
        connection = scanner._connections.of(scanner, np.where(usable, self._lines[of.CONNECTION], UNSET))
        # What was produced, with the answers to it.
        stored, answers = self.items(of.STORED_PARTITION), self.items(of.ANSWER_PARTITION)
        topics = self.items(of.STORED_TOPIC)
        owners = np.searchsorted(topics.rows, stored.parent)
        acks = self._lines[of.ACKS]
        wanted = acks[stored.line] != 0
        refuse(answers.line[(answers.cells == UNSET).any(axis=0)])
        offset, failed = np.zeros(len(stored.rows), np.int64), np.zeros(len(stored.rows), bool)
        asked_keys = self._keys(stored, topics, wanted)
        answer_keys = self._keys(answers, self.items(of.ANSWER_TOPIC), acks[answers.line] != 0)
        alike = np.zeros(self.count, np.int64)
        np.add.at(alike, stored.line[wanted], 1)
        np.subtract.at(alike, answers.line[acks[answers.line] != 0], 1)
        refuse(alike != 0)
        one, other = (
            order[usable[lines[order]]]
            for order, lines in ((asked_keys[1], stored.line), (answer_keys[1], answers.line))
        )
        if len(one) == len(other):
            differ = asked_keys[0][one] != answer_keys[0][other]
            twice = np.flatnonzero(np.diff(asked_keys[0][one]) == 0) + 1
            refuse(stored.line[one][differ])
            refuse(stored.line[one][twice])
            offset[one], failed[one] = answers.cells[2][other], answers.cells[1][other] != 0
        topic = self._topic_codes(topics)[owners]
        index, size, _ = stored.cells
        kept = usable[stored.line] & (size > 0) & wanted & ~failed
        lines = stored.line[kept]
        rows = (since_us[lines], topic[kept], index[kept], size[kept], offset[kept])
        # What was fetched.
        asked, gone, given = (
            (self.items(topic), self.items(topic + 1))
            for topic in (of.ASKED_TOPIC, of.FORGOTTEN_TOPIC, of.DELIVERED_TOPIC)
        )
        refuse(asked[1].line[asked[1].cells[2] == UNSET])
        refuse(gone[0].line[gone[0].cells[2] < 0])
        refuse(given[1].line[given[1].cells[0] == UNSET])
        tables = []
        for topics, parts in (asked, gone, given):
            codes = self._topic_codes(topics)[np.searchsorted(topics.rows, parts.parent)]
            nothing = np.zeros(len(codes), np.int64)
            amount = nothing + FORGOTTEN if topics is gone[0] else parts.cells[1]
            most = parts.cells[2] if topics is asked[0] else nothing
            tables.append(np.stack([codes, parts.cells[0], amount, most, parts.line], axis=1))
        usable = self.usual_lines
        data.appended.frombytes(np.stack(rows, axis=1)[usable[lines]].tobytes())
        reads = fetched & usable & (replica < 0)
        lines = np.flatnonzero(reads)
        many, forgotten, answered = (np.bincount(table[:, 4], minlength=self.count)[lines] for table in tables)
        table = np.concatenate(tables)
        table = table[reads[table[:, 4]]]
        data.parts.frombytes(table[np.argsort(table[:, 4], kind="stable"), :4].tobytes())
        silent = (throttle > 0) & (self._lines[of.ANSWERED] == 0)
        columns = (
            read_us,
            np.where(reads, charged, 0),
            connection,
            scanner._data_users.of(scanner, np.where(reads, self._lines[of.PRINCIPAL], UNSET)),
            scanner._data_clients.of(scanner, np.where(reads, self._lines[of.CLIENT_ID], UNSET)),
            (_given(self._lines[of.EPOCH], -1) <= 0).astype(np.int64),
            np.where(silent, ~version, version),
        )
        fetches = np.stack([*(column[lines] for column in columns), many + forgotten, answered], axis=1)
        data.fetched.frombytes(fetches.tobytes())

    def _keys(self, parts: _Items, topics: _Items, wanted: Flags) -> tuple[Int64s, Int64s]:
        """(line, topic and partition of each as one number, the order of those that are wanted)."""
        name, other, _ = topics.cells
        topic = np.where(name != UNSET, name, other)[np.searchsorted(topics.rows, parts.parent)]
        self.refuse(parts.line[wanted & ((topic < 0) | (parts.cells[0] < 0) | (parts.cells[0] >= 1 << 24))])
        keys = parts.line << 44 | topic << 24 | parts.cells[0]
        order = np.argsort(keys, kind="stable")
        return keys, order[wanted[order]]

    def _topic_codes(self, topics: _Items) -> Int64s:
        """The codes of topics in the data."""
        name, other, _ = topics.cells
        scanner, usable = self.scanner, self.usual_lines[topics.line]
        codes = np.where(
            name > 0,
            scanner._topics.of(scanner, np.where(usable & (name > 0), name, UNSET)),
            scanner._ids.of(scanner, np.where(usable & (name <= 0) & (other > 0), other, UNSET)),
        )
        self.refuse(topics.line[codes == _INVALID])
        return codes


def _given(values: Int64s, instead: int) -> Int64s:
    """Values, or what stands for those that are not there."""
    return np.where(values == UNSET, instead, values)
