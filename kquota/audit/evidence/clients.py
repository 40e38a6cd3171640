"""Which kind of client sent the recorded requests of one connection: what the recording shows, and what it leaves open.

A producer with a schedule keeps its pace whatever the broker answers, and queues while it is muted. A synchronous
client sends, waits for the answer, thinks, and sends again; one that thinks for no time saturates its quota. Both stop
when they stopped. A consumer fetches what has arrived. Times that wander show a client that waits for its answers: a
schedule brings every delay in again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple, Self

import numpy as np

from kquota.audit.batch import JAVA, OTHER_LIBRARY, Int64s
from kquota.core.enforcement.traffic.state import PARTITIONS

PACED: Final = "paced"
SYNCHRONOUS: Final = "synchronous"
SATURATING: Final = "saturating"
CONSUMER: Final = "consumer"

BATCH_BYTES: Final = 16_384
"""`batch.size` of a producer, and about the size of a batch in a backlog."""
BATCH_HEADER: Final = 61
REQUEST_HEADER: Final = 46
"""Of a produce request with one partition and short names, without the client-id."""
FETCH_HEADER: Final = 73
"""Of a fetch response with one partition (`FetchResponse` v12 and later), beside its records."""
PARTITION_BYTES: Final = 1 << 20
"""`max.partition.fetch.bytes`."""
SOCKET_MS: Final = 60_000
"""librdkafka's `socket.timeout.ms`: so long it waits for the answer to a request."""
MESSAGE_BYTES: Final = 1_000_000
"""`message.max.bytes`: librdkafka's requests are not larger."""
EMPTY_BYTES: Final = 150
"""A fetch response of so many bytes may hold no records."""
_LATE_MS: Final = 15
"""How long after its mute a waiting request may be charged."""
_RESTED_MS: Final = 2000
"""A client with a queue sends so much in this time that it is throttled again."""
_SPREAD_MS: Final = 500
_SLOWER: Final = 0.9
"""Who sends at less than this share of its pace before was slowed down."""
_ENOUGH: Final = 20
"""Fewer requests show no kind."""
_AT_ONCE_MS: Final = 100
"""Requests that follow each other so soon may be of records that were sent at once."""
_STEPS: Final = 16
_LONG_MS: Final = 45_000
"""A client that sends without a pause for so long does it by the clock."""
_MADE_UP: Final = -0.1
"""The correlation of gaps that follow each other: about -0.5 by a schedule, 0 and more for a client that waits."""
_BUSY_MS: Final = 20_000
"""So long a client sends back to back between its mutes that it may do so as fast as it can."""
_FULL: Final = 30_000
_PIECE_MS: Final = 10_000
"""The length of a quota window."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Requests of one counter. The columns may be parts of others, and nobody changes them."""

    time: Int64s
    """Epoch ms."""
    size: Int64s
    """Bytes, ns or partitions."""
    connection: Int64s
    throttle: Int64s
    """What the broker answered, ms; less than 0 where that is not known."""
    detail: Int64s
    """The library and the partition, that the request is permissive, or its kind; 0 where that is not known."""

    def __len__(self) -> int:
        return len(self.time)

    def take(self, which: Any) -> Self:
        """Some of the rows: a slice of them, their numbers, or whether to take each."""
        return type(self)(*(getattr(self, field.name)[which] for field in fields(self)))


class Requests(NamedTuple):
    """The recorded requests of one connection to one counter, in time."""

    times: Int64s
    sizes: Int64s
    throttle: Int64s
    """What the broker answered, ms; less than 0 where that is not known."""
    library: int
    """`batch.JAVA`, `batch.OTHER_LIBRARY`, or 0 where that is not known."""
    partitions: Int64s
    """To which partition each produces, as far as that is known; several requests may stand for the same one."""
    answered: bool = True
    """Whether there are answers that a client can wait for: with acks=0 there are none."""


