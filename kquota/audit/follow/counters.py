"""The counters of one broker while its usage comes, which are the same however it is cut.

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
import pyarrow as pa

from kquota.audit.batch import KEYS, UNKNOWN, Int64s
from kquota.audit.evidence.accounts import THROTTLE_SEEN_MS
from kquota.audit.follow.episodes import Delays, Episodes, Recent, Use
from kquota.audit.ledger.part import KIND_OF_KEY, Part, enforce
from kquota.audit.ledger.replay import Periods, limit, refs_of
from kquota.audit.ledger.retries import LastFetches
from kquota.audit.ledger.rows import NEVER, CounterRef, Governing, Ledger
from kquota.audit.settings import AuditSettings
from kquota.core.enforcement.counter import RECORDED, SENSOR_EXPIRY_MS
from kquota.core.enforcement.kernel import Mode, as_list, kernel
from kquota.core.enforcement.kind import MUTATION
from kquota.core.findings.finding import Client, Episode, State, Under
from kquota.core.findings.use import Counter, Observed, Share
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.resolve.resolver import Level, Sensor, encode_user

MOST_NAMES: Final = 200_000
"""When so many clients or counters are known, those that rest are forgotten."""
_FIRST_MS: Final = -(1 << 62)
FLUSH_ROWS: Final = 2_000_000
"""How many events wait before those that are settled are replayed."""
_LACKS: Final = (
    "the log lacks some of what the counter is charged, so the rate is a lower bound",
    "the log lacks the time of network threads, so the rate is a lower bound",
)
"""Why usage is not complete: of bytes, of thread time."""


def counter_of(counter: CounterRef | Episode) -> Counter:
    """The counter by its tags."""
    user, _, client_id = counter.sensor.partition(":")  # the user's name is encoded and has no colon
    return Counter(counter.broker, counter.key, unquote(user), client_id)


def _logged(members: Mapping[int, Use], explained: Collection[int]) -> tuple[int, int]:
    """(requests, ms) that the broker itself throttled, of clients that are not among the explained."""
    unexplained = [amounts for member, amounts in members.items() if member not in explained]
    return sum(use.logged for use in unexplained), sum(use.logged_ms for use in unexplained)


class Counters:
    """The counters of one broker, carried from turn to turn. With `watched`, `observed` names their clients too."""

    def __init__(self, settings: AuditSettings, settle_ms: int, *, watched: bool = False) -> None:
        self.settings = replace(settings, per_client=True)
        self.refs: list[CounterRef] = []
        """Who the counters are, by number."""
        self._engine = kernel(Mode.AUTO)
        windows = settings.windows
        self._episodes = Episodes(windows.samples * windows.window_ms)
        self._recent = Recent() if watched else None
        self._fetches = LastFetches()
        self._index: dict[int, int] = {}
        """The numbers of the counters, by their ids."""
        self._governing: list[Periods] = []
        """What limits each counter."""
        self._alike: dict[tuple[Governing, ...], Periods] = {}
        """The same, which many counters of a default quota share."""
        self._names: dict[int, tuple[str, str]] = {}
        """(user, client-id) of the clients, by their ids."""
        self._held: list[Ledger] = []
        """Events whose time is not settled."""
        self._state: Any = None
        self._times = np.zeros((2, 0), np.int64)
        """Of each counter when it was first charged for more than its usage says (`_incomplete_ms`), and when the usage
        first shows that the broker took a fetch back (`_retaken_ms`); NEVER where neither was. What is printed of an
        episode must not depend on what was read with it."""
        self._make_room(64)
        self._settle_ms = settle_ms
        self._forget_at = MOST_NAMES
        self.newest_ms = _FIRST_MS
        """The time of the newest event."""
        self.settled_ms = _FIRST_MS
        """All events before it are replayed."""
        self.late = 0
        """Events that came after their time was settled, and are left out."""

    def _make_room(self, counters: int, kept: Sequence[int] | None = None) -> None:
        """Tables for that many counters, with those rows of the old ones, by default all that there are."""
        settings, before, rows = self.settings, self._state, range(len(self.refs)) if kept is None else kept
        self._state = self._engine.new_counters(
            counters, settings.windows, settings.generation, settings.controller_windows
        )
        if before is not None:
            self._set_rows((before.ints, before.floats), rows)
        times = np.full((2, counters), NEVER)
        times[:, : len(rows)] = self._times[:, list(rows)]
        self._times = self._incomplete_ms, self._retaken_ms = times

    def _numbers(self, ledger: Ledger) -> Int64s:
        """The numbers of the counters of each charge of a ledger."""
        return np.array([self._index[counter] for counter in ledger.column("counter").tolist()], np.int64)

    def _meet(self, ledger: Ledger) -> None:
        """Keeps who the counters and the clients of a ledger are."""
        charges, ids = ledger.charges, ledger.column("counter").tolist()
        new = {counter: row for row, counter in enumerate(ids) if counter not in self._index}
        self._index.update(zip(new, range(len(self.refs), len(self.refs) + len(new)), strict=True))
        if len(self._index) > len(self._retaken_ms):
            self._make_room(len(self._index) * 5 // 4)
        self.refs += refs_of(charges.take(pa.array([*new.values()], pa.int64())))
        self._governing += [{}] * len(new)
        numbers = self._numbers(ledger)
        np.minimum.at(self._incomplete_ms, numbers, ledger.column("incomplete_ms"))
        limit(self._governing, charges, numbers, self._alike)
        columns = (charges.column(name).to_pylist() for name in ("member", "user", "client_id"))
        self._names |= {member: names for member, *names in zip(*columns, strict=True)}

    def take(self, ledgers: Iterable[Ledger]) -> None:
        """Takes usage in the order of its first times and replays it up to the settle time before the newest."""
        for ledger in ledgers:
            if sum(map(len, self._held)) >= FLUSH_ROWS:
                # What comes next is no older than this.
                self._settle(min(int(ledger.time.min()), self.newest_ms - self._settle_ms))
            self._meet(ledger)
            self.newest_ms = max(self.newest_ms, int(ledger.time.max()))
            late = ledger.time < self.settled_ms
            self.late += int(late.sum())
            self._held.append(ledger.take(~late) if late.any() else ledger)
        self._settle(self.newest_ms - self._settle_ms)

    def pass_to(self, time_ms: int) -> None:
        """Replays up to the settle time before a request that no counter is charged for: the log goes on."""
        self.newest_ms = max(self.newest_ms, time_ms)
        self._settle(self.newest_ms - self._settle_ms)

    def end(self) -> None:
        """Replays all that is held: nothing more comes."""
        self._settle(self.newest_ms + 1)

    def _settle(self, before_ms: int) -> None:
        if before_ms <= self.settled_ms:
            return
        early = [ledger.take(ledger.time < before_ms) for ledger in self._held]
        early = [ledger for ledger in early if len(ledger)]
        held = [ledger.take(ledger.time >= before_ms) for ledger in self._held]
        self._held = [ledger for ledger in held if len(ledger)]
        if early:
            self._replay(early)
        self.settled_ms = before_ms
        self._episodes.settle(before_ms)
        if self._recent is not None:
            self._recent.forget(before_ms - THROTTLE_SEEN_MS)

    def _replay(self, ledgers: Sequence[Ledger]) -> None:
        periods = any(history.changes_ms for history in self.settings.variants)
        numbers = [self._numbers(ledger) for ledger in ledgers]
        part = Part.of(ledgers, numbers, ordered=self.settings.ordered, members=True, periods=periods)
        retaken = part.values == UNKNOWN
        self._fetches.fill_in(part)
        summaries = self._engine.new_summaries(len(self._retaken_ms))
        met = enforce(self._engine, self._state, summaries, part, retaken, self._retaken_ms)
        self._episodes.part(part, met.delays, met.rates)
        if self._recent is not None:
            self._recent.part(part, met.delays)

    # --- episodes ---

    def episodes(self) -> list[Episode]:
        """The episodes that began or ended since the last call, in the order of their times."""
        began, ended = self._episodes.began, self._episodes.ended
        self._episodes.began, self._episodes.ended = [], []
        timed = [(delays.begin_ms, 0, self._episode(delays, State.BEGAN)) for delays in began]
        timed += [(delays.last_ms, 1, self._episode(delays, State.ENDED)) for delays in ended]
        return [episode for *_, episode in sorted(timed, key=lambda entry: (entry[0], entry[1], entry[2].name))]

    def open_episodes(self) -> list[Episode]:
        """The episodes that may go on, in the order of their names."""
        going = self._episodes.open.values()
        return sorted((self._episode(delays, State.OPEN) for delays in going), key=lambda episode: episode.name)

    def _episode(self, delays: Delays, state: State) -> Episode:
        number = delays.number
        ref = self.refs[number]
        governing, amounts = self._governing_at(ref, number, delays.last_ms), delays.amounts
        # What was known at that time: what is printed must not depend on what was read with it.
        at_ms = delays.begin_ms if state is State.BEGAN else delays.last_ms
        complete = int(self._incomplete_ms[number]) > at_ms
        fetches = ref.key is QuotaKey.CONSUMER_BYTE_RATE and int(self._retaken_ms[number]) > at_ms
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
            amounts.logged if amounts.is_logged else None,
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
        return periods[max((earlier for earlier in periods if earlier <= period), default=min(periods))]

    def _loudest(self, members: dict[int, tuple[int, int]]) -> tuple[Client, ...]:
        clients = [Client(*self._names[member], events, value) for member, (events, value) in members.items()]
        clients.sort(key=lambda client: (-client.value, -client.events, client.user, client.client_id))
        return tuple(clients[: self.settings.top_clients])

    # --- what is known now ---

    def observed(self) -> list[Observed]:
        """Each counter of the quotas that recorded anything in the last hour, at the newest settled moment.

        `throttle_ms` of a counter that delays is the mean of the broker's own throttle times in THROTTLE_SEEN_MS, of
        clients that no other counter delays. Where the usage has none, it is the mean delay of the episode.
        The rate of a counter is a lower bound where its usage is not complete. Then only the broker's own log can show
        a delay.
        """
        recent = {} if self._recent is None else self._recent.amounts()
        incomplete = self._incomplete_ms != NEVER
        delaying: dict[int, set[int]] = {}
        for number, members in recent.items():
            for member, amounts in members.items():
                if amounts.delayed and not incomplete[number]:
                    delaying.setdefault(member, set()).add(number)
        uncertain = {member for number, members in recent.items() if incomplete[number] for member in members}
        readings = []
        now = self.settled_ms - 1
        for number, ref in enumerate(self.refs):
            if ref.variant or now - self._state.ints[number][RECORDED] > SENSOR_EXPIRY_MS:
                continue
            rate = self._rate(number, ref, now)
            going = self._episodes.open.get(number)
            delays = going is not None and going.last_ms > now - THROTTLE_SEEN_MS
            mean: float | None = going.throttle_ms / going.throttled if going is not None and delays else 0.0
            members = recent.get(number, {})
            unknown: list[str] = []
            count, total = _logged(members, {member for member in members if delaying.get(member, set()) - {number}})
            if count and (mean or incomplete[number]):
                mean = total / count
            if incomplete[number]:
                mean = mean or None
                unknown.append(f"its rate in full: {_LACKS[ref.key is QuotaKey.REQUEST_PERCENTAGE]}")
            elif not mean:
                count, _ = _logged(members, delaying.keys() | uncertain)
                if count:
                    unknown.append(f"which quota throttled {count:,} of its requests: by the given quotas, none")
            clients = None if self._recent is None else self._loud(members, rate)
            at_least = bool(incomplete[number])
            readings.append(Observed(counter_of(ref), now, rate, mean, None, at_least, clients, tuple(unknown)))
        return readings

    def _rate(self, number: int, ref: CounterRef, now: int) -> float | None:
        """The observed rate of a counter at that time; None where it is a bucket of tokens."""
        kind = int(KIND_OF_KEY[KEYS.index(ref.key)])
        if kind >= MUTATION:
            return None
        # A broker that measures drops old windows: so a copy of the row is measured.
        ints, floats = self._state.ints, self._state.floats
        copy = self._state._replace(ints=[ints[number].copy()], floats=[floats[number].copy()])
        return float(self._engine.measure(self._engine.counter_of(copy, 0, kind), now))

    def _loud(self, members: Mapping[int, Use], rate: float | None) -> tuple[Share, ...]:
        """The clients of a counter by their part of its rate, the loudest first."""
        total = sum(amounts.value for amounts in members.values())
        shares = [
            Share(Sensor(encode_user(user), client_id), (rate or 0.0) * amounts.value / total if total else 0.0)
            for member, amounts in members.items()
            for user, client_id in (self._names[member],)
        ]
        return tuple(sorted(shares, key=lambda share: (-share.rate, str(share.client))))

    # --- what is kept ---

    def kept(self) -> tuple[Any, ...]:
        """All of the state as data, for `going_on` in any process; nothing is taken meanwhile."""
        count = len(self.refs)
        limits = {id(periods): [tuple(governing) for governing in periods.values()] for periods in self._governing}
        places = {name: place for place, name in enumerate(limits)}
        # Most of the time of writing goes to objects of classes, so there are none of each counter.
        return (
            (np.array(self._state.ints[:count], np.int64), np.array(self._state.floats[:count], np.float64)),
            [list(column) for column in zip(*self.refs, strict=True)],
            np.fromiter(self._index, np.int64, count),
            [*limits.values()],
            np.array([places[id(periods)] for periods in self._governing], np.int64),
            np.fromiter(self._names, np.int64, len(self._names)),
            [list(column) for column in zip(*self._names.values(), strict=True)],
            self._times[:, :count],
            self._held,
            self._fetches.last,
            self._episodes.open,
            (self.newest_ms, self.settled_ms, self.late, self._forget_at),
        )

    def change(self, settings: AuditSettings) -> None:
        """Goes on under a longer history of quotas; the history so far is the beginning of it."""
        self.settings = replace(settings, per_client=True)

    @classmethod
    def going_on(cls, kept: tuple[Any, ...], settings: AuditSettings, settle_ms: int) -> Counters:
        """The counters of which that was kept."""
        self = cls(settings, settle_ms)
        tables, refs, ids, limits, places, members, names, times, self._held, last, self._episodes.open, marks = kept
        known = [{governing.period: governing for governing in map(Governing._make, periods)} for periods in limits]
        self._governing = [known[place] for place in places.tolist()]
        self._alike = {tuple(periods.values()): periods for periods in known}
        self._names = dict(zip(members.tolist(), zip(*names, strict=True), strict=True))
        self._index = {counter: number for number, counter in enumerate(ids.tolist())}
        self._make_room(max(64, 2 * len(ids)))
        self.refs = list(map(CounterRef._make, zip(*refs, strict=True)))
        self._set_rows(tables, range(len(ids)))
        self._times[:, : len(ids)] = times
        self._fetches = LastFetches(last)
        self.newest_ms, self.settled_ms, self.late, self._forget_at = marks
        return self

    def _set_rows(self, tables: Sequence[Any], rows: Sequence[int]) -> None:
        """Puts those rows of two tables of counters in the place of the first ones."""
        for table, values in zip((self._state.ints, self._state.floats), tables, strict=True):
            if isinstance(table, list):
                for row, old in zip(table, rows, strict=False):
                    row[:] = as_list(values[old])
            elif rows:  # a list of no rows has no width
                table[: len(rows)] = values[rows]

    def forget(self) -> None:
        """Forgets counters that rested for an hour and clients that are in no episode, once many are known.

        A broker has forgotten such counters as well.
        """
        if max(len(self._names), len(self.refs)) < self._forget_at:
            return
        members = {member for held in self._held for member in held.column("member").tolist()}
        if self._recent is not None:
            members |= self._recent.members
        for going in self._episodes.open.values():
            members |= going.amounts.members.keys() | going.tail.members.keys()
        self._names = {member: names for member, names in self._names.items() if member in members}
        held = {self._index[counter] for ledger in self._held for counter in ledger.column("counter").tolist()}
        oldest = self.settled_ms - SENSOR_EXPIRY_MS
        kept = [
            number
            for number in range(len(self.refs))
            if self._state.ints[number][RECORDED] >= oldest or number in held or number in self._episodes.open
        ]
        numbers = {old: new for new, old in enumerate(kept)}
        self._make_room(max(64, 2 * len(kept)), kept)
        self.refs = [self.refs[number] for number in kept]
        self._governing = [self._governing[number] for number in kept]
        self._index = {counter: numbers[number] for counter, number in self._index.items() if number in numbers}
        self._alike = {tuple(periods.values()): periods for periods in self._governing}
        self._fetches = self._fetches.renumbered(numbers)
        self._episodes.renumber(numbers)
        if self._recent is not None:
            self._recent.renumber(numbers)
        self._forget_at = max(MOST_NAMES, 2 * max(len(self._names), len(self.refs)))
