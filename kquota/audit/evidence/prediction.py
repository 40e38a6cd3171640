"""Predictions: the recorded clients of each counter that would be throttled, run through the simulator.

The rows of one counter at a time are taken: those of counters that the replay throttles, or that the brokers held
back. `evidence.simulate` runs their clients. For all other counters the clients meet what was recorded, and under
quotas that were in force as well (`evidence.in_force`). `evidence.verdict` makes the verdicts on these and on the
findings one.

Clients that create and delete topics run as clients that retry, or do not. The recording holds the topics of each
request, and the rejections. It has no connections, so that all requests to one counter count as one client.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Final

import numpy as np

from kquota.audit.batch import NO_CONNECTION, UNANSWERED, Int64s
from kquota.audit.evidence.clients import Rows
from kquota.audit.evidence.in_force import InForce, happened, scale_of
from kquota.audit.evidence.prediction_store import NO_DELAY, Predictions, as_recorded
from kquota.audit.evidence.simulate import (
    MOST_TIME,
    OTHER_QUOTA,
    SimulatedCounter,
    kind_of,
    models_of,
    simulated,
)
from kquota.audit.ledger.rows import Judged
from kquota.audit.settings import AuditSettings, Together
from kquota.core.enforcement.kernel import Kernel, kernel_for
from kquota.core.enforcement.kind import FETCH, MUTATION, PRODUCE, REQUEST
from kquota.core.findings.prediction import LOGGED, UNDELAYED, UNKNOWN, CounterName, Interval, Prediction, RecordedUnder
from kquota.core.findings.verdicts import BURSTS, SLOWED, Verdict
from kquota.core.quotas.quota import BYTE_RATES, QuotaKey
from kquota.core.resolve.resolver import Sensors, tags
from kquota.core.simulation.members import grouped
from kquota.core.simulation.recorded import Mutating, run_mutations, throttles

if TYPE_CHECKING:
    from kquota.audit.ledger.part import Part
    from kquota.audit.ledger.replay import Replay
    from kquota.audit.ledger.rows import CounterRef

MOST_ROWS: Final = 50_000_000
"""A counter with more requests is not predicted: its rows would take 2 GB."""
MOST_CONNECTIONS: Final = 20_000
MOST_MUTATIONS: Final = 200_000
"""More requests about topics of one counter are not simulated, which would take seconds."""
_ROW_S: Final = 170e-6
"""How long it takes to simulate a request, several times, with the plain kernel."""
_KINDS: Final = (PRODUCE, FETCH, REQUEST, MUTATION)
"""The kinds of counters whose rows are kept."""
_DETAILED: Final = (PRODUCE, MUTATION, REQUEST)
"""Those of which the detail matters: the library and the partition, that the request is permissive, or its kind."""
_NOT_MODELLED: Final = "the clients of this quota are not modelled"
_NO_CONNECTIONS: Final = "the recording has no connections"
BELOW: Final = f"{_NO_CONNECTIONS}, and on average its clients stay below the limit"
"""The basis of a prediction for clients that may exceed it only by what they sent after a mute."""
CALM: Final = "twice the thread time of the handlers stays below the limit"
"""The basis of a prediction for clients of which a log has the handlers' time only, and which stay below the limit."""


