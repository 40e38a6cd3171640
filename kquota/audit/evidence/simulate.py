"""The clients of some counters, run through the simulator: what they meet under the limits of these counters.

The rows of a counter become clients, of each kind that fits (`evidence.clients`). They run once for each kind, and
the runs are the bounds of a prediction. `evidence.prediction` decides whose clients run, and keeps the rows.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from kquota.audit.batch import NO_CONNECTION, UNANSWERED, Int64s
from kquota.audit.evidence.clients import (
    CONSUMER,
    MESSAGE_BYTES,
    PACED,
    SOCKET_MS,
    Guess,
    Requests,
    Rows,
    Seen,
    consumer,
    producer,
    redrawn,
    resent,
)
from kquota.audit.evidence.in_force import scale_of
from kquota.audit.ledger.retries import keys_of
from kquota.audit.ledger.rows import Judged
from kquota.core.enforcement.kernel import Kernel
from kquota.core.enforcement.kind import FETCH, PRODUCE
from kquota.core.enforcement.traffic.state import NONE
from kquota.core.findings.prediction import UNDELAYED, UNKNOWN, Interval, Prediction, RecordedUnder
from kquota.core.findings.verdicts import BURSTS, SLOWED, Verdict
from kquota.core.quotas.quota import QuotaKey
from kquota.core.simulation.recorded import Charged, Counted, Met, Ran, run_recorded, throttles
from kquota.core.simulation.workload import FETCH_API, PRODUCE_API, Brokers, Client, Events, Workload

if TYPE_CHECKING:
    from kquota.audit.ledger.rows import CounterRef
    from kquota.audit.settings import AuditSettings

_JAVA_REQUEST_MS: Final = 30_000
"""`request.timeout.ms`: a request in flight waits for a mute."""
_JAVA_DELIVERY_MS: Final = 120_000
"""`delivery.timeout.ms`: records in the queue of a Java producer."""
_SHARES: Final = "thread time between the handlers' usual one and twice the handlers', as the log lacks network threads"
_APIS: Final = {QuotaKey.PRODUCER_BYTE_RATE: PRODUCE_API, QuotaKey.CONSUMER_BYTE_RATE: FETCH_API}
_OTHER_API: Final = "other"
"""Requests that are charged for their thread time only."""
_LATENCY_MS: Final = 1
"""From the end of a mute to the charge of the request that waited for it, on a broker that is not busy."""
_RAISED: Final = 1.02
"""A limit of so many times what was delivered under another one is a higher one."""
KEPT: Final = "keeps the clients below the limit"
OTHER_QUOTA: Final = "another quota of its clients"
DRAWS: Final = 4
"""So often chance is drawn again."""
_STUDENT: Final = 2.78
"""So many times their root mean square hold 95 % of what is off by chance, by DRAWS of it (Student's t)."""
MOST_TIME: Final = 2
"""A request takes at most so many times the thread time that a log holds: network threads take half of it."""


class SimulatedCounter(NamedTuple):
    """A counter whose clients are to be simulated."""

    number: int
    judged: Judged
    recorded: RecordedUnder
    recorded_ms: int
    connections: Int64s


class Model(NamedTuple):
    """The requests of one connection to one counter of bytes, or those without bytes."""

    seen: Seen
    api: str
    charged: Charged
    nanos: Int64s
    """Thread time of each recorded request."""
    exempt: bool
    """Whether its thread time is not charged."""


def simulated(
    group: Sequence[SimulatedCounter],
    models: Sequence[Model],
    settings: AuditSettings,
    using: Kernel,
) -> dict[CounterRef, Prediction]:
    """Runs the clients once for each kind that fits and each thread time, for the bounds of what they meet."""
    runs, plain, redrawn_runs = _runs(group, models, settings, using)
    predictions = {}
    for place, counter in enumerate(group):
        own = [model for model in models if place in model.charged]
        slowed = any(NONE not in model.charged for model in own)
        met = [run.met[place] for run in runs]
        again = [run.met[place] for run in redrawn_runs]
        predictions[counter.judged.ref] = _prediction(counter, own, met, plain.met[place], again, slowed=slowed)
    return predictions


def _runs(
    group: Sequence[SimulatedCounter], models: Sequence[Model], settings: AuditSettings, using: Kernel
) -> tuple[list[Ran], Ran, list[Ran]]:
    """The runs, the most probable one first; the first one in which nobody gives up a connection; and those of clients
    of the most probable kinds in which chance is drawn again."""
    undetermined = {number for number, counter in enumerate(group) if counter.judged.verdict is Verdict.UNDETERMINED}
    shares = (_Share.LEAST, _Share.MOST) if undetermined else (_Share.LOGGED,)
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
    draw = np.random.default_rng(0)
    drawn: list[Ran] = []
    for _ in range(0 if undetermined else DRAWS):
        guesses = [redrawn(model.seen.guesses[0], draw) for model in models]
        ran = _run(group, models, guesses, _Share.LOGGED, settings, using)
        late = _resent(guesses, ran.charged_ms)
        drawn.append(ran if late is None else _run(group, models, late, _Share.LOGGED, settings, using))
    return runs, plain, drawn


def _resent(guesses: Sequence[Guess], charged_ms: Sequence[int]) -> list[Guess] | None:
    """The same clients, where those that wait too long give up their connections; None where nobody does."""
    edges = np.cumsum([0, *(len(guess.times) for guess in guesses)])
    resends = [
        resent(guess, np.asarray(charged_ms[start:end], np.int64))
        for guess, start, end in zip(guesses, edges, edges[1:], strict=False)
    ]
    return [again or guess for again, guess in zip(resends, guesses, strict=True)] if any(resends) else None


def kind_of(rows: Rows, key: QuotaKey) -> str:
    """The kind of the clients that sent these requests, as far as it shows."""
    if key not in _APIS or (rows.connection == NO_CONNECTION).any():
        return "unknown"
    return _kind([seen.guesses[0] for seen, _ in _seen(rows, _APIS[key])])


def _seen(rows: Rows, api: str) -> Iterator[tuple[Seen, Any]]:
    """The kinds that fit each connection with its rows, by their numbers, in the order of their first requests."""
    for at in _by_connection(rows.connection):
        own = rows.take(at)
        senders = own.detail if api == PRODUCE_API else np.zeros(len(own), np.int64)
        requests = Requests(
            own.time,
            own.size if api != _OTHER_API else np.ones(len(own), np.int64),
            own.throttle,
            int(senders[-1]) % 4,
            senders % UNANSWERED // 4,
            bool(senders.max() < UNANSWERED),
        )
        yield (consumer(requests) if api == FETCH_API else producer(requests)), at


def _by_connection(connections: Int64s) -> list[Any]:
    """The rows of each connection, in the order of their first requests."""
    if (connections == connections[0]).all():
        return [slice(0, len(connections))]
    order = np.argsort(connections, kind="stable")
    edges = np.flatnonzero(np.diff(connections[order])) + 1
    return sorted(np.split(order, edges), key=lambda at: int(at[0]))


def models_of(group: Sequence[SimulatedCounter], rows: Mapping[int, Rows]) -> list[Model]:
    """The clients of the counters in a group. Counters of thread time charge the requests that others have bytes of."""
    timed = [counter for counter in group if counter.judged.ref.key is QuotaKey.REQUEST_PERCENTAGE]
    left = {counter.number: np.ones(len(rows[counter.number]), bool) for counter in timed}
    models = []
    for place, counter in enumerate(group):
        if counter in timed:
            continue
        own = rows[counter.number]
        api = _APIS[counter.judged.ref.key]
        kind = FETCH if api == FETCH_API else PRODUCE
        nanos, owner = np.zeros(len(own), np.int64), np.full(len(own), NONE)
        for other in timed:
            theirs = rows[other.number]
            _, here, there = np.intersect1d(
                _requests(own, np.full(len(own), kind)),
                _requests(theirs, theirs.detail),
                assume_unique=True,
                return_indices=True,
            )
            nanos[here], owner[here] = theirs.size[there], group.index(other)
            left[other.number][there] = False
        for seen, at in _seen(own, api):
            of_time = int(owner[at].max())
            # A produce request without an answer (acks=0) has no thread time in the log: brokers do not charge it.
            models.append(Model(seen, api, Charged(place, of_time), nanos[at], of_time == NONE))
    for counter in timed:
        own = rows[counter.number].take(left[counter.number])
        if len(own):
            for seen, at in _seen(own, _OTHER_API):
                charged = Charged(NONE, group.index(counter))
                nanos = own.size[at]
                models.append(Model(seen, _OTHER_API, charged, nanos, False))
    return models


def _requests(rows: Rows, kinds: Any) -> Any:
    """A number for each request, the same in both of its counters: by connection, time, kind, and order at one time."""
    order = np.lexsort((kinds, rows.time, rows.connection))
    same = np.logical_and.reduce([np.diff(column[order]) == 0 for column in (kinds, rows.time, rows.connection)])
    starts = np.where(np.concatenate([[False], same]), 0, np.arange(len(rows)))
    number = np.empty(len(rows), np.int64)
    number[order] = np.arange(len(rows)) - np.maximum.accumulate(starts)
    return keys_of(number * 8 + kinds, rows.time, rows.connection)


def _prediction(
    counter: SimulatedCounter,
    models: Sequence[Model],
    runs: Sequence[Met],
    plain: Met,
    again: Sequence[Met],
    *,
    slowed: bool,
) -> Prediction:
    """The prediction of one counter, from the runs of its clients; in the `plain` one nobody gives up a connection.

    `again` are runs in which chance is drawn again: how much these vary widens the intervals. Up to its first throttle
    time a counter meets what was recorded, and the replay's verdict is exact. Where another quota of the clients delays
    them as well (`slowed`), they may stay below the limit: then the runs decide.
    """
    judged, recorded, recorded_ms = counter.judged, counter.recorded, counter.recorded_ms
    key = judged.ref.key
    seconds, scale = max(recorded_ms, 1000) / 1000, scale_of(key)
    timed, fetches = key is QuotaKey.REQUEST_PERCENTAGE, key is QuotaKey.CONSUMER_BYTE_RATE
    guesses = [model.seen.guesses[0] for model in models]
    units = sum(int(model.nanos.sum()) for model in models) if timed else sum(guess.units for guess in guesses)
    wanted = units / scale / seconds
    # The throttle times of a request may be of its bytes: they show no queue for thread time that drained.
    held_back, drained = recorded.held_back, not timed and all(model.seen.drained for model in models)
    verdict, reason = judged.verdict, judged.reason
    throttled = [met.throttles for met in runs]
    # The rate of what was recorded can show what a run hides that merges what waits.
    is_far = verdict is Verdict.THROTTLED or throttles(0, judged.peak_rate, judged.limits) is False
    spared = is_far and all(outcome is False for outcome in throttled)
    overruled = slowed and verdict is Verdict.THROTTLED and not held_back and not all(throttled)
    if overruled:
        verdict = Verdict.NOT_THROTTLED if spared else Verdict.UNDETERMINED
        reason = f"{OTHER_QUOTA} {SLOWED}"
    elif slowed and verdict is Verdict.NOT_THROTTLED and not held_back and not spared:
        verdict, reason = Verdict.UNDETERMINED, f"{OTHER_QUOTA} {BURSTS}"
    elif held_back and verdict is not Verdict.UNDETERMINED:
        drained = drained and (not slowed or spared)
        verdict = _verdict_of([outcome is True for outcome in throttled], drained=drained)
        reason = f"wanted at least {wanted:,.{3 if timed else 0}f} a second: a quota held it back while it was recorded"
    open_ended = held_back and not drained
    limit = judged.limits[-1][1] or 0.0
    raised = open_ended and limit > _RAISED * (100 * wanted if timed else wanted)

    def spread(value: Callable[[Met], float], most: float = math.inf) -> Interval:
        interval = _interval([value(met) for met in runs], [value(met) for met in again])
        return replace(interval, high=min(interval.high or 0.0, most))

    kind, times_out = _kind(guesses, timed=timed), not timed and _times_out(guesses, plain)
    low = 0.75 if times_out else 1.0
    prediction = Prediction(
        client_kind=kind,
        basis="; ".join(dict.fromkeys(guess.why for guess in guesses[:100])),
        verdict=verdict.value,
        # A consumer may stop with its recording, or go on until it has all.
        throttle_time_ms=_total(runs, again, low, consumers=len(models) if fetches else 0),
        throttle_time_max_ms=spread(lambda met: met.throttle_max_ms),
        muted_share=spread(lambda met: min(met.muted_ms / (seconds * 1000), 1.0), most=1.0),
        delivered_per_s=spread(lambda met: met.delivered / scale / seconds),
        wanted_per_s=Interval.at_least(wanted) if open_ended else Interval.exactly(wanted),
        done_ms=_done(runs),
        left_units=spread(lambda met: met.left / scale),
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
    if overruled:
        basis = f"{prediction.basis}; {OTHER_QUOTA} {SLOWED if verdict is Verdict.UNDETERMINED else KEPT}"
        peaks = [met.peak_rate for met in runs if met.peak_rate is not None]
        prediction = replace(prediction, basis=basis, peak_rate=Interval(min(peaks), None, max(peaks)))
        if verdict is Verdict.UNDETERMINED:
            return prediction.bounded(None, None, verdict.value, reason)
    if verdict is Verdict.UNDETERMINED:
        return prediction.undetermined(reason or "")
    if verdict is Verdict.NOT_THROTTLED and any(met.throttled for met in (*runs, *again)):
        return prediction.not_throttled()  # the throttle times are of other quotas
    return prediction.open_ended() if raised and verdict is Verdict.THROTTLED else prediction


def _without_estimates(prediction: Prediction, reason: str | None, *, open_ended: bool) -> Prediction:
    """The prediction of a counter of thread time of which the log holds a part: bounds, and nothing between them."""
    met = prediction.open_ended() if open_ended else prediction
    bounds: dict[str, Any] = {name: replace(getattr(met, name), estimate=None) for name in (*UNDELAYED, "done_ms")}
    bounds |= {"delivered_per_s": UNKNOWN, "left_units": UNKNOWN, "basis": f"{_SHARES}; {prediction.basis}"}
    return replace(
        prediction, **bounds, wanted_per_s=Interval.at_least(prediction.wanted_per_s.low or None), reason=reason
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
        return nanos if self is _Share.LOGGED else (nanos * MOST_TIME).astype(np.int64)


def _nanos(model: Model, guess: Guess, share: _Share) -> Int64s:
    """The thread time of the rows of a guess."""
    nanos = share.of(model.nanos)
    return nanos if len(nanos) == len(guess.times) else np.full(len(guess.times), int(nanos.mean()), np.int64)


def _run(
    group: Sequence[SimulatedCounter],
    models: Sequence[Model],
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


def _interval(
    values: Sequence[float], again: Sequence[float], low: float = 1.0, others: Sequence[float] = ()
) -> Interval:
    """From the least to the most of several runs, and of 95 % of what chance makes of the most probable one, the first.

    `again` are values of runs in which chance was drawn again.
    """
    least, likely, most = low * min(*values, *others, values[0]), values[0], max(values)
    if again:
        off = _STUDENT * float(np.sqrt(np.mean((np.asarray(again, float) - likely) ** 2)))
        least, most = max(min(least, likely - off), 0), max(most, likely + off)
    return Interval(least, likely, most)


def _total(runs: Sequence[Met], again: Sequence[Met], low: float, *, consumers: int) -> Interval:
    """The throttle time until everything is delivered.

    A consumer may stop with its recording, or go on until it has all. Consumers of one counter take turns, and chance
    decides which of them is served: each may be muted for nearly all of the time.
    """
    early = [met.early_ms for met in runs] if consumers else ()
    interval = _interval([met.throttle_ms for met in runs], [met.throttle_ms for met in again], low, early)
    if consumers < 2 or not interval.high:
        return interval
    return replace(interval, high=max(interval.high, *(float(met.at_most_ms) for met in runs)))


def _done(runs: Sequence[Met]) -> Interval:
    times = [met.done_ms for met in runs]
    known = [time for time in times if time is not None]
    return Interval(min(known) if known else None, times[0], max(known) if len(known) == len(times) else None)
