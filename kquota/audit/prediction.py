"""Predictions: the recorded clients of each counter that would be throttled, run through the simulator.

While the reduce side replays the events, it leaves their columns here: some 16 to 40 bytes a request, in memory up to
KEPT_BYTES and then on the disk. At the end the rows of one counter at a time are taken: those of counters that the
replay throttles, or that the brokers held back. They become clients, of each kind that fits, and the simulator runs
them. For all other counters the clients meet what was recorded, and under quotas that were in force as well
(`kquota.audit.in_force`). The verdicts on these and on the findings are made one by `kquota.audit.held_back`.
"""

from __future__ import annotations

import enum
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from kquota.audit import mutators
from kquota.audit.batch import NO_CONNECTION, UNANSWERED, Int64s
from kquota.audit.clients import (
    CONSUMER,
    MESSAGE_BYTES,
    PACED,
    SATURATING,
    SOCKET_MS,
    SYNCHRONOUS,
    Guess,
    Requests,
    Seen,
    consumer,
    producer,
    resent,
)
from kquota.audit.feeds import LOST, UNCOUPLED, Curve, Feeder, Feeds, Place, arrivals, throttled
from kquota.audit.in_force import InForce, Judged, happened, scale_of
from kquota.audit.predicted import AS_RECORDED, NO_DELAY, Predictions
from kquota.audit.retries import keys_of
from kquota.audit.settings import Together
from kquota.audit.spread import MOST_REQUESTS, SeveralBrokers, put_together, run_waiting
from kquota.core.enforcement.kernel import Kernel, Mode, kernel
from kquota.core.enforcement.kind import FETCH, MUTATION, PRODUCE, REQUEST
from kquota.core.enforcement.traffic import NONE
from kquota.core.findings.prediction import LOGGED, UNKNOWN, CounterName, Interval, Prediction, RecordedUnder
from kquota.core.findings.verdicts import Verdict
from kquota.core.quotas.quota import QuotaKey
from kquota.core.simulation.recorded import Charged, Counted, Met, Ran, run_recorded
from kquota.core.simulation.workload import FETCH_API, PRODUCE_API, Brokers, Client, Events, Workload

if TYPE_CHECKING:
    from kquota.audit.part import Part
    from kquota.audit.segment import CounterRef
    from kquota.audit.settings import AuditSettings

KEPT_BYTES: Final = 128 << 20
"""So much of the columns stays in memory; the rest goes to the disk."""
MOST_ROWS: Final = 50_000_000
"""A counter with more requests is not predicted: its rows would take 2 GB."""
MOST_CONNECTIONS: Final = 20_000
MOST_FED: Final = 1_000_000
"""Consumers with more requests are not simulated again with what their throttled producers deliver."""
_TOO_LONG: Final = (
    f"data of throttled producers is taken to come as recorded: the counter has more than {MOST_FED:,} requests"
)
MOST_MUTATIONS: Final = 200_000
"""More requests about topics of one counter are not simulated, which would take seconds."""
PLAIN_ROWS: Final = 25_000
"""Where no more requests are simulated, the plain kernel takes less time than loading the compiled one."""
_KINDS: Final = (PRODUCE, FETCH, REQUEST, MUTATION)
"""The kinds of counters whose rows are kept."""
_DETAILED: Final = (PRODUCE, MUTATION, REQUEST)
"""Those of which the detail matters: the library and the partition, that the request is permissive, or its kind."""
_ROW: Final = np.dtype(
    [("time", "<i8"), ("size", "<i8"), ("connection", "<i8"), ("throttle", "<i4"), ("detail", "<i2")]
)
_JAVA_REQUEST_MS: Final = 30_000
"""`request.timeout.ms`: a request in flight waits for a mute."""
_JAVA_DELIVERY_MS: Final = 120_000
"""`delivery.timeout.ms`: records in the queue of a Java producer."""
BYTES: Final = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE)
_NOT_MODELLED: Final = "the clients of this quota are not modelled"
_MOST_TIME: Final = 2
"""A request takes at most so many times the thread time that a log holds: network threads take half of it."""
_SHARES: Final = "thread time between the handlers' usual one and twice the handlers', as the log lacks network threads"
_CALM: Final = "twice the thread time of the handlers stays below the limit"
_OTHER_API: Final = "other"
"""Requests that are charged for their thread time only."""
_LATENCY_MS: Final = 1
"""From the end of a mute to the charge of the request that waited for it, on a broker that is not busy."""
_RAISED: Final = 1.02
"""A limit of so many times what was delivered under another one is a higher one."""


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

    def rows(self, rows: slice) -> Any:
        """Some of the rows, as an array of _ROW."""
        times, values, connection, throttle, detail = (None if each is None else each[rows] for each in self)
        assert times is not None
        found = np.zeros(len(times), _ROW)
        found["time"], found["size"] = times, values
        found["connection"] = NO_CONNECTION if connection is None else connection
        found["throttle"] = -1 if throttle is None else np.minimum(throttle, (1 << 31) - 1)
        found["detail"] = 0 if detail is None else detail
        return found


