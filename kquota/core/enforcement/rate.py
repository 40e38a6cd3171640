"""The windowed rate of Kafka's quota sensors: `Rate` over `SampledStat` and `WindowedSum`, in both generations.

A slot covers the first event after the previous slot was over and what follows within one window: slots are not aligned
to a clock, and there are none for silent times. They are kept in the order of their creation. A slot that is dropped is
reset, not removed. Times are ms of the broker's clock. They may go backwards, as a clock that is set back does: the
results stay Kafka's.
"""

from kquota.core.enforcement.arithmetic import LONG_MAX, LONG_MIN
from kquota.core.enforcement.compilable import compilable, inlined
from kquota.core.enforcement.counter import LAST, START, SUM, Counter, State, load, store


@inlined
def recorded(counter: Counter, state: State, value: float, now: int) -> State:
    """`SampledStat.record`: adds to the current slot, or to the next one when the window of the current one is over.

    Recording drops nothing. A negative value takes back: it goes to the current slot and prolongs that one's life.
    """
    _, count, current, oldest, purge_at, head = state
    ints, floats = counter.ints, counter.floats
    if count == 0 or now - ints[START + 2 * current] >= counter.window_ms:
        if count > 0:
            current += 1
            if current == len(floats) - 1:  # behind the slots is HEAD
                current = 0
        if current >= count:
            count = current + 1
        ints[START + 2 * current] = now
        floats[SUM + current] = 0.0
        purge_at = LONG_MIN
    floats[SUM + current] += value
    ints[LAST + 2 * current] = now
    if counter.by_last and now + counter.samples * counter.window_ms < purge_at:  # the clock was set back
        purge_at = now + counter.samples * counter.window_ms
    return now, count, current, oldest, purge_at, head


@compilable
def walk(counter: Counter, count: int, current: int, now: int) -> tuple[int, int, float]:
    """`purgeObsoleteSamples`: resets every slot that is N windows old; such a slot starts anew at `now`.

    Returns what is kept about all slots: OLDEST, PURGE_AT and HEAD.
    """
    ints, floats = counter.ints, counter.floats
    keep = counter.samples * counter.window_ms
    oldest = LONG_MAX
    aging = LONG_MAX
    head = 0.0
    for slot in range(count):
        since = ints[LAST + 2 * slot] if counter.by_last else ints[START + 2 * slot]
        if now - since >= keep:
            ints[START + 2 * slot] = now
            ints[LAST + 2 * slot] = now
            floats[SUM + slot] = 0.0
            since = now
        aging = min(aging, since)
        oldest = min(oldest, ints[START + 2 * slot])
        if slot < current:
            head += floats[SUM + slot]
    return oldest, aging + keep, head


@inlined
def observed(counter: Counter, state: State, now: int) -> tuple[int, float, State]:
    """`Rate.windowSize` in ms, and the sum of all slots within it; slots that are too old are dropped first.

    The window begins at the oldest start; missing windows up to N-1 count as if they were empty. The sum is added in
    slot order, as Kafka does it: in doubles, another order is another sum.
    """
    last, count, current, oldest, purge_at, head = state
    ints, floats = counter.ints, counter.floats
    if count == 0:  # SampledStat.oldest makes a first sample
        ints[START] = now
        ints[LAST] = now
        floats[SUM] = 0.0
        count = 1
        purge_at = LONG_MIN
    if now >= purge_at:
        oldest, purge_at, head = walk(counter, count, current, now)
    elapsed = now - oldest
    # (N-1 - elapsed div W) windows are missing; in a steady flow none is, and the division is saved.
    if elapsed < (counter.samples - 1) * counter.window_ms or elapsed < 0:
        full = elapsed // counter.window_ms if elapsed >= 0 else -(-elapsed // counter.window_ms)  # Java truncates
        elapsed += (counter.samples - 1 - full) * counter.window_ms
    total = head
    for slot in range(current, count):
        total += floats[SUM + slot]
    return elapsed if elapsed > 1 else 1, total, (last, count, current, oldest, purge_at, head)


@compilable
def measure(counter: Counter, now: int) -> float:
    """`Rate.measure` in units per second. It drops old slots: on a broker, reading a metric changes what follows."""
    window_ms, total, state = observed(counter, load(counter), now)
    store(counter, state)
    return total / (window_ms / 1000.0)
