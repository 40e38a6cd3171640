"""Which kind of client sent the recorded requests of one connection: what the recording shows, and what it leaves open.

A producer with a schedule keeps its pace whatever the broker answers, and queues while it is muted. A synchronous
client sends, waits for the answer, thinks, and sends again; one that thinks for no time saturates its quota. Both stop
when they stopped. A consumer fetches what has arrived. Times that wander show a client that waits for its answers: a
schedule brings every delay in again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from kquota.audit.batch import JAVA, OTHER_LIBRARY, Int64s

PACED: Final = "paced"
SYNCHRONOUS: Final = "synchronous"
SATURATING: Final = "saturating"
CONSUMER: Final = "consumer"

BATCH_BYTES: Final = 16_384
"""`batch.size` of a producer, and about the size of a batch in a backlog."""
BATCH_HEADER: Final = 61
REQUEST_HEADER: Final = 46
"""Of a produce request with one partition and short names, without the client-id."""
PARTITION_BYTES: Final = 1 << 20
"""`max.partition.fetch.bytes`."""
SOCKET_MS: Final = 60_000
"""librdkafka's `socket.timeout.ms`: so long it waits for the answer to a request."""
MESSAGE_BYTES: Final = 1_000_000
"""`message.max.bytes`: librdkafka's requests are not larger."""
_EMPTY_BYTES: Final = 150
"""A fetch response of so many bytes may hold no records."""
_LATE_MS: Final = 15
"""How long after its mute a waiting request may be charged."""
_RESTED_MS: Final = 2000
"""A client with a queue sends so much in this time that it is throttled again."""
_SPREAD_MS: Final = 500
_ENOUGH: Final = 20
"""Fewer requests show no kind."""
_STEPS: Final = 16
_LONG_MS: Final = 45_000
"""A client that sends without a pause for so long does it by the clock."""
_FULL: Final = 30_000


class Requests(NamedTuple):
    """The recorded requests of one connection to one counter, in time."""

    times: Int64s
    sizes: Int64s
    throttle: Int64s
    """What the broker answered, ms; less than 0 where that is not known."""
    library: int
    """`batch.JAVA`, `batch.OTHER_LIBRARY`, or 0 where that is not known."""
    partitions: int = 1
    """To how many it was seen to produce."""
    answered: bool = True
    """Whether there are answers that a client can wait for: with acks=0 there are none."""


class Guess(NamedTuple):
    """A kind of client that fits, as rows for the simulator."""

    kind: str
    times: Int64s
    sizes: Int64s
    thinks: Int64s
    why: str
    merge: int = 0
    merge_saves: int = 0
    max_bytes: int = 0
    """Of a consumer: what one response holds at most."""
    first_bytes: int = 0
    """Of a consumer: its first batch, which comes whole."""
    resends: int = 0
    """In how many requests it sends again what waits when its time-out is over, one for each partition; 0 for never."""


class Seen(NamedTuple):
    """The kinds that fit one connection, the most probable first."""

    guesses: Sequence[Guess]
    held_back: bool
    """Whether the broker delayed it."""
    drained: bool
    """Whether its queue was empty again before the recording ended: then it got all that it wanted."""