class Recorder:
    """Keeps the rows of the counters while these are replayed: of all keys but connections."""

    def __init__(self) -> None:
        self._parts: list[_Kept | int] = []
        """The rows of each part, or where they begin in the file."""
        self._bytes = 0
        """How much of them is in memory."""
        self._file: IO[bytes] | None = None
        self._pieces = Pieces()
        self.feeds: dict[str, Feeds] = {}
        """Of each broker who reads whose data, where the recording shows that."""
        self.links = Links({}, [], [])
        """What concerns the clients of other tasks; known when it is finished."""

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
        self._file.write(kept.rows(slice(None)).data)

    def finish(
        self, refs: Sequence[CounterRef | None], judged: Callable[[int], Judged], settings: AuditSettings
    ) -> list[Predictions]:
        """The predictions of the counters, for each variant of the quotas.

        `refs` are the counters by their numbers, and `judged` gives what the replay found of the counter of a number.
        """
        in_force = InForce(settings)
        alone: dict[int, _Counter] = {}
        timed: dict[int, _Counter] = {}
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
        using = _kernel_for(sum(map(self._pieces.rows, (*alone, *timed))))
        for group in self._groups(alone, timed, settings.kept):
            simulated = self._simulate(group, settings, using)
            found[group[0].judged.ref.variant].update({ref.name: each for ref, each in simulated.items()})
        if self._file is not None:
            self._file.close()
        self._parts = []
        return found

    def _predict(
        self, counter: int, judged: Judged, in_force: InForce, settings: AuditSettings
    ) -> Prediction | _Counter:
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
            return happened(judged, recorded, rows, _kind_of(rows, key))
        if not known and key is not QuotaKey.REQUEST_PERCENTAGE:
            return _unknown(judged, recorded, judged.reason or _NOT_MODELLED)
        if key is QuotaKey.CONTROLLER_MUTATION_RATE and count <= MOST_MUTATIONS:
            return mutators.predicted(self._read(counter), judged, recorded, settings)
        if key not in (*BYTES, QuotaKey.REQUEST_PERCENTAGE):
            return _unknown(judged, recorded, _NOT_MODELLED)
        if not known and not recorded.held_back and judged.peak_rate * _MOST_TIME <= _least_limit(judged):
            calm = self._as_recorded(counter, key, recorded, _CALM)
            return replace(calm, verdict=judged.verdict.value, reason=judged.reason, delivered_per_s=UNKNOWN)
        if self._pieces.lacks_connections(counter):
            return _unknown(judged, recorded, "the recording has no connections")
        connections = np.unique(self._read(counter)["connection"])
        if len(connections) > MOST_CONNECTIONS:
            return _unknown(judged, recorded, f"more than {MOST_CONNECTIONS:,} connections are not simulated")
        return _Counter(counter, judged, recorded, self._pieces.length(counter), connections)

    def _groups(
        self, alone: Mapping[int, _Counter], timed: Mapping[int, _Counter], kept: Together
    ) -> Iterator[list[_Counter]]:
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
        groups: dict[int, list[_Counter]] = {}
        for number, counter in (*timed.items(), *alone.items()):
            groups.setdefault(root(number), []).append(counter)
        yield from groups.values()

    def _simulate(
        self, group: Sequence[_Counter], settings: AuditSettings, using: Kernel
    ) -> dict[CounterRef, Prediction]:
        """Simulates the clients of some counters; of one counter of bytes, or of several that share connections."""
        rows = {counter.number: self._read(counter.number) for counter in group}
        count = sum(map(len, rows.values()))
        if count > MOST_ROWS or sum(len(counter.connections) for counter in group) > MOST_CONNECTIONS:
            reason = "too many requests of one connection's counters to simulate them together"
            return {each.judged.ref: _unknown(each.judged, each.recorded, reason) for each in group}
        models = _models(group, rows)
        found, curves = _simulated(group, models, settings, using)
        uncoupled = self._link(group, models, rows, curves)
        if uncoupled is None:
            return found
        return {
            ref: replace(each, basis=f"{each.basis}; {uncoupled}") if ref.key is QuotaKey.CONSUMER_BYTE_RATE else each
            for ref, each in found.items()
        }

    def _link(
        self, group: Sequence[_Counter], models: Sequence[_Model], rows: Mapping[int, Any], curves: Mapping[int, Curve]
    ) -> str | None:
        """Keeps what the consumers of other tasks, or the producers of other tasks, make of these clients.

        Returns why consumers are not coupled to their producers, where these may matter.
        """
        ref = group[0].judged.ref
        if (alone := _alone(group, models, rows)) is not None:
            self.links.alone.append(alone)
        feeds = self.feeds.get(ref.broker)
        if feeds is None:
            return None
        if feeds.too_many:
            return UNCOUPLED
        feeding = feeds.feeding()
        for connection, curve in curves.items():
            if connection in feeding:
                self.links.curves[ref.variant, ref.broker, connection] = curve
        fed = {
            model.connection: feeders
            for model in models
            if model.api == FETCH_API and (feeders := feeds.feeders(model.connection))
        }
        if fed and sum(map(len, rows.values())) > MOST_FED:
            return _TOO_LONG
        if fed:
            self.links.fed.append(Fed(list(group), dict(rows), fed))
        return None

    def _read(self, counter: int) -> Any:
        pieces = []
        for number, start, count in self._pieces.places(counter):
            kept = self._parts[number]
            if isinstance(kept, _Kept):
                pieces.append(kept.rows(slice(start, start + count)))
                continue
            assert self._file is not None
            self._file.seek(kept + start * _ROW.itemsize)
            pieces.append(np.frombuffer(self._file.read(count * _ROW.itemsize), _ROW))
        return np.concatenate(pieces)

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


