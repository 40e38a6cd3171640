"""Predictions: the recorded clients of each counter that would be throttled, run through the simulator.

While the reduce side replays the events, their rows are kept beside it: some 30 bytes a request, in memory up to
KEPT_BYTES and then on the disk. At the end the rows of one counter at a time are read back: those of counters that the
replay throttles, or that the brokers held back. They become clients, of each kind that fits, and the simulator runs
them. For all other counters the clients meet what was recorded.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kquota.audit.batch import NO_CONNECTION
from kquota.audit.clients import CONSUMER, PACED, Guess, Requests, Seen, consumer, producer
from kquota.core.enforcement.kernel import Kernel, Mode, kernel
from kquota.core.enforcement.kind import FETCH, PRODUCE
from kquota.core.findings.prediction import UNKNOWN, Interval, Prediction, RecordedUnder, Source
from kquota.core.findings.verdicts import Verdict
from kquota.core.quotas.quota import QuotaKey
from kquota.core.simulation.recorded import Met, run_recorded
from kquota.core.simulation.workload import FETCH_API, PRODUCE_API, Brokers, Client, Events, Workload

if TYPE_CHECKING:
    from kquota.audit.replay import Part
    from kquota.audit.segment import CounterRef
    from kquota.audit.settings import AuditSettings

KEPT_BYTES: Final = 128 << 20
"""So much of the rows stays in memory; the rest goes to the disk."""
MOST_ROWS: Final = 50_000_000
"""A counter with more requests is not predicted: its rows would take 2 GB."""
MOST_CONNECTIONS: Final = 20_000
PLAIN_ROWS: Final = 100_000
"""Up to so many requests the plain kernel takes less time than loading the compiled one, of which it is the same."""
_DISPATCH: Final = {PRODUCE: PRODUCE_API, FETCH: FETCH_API}
_ROW: Final = np.dtype(
    [("time", "<i8"), ("size", "<i8"), ("connection", "<i8"), ("throttle", "<i4"), ("detail", "<i2")]
)
_JAVA_REQUEST_MS: Final = 30_000
"""`request.timeout.ms`: a request in flight waits for a mute."""
_JAVA_DELIVERY_MS: Final = 120_000
"""`delivery.timeout.ms`: records in the queue of a Java producer."""
_SOCKET_MS: Final = 60_000
"""librdkafka's `socket.timeout.ms`: requests in its socket."""
_LATENCY_MS: Final = 1
"""From the end of a mute to the charge of the request that waited for it, on a broker that is not busy."""
_RAISED: Final = 1.02
"""A limit of so many times what was delivered under another one is a higher one."""
_RESENT_BYTES: Final = 1_000_000
"""`message.max.bytes`: up to so much does librdkafka send again at once."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What the replay found of one counter."""

    ref: CounterRef
    verdict: Verdict
    reason: str | None
    limits: Sequence[tuple[int, float | None]]
    """(since when, limit), epoch ms."""
    held_back: bool
    """Whether the recording has throttle times of its requests."""
    clients: Sequence[tuple[str, str]] = ()


