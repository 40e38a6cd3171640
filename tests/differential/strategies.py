"""What the differential tests ask: whole sequences in the replay's format, drawn by Hypothesis.

A sequence is a configuration and a few runs of events. Hypothesis draws what a run is like and the seed that fills it,
so that an example of thousands of events is cheap to draw and still shrinks to a few.
"""

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.differential.sequences import KINDS, MUTATIONS

HOUR = 3_600_000
EDGES = (-1, 0, 1)
samples = st.one_of(st.sampled_from([1, 2, 3, 10, 11]), st.integers(1, 60))
window_seconds = st.one_of(st.just(1), st.integers(1, 10), st.integers(1, 3600))
clocks = st.one_of(st.sampled_from([0, 1, 1_700_000_000_000]), st.integers(0, 2_000_000_000_000))
"""Epoch ms of the first event; a token bucket behaves differently where the clock starts near 0."""
rates = st.one_of(
    st.none(),
    st.sampled_from([0, -1, 0.001, 1, 10, 333.333, 65_536, 1e15, float("nan"), float("inf")]),
    st.integers(1, 2**31),
    st.floats(0.01, 1e9),
)
"""Quotas; what ZooKeeper may hold is not always sensible."""
mutation_rates = st.one_of(st.none(), st.sampled_from([0, 0.001, 0.1, 1 / 3, 1, 10]), st.floats(0.01, 1e5))


class Run(NamedTuple):
    """Events of one kind of pace and size."""

    events: int
    pace: tuple[int, ...]
    """The gaps before events, in ms: any from the first to the second, or one of three or more."""
    load: float
    """The mean amount of an event in terms of what the limit lets through in the mean gap; below 0: -load itself."""
    seed: int