def _kind_of(rows: Any, key: QuotaKey) -> str:
    """The kind of the clients that sent these requests, as far as it shows."""
    if key not in BYTES or (rows["connection"] == NO_CONNECTION).any():
        return "unknown"
    clients = _clients(rows, fetches=key is QuotaKey.CONSUMER_BYTE_RATE)
    return _kind([client.guesses[0] for client in clients])


def _clients(rows: Any, *, fetches: bool) -> list[Seen]:
    """The kinds that fit each connection, in the order of their first requests."""
    return [seen for seen, _ in _seen(rows, FETCH_API if fetches else PRODUCE_API)]


def _seen(rows: Any, api: str) -> Iterator[tuple[Seen, Any]]:
    """The kinds that fit each connection with its rows, by their numbers, in the order of their first requests."""
    order = np.argsort(rows["connection"], kind="stable")
    rows = rows[order]
    starts = np.flatnonzero(np.concatenate([[True], np.diff(rows["connection"]) != 0]))
    ends = np.append(starts[1:], len(rows))
    for start, end in sorted(zip(starts.tolist(), ends.tolist(), strict=True), key=lambda each: order[each[0]]):
        mine = rows[start:end]
        senders = mine["detail"].astype(np.int64) if api == PRODUCE_API else np.zeros(len(mine), np.int64)
        requests = Requests(
            mine["time"].astype(np.int64),
            mine["size"].astype(np.int64) if api != _OTHER_API else np.ones(len(mine), np.int64),
            mine["throttle"].astype(np.int64),
            int(senders[-1]) % 4,
            senders % UNANSWERED // 4,
            bool(senders.max() < UNANSWERED),
        )
        yield (consumer(requests) if api == FETCH_API else producer(requests)), order[start:end]


class _Counter(NamedTuple):
    """A counter whose clients are to be simulated."""

    number: int
    judged: Judged
    recorded: RecordedUnder
    recorded_ms: int
    connections: Int64s


class _Model(NamedTuple):
    """The requests of one connection to one counter of bytes, or those without bytes."""

    seen: Seen
    api: str
    charged: Charged
    nanos: Int64s
    """Thread time of each recorded request."""
    exempt: bool
    """Whether its thread time is not charged."""
    connection: int


