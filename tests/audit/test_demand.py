"""The seconds of counters, as they are counted during a replay, are those of a plain count."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from kquota.audit.ledger import demand
from kquota.audit.ledger.charge import Charger
from kquota.audit.ledger.demand import measured
from kquota.audit.ledger.replay import Replay
from kquota.audit.ledger.rows import CounterRef, Ledger
from kquota.audit.settings import AuditSettings, Question, together
from kquota.core.change.history import QuotaHistory
from kquota.core.enforcement.broker import UNLIMITED
from kquota.core.enforcement.generation import QuotaWindows
from kquota.core.enforcement.kernel import Mode, kernel
from kquota.core.enforcement.kind import FETCH, PRODUCE, REQUEST
from kquota.core.findings.demand import Cell, Measured, estimate
from kquota.core.findings.recommendation import Scope, unlimited
from kquota.core.quotas.quota import QuotaKey
from kquota.core.resolve.resolver import Resolver
from tests.audit import oracle
from tests.audit.oracle import Event
from tests.core.test_demand import bin_of
from tests.support.enforcement import replay_counter
from tests.support.scheduling import examples

KINDS = {QuotaKey.PRODUCER_BYTE_RATE: PRODUCE, QuotaKey.CONSUMER_BYTE_RATE: FETCH, QuotaKey.REQUEST_PERCENTAGE: REQUEST}
BYTES = {"produce": QuotaKey.PRODUCER_BYTE_RATE, "fetch": QuotaKey.CONSUMER_BYTE_RATE}


class Charge(NamedTuple):
    """An event at one counter."""

    event: Event
    limit: float
    delay: int
    rate: float


def charges(events: Sequence[Event], audit: AuditSettings) -> dict[CounterRef, list[Charge]]:
    """What every event met at each of its counters, of all variants."""
    found: dict[CounterRef, list[tuple[Event, float]]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event.time_ms):
        for variant, history in enumerate(audit.variants):
            for key in (QuotaKey.REQUEST_PERCENTAGE, *([BYTES[event.api]] if event.api in BYTES else [])):
                resolution = Resolver.of(history.at(event.time_ms), key).resolve(event.user, event.client_id)
                if resolution.limit is not None:
                    counter = CounterRef(variant, event.broker, key, str(resolution.sensor))
                    found[counter].append((event, float(resolution.limit)))
    charged = {}
    for counter, mine in found.items():
        using = kernel(Mode.PLAIN)
        times = [event.time_ms for event, _ in mine]
        thread_time = counter.key is QuotaKey.REQUEST_PERCENTAGE
        values = [float(event.request_ns if thread_time else event.bytes) for event, _ in mine]
        delays, rates = [0] * len(mine), [0.0] * len(mine)
        limits = [limit for _, limit in mine]
        replay_counter(
            KINDS[counter.key],
            times,
            values,
            None,
            windows=audit.windows,
            generation=audit.generation,
            event_limits=limits,
            delays=delays,
            rates=rates,
            using=using,
        )
        charged[counter] = [Charge(*row) for row in zip(*zip(*mine, strict=True), delays, rates, strict=True)]
    return charged


def expected(events: Sequence[Event], audit: AuditSettings, told: bool) -> dict[CounterRef, Measured]:
    """The plain count; `told` is whether the export has the brokers' own throttle times."""
    charged = charges(events, audit)
    met: dict[tuple[object, ...], int] = defaultdict(int)
    for counter, rows in charged.items():
        for row in rows:
            if row.limit < UNLIMITED:
                name = (counter.key, row.event.broker, row.event.user, row.event.client_id, row.event.time_ms)
                met[name] = max(met[name], row.delay)
    assert audit.question is not None
    found = {}
    for counter, rows in charged.items():
        measured = rows[0].limit >= UNLIMITED
        others = KINDS if counter.key is QuotaKey.REQUEST_PERCENTAGE else (counter.key, QuotaKey.REQUEST_PERCENTAGE)
        seconds: dict[int, tuple[float, bool, int]] = {}
        for row in rows:
            event = row.event
            held = row.delay
            if measured:
                names = [(key, event.broker, event.user, event.client_id, event.time_ms) for key in others]
                held = event.throttle_ms if told else max(met[name] for name in names)
            before = seconds.get(event.time_ms // audit.windows.window_ms, (0.0, False, 0))
            until = event.time_ms + held if held > 0 else 0
            seconds[event.time_ms // audit.windows.window_ms] = (
                max(before[0], row.rate),
                before[1] or held > 0,
                max(before[2], until),
            )
        found[counter] = count(seconds, measured, audit, audit.question)
    return found


def count(
    seconds: dict[int, tuple[float, bool, int]], measured: bool, audit: AuditSettings, question: Question
) -> Measured:
    """Seconds by number, with (rate, throttled, muted until), as the collector tells of them."""
    second_ms = audit.windows.window_ms
    back_ms = audit.windows.samples * second_ms
    muted_to = active = throttled = 0
    counted: Counter[tuple[int, int, bool]] = Counter()
    numbers = sorted(seconds)
    for place, number in enumerate(numbers):
        rate, hit, until = seconds[number]
        muted_to = max(muted_to, until)
        begin = number * second_ms
        silent = 0
        if measured and place + 1 < len(numbers):
            silent = sum(second * second_ms < muted_to for second in range(number + 1, numbers[place + 1]))
        active += 1 + silent
        throttled += hit + silent
        block = begin // demand.BLOCK_MS
        counted[block, bin_of(rate), muted_to > 0 and begin < muted_to + back_ms] += 1
        if silent:
            wait = max(0, muted_to - begin - second_ms)
            counted[block, bin_of(rate * back_ms / (back_ms + wait)), True] += silent
    cells = [Cell(block, one, 0 if held else many, many if held else 0) for (block, one, held), many in counted.items()]
    share, confidence = question.max_throttled, question.confidence
    peak = max(rate for rate, _, _ in seconds.values())
    told = estimate(cells, share, confidence, audit.windows.samples, peak) if measured else None
    return Measured(active, throttled, peak, told)


def measure(
    parts: Sequence[Sequence[Event]], audit: AuditSettings, buckets: int, told: bool
) -> dict[CounterRef, Measured]:
    """The same by the audit, without an engine."""
    assert audit.question is not None
    charger = Charger(audit)
    ledgers: dict[int, list[Ledger]] = defaultdict(list)
    for number, part in enumerate(parts):
        batch = oracle.batch(part)
        charger.charge(batch if told else replace(batch, throttle_ms=None))
        for ledger in charger.take((number, 0)):
            for bucket, mine in ledger.parted(buckets):
                ledgers[bucket].append(mine)
    found: dict[CounterRef, Measured] = {}
    for each in ledgers.values():
        replayed = Replay(each, audit)
        found |= {replayed.refs[number]: one for number, one in measured(replayed, audit.question)}
    return found


@given(
    events=oracle.event_lists(),
    in_force=oracle.quota_histories(),
    scope=st.sampled_from(Scope),
    default_only=st.booleans(),
    told=st.booleans(),
    cuts=st.lists(st.integers(0, 120), max_size=4),
    buckets=st.integers(1, 5),
    windows=st.builds(QuotaWindows, st.integers(1, 11), st.integers(1, 2)),
)
@settings(max_examples=examples(60), deadline=None)
def test_equals_a_plain_count(
    events: list[Event],
    in_force: QuotaHistory,
    scope: Scope,
    default_only: bool,
    told: bool,
    cuts: list[int],
    buckets: int,
    windows: QuotaWindows,
) -> None:
    """However the events are cut, wherever the counters go, whether the export or the replay tells who was muted."""
    lifted = unlimited(in_force, scope, tuple(KINDS), default_only=default_only)
    audit = AuditSettings(
        quotas=in_force,
        against=lifted,
        windows=windows,
        per_client=True,
        question=Question(0.05, 0.9),
        together=together(in_force, lifted),
    )
    places = sorted({0, *(min(cut, len(events)) for cut in cuts), len(events)})
    parts = [events[first:last] for first, last in itertools.pairwise(places)]
    found = measure(parts, audit, buckets, told)

    # In the export's order for events of one moment, as it is cut: `expected` has them in the order of the list.
    assert found == expected(events, audit, told)