class _Rows:
    """The rows of each counter of a part, and what they come to."""

    def __init__(self, part: Part) -> None:
        self.part = part
        longest = int(np.diff(part.offsets).max(initial=0))
        self._none, self._untold = np.zeros(longest, np.int64), np.full(longest, -1)
        self.counts = np.where(np.isin(part.kinds, _KINDS), np.diff(part.offsets), 0)
        starts = np.minimum(part.offsets[:-1], max(len(part.times) - 1, 0))
        bare = np.ones(len(part.times), bool) if part.connection is None else part.connection == NO_CONNECTION
        has_rows = len(part.times) > 0 and len(starts) > 0
        self._totals = np.add.reduceat(part.values, starts) if has_rows else starts
        self.bare = (self.counts > 0) & (np.logical_or.reduceat(bare, starts) if has_rows else False)
        """Of each counter whether some of its rows have no connection."""

    def traffic(self, counters: Int64s) -> Iterator[tuple[int, float]]:
        """(from the first row to the last one in ms, units per second) of each of these counters, which have rows."""
        offsets, times = self.part.offsets, self.part.times
        lengths = times[offsets[counters + 1] - 1] - times[offsets[counters]]
        scales = np.where(self.part.kinds[counters] == REQUEST, scale_of(QuotaKey.REQUEST_PERCENTAGE), 1)
        rates = self._totals[counters] / scales / (np.maximum(lengths, 1000) / 1000)
        return zip(lengths.tolist(), rates.tolist(), strict=True)

    def why_bare(self, counters: Int64s) -> Iterator[tuple[str, Int64s]]:
        """Why these counters, which have no connections, have no model: `BELOW` the limit on average, or above it."""
        rates = np.array([rate for _, rate in self.traffic(counters)])
        limits = self.part.limits[counters] / np.where(self.part.kinds[counters] == REQUEST, 100, 1)
        for why, which in ((BELOW, rates <= limits), (_NO_CONNECTIONS, rates > limits)):
            if which.any():
                yield why, counters[which]

    def read(self, counter: int) -> Rows:
        """The rows of a counter."""
        part = self.part
        which = slice(*part.offsets[counter : counter + 2].tolist())
        count = which.stop - which.start
        detail = self._none[:count]
        if part.detail is not None and part.kinds[counter] in _DETAILED:
            raw = part.detail[which]
            detail = raw * ((raw >= 0) & (raw < 2 * UNANSWERED))
        return Rows(
            part.times[which],
            part.values[which],
            self._none[:count] if part.connection is None else part.connection[which],
            self._untold[:count] if part.throttle_ms is None else np.minimum(part.throttle_ms[which], (1 << 31) - 1),
            detail,
        )


def predictions(replayed: Replay) -> list[Predictions]:
    """The predictions of the counters of a replay, for each variant of the quotas."""
    return _Predicting(replayed).run()


