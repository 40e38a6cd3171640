"""What a simulation says: per client, per counter, and over time. Times are ms since the start of the workload."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, Value
from kquota.core.resolve.resolver import Level, Sensor
from kquota.core.tabular import Rows, Tabular, tabulated

CONTROLLER: Final = "controller"
"""Where controller mutations are counted: once for the cluster, and not on a broker."""


def jmx_quoted(name: str) -> str:
    """`Sanitizer.jmxSanitize`: a name as the value of a tag, in quotes (`ObjectName.quote`) unless it is plain."""
    if _PLAIN_NAME.fullmatch(name):
        return name
    return '"' + "".join(_ESCAPES.get(character, character) for character in name) + '"'


_PLAIN_NAME: Final = re.compile(r"[\w\-%. \t]*", re.ASCII)
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "*": "\\*", "?": "\\?", "\n": "\\n"}


def mbean(kind: str, **tags: str) -> str:
    """The name of an MBean of `kafka.server`, as `JmxReporter` makes it; an empty tag is left out."""
    return ",".join([f"kafka.server:type={kind}", *(f"{tag}={jmx_quoted(name)}" for tag, name in tags.items() if name)])


def java_address(text: str) -> str:
    """An address as `InetAddress.getHostAddress` writes it: IPv6 in eight groups without leading zeros."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))


@dataclass(frozen=True, slots=True)
class ClientResult:
    """One client on one broker. Units are bytes, requests, partitions or connections."""

    name: str
    group: str
    """The client of the workload that it is a copy of; its own name unless that counts several."""
    broker: str
    user: str
    client_id: str
    ip: str
    api: str
    unit: str
    active_ms: int
    """From its start to its stop; of a job that was done (`is_done`), to its last delivery."""
    requests: int
    """Charged by the broker, retries included."""
    offered: int
    delivered: int
    rejected: int
    waiting: int
    """What arrived and was not sent, or not yet delivered, at the end."""
    rejections: int
    """How often something was rejected; more than `rejected` where the client tries again."""
    throttled: int
    """Requests with a throttle time."""
    throttle_ms: int
    throttle_max_ms: int
    first_throttled_ms: int | None
    throttled_until_ms: int | None
    throttle_by: Mapping[QuotaKey, int]
    """The throttle time by the quota that it came from, ms."""
    throttle_range_ms: tuple[int, int]
    """The throttle time where what cannot be known is otherwise: the least and the most."""
    delivered_range: tuple[int, int]
    delivering_ms: int
    """From its start to its stop, or to its last delivery where that came later."""
    exempt_ns: int = 0
    """Thread time that the request quota did not charge."""
    delivered_until_ms: int | None = None
    """When the last unit was delivered, since the start of the workload; None where nothing was."""
    is_done: bool = False
    """Whether it has a number of requests in all, and all of them were delivered."""

    @property
    def is_throttled(self) -> bool:
        """Whether a quota delayed or rejected something of it; the wait of a rejection may round to 0 ms."""
        return self.throttled > 0 or self.rejections > 0

    @property
    def offered_rate(self) -> float:
        """Units per second."""
        return self.offered * 1000 / self.active_ms

    @property
    def delivered_rate(self) -> float:
        """Units per second, over the time in which they were delivered."""
        return self.delivered * 1000 / self.delivering_ms

    @property
    def throttle_mean_ms(self) -> float | None:
        """The broker's metric `throttle-time`: the average of the throttle times that are not 0."""
        return self.throttle_ms / self.throttled if self.throttled else None

    @property
    def client_throttle_mean_ms(self) -> float | None:
        """The client's own metric `produce-throttle-time-avg` or `fetch-throttle-time-avg`: with the zeros."""
        return self.throttle_ms / self.requests if self.requests else None


@dataclass(frozen=True, slots=True)
class Share:
    """A client's part in a counter."""

    client: str
    value: float
    """What it was charged: bytes, seconds of thread time, partitions, connections."""
    throttle_ms: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """A counter over time, in the unit of its key per second, a value per bucket."""

    bucket_ms: int
    offered: tuple[float, ...]
    delivered: tuple[float, ...]
    limit: tuple[float | None, ...]
    throttle_ms: tuple[float, ...]

    @classmethod
    def of(
        cls,
        bucket_ms: int,
        duration_ms: int,
        limits: Iterable[float | None],
        offered: Iterable[float],
        delivered: Iterable[float],
        throttle_ms: Iterable[float],
        *,
        scale: float = 1.0,
    ) -> Timeline:
        """From what there was in each bucket; a unit of it is `scale` units of the key."""
        lengths = [min(bucket_ms, duration_ms - start) for start in range(0, duration_ms, bucket_ms)]

        def rates(column: Iterable[float]) -> tuple[float, ...]:
            return tuple(value * scale * 1000 / length for value, length in zip(column, lengths, strict=True))

        return cls(bucket_ms, rates(offered), rates(delivered), tuple(limits), tuple(throttle_ms))


