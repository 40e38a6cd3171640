"""Clients, connections and counters as rows of columns: what a run of traffic works on."""

from collections.abc import Callable, MutableSequence, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from kquota.core.enforcement.arithmetic import LONG_MAX
from kquota.core.enforcement.counter import Counters
from kquota.core.enforcement.generation import QuotaWindows

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
Floats: TypeAlias = MutableSequence[float]
IntRows: TypeAlias = Sequence[Ints]
FloatRows: TypeAlias = Sequence[Floats]


class Sensors(NamedTuple):
    """The counters of a broker, a row each: limit, state, and what happened."""

    counters: Counters
    meters: Counters
    """The metric `mutation-rate` of each counter, which limits nothing (METRIC_WINDOWS)."""
    origin: int
    """When the simulation starts, ms."""
    bucket_ms: int
    """The width of the buckets of the series."""
    scrape_ms: int
    """How often somebody reads the metrics, which changes what follows; 0 for never."""
    bounds: Floats
    scraped: Ints
    """The next reading of the metric; NEVER before the first event."""
    events: Ints
    violated: Ints
    throttled: Ints
    """Requests whose throttle time came from this sensor."""
    throttle_ms: Ints
    max_ms: Ints
    first_ms: Ints
    until_ms: Ints
    """The end of the last throttle time."""
    peak: Floats
    peak_ms: Ints
    gap_ms: Ints
    """The longest time between two events."""
    offered: FloatRows
    """Series: what arrived; bytes, ns of thread time or partitions."""
    delivered: FloatRows
    throttling: FloatRows
    """Series: throttle time, ms, by the time of the request."""
    ends: FloatRows
    """Series: the latest end of a throttle time that began in the bucket, ms since the origin."""


class Behaviours(NamedTuple):
    """What the connections of one client have in common, a row each; times in ms."""

    kind: Ints
    closed: Ints
    saturates: Ints
    """1 for a client without a pace: it sends whenever it may."""
    size: Ints
    """Bytes of a request, of a batch to fetch, or partitions of a topic."""
    nanos: Ints
    """Request-handler time of a request, ns."""
    nanos_per_mib: Ints
    network_nanos: Ints
    """Network-thread time of a request, ns."""
    exempt: Ints
    """1 where the request quota does not charge the thread time."""
    latency_ms: Ints
    """From the reading of a request to its response."""
    to_broker: Ints
    to_client: Ints
    think_ms: Ints
    in_flight: Ints
    most_bytes: Ints
    """What a fetch asks for at most."""
    max_wait_ms: Ints
    """How long a fetch waits for data."""
    topics: Ints
    retry: Ints
    """1 for a client that sends rejected topics again."""
    timeout: Ints
    """How long after it first sent a request it still sends rejected topics again."""
    honours: Ints
    """1 for a client that waits for the throttle time of a response by itself."""
    start: Ints
    stop: Ints
    merge: Ints
    """Up to how many bytes of recorded requests that wait go out as one; 0 for a client that keeps its requests."""
    merge_saves: Ints
    """The bytes that each of them has less then: its header, and the header of its batch."""
    batch: Ints
    """Up to how many bytes of one partition they hold (`batch.size`): a request has one batch of each partition."""
    overhead: Ints
    """The bytes of a response to a recorded fetch beside its records, which a quota's cap does not count."""
    plan_end: Ints
    """After the last segment of the plan; the connections know the first."""
    seg_start: Floats
    """The segments of all plans, in order: a column for each field of `kquota.core.simulation.workload.Segment`."""
    seg_end: Floats
    seg_rate: Floats
    seg_end_rate: Floats
    seg_before: Floats
    seg_after: Floats


class Connections(NamedTuple):
    """The state and the totals of each connection."""

    behaviour: Ints
    load_sensor: Ints
    """The counter of its bytes, partitions or connections."""
    request_sensor: Ints
    """The counter of its thread time."""
    target: Floats
    """The next arrival as a number of arrivals of the plan."""
    step: Floats
    random: Ints
    """The state of a generator of random gaps; 0 for even ones."""
    segment: Ints
    given_next: Ints
    """The next of the given events; where there are none, the plan counts."""
    given_end: Ints
    arrived: Ints
    """When the request that is under way arrived, DONE for none; for consumers, the next batch."""
    began: Ints
    """When a request that changes topics was sent for the first time."""
    pending: Ints
    """Bytes that a consumer has yet to fetch, or topics that were rejected."""
    given_size: Ints
    """Bytes of the recorded request that is under way; for consumers, of the next batch."""
    waited: Ints
    """The longest time from the arrival of a recorded request to its charge."""
    due: Ints
    tie: Ints
    """Who goes first at the same ms."""
    muted: Ints
    busy: Ints
    """Until when a recorded consumer processes what it has got, and reads no response."""
    filled: IntRows
    """Bytes of each partition in the recorded request that is under way, where waiting requests are joined."""
    last_received: Ints
    received: IntRows
    """When the last `in_flight` responses were received."""
    ends: IntRows
    """When their throttle times are over for the client; when they are received, for one that does not wait."""
    sent: Ints
    """Responses so far."""
    heap: Ints
    """All connections, the one with the earliest event first."""
    offered_units: Ints
    delivered_units: Ints
    delivered_ms: Ints
    """When something was delivered last."""
    rejected_units: Ints
    rejections: Ints
    """Topics answered with THROTTLING_QUOTA_EXCEEDED, retries included."""
    waiting_units: Ints
    throttled: Ints
    throttle_ms: Ints
    max_ms: Ints
    first_ms: Ints
    until_ms: Ints
    exempt_nanos: Ints
    """Thread time that the request quota did not charge."""
    muted_by: Ints
    """The sensor of the last throttle time; NONE before."""
    load_charged: Ints
    nanos_charged: Ints
    load_ms: Ints
    """Throttle time that comes from `load_sensor`."""
    request_ms: Ints


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
    behaviours: Behaviours
    connections: Connections
    given: Given


_FLOATS: Final = frozenset(
    ("bounds", "peak", "target", "step", *(name for name in Behaviours._fields if name.startswith("seg_")))
)
T = TypeVar("T", Behaviours, Connections, Sensors)


def new_columns(of: type[T], rows: int, column: Callable[[Sequence[Any], str], Any], **given: Any) -> T:
    """Columns of that kind: those given (lists, tables or numbers), and zeros in the others.

    `column` makes the kernel's kind of sequence from a list.
    """
    columns: dict[str, Any] = {}
    ints: dict[str, list[Any]] = {}
    floats: dict[str, list[Any]] = {}
    zeros = [0] * rows
    for name in of._fields:
        values = given.get(name, zeros)
        if not isinstance(values, list) or (values and isinstance(values[0], list)):
            columns[name] = values
        elif name in _FLOATS:
            floats[name] = values
        else:
            ints[name] = values
    # The columns are parts of one: making fifty of them takes longer than a short run.
    for dtype, parts in (("int64", ints), ("float64", floats)):
        every = list(chain.from_iterable(parts.values()))
        whole = column(list(map(float, every)) if parts is floats else every, dtype)
        end = 0
        for name, values in parts.items():
            start, end = end, end + len(values)
            columns[name] = whole[start:end]
    return of(**columns)
