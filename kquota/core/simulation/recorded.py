"""Runs recorded clients through the simulator: what the clients of each counter meet under other limits."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from kquota.core.enforcement import UNLIMITED, Generation, Kernel, MutationSensor, QuotaWindows
from kquota.core.enforcement.kernel import as_list, as_rows, set_field
from kquota.core.enforcement.kind import FETCH
from kquota.core.enforcement.traffic.state import BEGIN, DONE, NONE, Connection, Traffic
from kquota.core.simulation.members import members_of
from kquota.core.simulation.rows import Rows
from kquota.core.simulation.workload import Workload

NEAR: Final = 0.9
"""A counter below this share of its limit throttles nobody, here or in a real run."""
LONGEST_MS: Final = 86_400_000
"""What is not delivered by then counts as never delivered."""


@dataclass(frozen=True, slots=True)
class Met:
    """What the recorded clients of one counter met in one run."""

    throttled: int
    """Requests with a throttle time."""
    throttle_ms: int
    """The sum of their throttle times, until everything was delivered; each is the longest of several counters'."""
    throttle_max_ms: int
    muted_ms: int
    """How long the busiest connection was muted in the recorded time."""
    delivered: int
    """Units delivered in the recorded time."""
    left: int
    """Units that waited at the end of the recorded time."""
    done_ms: int | None
    """When the last unit was delivered, ms since the start; None where some never were."""
    throttles: bool | None = None
    """Whether the counter itself, and no other of its clients, caused a throttle time; None where it nearly did."""
    early_ms: int = 0
    """The sum of the throttle times in the recorded time."""
    at_most_ms: int = 0
    """The throttle time if each client were muted all the time, until everything was delivered or the run ended."""
    waited_ms: tuple[int, ...] = ()
    """The longest wait of a request from its arrival to its charge, of each client."""
    peak_rate: float | None = None
    """The highest rate that a request was checked at, in the unit of the counter; None where it was not measured."""


class Ran(NamedTuple):
    """A run of recorded clients."""

    met: list[Met]
    """What the clients of each counter met."""
    charged_ms: Sequence[int]
    """When each recorded request was charged, epoch ms; -1 for never, and for those that went out with a later one."""


class Charged(NamedTuple):
    """The counters of one recorded client, by their numbers; NONE where it has none."""

    bytes: int = NONE
    time: int = NONE
    """The counter of thread time."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A counter of recorded clients."""

    limits: Sequence[tuple[int, float | None]]
    """(since, limit) in order, epoch ms and units per second; None is no limit."""
    begin_ms: int
    """Its first recorded request, epoch ms."""
    end_ms: int
    """The end of its recorded time."""


def run_recorded(
    workload: Workload,
    counters: Sequence[Counted],
    charged: Sequence[Charged],
    *,
    generation: Generation,
    using: Kernel,
) -> Ran:
    """Runs clients with given requests until everything is delivered.

    `charged` are the counters of each client. A client with two counters waits for the longer of their throttle times.
    The workload's duration is the recorded time, and its first client comes first.
    """
    traffic = Rows(workload, generation, using).traffic(members_of(workload), len(counters), 0)
    set_field(traffic.connections, "load_sensor", [numbers.bytes for numbers in charged])
    set_field(traffic.connections, "request_sensor", [numbers.time for numbers in charged])
    accounts = [
        _Account(counter, number, [row for row, numbers in enumerate(charged) if number in numbers], charged)
        for number, counter in enumerate(counters)
    ]
    origin = workload.origin_ms
    connections = as_rows(Connection, traffic.connections)
    horizon = max(account.horizon_ms(traffic, connections) for account in accounts)
    changes = {since for counter in counters for since, _ in counter.limits if origin < since < horizon}
    stops = sorted({*(counter.end_ms for counter in counters), horizon, *changes})
    _set_limits(traffic, counters, origin)
    using.run_traffic(traffic, BEGIN)
    for since, until in zip([origin, *stops], stops, strict=False):
        _set_limits(traffic, counters, since)
        using.run_traffic(traffic, until)
        if ended := [account for account in accounts if account.counter.end_ms == until]:
            connections = as_rows(Connection, traffic.connections)
            for account in ended:
                account.settle(traffic, connections)
    using.end_traffic(traffic)
    connections = as_rows(Connection, traffic.connections)
    return Ran([account.met(traffic, connections, horizon) for account in accounts], traffic.given.charged)


class _Account:
    """What the clients of one counter meet in the recorded time, and after it."""

    def __init__(self, counter: Counted, number: int, rows: Sequence[int], charged: Sequence[Charged]) -> None:
        self.counter = counter
        self._number = number
        self._rows = rows
        """Its clients, by their numbers."""
        self._timed = any(charged[row].time == number for row in rows)
        self._delivered = self._left = self._early_ms = self._muted_ms = 0

    def horizon_ms(self, traffic: Traffic, connections: Sequence[Connection]) -> int:
        """When everything is delivered, at the latest."""
        column = traffic.given.nanos if self._timed else traffic.given.sizes
        clients = [connections[row] for row in self._rows]
        total = sum(sum(as_list(column[client.given_next : client.given_end])) for client in clients)
        scale = 1e7 if self._timed else 1.0  # a percent of a thread is so many ns a second
        least = _lowest(self.counter.limits) * scale
        return self.counter.end_ms + min(60_000 + int(3000 * total / least), LONGEST_MS)

    def settle(self, traffic: Traffic, connections: Sequence[Connection]) -> None:
        """Takes what came of the clients up to the end of the recorded time."""
        clients, end = [connections[row] for row in self._rows], self.counter.end_ms
        self._delivered = sum(client.nanos_charged if self._timed else client.delivered_units for client in clients)
        self._left = sum(_left(traffic, client, timed=self._timed) for client in clients)
        self._early_ms = sum(client.throttle_ms for client in clients)
        self._muted_ms = max(client.throttle_ms - max(client.muted - end, 0) for client in clients)

    def met(self, traffic: Traffic, connections: Sequence[Connection], horizon: int) -> Met:
        """What they met when all is over, at the `horizon`."""
        clients, account = [connections[row] for row in self._rows], traffic.sensors.accounts[self._number]
        waits = any(client.waiting_units > 0 for client in clients)
        last = horizon if waits else max(client.delivered_ms for client in clients)
        length, peak = max(last - self.counter.begin_ms, 0), float(account.peak)
        return Met(
            sum(client.throttled for client in clients),
            sum(client.throttle_ms for client in clients),
            max(client.max_ms for client in clients),
            self._muted_ms,
            self._delivered,
            self._left,
            None if waits else length,
            throttles(account.throttled, peak, self.counter.limits),
            self._early_ms,
            length * len(clients),
            tuple(client.waited for client in clients),
            peak,
        )


