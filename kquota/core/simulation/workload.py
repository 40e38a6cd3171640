"""A workload: who sends what to which brokers, when, and what changes on the way. Times are ms since its start."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from kquota.core.enforcement.apis import CONNECT_API, is_spared
from kquota.core.enforcement.generation import BrokerSettings
from kquota.core.enforcement.traffic.state import Segment
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, Value
from kquota.core.quotas.snapshot import Ignored
from kquota.core.quotas.version import CONNECTION_RATES, KEYS, Version, ignored
from kquota.errors import InputError

PRODUCE_API: Final = "produce"
FETCH_API: Final = "fetch"
ANONYMOUS: Final = "ANONYMOUS"
"""The user of connections without a login."""
TOPIC_APIS: Final = ("create-topics", "create-partitions", "delete-topics")

_KEYS: Final = {
    PRODUCE_API: QuotaKey.PRODUCER_BYTE_RATE,
    FETCH_API: QuotaKey.CONSUMER_BYTE_RATE,
    CONNECT_API: QuotaKey.CONNECTION_CREATION_RATE,
}
_UNITS: Final = {QuotaKey.CONTROLLER_MUTATION_RATE: "partitions", QuotaKey.CONNECTION_CREATION_RATE: "connections"}
ORIGIN_MS: Final = 1_700_000_000_000
"""Any moment will do, but a late one: only a clock of epoch ms finds a new token bucket full."""
_MOST_SEGMENTS: Final = 200_000
_MOST_REQUESTS: Final = 10**10
"""Of one client and its copies; so many take about a quarter of an hour."""


@dataclass(frozen=True, slots=True)
class Burst:
    """Times at which a client sends `factor` times as much: from `at_ms` for `length_ms`, and again `every_ms`."""

    at_ms: int
    length_ms: int
    factor: float
    every_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Client:
    """A client, or `count` of them that differ in their names only. Raises InputError for what cannot be.

    `pace` is requests (batches, connections) per second of one client, over all its connections; None is as fast as
    the answers allow. `{n}` in a name stands for the number of the client, from 0.
    """

    name: str
    api: str
    user: str = ANONYMOUS
    client_id: str = ""
    ip: str = "127.0.0.1"
    count: int = 1
    brokers: tuple[str, ...] = ()
    """Where it is connected; none is all of them."""
    connections: int = 1
    """To each of its brokers."""
    closed: bool = True
    """Whether it is muted and waits for its answers; in the open loop it sends as planned, whatever happens."""
    pace: float | None = None
    size: int = 0
    """Bytes of a request (produce) or of a batch to fetch."""
    random: bool = False
    """Whether arrivals are random (a Poisson process, from the workload's seed) and not evenly spaced."""
    requests: int | None = None
    """How many requests (batches, connections) it sends in all; without a pace they are all there at its start."""
    start_ms: int = 0
    stop_ms: int | None = None
    ramp_ms: int = 0
    """From its start, how long until it sends at its full pace."""
    bursts: tuple[Burst, ...] = ()
    think_ms: int = 0
    in_flight: int = 5
    latency_ms: int = 1
    """From the broker's reading of a request to its response; remote time included."""
    round_trip_ms: int = 1
    honours: bool = True
    """Whether it waits for the throttle time of a response by itself (clients since 2.0)."""
    acks: int = -1
    exempt: bool = False
    """Whether the request quota does not charge its thread time (`kquota.core.enforcement.apis`)."""
    nanos: int = 0
    """Request-handler time of a request, ns."""
    nanos_per_mib: int = 0
    network_nanos: int = 0
    max_bytes: int | None = None
    """The most that a fetch takes; None for the default of Kafka's clients (`most_bytes`)."""
    max_wait_ms: int = 500
    """`fetch.max.wait.ms`."""
    backlog: int = 0
    """Bytes that a consumer is behind at its start."""
    topics: int = 1
    partitions: int = 1
    """Of each topic; of a consumer, those that it fetches on a connection."""
    strict: bool = True
    """Whether its topic requests know THROTTLING_QUOTA_EXCEEDED; older ones are muted instead."""
    retry: bool = True
    """Whether it sends again what was rejected: topics, or (closed loop) connections."""
    api_timeout_ms: int | None = 60_000
    """`default.api.timeout.ms`: how long rejected topics are sent again before the call fails; None for ever."""
    backoff_ms: int = 50
    """`reconnect.backoff.ms`: how long after a rejected connection the next try follows."""
    listener: str = ""
    """Where its connections arrive; the first listener unless named."""
    given: tuple[int, int] | None = None
    """The rows of `Workload.events` that are its requests, in place of a pace; one broker, one connection, no copies.
    Of a consumer in the closed loop they are what arrives for it."""
    merge: int = 0
    """Up to how many bytes of its recorded requests go out as one where they wait; 0 for none."""
    merge_saves: int = 0
    """How many bytes each of them has less then."""
    batch: int = 0
    """`batch.size`: how much of one partition they hold, less than the whole request may hold."""
    overhead: int = 0
    """The bytes of a response to a recorded fetch beside its records."""

    def __post_init__(self) -> None:
        if self.pace is not None and not (math.isfinite(self.pace) and self.pace > 0):
            raise InputError(f"client {self.name!r}: the pace must be greater than 0")
        if self.pace is None and not self.closed and self.given is None:
            raise InputError(f"client {self.name!r}: an open loop needs a rate or a pace")
        if self.pace is None and self.api == CONNECT_API and self.given is None:
            raise InputError(f"client {self.name!r}: connections need a pace")
        if self.requests is not None and self.random:
            raise InputError(f"client {self.name!r}: random arrivals have no number: give 'stop' instead of 'requests'")
        if self.connections != 1 and self.api == CONNECT_API:
            raise InputError(f"client {self.name!r}: its pace says how many connections it opens")
        if self.stop_ms is not None and self.stop_ms <= self.start_ms:
            raise InputError(f"client {self.name!r}: it stops before it starts")
        cycle = self.latency_ms + self.round_trip_ms + self.think_ms
        if self.closed and cycle < 1 and self.given is None:
            raise InputError(f"client {self.name!r}: latency, round trip and think time cannot all be 0")

    @property
    def saturates(self) -> bool:
        """Whether it always has something to send, or to fetch."""
        return self.pace is None and self.requests is None and self.given is None

    @property
    def most_bytes(self) -> int:
        """What a fetch takes at most: `max.partition.fetch.bytes` of each partition, and `fetch.max.bytes` in all."""
        return min(self.partitions * 2**20, 50 * 2**20) if self.max_bytes is None else self.max_bytes

    @property
    def cycle_ms(self) -> float:
        """How long each connection takes for a request, where it waits for answers and no quota holds it back."""
        answered = self.latency_ms + self.round_trip_ms
        if self.think_ms or self.mutates or self.api == FETCH_API:  # one request under way
            return answered + self.think_ms
        return max(self.latency_ms, answered / self.in_flight)

    @property
    def most_per_s(self) -> float:
        """How much (units) it sends to each of its brokers, or fetches, at most in that loop; else there is no most."""
        if not self.closed or self.given is not None or self.api == CONNECT_API:
            return math.inf
        units = max(self.most_bytes, self.size) if self.api == FETCH_API else self.units
        return 1000 * self.connections * units / self.cycle_ms

    @property
    def mutates(self) -> bool:
        """Whether it creates, extends or deletes topics."""
        return self.api in TOPIC_APIS

    @property
    def key(self) -> QuotaKey | None:
        """The quota that its load is charged to, beside the thread time."""
        return QuotaKey.CONTROLLER_MUTATION_RATE if self.mutates else _KEYS.get(self.api)

    @property
    def has_thread_time(self) -> bool:
        """Whether its requests cost thread time."""
        return bool(self.nanos or self.nanos_per_mib or self.network_nanos)

    @property
    def unit(self) -> str:
        """What its load is counted in."""
        return "requests" if self.key is None else _UNITS.get(self.key, "bytes")

    @property
    def units(self) -> int:
        """How many of them one arrival is."""
        return {"bytes": self.size, "partitions": self.topics * self.partitions}.get(self.unit, 1)


@dataclass(frozen=True)
class Brokers(BrokerSettings):
    """The brokers, all alike."""

    names: tuple[str, ...] = ("broker-0",)


@dataclass(frozen=True, slots=True)
class Change:
    """Quotas of one entity set, or (None) removed, while the workload runs."""

    at_ms: int
    entity: Entity
    values: Mapping[QuotaKey, Value | None]


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Recorded requests as columns (sequences or arrays); each client's rows are in the order of their times."""

    times: Any
    """Epoch ms."""
    sizes: Any
    nanos: Any
    order: Any
    """Which goes first at the same ms."""
    thinks: Any = None
    """How long (ms) after the answer before it a client sends that waits for it; less than 0 for a request that comes
    at its time. None: all of them do."""
    partitions: Any = None
    """The partition of each produce request, by a number below `traffic.PARTITIONS`. None: all have the same one."""


@dataclass(frozen=True, slots=True)
class Workload:
    """All of it."""

    duration_ms: int
    clients: tuple[Client, ...]
    brokers: Brokers = field(default_factory=Brokers)
    changes: tuple[Change, ...] = ()
    """In the order of their times."""
    seed: int = 1
    scrape_ms: int | None = None
    """How often the brokers' metrics are read (0 for never); None where nobody knows."""
    origin_ms: int = ORIGIN_MS
    """The broker's clock at the start."""
    events: Events | None = None

    def __post_init__(self) -> None:
        names = [client.name for client in self.clients]
        twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
        if twice is not None:
            raise InputError(f"two clients are named {twice!r}")
        for client in self.clients:
            unknown = [name for name in client.brokers if name not in self.brokers.names]
            if unknown:
                raise InputError(f"client {client.name!r}: there is no broker {unknown[0]!r}")
            if client.listener and client.listener not in self.brokers.listeners:
                raise InputError(f"client {client.name!r}: there is no listener {client.listener!r}")
            if self._planned(client) > _MOST_REQUESTS:
                raise InputError(
                    f"client {client.name!r}: more than {_MOST_REQUESTS:,} requests take too long to simulate",
                    hint="a lower rate, a larger size, or a shorter time",
                )

    def _planned(self, client: Client) -> float:
        """The most requests that a client and its copies send of their own accord; 0 where answers decide."""
        most = math.inf if client.requests is None else client.requests
        if client.pace is not None:
            pace = client.pace * max([1.0, *(burst.factor for burst in client.bursts)])
            most = min(most, pace * max(self.stop_of(client) - client.start_ms, 0) / 1000)
        return 0 if math.isinf(most) else client.count * most

    def brokers_of(self, client: Client) -> tuple[str, ...]:
        """The brokers that a client sends to; topics are changed through one of them."""
        names = client.brokers or self.brokers.names
        return names[:1] if client.mutates else names

    def stop_of(self, client: Client) -> int:
        """When a client stops."""
        return self.duration_ms if client.stop_ms is None else min(client.stop_ms, self.duration_ms)


def enforced_workload(workload: Workload, version: Version) -> tuple[Workload, tuple[Ignored, ...]]:
    """The workload on brokers of that version, and its changes of quotas that they do not enforce.

    Requests that they do not charge to the request quota are marked as exempt; their thread time stays. A request
    that brokers of the version no longer know is exempt as in the last release that knew it.
    """
    brokers = workload.brokers
    if version < CONNECTION_RATES:
        brokers = replace(brokers, connection_rate=None, listeners=dict.fromkeys(brokers.listeners))
    left_out = [
        Ignored(change.entity, key, value, reason)
        for change in workload.changes
        for key, value in change.values.items()
        if value is not None and (reason := ignored(change.entity, key, version)) is not None
    ]
    changes = [
        replace(
            change,
            values={key: value for key, value in change.values.items() if not ignored(change.entity, key, version)},
        )
        for change in workload.changes
    ]
    clients = tuple(
        replace(client, exempt=True)
        if version >= KEYS[QuotaKey.REQUEST_PERCENTAGE].version and is_spared(client.api, version)
        else client
        for client in workload.clients
    )
    return replace(workload, clients=clients, brokers=brokers, changes=tuple(changes)), tuple(left_out)


def plan(client: Client, stop_ms: int) -> Sequence[Segment]:
    """The pace of a client from its start until `stop_ms`; nothing for one that sends as fast as it can."""
    if client.start_ms >= stop_ms:
        return ()
    if client.pace is None:
        if client.requests is None:
            return ()
        start, count = float(client.start_ms), float(client.requests)
        return (Segment(start, start + 1.0, count, count, 0.0, count),)
    bursts = [
        (start, min(end, stop_ms), burst.factor) for burst in client.bursts for start, end in _times(burst, stop_ms)
    ]
    edges = {client.start_ms, stop_ms, min(client.start_ms + client.ramp_ms, stop_ms)}
    edges |= {edge for start, end, _ in bursts for edge in (start, end) if client.start_ms < edge < stop_ms}
    ordered = sorted(edges)
    opens: dict[int, float] = {}
    for start, end, factor in bursts:
        if end > start:
            opens[start] = opens.get(start, 1.0) * factor
            opens[end] = opens.get(end, 1.0) / factor
    # Bursts that were under way before the client started still count.
    factor = math.prod(change for edge, change in opens.items() if edge < client.start_ms)
    segments = []
    count = 0.0
    for start, end in pairwise(ordered):
        factor *= opens.get(start, 1.0)
        rate, end_rate = (_base(client, edge) * factor / 1000.0 for edge in (start, end))
        more = (rate + end_rate) / 2.0 * (end - start)
        segments.append(Segment(float(start), float(end), rate, end_rate, count, count + more))
        count += more
    if client.requests is None:
        return segments
    # Where the last request is in a segment, its times stay as they are.
    most = float(client.requests)
    return [segment._replace(after=min(segment.after, most)) for segment in segments if segment.before < most]


def _base(client: Client, at: int) -> float:
    """Arrivals per second at a time, without bursts."""
    assert client.pace is not None
    since = at - client.start_ms
    return client.pace * since / client.ramp_ms if since < client.ramp_ms else client.pace


def _times(burst: Burst, stop_ms: int) -> Iterator[tuple[int, int]]:
    if burst.every_ms is None:
        yield burst.at_ms, burst.at_ms + burst.length_ms
        return
    if (stop_ms - burst.at_ms) // burst.every_ms > _MOST_SEGMENTS:
        raise InputError(f"bursts every {burst.every_ms} ms are too many for {stop_ms} ms")
    for at in range(burst.at_ms, stop_ms, burst.every_ms):
        yield at, at + burst.length_ms
