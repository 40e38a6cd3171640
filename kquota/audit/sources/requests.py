"""What names a request in a log: which requests are there twice, and whether some are missing.

A client numbers its requests, and a connection has a name of its own. A request is there twice where connection,
number, API and time are the same: a line that two loggers wrote, a rotated file beside its compressed copy, or a
collector that delivers at least once. The time is a part of it, as some clients give every request the same number.

Numbers that a connection lacks are requests that the log lacks, but Java's clients share the numbers among the brokers
that they talk to. So they prove something of clients that do not share them, and of connections that lack some here and
there. They also do where no connection has more than a few of its numbers, and where METADATA names no other broker.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np

from kquota.audit.batch import Bools, Int64s
from kquota.audit.sources import SET_BACK, WHOLE_SECONDS
from kquota.audit.sources.envelope import Pieces
from kquota.audit.sources.files import UnreadableFile
from kquota.audit.sources.lost import SEQUENCE, Gap, gap
from kquota.audit.sources.moments import LogZone
from kquota.errors import InputError

REQUESTS: Final = "requests"
"""What a task notes its sketch under, beside the dialects."""
_FACTOR: Final = 0x9E3779B97F4A7C15
ALL_BITS: Final = (1 << 64) - 1
_MOST: Final = 1 << 22
"""So many requests are remembered one by one."""
_SKETCH: Final = 256
"""So many requests of a part are known beyond it: those whose identities are the smallest."""
_COMMON: Final = 2
"""Where two parts have so many of them in common, their files hold the same requests."""
_ONCE: Final = "give each request once: one of the files, or the lines of one logger"
_ONE: Final = "leave the merged file out, or give --broker NAME where it is one broker"
_AT_ONCE: Final = "many requests of a connection have one time: the nearest date before each is of something else"
_NO_OTHER: Final = "export the lines without that date, such as the start of a process"
_HALF_DAY_MS, _QUARTER_MS, _NEAR_MS = 43_200_000, 900_000, 60_000
"""How far a clock of 12 hours goes back, by what zones differ, and what is near in time."""
_HALF_DAYS: Final = "the clock has 12 hours, and no AM and PM: log4j's pattern HH has 24 hours, and hh has 12"
_ONE_HALF: Final = "give a part of the file that begins and ends between two times at which it is one o'clock"
COLUMNS: Final = 5
"""Of a request: connection, number, whether its client numbers each broker's requests alone, thread time, time."""
_TIMELESS, _MANY = 1 << 16, 0.1
"""How many requests are compared without their times, and which part of a file is not there twice by chance."""
ENOUGH: Final = 20
"""From fewer requests of a connection nothing follows by themselves."""
FEW: Final = 4
"""A client that uses one number so often may use it for any request; a connection with fewer requests shows nothing."""
_BY_CHANCE: Final = 10
"""So many numbers of two connections would be the same at least, and none is."""
_PAIRED: Final = 16
"""How many connections of a client are compared with each other; and logs in one file."""
_TOGETHER: Final = 20_000
"""So many requests of a file that is followed tell together what none of its pieces tells."""
_SET_BACK_MS = 2000
"""A clock is set back by so much at least: the requests of a connection are charged one after the other."""
_SOON_MS, _WHILE_MS = 10, 5000
"""A request is charged so little before the time of its line; a part of a log so long tells whether times have ms."""
_WHOLE, _SPARSE = 0.95, 0.12
"""The share of its numbers that a connection has if none is missing, and that none has where most are."""
_MOST_SEQUENCES: Final = 4096
"""Of so many it is known in which other parts of the log their requests are: of those that lack most."""
_DENSE, _JUMP, _JUMPS = 0.8, 10, 3
"""How many steps of a dense connection are to the next number, how long gaps are in it, and how many there are."""