def _models(group: Sequence[_Counter], rows: Mapping[int, Any]) -> list[_Model]:
    """The clients of the counters in a group. Counters of thread time charge the requests that others have bytes of."""
    timed = [each for each in group if each.judged.ref.key is QuotaKey.REQUEST_PERCENTAGE]
    left = {each.number: np.ones(len(rows[each.number]), bool) for each in timed}
    models = []
    for place, counter in enumerate(group):
        if counter in timed:
            continue
        mine = rows[counter.number]
        kind = FETCH if counter.judged.ref.key is QuotaKey.CONSUMER_BYTE_RATE else PRODUCE
        nanos, owner = np.zeros(len(mine), np.int64), np.full(len(mine), NONE)
        for other in timed:
            theirs = rows[other.number]
            _, here, there = np.intersect1d(
                _requests(mine, np.full(len(mine), kind)),
                _requests(theirs, theirs["detail"]),
                assume_unique=True,
                return_indices=True,
            )
            nanos[here], owner[here] = theirs["size"][there], group.index(other)
            left[other.number][there] = False
        api = FETCH_API if counter.judged.ref.key is QuotaKey.CONSUMER_BYTE_RATE else PRODUCE_API
        for seen, its in _seen(mine, api):
            of_time = int(owner[its].max())
            # A produce request without an answer (acks=0) has no thread time in the log: brokers do not charge it.
            models.append(
                _Model(seen, api, Charged(place, of_time), nanos[its], of_time == NONE, int(mine["connection"][its[0]]))
            )
    for counter in timed:
        mine = rows[counter.number][left[counter.number]]
        if len(mine):
            for seen, its in _seen(mine, _OTHER_API):
                charged = Charged(NONE, group.index(counter))
                nanos = mine["size"][its].astype(np.int64)
                models.append(_Model(seen, _OTHER_API, charged, nanos, False, int(mine["connection"][its[0]])))
    return models


def _requests(rows: Any, kinds: Any) -> Any:
    """A number for each request, the same in both of its counters: by connection, time, kind, and order at one time."""
    order = np.lexsort((kinds, rows["time"], rows["connection"]))
    same = np.logical_and.reduce([np.diff(each[order]) == 0 for each in (kinds, rows["time"], rows["connection"])])
    starts = np.where(np.concatenate([[False], same]), 0, np.arange(len(rows)))
    number = np.empty(len(rows), np.int64)
    number[order] = np.arange(len(rows)) - np.maximum.accumulate(starts)
    return keys_of(number * 8 + kinds, rows["time"], rows["connection"])


def _simulated(
    group: Sequence[_Counter], models: Sequence[_Model], settings: AuditSettings, using: Kernel
) -> tuple[dict[CounterRef, Prediction], dict[int, Curve]]:
    """Runs the clients once for each kind that fits and each thread time: bounds of what those of each counter meet.

    Also returns when the producers among them come to deliver, by connection, as far as it is later than recorded.
    """
    runs, plain = _runs(group, models, settings, using)
    found = {}
    for place, counter in enumerate(group):
        mine = [model for model in models if place in model.charged]
        found[counter.judged.ref] = _prediction(counter, mine, [run.met[place] for run in runs], plain.met[place])
    return found, _curves(models, plain.charged_ms)


def _runs(
    group: Sequence[_Counter], models: Sequence[_Model], settings: AuditSettings, using: Kernel
) -> tuple[list[Ran], Ran]:
    """The runs, the most probable one first; and the first one in which nobody gives up a connection."""
    limits = {number for number, each in enumerate(group) if each.judged.verdict is Verdict.UNDETERMINED}
    shares = (_Share.LEAST, _Share.MOST) if limits else (_Share.LOGGED,)
    runs: list[Ran] = []
    plain: Ran | None = None
    for number in range(max(len(model.seen.guesses) for model in models)):
        guesses = [model.seen.guesses[min(number, len(model.seen.guesses) - 1)] for model in models]
        for share in shares:
            ran = _run(group, models, guesses, share, settings, using)
            plain = plain or ran
            again = _resent(guesses, ran.charged_ms)
            if again is not None:
                runs.append(_run(group, models, again, share, settings, using))
            runs.append(ran)
    assert plain is not None
    return runs, plain


def _resent(guesses: Sequence[Guess], charged_ms: Sequence[int]) -> list[Guess] | None:
    """The same clients, where those that wait too long give up their connections; None where nobody does."""
    edges = np.cumsum([0, *(len(guess.times) for guess in guesses)])
    found = [
        resent(guess, np.asarray(charged_ms[start:end], np.int64))
        for guess, start, end in zip(guesses, edges, edges[1:], strict=False)
    ]
    return [again or guess for again, guess in zip(found, guesses, strict=True)] if any(found) else None


