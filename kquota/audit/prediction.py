"""Predictions: the recorded clients of each counter that would be throttled, run through the simulator.

While the reduce side replays the events, it leaves their columns here: some 16 to 40 bytes a request, in memory up to
KEPT_BYTES and then on the disk. At the end the rows of one counter at a time are taken: those of counters that the
replay throttles, or that the brokers held back. `kquota.audit.simulated` runs their clients. For all other counters the
clients meet what was recorded, and under quotas that were in force as well (`kquota.audit.in_force`). The verdicts on
these and on the findings are made one by `kquota.audit.held_back`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kquota.audit import mutators
from kquota.audit.batch import NO_CONNECTION, UNANSWERED, Int64s
from kquota.audit.in_force import InForce, Judged, happened, scale_of
from kquota.audit.predicted import AS_RECORDED, NO_DELAY, Predictions
from kquota.audit.rows import RECORD_BYTES, Rows
from kquota.audit.settings import Together
from kquota.audit.simulated import (
    BYTES,
    KEPT,
    MOST_TIME,
    OTHER_QUOTA,
    SimulatedCounter,
    all_taken_back,
    kernel_for,
    kind_of,
    models_of,
    simulated,
)
from kquota.core.enforcement.kernel import Kernel
from kquota.core.enforcement.kind import FETCH, MUTATION, PRODUCE, REQUEST
from kquota.core.findings.prediction import LOGGED, UNKNOWN, CounterName, Interval, Prediction, RecordedUnder
from kquota.core.findings.verdicts import SLOWED, Verdict
from kquota.core.quotas.quota import QuotaKey

if TYPE_CHECKING:
    from kquota.audit.part import Part
    from kquota.audit.segment import CounterRef
    from kquota.audit.settings import AuditSettings

KEPT_BYTES: Final = 128 << 20
"""So much of the columns stays in memory; the rest goes to the disk."""
MOST_ROWS: Final = 50_000_000
"""A counter with more requests is not predicted: its rows would take 2 GB."""
MOST_CONNECTIONS: Final = 20_000
MOST_MUTATIONS: Final = 200_000
"""More requests about topics of one counter are not simulated, which would take seconds."""
MOST_OTHERS: Final = 100
"""So many counters of thread time are tried that may be charged for the same fetches."""
_KINDS: Final = (PRODUCE, FETCH, REQUEST, MUTATION)
"""The kinds of counters whose rows are kept."""
_DETAILED: Final = (PRODUCE, MUTATION, REQUEST)
"""Those of which the detail matters: the library and the partition, that the request is permissive, or its kind."""
_NOT_MODELLED: Final = "the clients of this quota are not modelled"
CALM: Final = "twice the thread time of the handlers stays below the limit"
"""The basis of a prediction for clients of which a log has the handlers' time only, and which stay below the limit."""


class Pieces:
    """Where the rows of each counter are, and what they come to: a row of numbers for each piece."""

    def __init__(self) -> None:
        self._added: list[Int64s] = []
        self._table = np.zeros((0, 8), np.int64)
        """(counter, part, first row in it, rows, first time, last time, sum, rows without connection) of each piece."""
        self._ends = self._rows = self._totals = self._lacking = np.zeros(0, np.int64)
        """Of each counter where its pieces end in the table, and what they add up to."""

    def add(self, pieces: Int64s) -> None:
        """Adds pieces of different counters; those of one counter come in the order of time."""
        self._added.append(pieces)

    def close(self) -> None:
        """Ends the adding; only then a counter can be asked for."""
        if self._added:
            table = np.concatenate(self._added)
            self._table = table[np.argsort(table[:, 0], kind="stable")]
            self._ends = np.cumsum(np.bincount(self._table[:, 0]))
            self._rows, self._totals, self._lacking = (np.zeros_like(self._ends) for _ in range(3))
            for sums, column in ((self._rows, 3), (self._totals, 6), (self._lacking, 7)):
                np.add.at(sums, self._table[:, 0], self._table[:, column])
        self._added = []

    def _first(self, counter: int) -> int:
        return int(self._ends[counter - 1]) if counter else 0

    def rows(self, counter: int) -> int:
        """How many rows a counter has."""
        return int(self._rows[counter]) if counter < len(self._rows) else 0

    def places(self, counter: int) -> list[tuple[int, int, int]]:
        """(part, first row in it, rows) of each piece of a counter."""
        mine = self._table[self._first(counter) : self._ends[counter], 1:4]
        return [(part, start, count) for part, start, count in mine.tolist()]

    def length(self, counter: int) -> int:
        """From the first row of a counter to the last one (ms)."""
        return int(self._table[self._ends[counter] - 1, 5] - self._table[self._first(counter), 4])

    def lacks_connections(self, counter: int) -> bool:
        """Whether a row of a counter has no connection."""
        return bool(self._lacking[counter] > 0)

    def total(self, counter: int) -> int:
        """The sum of the rows of a counter."""
        return int(self._totals[counter])