class _Predicting:
    """Predicts for the counters of one replay, of all keys but connections."""

    def __init__(self, replayed: Replay) -> None:
        self._refs, self._judged, self._settings = replayed.refs, replayed.judged, replayed.settings
        self._is_calm, self._throttles, self._is_logged = replayed.is_calm, replayed.throttles, replayed.is_logged
        self._first_ms = replayed.first_ms
        self._rows = _Rows(replayed.part)
        self._in_force = InForce(replayed.settings)

    def run(self) -> list[Predictions]:
        """The predictions, by variant."""
        settings = self._settings
        simulating: list[SimulatedCounter] = []

        def without_simulation(numbers: Iterable[int]) -> Iterator[tuple[CounterName, Prediction]]:
            # Not in the order of the numbers, which is up to how an export is cut.
            for name, number in sorted((self._refs[number].name, number) for number in numbers):
                prediction = self._predict(number)
                if isinstance(prediction, Prediction):
                    yield name, prediction
                else:
                    simulating.append(prediction)

        variants = np.array([ref.variant for ref in self._refs], np.int64)
        rows, part = self._rows, self._rows.part
        is_calm = self._is_calm & (rows.counts > 0)
        is_bare = self._throttles & rows.bare & (rows.counts <= MOST_ROWS) & (part.kinds != MUTATION)
        by_variant = []
        for variant in range(len(settings.variants)):
            left, known = variants == variant, self._in_force.of_calm(variant)
            by_variant.append(Predictions())
            if known:
                recorded, holds = known
                calm, bare = np.flatnonzero(left & is_calm), np.flatnonzero(left & is_bare & (not holds))
                left[calm] = left[bare] = False
                for why, numbers in rows.why_bare(bare):
                    alike = _without_model(Verdict.THROTTLED, recorded, why)
                    by_variant[-1].update({self._refs[number].name: alike for number in numbers.tolist()})
                counters = zip(calm.tolist(), rows.traffic(calm), strict=True)
                by_variant[-1].add_calm(
                    (
                        (self._refs[number].name, *traffic, LOGGED if holds and self._is_logged[number] else NO_DELAY)
                        for number, traffic in counters
                    ),
                    recorded,
                )
            by_variant[-1].update(dict(without_simulation(np.flatnonzero(left).tolist())))
        using = kernel_for("run_traffic", _ROW_S * sum(int(rows.counts[counter.number]) for counter in simulating))
        spared = self._spared(simulating)
        for group in self._groups(simulating):
            simulated = self._simulate(group, using)
            if others := [*self._delayed(group, spared)]:
                beside = self._simulate([*group, *others], using)
                simulated = beside | simulated  # what slows the others down comes later
            variant = group[0].judged.ref.variant
            by_variant[variant].update({ref.name: prediction for ref, prediction in simulated.items()})
        self._leave_open(by_variant)
        return by_variant

    def _leave_open(self, by_variant: Sequence[Predictions]) -> None:
        """Leaves open what comes after another quota throttles, where no connection shows whom that one slows down.

        A broker takes the bytes of a fetch back where either quota throttles it: the other one counts in the same ms.
        """
        kinds = self._rows.part.kinds
        bare = self._rows.bare & (self._is_calm | self._throttles) & np.isin(kinds, (PRODUCE, FETCH, REQUEST))
        slowing: dict[tuple[int, str, bool], Sensors] = defaultdict(Sensors)
        """By variant, broker, and whether they count thread time, the counters that have throttled so far."""
        both = (kinds == REQUEST).any() and (bare & self._throttles).any()
        known = [self._in_force.of_calm(variant) for variant in range(len(by_variant))]
        alike: dict[tuple[int, bool, RecordedUnder], list[CounterName]] = defaultdict(list)
        first = list(zip(self._first_ms.tolist(), (kinds == FETCH).tolist(), strict=True))
        order = sorted(np.flatnonzero(bare & both).tolist(), key=first.__getitem__)
        for _, numbers in groupby(order, key=first.__getitem__):
            group = [(number, self._refs[number], bool(kinds[number] == REQUEST)) for number in numbers]
            for number, ref, is_time in group:
                if not slowing[ref.variant, ref.broker, not is_time].meet(*tags(ref.sensor)):
                    continue
                recorded, holds = known[ref.variant] or (RecordedUnder(), True)
                slowed = bool(self._throttles[number])
                if holds or not (slowed or kinds[number] == FETCH):  # a fetch brings all that waits
                    judged = self._judged(number)
                    may = slowed or kinds[number] == FETCH or throttles(0, judged.peak_rate, judged.limits) is None
                    if not may or self._in_force.holds(judged):
                        continue
                    recorded = self._in_force.recorded_under(judged)
                alike[ref.variant, slowed, recorded].append(ref.name)
            for _, ref, is_time in (one for one in group if self._throttles[one[0]]):
                slowing[ref.variant, ref.broker, is_time].add(ref.sensor)
        for (variant, slowed, recorded), names in alike.items():
            reason = f"{OTHER_QUOTA} {SLOWED if slowed else BURSTS}"
            by_variant[variant].update(dict.fromkeys(names, _without_model(Verdict.UNDETERMINED, recorded, reason)))

    def _predict(self, counter: int) -> Prediction | SimulatedCounter:
        """The prediction of a counter, or that its clients have to be simulated."""
        judged = self._judged(counter)
        recorded = self._in_force.recorded_under(judged)
        key = judged.ref.key
        count = int(self._rows.counts[counter])
        if not count:
            return _unknown(judged, recorded, judged.reason or _NOT_MODELLED)
        known = judged.verdict is not Verdict.UNDETERMINED
        holds = self._in_force.holds(judged)
        if judged.verdict is Verdict.NOT_THROTTLED and not recorded.held_back:
            basis = LOGGED if holds and judged.logged is not None else NO_DELAY
            return as_recorded(*self._traffic_of(counter), basis, recorded)
        if count > MOST_ROWS:
            return _unknown(judged, recorded, f"more than {MOST_ROWS:,} requests of one counter are not simulated")
        if holds and (known or judged.logged is not None):
            rows = self._rows.read(counter)
            return happened(judged, recorded, rows, kind_of(rows, key))
        if not known and key is not QuotaKey.REQUEST_PERCENTAGE:
            return _unknown(judged, recorded, judged.reason or _NOT_MODELLED)
        if key is QuotaKey.CONTROLLER_MUTATION_RATE and count <= MOST_MUTATIONS:
            return _of_mutations(self._rows.read(counter), judged, recorded, self._settings)
        if key not in (*BYTE_RATES, QuotaKey.REQUEST_PERCENTAGE):
            return _unknown(judged, recorded, _NOT_MODELLED)
        least = min((limit for _, limit in judged.limits if limit is not None), default=0.0)
        if not known and not recorded.held_back and judged.peak_rate * MOST_TIME <= least:
            calm = as_recorded(*self._traffic_of(counter), CALM, recorded)
            peak = Interval(judged.peak_rate, None, MOST_TIME * judged.peak_rate)
            verdict, reason = judged.verdict.value, judged.reason
            return replace(calm, verdict=verdict, reason=reason, delivered_per_s=UNKNOWN, peak_rate=peak)
        if self._rows.bare[counter]:
            ((why, _),) = self._rows.why_bare(np.array([counter]))
            return _unknown(judged, recorded, why)
        connections = np.unique(self._rows.read(counter).connection)
        if len(connections) > MOST_CONNECTIONS:
            return _unknown(judged, recorded, f"more than {MOST_CONNECTIONS:,} connections are not simulated")
        return SimulatedCounter(counter, judged, recorded, self._traffic_of(counter)[0], connections)

    def _traffic_of(self, counter: int) -> tuple[int, float]:
        return next(self._rows.traffic(np.array([counter])))

    def _groups(self, counters: Sequence[SimulatedCounter]) -> list[list[SimulatedCounter]]:
        """The counters whose clients are simulated together: those of thread time and of bytes that share connections.

        A broker mutes a connection for the longest of its throttle times.
        """

        def connections_of(counter: SimulatedCounter) -> Iterator[tuple[tuple[int, str, str], int]]:
            place = self._place_of(counter.judged.ref)
            return ((place, connection) for connection in counter.connections.tolist())

        def is_timed(counter: SimulatedCounter) -> bool:
            return counter.judged.ref.key is QuotaKey.REQUEST_PERCENTAGE

        of_time = {connection for counter in filter(is_timed, counters) for connection in connections_of(counter)}
        return grouped(
            sorted(counters, key=is_timed, reverse=True),
            lambda counter: of_time.intersection(connections_of(counter)) if of_time else (),
        )

    def _place_of(self, ref: CounterRef) -> tuple[int, str, str]:
        """(variant, broker, who the task is for) of a counter.

        Others may be in the same task or not; then a connection in both means nothing.
        """
        user, _, client_id = ref.sensor.partition(":")
        homes = {Together.USER: user, Together.CLIENT_ID: client_id, Together.COUNTER: ref.sensor}
        return ref.variant, ref.broker, homes.get(self._settings.kept, "")

    def _spared(self, counters: Sequence[SimulatedCounter]) -> dict[int, set[int]]:
        """The counters that the replay spares, by the connections that they have in common with some others."""
        rows, part = self._rows, self._rows.part
        spared: dict[int, set[int]] = {}
        if counters and part.connection is not None and (part.kinds == REQUEST).any():
            calm = self._is_calm & ~rows.bare & np.isin(part.kinds, (PRODUCE, FETCH, REQUEST))
            known = np.isin(part.connection, np.concatenate([counter.connections for counter in counters]))
            shared = np.flatnonzero(known & np.repeat(calm, np.diff(part.offsets)))
            pairs = np.column_stack([part.connection[shared], part.owners(shared)])
            for connection, number in np.unique(pairs, axis=0).tolist():
                spared.setdefault(connection, set()).add(number)
        return spared

    def _delayed(
        self, group: Sequence[SimulatedCounter], spared: Mapping[int, Collection[int]]
    ) -> Iterator[SimulatedCounter]:
        """Those of them whose clients a quota of the other kind delays: what waits may come at once."""
        refs = [counter.judged.ref for counter in group]
        of_time = {ref.key is QuotaKey.REQUEST_PERCENTAGE for ref in refs}
        connections = {connection for counter in group for connection in counter.connections.tolist()}
        met = {number for connection in connections for number in spared.get(connection, ())}
        for number in sorted(met, key=lambda number: self._refs[number].name):
            judged = self._judged(number)
            ref, recorded = judged.ref, self._in_force.recorded_under(judged)
            is_other = (ref.key is not QuotaKey.REQUEST_PERCENTAGE) in of_time
            is_near = self._place_of(ref) == self._place_of(refs[0])
            if is_other and is_near and not recorded.held_back and not self._in_force.holds(judged):
                own = np.unique(self._rows.read(number).connection)
                yield SimulatedCounter(number, judged, recorded, self._traffic_of(number)[0], own)

    def _simulate(self, group: Sequence[SimulatedCounter], using: Kernel) -> dict[CounterRef, Prediction]:
        """Simulates the clients of some counters; of one counter of bytes, or of several that share connections."""
        rows = {counter.number: self._rows.read(counter.number) for counter in group}
        count = sum(map(len, rows.values()))
        if count > MOST_ROWS or sum(len(counter.connections) for counter in group) > MOST_CONNECTIONS:
            reason = "too many requests of one connection's counters to simulate them together"
            return {counter.judged.ref: _unknown(counter.judged, counter.recorded, reason) for counter in group}
        return simulated(group, models_of(group, rows), self._settings, using)


