"""Sensors with their limits: the enforcement path as objects, for sequences of events and limits that change.

The connection creation quotas delay for the broker and its listeners, and then reject for the ip. An acceptor thread
first waits until the rates of the broker and of its listener are within their limits, one window at most; then the ip
is looked at, and a connection of an ip above its limit is taken back everywhere and closed. Numbers of connections
(`max.connections` and the like) are not limited here. KIP-612's text checks an ip again after its delay: that was never
shipped (broker and listener since 2.7.0, ip since 2.8.0).

Sources: `ClientQuotaManager` and its subclasses, `StrictControllerMutationQuota`, `PermissiveControllerMutationQuota`
and `ControllerMutationQuotaManager`, `kafka.network.ConnectionQuotas` and `Acceptor`; KIP-13, 55, 124, 219, 599, 612.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from kquota.core.enforcement.arithmetic import INT_MAX, long_to_int, wrap_long
from kquota.core.enforcement.broker import UNLIMITED, Verdict, mutation_delay
from kquota.core.enforcement.counter import NEW
from kquota.core.enforcement.generation import Generation, QuotaWindows
from kquota.core.enforcement.kernel import Kernel, Mode, kernel
from kquota.core.enforcement.kind import CONNECTION, MUTATION, PERMISSIVE
from kquota.core.quotas.quota import Value


class LimitedSensor:
    """A counter with a limit; a limit of None is none at all, and recording goes on.

    A changed limit applies from the next event on; the history stays. By default the sensor runs plain: it needs no
    numba, whose import takes as long as thousands of events. Unless `expires` is false, it starts anew when it recorded
    nothing for more than an hour. That shows in token buckets, and in windows that add up to more. (A broker looks
    every 30 s; here it happens on time.)
    """

    def __init__(
        self,
        limit: Value | None = None,
        *,
        windows: QuotaWindows | None = None,
        generation: Generation = Generation.N_PLUS_1_BY_LAST,
        using: Kernel | None = None,
        expires: bool = True,
    ) -> None:
        self.limit = limit
        self.kernel = using if using is not None else kernel(Mode.PLAIN)
        self.windows = windows if windows is not None else QuotaWindows()
        self.counter = self.kernel.new_counter(self.windows, generation, expires=expires)

    @property
    def limit(self) -> Value | None:
        """What applies, in units per second."""
        return self._limit

    @limit.setter
    def limit(self, limit: Value | None) -> None:
        self._limit = limit
        self.bound = UNLIMITED if limit is None else float(limit)
        """The limit as the statistics compare it: `Long.MAX_VALUE` as a double where there is none."""


class Mutation(NamedTuple):
    """What came of one topic of a request."""

    accepted: bool
    violated: bool
    """Whether tokens were owed; the delay may still round to 0."""
    throttle_ms: int
    """The delay as the raw 32-bit value of an error THROTTLING_QUOTA_EXCEEDED; 0 when nothing was owed."""
    delay_ms: int
    """The same in 64 bits, from which the delay of the response is taken."""
    tokens: float
    """What is left at the time of the event; negative for what is owed."""


class MutationResponse(NamedTuple):
    """What came of one request."""

    topics: tuple[Mutation, ...]
    """One for each topic, in the order of the request."""
    throttle_ms: int
    """The throttle time of this quota alone, as 32 bits of the answer; only a time above 0 mutes the client."""


class MutationSensor(LimitedSensor):
    """Partition mutations (KIP-599); the limit is in partitions per second, the windows are the controller's.

    Strict (CreateTopics v6, CreatePartitions v3, DeleteTopics v5 and later): a topic is rejected, and not charged,
    while tokens are owed; what is accepted is charged in full. Permissive (older versions): everything is accepted and
    charged, and the client is delayed. Rejections are no activity, so an hour without an accepted topic clears any
    debt: the bucket is full again.
    """

    def request(self, now: int, topics: Iterable[int], *, strict: bool, waited_ms: int = 0) -> MutationResponse:
        """A request at `now` (ms) with the number of partitions of each topic, answered `waited_ms` later."""
        self.kernel.wake(self.counter, now)
        kind = MUTATION if strict else PERMISSIVE
        outcomes, left = [], 0
        for partitions in topics:
            verdict = self.kernel.charge_counter(self.counter, kind, now, float(partitions), self.bound)
            delay_ms = 0
            if verdict.violated:
                delay_ms = mutation_delay(verdict.rate, self.bound)
                # Long.MAX_VALUE, from a limit of 0, overflows when the clock was set back; a limit below 0 overflows
                # downwards. Releases with this class in Java (4.3 is one) answer 0 in place of a value that wrapped
                # below it: the same to a client, as only a delay greater than 0 mutes.
                left = max(wrap_long(delay_ms - waited_ms), 0)
            accepted = not (strict and verdict.violated)
            outcomes.append(Mutation(accepted, verdict.violated, verdict.throttle_ms, delay_ms, verdict.rate))
        return MutationResponse(tuple(outcomes), long_to_int(left))

    def measure(self, now: int) -> float:
        """The metric `tokens` at `now` (ms). Reading it refills the bucket at the limit of now, as on a broker."""
        return self.kernel.measure_tokens(self.counter, now, self.bound)


T = TypeVar("T")

UNLIMITED_IP: Final = INT_MAX
"""`IP_CONNECTION_RATE_DEFAULT`: this value of an ip quota means none; its connections are not recorded either."""


class ConnectionSensor(LimitedSensor):
    """Connections; the limit is per second."""

    def connect(self, now: int) -> Verdict:
        """A connection at `now` (ms); it stays recorded."""
        return self.kernel.check(self.counter, CONNECTION, now, 1.0, self.bound)

    def admit(self, now: int) -> Verdict:
        """A connection at `now` (ms), which is taken back when it is delayed."""
        return self.kernel.charge_counter(self.counter, CONNECTION, now, 1.0, self.bound)

    def unrecord(self, now: int) -> None:
        """Takes one connection back at `now` (ms): from the slot of now, which is not always the slot that got it."""
        self.kernel.note(self.counter, CONNECTION, now, -1.0)

    def measure(self, now: int) -> float:
        """The metric of the rate at `now` (ms), per second."""
        return self.kernel.measure(self.counter, now)


class Wait(NamedTuple):
    """How long the acceptor waits with a connection, in ms."""

    broker_ms: int
    """0 for a protected listener."""
    listener_ms: int
    delay_ms: int
    """The larger of the two."""


class Connection(NamedTuple):
    """What came of one connection."""

    start_ms: int
    """When the acceptor took it from the backlog."""
    wait: Wait
    done_ms: int
    """When it was accepted, or parked to be closed: after the wait."""
    ip_ms: int
    """The delay of a rejection, after which the socket is closed; 0 when it was accepted."""

    @property
    def accepted(self) -> bool:
        """Whether the ip was within its limit; what waited is accepted all the same."""
        return self.ip_ms <= 0


def protected_listener(listeners: Collection[str], inter_broker: str | None) -> str | None:
    """The listener whose connections neither count for the broker's own limit nor wait for it; None where all do.

    `listeners` has no listener of a controller: a controller in the same process counts by itself.
    """
    return inter_broker if len(listeners) > 1 and inter_broker in listeners else None


class ConnectionManager:
    """The connection quotas of one broker; limits of None are none at all, and all limits may change at any time.

    `listeners` has the names of all listeners with their limits. The inter-broker listener is protected when it is not
    the only one: it neither counts for the broker nor waits for it, but its own limit and the limits of the ips hold.
    An ip has the limit in `ips`, else `default_ip`; unless `expires` is false, its sensor is dropped after an idle hour
    (that shows only in windows that add up to more).
    """

    def __init__(
        self,
        listeners: Mapping[str, Value | None],
        *,
        broker: Value | None = None,
        inter_broker: str | None = None,
        default_ip: Value | None = None,
        ips: Mapping[str, Value | None] | None = None,
        windows: QuotaWindows | None = None,
        generation: Generation = Generation.N_PLUS_1_BY_LAST,
        using: Kernel | None = None,
        expires: bool = True,
    ) -> None:
        self._windows, self._generation, self._using = windows, generation, using
        self.broker = self._new_sensor(broker)
        """The sensor of the broker."""
        self.listeners = {name: self._new_sensor(limit) for name, limit in listeners.items()}
        """The sensor of each listener."""
        self.default_ip = default_ip
        self.ips = dict(ips or {})
        """The ips with a limit of their own."""
        self._expires = expires
        self.ip_sensors: dict[str, ConnectionSensor] = {}
        """The sensors of the ips that came under a limit so far."""
        self._protected = protected_listener(self.listeners, inter_broker)

    def wait(self, now: int, listener: str) -> Wait:
        """`waitForConnectionSlot`: records a connection taken from the backlog at `now` (ms), without its ip.

        It stays recorded, whatever the delay.
        """
        broker_ms = 0 if listener == self._protected else self.broker.connect(now).throttle_ms
        listener_ms = self.listeners[listener].connect(now).throttle_ms
        return Wait(broker_ms, listener_ms, max(broker_ms, listener_ms))

    def admit(self, now: int, listener: str, ip: str) -> int:
        """`recordIpConnectionMaybeThrottle`: the ip, at `now` (ms), the time after the wait.

        Returns 0 for a connection that is accepted, else the ms after which its socket is closed: then it is taken back
        from the ip, the broker and the listener.
        """
        limit = self.ips.get(ip, self.default_ip)
        if limit is None or limit == UNLIMITED_IP:
            return 0
        ip_sensor = self.ip_sensors.get(ip)
        if ip_sensor is None:
            ip_sensor = self.ip_sensors[ip] = self._new_sensor(None, expires=self._expires)
        ip_sensor.limit = limit
        delay = ip_sensor.admit(now).throttle_ms
        if delay > 0:
            if listener != self._protected:
                self.broker.unrecord(now)
            self.listeners[listener].unrecord(now)
        return delay

    def ip_rate(self, ip: str, now: int) -> float:
        """The metric `connection-accept-rate` of an ip at `now` (ms), per second; 0 for one that is not recorded."""
        sensor = self.ip_sensors.get(ip)
        return 0.0 if sensor is None else sensor.measure(now)

    def _new_sensor(self, limit: Value | None, *, expires: bool = False) -> ConnectionSensor:
        return ConnectionSensor(
            limit, windows=self._windows, generation=self._generation, using=self._using, expires=expires
        )


_WAKE_UP: Final = 0
_ACCEPT: Final = 1


class Step(NamedTuple, Generic[T]):
    """One step of an acceptor thread with a connection."""

    listener: str
    subject: T
    """The caller's name for the connection."""
    now_ms: int
    wait: Wait
    begins: bool
    """Whether the thread takes the connection from its backlog; false at the end of its wait."""
    outcome: Connection | None
    """None while the thread waits: another step follows."""


