"""A counter of a broker as a value: one row of whole numbers and one of floats.

`Counters` is a table of them, `Counter` one row of it with its settings. Every statistic of Kafka's quotas fits into a
row: the windowed rate takes all of it (`rate`), the token bucket its first slot (`token_bucket`).
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from kquota.core.enforcement.arithmetic import LONG_MAX
from kquota.core.enforcement.compilable import compilable, inlined
from kquota.core.enforcement.generation import Generation, QuotaWindows
from kquota.core.enforcement.kind import MUTATION

SENSOR_EXPIRY_MS: Final = 3_600_000
"""`InactiveSensorExpirationTimeSeconds`: a quota sensor is dropped when it recorded nothing for longer than this."""
FOREVER_MS: Final = 1 << 61
"""The expiry of a sensor that is never dropped."""
NEW: Final = -(1 << 62)
"""The RECORDED of a counter that was never charged: longer ago than any expiry."""

START: Final = 0
"""Whole numbers of a row: the start of the first slot, ms; those of the others are every second number after it."""
LAST: Final = 1
"""The time of the last event in the first slot, ms; likewise."""
RECORDED: Final = -5
"""When the counter last recorded, ms; of a bucket also when it was made. From here on counted from the row's end."""
COUNT: Final = -4
"""How many slots exist."""
CURRENT: Final = -3
"""The slot that takes the next event."""
OLDEST: Final = -2
"""The earliest start of all slots."""
PURGE_AT: Final = -1
"""No slot is old enough to be dropped before this time; LONG_MIN after a slot was opened: then a walk is due."""
SUM: Final = 0
"""Floats of a row: the sum of the first slot; the others follow."""
HEAD: Final = -1
"""The sum of the slots before the current one, in their order; counted from the row's end."""

State: TypeAlias = tuple[int, int, int, int, int, float]
"""RECORDED to PURGE_AT and HEAD. A loop keeps these in local variables, which processors keep in registers."""


class Counter(NamedTuple):
    """One counter: the settings of its statistic and the state in its row."""

    samples: int
    window_ms: int
    by_last: bool
    """Whether the age of a slot counts from its last event (Kafka 3.8 and later)."""
    expiry_ms: int
    """How long it may record nothing and is still kept; FOREVER_MS for ever."""
    longest_ms: int
    """What a delay without another cap is cut to."""
    ints: MutableSequence[int]
    floats: MutableSequence[float]


class Counters(NamedTuple):
    """Counters of brokers with equal settings, a row each."""

    samples: int
    """`quota.window.num`, of all counters but those of mutations."""
    window_ms: int
    by_last: bool
    controller_samples: int
    """`controller.quota.window.num`, of the counters of mutations."""
    controller_window_ms: int
    expiry_ms: int
    longest_ms: int
    ints: Sequence[MutableSequence[int]]
    floats: Sequence[MutableSequence[float]]


def new_counters(
    rows: int,
    windows: QuotaWindows,
    generation: Generation,
    table: Callable[[int, int, str], Any],
    controller: QuotaWindows | None = None,
    *,
    expires: bool = True,
) -> Counters:
    """That many new counters, in the kind of tables that `table` makes; `controller` has the windows of mutations."""
    of_mutations = controller if controller is not None else windows
    slots = generation.slots(windows.samples)
    ints = table(rows, 2 * slots + 5, "int64")
    for row in ints:
        row[RECORDED] = NEW
        row[OLDEST] = LONG_MAX
        row[PURGE_AT] = LONG_MAX
    return Counters(
        windows.samples,
        windows.window_ms,
        generation.by_last,
        of_mutations.samples,
        of_mutations.window_ms,
        SENSOR_EXPIRY_MS if expires else FOREVER_MS,
        generation.longest_ms,
        ints,
        table(rows, slots + 1, "float64"),
    )


@compilable
def counter_of(counters: Counters, row: int, kind: int) -> Counter:
    """The counter of a row, which is of that kind."""
    mutates = kind >= MUTATION
    return Counter(
        counters.controller_samples if mutates else counters.samples,
        counters.controller_window_ms if mutates else counters.window_ms,
        counters.by_last,
        counters.expiry_ms,
        counters.longest_ms,
        counters.ints[row],
        counters.floats[row],
    )


@inlined
def load(counter: Counter) -> State:
    """The part of the state that a loop keeps in local variables."""
    ints = counter.ints
    return ints[RECORDED], ints[COUNT], ints[CURRENT], ints[OLDEST], ints[PURGE_AT], counter.floats[HEAD]


@inlined
def store(counter: Counter, state: State) -> None:
    """Puts it back."""
    ints = counter.ints
    ints[RECORDED], ints[COUNT], ints[CURRENT], ints[OLDEST], ints[PURGE_AT], counter.floats[HEAD] = state


@inlined
def awake(counter: Counter, state: State, now: int) -> State:
    """The state that an event at `now` (ms) meets: after more than an idle hour, the state of a new counter.

    A broker looks for idle sensors every 30 s; here they are dropped on time. A broker drops a sensor of any kind, but
    only windows of more than an hour and token buckets show it.
    """
    if now - state[0] <= counter.expiry_ms:
        return state
    counter.ints[START] = 0
    counter.floats[SUM] = 0.0
    return now, 0, 0, LONG_MAX, LONG_MAX, 0.0


@compilable
def wake(counter: Counter, now: int) -> None:
    """Makes the counter ready for an event at `now` (ms): `ClientQuotaManager.getOrCreateQuotaSensors`."""
    store(counter, awake(counter, load(counter), now))