@st.composite
def runs(draw: st.DrawFn, samples: int, window_ms: int) -> list[Run]:
    """Dense and sparse runs, and between them the edges of a window, of all windows and of an idle hour."""
    span = samples * window_ms
    dense = [(0, 0), (0, 2), (0, 50), *((0, max(window_ms * per // 1000, 1)) for per in (1, 30, 300, 1000, 2000))]
    edges = [
        *(tuple(edge + near for near in EDGES) for edge in (window_ms, span, span - window_ms, span + window_ms, HOUR)),
        (0, 3 * span),
        (0, 3 * HOUR),
        (-1, -20, -window_ms),  # the clock was set back
        (-HOUR, -span, -span - 7),
    ]
    load = st.sampled_from([0, 0.3, 0.9, 1, 1, 1.1, 3, 1000, -1, -(2**31), -(2**53) - 1, -(2**60)])
    seed = st.integers(0, 2**32)
    long = st.builds(Run, st.integers(1, 500), st.sampled_from(dense), load, seed)
    short = st.builds(Run, st.integers(1, 8), st.sampled_from(edges), load, seed)
    return draw(st.lists(st.one_of(long, short), min_size=1, max_size=16))


def events(runs: list[Run], limit: float | None) -> Iterator[tuple[random.Random, int, int]]:
    """(what to draw more from, ms since the start, amount) of each event."""
    now = 0
    for run in runs:
        chance = random.Random(run.seed)
        gap_s = max(sum(run.pace) / len(run.pace), 1) / 1000
        allowed = limit * gap_s if limit is not None and 0 < limit < float("inf") else 1000.0
        mean = int(min(allowed * run.load, 2**60) if run.load >= 0 else -run.load)
        for _ in range(run.events):
            now += chance.randint(*run.pace) if len(run.pace) == 2 else chance.choice(run.pace)
            now = max(now, 0)
            yield chance, now, chance.randint(0, 2 * mean) if run.load >= 0 else mean


@st.composite
def sequences(draw: st.DrawFn) -> dict[str, Any]:
    """Produce, fetch and request quotas, alone and in pairs."""
    kind = draw(st.sampled_from(KINDS))
    config: dict[str, Any] = {"window_num": draw(samples), "window_size_s": draw(window_seconds), "sensor_expiry": True}
    drawn = draw(runs(config["window_num"], 1000 * config["window_size_s"]))
    limit = draw(rates)
    found: list[list[Any]] = []
    if kind in ("produce", "fetch"):
        found = [[t, amount] for _, t, amount in events(drawn, limit)]
    elif kind == "request":
        per_nano = None if limit is None else limit * 1e7
        kinds = ("request", "request", "request", "network", "exempt")
        found = [[t, chance.choice(kinds), amount] for chance, t, amount in events(drawn, per_nano)]
    else:
        for chance, t, amount in events(drawn, limit):
            nanos = chance.choice((0, 1_000_000, amount, chance.randint(0, 10**10)))
            found.append([t, amount, nanos, *([chance.choice((0, 1, -1))] if kind == "produce+request" else [])])
    if "+" in kind:
        config |= {"byte_quota": limit, "request_quota": draw(rates)}
    else:
        config["quota"] = limit
        changes(draw, config, found, rates)
    return {"id": "drawn", "type": kind, "t0_ms": draw(clocks), "config": config, "events": found}


@st.composite
def mutations(draw: st.DrawFn) -> dict[str, Any]:
    """Requests that create and delete, under the strict or the permissive quota."""
    config: dict[str, Any] = {"window_num": draw(samples), "window_size_s": draw(window_seconds)}
    config |= {"sensor_expiry": draw(st.booleans()), "quota": draw(mutation_rates)}
    found: list[list[Any]] = []
    for chance, t, amount in events(draw(runs(config["window_num"], 1000 * config["window_size_s"])), config["quota"]):
        topics = [chance.choice((0, 1, amount, amount // 3)) for _ in range(chance.choice((0, 1, 1, 1, 3)))]
        found.append([t, topics, *([chance.choice((0, 1, 500, 2**31))] if chance.random() < 0.2 else [])])
    changes(draw, config, found, mutation_rates)
    return {
        "id": "drawn",
        "type": draw(st.sampled_from(MUTATIONS)),
        "t0_ms": draw(clocks),
        "config": config,
        "events": found,
    }


@st.composite
def connections(draw: st.DrawFn) -> dict[str, Any]:
    """Connections that arrive on one to three listeners; times do not go backwards, as each listener is a queue."""
    limits = st.one_of(st.none(), st.sampled_from([0, 1, 2, 10, 50, 2**31 - 1]), st.integers(1, 1000))
    names = ("EXTERNAL", "ADMIN", "REPLICATION")[: draw(st.integers(1, 3))]
    ips = [f"10.0.0.{number}" for number in range(7)]
    config: dict[str, Any] = {
        "window_num": draw(samples),
        "window_size_s": draw(window_seconds),
        "broker_rate": draw(limits),
        "listeners": {name: draw(limits) for name in names},
        "inter_broker_listener": draw(st.sampled_from([None, names[-1]])),
        "default_ip_rate": draw(limits),
        "ip_rates": draw(st.dictionaries(st.sampled_from(ips), limits.filter(lambda limit: limit is not None))),
        "sensor_expiry": True,
    }
    drawn = draw(runs(config["window_num"], 1000 * config["window_size_s"]))
    times = sorted((t, chance.choice(names), chance.choice(ips)) for chance, t, _ in events(drawn, None) if t < 2**45)
    return {
        "id": "drawn",
        "type": "connection",
        "t0_ms": draw(clocks),
        "config": config,
        "events": [list(arrival) for arrival in times],
    }


def changes(draw: st.DrawFn, config: dict[str, Any], found: list[list[Any]], limits: st.SearchStrategy[Any]) -> None:
    """Now and then the quota changes on the way, or goes and comes back."""
    if draw(st.booleans()):
        drawn = draw(st.lists(st.tuples(st.integers(0, len(found) - 1), limits), min_size=1, max_size=6))
        config["quota_changes"] = sorted(([found[index][0], limit] for index, limit in drawn), key=lambda one: one[0])