def _curves(models: Sequence[_Model], charged_ms: Sequence[int]) -> dict[int, Curve]:
    """When producers deliver in a run of the most probable kinds, where that is later than recorded."""
    curves = {}
    end = 0
    for model in models:
        times = model.seen.guesses[0].times
        start, end = end, end + len(times)
        if model.api != PRODUCE_API:
            continue
        charged = np.asarray(charged_ms[start:end], np.int64)
        charged = np.where(charged < 0, LOST, charged)
        if (charged > times + _LATENCY_MS).any():
            curves[model.connection] = Curve(times, charged)
    return curves


class Fed(NamedTuple):
    """Counters of consumers that read what others produce as it comes."""

    group: list[_Counter]
    rows: dict[int, Any]
    feeders: dict[int, list[Feeder]]
    """By the consumer's connection."""


class Alone(NamedTuple):
    """A counter of one producer's connection, which may be a client's that has others to other brokers."""

    counter: _Counter
    rows: Any


class Links(NamedTuple):
    """What the counters of one task need of those of another one."""

    curves: dict[Place, Curve]
    fed: list[Fed]
    alone: list[Alone]


def _alone(group: Sequence[_Counter], models: Sequence[_Model], rows: Mapping[int, Any]) -> Alone | None:
    """The counter, where another broker's counter may tell more of its only client; else None."""
    (counter, *others), (model, *more) = group, models
    if others or more or model.api != PRODUCE_API or len(rows[counter.number]) > MOST_REQUESTS:
        return None
    if not model.seen.held_back and all(guess.kind == PACED for guess in model.seen.guesses):
        return None  # it keeps its times at this broker, whatever it does at others
    return Alone(counter, rows[counter.number])


def _spread(
    every: Sequence[Alone], curves: dict[Place, Curve], settings: AuditSettings
) -> dict[CounterRef, Prediction]:
    """The predictions of clients that wait at several brokers; puts when they deliver into `curves`."""
    clients: dict[tuple[int, str], list[Alone]] = {}
    for alone in every:
        ref = alone.counter.judged.ref
        clients.setdefault((ref.variant, ref.sensor), []).append(alone)
    found: dict[CounterRef, Prediction] = {}
    for mine in clients.values():
        mine.sort(key=lambda alone: alone.counter.judged.ref.broker)
        if len(mine) > 1:
            found |= _waiting(mine, curves, settings)
    return found


def _waiting(
    mine: Sequence[Alone], curves: dict[Place, Curve], settings: AuditSettings
) -> dict[CounterRef, Prediction]:
    """The predictions of one client with these counters, where it may wait for its answers."""
    together = put_together([alone.rows for alone in mine])
    kinds = list(dict.fromkeys(guess.kind for guess in together.seen.guesses))
    models = [_models([alone.counter], {alone.counter.number: alone.rows})[0] for alone in mine]
    using = kernel(Mode.PLAIN if len(together.times) <= PLAIN_ROWS else Mode.AUTO)
    # Who sends nothing to one broker may wait at another one: that is no rest.
    drained = together.seen.drained and all(model.seen.drained for model in models)
    if kinds == [PACED]:
        return {}
    runs: dict[str, list[list[Met]]] = {kind: [] for kind in kinds}
    """By kind, what each counter meets in each run."""
    for guess in together.seen.guesses:
        if guess.kind == SYNCHRONOUS:
            counters = [
                Counted(alone.counter.judged.limits, int(times[0]), int(times[0]) + alone.counter.recorded_ms)
                for alone, times in ((alone, alone.rows["time"]) for alone in mine)
            ]
            met, charged = run_waiting(
                together, guess, counters, windows=settings.windows, generation=settings.generation, using=using
            )
            if guess is together.seen.guesses[0]:
                _deliver(mine, models, together, charged, curves)
            runs[SYNCHRONOUS].append(met)
    plain: list[Met] | None = None
    for kind in kinds:
        if kind != SYNCHRONOUS:
            each = [
                _runs([alone.counter], [_of_kind(model, kind)], settings, using)
                for alone, model in zip(mine, models, strict=True)
            ]
            longest = max(len(ran) for ran, _ in each)
            runs[kind] = [[ran[min(number, len(ran) - 1)].met[0] for ran, _ in each] for number in range(longest)]
            if kind == kinds[0]:
                plain = [ran.met[0] for _, ran in each]
    found = {}
    for place, (alone, model) in enumerate(zip(mine, models, strict=True)):
        own = model.seen.guesses[0]
        guesses = [
            own._replace(kind=guess.kind, why=f"{guess.why}, at {len(mine)} brokers") for guess in together.seen.guesses
        ]
        seen = together.seen._replace(guesses=guesses, drained=drained)
        met = [run[place] for kind in kinds for run in runs[kind]]
        found[alone.counter.judged.ref] = _prediction(
            alone.counter, [model._replace(seen=seen)], met, met[0] if plain is None else plain[place]
        )
    return found