def identity(*parts: Any) -> Any:
    """The identity of a request by connection, number, API, time and thread time: of one, or of columns (uint64)."""
    mixed: Any = 0
    for part in parts:
        mixed = ((mixed ^ part) * _FACTOR) & ALL_BITS
        mixed = mixed ^ (mixed >> 32)
    return mixed | 1  # 0 is an empty slot


def add(slots, keys, new):  # type: ignore[no-untyped-def]
    """Adds keys to a table with open addressing, and says of each whether it is new. It may be compiled."""
    mask, one = np.uint64(len(slots) - 1), np.uint64(1)
    for row in range(len(keys)):
        key = keys[row]
        slot = key & mask
        while slots[slot] != 0 and slots[slot] != key:
            slot = (slot + one) & mask
        new[row] = slots[slot] != key
        slots[slot] = key


@dataclass(frozen=True)
class Kept:
    """What is known of the requests of files that are followed, for whoever goes on with them."""

    recent: Int64s
    """The identities of the last ones."""
    brokers: dict[str, str]
    waiting: dict[str, Int64s]
    reading: dict[str, tuple[str, float, float | None, Mapping[str, str]]]
    """The name of the zone of each file's times, what its lines show of it, and their headings."""
    sketches: list[dict[int, str]]
    cluster_sizes: set[int]