def producer(requests: Requests) -> Seen:
    """The kinds of producers that fit."""
    times, sizes, throttle = requests.times, requests.sizes, np.maximum(requests.throttle, 0)
    gaps = np.diff(times)
    muted = throttle[:-1] > 0
    waited = muted & (gaps <= throttle[:-1] + _LATE_MS)
    held_back = bool((throttle > 0).any())
    drained = not held_back or _rested(times, throttle)
    merge, saves = 0, 0
    if requests.library == JAVA:
        merge = max(BATCH_BYTES * requests.partitions, int(sizes.max()))
        saves = min(BATCH_HEADER + REQUEST_HEADER, max(int(sizes.min()) - 1, 0))
    queue = Guess(PACED, times, sizes, _never(times), "requests come at their times", merge, saves)
    if requests.library == OTHER_LIBRARY and requests.answered:
        queue = queue._replace(resends=requests.partitions)
    free = gaps[~muted]
    early = queue._replace(times=_early(times, waited), why="requests may have waited since their client was muted")
    waiting = [early] if (early.times != times).any() else []
    if len(times) < _ENOUGH:
        return Seen([queue, *waiting], held_back, drained)
    thinks = _thinks(gaps, waited, free)
    waits = Guess(SYNCHRONOUS, times, sizes, thinks, "requests come a steady time after the answer before")
    # The slowest answers may be those of a busy broker: a client that thinks least wants most.
    quickest = int(np.quantile(free, 0.1)) if len(free) else 0
    eager = waits._replace(thinks=np.minimum(thinks, quickest))
    guesses = [queue]
    if held_back:
        typical = float(np.median(free)) if len(free) else 0.0
        overtakes = bool((gaps[muted] < 0.5 * typical).mean() > 0.02) if muted.any() else False
        slack = gaps - throttle[:-1]
        runs = times[-1] - times[0] >= _LONG_MS and int(slack.max()) < 1000 and (slack <= _LATE_MS).mean() > 0.8
        if runs and typical <= _LATE_MS:
            kind = SATURATING
            now = np.minimum(thinks, 0)
            guesses = [waits._replace(kind=kind, thinks=now, why="requests come back to back from the start"), queue]
        elif len(free) >= _ENOUGH and not overtakes and _is_even(free) and _wanders(times, ~muted) >= 2:
            guesses = [waits, queue, eager]
        elif len(free) >= _ENOUGH and not overtakes and _is_even(free):
            guesses = [queue, waits]
        else:
            guesses = [queue._replace(why="requests come back to back after a mute")]
        guesses += waiting
    elif _is_even(free):
        wanders = _wanders(times, ~muted)
        if float(np.median(free)) <= _LATE_MS / 5 and times[-1] - times[0] >= _LONG_MS:
            now = np.minimum(thinks, 0)
            guesses = [waits._replace(kind=SATURATING, thinks=now, why="requests come back to back"), queue]
        elif wanders >= 2:
            guesses = [waits, queue, eager]
        elif wanders >= 1.5:
            guesses = [queue, waits]
        else:
            guesses = [queue._replace(why="requests keep a schedule")]
    elif float(np.quantile(free, 0.05)) > 0.1 * float(np.median(free)):
        guesses = [queue, waits]
    if not requests.answered:
        guesses = [guess for guess in guesses if guess.kind != SYNCHRONOUS] or [queue]
    return Seen(guesses, held_back, drained)


def consumer(requests: Requests) -> Seen:
    """The kinds of consumers that fit: what arrived for it, and how much one response holds."""
    throttle = np.maximum(requests.throttle, 0)
    held_back = bool((throttle > 0).any())
    got = throttle == 0
    filled = got & (requests.sizes > _EMPTY_BYTES)
    if filled.any():
        got = filled
    times, sizes = requests.times[got], requests.sizes[got]
    if not len(times):
        times, sizes = requests.times[:1], np.maximum(requests.sizes[:1], 1)
    first = int(min(np.median(sizes), BATCH_BYTES))
    largest = int(sizes.max())
    full = sizes >= 0.9 * largest
    late = Guess(
        CONSUMER,
        times,
        sizes,
        _never(times),
        "data comes as it was fetched",
        0,
        0,
        max(PARTITION_BYTES, largest),
        first,
    )
    guesses = [late]
    drained = not held_back or not bool(throttle[-1] > 0 or (full.sum() >= 3 and full.mean() > 0.5))
    if held_back:
        spread_times, spread_sizes = _spread(requests, got)
        spread = late._replace(times=spread_times, sizes=spread_sizes, thinks=_never(spread_times))
        before = np.concatenate([times[:1], times[:-1]])
        early = late._replace(times=before, why="data may have waited since the response before")
        guesses = [early, spread._replace(why="data comes evenly between two responses"), late]
    # A client processes what it got until its next request, also where that one is throttled and gets nothing.
    rows = np.flatnonzero(got)[:-1]
    gaps = requests.times[rows + 1] - requests.times[rows]
    # One that is muted for most of its time, and gets much whenever it is not, never waits for data.
    muted = 2 * int(throttle.sum()) > int(requests.times[-1] - requests.times[0])
    never_waits = muted and len(gaps) >= _ENOUGH and float(np.median(gaps)) <= _LATE_MS and np.median(sizes) >= _FULL
    if _FULL <= largest < PARTITION_BYTES and full.sum() >= 5 and (full.mean() > 0.5 or never_waits):
        busy = late._replace(
            thinks=np.concatenate([[-1], gaps]).astype(np.int64),
            max_bytes=largest,
            why=f"it fetches up to {largest:,} bytes whenever it has processed what it got",
        )
        steady = _is_even(np.diff(times)) and _wanders(times, np.ones(len(times) - 1, bool)) < 1.5
        guesses = [*guesses, busy] if steady else [busy, *guesses]
    return Seen(guesses, held_back, drained)


