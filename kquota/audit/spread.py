"""Producers with a connection to each of several brokers: they wait at all of them, or go on at another one.

A client that waits for its answers sends its next request to any broker. On each broker alone its requests seem to come
at random; together they come a steady time after the answer before. So the requests of one client to several brokers
are put together, and show its kind. One that waits for its answers is run against all its brokers at once.

A counter with one producer's connection, on each of several brokers, is taken to be one client's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from kquota.audit.batch import UNANSWERED, Int64s
from kquota.audit.clients import SATURATING, SYNCHRONOUS, Guess, Requests, Seen, producer, waiting
from kquota.audit.rows import Rows
from kquota.core.enforcement import Generation, Kernel, QuotaWindows
from kquota.core.enforcement.kind import PRODUCE
from kquota.core.simulation.recorded import Counted, Met, limit_at, throttles

MOST_REQUESTS: Final = 200_000
"""A counter with more requests is predicted alone: those of several brokers are put together in one process."""
_ENOUGH: Final = 20
_HASTE_MS: Final = 15
"""Requests that come so soon after each other on average are of a client in haste."""
_LATENCY_MS: Final = 1
"""From the end of a mute to the charge of the request that waited for it."""


class SeveralBrokers(NamedTuple):
    """The requests of one client to several brokers, in the order of time."""

    times: Int64s
    sizes: Int64s
    brokers: Int64s
    """The number of the broker of each."""
    seen: Seen
    """The kinds that fit."""


def put_together(rows: Sequence[Rows]) -> SeveralBrokers:
    """The requests of a client to each broker, in time."""
    brokers = np.repeat(np.arange(len(rows)), [len(mine) for mine in rows])
    every = Rows.joined(rows)
    order = np.lexsort((brokers, every.time))
    every, brokers = every.take(order), brokers[order]
    times, sizes = every.time, every.size
    senders = every.detail
    waits = _waits(times, np.maximum(every.throttle, 0), brokers)
    requests = Requests(
        times,
        sizes,
        waits,
        int(senders[-1]) % 4,
        senders % UNANSWERED // 4 * len(rows) + brokers,
        bool(senders.max() < UNANSWERED),
    )
    seen = producer(requests)
    guesses = list(seen.guesses)
    if _had_time(times, waits):
        guesses = [guess for guess in guesses if guess.kind != SATURATING]
    if requests.answered and all(guess.kind != SYNCHRONOUS for guess in guesses):
        # Who waits for room in a buffer, or for the end of a transaction, waits for the slowest broker.
        guesses.append(waiting(requests, guesses[0], "it may wait for one broker before it goes on at another"))
    seen = seen._replace(guesses=guesses)
    return SeveralBrokers(times, sizes, brokers, seen)


def _had_time(times: Int64s, waits: Int64s) -> bool:
    """Whether a client did not send as fast as it could before it had to wait for the first time."""
    first = int(np.argmax(waits > 0))
    return first >= _ENOUGH and float(np.mean(np.diff(times[: first + 1]))) > _HASTE_MS


def _waits(times: Int64s, throttle: Int64s, brokers: Int64s) -> Int64s:
    """How long after each request the broker of the next one is still muted for this client, ms."""
    ends = times + throttle
    waits = np.zeros(len(times), np.int64)
    for broker in np.unique(brokers):
        mine = np.flatnonzero(brokers == broker)
        later = mine[1:]
        muted = np.maximum.accumulate(ends[mine])[:-1]
        waits[later - 1] = np.maximum(muted - times[later - 1], 0)
    return waits


def run_waiting(
    together: SeveralBrokers,
    guess: Guess,
    counters: Sequence[Counted],
    *,
    windows: QuotaWindows,
    generation: Generation,
    using: Kernel,
) -> tuple[list[Met], Int64s]:
    """Runs a client that waits for its answers, for as long as it was recorded.

    Returns what it meets at the counter of each broker, and when each of its requests is charged (ms; -1 for never).
    """
    sensors = [using.new_counter(windows, generation) for _ in counters]
    free = [0] * len(counters)
    delays: list[list[int]] = [[] for _ in counters]
    delivered, last, waited = [0] * len(counters), [0] * len(counters), [0] * len(counters)
    peaks = [0.0] * len(counters)
    charged = np.full(len(together.times), -1, np.int64)
    stop = int(together.times[-1])
    now = int(together.times[0])
    rows = zip(together.brokers.tolist(), guess.sizes.tolist(), guess.thinks.tolist(), strict=True)
    for row, (broker, size, think) in enumerate(rows):
        ready = now + max(think, 0)
        now = max(ready, free[broker] + _LATENCY_MS if free[broker] > ready else ready)
        if now > stop:
            break
        limit = limit_at(counters[broker].limits, now)
        verdict = using.charge_counter(sensors[broker], PRODUCE, now, float(size), limit)
        delay = max(verdict.throttle_ms, 0)
        peaks[broker] = max(peaks[broker], verdict.rate)
        charged[row] = now
        delays[broker].append(delay)
        free[broker] = now + delay
        delivered[broker] += size
        last[broker] = now
        waited[broker] = max(waited[broker], now - ready)
    met = []
    for broker, counter in enumerate(counters):
        total, length = sum(delays[broker]), max(last[broker] - counter.begin_ms, 0)
        met.append(
            Met(
                throttled=(throttled := sum(delay > 0 for delay in delays[broker])),
                throttles=throttles(throttled, peaks[broker], counter.limits),
                throttle_ms=total,
                throttle_max_ms=max(delays[broker], default=0),
                early_ms=total,
                muted_ms=total - max(free[broker] - counter.end_ms, 0),
                delivered=delivered[broker],
                left=0,
                done_ms=length,
                at_most_ms=length,
                waited_ms=(waited[broker],),
                peak_rate=peaks[broker],
            )
        )
    return met, charged