def _of_kind(model: _Model, kind: str) -> _Model:
    """The client of one broker as one of a kind that its requests to all brokers show."""
    guesses = [guess for guess in model.seen.guesses if guess.kind == kind]
    if not guesses:
        (paced,) = [guess for guess in model.seen.guesses if guess.kind == PACED][:1] or model.seen.guesses[:1]
        thinks = np.zeros(len(paced.times), np.int64)
        thinks[0] = -1
        guesses = [paced._replace(kind=kind, thinks=thinks) if kind == SATURATING else paced]
    return model._replace(seen=model.seen._replace(guesses=guesses))


def _deliver(
    mine: Sequence[Alone],
    models: Sequence[_Model],
    together: SeveralBrokers,
    charged: Int64s,
    curves: dict[Place, Curve],
) -> None:
    """Keeps when the client delivers at each broker, where consumers read it there."""
    for place, (alone, model) in enumerate(zip(mine, models, strict=True)):
        ref = alone.counter.judged.ref
        name = ref.variant, ref.broker, model.connection
        if name in curves:
            rows = together.brokers == place
            late = np.where(charged[rows] < 0, LOST, charged[rows])
            curves[name] = Curve(together.times[rows], late)


def _kernel_for(rows: int) -> Kernel:
    """The kernel that simulates so many requests soonest."""
    return kernel(Mode.PLAIN if rows <= PLAIN_ROWS else Mode.AUTO)


def linked(links: Sequence[Links], settings: AuditSettings) -> dict[CounterRef, Prediction]:
    """The predictions of consumers whose producers are throttled: with what these deliver."""
    curves = {place: curve for each in links for place, curve in each.curves.items()}
    found = _spread([alone for each in links for alone in each.alone], curves, settings)
    every = [fed for each in links for fed in each.fed]
    using = _kernel_for(sum(len(rows) for fed in every for rows in fed.rows.values()))
    for fed in every:
        ref = fed.group[0].judged.ref
        late = {
            connection: held
            for connection, feeders in fed.feeders.items()
            if (held := throttled(feeders, curves, ref.variant, ref.broker))
        }
        if late:
            models = [_fed(model, late.get(model.connection, ())) for model in _models(fed.group, fed.rows)]
            found |= _simulated(fed.group, models, settings, using)[0]
    return found


def _fed(model: _Model, late: Sequence[tuple[float, Curve]]) -> _Model:
    """A consumer for whom the data of some producers comes later."""
    if model.api != FETCH_API or not late:
        return model
    guesses = []
    for guess in model.seen.guesses:
        if (guess.thinks >= 0).any():
            guesses.append(guess)  # it asks when it has processed what it got
            continue
        times, sizes = arrivals(guess.times, guess.sizes, late)
        if len(times):
            why = f"{guess.why}, when its throttled producers deliver it"
            thinks, partitions = np.full(len(times), -1, np.int64), np.zeros(len(times), np.int64)
            guesses.append(guess._replace(times=times, sizes=sizes, thinks=thinks, partitions=partitions, why=why))
    return model._replace(seen=model.seen._replace(guesses=guesses or model.seen.guesses))


