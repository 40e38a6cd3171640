"""Enforcement as the laws and the vectors have it: single requests, one counter's events, clients of a manager."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from kquota.core.enforcement import (
    UNLIMITED,
    Acceptors,
    ConnectionManager,
    Generation,
    Kernel,
    Mode,
    QuotaWindows,
    kernel,
)
from kquota.core.enforcement.broker import Throttle, Verdict
from kquota.core.enforcement.kind import FETCH, PRODUCE, REQUEST
from kquota.core.enforcement.replay import Events, Summaries
from kquota.core.enforcement.sensors import Connection, LimitedSensor
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, Value
from kquota.core.quotas.static import NO_STATIC_QUOTAS, StaticQuotas
from kquota.core.resolve.resolver import CLIENT_ID_ENABLED, Resolution, Resolver, Sensor, enabled_mask


class ProduceSensor(LimitedSensor):
    """Produced bytes."""

    def produce(self, now: int, size: int) -> Verdict:
        """A request of `size` bytes, answered at `now` (ms)."""
        return self.kernel.charge_counter(self.counter, PRODUCE, now, float(size), self.bound)


class FetchSensor(LimitedSensor):
    """Fetched bytes."""

    def fetch(self, now: int, size: int) -> Verdict:
        """A response of `size` bytes at `now` (ms); taken back when it is delayed."""
        return self.kernel.charge_counter(self.counter, FETCH, now, float(size), self.bound)

    @property
    def max_fetch_bytes(self) -> int:
        """What one fetch may return at most, before the client's own maximum and the broker's."""
        return self.kernel.max_fetch_bytes(self.bound, self.windows.samples, self.windows.window_seconds)


class RequestSensor(LimitedSensor):
    """Thread time; the limit is in percent of one thread. Exempt requests do not come here."""

    def request(self, now: int, nanos: int) -> Verdict:
        """Request-handler time of a request that is answered at `now` (ms)."""
        return self.kernel.charge_counter(self.counter, REQUEST, now, float(nanos), self.bound)

    def network(self, now: int, nanos: int) -> None:
        """Network-thread time, recorded without a check after the response was sent."""
        self.kernel.note(self.counter, REQUEST, now, float(nanos))


def produce_with_request(
    bandwidth: ProduceSensor, requests: RequestSensor, now: int, size: int, nanos: int, acks: int
) -> Throttle:
    """A produce request under both quotas. The two sensors run on the same kernel."""
    return _charge_request(PRODUCE, bandwidth, requests, now, size, nanos, timed=acks != 0)


def fetch_with_request(bandwidth: FetchSensor, requests: RequestSensor, now: int, size: int, nanos: int) -> Throttle:
    """A consumer's fetch under both quotas. The two sensors run on the same kernel."""
    return _charge_request(FETCH, bandwidth, requests, now, size, nanos, timed=True)


def _charge_request(
    kind: int, bandwidth: LimitedSensor, requests: LimitedSensor, now: int, size: int, nanos: int, *, timed: bool
) -> Throttle:
    counters = bandwidth.counter, bandwidth.bound, requests.counter, requests.bound
    return bandwidth.kernel.charge_request(kind, *counters, now, float(size), float(nanos), True, timed)[2]


class Summary(NamedTuple):
    """A row of `Summaries`."""

    throttled: int
    violated: int
    total_ms: int
    max_ms: int
    first_ms: int
    last_ms: int
    peak_rate: float
    peak_ms: int


def summary_of(summaries: Summaries, row: int) -> Summary:
    """One of them, in Python's own numbers."""
    whole = [int(column[row]) for column in summaries]
    return Summary(*whole)._replace(peak_rate=float(summaries.peak_rate[row]))


Column: TypeAlias = Any
"""Integers or floats by index: a sequence, or an array where a caller has one."""


def replay_counter(
    kind: int,
    times: Column,
    values: Column,
    limit: float | None,
    *,
    windows: QuotaWindows,
    generation: Generation,
    checked: Column | None = None,
    event_limits: Column | None = None,
    delays: Column | None = None,
    rates: Column | None = None,
    using: Kernel | None = None,
) -> Summary:
    """Replays one counter; a limit of None is none at all, and `event_limits` stand in place of `limit`.

    `delays` and `rates` (of the kernel's own kind: lists, or arrays) receive the raw delay and the observed rate of
    every event.
    """
    chosen = kernel(Mode.AUTO) if using is None else using
    out = chosen.new_summaries(1)
    events = Events(
        chosen.column([0], "int64"),
        chosen.column([kind], "int8"),
        chosen.column([UNLIMITED if limit is None else float(limit)], "float64"),
        chosen.column([0, len(times)], "int64"),
        chosen.column(times, "int64"),
        chosen.column(values, "float64"),
    )
    chosen.replay_many(
        chosen.new_counters(1, windows, generation),
        events,
        out,
        chosen.column([] if checked is None else checked, "bool"),
        chosen.column([] if event_limits is None else event_limits, "float64"),
        chosen.column([0] * len(times), "int64") if delays is None else delays,
        chosen.column([0.0] * len(times), "float64") if rates is None else rates,
        chosen.column([False] * len(times), "bool"),
    )
    return summary_of(out, 0)


