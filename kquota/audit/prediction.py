"""Predictions: the recorded clients of each counter that would be throttled, run through the simulator.

While the reduce side replays the events, their rows are kept beside it: some 30 bytes a request, in memory up to
KEPT_BYTES and then on the disk. At the end the rows of one counter at a time are read back: those of counters that the
replay throttles, or that the brokers held back. They become clients, of each kind that fits, and the simulator runs
them. For all other counters the clients meet what was recorded, and under quotas that were in force as well
(`kquota.audit.in_force`). The verdicts on these and on the findings are made one by `kquota.audit.held_back`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kquota.audit import mutators
from kquota.audit.batch import NO_CONNECTION, UNANSWERED
from kquota.audit.clients import CONSUMER, PACED, Guess, Requests, Seen, consumer, producer
from kquota.audit.in_force import InForce, Judged, happened, scale_of
from kquota.core.enforcement.kernel import Kernel, Mode, kernel
from kquota.core.enforcement.kind import FETCH, MUTATION, PRODUCE, REQUEST
from kquota.core.findings.prediction import LOGGED, UNKNOWN, Interval, Prediction, RecordedUnder
from kquota.core.findings.verdicts import Verdict
from kquota.core.quotas.quota import QuotaKey
from kquota.core.simulation.recorded import Met, run_recorded
from kquota.core.simulation.workload import FETCH_API, PRODUCE_API, Brokers, Client, Events, Workload

if TYPE_CHECKING:
    from kquota.audit.part import Part
    from kquota.audit.segment import CounterRef
    from kquota.audit.settings import AuditSettings

KEPT_BYTES: Final = 128 << 20
"""So much of the rows stays in memory; the rest goes to the disk."""
MOST_ROWS: Final = 50_000_000
"""A counter with more requests is not predicted: its rows would take 2 GB."""
MOST_CONNECTIONS: Final = 20_000
MOST_MUTATIONS: Final = 200_000
"""More requests about topics of one counter are not simulated, which would take seconds."""
PLAIN_ROWS: Final = 100_000
"""Up to so many requests the plain kernel takes less time than loading the compiled one, of which it is the same."""
_KINDS: Final = (PRODUCE, FETCH, REQUEST, MUTATION)
"""The kinds of counters whose rows are kept."""
_DETAILED: Final = (PRODUCE, MUTATION)
"""Those of which the detail matters: the library and the partition, or that the request is permissive."""
_ROW: Final = np.dtype(
    [("time", "<i8"), ("size", "<i8"), ("connection", "<i8"), ("throttle", "<i4"), ("detail", "<i2")]
)
_JAVA_REQUEST_MS: Final = 30_000
"""`request.timeout.ms`: a request in flight waits for a mute."""
_JAVA_DELIVERY_MS: Final = 120_000
"""`delivery.timeout.ms`: records in the queue of a Java producer."""
_SOCKET_MS: Final = 60_000
"""librdkafka's `socket.timeout.ms`: requests in its socket."""
BYTES: Final = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE)
_NOT_MODELLED: Final = "the clients of this quota are not modelled"
_LATENCY_MS: Final = 1
"""From the end of a mute to the charge of the request that waited for it, on a broker that is not busy."""
_RAISED: Final = 1.02
"""A limit of so many times what was delivered under another one is a higher one."""
_RESENT_BYTES: Final = 1_000_000
"""`message.max.bytes`: up to so much does librdkafka send again at once."""


