"""Clients, connections and counters, a row each: what a run of traffic works on."""

from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from kquota.core.enforcement.arithmetic import LONG_MAX
from kquota.core.enforcement.counter import Counters
from kquota.core.enforcement.generation import QuotaWindows
from kquota.core.enforcement.replay import NEVER

METRIC_WINDOWS: Final = QuotaWindows(samples=2, window_seconds=30)
"""`metrics.num.samples` and `metrics.sample.window.ms`, their defaults."""
DONE: Final = LONG_MAX
"""The time of what will not happen any more."""
BEGIN: Final = -1
"""The end of the run that only plans the first requests."""
PARTITIONS: Final = 32
"""The numbers of a client's partitions are below this. Where a client has more partitions, some share a number."""
NONE: Final = -1
"""The sensor of a connection that none limits."""

Ints: TypeAlias = MutableSequence[int]
IntRows: TypeAlias = Sequence[Ints]
FloatRows: TypeAlias = Sequence[MutableSequence[float]]


@dataclass(slots=True)
class Account:
    """The limit of a counter, and what happened to it."""

    bound: float = 0.0
    scraped: int = NEVER
    """The next reading of the metric; NEVER before the first event."""
    events: int = 0
    violated: int = 0
    throttled: int = 0
    """Requests whose throttle time came from this sensor."""
    throttle_ms: int = 0
    max_ms: int = 0
    first_ms: int = NEVER
    until_ms: int = NEVER
    """The end of the last throttle time."""
    peak: float = 0.0
    peak_ms: int = NEVER
    gap_ms: int = 0
    """The longest time between two events."""


class Sensors(NamedTuple):
    """The counters of a broker, a row each: state, account and series."""

    counters: Counters
    meters: Counters
    """The metric `mutation-rate` of each counter, which limits nothing (METRIC_WINDOWS)."""
    origin: int
    """When the simulation starts, ms."""
    bucket_ms: int
    """The width of the buckets of the series."""
    scrape_ms: int
    """How often somebody reads the metrics, which changes what follows; 0 for never."""
    accounts: Sequence[Account]
    offered: FloatRows
    """Series: what arrived; bytes, ns of thread time or partitions."""
    delivered: FloatRows
    throttling: FloatRows
    """Series: throttle time, ms, by the time of the request."""
    ends: FloatRows
    """Series: the latest end of a throttle time that began in the bucket, ms since the origin."""


@dataclass(slots=True)
class Behaviour:
    """What the connections of one client have in common; times in ms."""

    kind: int
    closed: int
    saturates: int
    """1 for a client without a pace: it sends whenever it may."""
    size: int
    """Bytes of a request, of a batch to fetch, or partitions of a topic."""
    nanos: int
    """Request-handler time of a request, ns."""
    nanos_per_mib: int
    network_nanos: int
    """Network-thread time of a request, ns."""
    exempt: int
    """1 where the request quota does not charge the thread time."""
    latency_ms: int
    """From the reading of a request to its response."""
    to_broker: int
    to_client: int
    think_ms: int
    in_flight: int
    most_bytes: int
    """What a fetch asks for at most."""
    max_wait_ms: int
    """How long a fetch waits for data."""
    topics: int
    retry: int
    """1 for a client that sends rejected topics again."""
    timeout: int
    """How long after it first sent a request it still sends rejected topics again."""
    honours: int
    """1 for a client that waits for the throttle time of a response by itself."""
    start: int
    stop: int
    merge: int
    """Up to how many bytes of recorded requests that wait go out as one; 0 for a client that keeps its requests."""
    merge_saves: int
    """The bytes that each of them has less then: its header, and the header of its batch."""
    batch: int
    """Up to how many bytes of one partition they hold (`batch.size`): a request has one batch of each partition."""
    overhead: int
    """The bytes of a response to a recorded fetch beside its records, which a quota's cap does not count."""
    plan_end: int
    """After the last segment of the plan; the connections know the first."""


class Segment(NamedTuple):
    """A time in which the pace of a plan changes evenly; ms, and arrivals per ms."""

    start: float
    end: float
    rate: float
    end_rate: float
    before: float
    """Arrivals before its start."""
    after: float
    """Arrivals before its end."""


@dataclass(slots=True)
class Connection:
    """The state and the totals of a connection."""

    behaviour: int = 0
    load_sensor: int = NONE
    """The counter of its bytes, partitions or connections."""
    request_sensor: int = NONE
    """The counter of its thread time."""
    target: float = 0.0
    """The next arrival as a number of arrivals of the plan."""
    step: float = 0.0
    random: int = 0
    """The state of a generator of random gaps; 0 for even ones."""
    segment: int = 0
    given_next: int = 0
    """The next of the given events; where there are none, the plan counts."""
    given_end: int = 0
    arrived: int = DONE
    """When the request that is under way arrived, DONE for none; for consumers, the next batch."""
    began: int = 0
    """When a request that changes topics was sent for the first time."""
    pending: int = 0
    """Bytes that a consumer has yet to fetch, or topics that were rejected."""
    given_size: int = 0
    """Bytes of the recorded request that is under way; for consumers, of the next batch."""
    waited: int = 0
    """The longest time from the arrival of a recorded request to its charge."""
    due: int = 0
    tie: int = 0
    """Who goes first at the same ms."""
    muted: int = 0
    busy: int = 0
    """Until when a recorded consumer processes what it has got, and reads no response."""
    last_received: int = 0
    sent: int = 0
    """Responses so far."""
    offered_units: int = 0
    delivered_units: int = 0
    delivered_ms: int = NEVER
    """When something was delivered last."""
    rejected_units: int = 0
    rejections: int = 0
    """Topics answered with THROTTLING_QUOTA_EXCEEDED, retries included."""
    waiting_units: int = 0
    throttled: int = 0
    throttle_ms: int = 0
    max_ms: int = 0
    first_ms: int = NEVER
    until_ms: int = NEVER
    exempt_nanos: int = 0
    """Thread time that the request quota did not charge."""
    muted_by: int = NONE
    """The sensor of the last throttle time; NONE before."""
    load_charged: int = 0
    nanos_charged: int = 0
    load_ms: int = 0
    """Throttle time that comes from `load_sensor`."""
    request_ms: int = 0


class Given(NamedTuple):
    """Events as they were recorded: times (ms), bytes and thread time (ns); a connection owns a range of rows."""

    times: Ints
    sizes: Ints
    nanos: Ints
    order: Ints
    thinks: Ints
    """In the closed loop: how long after the last answer a client sends that waits for it (the time does not count
    then); less than 0 for a request that arrives at its time, whatever the answers."""
    charged: Ints
    """When each was charged, -1 before. A request that goes out with an earlier one has its time in advance."""
    partitions: Ints
    """The partition of each produce request, less than PARTITIONS: waiting requests are joined by it."""


class Traffic(NamedTuple):
    """All that a run works on."""

    sensors: Sensors
    behaviours: Sequence[Behaviour]
    segments: Sequence[Segment]
    """The segments of all plans, in order."""
    connections: Sequence[Connection]
    heap: Ints
    """All connections, the one with the earliest event first."""
    received: IntRows
    """When each connection received its last `in_flight` responses."""
    ends: IntRows
    """When their throttle times are over for the client; when they are received, for one that does not wait."""
    filled: IntRows
    """Bytes of each partition in the recorded request that is under way, where waiting requests are joined."""
    given: Given