S = TypeVar("S", bound=LimitedSensor)


class Charge(NamedTuple, Generic[S]):
    """Where the usage of a client goes."""

    identity: Sensor
    sensor: S


class ClientQuotaManager(Generic[S]):
    """One quota key of one broker: who has which quota, and the sensors of the clients seen so far.

    Sensors keep their history while quotas change. A client that a change moves to another sensor finds that one empty,
    or as it was left. As on a broker before KAFKA-19282, a kind of entity once configured is remembered after its last
    removal: that decides which sensor is whose. `empty_client_id`: whether an empty client-id has the limits of
    client-ids, as before Kafka 2.0.
    """

    def __init__(
        self,
        key: QuotaKey,
        new_sensor: Callable[[], S],
        values: Mapping[Entity, Value] | None = None,
        static: StaticQuotas = NO_STATIC_QUOTAS,
        *,
        empty_client_id: bool = False,
    ) -> None:
        self.key = key
        self._empty_client_id = empty_client_id
        self._new_sensor = new_sensor
        self._static = static
        self._values: dict[Entity, Value] = {}
        self._mask = CLIENT_ID_ENABLED if key in static.values else 0
        self._sensors: dict[Sensor, S] = {}
        self._resolver: Resolver | None = None
        self._resolutions: dict[tuple[str, str], Resolution] = {}
        for entity, value in (values or {}).items():
            self.update(entity, value)

    @property
    def mask(self) -> int:
        """`quotaTypesEnabled`: the kinds of entity ever configured."""
        return self._mask

    def update(self, entity: Entity, value: Value | None) -> None:
        """Sets the quota of an entity, or removes it; it applies from the next event on."""
        self._mask |= enabled_mask({entity: value})
        if value is None:
            self._values.pop(entity, None)
        else:
            self._values[entity] = value
        self._resolver = None
        self._resolutions.clear()

    def resolve(self, user: str, client_id: str) -> Resolution:
        """What governs that client now."""
        if self._resolver is None:
            self._resolver = Resolver(self.key, dict(self._values), self._mask, self._static, self._empty_client_id)
        client = (user, client_id)
        if client not in self._resolutions:
            self._resolutions[client] = self._resolver.resolve(user, client_id)
        return self._resolutions[client]

    def charge(self, user: str, client_id: str) -> Charge[S] | None:
        """The sensor to charge, with the limit of now; None while nothing was ever configured (nothing is recorded)."""
        if self._mask == 0:
            return None
        resolution = self.resolve(user, client_id)
        sensor = self._sensors.get(resolution.sensor)
        if sensor is None:
            sensor = self._sensors[resolution.sensor] = self._new_sensor()
        sensor.limit = resolution.limit
        return Charge(resolution.sensor, sensor)


class Arrival(NamedTuple):
    """A connection in the backlog of a listener."""

    time_ms: int
    listener: str
    ip: str


def accept(manager: ConnectionManager, arrivals: Iterable[Arrival]) -> list[Connection]:
    """Runs the acceptor threads over connections that are all known, and returns them in the order of arrivals.

    The arrivals of one listener are in the order of its backlog. Raises InputError for an unknown listener.
    """
    acceptors = Acceptors[int](manager)
    behind: dict[str, int] = {}
    count = 0
    for count, arrival in enumerate(arrivals, 1):
        # Whoever stands behind another in a backlog is not taken before it.
        behind[arrival.listener] = max(arrival.time_ms, behind.get(arrival.listener, arrival.time_ms))
        acceptors.add(behind[arrival.listener], arrival.listener, arrival.ip, count)
    outcomes: dict[int, Connection] = {}
    while acceptors.due_ms is not None:
        step = acceptors.step()
        if step.outcome is not None:
            outcomes[step.subject] = step.outcome
    return [outcomes[number] for number in range(1, count + 1)]