def _set_limits(traffic: Traffic, counters: Sequence[Counted], time_ms: int) -> None:
    """Sets the limits that hold at a time; before them all the first ones."""
    for number, counter in enumerate(counters):
        holding = [limit for since, limit in counter.limits if since <= time_ms] or [counter.limits[0][1]]
        traffic.sensors.accounts[number].bound = UNLIMITED if holding[-1] is None else holding[-1]


def throttles(throttled: int, peak: float, limits: Sequence[tuple[int, float | None]]) -> bool | None:
    """Whether a counter throttles that did so to so many requests, and reached a rate of `peak` at most.

    None where it came near its lowest limit: a real run would not be the same.
    """
    if throttled:
        return True
    return None if peak >= NEAR * _lowest(limits) else False


def _lowest(limits: Sequence[tuple[int, float | None]]) -> float:
    """The lowest limit that lets anything through; 1 where there is none."""
    return min((limit for _, limit in limits if limit is not None and limit > 0), default=1.0)


def _left(traffic: Traffic, client: Connection, *, timed: bool) -> int:
    """The units that have arrived and are not delivered; a client that waits for its answers leaves none."""
    given, start, end = traffic.given, client.given_next, client.given_end
    if given.thinks[end - 1] >= 0:
        return 0
    columns = (given.charged[start:end], (given.nanos if timed else given.sizes)[start:end])
    waits: int = sum(value for charged, value in zip(*map(as_list, columns), strict=True) if charged < 0)
    if timed:
        return waits
    if traffic.behaviours[client.behaviour].kind == FETCH:
        return client.pending + (client.given_size if client.arrived != DONE else 0) + waits
    return client.offered_units - client.delivered_units + waits


LATENCY_MS: Final = 1
"""From the end of a throttle time to the next request of its client."""
_HORIZON: Final = 4
"""A run ends after so many times the time that its limit takes for all partitions."""


class Mutating(NamedTuple):
    """One recorded request."""

    time_ms: int
    """When its client sent it, epoch ms."""
    topics: tuple[int, ...]
    """The partitions of each topic, in the order of the charges."""
    strict: bool
    """Whether topics are rejected; else all are accepted, and the connection is muted."""


def run_mutations(
    requests: Sequence[Mutating], limit: float, recorded_ms: int, *, windows: QuotaWindows, retries: bool
) -> Met:
    """Runs the requests of one client, in time, which sends none while it is muted.

    With `retries` it sends rejected topics again when their throttle time is over, as Java's admin client does; else
    they are lost. A limit is in partitions per second.
    """
    sensor = MutationSensor(windows=windows)
    sensor.bound = limit
    first = requests[0].time_ms
    end = first + recorded_ms
    total = sum(sum(request.topics) for request in requests)
    horizon = end + min(60_000 + int(_HORIZON * 1000 * total / max(limit, 1e-3)), LONGEST_MS)
    answers: list[tuple[int, int, int]] = []
    """(when, throttle time, partitions that were accepted) of each answer."""
    # Of one moment what was rejected goes first: (due, since when it waits, number, topics).
    due = [(request.time_ms, request.time_ms, number, request.topics) for number, request in enumerate(requests)]
    heapify(due)
    free = left = 0
    while due:
        at, since, number, topics = heappop(due)
        if free > at:
            heappush(due, (free, since, number, topics))
            continue
        if at > horizon:
            left += sum(topics)
            continue
        strict = requests[number].strict
        answer = sensor.request(at, topics, strict=strict)
        delay = max(answer.throttle_ms, 0)
        accepted = sum(size for size, topic in zip(topics, answer.topics, strict=True) if topic.accepted)
        rejected = tuple(size for size, topic in zip(topics, answer.topics, strict=True) if not topic.accepted)
        answers.append((at, delay, accepted))
        # Not at once: a throttle time is rounded, and what comes too early is rejected once more, with a wait of 0.
        free = at + delay + LATENCY_MS if delay or rejected else at
        if rejected and retries:
            heappush(due, (free, since, number, rejected))
    delays = [delay for _, delay, _ in answers if delay]
    early = [answer for answer in answers if answer[0] <= end]
    delivered = sum(accepted for _, _, accepted in early)
    return Met(
        len(delays),
        sum(delays),
        max(delays, default=0),
        sum(min(at + delay, end) - at for at, delay, _ in early),
        delivered,
        max(sum(sum(request.topics) for request in requests if request.time_ms <= end) - delivered, 0),
        None if left else max((at - first for at, _, accepted in answers if accepted), default=None),
    )
