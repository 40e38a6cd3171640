"""The counters of one broker while its usage comes: a value that goes to bytes and back, and is the same however cut.

Events wait until the broker is `settle_ms` past them: only events before `settled_ms` are replayed, in the order of
time. Neither the cut nor a line that comes a little late changes anything. A line that comes later than that
has no place any more: it is counted in `late`, and left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import unquote

import numpy as np

from kquota.audit.accounts import THROTTLE_SEEN_MS
from kquota.audit.batch import UNKNOWN, Int64s
from kquota.audit.part import Collector, Part
from kquota.audit.portable import decode, encode
from kquota.audit.replay import _KIND_OF_KEY, FLUSH_ROWS, Replay, changes_of
from kquota.audit.retries import RETRY_MS, Retries
from kquota.audit.segment import KEYS, NEVER, CounterRef, Governing, Segment
from kquota.audit.settings import AuditSettings
from kquota.audit.stream.episodes import Delays, Episodes
from kquota.audit.stream.recent import Amounts, Recent
from kquota.core.enforcement.counter import RECORDED, SENSOR_EXPIRY_MS, from_bytes, to_bytes
from kquota.core.enforcement.kind import MUTATION
from kquota.core.findings.episode import Episode, State, Under
from kquota.core.findings.finding import Client
from kquota.core.findings.use import Counter, Observed, Share
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.resolve.resolver import Level, Sensor, encode_user
from kquota.errors import InputError

VERSION: Final = 5
"""The version of the bytes."""
MOST_NAMES: Final = 200_000
"""When so many clients or counters are known, those that rest are forgotten."""
_FIRST_MS: Final = -(1 << 62)
_KEPT: Final = ("incomplete", "retaken_ms")
"""What is kept of the totals of each counter."""
_NO_FLUSH: Final = 1 << 60
_LACKS: Final = (
    "the log lacks some of what the counter is charged, so the rate is a lower bound",
    "the log lacks the time of network threads, so the rate is a lower bound",
)
"""Why usage is not complete: of bytes, of thread time."""


def _columns(numbers: Mapping[int, int]) -> tuple[Int64s, Int64s]:
    """The keys and the values of a mapping, which go to bytes as two blocks."""
    count = len(numbers)
    return np.fromiter(numbers, np.int64, count), np.fromiter(numbers.values(), np.int64, count)


def _mapping(columns: Sequence[Int64s]) -> dict[int, int]:
    """The mapping of two columns."""
    return dict(zip(*(column.tolist() for column in columns), strict=True))


_NOBODY: Final = CounterRef(-1, "", KEYS[0], "")
"""A counter that was not introduced."""


class _LookingBack(Retries):
    """Sizes for throttled fetches from the fetch before on the connection: the retry is still to come."""

    def fill_in(self, part: Part) -> None:
        """Puts sizes, in place, where the part has UNKNOWN: 0 where no fetch came before."""
        for place in np.unique(part.owners(np.flatnonzero(part.values == UNKNOWN))).tolist():
            rows = range(int(part.offsets[place]), int(part.offsets[place + 1]))
            before = dict(self._last.get(int(part.counters[place]), {}))
            for row in rows:
                connection = 0 if part.connection is None else int(part.connection[row])
                now = int(part.times[row])
                if part.values[row] == UNKNOWN:
                    time_ms, size = before.get(connection, (0, 0))
                    part.values[row] = size if now - time_ms <= RETRY_MS else 0
                before[connection] = (now, int(part.values[row]))

    def renumber(self, numbers: dict[int, int]) -> None:
        """Gives the counters other numbers; those without one are forgotten."""
        self._last = {numbers[number]: last for number, last in self._last.items() if number in numbers}
        self._known = sum(map(len, self._last.values()))


def counter_of(counter: CounterRef | Episode) -> Counter:
    """The counter by its tags."""
    user, _, client_id = counter.sensor.partition(":")  # the user's name is encoded and has no colon
    return Counter(counter.broker, counter.key, unquote(user), client_id)


def _logged(members: Mapping[int, Amounts], explained: Collection[int]) -> tuple[int, int]:
    """(requests, ms) that the broker itself throttled, of clients that are not among the explained."""
    found = [amounts for member, amounts in members.items() if member not in explained]
    return sum(each.logged for each in found), sum(each.logged_ms for each in found)


class Counters(Replay):
    """The counters of one broker, carried from turn to turn. With `watched`, `observed` names their clients too."""

    def __init__(self, settings: AuditSettings, settle_ms: int, *, watched: bool = False) -> None:
        windows = settings.windows
        self._episodes = Episodes(windows.samples * windows.window_ms)
        self._recent = Recent() if watched else None
        collectors: list[Collector] = [self._episodes]
        if self._recent is not None:
            collectors.append(self._recent)
        super().__init__(replace(settings, per_client=True), collectors)
        self._retries = self._back = _LookingBack()
        self._flush_at = _NO_FLUSH
        self._settle_ms = settle_ms
        self._forget_at = MOST_NAMES
        self.newest_ms = _FIRST_MS
        """The time of the newest event."""
        self.settled_ms = _FIRST_MS
        """All events before it are replayed."""
        self._incomplete_ms: dict[int, int] = {}
        """When a counter was first charged for more than its usage says. Findings have a flag; an episode that was
        printed before must not depend on what was read with it."""
        self.late = 0
        """Events that came after their time was settled, and are left out."""

    def add(self, segment: Segment) -> None:
        """Takes usage that came; `advance` replays it."""
        numbers = self._numbers(segment)
        if segment.introduction is not None:
            self._meet(segment.introduction)
        totals = self._totals
        for place in np.flatnonzero(~segment.complete).tolist():
            number, first_ms = int(numbers[place]), int(segment.incomplete_ms[place])
            self._incomplete_ms[number] = min(self._incomplete_ms.get(number, NEVER), first_ms)
        totals["incomplete"][numbers] |= ~segment.complete
        self.newest_ms = max(self.newest_ms, segment.last_ms)
        late, rest = segment.cut(self.settled_ms)
        if late is not None:
            self.late += len(late)
        if rest is not None:
            self._held.append(rest)
            self._held_rows += len(rest)

    def take(self, segments: Iterable[Segment]) -> None:
        """Takes usage in the order of its first times and replays it up to the settle time before the newest."""
        for segment in segments:
            if self._held_rows >= FLUSH_ROWS:
                # What comes next is no older than this segment.
                self._settle(min(segment.base_ms, self.newest_ms - self._settle_ms))
            self.add(segment)
        self._settle(self.newest_ms - self._settle_ms)

    def end(self) -> None:
        """Replays all that is held: nothing more comes."""
        self._settle(self.newest_ms + 1)

    def _settle(self, before_ms: int) -> None:
        if before_ms <= self.settled_ms:
            return
        self._replay(before_ms)
        self.settled_ms = before_ms
        self._episodes.settle(before_ms)
        if self._recent is not None:
            self._recent.forget(before_ms - THROTTLE_SEEN_MS)
        # These are for the findings, which come from the spool.
        self._throttled_members, self._logged_members, self._members = [], [], []
        self._hits, self._answered_hits = {}, {}

    # --- episodes ---

    def episodes(self) -> list[Episode]:
        """The episodes that began or ended since the last call, in the order of their times."""
        began, ended = self._episodes.began, self._episodes.ended
        self._episodes.began, self._episodes.ended = [], []
        told = [(each.begin_ms, 0, self._episode(each, State.BEGAN)) for each in began]
        told += [(each.last_ms, 1, self._episode(each, State.ENDED)) for each in ended]
        return [episode for *_, episode in sorted(told, key=lambda each: (each[0], each[1], each[2].name))]

    def open_episodes(self) -> list[Episode]:
        """The episodes that may go on, in the order of their names."""
        going = self._episodes.open.values()
        return sorted((self._episode(each, State.OPEN) for each in going), key=lambda each: each.name)

    def _episode(self, delays: Delays, state: State) -> Episode:
        number = delays.number
        ref = self.refs[number]
        assert ref is not None
        governing, amounts = self._governing_at(ref, number, delays.last_ms), delays.amounts
        # What was known at that time: what is printed must not depend on what was read with it.
        at_ms = delays.begin_ms if state is State.BEGAN else delays.last_ms
        complete = self._incomplete_ms.get(number, NEVER) > at_ms
        fetches = ref.key is QuotaKey.CONSUMER_BYTE_RATE and int(self._totals["retaken_ms"][number]) > at_ms
        return Episode(
            state,
            Under.AGAINST if ref.variant else Under.TESTED,
            ref.broker,
            ref.key,
            ref.sensor,
            Entity.parse(governing.entity),
            Level(governing.level),
            delays.limit,
            delays.begin_ms,
            delays.end_ms,
            delays.peak_rate,
            delays.peak_ms,
            amounts.events,
            delays.throttled,
            delays.throttle_ms,
            delays.longest_ms,
            amounts.logged if amounts.told else None,
            complete,
            fetches or amounts.logged > 0 or not complete,
            len(amounts.members),
            self._loudest(amounts.members),
        )

    def _governing_at(self, ref: CounterRef, number: int, time_ms: int) -> Governing:
        """What limited a counter at that time."""
        periods = self._governing[number]
        if len(periods) == 1:
            return next(iter(periods.values()))
        changes = self.settings.variants[ref.variant].changes_ms
        period = sum(change <= time_ms for change in changes)
        return periods[max((each for each in periods if each <= period), default=min(periods))]

    def _loudest(self, members: dict[int, tuple[int, int]]) -> tuple[Client, ...]:
        clients = [Client(*self._names[member], events, value) for member, (events, value) in members.items()]
        clients.sort(key=lambda client: (-client.value, -client.events, client.user, client.client_id))
        return tuple(clients[: self.settings.top_clients])

    # --- what is known now ---

    def observed(self) -> list[Observed]:
        """Each counter of the quotas that recorded anything in the last hour, at the newest settled moment.

        `throttle_ms` is the mean delay of an episode whose last delay began less than THROTTLE_SEEN_MS ago, else 0.
        The rate of a counter is a lower bound where its usage is not complete. Then only the broker's own log can show
        a delay: of clients that no other counter delays.
        """
        recent = {} if self._recent is None else self._recent.amounts()
        incomplete = self._totals["incomplete"]
        delayed = {
            member
            for number, members in recent.items()
            for member, amounts in members.items()
            if amounts.delayed and not incomplete[number]
        }
        uncertain = {member for number, members in recent.items() if incomplete[number] for member in members}
        found = []
        now = self.settled_ms - 1
        for number, ref in enumerate(self.refs):
            if ref is None or ref.variant or now - self._state.ints[number][RECORDED] > SENSOR_EXPIRY_MS:
                continue
            rate = self._rate(number, ref, now)
            going = self._episodes.open.get(number)
            delays = going is not None and going.last_ms > now - THROTTLE_SEEN_MS
            mean: float | None = going.throttle_ms / going.throttled if going is not None and delays else 0.0
            members = recent.get(number, {})
            unknown: list[str] = []
            if incomplete[number]:
                count, total = _logged(members, delayed)
                mean = mean or (total / count if count else None)
                unknown.append(f"its rate in full: {_LACKS[ref.key is QuotaKey.REQUEST_PERCENTAGE]}")
            elif not mean:
                count, _ = _logged(members, delayed | uncertain)
                if count:
                    unknown.append(f"which quota throttled {count:,} of its requests: by the given quotas, none")
            clients = None if self._recent is None else self._loud(members, rate)
            at_least = bool(incomplete[number])
            found.append(Observed(counter_of(ref), now, rate, mean, None, at_least, clients, tuple(unknown)))
        return found

    def _rate(self, number: int, ref: CounterRef, now: int) -> float | None:
        """The observed rate of a counter at that time; None where it is a bucket of tokens."""
        kind = int(_KIND_OF_KEY[KEYS.index(ref.key)])
        if kind >= MUTATION:
            return None
        # A broker that measures drops old windows: so a copy of the row is measured.
        ints, floats = self._state.ints, self._state.floats
        copy = self._state._replace(ints=[ints[number].copy()], floats=[floats[number].copy()])
        return float(self._engine.measure(self._engine.counter_of(copy, 0, kind), now))

    def _loud(self, members: Mapping[int, Amounts], rate: float | None) -> tuple[Share, ...]:
        """The clients of a counter by their part of its rate, the loudest first."""
        total = sum(amounts.value for amounts in members.values())
        shares = [
            Share(Sensor(encode_user(user), client_id), (rate or 0.0) * amounts.value / total if total else 0.0)
            for member, amounts in members.items()
            for user, client_id in (self._names[member],)
        ]
        return tuple(sorted(shares, key=lambda share: (-share.rate, str(share.client))))

    # --- as bytes ---

    def dumps(self) -> bytes:
        """All of the state, for `loads` in any process."""
        count = len(self.refs)
        table = self._state._replace(ints=self._state.ints[:count], floats=self._state.floats[:count])
        places: dict[int, int] = {}
        limits = list({id(periods): periods for periods in self._governing.values()}.values())
        for place, periods in enumerate(limits):
            places[id(periods)] = place
        # The tables of the replay know who the counters are, and little else. Most of the time goes to objects of
        # classes, so there are none of each counter.
        return encode(
            (
                VERSION,
                to_bytes(table),
                [list(column) for column in zip(*(ref or _NOBODY for ref in self.refs), strict=True)],
                _columns(self._index),
                [[tuple(each) for each in periods.values()] for periods in limits],
                _columns({number: places[id(periods)] for number, periods in self._governing.items()}),
                np.fromiter(self._names, np.int64, len(self._names)),
                [list(column) for column in zip(*self._names.values(), strict=True)],
                {name: self._totals[name][:count] for name in _KEPT},
                _columns(self._incomplete_ms),
                self._held,
                self._back._last,
                self._episodes.open,
                (self.newest_ms, self.settled_ms, self.late, self._forget_at),
            )
        )

    def change(self, settings: AuditSettings) -> None:
        """Goes on under a longer history of quotas; the history so far is the beginning of it."""
        self.settings = replace(settings, per_client=True)
        self._changes = changes_of(settings)
        self._has_periods = len(self._changes) > 0

    @classmethod
    def loads(cls, data: bytes, settings: AuditSettings, settle_ms: int) -> Counters:
        """The counters that `dumps` wrote. Raises InputError for counters of another version."""
        version, *values = decode(data)
        if version != VERSION:
            raise InputError(f"the counters of the stream are of version {version}; this kquota reads {VERSION}")
        self = cls(settings, settle_ms)
        table, refs, index, limits, places, members, names, flags, incomplete, *values = values
        self._held, last, going, marks = values
        self._index = _mapping(index)
        self._incomplete_ms = _mapping(incomplete)
        told = [{each.period: each for each in map(Governing._make, periods)} for periods in limits]
        self._governing = {number: told[place] for number, place in _mapping(places).items()}
        self._names = dict(zip(members.tolist(), zip(*names, strict=True), strict=True))
        count = len(refs[0]) if refs else 0
        self._make_room(max(64, 2 * count))
        self.refs = [None if ref[0] < 0 else CounterRef._make(ref) for ref in zip(*refs, strict=True)]
        self._set_rows(from_bytes(table, self._engine.table), range(count))
        for name, column in flags.items():
            self._totals[name][:count] = column
        self._held_rows = sum(map(len, self._held))
        self._back._last = last
        self._back._known = sum(map(len, last.values()))
        self._episodes.open = going
        self.newest_ms, self.settled_ms, self.late, self._forget_at = marks
        return self

    def _set_rows(self, table: Any, rows: Sequence[int]) -> None:
        """Puts those rows of a table of counters in the place of the first ones."""
        if isinstance(table.ints, list):
            for new, old in enumerate(rows):
                self._state.ints[new][:] = table.ints[old]
                self._state.floats[new][:] = table.floats[old]
        else:
            self._state.ints[: len(rows)], self._state.floats[: len(rows)] = table.ints[rows], table.floats[rows]

    def forget(self) -> bool:
        """Forgets counters that rested for an hour and clients that are in no episode, once many are known.

        A broker has forgotten such counters as well. Whoever introduces counters and clients must then do it again.
        """
        if max(len(self._names), len(self.refs)) < self._forget_at:
            return False
        held_members: Int64s = np.concatenate([np.zeros(0, np.int64), *(held.member_ids for held in self._held)])
        members = set(held_members.tolist())
        if self._recent is not None:
            members |= self._recent.members
        for going in self._episodes.open.values():
            members |= going.amounts.members.keys() | going.tail.members.keys()
        self._names = {member: names for member, names in self._names.items() if member in members}
        held = {self._index[counter] for each in self._held for counter in each.counter_ids.tolist()}
        oldest = self.settled_ms - SENSOR_EXPIRY_MS
        kept = [
            number
            for number in range(len(self.refs))
            if self._state.ints[number][RECORDED] >= oldest or number in held or number in self._episodes.open
        ]
        numbers = {old: new for new, old in enumerate(kept)}
        table, totals, refs = self._state, self._totals, self.refs
        self.refs = []
        self._make_room(max(64, 2 * len(kept)))
        self.refs = [refs[number] for number in kept]
        self._set_rows(table, kept)
        for name in _KEPT:
            self._totals[name][: len(kept)] = totals[name][kept]
        self._index = {counter: numbers[number] for counter, number in self._index.items() if number in numbers}
        self._governing = {numbers[n]: periods for n, periods in self._governing.items() if n in numbers}
        self._incomplete_ms = {numbers[n]: time for n, time in self._incomplete_ms.items() if n in numbers}
        self._back.renumber(numbers)
        self._episodes.renumber(numbers)
        if self._recent is not None:
            self._recent.renumber(numbers)
        self._forget_at = max(MOST_NAMES, 2 * max(len(self._names), len(self.refs)))
        return True
