"""The usual lines of a JSON request log, many at once: a compiled walk makes columns of them, and these become rows.

SCHEMA is all that is read of a line. Nothing is decided here: a row is what `request_line.parse` makes of the same
line, and a line that is unusual in any way is left to it: requests about topics, among brokers or forwarded, a field
that is missing or out of range.

Importing this module loads numba.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final, NamedTuple
from zlib import crc32

import numpy as np

from kquota.audit.batch import API_KINDS, JAVA, OTHER_LIBRARY, Int64s
from kquota.audit.sources.charged import APIS, COLUMNS, ITEMS, PATHS, Slots, charge
from kquota.audit.sources.connections import OPENING_API
from kquota.audit.sources.data_log import DATA_APIS, FORGOTTEN, ID, DataLog
from kquota.audit.sources.envelope import START
from kquota.audit.sources.moments import Layout, layout_before, second_of
from kquota.audit.sources.mutations import TOLD_APIS
from kquota.audit.sources.names import NOT_EXEMPT, UNSIZED, WIDTH, Names
from kquota.audit.sources.request_line import (
    EXEMPT_APIS,
    NO_NAMES,
)
from kquota.audit.sources.requests import Requests, identity
from kquota.audit.sources.sizes import FETCH_PARTS, SHARE_FETCH_EMPTY
from kquota.audit.sources.walk import (
    BEGIN,
    CELLS,
    COUNT,
    FALSE,
    FIRST_CELL,
    FIRST_SLOT,
    FULL,
    INT,
    INTS,
    LINE,
    LIST,
    LONGEST,
    NEW,
    OBJECT,
    ODD,
    PARENT,
    SECOND,
    SHAPE,
    TEXT,
    TIME,
    TYPE,
    UNSET,
    USUAL,
    Found,
    Plan,
    Texts,
    added,
    walk,
)
from kquota.core.enforcement.kind import REQUEST

Columns = Any
Flags = Any

# --- What is read.

_HEADER: Final = {"requestApiVersion": INT, "correlationId": INT, "clientId": TEXT, "requestApiKeyName": TEXT}
_EACH: Final = {
    "isForwarded": ODD, "requestHeader": ODD, "connection": TEXT, "totalTimeMs": TIME, "localTimeMs": TIME,
    "remoteTimeMs": TIME, "throttleTimeMs": INT, "responseQueueTimeMs": TIME, "sendTimeMs": TIME, "principal": TEXT,
}  # fmt: skip
SCHEMA: Final[dict[str, dict[str, Any]]] = {
    "": {**dict.fromkeys((*_EACH, "request", "response"), ODD), "isForwarded": FALSE, "requestHeader": _HEADER},
    "PRODUCE": {
        **_EACH,
        "request": {
            "transactionalId": TEXT,
            "acks": INT,
            "topicData": [
                {"name": TEXT, "topicId": TEXT, "partitionData": [{"index": INT, "recordsSizeInBytes": INT}]}
            ],
        },
        "response": {
            "responses": [
                {
                    "name": TEXT,
                    "topicId": TEXT,
                    "partitionResponses": [{"index": INT, "errorCode": INT, "baseOffset": INT}],
                }
            ]
        },
        "clientInformation": {"softwareName": TEXT},
    },
    "FETCH": {
        **_EACH,
        "request": {
            "replicaId": INT,
            "replicaState": {"replicaId": INT},
            "sessionEpoch": INT,
            "topics": [
                {
                    "topic": TEXT,
                    "topicId": TEXT,
                    "partitions": [{"partition": INT, "fetchOffset": INT, "partitionMaxBytes": INT}],
                }
            ],
            "forgottenTopicsData": [{"topic": TEXT, "topicId": TEXT, "partitions": [INT]}],
        },
        "response": {
            "responses": [
                {
                    "topic": TEXT,
                    "topicId": TEXT,
                    "partitions": [
                        {
                            "partitionIndex": INT,
                            "recordsSizeInBytes": INT,
                            "abortedTransactions": COUNT,
                            "divergingEpoch": ODD,
                            "currentLeader": ODD,
                            "snapshotId": ODD,
                        }
                    ],
                }
            ],
        },
    },
    "SHARE_FETCH": {**_EACH, "response": {"errorCode": INT, "responses": COUNT}},
    "OTHER": _EACH,
}
"""What is done with each value of a line, by the API; of the values of other keys only the JSON is checked.

