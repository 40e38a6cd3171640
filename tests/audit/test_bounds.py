"""The bounds against the kernel: requests placed at random, and at the edges, never contradict them."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kquota.audit.evidence.bounds import Window, of_gauge, of_totals
from kquota.core.enforcement import Generation, Kind, Mode, QuotaWindows, kernel
from tests.core.enforcement.strategies import START, generations

PLAIN = kernel(Mode.PLAIN)
small_windows = st.builds(QuotaWindows, st.sampled_from([1, 2, 3, 5, 11]), st.sampled_from([1, 2]))

Event = tuple[int, int]
"""(time, amount)."""


def delays(
    events: Sequence[Event], reads: Sequence[int], limit: float, windows: QuotaWindows, generation: Generation
) -> list[tuple[int, int]]:
    """(time, delay) of each request as produce requests of that limit, with the metric read after them."""
    rate = PLAIN.new_counter(windows, generation)
    found = []
    for time, is_read, amount in sorted([(t, 1, 0) for t in reads] + [(t, 0, a) for t, a in events]):
        if is_read:
            PLAIN.measure(rate, time)
        else:
            found.append((time, PLAIN.charge_counter(rate, Kind.PRODUCE, time, amount, limit).throttle_ms))
    return found


def throttled(
    events: Sequence[Event], reads: Sequence[int], limit: float, windows: QuotaWindows, generation: Generation
) -> bool:
    return any(delay > 0 for _, delay in delays(events, reads, limit, windows, generation))


def gauge(events: Sequence[Event], reads: Sequence[int], windows: QuotaWindows, generation: Generation) -> list[float]:
    """What readings at these times show, each after the requests of its moment."""
    rate = PLAIN.new_counter(windows, generation)
    found = []
    for time, is_read, amount in sorted([(t, 1, 0) for t in reads] + [(t, 0, a) for t, a in events]):
        if is_read:
            found.append(PLAIN.measure(rate, time))
        else:
            PLAIN.charge_counter(rate, Kind.PRODUCE, time, amount, math.inf)
    return found


@st.composite
def traffic(draw: st.DrawFn) -> list[Event]:
    """Requests with silences and edges of windows in between; most are small, some are bursts."""
    gaps = draw(
        st.lists(
            st.one_of(
                st.integers(0, 50),
                st.integers(0, 3000),
                st.sampled_from([1, 999, 1000, 1001, 1999, 10_000, 10_999, 11_000, 11_001, 12_000]),
            ),
            min_size=1,
            max_size=60,
        )
    )
    sizes = st.one_of(st.integers(0, 3), st.integers(0, 1000), st.integers(0, 100_000))
    times = START + np.cumsum(gaps)
    return [(int(time), draw(sizes)) for time in times]


reading_gaps = st.lists(
    st.one_of(st.integers(1, 2000), st.sampled_from([500, 1000, 5000, 10_000, 11_000])), min_size=1, max_size=40
)


SHRINKING = [(START, 1), (START + 999, 1), *((START + 1000 * n, 0) for n in range(1, 11)), (START + 11_998, 1000)]


def just_below(rate: float) -> float:
    """A limit that a rate of `rate` violates."""
    return rate * (1 - 1e-12)


@given(traffic(), st.integers(0, 30_000), reading_gaps, small_windows, generations)
# A slot with next to nothing in it is dropped between the last request and a reading: the window shrinks by a sixth.
@example(SHRINKING, 0, [12_000], QuotaWindows(), Generation.N_PLUS_1_BY_LAST)
def test_a_gauge_bounds_the_checks(
    events: list[Event], first: int, gaps: list[int], windows: QuotaWindows, generation: Generation
) -> None:
    """A limit below the lower bound throttles; one at the upper bound does not."""
    reads = [int(time) for time in START + np.cumsum([first, *gaps])]
    events = [event for event in events if event[0] <= reads[-1]]
    shown = np.array(gauge(events, reads, windows, generation))

    bounds = of_gauge(np.array(reads), shown, Window.of(windows, generation), exact=True)

    assert bounds.least <= bounds.most
    if bounds.least > 0:
        assert throttled(events, reads, just_below(bounds.least), windows, generation)
    if 0 < bounds.most < math.inf:
        done = delays(events, reads, bounds.most, windows, generation)
        assert [delay for time, delay in done if time > reads[0] and delay > 0] == []


def test_the_rate_rises_between_requests() -> None:
    """No check met what the reading shows, so the reading alone proves nothing."""
    windows, generation = QuotaWindows(), Generation.N_PLUS_1_BY_LAST
    (shown,) = gauge(SHRINKING, [START + 12_000], windows, generation)

    assert shown == 100.0
    assert not throttled(SHRINKING, [], 84.0, windows, generation)


@st.composite
def intervals(draw: st.DrawFn) -> tuple[list[int], list[Event]]:
    """(the edges of neighbouring intervals, requests in them): at their edges and anywhere."""
    lengths = draw(
        st.one_of(
            st.lists(st.sampled_from([1000, 10_000, 15_000, 60_000]).map(int), min_size=1, max_size=6).map(
                lambda found: [found[0]] * len(found)
            ),
            st.lists(st.integers(1, 30_000), min_size=1, max_size=6),
        )
    )
    edges = [int(edge) for edge in START + np.cumsum([0, *lengths])]
    moment = st.one_of(
        st.integers(edges[0], edges[-1] - 1),
        st.sampled_from(edges[:-1]),
        st.sampled_from([edge - 1 for edge in edges[1:]]),
    )
    sizes = st.one_of(st.integers(0, 3), st.integers(0, 1000), st.integers(0, 100_000))
    return edges, sorted(draw(st.lists(st.tuples(moment, sizes), min_size=1, max_size=40)))


def totals(edges: Sequence[int], events: Sequence[Event]) -> list[float]:
    """What was charged in each interval."""
    return [float(sum(a for t, a in events if begin <= t < end)) for begin, end in pairwise(edges)]


@given(intervals(), st.lists(st.integers(0, 100_000), max_size=5), small_windows, generations)
def test_totals_bound_the_checks(
    placed: tuple[list[int], list[Event]], reads: list[int], windows: QuotaWindows, generation: Generation
) -> None:
    """However the totals are placed inside, and whenever the metric is read."""
    edges, events = placed
    sums = totals(edges, events)

    bounds = of_totals(
        np.array(edges[:-1]), np.array(edges[1:]), np.array(sums), Window.of(windows, generation), whole=True
    )

    scrapes = [START + time for time in reads]
    assert bounds.least <= bounds.most
    if bounds.least > 0:
        assert throttled(events, scrapes, just_below(bounds.least), windows, generation)
    if bounds.most > 0:
        assert not throttled(events, scrapes, bounds.most, windows, generation)


@st.composite
def careful(draw: st.DrawFn) -> tuple[list[Event], QuotaWindows, Generation]:
    """A client that sends as much as it may at each request: as near to the lower bound as requests come."""
    windows, generation = draw(small_windows), draw(generations)
    rate, now = PLAIN.new_counter(windows, generation), START
    step = windows.window_ms
    events = []
    for _ in range(draw(st.integers(1, 60))):
        now += draw(st.sampled_from([1, step - 1, step, step + 1, step * windows.samples - 1, step * windows.samples]))
        observed = PLAIN.check(rate, Kind.PRODUCE, now, 0.0, math.inf)
        room = math.floor((1000 - observed.rate) * observed.window_ms / 1000.0)
        amount = draw(st.sampled_from([0, 1, max(room, 0), max(room, 0)]))
        PLAIN.note(rate, Kind.PRODUCE, now, float(amount))
        events.append((now, amount))
    return events, windows, generation


@given(careful(), st.sampled_from([1000, 10_000, 60_000, 300_000]))
def test_a_client_that_uses_all_it_may_is_within_the_bounds(
    sent: tuple[list[Event], QuotaWindows, Generation], length: int
) -> None:
    """Bursts in stretched windows pass a limit whose mean they exceed; the bounds allow for them."""
    events, windows, generation = sent
    rate = PLAIN.new_counter(windows, generation)
    peak = max(PLAIN.charge_counter(rate, Kind.PRODUCE, time, amount, math.inf).rate for time, amount in events)
    edges = list(range(START, events[-1][0] + length + 1, length))

    bounds = of_totals(
        np.array(edges[:-1]),
        np.array(edges[1:]),
        np.array(totals(edges, events)),
        Window.of(windows, generation),
        whole=True,
    )

    assert bounds.least <= peak <= bounds.most


@pytest.mark.parametrize(
    ("gap", "exact"), [(12_000, True), (5000, False)], ids=["further apart than a window", "times are not readings"]
)
def test_what_is_unseen_is_not_excluded(gap: int, exact: bool) -> None:
    """There is no upper bound then."""
    window = Window.of(QuotaWindows(), Generation.N_PLUS_1_BY_LAST)

    bounds = of_gauge(np.array([START, START + gap]), np.array([1.0, 1.0]), window, exact=exact)

    assert bounds.most == math.inf


def test_totals_with_holes_exclude_nothing() -> None:
    """Unless nothing was charged elsewhere."""
    window = Window.of(QuotaWindows(), Generation.N_PLUS_1_BY_LAST)
    minute = np.array([START]), np.array([START + 60_000]), np.array([1.0])

    assert of_totals(*minute, window, whole=False).most == math.inf
    assert of_totals(*minute, window, whole=True).most == pytest.approx(0.1)
