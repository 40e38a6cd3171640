"""The reduce side: segments become findings. Orders each counter's events in time and runs the enforcement kernel.

A stream: segments come in the order of their first events. Whatever happened before the next segment's first event can
be replayed and forgotten, and only the state of each counter is kept. What cannot be replayed yet goes to the disk:
segments overlap in an export without order. Memory depends neither on the size of the export nor on its order.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from kquota.audit import kernels
from kquota.audit.batch import UNKNOWN, Bools, Int64s
from kquota.audit.findings import SCHEMA
from kquota.audit.in_force import Judged
from kquota.audit.part import OPTIONAL, ROWS, Collector, Part
from kquota.audit.portable import decode, encode
from kquota.audit.prediction import Recorder
from kquota.audit.retries import RETRY_MS, KnownSizes, Retries
from kquota.audit.segment import KEYS, NEVER, CounterRef, Governing, Introduction, Segment
from kquota.audit.settings import AuditSettings
from kquota.core.enforcement import replay
from kquota.core.enforcement.kernel import Mode, kernel
from kquota.core.enforcement.kind import CONNECTION, FETCH, MUTATION, PRODUCE, REQUEST
from kquota.core.findings.finding import Basis, Logged
from kquota.core.findings.verdicts import Governed, InTurn, Verdict
from kquota.core.quotas.quota import QuotaKey

FLUSH_ROWS = 2_000_000
"""How many events wait before those that can be replayed are; some 60 bytes each."""
HELD_ROWS = 2 * FLUSH_ROWS
"""How many events may wait in memory."""

_KINDS = {
    QuotaKey.PRODUCER_BYTE_RATE: PRODUCE,
    QuotaKey.CONSUMER_BYTE_RATE: FETCH,
    QuotaKey.REQUEST_PERCENTAGE: REQUEST,
    QuotaKey.CONTROLLER_MUTATION_RATE: MUTATION,
    QuotaKey.CONNECTION_CREATION_RATE: CONNECTION,
}
_KIND_OF_KEY = np.array([_KINDS[key] for key in KEYS], np.int8)
_COMPACT_MEMBERS = 1_000_000
_INCOMPLETE = "the log does not record everything that this quota counts"


class _Later:
    """Segments on the disk: no event of them is before `from_ms`."""

    def __init__(self, from_ms: int) -> None:
        self.from_ms = from_ms
        self._file = tempfile.TemporaryFile(prefix="kquota-audit-")  # noqa: SIM115 - `read` closes it
        self._places: list[tuple[int, int, int]] = []

    def write(self, segment: Segment) -> None:
        """Adds one."""
        data = encode(segment)
        self._places.append((segment.base_ms, self._file.tell(), len(data)))
        self._file.write(data)

    def read(self) -> Iterator[Segment]:
        """All of them, in the order of their first events; they are gone then."""
        with self._file as file:
            for _, offset, length in sorted(self._places):
                file.seek(offset)
                yield decode(file.read(length))


_COUNTS = ("events", "unsized", "rebuilt", "hits", "logged", "longest")
_FLAGS = ("incomplete", "silent")
_TIMES = ("retaken_ms",)
"""Of each counter when the recording first shows that the broker took a fetch back; NEVER where it does not."""


class Replay:
    """The replay of the counters of one bucket."""

    def __init__(
        self, settings: AuditSettings, collectors: Sequence[Collector] = (), recorder: Recorder | None = None
    ) -> None:
        self.settings = settings
        self.refs: list[CounterRef | None] = []
        """Who the counters are, by number; known for all of them at the end."""
        self._collectors = collectors
        self._recorder = recorder
        self._engine = kernel(Mode.AUTO)
        self._index: dict[int, int] = {}
        self._governing: dict[int, dict[int, Governing]] = {}
        """What limits each counter, by the period of the quotas' history."""
        self._alike: dict[tuple[Governing, ...], dict[int, Governing]] = {}
        """The same, which many counters of a default quota share."""
        self._names: dict[int, tuple[str, str]] = {}
        self._held: list[Segment] = []
        self._held_rows = 0
        self._flush_at = FLUSH_ROWS
        self._later: list[_Later] = []
        """What is on the disk, the latest first."""
        self._changes = changes_of(settings)
        """When quotas change under any of the variants."""
        self._has_periods = len(self._changes) > 0
        self._hits: dict[int, set[int]] = {}
        """Of each counter, how many of the changes were before its throttled events, where quotas change."""
        self._answered_hits: dict[int, set[int]] = {}
        """The same of the events that the brokers throttled by their own answers."""
        self.governing: list[dict[tuple[str, str], Governed]] = [{} for _ in settings.variants]
        """The counters that each quota governed, under each of the variants; known at the end."""
        self._sizes, self._retries = KnownSizes(), Retries()
        self._shares: dict[int, int] = {}
        """Of counters with rebuilt sizes, the least share of delivered fetches that came out, in ppm."""
        self._members: list[Int64s] = []
        self._throttled_members: list[Int64s] = []
        self._logged_members: list[Int64s] = []
        self._told: Bools = np.zeros(0, bool)
        """Of each counter whether the export says what the broker answered: that it throttled, or that it did not.

        Where it says nothing of some of the events, a 0 for all others would be taken for the whole. Known at the end.
        """
        self._state: Any = None
        self._summaries: Any = None
        self._totals: dict[str, Any] = {}
        self._make_room(64)

    def _make_room(self, counters: int) -> None:
        """Tables for that many counters, with what is in the old ones."""
        settings = self.settings
        state: Any = self._engine.new_counters(
            counters, settings.windows, settings.generation, settings.controller_windows
        )
        summaries = self._engine.new_summaries(counters)
        totals: dict[str, Any] = {name: np.zeros(counters, np.int64) for name in _COUNTS}
        totals |= {name: np.zeros(counters, bool) for name in _FLAGS}
        totals |= {name: np.full(counters, NEVER) for name in _TIMES}
        if self.refs:
            held = len(self.refs)
            state.ints[:held], state.floats[:held] = self._state.ints[:held], self._state.floats[:held]
            for new, summary in zip(summaries, self._summaries, strict=True):
                column: Any = new
                column[:held] = summary[:held]
            for name, old in self._totals.items():
                totals[name][:held] = old[:held]
        self._state, self._summaries, self._totals = state, summaries, totals
        self._room = counters

    def know(self, segment: Segment) -> None:
        """Takes the sizes of throttled fetches, whose events are still to come, as events with `detail` their share."""
        self._sizes.add(self._numbers(segment), segment)

    def add(self, segment: Segment) -> None:
        """Takes the next segment; none may begin before one that was taken earlier."""
        self._hold(segment)
        numbers = self._numbers(segment)
        if segment.introduction is not None:
            self._meet(segment.introduction)
        totals = self._totals
        totals["events"][numbers] += segment.counts
        totals["incomplete"][numbers] |= ~segment.complete
        totals["silent"][numbers] |= segment.silent
        self._members.append(
            np.column_stack(
                [
                    numbers[segment.member_counter],
                    segment.member_ids,
                    segment.member_events,
                    segment.member_values,
                ]
            )
        )
        if sum(map(len, self._members)) > _COMPACT_MEMBERS:
            self._members = [_added_up(self._members)]

    def _meet(self, told: Introduction) -> None:
        """Keeps who the counters and members are; each is told by many segments."""
        index, governing, period = self._index, self._governing, told.period
        ids = told.counter_ids.tolist()
        new = [row for row, each in enumerate(ids) if period not in governing.get(index[each], ())]
        for counter_id, reference, limit in told.counters(new):
            number = index[counter_id]
            self.refs[number] = reference
            periods = {**governing.get(number, {}), period: limit}
            governing[number] = self._alike.setdefault(tuple(periods.values()), periods)
        for member, names in told.members():
            if self._names.setdefault(member, names) != names:
                raise ArithmeticError(f"the fingerprints of {names} and {self._names[member]} are the same")

    def _hold(self, segment: Segment) -> None:
        """Keeps the events of a segment until their time has come."""
        if self._held_rows >= self._flush_at:
            # What comes next may be on the disk already.
            known_ms = min(segment.base_ms, self._later[-1].from_ms) if self._later else segment.base_ms
            self._replay(self._settled(known_ms))
            if self._held_rows > HELD_ROWS:
                self._put_later()
            self._flush_at = self._held_rows + FLUSH_ROWS
        now: Segment | None = segment
        if self._later:
            now, later = segment.cut(self._later[-1].from_ms)
            if later is not None:
                self._later[-1].write(later)
        if now is not None:
            self._held.append(now)
            self._held_rows += len(now)

    def _settled(self, time_ms: int) -> int:
        """The time before which all is known where all events before `time_ms` are held."""
        return time_ms - (RETRY_MS if any(held.unsized for held in self._held) else 0)

    def _put_later(self) -> None:
        """Moves the later half of what is held to the disk; what may hold a retry of the earliest events stays."""
        times = np.concatenate([held.times.astype(np.int64) + held.base_ms for held in self._held])
        first = int(times.min()) + 1
        # Where nothing could be replayed when the disk is read again, the same half would come and go for ever.
        middle = max(int(np.median(times)), first + (first - self._settled(first)))
        if middle > times.max():
            return
        later = _Later(middle)
        cuts = [held.cut(middle) for held in self._held]
        for _, part in cuts:
            if part is not None:
                later.write(part)
        self._later.append(later)
        self._held = [part for part, _ in cuts if part is not None]
        self._held_rows = sum(map(len, self._held))

    def _take_later(self) -> None:
        """Goes on with the earliest of what is on the disk, when no more segments are to come."""
        later = self._later.pop()
        self._replay(self._settled(later.from_ms))
        self._flush_at = FLUSH_ROWS
        for segment in later.read():
            self._hold(segment)

    def _numbers(self, segment: Segment) -> Int64s:
        index, ids = self._index, segment.counter_ids.tolist()
        new = [key for key in ids if key not in index]
        if new:
            index.update(zip(new, range(len(index), len(index) + len(new)), strict=True))
            if len(index) > self._room:
                self._make_room(len(index) * 5 // 4)
            self.refs += [None] * len(new)
        return np.fromiter(map(index.__getitem__, ids), np.int64, len(ids))

    def _replay(self, before: int | None) -> None:
        """Replays the events before that time, all of them for None; the others stay."""
        held = sorted(self._held, key=lambda segment: segment.ordinal)
        if before is None:
            early, late = held, []
        else:
            cuts = [segment.cut(before) for segment in held]
            early = [part for part, _ in cuts if part is not None]
            late = [part for _, part in cuts if part is not None]
        if early:
            unsized = any(segment.unsized for segment in early)
            part = self._gather(held if unsized else early)
            retaken = np.zeros(len(part.times), bool)
            if unsized:
                # What a throttled fetch tried to read is told by its retry, which may be later than `before`.
                retaken = part.values == UNKNOWN
                rebuilt, shares = self._sizes.fill_in(part, retaken)
                self._count_rebuilt(part, rebuilt, shares, before)
                self._retries.fill_in(part)
                if before is not None:
                    retaken = retaken[part.times < before]
                    part = part.before(before)
            self._retries.remember(part)
            self._run(part, retaken)
        self._held = late
        self._held_rows = sum(map(len, late))

    def _count_rebuilt(self, part: Part, rows: Int64s, shares: Int64s, before: int | None) -> None:
        """Counts the rows with sizes from the data, those before that time; the others come again."""
        now = np.full(len(rows), True) if before is None else part.times[rows] < before
        numbers = part.counters[part.owners(rows[now])]
        np.add.at(self._totals["rebuilt"], numbers, 1)
        for number in np.unique(numbers).tolist():
            least = int(shares[now][numbers == number].min())
            self._shares[number] = min(least, self._shares.get(number, least))

    def _gather(self, segments: Sequence[Segment]) -> Part:
        numbers = [self._numbers(segment) for segment in segments]
        counters = np.unique(np.concatenate(numbers))
        targets = [np.searchsorted(counters, mine) for mine in numbers]
        counts, homes = np.zeros(len(counters), np.int64), np.zeros(len(counters), np.int64)
        kinds, limits = np.zeros(len(counters), np.int8), np.zeros(len(counters))
        for segment, target in zip(segments, targets, strict=True):
            counts[target] += segment.counts
            homes[target] = segment.homes
            kinds[target] = _KIND_OF_KEY[segment.keys]
            limits[target] = segment.limits
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        names = ["times", "values"]
        names += [name for name in OPTIONAL[:3] if any(getattr(segment, name) is not None for segment in segments)]
        names += ["member"] if self.settings.per_client else []
        names += ["event_limits"] if self._has_periods else []
        columns: dict[str, Any] = {
            name: np.zeros(offsets[-1], np.float64 if name == "event_limits" else np.int64) for name in names
        }
        if "throttle_ms" in columns:
            columns["throttle_ms"] -= 1  # what no export tells of; others are put in place below
        cursor = offsets[:-1].copy()
        for segment, target in zip(segments, targets, strict=True):
            for name in names:
                source = _column(segment, name)
                if source is not None:
                    base = segment.base_ms if name == "times" else 0
                    kernels.place(segment.counts, target, cursor, source, base, columns[name])
            cursor[target] += segment.counts
        for counter in kernels.unsorted(offsets, columns["times"]).tolist():
            rows = slice(offsets[counter], offsets[counter + 1])
            order = np.argsort(columns["times"][rows], kind="stable")
            for name in names:
                columns[name][rows] = columns[name][rows][order]
        if not self.settings.ordered:
            # A total order: what is equal in all of these is the same to the replay.
            keys = [columns[name] for name in reversed(names) if name != "times"]
            order = np.lexsort([*keys, columns["times"], np.repeat(np.arange(len(counters)), np.diff(offsets))])
            columns = {name: columns[name][order] for name in names}
        columns = {name: columns.get(name) for name in ROWS}
        return Part(counters, homes, kinds, limits, offsets, **columns)

    def _run(self, part: Part, retaken: Any) -> None:
        """Replays a part; the events `retaken` (a mask) are fetches of which the broker sent nothing."""
        engine, totals = self._engine, self._totals
        if self._recorder is not None:
            self._recorder.part(part)
        column: Any = engine.column
        rows = np.flatnonzero(retaken)
        owners = part.owners(rows)
        np.add.at(totals["unsized"], part.counters[owners], 1)
        fetches = part.kinds[owners] == FETCH
        rows, owners = rows[fetches], owners[fetches]
        np.minimum.at(totals["retaken_ms"], part.counters[owners], part.times[rows])
        events = _Events.of(part, rows, totals["retaken_ms"][part.counters])
        watched = bool(self._collectors) or part.member is not None or self._has_periods
        delays = column(np.zeros(len(events.times), np.int64), "int64") if watched else None
        rates = column(np.zeros(len(events.times)), "float64") if self._collectors else None
        throttled = column(np.zeros(len(events.times), bool), "bool") if watched else None
        charged = replay.Events(
            column(events.counters, "int64"),
            column(events.kinds, "int8"),
            column(events.bounds, "float64"),
            column(events.offsets, "int64"),
            column(events.times, "int64"),
            column(events.values, "float64"),
        )
        checked = None if events.checked is None else column(events.checked, "bool")
        limits = None if events.limits is None else column(events.limits, "float64")
        engine.replay_many(self._state, charged, self._summaries, checked, limits, delays, rates, throttled)
        if part.throttle_ms is not None:
            hits = np.flatnonzero(part.throttle_ms > 0)
            numbers = part.counters[part.owners(hits)]
            np.add.at(totals["hits"], numbers, 1)
            np.add.at(totals["logged"], numbers, part.throttle_ms[hits])
            np.maximum.at(totals["longest"], numbers, part.throttle_ms[hits])
            if self._has_periods:
                self._note_periods(self._answered_hits, part, hits)
            if part.member is not None:
                logged = part.throttle_ms[hits]
                found = np.column_stack([numbers, part.member[hits], np.ones(len(hits), np.int64), logged])
                self._logged_members = [_added_up([*self._logged_members, found])]
        if delays is None:
            return
        own = slice(None) if events.own is None else events.own
        told, hits = np.asarray(delays)[own], np.flatnonzero(np.asarray(throttled, bool)[own])
        if self._has_periods:
            self._note_periods(self._hits, part, hits)
        if part.member is not None:
            numbers = part.counters[part.owners(hits)]
            waits = np.maximum(told[hits], 0)  # none where a rejection came without a delay
            found = np.column_stack([numbers, part.member[hits], np.ones(len(hits), np.int64), waits])
            self._throttled_members = [_added_up([*self._throttled_members, found])]
        for collector in self._collectors:
            collector.part(part, told, np.asarray(rates)[own])

    def _note_periods(self, known: dict[int, set[int]], part: Part, rows: Int64s) -> None:
        """Notes of the counters of some events how many changes of the quotas were before these."""
        between = np.searchsorted(self._changes, part.times[rows], side="right")
        pairs = np.unique(np.column_stack([part.counters[part.owners(rows)], between]), axis=0)
        for number, before in pairs.tolist():
            known.setdefault(number, set()).add(before)

    def finish(self) -> list[pa.Table]:
        """Replays the rest. The findings (SCHEMA), a table for each of the settings' variants."""
        while self._later:
            self._take_later()
        self._replay(None)
        count = len(self.refs)
        refs: list[CounterRef] = [ref for ref in self.refs if ref is not None]
        assert len(refs) == count, "a counter without a name"
        summaries = {name: np.asarray(column)[:count] for name, column in self._summaries._asdict().items()}
        totals = {name: column[:count] for name, column in self._totals.items()}
        governing = [self._governing[number][max(self._governing[number])] for number in range(count)]
        changes = [_changes(self._governing[number]) for number in range(count)]
        known, throttled = ~totals["incomplete"], summaries["throttled"]
        # For all of them at once: of one counter after the other it would take a step for each pair of counters.
        self._told = (self._totals["hits"] > 0) | ~self._totals["silent"]
        told = self._told[:count]
        happened = known & (throttled > 0)
        verdicts = np.where(
            ~known,
            Verdict.UNDETERMINED.value,
            np.where(throttled > 0, Verdict.THROTTLED.value, Verdict.NOT_THROTTLED.value),
        )

        def whole(column: Any, mask: Any) -> pa.Array:
            return pa.array(np.asarray(column), pa.int64(), mask=~mask)

        self._tell_governing(refs, verdicts.tolist())
        # A recommendation asks what limits the clients of each measured counter.
        asked = np.array([ref.variant > 0 and self.settings.question is not None for ref in refs], bool)
        named = np.flatnonzero((throttled > 0) | ~known | (totals["hits"] > 0) | asked)
        clients, client_counts = self._clients(named, count)
        table = pa.table(
            [
                pa.array([ref.broker for ref in refs], pa.string()),
                pa.array([ref.key.value for ref in refs], pa.string()),
                pa.array([ref.sensor for ref in refs], pa.string()),
                pa.array([quota.entity for quota in governing], pa.string()),
                pa.array([quota.level for quota in governing], pa.int8()),
                pa.array([quota.limit for quota in governing], pa.float64()),
                pa.array(changes, pa.int64()),
                pa.array(verdicts.tolist(), pa.string()),
                pa.array([None if each else _INCOMPLETE for each in known.tolist()], pa.string()),
                pa.array([Basis.REQUESTS.value] * count, pa.string()),
                pa.array(totals["events"]),
                whole(throttled, known),
                whole(summaries["total_ms"], known),
                whole(summaries["max_ms"], known),
                pa.array(summaries["peak_rate"], pa.float64()),
                pa.array(summaries["peak_rate"], pa.float64(), mask=~known),
                whole(summaries["first_ms"], happened),
                whole(summaries["last_ms"], happened),
                *(whole(totals[name], told) for name in ("hits", "logged", "longest")),
                pa.array(totals["unsized"]),
                pa.array(totals["rebuilt"]),
                pa.array([_share(self._shares.get(number)) for number in range(count)], pa.float64()),
                pa.array(client_counts),
                pa.array(clients, SCHEMA.field("clients").type),
            ],
            schema=SCHEMA,
        )
        variants = np.array([ref.variant for ref in refs], np.int64)
        return [table.filter(pa.array(variants == variant)) for variant in range(len(self.settings.variants))]

    def judged(self, number: int) -> Judged:
        """What the replay found of the counter of that number, for its prediction; once it is finished."""
        totals, summaries, ref = self._totals, self._summaries, self.refs[number]
        assert ref is not None
        known, throttled = not totals["incomplete"][number], int(summaries.throttled[number])
        verdict = Verdict.UNDETERMINED
        if known:
            verdict = Verdict.THROTTLED if throttled > 0 else Verdict.NOT_THROTTLED
        changes = self.settings.variants[ref.variant].changes_ms
        limits = [
            (int(changes[period - 1]) if period else -(1 << 62), governing.limit)
            for period, governing in sorted(self._governing[number].items())
        ]
        return Judged(
            ref,
            verdict,
            None if known else _INCOMPLETE,
            limits,
            throttled,
            int(summaries.total_ms[number]),
            int(summaries.max_ms[number]),
            Logged(int(totals["hits"][number]), int(totals["logged"][number]), int(totals["longest"][number]))
            if self._told[number]
            else None,
            float(summaries.peak_rate[number]),
            self._clients_of(number) if self.settings.recorded_under is not None else (),
        )

    def _clients_of(self, number: int) -> list[tuple[str, str]]:
        """(user, client-id) of each client of a counter."""
        (rows,) = self._members  # in the order of the counters, since the replay is finished
        first, last = np.searchsorted(rows[:, 0], [number, number + 1])
        return [self._names[member] for member in rows[first:last, 1].tolist()]

    def _tell_governing(self, refs: Sequence[CounterRef], verdicts: Sequence[str]) -> None:
        """Adds each counter to the quotas that governed it; one that was throttled to those that did it."""
        for number, (ref, name) in enumerate(zip(refs, verdicts, strict=True)):
            verdict, periods = Verdict(name), self._governing[number]
            entities = {governing.entity for governing in periods.values()}
            guilty = entities
            take_turns = len(entities) > 1
            if verdict is Verdict.THROTTLED and take_turns:
                guilty = self._governing_when(number, self._hits)
            answered = self._governing_when(number, self._answered_hits) if take_turns else set()
            for entity in sorted(entities):
                found = verdict if verdict is not Verdict.THROTTLED or entity in guilty else Verdict.NOT_THROTTLED
                governing, quota = self.governing[ref.variant], (ref.key.value, entity)
                if quota not in governing:
                    governing[quota] = Governed()
                governing[quota].add(found, _INCOMPLETE if found is Verdict.UNDETERMINED else None)
                if take_turns and self._told[number]:
                    governing[quota].in_turn[ref.name] = InTurn(found, entity in answered)

    def _governing_when(self, number: int, hits: dict[int, set[int]]) -> set[str]:
        """The entities that governed a counter at its `hits`."""
        ref, periods = self.refs[number], self._governing[number]
        assert ref is not None
        changes = self.settings.variants[ref.variant].changes_ms
        times = [int(self._changes[before - 1]) if before else -1 for before in hits.get(number, ())]
        return {periods[period].entity for t in times if (period := bisect_right(changes, t)) in periods}

    def _clients(self, named: Int64s, count: int) -> tuple[list[list[dict[str, Any]]], Int64s]:
        """The busiest clients of the named counters, and how many share each of all."""
        self._members = [_added_up(self._members)]
        (rows,) = self._members
        client_count = np.bincount(rows[:, 0], minlength=count)
        hits = {(row[0], row[1]): (row[2], row[3]) for row in _added_up(self._throttled_members).tolist()}
        logged = {(row[0], row[1]): row[2] for row in _added_up(self._logged_members).tolist()}
        counted, incomplete = self.settings.per_client, self._totals["incomplete"]
        clients: list[list[dict[str, Any]]] = [[] for _ in range(count)]
        for counter, member, events, value in rows[np.isin(rows[:, 0], named)].tolist():
            user, client_id = self._names[member]
            told = counted and not incomplete[counter]
            throttled, time_ms = hits.get((counter, member), (0, 0)) if told else (None, None)
            client = {"user": user, "client_id": client_id, "events": events, "value": value}
            client |= {"throttled_events": throttled, "throttle_time_ms": time_ms}
            answered = counted and self._told[counter]
            client["logged_throttled_events"] = logged.get((counter, member), 0) if answered else None
            clients[counter].append(client)
        for mine in clients:
            mine.sort(key=lambda client: (-client["value"], -client["events"], client["user"], client["client_id"]))
        return [mine[: self.settings.top_clients] for mine in clients], client_count


def _share(ppm: int | None) -> float | None:
    return None if ppm is None else ppm / 1e6


def find(segments: Iterable[Segment], settings: AuditSettings) -> list[pa.Table]:
    """The findings of the counters whose events are in the segments, in any order; a counter must be whole in them."""
    replayed = Replay(settings)
    for segment in sorted(segments, key=lambda segment: segment.base_ms):
        replayed.add(segment)
    return replayed.finish()


def _column(segment: Segment, name: str) -> Any:
    """A column of a segment as the part has it; times count from the segment's `base_ms`."""
    match name:
        case "event_limits":
            return np.repeat(segment.limits, segment.counts)
        case "member":
            if segment.member is not None:
                return segment.member_ids[segment.member]
            # Without a column each counter has one client.
            only = np.zeros(len(segment.counts), np.int64)
            only[segment.member_counter] = segment.member_ids
            return np.repeat(only, segment.counts)
        case _:
            return getattr(segment, name)


def _added_up(rows: Sequence[Int64s]) -> Int64s:
    """Rows of (counter, member, a, b): one for each counter and member, with the sums of a and b."""
    if not rows:
        return np.zeros((0, 4), np.int64)
    table = np.concatenate(rows)
    table = table[np.lexsort((table[:, 1], table[:, 0]))]
    if len(table) == 0:
        return table
    starts = np.flatnonzero(np.concatenate([[True], (np.diff(table[:, :2], axis=0) != 0).any(axis=1)]))
    return np.column_stack([table[starts, :2], np.add.reduceat(table[:, 2:], starts, axis=0)])


def changes_of(settings: AuditSettings) -> Int64s:
    """When quotas change under any of the variants (epoch ms), in order."""
    return np.unique(np.concatenate([np.array(history.changes_ms, np.int64) for history in settings.variants]))


def _changes(periods: dict[int, Governing]) -> int:
    """How often the limit of a counter changed, or what set it."""
    in_time = [periods[period] for period in sorted(periods)]
    return sum((later.entity, later.limit) != (earlier.entity, earlier.limit) for earlier, later in pairwise(in_time))


@dataclass(frozen=True, slots=True)
class _Events:
    """What the kernel replays."""

    counters: Int64s
    kinds: Any
    bounds: Any
    """The limit of each of the counters."""
    offsets: Int64s
    times: Int64s
    values: Int64s
    limits: Any
    checked: Any
    own: Any
    """Which of them are the part's own events, where there are others."""

    @classmethod
    def of(cls, part: Part, retaken: Int64s, since_ms: Int64s) -> _Events:
        """The events of a part, each of the rows `retaken` followed by its own un-recording, as the broker did it.

        `since_ms` is of each counter when the broker first took a fetch back, NEVER where it did not. From then on the
        counter holds what the broker's held, and what stays in it is not up to the replay's own verdicts. A retry comes
        just when the rate is down to the limit. So an error of a millisecond would turn a verdict, and then the bytes
        of everything after it. Before, the recording shows nothing of the limit: what the replay throttles, it takes
        back.
        """
        checked = None
        if part.detail is not None and (part.kinds == MUTATION).any():
            rows = np.repeat(part.kinds == MUTATION, np.diff(part.offsets))
            checked = ~(rows & (part.detail == 1))
        followed = np.flatnonzero(since_ms != NEVER)
        if len(followed) == 0:
            columns = (part.offsets, part.times, part.values, part.event_limits, checked, None)
            return cls(part.counters, part.kinds, part.limits, *columns)
        after = retaken + 1
        own = np.insert(np.ones(len(part.times), bool), after, False)
        offsets = part.offsets + np.searchsorted(retaken, part.offsets)
        times = np.insert(part.times, after, part.times[retaken])
        starts = [
            start + np.searchsorted(times[start:end], since)
            for start, end, since in zip(offsets[followed], offsets[followed + 1], since_ms[followed], strict=True)
        ]
        # Two in the place of a counter that is followed: its events before, and those from then on.
        kinds = part.kinds.copy()
        kinds[followed] = PRODUCE
        return cls(
            np.insert(part.counters, followed, part.counters[followed]),
            np.insert(kinds, followed, part.kinds[followed]),
            np.insert(part.limits, followed, part.limits[followed]),
            np.insert(offsets, followed + 1, starts),
            times,
            np.insert(part.values, after, -part.values[retaken]),
            None if part.event_limits is None else np.insert(part.event_limits, after, part.event_limits[retaken]),
            own if checked is None else np.insert(checked, after, False),
            own,
        )