class Recorder:
    """Keeps the rows of the counters for bytes while these are replayed."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(KEPT_BYTES, prefix="kquota-audit-")  # noqa: SIM115 - kept open
        self._pieces: dict[int, list[tuple[int, int]]] = {}
        """Counter → (first row in the file, rows)."""
        self._rows = 0
        self._firsts: dict[int, int] = {}
        self._lasts: dict[int, int] = {}
        self._sums: dict[int, int] = {}
        self._simulated = 0
        """How many requests were simulated."""

    def part(self, part: Part) -> None:
        """Keeps the rows of a part."""
        counts = np.diff(part.offsets)
        places = np.flatnonzero((counts > 0) & np.isin(part.kinds, list(_DISPATCH)))
        if not len(places):
            return
        rows = np.zeros(len(part.times), _ROW)
        rows["time"], rows["size"] = part.times, part.values
        rows["connection"] = NO_CONNECTION if part.connection is None else part.connection
        rows["throttle"] = -1 if part.throttle_ms is None else np.minimum(part.throttle_ms, (1 << 31) - 1)
        if part.detail is not None:
            produced = np.repeat(part.kinds == PRODUCE, counts)
            rows["detail"] = np.where(produced & (part.detail >= 0) & (part.detail < 128), part.detail, 0)
        self._file.seek(0, 2)
        self._file.write(rows.tobytes())
        sums = np.add.reduceat(np.append(part.values, 0), part.offsets[:-1])
        for place in places.tolist():
            counter, start, end = int(part.counters[place]), int(part.offsets[place]), int(part.offsets[place + 1])
            self._pieces.setdefault(counter, []).append((self._rows + start, end - start))
            self._firsts.setdefault(counter, int(part.times[start]))
            self._lasts[counter] = int(part.times[end - 1])
            self._sums[counter] = self._sums.get(counter, 0) + int(sums[place])
        self._rows += len(rows)

    def finish(self, judged: Mapping[int, Judged], settings: AuditSettings) -> dict[CounterRef, Prediction]:
        """The predictions of the counters, by number."""
        predictions = {}
        for counter, found in judged.items():
            predictions[found.ref] = self._predict(counter, found, settings)
        self._file.close()
        return predictions

    def _predict(self, counter: int, judged: Judged, settings: AuditSettings) -> Prediction:
        recorded = _recorded_under(judged, settings)
        if counter not in self._pieces or judged.verdict is Verdict.UNDETERMINED:
            reason = judged.reason or "the clients of this quota are not modelled"
            return _unknown(judged, recorded, reason)
        seconds = max(self._lasts[counter] - self._firsts[counter], 1000) / 1000
        if judged.verdict is Verdict.NOT_THROTTLED and not recorded.held_back:
            return self._as_recorded(counter, recorded, seconds)
        count = sum(rows for _, rows in self._pieces[counter])
        if count > MOST_ROWS:
            return _unknown(judged, recorded, f"more than {MOST_ROWS:,} requests of one counter are not simulated")
        rows = self._read(counter)
        if (rows["connection"] == NO_CONNECTION).any():
            return _unknown(judged, recorded, "the recording has no connections")
        clients = _clients(rows, fetches=judged.ref.key is QuotaKey.CONSUMER_BYTE_RATE)
        if len(clients) > MOST_CONNECTIONS:
            return _unknown(judged, recorded, f"more than {MOST_CONNECTIONS:,} connections are not simulated")
        self._simulated += count
        using = kernel(Mode.PLAIN if self._simulated <= PLAIN_ROWS else Mode.AUTO)
        length = self._lasts[counter] - self._firsts[counter]
        return _simulated(clients, judged, recorded, settings, length, using)

    def _read(self, counter: int) -> Any:
        pieces = []
        for start, count in self._pieces[counter]:
            self._file.seek(start * _ROW.itemsize)
            pieces.append(np.frombuffer(self._file.read(count * _ROW.itemsize), _ROW))
        return np.concatenate(pieces)

    def _as_recorded(self, counter: int, recorded: RecordedUnder, seconds: float) -> Prediction:
        """The clients of a counter that delays nobody."""
        rate = Interval.exactly(self._sums[counter] / seconds)
        nothing = Interval.exactly(0)
        return Prediction(
            client_kind="as recorded",
            basis="no request is throttled, so that all come as they were recorded",
            verdict=Verdict.NOT_THROTTLED.value,
            throttle_time_ms=nothing,
            throttle_time_max_ms=nothing,
            muted_share=nothing,
            delivered_per_s=rate,
            wanted_per_s=rate,
            done_ms=Interval.exactly(self._lasts[counter] - self._firsts[counter]),
            left_units=nothing,
            throttled_requests=nothing,
            recorded_ms=self._lasts[counter] - self._firsts[counter],
            recorded_under=recorded,
        )


def _recorded_under(judged: Judged, settings: AuditSettings) -> RecordedUnder:
    """What held the clients of a counter back: as the user says, and as the throttle times in the recording show."""
    named = settings.recorded_under
    if named is None:
        return RecordedUnder(Source.LOG if judged.held_back else Source.UNKNOWN, None, judged.held_back)
    if not any(named.snapshots):
        return RecordedUnder(Source.NONE, None, judged.held_back)
    from kquota.core.resolve.resolver import Resolver

    resolver = Resolver.of(named.latest, judged.ref.key)
    limits = {resolver.resolve(*client).limit for client in judged.clients}
    limit = limits.pop() if len(limits) == 1 else None
    return RecordedUnder(Source.FILE, None if limit is None else float(limit), judged.held_back)


def _unknown(judged: Judged, recorded: RecordedUnder, reason: str) -> Prediction:
    """The prediction of clients of which no model can be made; the verdict of the replay stands where it is known."""
    verdict = judged.verdict
    if verdict is Verdict.NOT_THROTTLED and recorded.held_back:
        verdict = Verdict.UNDETERMINED
    undetermined = verdict is Verdict.UNDETERMINED
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
        reason=reason if undetermined else None,
        recorded_under=recorded,
    )


def _clients(rows: Any, *, fetches: bool) -> list[Seen]:
    """The kinds that fit each connection, in the order of their first requests."""
    order = np.argsort(rows["connection"], kind="stable")
    rows = rows[order]
    starts = np.flatnonzero(np.concatenate([[True], np.diff(rows["connection"]) != 0]))
    ends = np.append(starts[1:], len(rows))
    seen = []
    for start, end in sorted(zip(starts.tolist(), ends.tolist(), strict=True), key=lambda each: order[each[0]]):
        mine = rows[start:end]
        requests = Requests(
            mine["time"].astype(np.int64),
            mine["size"].astype(np.int64),
            mine["throttle"].astype(np.int64),
            int(mine["detail"].max()) % 4,
            max(int(mine["detail"].max()) // 4, 1),
        )
        seen.append(consumer(requests) if fetches else producer(requests))
    return seen


def _simulated(
    clients: Sequence[Seen],
    judged: Judged,
    recorded: RecordedUnder,
    settings: AuditSettings,
    recorded_ms: int,
    using: Kernel,
) -> Prediction:
    """Runs the clients once for each kind that fits, and bounds what they meet."""
    seconds = max(recorded_ms, 1000) / 1000
    fetches = judged.ref.key is QuotaKey.CONSUMER_BYTE_RATE
    runs = []
    for number in range(max(len(client.guesses) for client in clients)):
        guesses = [client.guesses[min(number, len(client.guesses) - 1)] for client in clients]
        runs.append(_run(guesses, judged, settings, using))
    likely = runs[0]
    guesses = [client.guesses[0] for client in clients]
    wanted = sum(int(guess.sizes.sum()) for guess in guesses) / seconds
    held_back, drained = recorded.held_back, all(client.drained for client in clients)
    throttled = [met.throttled > 0 for met in runs]
    verdict, reason = Verdict.THROTTLED if all(throttled) else Verdict.NOT_THROTTLED, None
    if not held_back:
        verdict = judged.verdict
    elif (any(throttled) and not all(throttled)) or (not any(throttled) and not drained):
        verdict = Verdict.UNDETERMINED
        reason = f"wanted at least {wanted:,.0f} a second: a quota held it back while it was recorded"
    open_ended = held_back and not drained
    limit = judged.limits[-1][1] or 0.0
    raised = open_ended and limit > _RAISED * wanted
    kind, times_out = _kind(guesses), _times_out(guesses, likely)
    low = 0.75 if times_out else 1.0
    prediction = Prediction(
        client_kind=kind,
        basis="; ".join(dict.fromkeys(guess.why for guess in guesses[:100])),
        verdict=verdict.value,
        # A consumer may stop with its recording, or go on until it has all.
        throttle_time_ms=_interval(
            [met.throttle_ms for met in runs], low, [met.early_ms for met in runs] if fetches else ()
        ),
        throttle_time_max_ms=_interval([met.throttle_max_ms for met in runs]),
        muted_share=_interval([min(met.muted_ms / (seconds * 1000), 1.0) for met in runs]),
        delivered_per_s=_interval([met.delivered / seconds for met in runs]),
        wanted_per_s=Interval.at_least(wanted) if open_ended else Interval.exactly(wanted),
        done_ms=_done(runs),
        left_units=_interval([met.left for met in runs]),
        throttled_requests=_interval([met.throttled for met in runs]),
        recorded_ms=recorded_ms,
        times_out=times_out,
        reason=reason,
        recorded_under=recorded,
    )
    if times_out and prediction.throttle_time_max_ms.high is not None:
        longest = prediction.throttle_time_max_ms
        resent_ms = 1000 * min(_RESENT_BYTES, likely.left) / max(limit, 1.0)
        high = max(longest.high or 0.0, (longest.estimate or 0.0) + resent_ms)
        prediction = replace(prediction, throttle_time_max_ms=replace(longest, high=high))
    if verdict is Verdict.UNDETERMINED:
        return _censored(prediction)
    return _open_ended(prediction) if raised else prediction


def _open_ended(prediction: Prediction) -> Prediction:
    """Of clients that are throttled and may want more than is known: nothing bounds what they meet."""

    def unbounded(interval: Interval) -> Interval:
        return replace(interval, high=None)

    return replace(
        prediction,
        throttle_time_ms=unbounded(prediction.throttle_time_ms),
        throttle_time_max_ms=unbounded(prediction.throttle_time_max_ms),
        muted_share=replace(prediction.muted_share, high=1.0),
        delivered_per_s=unbounded(prediction.delivered_per_s),
        done_ms=unbounded(prediction.done_ms),
        left_units=unbounded(prediction.left_units),
        throttled_requests=unbounded(prediction.throttled_requests),
    )


def _censored(prediction: Prediction) -> Prediction:
    """Of clients that may want more than is known, the least."""

    def least(interval: Interval) -> Interval:
        return Interval(interval.low, None, None)

    return replace(
        prediction,
        throttle_time_ms=Interval.at_least(0),
        throttle_time_max_ms=Interval.at_least(0),
        muted_share=Interval(0, None, 1),
        delivered_per_s=least(prediction.delivered_per_s),
        wanted_per_s=least(prediction.wanted_per_s),
        done_ms=UNKNOWN,
        left_units=Interval.at_least(0),
        throttled_requests=Interval.at_least(0),
    )


def _run(guesses: Sequence[Guess], judged: Judged, settings: AuditSettings, using: Kernel) -> Met:
    """One run of clients of these kinds."""
    api = FETCH_API if judged.ref.key is QuotaKey.CONSUMER_BYTE_RATE else PRODUCE_API
    edges = np.cumsum([0, *(len(guess.times) for guess in guesses)])
    times, sizes, thinks = (
        np.concatenate([getattr(guess, name) for guess in guesses]) for name in ("times", "sizes", "thinks")
    )
    # A request is charged _LATENCY_MS after it may go, also when it has waited for the end of a mute.
    times, thinks = times - _LATENCY_MS, np.where(thinks < 0, thinks, np.maximum(thinks - _LATENCY_MS, 0))
    first, last = int(times.min()), int(times.max())
    clients = tuple(
        Client(
            str(number),
            api,
            size=max(guess.first_bytes, 1),
            stop_ms=max(int(guess.times[-1]) - first, 0) + 1,
            latency_ms=_LATENCY_MS,
            round_trip_ms=0,
            max_bytes=max(guess.max_bytes, 1),
            max_wait_ms=1 << 40,
            given=(int(edges[number]), int(edges[number + 1])),
            merge=guess.merge,
            merge_saves=guess.merge_saves,
        )
        for number, guess in enumerate(guesses)
    )
    workload = Workload(
        max(last - first, 0) + 1,
        clients,
        Brokers(windows=settings.windows),
        origin_ms=first,
        events=Events(times, sizes, np.zeros(len(times), np.int64), np.arange(len(times)), thinks),
    )
    return run_recorded(workload, judged.limits, generation=settings.generation, using=using)


def _kind(guesses: Sequence[Guess]) -> str:
    """The kind behind four fifths of the units, or `mixed`."""
    units: dict[str, int] = {}
    for guess in guesses:
        units[guess.kind] = units.get(guess.kind, 0) + int(guess.sizes.sum())
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
        elif guess.kind == PACED and waited > _SOCKET_MS:
            return True
    return False


def _interval(values: Sequence[float], low: float = 1.0, others: Sequence[float] = ()) -> Interval:
    """From the least to the most of several runs; the first is the most probable."""
    return Interval(low * min(*values, *others, values[0]), values[0], max(values))


def _done(runs: Sequence[Met]) -> Interval:
    times = [met.done_ms for met in runs]
    known = [time for time in times if time is not None]
    return Interval(min(known) if known else None, times[0], max(known) if len(known) == len(times) else None)