def _unknown(judged: Judged, recorded: RecordedUnder, reason: str) -> Prediction:
    """The prediction of clients of which no model can be made; the verdict of the replay stands where it is known."""
    is_open = judged.verdict is Verdict.NOT_THROTTLED and recorded.held_back
    return _without_model(Verdict.UNDETERMINED if is_open else judged.verdict, recorded, reason)


@lru_cache
def _without_model(verdict: Verdict, recorded: RecordedUnder, reason: str) -> Prediction:
    """The same prediction for all counters of which no more is known."""
    met = UNDELAYED if verdict is Verdict.NOT_THROTTLED else {}
    return Prediction(
        client_kind="unknown",
        basis=reason,
        verdict=verdict.value,
        **met,
        reason=reason if verdict is Verdict.UNDETERMINED else None,
        recorded_under=recorded,
    )


_AGAIN_MS: Final = 250
"""So long after the end of its throttle time a rejected topic is sent again, by a client that does so."""


def _of_mutations(rows: Rows, judged: Judged, recorded: RecordedUnder, settings: AuditSettings) -> Prediction:
    """The prediction of these requests under the limit of the last period."""
    rows = rows.take(np.argsort(rows.time, kind="stable"))
    length = int(rows.time[-1] - rows.time[0])
    seconds = max(length, 1000) / 1000
    limit = judged.limits[-1][1] or 0.0
    strict = bool((rows.detail == 0).any())
    again = _tried_again(rows)
    requests = _requests(rows, again=again)
    likely = again is not False
    runs = [
        run_mutations(requests, limit, length, windows=settings.controller_windows, retries=retries)
        for retries in ([likely, not likely] if strict and again is None else [likely])
    ]
    wanted = sum(sum(request.topics) for request in requests) / seconds
    throttled = [met.throttled > 0 for met in runs]
    verdict = judged.verdict
    if recorded.held_back:
        verdict = Verdict.THROTTLED if all(throttled) else Verdict.UNDETERMINED
    met, held = runs[0], recorded.held_back
    prediction = Prediction(
        client_kind="paced",
        basis=_BASIS[again] if strict else "requests come at their times, and wait while their client is muted",
        verdict=verdict.value,
        throttle_time_ms=Interval.over([run.throttle_ms for run in runs]),
        throttle_time_max_ms=Interval.over([run.throttle_max_ms for run in runs]),
        muted_share=Interval.over([min(run.muted_ms / (seconds * 1000), 1.0) for run in runs]),
        delivered_per_s=Interval.over([run.delivered / seconds for run in runs]),
        wanted_per_s=Interval.at_least(wanted) if held else Interval.exactly(wanted),
        done_ms=Interval.exactly(met.done_ms) if met.done_ms is not None else Interval(None, None, None),
        left_units=Interval.over([run.left for run in runs]),
        recorded_ms=length,
        recorded_under=recorded,
    )
    if verdict is Verdict.UNDETERMINED:
        reason = f"wanted at least {wanted:,.3g} a second: a quota held it back while it was recorded"
        return prediction.undetermined(reason)
    return prediction.open_ended() if held and limit > wanted else prediction