class _Kept(NamedTuple):
    """The columns of a part, None for one that it lacks."""

    times: Int64s
    values: Int64s
    connection: Int64s | None
    throttle_ms: Int64s | None
    detail: Int64s | None

    @classmethod
    def of(cls, part: Part) -> _Kept:
        detail = part.detail
        if detail is not None:
            told = np.repeat(np.isin(part.kinds, _DETAILED), np.diff(part.offsets))
            detail = detail * (told & (detail >= 0) & (detail < 2 * UNANSWERED))
        return cls(part.times, part.values, part.connection, part.throttle_ms, detail)

    def rows(self, which: slice) -> Rows:
        """Some of the rows."""
        times, values, connection, throttle, detail = (None if each is None else each[which] for each in self)
        assert times is not None
        assert values is not None
        count = len(times)
        return Rows(
            times,
            values,
            np.full(count, NO_CONNECTION) if connection is None else connection,
            np.full(count, -1) if throttle is None else np.minimum(throttle, (1 << 31) - 1),
            np.zeros(count, np.int64) if detail is None else detail,
        )


class Recorder:
    """Keeps the rows of the counters while these are replayed: of all keys but connections."""

    def __init__(self) -> None:
        self._parts: list[_Kept | int] = []
        """The rows of each part, or where they begin in the file."""
        self._bytes = 0
        """How much of them is in memory."""
        self._file: IO[bytes] | None = None
        self._pieces = Pieces()

    def part(self, part: Part) -> None:
        """Keeps the rows of a part, which must not change any more."""
        counts = np.diff(part.offsets)
        places = np.flatnonzero(counts)
        starts, counts, ends = part.offsets[places], counts[places], part.offsets[places + 1]
        mine = np.isin(part.kinds[places], _KINDS)
        if not mine.any():
            return
        lacking = counts
        if part.connection is not None:
            lacking = np.add.reduceat(part.connection == NO_CONNECTION, starts, dtype=np.int64)
        number = np.full(len(places), len(self._parts))
        sums, firsts, lasts = np.add.reduceat(part.values, starts), part.times[starts], part.times[ends - 1]
        columns = (part.counters[places], number, starts, counts, firsts, lasts, sums, lacking)
        self._pieces.add(np.column_stack(columns)[mine])
        kept = _Kept.of(part)
        size = sum(column.nbytes for column in kept if column is not None)
        if self._bytes + size <= KEPT_BYTES:
            self._bytes += size
            self._parts.append(kept)
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="kquota-audit-")  # noqa: SIM115 - `finish` closes it
        self._parts.append(self._file.seek(0, 2))
        self._file.write(kept.rows(slice(None)).packed())

    def finish(
        self, refs: Sequence[CounterRef | None], judged: Callable[[int], Judged], settings: AuditSettings
    ) -> list[Predictions]:
        """The predictions of the counters, for each variant of the quotas.

        `refs` are the counters by their numbers, and `judged` gives what the replay found of the counter of a number.
        """
        in_force = InForce(settings)
        alone: dict[int, SimulatedCounter] = {}
        timed: dict[int, SimulatedCounter] = {}
        self._pieces.close()

        def predictions(variant: int) -> Iterator[tuple[CounterName, Prediction]]:
            """The predictions that need no simulation."""
            # Not in the order of the numbers, which is up to how an export is cut.
            names = sorted((ref.name, number) for number, ref in enumerate(refs) if ref and ref.variant == variant)
            for name, number in names:
                prediction = self._predict(number, judged(number), in_force, settings)
                if isinstance(prediction, Prediction):
                    yield name, prediction
                else:
                    (timed if prediction.judged.ref.key is QuotaKey.REQUEST_PERCENTAGE else alone)[number] = prediction

        found = [Predictions(predictions(variant)) for variant in range(len(settings.variants))]
        using = kernel_for(sum(map(self._pieces.rows, (*alone, *timed))))
        for group in self._groups(alone, timed, settings.kept):
            simulated = self._simulate(group, settings, using)
            found[group[0].judged.ref.variant].update({ref.name: each for ref, each in simulated.items()})
        self._take_back(refs, judged, in_force, settings, found)
        if self._file is not None:
            self._file.close()
        self._parts = []
        return found

    def _take_back(
        self,
        refs: Sequence[CounterRef | None],
        judged: Callable[[int], Judged],
        in_force: InForce,
        settings: AuditSettings,
        found: Sequence[Predictions],
    ) -> None:
        """Judges fetches under both quotas where no connection shows their clients: a broker takes their bytes back."""
        timed: dict[tuple[int, str, str], list[int]] = {}
        for number, ref in enumerate(refs):
            if ref is not None and ref.key is QuotaKey.REQUEST_PERCENTAGE and self._bare(number):
                timed.setdefault((ref.variant, ref.broker, ref.sensor.partition(":")[0]), []).append(number)
        for number, ref in enumerate(refs if timed else ()):
            if ref is None or ref.key is not QuotaKey.CONSUMER_BYTE_RATE or not self._bare(number):
                continue
            mine = judged(number)
            if mine.verdict is not Verdict.THROTTLED or mine.held_back or in_force.holds(mine):
                continue
            user = ref.sensor.partition(":")[0]
            others = [n for tag in sorted({user, ""}) for n in timed.get((ref.variant, ref.broker, tag), ())]
            for other in others[:MOST_OTHERS]:
                theirs = judged(other)
                spared = all_taken_back(mine, self._read(number), theirs, self._read(other), settings)
                if spared:
                    known = theirs.verdict is not Verdict.UNDETERMINED
                    verdict = Verdict.NOT_THROTTLED if known else Verdict.UNDETERMINED
                    settled = replace(mine, verdict=verdict)
                    reason = f"{OTHER_QUOTA} {SLOWED if not known else KEPT}"
                    found[ref.variant].update({ref.name: _unknown(settled, in_force.recorded_under(mine), reason)})
                    break

    def _bare(self, counter: int) -> bool:
        """Whether a counter has few enough requests for a replay beside another one, and lacks connections."""
        return 0 < self._pieces.rows(counter) <= MOST_MUTATIONS and self._pieces.lacks_connections(counter)

    def _predict(
        self, counter: int, judged: Judged, in_force: InForce, settings: AuditSettings
    ) -> Prediction | SimulatedCounter:
        """The prediction of a counter, or that its clients have to be simulated."""
        recorded = in_force.recorded_under(judged)
        key = judged.ref.key
        count = self._pieces.rows(counter)
        if not count:
            return _unknown(judged, recorded, judged.reason or _NOT_MODELLED)
        known = judged.verdict is not Verdict.UNDETERMINED
        holds = in_force.holds(judged)
        if judged.verdict is Verdict.NOT_THROTTLED and not recorded.held_back:
            return self._as_recorded(counter, key, recorded, LOGGED if holds and judged.logged is not None else None)
        if count > MOST_ROWS:
            return _unknown(judged, recorded, f"more than {MOST_ROWS:,} requests of one counter are not simulated")
        if holds and (known or judged.logged is not None):
            rows = self._read(counter)
            return happened(judged, recorded, rows, kind_of(rows, key))
        if not known and key is not QuotaKey.REQUEST_PERCENTAGE:
            return _unknown(judged, recorded, judged.reason or _NOT_MODELLED)
        if key is QuotaKey.CONTROLLER_MUTATION_RATE and count <= MOST_MUTATIONS:
            return mutators.predicted(self._read(counter), judged, recorded, settings)
        if key not in (*BYTES, QuotaKey.REQUEST_PERCENTAGE):
            return _unknown(judged, recorded, _NOT_MODELLED)
        if not known and not recorded.held_back and judged.peak_rate * MOST_TIME <= _least_limit(judged):
            calm = self._as_recorded(counter, key, recorded, CALM)
            peak = Interval(judged.peak_rate, None, MOST_TIME * judged.peak_rate)
            verdict, reason = judged.verdict.value, judged.reason
            return replace(calm, verdict=verdict, reason=reason, delivered_per_s=UNKNOWN, peak_rate=peak)
        if self._pieces.lacks_connections(counter):
            return _unknown(judged, recorded, "the recording has no connections")
        connections = _distinct(self._read(counter).connection)
        if len(connections) > MOST_CONNECTIONS:
            return _unknown(judged, recorded, f"more than {MOST_CONNECTIONS:,} connections are not simulated")
        return SimulatedCounter(counter, judged, recorded, self._pieces.length(counter), connections)

    def _groups(
        self, alone: Mapping[int, SimulatedCounter], timed: Mapping[int, SimulatedCounter], kept: Together
    ) -> Iterator[list[SimulatedCounter]]:
        """The counters whose clients are simulated together: those of thread time and of bytes that share connections.

        A broker mutes a connection for the longest of its throttle times.
        """
        owners: dict[tuple[int, str, str, int], int] = {}
        """(variant, broker, who the task is for, connection) → a counter of thread time."""
        parent = {number: number for number in (*timed, *alone)}

        def root(number: int) -> int:
            while parent[number] != number:
                number = parent[number]
            return number

        for number, counter in (*timed.items(), *(alone.items() if timed else ())):
            ref = counter.judged.ref
            user, _, client_id = ref.sensor.partition(":")
            # Others may be in the same task or not; then a connection in both means nothing.
            home = {Together.USER: user, Together.CLIENT_ID: client_id, Together.COUNTER: ref.sensor}.get(kept, "")
            place = (ref.variant, ref.broker, home)
            for connection in counter.connections.tolist():
                if number in timed:
                    owner = owners.setdefault((*place, connection), number)
                else:
                    owner = owners.get((*place, connection), number)
                one, other = sorted((root(owner), root(number)))
                parent[other] = one
        groups: dict[int, list[SimulatedCounter]] = {}
        for number, counter in (*timed.items(), *alone.items()):
            groups.setdefault(root(number), []).append(counter)
        yield from groups.values()

    def _simulate(
        self, group: Sequence[SimulatedCounter], settings: AuditSettings, using: Kernel
    ) -> dict[CounterRef, Prediction]:
        """Simulates the clients of some counters; of one counter of bytes, or of several that share connections."""
        rows = {counter.number: self._read(counter.number) for counter in group}
        count = sum(map(len, rows.values()))
        if count > MOST_ROWS or sum(len(counter.connections) for counter in group) > MOST_CONNECTIONS:
            reason = "too many requests of one connection's counters to simulate them together"
            return {each.judged.ref: _unknown(each.judged, each.recorded, reason) for each in group}
        return simulated(group, models_of(group, rows), settings, using)

    def _read(self, counter: int) -> Rows:
        pieces = []
        for number, start, count in self._pieces.places(counter):
            kept = self._parts[number]
            if isinstance(kept, _Kept):
                pieces.append(kept.rows(slice(start, start + count)))
                continue
            assert self._file is not None
            self._file.seek(kept + start * RECORD_BYTES)
            pieces.append(Rows.unpacked(self._file.read(count * RECORD_BYTES)))
        return Rows.joined(pieces)

    def _as_recorded(self, counter: int, key: QuotaKey, recorded: RecordedUnder, basis: str | None) -> Prediction:
        """The clients of a counter that delays nobody."""
        length = self._pieces.length(counter)
        rate = Interval.exactly(self._pieces.total(counter) / scale_of(key) / (max(length, 1000) / 1000))
        nothing = Interval.exactly(0)
        return Prediction(
            client_kind=AS_RECORDED,
            basis=basis or NO_DELAY,
            verdict=Verdict.NOT_THROTTLED.value,
            throttle_time_ms=nothing,
            throttle_time_max_ms=nothing,
            muted_share=nothing,
            delivered_per_s=rate,
            wanted_per_s=rate,
            done_ms=Interval.exactly(length),
            left_units=nothing,
            throttled_requests=nothing,
            recorded_ms=length,
            recorded_under=recorded,
        )


