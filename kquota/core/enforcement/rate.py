"""The windowed rate of Kafka's quota sensors: `Rate` over `SampledStat` and `WindowedSum`, in both generations.

Times are ms of the broker's clock. They may go backwards, as a clock that is set back does: the results stay Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from typing import Any, Final, NamedTuple

from kquota.core.enforcement.arithmetic import LONG_MAX, LONG_MIN
from kquota.core.enforcement.compilable import compilable, inlined
from kquota.core.enforcement.generation import Generation, QuotaWindows


class Rate(NamedTuple):
    """The state of one statistic; `starts`, `lasts` and `sums` are the slots in the order of their creation.

    A slot covers the first event after the previous slot was over and what follows within one window: slots are not
    aligned to a clock, and there are none for silent times. A slot that is dropped is reset, not removed.
    """

    samples: int
    window_ms: int
    by_last: bool
    starts: MutableSequence[int]
    lasts: MutableSequence[int]
    """The time of the last event; only the newer generation looks at it."""
    sums: MutableSequence[float]
    marks: MutableSequence[int]
    """COUNT, CURRENT, and the two that save the walk over all slots at each event: OLDEST, PURGE_AT."""
    head: MutableSequence[float]
    """The sum of the slots before the current one, in their order; [0] only."""


COUNT: Final = 0
"""How many slots exist."""
CURRENT: Final = 1
"""The slot that takes the next event."""
OLDEST: Final = 2
"""The earliest start of all slots."""
PURGE_AT: Final = 3
"""No slot is old enough to be dropped before this time; LONG_MIN after a slot was opened: then a walk is due."""


def new_rate(windows: QuotaWindows, generation: Generation, column: Callable[[Sequence[Any], str], Any]) -> Rate:
    """An empty statistic in the kind of sequences that `column` makes."""
    slots = generation.slots(windows.samples)
    return Rate(
        windows.samples,
        windows.window_ms,
        generation.by_last,
        column([0] * slots, "int64"),
        column([0] * slots, "int64"),
        column([0.0] * slots, "float64"),
        column([0, 0, LONG_MAX, LONG_MAX], "int64"),
        column([0.0], "float64"),
    )


@compilable
def clear(rate: Rate) -> None:
    """Forgets everything, as if the sensor were new."""
    rate.marks[COUNT] = 0
    rate.marks[CURRENT] = 0
    rate.marks[OLDEST] = LONG_MAX
    rate.marks[PURGE_AT] = LONG_MAX
    rate.head[0] = 0.0


@compilable
def reset_slot(rate: Rate, slot: int, now: int) -> None:
    """`Sample.reset`."""
    rate.starts[slot] = now
    rate.lasts[slot] = now
    rate.sums[slot] = 0.0


@compilable
def open_slot(rate: Rate, slot: int, now: int) -> None:
    """Makes a slot, new or used before, the current one."""
    reset_slot(rate, slot, now)
    rate.marks[CURRENT] = slot
    if slot >= rate.marks[COUNT]:
        rate.marks[COUNT] = slot + 1
    rate.marks[PURGE_AT] = LONG_MIN


@inlined
def record(rate: Rate, value: float, now: int) -> None:
    """`SampledStat.record`: adds to the current slot, or to the next one when the window of the current one is over.

    Recording drops nothing. A negative value takes back: it goes to the current slot and prolongs that one's life.
    """
    current = rate.marks[CURRENT]
    if rate.marks[COUNT] == 0:
        open_slot(rate, 0, now)
    elif now - rate.starts[current] >= rate.window_ms:
        current += 1
        if current == len(rate.starts):
            current = 0
        open_slot(rate, current, now)
    rate.sums[current] += value
    rate.lasts[current] = now
    if rate.by_last and now + rate.samples * rate.window_ms < rate.marks[PURGE_AT]:  # the clock was set back
        rate.marks[PURGE_AT] = now + rate.samples * rate.window_ms


@compilable
def walk(rate: Rate, now: int) -> None:
    """Resets the slots that are old enough, and computes anew what is kept about all of them."""
    keep = rate.samples * rate.window_ms
    current = rate.marks[CURRENT]
    oldest = LONG_MAX
    aging = LONG_MAX
    head = 0.0
    for slot in range(rate.marks[COUNT]):
        since = rate.lasts[slot] if rate.by_last else rate.starts[slot]
        if now - since >= keep:
            reset_slot(rate, slot, now)
            since = now
        aging = min(aging, since)
        oldest = min(oldest, rate.starts[slot])
        if slot < current:
            head += rate.sums[slot]
    rate.marks[OLDEST] = oldest
    rate.marks[PURGE_AT] = aging + keep
    rate.head[0] = head


@inlined
def purge(rate: Rate, now: int) -> None:
    """`purgeObsoleteSamples`: resets every slot that is N windows old; such a slot starts anew at `now`."""
    if now >= rate.marks[PURGE_AT]:
        walk(rate, now)


@inlined
def window(rate: Rate, now: int) -> int:
    """`Rate.windowSize` in ms: since the oldest start, with missing windows up to N-1 counted as if they were empty."""
    if rate.marks[COUNT] == 0:  # SampledStat.oldest makes a first sample
        open_slot(rate, 0, now)
    purge(rate, now)
    elapsed = now - rate.marks[OLDEST]
    # (N-1 - elapsed div W) windows are missing; in a steady flow none is, and the division is saved.
    if elapsed < (rate.samples - 1) * rate.window_ms or elapsed < 0:
        full = elapsed // rate.window_ms if elapsed >= 0 else -(-elapsed // rate.window_ms)  # Java truncates
        elapsed += (rate.samples - 1 - full) * rate.window_ms
    return elapsed if elapsed > 1 else 1


@inlined
def total(rate: Rate) -> float:
    """The sum of all slots, added in slot order as Kafka does: in doubles, another order is another sum."""
    sum_ = rate.head[0]
    for slot in range(rate.marks[CURRENT], rate.marks[COUNT]):
        sum_ += rate.sums[slot]
    return sum_


@compilable
def measure(rate: Rate, now: int) -> float:
    """`Rate.measure` in units per second. It drops old slots: on a broker, reading a metric changes what follows."""
    window_ms = window(rate, now)
    return total(rate) / (window_ms / 1000.0)