def _prediction(counter: _Counter, models: Sequence[_Model], runs: Sequence[Met], plain: Met) -> Prediction:
    """The prediction of one counter, from the runs of its clients; in the `plain` one nobody gives up a connection."""
    judged, recorded, recorded_ms = counter.judged, counter.recorded, counter.recorded_ms
    key = judged.ref.key
    seconds, scale = max(recorded_ms, 1000) / 1000, scale_of(key)
    timed, fetches = key is QuotaKey.REQUEST_PERCENTAGE, key is QuotaKey.CONSUMER_BYTE_RATE
    guesses = [model.seen.guesses[0] for model in models]
    units = sum(int(model.nanos.sum()) for model in models) if timed else sum(each.units for each in guesses)
    wanted = units / scale / seconds
    # The throttle times of a request may be of its bytes: they show no queue for thread time that drained.
    held_back, drained = recorded.held_back, not timed and all(model.seen.drained for model in models)
    verdict, reason = judged.verdict, judged.reason
    if held_back and verdict is not Verdict.UNDETERMINED:
        verdict = _verdict_of([met.throttled > 0 for met in runs], drained=drained)
        reason = f"wanted at least {wanted:,.{3 if timed else 0}f} a second: a quota held it back while it was recorded"
    open_ended = held_back and not drained
    limit = judged.limits[-1][1] or 0.0
    raised = open_ended and limit > _RAISED * (100 * wanted if timed else wanted)
    kind, times_out = _kind(guesses, timed=timed), not timed and _times_out(guesses, plain)
    low = 0.75 if times_out else 1.0
    prediction = Prediction(
        client_kind=kind,
        basis="; ".join(dict.fromkeys(guess.why for guess in guesses[:100])),
        verdict=verdict.value,
        # A consumer may stop with its recording, or go on until it has all.
        throttle_time_ms=_total(runs, low, consumers=len(models) if fetches else 0),
        throttle_time_max_ms=_interval([met.throttle_max_ms for met in runs]),
        muted_share=_interval([min(met.muted_ms / (seconds * 1000), 1.0) for met in runs]),
        delivered_per_s=_interval([met.delivered / scale / seconds for met in runs]),
        wanted_per_s=Interval.at_least(wanted) if open_ended else Interval.exactly(wanted),
        done_ms=_done(runs),
        left_units=_interval([met.left / scale for met in runs]),
        throttled_requests=_interval([met.throttled for met in runs]),
        recorded_ms=recorded_ms,
        times_out=times_out,
        recorded_under=recorded,
    )
    if times_out and prediction.throttle_time_max_ms.high is not None:
        longest = prediction.throttle_time_max_ms
        resent_ms = 1000 * min(MESSAGE_BYTES, plain.left) / max(limit, 1.0)
        high = max(longest.high or 0.0, (longest.estimate or 0.0) + resent_ms)
        prediction = replace(prediction, throttle_time_max_ms=replace(longest, high=high))
    if judged.verdict is Verdict.UNDETERMINED:
        return _without_estimates(prediction, reason, open_ended=raised)
    if verdict is Verdict.UNDETERMINED:
        return prediction.undetermined(reason or "")
    return prediction.open_ended() if raised and verdict is Verdict.THROTTLED else prediction


def _without_estimates(prediction: Prediction, reason: str | None, *, open_ended: bool) -> Prediction:
    """The prediction of a counter of thread time of which the log holds a part: bounds, and nothing between them."""

    def bounds(interval: Interval) -> Interval:
        return Interval(interval.low, None, None if open_ended else interval.high)

    return replace(
        prediction,
        basis=f"{_SHARES}; {prediction.basis}",
        throttle_time_ms=bounds(prediction.throttle_time_ms),
        throttle_time_max_ms=bounds(prediction.throttle_time_max_ms),
        muted_share=replace(bounds(prediction.muted_share), high=1.0 if open_ended else prediction.muted_share.high),
        delivered_per_s=UNKNOWN,
        wanted_per_s=Interval.at_least(prediction.wanted_per_s.low) if prediction.wanted_per_s.low else UNKNOWN,
        done_ms=bounds(prediction.done_ms),
        left_units=UNKNOWN,
        throttled_requests=bounds(prediction.throttled_requests),
        reason=reason,
    )


def _verdict_of(throttled: Sequence[bool], *, drained: bool) -> Verdict:
    """The verdict on clients that were held back, from the runs of all kinds that fit.

    Where no run is throttled, they are free of throttling only if the recording shows all that they wanted.
    """
    if all(throttled):
        return Verdict.THROTTLED
    return Verdict.NOT_THROTTLED if drained and not any(throttled) else Verdict.UNDETERMINED


class _Share(enum.Enum):
    """How much thread time a simulated request has, of what the log holds of it."""

    LOGGED = "logged"
    LEAST = "least"
    """The handlers' time, and of slow requests the usual one: a machine is not always as busy."""
    MOST = "most"
    """The network threads take as long as the handlers, which they hardly do."""

    def of(self, nanos: Int64s) -> Int64s:
        """The thread time of the requests of one client."""
        if self is _Share.LEAST:
            return np.minimum(nanos, int(np.median(nanos)))
        return nanos if self is _Share.LOGGED else (nanos * _MOST_TIME).astype(np.int64)


def _nanos(model: _Model, guess: Guess, share: _Share) -> Int64s:
    """The thread time of the rows of a guess."""
    nanos = share.of(model.nanos)
    return nanos if len(nanos) == len(guess.times) else np.full(len(guess.times), int(nanos.mean()), np.int64)