class Requests:
    """The requests that a task has read. Each part of them, of at most `_MOST`, is remembered until the next begins.

    `followed` are the files that were begun before, where files are read in small pieces, as they grow; `kept` is what
    was known of them then.
    """

    def __init__(self, followed: Collection[str] | None = None, kept: Kept | None = None) -> None:
        self._follows, self._met = followed is not None, {*(followed or ())}
        self._waiting: dict[str, Int64s] = {}
        """The requests of each file that are too few to tell anything."""
        self._reading: dict[str, tuple[LogZone, Pieces]] = {}
        self._slots, self._count, self._part = np.zeros(1 << 10, np.uint64), 0, 0
        self._sketch: dict[int, str] = {}
        self._before: list[dict[int, str]] = []
        self._timeless, self._largest = np.zeros(0, np.uint64), ALL_BITS
        self.brokers: dict[str, str] = {}
        """The broker of each file."""
        self.cluster_sizes: set[int] = set()
        """How many brokers each answer to METADATA named."""
        self._ends: dict[str, tuple[int, int]] = {}
        self._recent: deque[int] = deque(maxlen=_TIMELESS)
        if kept is not None:
            self.brokers, self._waiting = kept.brokers, kept.waiting
            self.news(kept.recent.view(np.uint64), "")
            *self._before, self._sketch = kept.sketches
            self.cluster_sizes = kept.cluster_sizes
            for path, (name, shift, before, heading) in kept.reading.items():
                zone, pieces = self.reading(path, name)
                zone.shift, zone.before, pieces.heading = shift, before, heading

    def kept(self) -> Kept:
        """What is to be known later; nothing is read meanwhile."""
        reading = ((path, zone, pieces.heading) for path, (zone, pieces) in self._reading.items())
        return Kept(
            np.array(self._recent, np.uint64).view(np.int64),
            self.brokers,
            self._waiting,
            {path: (zone.key, zone.shift, zone.before, {**heading}) for path, zone, heading in reading},
            [*self._before, self._sketch],
            self.cluster_sizes,
        )

    def reading(self, path: str, zone: str) -> tuple[LogZone, Pieces]:
        """How the lines of a file are read, by the lines before them: the zone of times, and headings."""
        new = LogZone.no_cache(zone), Pieces()
        return self._reading.setdefault(path, new) if self._follows else new

    def news(self, keys: Any, path: str, add: Callable[..., None] = add) -> Bools:
        """Whether each of some requests of a file, by their identities, was not there before; `add` may be compiled.

        Raises UnreadableFile where another broker's file has some of them: nobody knows whose they are.
        """
        count = self._count + len(keys)
        if 2 * count > len(self._slots):
            if self._count > _MOST:
                self._before.append(self._sketch)
                self._slots, self._count, self._sketch, count = self._slots[:0], 0, {}, len(keys)
            old = self._slots[self._slots != 0]
            self._slots = np.zeros(1 << (2 * count).bit_length(), np.uint64)
            add(self._slots, old, np.zeros(len(old), bool))
        new = np.zeros(len(keys), bool)
        add(self._slots, keys, new)
        self._count += int(np.count_nonzero(new))
        if self._follows:
            self._recent.extend(keys[new].tolist())
        for key in self._sketch.keys() & set(keys[~new].tolist()):
            other = self._sketch[key]
            if self.brokers.get(other) != self.brokers.get(path):
                raise UnreadableFile(f"{other} and {path}: the same requests are in files of two brokers", hint=_ONE)
        largest = next(reversed(self._sketch)) if len(self._sketch) == _SKETCH else ALL_BITS
        if len(small := keys[new & (keys < largest)]):
            known = self._sketch | dict.fromkeys(small.tolist(), path)
            self._sketch = {key: known[key] for key in sorted(known)[:_SKETCH]}
        return new

    def logs_in(self, path: str, times_ms: Int64s) -> Int64s:
        """In which of the logs each request is that are in one file, one behind another: where one ends, time falls."""
        number, last_ms = self._ends.get(path, (0, times_ms[0]))
        falls = np.diff(times_ms, prepend=last_ms) < -min(60_000, int(np.ptp(times_ms)) // 2)
        falls &= np.count_nonzero(falls) <= _PAIRED  # else lines are in no order
        logs: Int64s = number + np.cumsum(falls)
        if not self._follows:
            self._ends[path] = int(logs[-1]), int(times_ms[-1])
        return logs

    def check_times(self, keys: Any, path: str) -> None:
        """Takes requests that are new by their times, by their identities without them.

        Clients that give many requests one number are left out by the caller. Raises UnreadableFile where many are
        there with two or three times: from two layouts, or by a collector's clock.
        """
        self._timeless = np.concatenate([self._timeless, keys[keys <= self._largest]])
        while len(self._timeless) > _TIMELESS:
            self._largest >>= 1
            self._timeless = self._timeless[self._timeless <= self._largest]
        known, counts = np.unique(self._timeless, return_counts=True)
        repeats = counts[np.searchsorted(known, keys[keys <= self._largest])]
        if np.count_nonzero((repeats > 1) & (repeats < FEW)) >= max(ENOUGH, _MANY * len(repeats)):
            raise UnreadableFile(f"{path}: the same requests are there twice, with other times", hint=_ONCE)

    def shown(self, columns: Int64s, path: str) -> Iterator[Gap | str | tuple[str, int]]:
        """What to note of some requests of a file (`COLUMNS`), by all of them together.

        Raises UnreadableFile where they have the time of something else.
        """
        if has_half_days(columns[:, 4]):
            raise UnreadableFile(f"{path}: {_HALF_DAYS}", hint=_ONE_HALF)
        if self._follows:
            columns = self._waiting[path] = np.concatenate([self._waiting.get(path, columns[:0]), columns])
            if len(columns) < _TOGETHER:
                return
            del self._waiting[path]
        self._meet(columns, path)
        yield from self._notes(columns, path)

    def left(self) -> Iterator[Gap | str | tuple[str, int]]:
        """What to note so far of requests that are few."""
        for path, columns in self._waiting.items():
            yield from self._notes(columns, path)

    def end(self) -> None:
        """Raises as `shown`, of requests that stay few."""
        for path, columns in self._waiting.items():
            self._meet(columns, path)

    def _meet(self, columns: Int64s, path: str) -> None:
        if path not in self._met and len(columns) and are_at_once(columns[:, 0], columns[:, 4], columns[:, 3]):
            raise UnreadableFile(f"{path}: {_AT_ONCE}", hint=_NO_OTHER)
        self._met.add(path)

    def _notes(self, columns: Int64s, path: str) -> Iterator[Gap | str | tuple[str, int]]:
        connection, number, own, _, time_ms = columns.T
        yield from gap(self.brokers.get(path, ""), len(columns), missing(connection, number, own == 1))
        if are_seconds(time_ms):
            yield WHOLE_SECONDS
        if (at_ms := set_back_at(connection, number, time_ms)) is not None:
            yield SET_BACK, at_ms

    def sketch(self) -> set[tuple[int, int, str]]:
        """What other tasks are to know of them: (part, identity, file)."""
        parts = enumerate([*self._before, self._sketch])
        return {(part, key, path) for part, sketch in parts for key, path in sketch.items()}


def check(sketches: Iterable[Iterable[Any]]) -> None:
    """Raises InputError where tasks, or parts of them, have the same requests: their rates would be added up."""
    known: dict[int, str] = {}
    common: Counter[tuple[str, ...]] = Counter()
    for _, key, path in sorted(note for sketch in sketches for note in sketch):
        if key in known:
            common[tuple(dict.fromkeys((known[key], path)))] += 1
        known.setdefault(key, path)
    for paths, count in common.most_common(1):
        if count >= _COMMON:
            raise InputError(
                f"{' and '.join(paths)}: the same requests are there twice, too far apart to count them once",
                hint=_ONCE,
            )


def has_half_days(time_ms: Int64s) -> bool:
    """Whether times go back to one o'clock each half day, and none is of another half."""
    ones = time_ms[1:][abs(np.diff(time_ms) + _HALF_DAY_MS) < _NEAR_MS][:1] - _NEAR_MS
    is_full = ones % _QUARTER_MS > _QUARTER_MS - 2 * _NEAR_MS
    return bool(is_full.any() and ((time_ms - ones) % (2 * _HALF_DAY_MS) < _HALF_DAY_MS + 2 * _NEAR_MS).all())


def are_seconds(time_ms: Int64s) -> bool:
    """Whether times have no ms; a burst may have one time by chance."""
    is_while = len(time_ms) >= ENOUGH and np.ptp(time_ms) >= _WHILE_MS
    return bool(is_while and np.mean((time_ms + _SOON_MS) % 500 <= _SOON_MS) > 0.9)


def set_back_at(connection: Int64s, number: Int64s, time_ms: Int64s) -> int | None:
    """When a broker's clock was set back: where times fall, most connections go on with times of long before."""
    steps = np.diff(time_ms)
    if steps.min(initial=0) > -_SET_BACK_MS:
        return None
    fall = int(steps.argmin()) + 1
    connections, ends = np.unique(connection[fall - 1 :: -1], return_index=True)
    others, starts = np.unique(connection[fall:], return_index=True)
    _, before, after = np.intersect1d(connections, others, assume_unique=True, return_indices=True)
    before, after = fall - 1 - ends[before], fall + starts[after]
    falls = (number[after] > number[before]) & (time_ms[after] <= time_ms[before] - _SET_BACK_MS)
    return int(time_ms[fall - 1]) if 2 * np.count_nonzero(falls) > len(falls) else None


def are_at_once(connection: Int64s, time_ms: Int64s, request_ns: Int64s) -> bool:
    """Whether requests have a time that is not theirs: a broker works on one request of a connection at a time."""
    order = np.argsort(connection, kind="stable")
    starts = np.flatnonzero(np.diff(connection[order], prepend=~connection[order[:1]]))
    counts, times = np.diff(starts, append=len(order)), time_ms[order]
    span_ms = np.maximum.reduceat(times, starts) - np.minimum.reduceat(times, starts)
    used_ms, many = np.add.reduceat(request_ns[order], starts) / 1e6, counts >= ENOUGH
    return bool((used_ms > 2 * (span_ms + (1000 if are_seconds(time_ms) else 2)))[many].any())


def missing(connection: Int64s, number: Int64s, own: Bools) -> Int64s:
    """The sequences (`lost.SEQUENCE`) of some lines, of a connection each; none where nothing may be known of them.

    `own` are of clients that number the requests of each broker alone.
    """
    connections, owners, counts = np.unique(connection, return_inverse=True, return_counts=True)
    order = np.lexsort((number, owners))
    numbers, owner = number[order], owners[order]
    ends = np.cumsum(counts)
    firsts, lasts = numbers[ends - counts], numbers[ends - 1]
    spans = lasts - firsts + 1
    many = (counts >= ENOUGH) & (spans < 1 << 31)
    if not many.any():  # a few requests of each of some connections are enough together, if most are missing
        many = (counts >= FEW) & (spans < 1 << 31)
        many &= ENOUGH <= counts[many].sum() < _SPARSE * spans[many].sum()
    whole = int(numbers.max() - numbers.min() + 1) if len(numbers) else 0
    # Numbers that all connections share, each of them once, are nobody's own.
    if not many.any() or (len(connections) > 1 and whole * _DENSE < len(np.unique(numbers)) > _DENSE * len(numbers)):
        return np.zeros((0, SEQUENCE), np.int64)
    steps, owner, inside = np.diff(numbers), owner[1:], np.diff(owner) == 0
    single, jumps = (np.bincount(owner[inside & mask], minlength=len(counts)) for mask in (steps <= 1, steps > _JUMP))
    numbered = np.bincount(owners[own], minlength=len(counts)) > 0
    lacking = (numbered & (counts < _WHOLE * spans)) | ((single >= _DENSE * counts) & (jumps >= _JUMPS))
    is_sparse = counts.max() < ENOUGH or (counts < _SPARSE * spans)[many].all()
    shares = (100 * many * np.where(lacking, _WHOLE, _SPARSE if is_sparse else 0)).astype(np.int64)
    table = np.column_stack([connections, firsts, lasts, counts, (spans - counts) * (shares > 0), shares])
    return table[np.argsort(-table[:, 4])][:_MOST_SEQUENCES]


def missing_alone(connection: Int64s, number: Int64s, clients: Mapping[int, Sequence[int]]) -> Iterator[Sequence[int]]:
    """The sequences of clients that talk to one broker alone: each has a number, and is given by its connections.

    All connections of one have one sequence. Where numbers come twice, several clients have one name. A long gap may be
    between two of them.
    """
    for client, parts in zip(clients, _numbers_of(connection, number, clients.values()), strict=True):
        own = np.sort(np.concatenate(parts))
        steps = np.diff(own)
        gaps = int((steps - 1)[steps <= _JUMP].sum())
        lacks = not (steps == 0).any() and gaps >= max(ENOUGH, (1 - _WHOLE) * (gaps + len(own)))
        yield client, int(own[0]), int(own[-1]), len(own), gaps * lacks, int(100 * _WHOLE) * lacks


def in_turns(connection: Int64s, number: Int64s, clients: Iterable[Sequence[int]]) -> bool:
    """Whether some of a client's connections take their numbers from one sequence.

    Java's clients have one connection of a kind to each broker, and one sequence for all. Sequences of their own would
    have the same numbers again and again.
    """
    for parts in _numbers_of(connection, number, (client[:_PAIRED] for client in clients)):
        for one, other in combinations(map(np.unique, parts), 2):
            first, last = max(one[0], other[0]), min(one[-1], other[-1])
            one, other = (sequence[(first <= sequence) & (sequence <= last)] for sequence in (one, other))
            if len(one) * len(other) >= _BY_CHANCE * (last - first + 1) > 0 and not np.isin(one, other).any():
                return True
    return False


def _numbers_of(connection: Int64s, number: Int64s, clients: Iterable[Sequence[int]]) -> Iterator[list[Int64s]]:
    """The numbers on each connection of each client."""
    order = np.argsort(connection, kind="stable")
    connections, numbers = connection[order], number[order]
    for client in clients:
        starts, ends = (np.searchsorted(connections, client, side) for side in ("left", "right"))
        yield [numbers[start:end] for start, end in zip(starts, ends, strict=True)]