class Recorder:
    """Keeps the rows of the counters while these are replayed: of all keys but connections."""

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
        """Keeps the rows of a part, of the counters that can be predicted."""
        kept = np.isin(part.kinds, _KINDS)
        counts = np.where(kept, np.diff(part.offsets), 0)
        places = np.flatnonzero(counts)
        if not len(places):
            return
        mine = slice(None) if kept.all() else np.repeat(kept, np.diff(part.offsets))
        rows = np.zeros(int(counts.sum()), _ROW)
        rows["time"], rows["size"] = part.times[mine], part.values[mine]
        rows["connection"] = NO_CONNECTION if part.connection is None else part.connection[mine]
        rows["throttle"] = -1 if part.throttle_ms is None else np.minimum(part.throttle_ms[mine], (1 << 31) - 1)
        if part.detail is not None:
            told = np.repeat(np.isin(part.kinds, _DETAILED), np.diff(part.offsets))
            details = part.detail * (told & (part.detail >= 0) & (part.detail < 2 * UNANSWERED))
            rows["detail"] = details[mine]
        self._file.seek(0, 2)
        self._file.write(rows.tobytes())
        edges = np.concatenate([[0], np.cumsum(counts)])
        sums = np.add.reduceat(np.append(rows["size"], 0), edges[:-1])
        for place in places.tolist():
            counter, start, end = int(part.counters[place]), int(edges[place]), int(edges[place + 1])
            self._pieces.setdefault(counter, []).append((self._rows + start, end - start))
            self._firsts.setdefault(counter, int(rows["time"][start]))
            self._lasts[counter] = int(rows["time"][end - 1])
            self._sums[counter] = self._sums.get(counter, 0) + int(sums[place])
        self._rows += len(rows)

    def finish(self, judged: Mapping[int, Judged], settings: AuditSettings) -> dict[CounterRef, Prediction]:
        """The predictions of the counters, by number."""
        in_force = InForce(settings)
        predictions = {
            found.ref: self._predict(counter, found, in_force, settings) for counter, found in judged.items()
        }
        self._file.close()
        return predictions

    def _predict(self, counter: int, judged: Judged, in_force: InForce, settings: AuditSettings) -> Prediction:
        recorded = in_force.recorded_under(judged)
        key = judged.ref.key
        if counter not in self._pieces:
            return _unknown(judged, recorded, judged.reason or _NOT_MODELLED)
        count = sum(rows for _, rows in self._pieces[counter])
        bytes_known = judged.verdict is not Verdict.UNDETERMINED
        holds = in_force.holds(judged)
        if judged.verdict is Verdict.NOT_THROTTLED and not recorded.held_back:
            return self._as_recorded(counter, key, recorded, LOGGED if holds and judged.logged is not None else None)
        if count > MOST_ROWS:
            return _unknown(judged, recorded, f"more than {MOST_ROWS:,} requests of one counter are not simulated")
        if holds and (bytes_known or judged.logged is not None):
            rows = self._read(counter)
            return happened(judged, recorded, rows, _kind_of(rows, key))
        if not bytes_known:
            return _unknown(judged, recorded, judged.reason or _NOT_MODELLED)
        if key is QuotaKey.CONTROLLER_MUTATION_RATE and count <= MOST_MUTATIONS:
            return mutators.predicted(self._read(counter), judged, recorded, settings)
        if key not in BYTES:
            return _unknown(judged, recorded, _NOT_MODELLED)
        rows = self._read(counter)
        if (rows["connection"] == NO_CONNECTION).any():
            return _unknown(judged, recorded, "the recording has no connections")
        clients = _clients(rows, fetches=key is QuotaKey.CONSUMER_BYTE_RATE)
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

    def _as_recorded(self, counter: int, key: QuotaKey, recorded: RecordedUnder, basis: str | None) -> Prediction:
        """The clients of a counter that delays nobody."""
        length = self._lasts[counter] - self._firsts[counter]
        rate = Interval.exactly(self._sums[counter] / scale_of(key) / (max(length, 1000) / 1000))
        nothing = Interval.exactly(0)
        return Prediction(
            client_kind="as recorded",
            basis=basis or "no request is throttled, so that all come as they were recorded",
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
    order = np.argsort(rows["connection"], kind="stable")
    rows = rows[order]
    starts = np.flatnonzero(np.concatenate([[True], np.diff(rows["connection"]) != 0]))
    ends = np.append(starts[1:], len(rows))
    seen = []
    for start, end in sorted(zip(starts.tolist(), ends.tolist(), strict=True), key=lambda each: order[each[0]]):
        mine = rows[start:end]
        sender = int(mine["detail"].max())
        requests = Requests(
            mine["time"].astype(np.int64),
            mine["size"].astype(np.int64),
            mine["throttle"].astype(np.int64),
            sender % 4,
            max(sender % UNANSWERED // 4, 1),
            sender < UNANSWERED,
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
        runs.append(_run(guesses, judged, settings, recorded_ms, using))
    likely = runs[0]
    guesses = [client.guesses[0] for client in clients]
    wanted = sum(int(guess.sizes.sum()) for guess in guesses) / seconds
    held_back, drained = recorded.held_back, all(client.drained for client in clients)
    verdict, reason = judged.verdict, None
    if held_back:
        verdict = _verdict_of([met.throttled > 0 for met in runs], drained=drained)
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
        recorded_under=recorded,
    )
    if times_out and prediction.throttle_time_max_ms.high is not None:
        longest = prediction.throttle_time_max_ms
        resent_ms = 1000 * min(_RESENT_BYTES, likely.left) / max(limit, 1.0)
        high = max(longest.high or 0.0, (longest.estimate or 0.0) + resent_ms)
        prediction = replace(prediction, throttle_time_max_ms=replace(longest, high=high))
    if verdict is Verdict.UNDETERMINED:
        return prediction.undetermined(reason or "")
    return prediction.open_ended() if raised and verdict is Verdict.THROTTLED else prediction


def _verdict_of(throttled: Sequence[bool], *, drained: bool) -> Verdict:
    """The verdict on clients that were held back, from the runs of all kinds that fit.

    Where no run is throttled, they are free of throttling only if the recording shows all that they wanted.
    """
    if all(throttled):
        return Verdict.THROTTLED
    return Verdict.NOT_THROTTLED if drained and not any(throttled) else Verdict.UNDETERMINED


def _run(guesses: Sequence[Guess], judged: Judged, settings: AuditSettings, recorded_ms: int, using: Kernel) -> Met:
    """One run of clients of these kinds, which is counted for as long as the recording: after the last data as well."""
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
        max(recorded_ms, last - first) + 1,
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