def _run(
    group: Sequence[_Counter],
    models: Sequence[_Model],
    guesses: Sequence[Guess],
    share: _Share,
    settings: AuditSettings,
    using: Kernel,
) -> Ran:
    """One run of clients of these kinds, which is counted for as long as the recording: after the last data as well."""
    edges = np.cumsum([0, *(len(guess.times) for guess in guesses)])
    times, sizes, thinks, partitions = (
        np.concatenate([getattr(guess, name) for guess in guesses])
        for name in ("times", "sizes", "thinks", "partitions")
    )
    nanos = np.concatenate([_nanos(model, guess, share) for model, guess in zip(models, guesses, strict=True)])
    # A request is charged _LATENCY_MS after it may go, also when it has waited for the end of a mute.
    times, thinks = times - _LATENCY_MS, np.where(thinks < 0, thinks, np.maximum(thinks - _LATENCY_MS, 0))
    first = int(times.min())
    clients = tuple(
        Client(
            str(number),
            model.api,
            size=max(guess.first_bytes, 1),
            stop_ms=max(int(guess.times[-1]) - first, 0) + 1,
            latency_ms=_LATENCY_MS,
            round_trip_ms=0,
            exempt=model.exempt,
            max_bytes=max(guess.max_bytes, 1),
            max_wait_ms=1 << 40,
            given=(int(edges[number]), int(edges[number + 1])),
            merge=guess.merge,
            merge_saves=guess.merge_saves,
            batch=guess.batch,
            overhead=guess.overhead,
        )
        for number, (model, guess) in enumerate(zip(models, guesses, strict=True))
    )
    counters = []
    for place, counter in enumerate(group):
        begin = min(int(times[edges[number]]) for number, model in enumerate(models) if place in model.charged)
        counters.append(Counted(counter.judged.limits, begin, begin + counter.recorded_ms + _LATENCY_MS + 1))
    workload = Workload(
        max(counter.end_ms for counter in counters) - first,
        clients,
        Brokers(windows=settings.windows),
        origin_ms=first,
        events=Events(times, sizes, nanos, np.arange(len(times)), thinks, partitions),
    )
    return run_recorded(
        workload, counters, [model.charged for model in models], generation=settings.generation, using=using
    )


def _least_limit(judged: Judged) -> float:
    """The lowest limit that the counter ever had."""
    return min((limit for _, limit in judged.limits if limit is not None), default=0.0)


def _kind(guesses: Sequence[Guess], *, timed: bool = False) -> str:
    """The kind behind four fifths of the units, or `mixed`; of thread time requests count."""
    units: dict[str, int] = {}
    for guess in guesses:
        units[guess.kind] = units.get(guess.kind, 0) + (len(guess.sizes) if timed else int(guess.sizes.sum()))
    kind = max(units, key=lambda name: units[name])
    return kind if 5 * units[kind] >= 4 * sum(units.values()) else "mixed"


def _times_out(guesses: Sequence[Guess], met: Met) -> bool:
    """Whether a producer waits longer than its library does."""
    for guess, waited in zip(guesses, met.waited_ms, strict=True):
        if guess.kind == CONSUMER:
            continue
        if guess.merge:
            if met.throttle_max_ms > _JAVA_REQUEST_MS or waited > _JAVA_DELIVERY_MS:
                return True
        elif guess.kind == PACED and waited > SOCKET_MS:
            return True
    return False


def _interval(values: Sequence[float], low: float = 1.0, others: Sequence[float] = ()) -> Interval:
    """From the least to the most of several runs; the first is the most probable."""
    return Interval(low * min(*values, *others, values[0]), values[0], max(values))


def _total(runs: Sequence[Met], low: float, *, consumers: int) -> Interval:
    """The throttle time until everything is delivered.

    A consumer may stop with its recording, or go on until it has all. Consumers of one counter take turns, and chance
    decides which of them is served: each may be muted for nearly all of the time.
    """
    found = _interval([met.throttle_ms for met in runs], low, [met.early_ms for met in runs] if consumers else ())
    if consumers < 2 or not found.high:
        return found
    return replace(found, high=max(found.high, *(float(met.at_most_ms) for met in runs)))


def _done(runs: Sequence[Met]) -> Interval:
    times = [met.done_ms for met in runs]
    known = [time for time in times if time is not None]
    return Interval(min(known) if known else None, times[0], max(known) if len(known) == len(times) else None)