class Acceptors(Generic[T]):
    """The acceptor threads of a broker: one a listener, each takes one connection after the other from its backlog.

    Connections may be added between any two steps. At the same ms, who waited goes before who accepts, and then
    listeners go in the manager's order: one takes all that is there, until it has to wait, before a later one gets its
    turn. (On a broker the threads race for a lock.)
    """

    def __init__(self, manager: ConnectionManager) -> None:
        self._manager = manager
        self._backlogs: dict[str, list[tuple[int, int, str, T]]] = {name: [] for name in manager.listeners}
        """By listener, what has not begun: (when it arrives, how many were added before it, ip, subject)."""
        self._waiting: dict[str, tuple[int, Wait, str, T]] = {}
        """By listener, the connection that its thread waits with: (since when, how long, ip, subject)."""
        self._free_ms = dict.fromkeys(manager.listeners, NEW)
        self._added = 0

    def add(self, time_ms: int, listener: str, ip: str, subject: T) -> None:
        """Puts a connection into the backlog; of two at the same ms the first one that was added goes first."""
        heapq.heappush(self._backlogs[listener], (time_ms, self._added, ip, subject))
        self._added += 1

    def _due(self) -> Iterator[tuple[int, int, int, str]]:
        """(when, which step, number of the listener, listener): the steps of all threads are taken in this order."""
        for number, (listener, backlog) in enumerate(self._backlogs.items()):
            if listener in self._waiting:
                begun, wait, _, _ = self._waiting[listener]
                yield begun + wait.delay_ms, _WAKE_UP, number, listener
            elif backlog:
                yield max(backlog[0][0], self._free_ms[listener]), _ACCEPT, number, listener

    @property
    def due_ms(self) -> int | None:
        """When the next step is due; None when no connection is left."""
        return min((due[0] for due in self._due()), default=None)

    def step(self) -> Step[T]:
        """Takes the next step. Raises ValueError when no connection is left."""
        now, which, _, listener = min(self._due())
        if which == _WAKE_UP:
            start, wait, ip, subject = self._waiting.pop(listener)
        else:
            _, _, ip, subject = heapq.heappop(self._backlogs[listener])
            start, wait = now, self._manager.wait(now, listener)
            if wait.delay_ms > 0:
                self._waiting[listener] = now, wait, ip, subject
                return Step(listener, subject, now, wait, True, None)
        self._free_ms[listener] = now
        outcome = Connection(start, wait, now, self._manager.admit(now, listener, ip))
        return Step(listener, subject, now, wait, which == _ACCEPT, outcome)