@dataclass(frozen=True, slots=True)
class CounterResult:
    """One counter with a limit: who shares it, and when it bites."""

    broker: str
    key: QuotaKey
    sensor: Sensor
    entity: Entity
    level: Level
    limits: tuple[tuple[int, Value | None], ...]
    """(since, limit), in order of time."""
    events: int
    violated: int
    throttled: int
    throttle_ms: int
    throttle_max_ms: int
    first_throttled_ms: int | None
    throttled_until_ms: int | None
    recovery_ms: int | None
    """The longest time from the end of an overload until nobody was throttled any more; None without an overload."""
    recovered: bool
    """Whether the last overload was over, and nobody throttled, at the end."""
    rate: float
    """The metric at the end: `byte-rate`, `request-time`, `connection-accept-rate`, or `tokens`."""
    peak: float
    """The highest rate at a request; for mutations the largest debt of tokens."""
    peak_ms: int | None
    clients: tuple[Share, ...]
    """The largest parts, largest first."""
    client_count: int
    total: float
    throttle_range_ms: tuple[int, int]
    timeline: Timeline | None = None
    mutation_rate: float | None = None
    """Of controller mutations: the metric `mutation-rate` at the end, partitions per second over up to 60 s."""

    @property
    def limit(self) -> Value | None:
        """The last limit there was."""
        return next((limit for _, limit in reversed(self.limits) if limit is not None), None)

    @property
    def throttle_mean_ms(self) -> float | None:
        """Kafka's metric `throttle-time`."""
        return self.throttle_ms / self.throttled if self.throttled else None

    @property
    def bites(self) -> bool:
        """Whether it delayed somebody, or rejected topics: with a wait that rounds to 0 ms, or while another quota
        delayed the client for longer.
        """
        return self.throttled > 0 or (self.key is QuotaKey.CONTROLLER_MUTATION_RATE and self.violated > 0)

    @property
    def mbean(self) -> str:
        """The name under which a broker shows this counter over JMX."""
        if self.key is QuotaKey.CONNECTION_CREATION_RATE:
            return mbean("socket-server-metrics", ip=java_address(self.sensor.client_id))
        return mbean(MBEAN_TYPES[self.key], user=self.sensor.user, **{"client-id": self.sensor.client_id})


MBEAN_TYPES: Final = {
    QuotaKey.PRODUCER_BYTE_RATE: "Produce",
    QuotaKey.CONSUMER_BYTE_RATE: "Fetch",
    QuotaKey.REQUEST_PERCENTAGE: "Request",
    QuotaKey.CONTROLLER_MUTATION_RATE: "ControllerMutation",
}
METRICS: Final = {
    QuotaKey.PRODUCER_BYTE_RATE: "byte-rate",
    QuotaKey.CONSUMER_BYTE_RATE: "byte-rate",
    QuotaKey.REQUEST_PERCENTAGE: "request-time",
    QuotaKey.CONTROLLER_MUTATION_RATE: "tokens",
    QuotaKey.CONNECTION_CREATION_RATE: "connection-accept-rate",
}
"""The attribute of the MBean that holds the rate (or the tokens)."""


@dataclass(slots=True)
class Acceptor:
    """A listener of a broker that took connections; it counts while the workload runs."""

    broker: str
    listener: str
    connections: int = 0
    waited: int = 0
    wait_ms: int = 0
    wait_max_ms: int = 0
    rate: float = 0.0
    """The metric `connection-accept-rate` of the listener at the end, per second."""
    broker_rate: float = 0.0
    """The metric `broker-connection-accept-rate` of its broker at the end, per second."""
    closed: int = 0
    """Connections that were closed for the rate of their ip."""
    closed_ms: int = 0
    """The delays after which they were closed, together."""

    @property
    def mbean(self) -> str:
        """The name under which a broker shows the listener over JMX."""
        return mbean("socket-server-metrics", listener=self.listener)

    @property
    def blocked_mbean(self) -> str:
        """The name of the MBean of `AcceptorBlockedPercent`, which is the acceptor's."""
        return f"kafka.network:type=Acceptor,name=AcceptorBlockedPercent,listener={jmx_quoted(self.listener)}"

    @property
    def wait_mean_ms(self) -> float | None:
        """The metric `connection-accept-throttle-time`: the average of the waits that are not 0."""
        return self.wait_ms / self.waited if self.waited else None

    @property
    def closed_mean_ms(self) -> float | None:
        """The metric `ip-connection-accept-throttle-time`."""
        return self.closed_ms / self.closed if self.closed else None

    def blocked_percent(self, duration_ms: int) -> float:
        """`AcceptorBlockedPercent` over the whole run: the share of the time in which the acceptor waited."""
        return 100 * self.wait_ms / duration_ms


