"""What the counters of one broker's clients need of others: the data of their producers, and their other brokers.

A consumer whose producers are throttled gets their data later. A client that waits at several brokers is run against
all of them. Both are known only when the counters of all tasks were simulated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kquota.audit.batch import Int64s
from kquota.audit.clients import PACED, SATURATING, SYNCHRONOUS
from kquota.audit.feeds import LOST, Curve, Feeder, Place, arrivals, throttled
from kquota.audit.rows import Rows
from kquota.audit.simulated import (
    OTHER_BROKERS,
    Model,
    SimulatedCounter,
    kernel_for,
    models_of,
    prediction_of,
    runs_of,
    simulated,
)
from kquota.audit.spread import MOST_REQUESTS, SeveralBrokers, put_together, run_waiting
from kquota.core.findings.prediction import CounterName, Prediction
from kquota.core.findings.verdicts import SLOWED, Verdict
from kquota.core.quotas.quota import QuotaKey
from kquota.core.simulation.recorded import Counted, Met
from kquota.core.simulation.workload import FETCH_API, PRODUCE_API

if TYPE_CHECKING:
    from kquota.audit.segment import CounterRef
    from kquota.audit.settings import AuditSettings


class Fed(NamedTuple):
    """Counters of consumers that read what others produce as it comes."""

    group: list[SimulatedCounter]
    rows: dict[int, Rows]
    feeders: dict[int, list[Feeder]]
    """By the consumer's connection."""


class Alone(NamedTuple):
    """A counter of one producer's connection. Its client may have connections to other brokers."""

    counter: SimulatedCounter
    rows: Rows
    is_shared: bool
    """Whether another quota delays the same requests: the client was run with that, and is not run again."""


class Links(NamedTuple):
    """What the counters of one task and the counters of another task need of each other."""

    curves: dict[Place, Curve]
    fed: list[Fed]
    alone: list[Alone]
    unsure: set[Place]
    """Connections that may deliver later still than the curves say."""


def alone_of(group: Sequence[SimulatedCounter], models: Sequence[Model], rows: Mapping[int, Rows]) -> Alone | None:
    """The counter, where the counter of another broker may show more about its only client; else None."""
    counters = [each for each in group if each.judged.ref.key is QuotaKey.PRODUCER_BYTE_RATE]
    producers = [each for each in models if each.api == PRODUCE_API]
    if len(counters) != 1 or len(producers) != 1 or len(rows[counters[0].number]) > MOST_REQUESTS:
        return None
    (counter,), (model,) = counters, producers
    if not model.seen.held_back and all(guess.kind == PACED for guess in model.seen.guesses):
        return None  # it keeps its times at this broker, whatever it does at others
    return Alone(counter, rows[counter.number].copy(), len(group) > 1)


def _spread(
    every: Sequence[Alone],
    curves: dict[Place, Curve],
    settings: AuditSettings,
    predictions: Sequence[Mapping[CounterName, Prediction]],
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
            found |= _waiting(mine, curves, settings, predictions[mine[0].counter.judged.ref.variant])
    return found


def _waiting(
    mine: Sequence[Alone],
    curves: dict[Place, Curve],
    settings: AuditSettings,
    predictions: Mapping[CounterName, Prediction],
) -> dict[CounterRef, Prediction]:
    """The predictions of one client with these counters, where it may wait for its answers.

    `predictions` are those without the other brokers; they stand where another quota delays the same requests.
    """
    together = put_together([alone.rows for alone in mine])
    kinds = list(dict.fromkeys(guess.kind for guess in together.seen.guesses))
    models = [models_of([alone.counter], {alone.counter.number: alone.rows})[0] for alone in mine]
    using = kernel_for(len(together.times))
    # Who sends nothing to one broker may wait at another one: that is no rest.
    drained = together.seen.drained and all(model.seen.drained for model in models)
    if kinds == [PACED]:
        return {}
    sure = not any(alone.is_shared for alone in mine)
    runs: dict[str, list[list[Met]]] = {kind: [] for kind in kinds}
    """By kind, what each counter meets in each run."""
    for guess in together.seen.guesses:
        if guess.kind == SYNCHRONOUS:
            counters = [
                Counted(alone.counter.judged.limits, int(times[0]), int(times[0]) + alone.counter.recorded_ms)
                for alone, times in ((alone, alone.rows.time) for alone in mine)
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
                runs_of([alone.counter], [_of_kind(model, kind)], settings, using)
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
        if alone.is_shared:
            ref = alone.counter.judged.ref
            told = predictions[ref.name]
            certain = all(each.throttles for each in met) or told.recorded_under.held_back
            if told.verdict == Verdict.THROTTLED.value and not certain:
                found[ref] = told.bounded(None, None, Verdict.UNDETERMINED.value, f"{OTHER_BROKERS} {SLOWED}")
            continue
        found[alone.counter.judged.ref] = prediction_of(
            alone.counter,
            [model._replace(seen=seen)],
            met,
            met[0] if plain is None else plain[place],
            OTHER_BROKERS,
            sure=sure,
        )
    return found


def _of_kind(model: Model, kind: str) -> Model:
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
    models: Sequence[Model],
    together: SeveralBrokers,
    charged: Int64s,
    curves: dict[Place, Curve],
) -> None:
    """Keeps when the client delivers at each broker, where consumers read it there."""
    for place, (alone, model) in enumerate(zip(mine, models, strict=True)):
        ref = alone.counter.judged.ref
        name = ref.variant, ref.broker, model.connection
        if name in curves and not alone.is_shared:
            rows = together.brokers == place
            late = np.where(charged[rows] < 0, LOST, charged[rows])
            curves[name] = Curve(together.times[rows], late)


def linked(
    links: Sequence[Links], settings: AuditSettings, predictions: Sequence[Mapping[CounterName, Prediction]]
) -> dict[CounterRef, Prediction]:
    """The predictions that change by what the clients of other tasks meet, of those made without, by variant."""
    curves = {place: curve for each in links for place, curve in each.curves.items()}
    doubtful = {place for each in links for place in each.unsure}
    found = _spread([alone for each in links for alone in each.alone], curves, settings, predictions)
    every = [fed for each in links for fed in each.fed]
    using = kernel_for(sum(len(rows) for fed in every for rows in fed.rows.values()))
    for fed in every:
        ref = fed.group[0].judged.ref
        late = {
            connection: held
            for connection, feeders in fed.feeders.items()
            if (held := throttled(feeders, curves, ref.variant, ref.broker))
        }
        unsure = {
            connection
            for connection, feeders in fed.feeders.items()
            if any((ref.variant, ref.broker, each.connection) in doubtful for each in feeders)
        }
        if late or unsure:
            models = [_fed(model, late.get(model.connection, ())) for model in models_of(fed.group, fed.rows)]
            found |= simulated(fed.group, models, settings, using, late, unsure)[0]
    return found


def _fed(model: Model, late: Sequence[tuple[float, Curve]]) -> Model:
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