_BASIS: Final = {
    None: "rejected topics are sent again, or given up",
    True: "rejected topics are sent again, as in the recording",
    False: "rejected topics are given up, as in the recording",
}


def _tried_again(rows: Rows) -> bool | None:
    """Whether rejected topics were sent again; None where none was rejected."""
    rejected = rows.take((rows.throttle > 0) & (rows.detail == 0))
    if not len(rejected):
        return None
    ends = rejected.time + rejected.throttle
    following = np.searchsorted(rows.time, ends - 1)
    there = following < len(rows)
    soon = rows.time[np.minimum(following, len(rows) - 1)] <= ends + _AGAIN_MS
    return bool((there & soon).mean() > 0.5)


def _requests(rows: Rows, *, again: bool | None) -> list[Mutating]:
    """The requests that clients wanted to send; topics that they sent again count at their first time only."""
    times = rows.time
    wanted = np.ones(len(rows), bool)
    if again:
        rejected = (rows.throttle > 0) & (rows.detail == 0)
        wanted = ~rejected
        # An accepted topic came when its first attempt did, just before it in the log.
        run = np.maximum.accumulate(np.where(rejected, 0, np.arange(1, len(rows) + 1)))
        first = np.concatenate([[0], run[:-1]])
        times = np.where(wanted, rows.time[np.minimum(first, len(rows) - 1)], times)
    starts = np.flatnonzero(wanted)
    requests: dict[tuple[int, int, int], list[int]] = {}
    for row in starts.tolist():
        name = (int(times[row]), int(rows.time[row]), int(rows.detail[row]))
        requests.setdefault(name, []).append(int(rows.size[row]))
    return [Mutating(at, tuple(topics), detail == 0) for (at, _, detail), topics in sorted(requests.items())]