@dataclass(frozen=True, slots=True)
class Queue:
    """The delay queue of one manager of a broker: the channels that it throttles at the end."""

    broker: str
    key: QuotaKey
    size: int
    """The metric `queue-size`."""

    @property
    def mbean(self) -> str:
        """The name under which a broker shows it over JMX."""
        return mbean(MBEAN_TYPES[self.key])


_COLUMNS: Final = """broker key counter=sensor entity unit=key.unit limit events throttled throttle_ms throttle_max_ms
    rate peak"""


@dataclass(frozen=True, slots=True)
class Simulation(Tabular):
    """All of it; its table has a row for each counter."""

    duration_ms: int
    events: int
    clients: tuple[ClientResult, ...]
    counters: tuple[CounterResult, ...]
    acceptors: tuple[Acceptor, ...] = ()
    queues: tuple[Queue, ...] = ()
    """Of each manager that throttles at the end."""
    ranges: bool = False
    """Whether the ranges hold more than one outcome."""
    notes: tuple[str, ...] = ()
    """What the result leaves out, a sentence each: records, files, and quotas that the brokers do not enforce."""
    unlimited: tuple[str, ...] = ()
    """The clients that no quota governs at any time; those that only open connections are not listed."""

    def table(self) -> Rows:
        """A row for each counter with a limit; rates are per second, in the unit of the key."""
        return tabulated(self.counters, _COLUMNS)

    @property
    def exempt_ns(self) -> Mapping[str, int]:
        """The thread time that no client's request quota was charged, by broker; only where there is any."""
        by_broker: dict[str, int] = {}
        for client in self.clients:
            if client.exempt_ns:
                by_broker[client.broker] = by_broker.get(client.broker, 0) + client.exempt_ns
        return by_broker


def widened(result: Simulation, other: Simulation) -> Simulation:
    """The result with ranges that also hold another outcome of the same clients."""
    clients = {(client.name, client.broker): client for client in other.clients}
    counters = {(counter.broker, counter.key, counter.sensor): counter for counter in other.counters}

    def wider(one: tuple[int, int], two: tuple[int, int]) -> tuple[int, int]:
        return min(one[0], two[0]), max(one[1], two[1])

    def client_of(client: ClientResult) -> ClientResult:
        twin = clients.get((client.name, client.broker), client)
        return replace(
            client,
            throttle_range_ms=wider(client.throttle_range_ms, twin.throttle_range_ms),
            delivered_range=wider(client.delivered_range, twin.delivered_range),
        )

    def counter_of(counter: CounterResult) -> CounterResult:
        twin = counters.get((counter.broker, counter.key, counter.sensor), counter)
        return replace(counter, throttle_range_ms=wider(counter.throttle_range_ms, twin.throttle_range_ms))

    return replace(
        result,
        clients=tuple(map(client_of, result.clients)),
        counters=tuple(map(counter_of, result.counters)),
        ranges=True,
    )


MOST_BUCKETS: Final = 160
_WIDTHS_MS: Final = (100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000)


def bucket_ms_of(duration_ms: int) -> int:
    """A width of buckets, a round number, with which a series has at most MOST_BUCKETS."""
    beyond = -(-duration_ms // (MOST_BUCKETS * 600_000)) * 600_000
    return next((width for width in _WIDTHS_MS if duration_ms <= width * MOST_BUCKETS), beyond)


def limits_by_bucket(limits: Sequence[tuple[int, Value | None]], bucket_ms: int, buckets: int) -> list[float | None]:
    """The limit at the beginning of each bucket, from (since, limit) in order of time."""
    by_bucket: list[float | None] = []
    for since, limit in limits:
        first = -(-since // bucket_ms)
        by_bucket[first:] = [None if limit is None else float(limit)] * (buckets - first)
    return by_bucket


def recovery(
    offered: Sequence[float], limits: Sequence[float | None], ends: Sequence[float], bucket_ms: int, duration_ms: int
) -> tuple[int | None, bool]:
    """(the longest time from the end of an overload to the end of its throttling, whether the last one was over).

    An overload is a run of buckets in which more arrived (in units per bucket) than the limit (units per second) lets
    through. `ends` has the latest end of a throttle time that began in each bucket, 0 for none.
    """
    seconds = bucket_ms / 1000
    over = [limit is not None and more > limit * seconds for more, limit in zip(offered, limits, strict=True)]
    longest: int | None = None
    recovered = True
    starts = [bucket for bucket, is_over in enumerate(over) if is_over and not (bucket and over[bucket - 1])]
    for start, following in pairwise([*starts, len(over)]):
        end = next((bucket for bucket in range(start, following) if not over[bucket]), following)
        if throttled_until := int(max(ends[start:following])):
            recovered = throttled_until < duration_ms and end < len(over)
            longest = max(longest or 0, throttled_until - min(end * bucket_ms, duration_ms), 0)
    return longest, recovered