class Guess(NamedTuple):
    """A kind of client that fits, as rows for the simulator."""

    kind: str
    times: Int64s
    sizes: Int64s
    thinks: Int64s
    partitions: Int64s
    why: str
    merge: int = 0
    merge_saves: int = 0
    batch: int = 0
    """Of a Java producer: how much of one partition a request holds at most; `merge` is how much of all."""
    overhead: int = 0
    """Of a consumer: the bytes of a response beside its records; `sizes` are records."""
    max_bytes: int = 0
    """Of a consumer: what one response holds at most."""
    first_bytes: int = 0
    """Of a consumer: its first batch, which comes whole."""
    resends: int = 0
    """In how many requests it sends again what waits when its time-out is over, one for each partition; 0 for never."""

    @property
    def units(self) -> int:
        """All bytes, as they were recorded."""
        return int(self.sizes.sum()) + self.overhead * len(self.sizes)


class Seen(NamedTuple):
    """The kinds that fit one connection, the most probable first."""

    guesses: Sequence[Guess]
    drained: bool
    """Whether its queue was empty again before the recording ended: then it got all that it wanted."""


def producer(requests: Requests) -> Seen:
    """The kinds of producers that fit: one with a schedule, one that waits for its answers, or both."""
    times, sizes, throttle = requests.times, requests.sizes, np.maximum(requests.throttle, 0)
    gaps = np.diff(times)
    muted = throttle[:-1] > 0
    waited = muted & (gaps <= throttle[:-1] + _LATE_MS)
    held_back = bool((throttle > 0).any())
    drained = not held_back or (_rested(times, throttle) and not _slowed(times, requests.sizes, throttle))
    partitions = len(np.unique(requests.partitions))
    queue = Guess(PACED, times, sizes, _never(times), requests.partitions, "requests come at their times")
    if requests.library == JAVA:
        largest, smallest = int(sizes.max()), int(sizes.min())
        saves = min(BATCH_HEADER + REQUEST_HEADER, max(smallest - 1, 0))
        queue = queue._replace(
            partitions=_filled_in_turn(sizes, requests.partitions, saves),
            merge=max(BATCH_BYTES * partitions, largest),
            merge_saves=saves,
            batch=max(BATCH_BYTES, -(-largest // partitions)),
        )
    elif requests.library == OTHER_LIBRARY and requests.answered:
        queue = queue._replace(resends=partitions)
    free = gaps[~muted]
    thinks = _thinks(gaps, waited, free)
    why = "requests come a steady time after the answer before"
    waits = Guess(SYNCHRONOUS, times, sizes, thinks, requests.partitions, why)
    unsized = sizes.max() == 1  # so a request counts whose bytes are not known
    first = int(np.argmax(muted)) if muted.any() else 0
    between = [_at_pace(queue, first) if first >= _ENOUGH else _between_mutes(queue, waited)]
    between = between if held_back and not unsized else []
    if len(times) < _ENOUGH:
        return Seen([queue, *([waits] if unsized else between)], drained)
    eager = waits._replace(kind=SATURATING, thinks=np.minimum(thinks, 0), why="requests come back to back")
    # Of the gaps the least, and the usual one.
    least, typical = np.quantile(free, [0.05, 0.5]).tolist() if len(free) else (0.0, 0.0)
    is_even = _is_even(len(free), least, typical)
    guesses = [queue]
    if held_back:
        overtakes = bool((gaps[muted] < 0.5 * typical).mean() > 0.02) if muted.any() else False
        slack = gaps - throttle[:-1]
        runs = times[-1] - times[0] >= _BUSY_MS and int(slack.max()) < 1000 and (slack <= _LATE_MS).mean() > 0.8
        if runs and typical <= _LATE_MS:
            had_gaps = _had_gaps(gaps, muted)
            guesses = [_at_pace(queue, first), eager] if had_gaps else [eager, queue]
        elif is_even and not overtakes:
            guesses = [*([waits, queue] if _stays_late(times, ~muted) else [queue, waits]), *between]
        else:
            guesses = [queue._replace(why="requests come back to back after a mute"), *between]
            # A queue that grew during a mute goes out at once. Where one request comes, the client may have waited.
            after = gaps[1:][waited[:-1] & ~muted[1:]]
            if not unsized and len(after) and np.median(after) > _LATE_MS:
                guesses.append(waits)
    elif is_even:
        if typical <= _LATE_MS / 5 and times[-1] - times[0] >= _LONG_MS:
            guesses = [eager, queue]
        elif _stays_late(times, ~muted):
            guesses = [waits, queue]
        elif _wanders(times, ~muted) >= 1.5:
            guesses = [queue, waits]
        else:
            guesses = [queue._replace(why="requests keep a schedule")]
    elif least > min(0.1 * typical, _LATE_MS / 5):
        guesses = [queue, waits]
    if not requests.answered:
        guesses = [guess for guess in guesses if guess.kind != SYNCHRONOUS]
    # Without sizes nobody knows whether what waits goes out in one request, or in as many as were recorded.
    elif unsized and all(guess.kind == PACED for guess in guesses):
        guesses.append(waits)
    return Seen(guesses, drained)


def consumer(requests: Requests) -> Seen:
    """The kinds of consumers that fit: what arrived for it, and how much one response holds."""
    throttle = np.maximum(requests.throttle, 0)
    held_back = bool((throttle > 0).any())
    got = throttle == 0
    filled = got & (requests.sizes > EMPTY_BYTES)
    if filled.any():
        got = filled
    if not got.any():
        got[0] = True
    overhead = _overhead(requests.sizes[throttle == 0], int(requests.sizes[got].min()))
    requests = requests._replace(sizes=np.maximum(requests.sizes - overhead, 1))
    times, sizes = requests.times[got], requests.sizes[got]
    largest = int(sizes.max())
    full = sizes >= 0.9 * largest
    late = Guess(
        CONSUMER,
        _there_before(times, sizes),
        sizes,
        _never(times),
        _never(times) + 1,
        "data comes as it was fetched",
        overhead=overhead,
        max_bytes=max(PARTITION_BYTES, largest),
        first_bytes=int(min(np.median(sizes), BATCH_BYTES)),
    )
    guesses = [late]
    drained = not held_back or not bool(throttle[-1] > 0 or (full.sum() >= 3 and full.mean() > 0.5))
    if held_back:
        taken = np.flatnonzero(got)
        before = np.concatenate([[0], taken[:-1]])
        since = requests.times[taken] - requests.times[before]
        spread = _spread(late._replace(times=times), since, taken - before > 1)
        before = np.concatenate([times[:1], times[:-1]])
        early = late._replace(times=before, why="data may have waited since the response before")
        guesses = [early, spread._replace(why="data comes evenly between two responses")]
        why = "what it fetched from one mute to the next may have waited since the first"
        guesses.append(late._replace(times=_lagged(times, requests.times, throttle), why=why))
    # A client processes what it got until its next request, also where that one is throttled and gets nothing.
    rows = np.flatnonzero(got)[:-1]
    gaps = requests.times[rows + 1] - requests.times[rows]
    # One that is muted for most of its time, and gets much whenever it is not, never waits for data.
    muted = 2 * int(throttle.sum()) > int(requests.times[-1] - requests.times[0])
    never_waits = muted and len(gaps) >= _ENOUGH and float(np.median(gaps)) <= _LATE_MS and np.median(sizes) >= _FULL
    if _FULL <= largest < PARTITION_BYTES and full.sum() >= 5 and (full.mean() > 0.5 or never_waits):
        busy = late._replace(
            times=times,
            thinks=np.concatenate([[-1], _processing(gaps)]).astype(np.int64),
            max_bytes=largest,
            why=f"it fetches up to {largest:,} bytes whenever it has processed what it got",
        )
        between = np.diff(times)
        even = len(between) > 0 and _is_even(len(between), *np.quantile(between, [0.05, 0.5]))
        steady = even and _wanders(times, np.ones(len(times) - 1, bool)) < 1.5
        guesses = [guesses[0], busy, *guesses[1:]] if steady else [busy, *guesses]
    elif _FULL <= largest < PARTITION_BYTES and (full[1:] & full[:-1] & (np.diff(times) <= _LATE_MS)).sum() >= 5:
        # What one response left, the next one brought at once.
        capped = f"{guesses[0].why}, up to {largest:,} bytes at once"
        guesses = [guesses[0]._replace(max_bytes=largest, why=capped), *guesses]
    return Seen(guesses, drained)


def resent(guess: Guess, charged_ms: Int64s) -> Guess | None:
    """The requests of a client that gives up its connection when one has waited for SOCKET_MS (librdkafka).

    All that waits then goes out on a new connection, in one request for each partition. `charged_ms` is when each
    request is charged without that. None where no request waits so long.
    """
    if guess.kind != PACED or not guess.resends:
        return None
    late = np.flatnonzero(charged_ms - guess.times > SOCKET_MS)
    if not len(late):
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
        partitions=np.concatenate(
            [guess.partitions[:first], np.arange(parts) % PARTITIONS, guess.partitions[after:]]
        ).astype(np.int64),
    )


def redrawn(guess: Guess, draw: np.random.Generator) -> Guess:
    """The client as it may come the next time: what the recording leaves to chance is drawn again.

    Its pieces of one quota window may come in another order. Data of a consumer may have come at any time since the
    response before. Records that wait go into as many requests as were recorded, or into fuller ones.
    """
    if guess.kind == PACED and len(guess.times) < _ENOUGH:
        guess = _cut_anew(guess, draw)
    times, first = guess.times, int(guess.times[0])
    piece = (times - first + int(draw.integers(_PIECE_MS))) // _PIECE_MS
    order = np.arange(int(piece[-1]) + 1)
    places = np.argsort(np.argsort(order + draw.uniform(0, 2, len(order)), kind="stable"))
    rows = np.argsort(places[piece], kind="stable")
    place = places[piece[rows]]
    moved = times[rows] + (place - piece[rows]) * _PIECE_MS
    moved = np.maximum(moved - max(first - int(moved[0]), 0), first)
    thinks = guess.thinks.copy()
    if len(thinks) > 1 and (thinks[1:] >= 0).all():
        thinks[0] = int(np.median(thinks[1:]))
    thinks = thinks[rows]
    thinks[0] = -1
    if guess.kind == CONSUMER:
        before = np.concatenate([moved[:1], moved[:-1]])
        moved = before + ((moved - before) * draw.uniform()).astype(np.int64)
    drawn = guess._replace(
        times=np.maximum.accumulate(moved).astype(np.int64),
        sizes=guess.sizes[rows],
        thinks=thinks,
        partitions=guess.partitions[rows],
    )
    largest = int(guess.sizes.max())
    if guess.merge and guess.merge > largest:
        full = draw.uniform()
        drawn = drawn._replace(
            merge=int(largest + full * (guess.merge - largest)), batch=int(max(full * guess.batch, 1))
        )
    return drawn


def _cut_anew(guess: Guess, draw: np.random.Generator) -> Guess:
    """The few requests of a producer, where more than one holds was sent at once: its records go into others.

    How many records wait when the first request goes out is chance, and a few requests show no more of it.
    """
    kept, sizes = [], []
    for burst in np.split(np.arange(len(guess.times)), np.flatnonzero(np.diff(guess.times) > _AT_ONCE_MS) + 1):
        shares, count = guess.sizes[burst], len(burst)
        total = int(shares.sum())
        if total > MESSAGE_BYTES and count > 1:
            requests = draw.integers(min(-(-total // MESSAGE_BYTES), count), count, endpoint=True)
            shares = np.diff([0, *np.unique(draw.integers(1, total, requests - 1)), total])
        kept.append(burst[: len(shares)])
        sizes.append(shares)
    columns = {name: getattr(guess, name)[np.concatenate(kept)] for name in ("times", "thinks", "partitions")}
    return guess._replace(sizes=np.concatenate(sizes).astype(np.int64), **columns)


def _filled_in_turn(sizes: Int64s, partitions: Int64s, saves: int) -> Int64s:
    """The partitions of requests that wait, which have a batch header less each (`saves`) than those that went out.

    A producer without keys stays with a partition until it has given it `batch.size` bytes (KIP-480, KIP-794). So more
    records go to each partition in turn while they wait. With keys each record has its own partition.
    """
    starts = np.flatnonzero(np.diff(partitions, prepend=-1))
    if 2 * int(sizes.sum()) < BATCH_BYTES * len(starts):
        return partitions
    filled = np.rint(np.add.reduceat(sizes - REQUEST_HEADER, starts) / BATCH_BYTES).astype(np.int64)
    order = np.repeat(partitions[starts], np.maximum(filled, 1))
    records = sizes - saves
    turns = (np.cumsum(records) - records) // BATCH_BYTES
    in_turn: Int64s = order[np.minimum(turns, len(order) - 1)]
    return in_turn


def _rested(times: Int64s, throttle: Int64s) -> bool:
    """Whether a producer went on sending for a while after its last mute, and was not throttled again.

    A queue that is not empty is sent at once, until the broker throttles again.
    """
    ends = (times + throttle)[throttle > 0]
    return int(times[-1]) - int(ends.max()) >= _RESTED_MS


def _slowed(times: Int64s, sizes: Int64s, throttle: Int64s) -> bool:
    """Whether a producer sent less from its first mute to its last one than before: a queue brings all of it later.

    Then it waited for its answers, or gave up what its queue did not hold.
    """
    first, last = np.flatnonzero(throttle > 0)[[0, -1]]
    if first < _ENOUGH or times[last] - times[first] < _PIECE_MS:
        return False
    before = sizes[:first].sum() / max(times[first] - times[0], 1)
    return bool(sizes[first:last].sum() / (times[last] - times[first]) < _SLOWER * before)


def _at_pace(queue: Guess, muted: int) -> Guess:
    """A queue that was never empty since the request `muted`: its arrivals keep the pace that they had until then.

    The pace is of bytes: a request of what has waited may hold as much as many requests before.
    """
    times, sizes = queue.times, np.maximum(queue.sizes, 1)
    ms_per_byte = (times[muted] - times[0]) / sizes[:muted].sum()
    arrived = np.minimum(times[muted + 1 :], times[muted] + np.floor(sizes[muted + 1 :].cumsum() * ms_per_byte))
    paced = np.concatenate([times[: muted + 1], arrived]).astype(np.int64)
    kept = queue._replace(times=paced, why="requests keep the pace that they had until they were muted")
    # What waited and went out in one request had come in parts.
    whole = (np.arange(len(times)) > muted) & (sizes > sizes[:muted].max())
    return _spread(kept, np.diff(paced, prepend=paced[:1]), whole) if whole.any() else kept


def _never(times: Int64s) -> Int64s:
    """Thinks of requests that come at their times."""
    return np.full(len(times), -1, np.int64)


def _thinks(gaps: Int64s, waited: Any, free: Int64s) -> Int64s:
    """How long after the answer before each request comes; where a mute hides it, one of the times that show."""
    if not waited.any():
        return np.concatenate([[-1], gaps])
    usual = np.zeros(len(gaps), np.int64)
    if len(free):
        # As many of each length, in the order of the recording: what varies must not become even.
        usual[waited] = free[np.arange(int(waited.sum())) * len(free) // max(int(waited.sum()), 1)]
    thinks = np.where(waited, np.minimum(gaps, usual), gaps)
    return np.concatenate([[-1], thinks]).astype(np.int64)


def _is_even(count: int, least: float, typical: float) -> bool:
    """Whether so many gaps have a least length: those that are random, or come in bursts, have none."""
    return count >= _ENOUGH and least >= 0.5 * typical


def _stays_late(times: Int64s, free: Any) -> bool:
    """Whether the times wander, and a late request does not bring the next one nearer.

    A client that waits for its answers is late for good. A schedule makes up for a delay, also on a busy machine whose
    delays come in spells: a long gap is followed by a short one.
    """
    if _wanders(times, free) < 2:
        return False
    gaps = np.diff(times).astype(float)
    gaps = np.clip(gaps, *np.quantile(gaps[free], [0.05, 0.95]))
    both = free[:-1] & free[1:]
    one, next_one = gaps[:-1][both], gaps[1:][both]
    if len(one) < _ENOUGH or not one.std() or not next_one.std():
        return True
    return bool(np.corrcoef(one, next_one)[0, 1] > _MADE_UP)


def _had_gaps(gaps: Int64s, muted: Any) -> bool:
    """Whether a client that is never idle since it was muted for the first time was so before.

    Then it did not send as fast as it could. A queue grew while it was muted, and was never empty again.
    """
    first = int(np.argmax(muted))
    later = gaps[first:][~muted[first:]]
    before = float(np.mean(gaps[:first])) if first >= _ENOUGH else 0.0
    return before > _LATE_MS and before > 4 * (float(np.mean(later)) if len(later) else 0.0)


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


def _lagged(times: Int64s, asked: Int64s, throttle: Int64s) -> Int64s:
    """When data came at the earliest: a backlog may have come at once, and before the mutes that follow each other.

    A consumer that is throttled from the beginning may have had its backlog since before the recording.
    """
    begins, ends = asked[throttle > 0], (asked + throttle)[throttle > 0]
    first = np.flatnonzero(np.concatenate([[True], begins[1:] - ends[:-1] > _PIECE_MS]))
    begins, ends = begins[first], ends[np.append(first[1:], len(ends)) - 1] + _LATE_MS
    if begins[0] - asked[0] < _RESTED_MS:
        begins[0] = times[0]
    spell = np.searchsorted(begins, times, side="right") - 1
    came: Int64s = np.where((spell >= 0) & (times <= ends[spell]), begins[spell], times)
    return came


def _processing(gaps: Int64s) -> Int64s:
    """How long a consumer processes each response, from the time until its next request.

    An idle one asks at once for the response that it keeps in store. Such a gap shows nothing: the usual one counts.
    """
    shown = gaps[gaps > _LATE_MS]
    if 5 * len(shown) < len(gaps):
        return gaps
    processing: Int64s = np.where(gaps > _LATE_MS, gaps, int(np.median(shown)))
    return processing


def _overhead(sizes: Int64s, smallest: int) -> int:
    """The bytes of a response beside its records: those of an empty one, which may leave its partitions out (KIP-227).

    `smallest` is the smallest response with records.
    """
    empty = sizes[sizes <= EMPTY_BYTES]
    overhead = max(int(empty.min()), FETCH_HEADER) if len(empty) else FETCH_HEADER
    return min(overhead, max(smallest - 1, 0))


def _there_before(times: Int64s, sizes: Int64s) -> Int64s:
    """When the data of each response had come at the latest: a full response leaves data that was there already."""
    full = (sizes == sizes.max()) & (sizes >= _FULL)
    follows = np.concatenate([[False], full[:-1]])
    came: Int64s = times[np.maximum.accumulate(np.where(follows, 0, np.arange(len(times))))]
    return came


def _between_mutes(queue: Guess, waited: Any) -> Guess:
    """A producer whose data came evenly while it was muted: what it sent after a mute, and at once after that.

    A higher limit mutes it for less, and lets no such burst grow.
    """
    gaps = np.diff(queue.times, prepend=queue.times[:1])
    muted = np.concatenate([[False], waited])
    rows = np.flatnonzero(muted | (gaps > _LATE_MS) | (gaps.cumsum() == 0))
    sizes = np.add.reduceat(queue.sizes, rows)
    whole = queue._replace(times=queue.times[rows], sizes=sizes, why="data comes evenly during mutes")
    return _spread(whole, gaps[rows], muted[rows])


def _spread(guess: Guess, since: Int64s, muted: Any) -> Guess:
    """The client where what came after a mute had come in parts, evenly over the ms `since` what came before."""
    parts = np.where(muted, np.clip(since // _SPREAD_MS, 1, 1000), 1)
    owners = np.repeat(np.arange(len(since)), parts)
    number = np.arange(len(owners)) - np.repeat(np.cumsum(parts) - parts, parts) + 1
    times = guess.times[owners] - since[owners] * (parts[owners] - number) // parts[owners]
    sizes = guess.sizes[owners]
    shares = sizes * number // parts[owners] - sizes * (number - 1) // parts[owners]
    never = _never(times)
    return guess._replace(times=times, sizes=shares, thinks=never, partitions=never + 1)
