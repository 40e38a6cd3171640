"""Sensors with their limits, and the managers that find the sensor of a client: the enforcement path as objects.

For sequences of events, with quotas that change on the way. Sources: `ClientQuotaManager` and its subclasses; KIP-13,
55, 124, 219.
"""

from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from kquota.core.enforcement.broker import UNLIMITED, Verdict
from kquota.core.enforcement.generation import Generation, QuotaWindows
from kquota.core.enforcement.kernel import Kernel, Mode, kernel
from kquota.core.enforcement.kind import FETCH, PRODUCE, REQUEST
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, Value
from kquota.core.quotas.static import NO_STATIC_QUOTAS, StaticQuotas
from kquota.core.resolve.resolver import CLIENT_ID_ENABLED, Resolution, Resolver, Sensor, enabled_mask


class LimitedSensor:
    """A counter with a limit; a limit of None is none at all, and recording goes on.

    A changed limit applies from the next event on; the history stays.
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


class RateSensor(LimitedSensor):
    """A windowed rate with a limit.

    By default the sensor runs plain: it needs no numba, whose import takes as long as thousands of events. Unless
    `expires` is false, it starts anew when it recorded nothing for more than an hour. That shows only in windows that
    add up to more. (A broker looks every 30 s; here it happens on time.)
    """


class ProduceSensor(RateSensor):
    """Produced bytes."""

    def produce(self, now: int, size: int) -> Verdict:
        """A request of `size` bytes, answered at `now` (ms)."""
        return self.kernel.charge_counter(self.counter, PRODUCE, now, float(size), self.bound)


class FetchSensor(RateSensor):
    """Fetched bytes."""

    def fetch(self, now: int, size: int) -> Verdict:
        """A response of `size` bytes at `now` (ms); taken back when it is delayed."""
        return self.kernel.charge_counter(self.counter, FETCH, now, float(size), self.bound)

    @property
    def max_fetch_bytes(self) -> int:
        """What one fetch may return at most, before the client's own maximum and the broker's."""
        return self.kernel.max_fetch_bytes(self.bound, self.windows.samples, self.windows.window_seconds)


class RequestSensor(RateSensor):
    """Thread time; the limit is in percent of one thread. Exempt requests do not come here."""

    def request(self, now: int, nanos: int) -> Verdict:
        """Request-handler time of a request that is answered at `now` (ms)."""
        return self.kernel.charge_counter(self.counter, REQUEST, now, float(nanos), self.bound)

    def network(self, now: int, nanos: int) -> None:
        """Network-thread time, recorded without a check after the response was sent."""
        self.kernel.note(self.counter, REQUEST, now, float(nanos))


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