The first is a line up to its header. A list has the items of lists, which become rows of their own.
"""


class _Schema:
    """The schema as tables: slots by the paths of keys, objects by the paths of lists."""

    def __init__(self) -> None:
        self.slots: dict[str, int] = {}
        self.objects: dict[str, int] = {}
        self.words: dict[str, int] = {"": 0}
        self._actions: list[tuple[int, int, int]] = []
        self.lists: list[bool] = []
        self.tops = {api: self._add(api, keys, "", None) for api, keys in SCHEMA.items()}
        for word in ("requestApiKey", "requestQueueTimeMs", "securityProtocol", "listener", "softwareVersion"):
            self.words.setdefault(word, len(self.words))
        for api in (*SCHEMA, OPENING_API.upper()):
            self.words.setdefault(api, len(self.words))

    def _add(self, path: str, keys: dict[str, Any], prefix: str, cell: int | None) -> int:
        number = len(self.lists)
        self.lists.append(cell is not None)
        self.objects[path] = number
        for key, action in keys.items():
            word, name = self.words.setdefault(key, len(self.words)), prefix + key
            if cell is None:
                slot = self.slots.setdefault(name, FIRST_SLOT + len(self.slots))
            else:
                slot, cell = cell, cell + 1 if action != ODD else cell
            kind, inside = action, 0
            if isinstance(action, dict):
                kind, inside = OBJECT, self._add(f"{path}.{key}", action, f"{name}.", None)
            elif isinstance(action, list):
                kind, (each,) = LIST, action
                if each == INT:
                    kind, each = INTS, {"": INT}
                inside = self._add(f"{path}.{key}", each, "", FIRST_CELL)
            self._actions.append((number, word, kind | inside << 8 | slot << 16))
        assert cell is None or cell <= CELLS
        return number

    def plan(self) -> Plan:
        """What a walk is to do."""
        actions = np.zeros((len(self.lists), len(self.words)), np.int64)
        for where, word, action in self._actions:
            actions[where, word] = action
        texts = [f'"{word}":'.encode() for word in self.words]
        heads = np.full(len(self.words) + 1, self.tops["OTHER"])
        for api in ("PRODUCE", "FETCH", "SHARE_FETCH"):
            heads[self.words[api]] = self.tops[api]
        head = self.objects[".requestHeader"]
        name = self.slots["requestHeader.requestApiKeyName"]
        return Plan(
            actions,
            np.frombuffer(b"".join(text.ljust(WIDTH, b"\0") for text in texts) + bytes(WIDTH), np.uint8),
            np.array([len(text) for text in texts]),
            np.array(self.lists),
            heads,
            np.zeros(actions.size, np.int64),
            np.frombuffer(START.encode() + bytes(WIDTH), np.uint8),
            np.array([FIRST_SLOT + len(self.slots), head, name, len(START)]),
        )


_SCHEMA: Final = _Schema()
_PRODUCE, _FETCH, _SHARE_FETCH, _API_VERSIONS = (
    _SCHEMA.words[api] for api in ("PRODUCE", "FETCH", "SHARE_FETCH", OPENING_API.upper())
)
_SLOTS: Final = Slots(
    *(_SCHEMA.slots[path] for path in PATHS.values()),
    *(_SCHEMA.objects[path] for path in ITEMS.values()),
    *(_SCHEMA.words[api] for api in APIS.values()),
)
_API: Final = re.compile("[A-Z_]+")
_PARTS: Final = np.array([[*map(int, parts)] for parts in FETCH_PARTS])
_EMPTY: Final = np.array([SHARE_FETCH_EMPTY[version] for version in range(len(SHARE_FETCH_EMPTY))])
_MOST_BYTES: Final = 2**31 - 1
_MOST: Final = 2**40
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
        self._zone, self._plan, slots = zone, _SCHEMA.plan(), FIRST_SLOT + len(_SCHEMA.slots)
        lines = np.empty(_LINES * slots, np.int64)
        scratch, stack = np.zeros(LONGEST, np.uint8), np.zeros(64, np.int64)
        items = np.empty(_ITEMS * CELLS, np.int64)
        self._found = Found(lines, lines.view(np.float64), items, scratch, stack, np.zeros(4, np.int64))
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
        self._texts.used[:] = 0
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
        self._apis = _Meaning(
            lambda text: (
                _INVALID if text in unusual or not _API.fullmatch(text) else API_KINDS.get(text.lower(), REQUEST)
            )
        )
        self._meanings[2:] = [self._users, self._clients, self._connections, self._apis]
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
            reason = walk(buffer, stop, self._plan, texts, self._found)
            if reason != NEW:
                break
            shape = int(self._found.lines[int(state[1]) * int(self._plan.whole[0]) + SHAPE])
            self._learn(shape, bytes(buffer[state[0] : state[0] + state[3]]))
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
        self.stop, self.count, items, _ = found.state.tolist()
        slots = int(scanner._plan.whole[0])
        self._rows = found.lines[: self.count * slots].reshape(-1, slots)
        self._item_rows = found.items[: items * CELLS].reshape(-1, CELLS)
        self._lines, self._items = np.ascontiguousarray(self._rows.T), self._item_rows.T
        self.usual_lines = self._lines[USUAL] == 1

    def line(self, path: str) -> Int64s:
        """The values of a slot."""
        found: Int64s = self._lines[_SCHEMA.slots[path]]
        return found

    def time(self, path: str) -> Any:
        """The values of a slot with times, ms."""
        return self.line(path).view(np.float64)

    def items(self, path: str) -> _Items:
        """The items of a list."""
        rows = np.flatnonzero(self._items[TYPE] == _SCHEMA.objects[path])
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
        api_name, correlation = self.line("requestHeader.requestApiKeyName"), self.line("requestHeader.correlationId")
        kinds, users, clients, connections = (
            self.meant(meaning, self.line(path))
            for meaning, path in (
                (scanner._apis, "requestHeader.requestApiKeyName"),
                (scanner._users, "principal"),
                (scanner._clients, "requestHeader.clientId"),
                (scanner._connections, "connection"),
            )
        )
        seconds = self.meant(scanner._seconds, self._lines[SECOND])
        software = self.line("clientInformation.softwareName")
        known = self.usual_lines & (software != UNSET)
        library = np.zeros(self.count, np.int64)
        library[known] = scanner._software.of(scanner, software[known])
        self.refuse(library == _INVALID)
        rows, done = np.zeros((self.count, COLUMNS), np.int64), np.zeros(self.count)
        charge(
            self._rows,
            self._rows.view(np.float64),
            self._item_rows,
            _SLOTS,
            scanner._texts,
            scanner.crcs(),
            seconds,
            _PARTS,
            _EMPTY,
            self.usual_lines,
            done,
            rows,
        )
        time_ms, size, spent_ns, position, replica, empty = rows.T
        produced, fetched, shared = (api_name == api for api in (_PRODUCE, _FETCH, _SHARE_FETCH))
        throttle, version = self.line("throttleTimeMs"), self.line("requestHeader.requestApiVersion")
        careless = produced & (self.line("request.acks") == 0)
        request_ns = np.where(careless, 0, spent_ns)
        exempt_ns = np.where(careless, spent_ns, NOT_EXEMPT)
        position = position + library
        kinds[shared & (empty == 0)] += UNSIZED
        known, new = np.flatnonzero(self.usual_lines), np.zeros(self.count, bool)
        parts = (connections, correlation, scanner.crcs()[np.maximum(api_name, 0)], time_ms, spent_ns)
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
            opens = api_name == _API_VERSIONS
            order = np.lexsort((~opens, time_ms))
            order = order[self.usual_lines[order]]
            for first in order[np.unique(connections[order], return_index=True)[1]].tolist():
                connection = scanner.text(int(self.line("connection")[first])) or ""
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
        remote, local, response = self.time("remoteTimeMs"), self.time("localTimeMs"), self.line("response")
        both = produced | fetched
        refuse(both & ((remote < 0) | (response == UNSET) | ((response != 1) & (self.line("request.acks") != 0))))
        usable = self.usual_lines
        since_us, read_us = (
            np.rint(np.where(usable, each * 1000, 0)).astype(np.int64)
            for each in (done - local, done - np.where(remote > 0, 0, local / 2))
        )
        connection = scanner._connections.of(scanner, np.where(usable, self.line("connection"), UNSET))
        # What was produced, with the answers to it.
        base = "PRODUCE.request.topicData", "PRODUCE.response.responses"
        stored, answers = self.items(f"{base[0]}.partitionData"), self.items(f"{base[1]}.partitionResponses")
        topics = self.items(base[0])
        owners = np.searchsorted(topics.rows, stored.parent)
        acks = self.line("request.acks")
        wanted = acks[stored.line] != 0
        refuse(answers.line[(answers.cells == UNSET).any(axis=0)])
        offset, failed = np.zeros(len(stored.rows), np.int64), np.zeros(len(stored.rows), bool)
        asked_keys = self._keys(stored, topics, wanted)
        answer_keys = self._keys(answers, self.items(base[1]), acks[answers.line] != 0)
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
            (self.items(f"FETCH.{path}"), self.items(f"FETCH.{path}.partitions"))
            for path in ("request.topics", "request.forgottenTopicsData", "response.responses")
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
        silent = (throttle > 0) & (self.line("response.responses") == 0)
        columns = (
            read_us,
            np.where(reads, charged, 0),
            connection,
            scanner._data_users.of(scanner, np.where(reads, self.line("principal"), UNSET)),
            scanner._data_clients.of(scanner, np.where(reads, self.line("requestHeader.clientId"), UNSET)),
            (_given(self.line("request.sessionEpoch"), -1) <= 0).astype(np.int64),
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