def _unknown(judged: Judged, recorded: RecordedUnder, reason: str) -> Prediction:
    """The prediction of clients of which no model can be made; the verdict of the replay stands where it is known."""
    verdict = judged.verdict
    if verdict is Verdict.NOT_THROTTLED and recorded.held_back:
        verdict = Verdict.UNDETERMINED
    return _without_model(verdict, recorded, reason)


@lru_cache
def _without_model(verdict: Verdict, recorded: RecordedUnder, reason: str) -> Prediction:
    """The same prediction for all counters of which no more is known."""
    none = Interval.exactly(0) if verdict is Verdict.NOT_THROTTLED else UNKNOWN
    return Prediction(
        client_kind="unknown",
        basis=reason,
        verdict=verdict.value,
        throttle_time_ms=none,
        throttle_time_max_ms=none,
        muted_share=none,
        delivered_per_s=UNKNOWN,
        wanted_per_s=UNKNOWN,
        done_ms=UNKNOWN,
        left_units=UNKNOWN,
        reason=reason if verdict is Verdict.UNDETERMINED else None,
        recorded_under=recorded,
    )


def _least_limit(judged: Judged) -> float:
    """The lowest limit that the counter ever had."""
    return min((limit for _, limit in judged.limits if limit is not None), default=0.0)


def _distinct(values: Int64s) -> Int64s:
    """Each of the values once, in order; mostly there is one."""
    return values[:1].copy() if (values == values[0]).all() else np.unique(values)