def resent(guess: Guess, charged_ms: Int64s) -> Guess | None:
    """The requests of a client that gives up its connection when one has waited for SOCKET_MS (librdkafka).

    All that waits then goes out on a new connection, in one request for each partition. `charged_ms` is when each
    request is charged without that. None where no request waits so long.
    """
    late = np.flatnonzero(charged_ms - guess.times > SOCKET_MS)
    if guess.kind != PACED or not guess.resends or not len(late):
        return None
    first = int(late[0])
    gives_up = int(guess.times[first]) + SOCKET_MS
    after = int(np.searchsorted(guess.times, gives_up, side="right"))
    waiting = guess.sizes[first:after]
    saves = min(BATCH_HEADER + REQUEST_HEADER, max(int(waiting.min()) - 1, 0))
    size = int(waiting.sum()) - saves * (len(waiting) - 1)
    parts = max(min(guess.resends, len(waiting)), -(-size // MESSAGE_BYTES))
    sizes = np.diff(np.arange(parts + 1) * size // parts)
    times = np.concatenate([guess.times[:first], np.full(parts, gives_up), guess.times[after:]])
    return guess._replace(
        times=times.astype(np.int64),
        sizes=np.concatenate([guess.sizes[:first], sizes, guess.sizes[after:]]).astype(np.int64),
        thinks=_never(times),
    )


def _rested(times: Int64s, throttle: Int64s) -> bool:
    """Whether a producer went on sending for a while after its last mute, and was not throttled again.

    A queue that is not empty is sent at once, until the broker throttles again.
    """
    ends = (times + throttle)[throttle > 0]
    return int(times[-1]) - int(ends.max()) >= _RESTED_MS


def _never(times: Int64s) -> Int64s:
    """Thinks of requests that come at their times."""
    return np.full(len(times), -1, np.int64)


def _thinks(gaps: Int64s, waited: Any, free: Int64s) -> Int64s:
    """How long after the answer before each request comes; where a mute hides it, the usual time."""
    usual = int(np.median(free)) if len(free) else 0
    thinks = np.where(waited, np.minimum(gaps, usual), gaps)
    return np.concatenate([[-1], thinks]).astype(np.int64)


def _is_even(free: Int64s) -> bool:
    """Whether the gaps have a least length: what is random, or comes in bursts, has none."""
    return len(free) >= _ENOUGH and float(np.quantile(free, 0.05)) >= 0.5 * float(np.median(free))


def _wanders(times: Int64s, free: Any) -> float:
    """How much more the time of several requests varies than that of one: about 1 by a schedule, 4 without one."""
    edges = np.flatnonzero(np.concatenate([[True], ~free, [True]]))
    lengths = np.diff(edges)
    longest = int(lengths.argmax())
    run = times[edges[longest] : edges[longest] + lengths[longest]]
    if len(run) < 3 * _STEPS:
        return 1.0

    def spread(steps: int) -> float:
        distances = (run[steps:] - run[:-steps]).astype(float)
        off = np.abs(distances - np.median(distances))
        return float(np.minimum(off, np.quantile(off, 0.9)).mean()) + 0.3

    return spread(_STEPS) / spread(1)


def _early(times: Int64s, waited: Any) -> Int64s:
    """The earliest that each request can have come: the beginning of the queue that it waited in."""
    starts = np.where(np.concatenate([[False], waited]), 0, np.arange(len(times)))
    early: Int64s = times[np.maximum.accumulate(starts)]
    return early


def _spread(requests: Requests, got: Any) -> tuple[Int64s, Int64s]:
    """What came after a mute in parts, evenly over the time since the response before."""
    rows = np.flatnonzero(got)
    if not len(rows):
        return requests.times[:1], np.maximum(requests.sizes[:1], 1)
    before = np.concatenate([[rows[0] if rows[0] == 0 else 0], rows[:-1]])
    since = requests.times[rows] - requests.times[before]
    muted = rows - before > 1
    parts = np.where(muted, np.clip(since // _SPREAD_MS, 1, 1000), 1)
    owners = np.repeat(np.arange(len(rows)), parts)
    number = np.arange(len(owners)) - np.repeat(np.cumsum(parts) - parts, parts) + 1
    times = requests.times[rows][owners] - since[owners] * (parts[owners] - number) // parts[owners]
    sizes = requests.sizes[rows][owners]
    shares = sizes * number // parts[owners] - sizes * (number - 1) // parts[owners]
    return times.astype(np.int64), shares.astype(np.int64)
