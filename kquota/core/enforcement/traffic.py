"""Clients that send, and what their broker makes of it: a discrete-event loop over connections, compiled or plain.

A connection has one event at a time: the moment (ms) at which the broker charges its next request. The loop takes the
earliest, charges the sensors of the connection in the order of `KafkaApis`, and computes when the next request of this
connection can be charged. In the open loop requests come as planned, whatever the broker says. In the closed loop a
connection is muted for the throttle time (KIP-219), has at most `in_flight` requests without a response, and takes its
arrivals as fast as it may: what cannot be sent yet waits.

Everything is rows of columns, so that one call runs many events: `Behaviours` are what connections of one kind have in
common, `Connections` what each of them has, `Sensors` the counters of a broker. Times are those of the broker's clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, MutableSequence, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from kquota.core.enforcement.arithmetic import LONG_MAX, long_to_int
from kquota.core.enforcement.check import (
    PERCENT_PER_NANO,
    SENSOR_EXPIRY_MS,
    UNBOUNDED,
    Verdict,
    max_fetch_bytes,
    record_and_check,
)
from kquota.core.enforcement.combined import BANDWIDTH, REQUEST, throttle
from kquota.core.enforcement.kernel import compilable
from kquota.core.enforcement.mutation import mutate_permissive, mutate_strict
from kquota.core.enforcement.rate import COUNT, Rate, measure, record
from kquota.core.enforcement.replay import NEVER
from kquota.core.enforcement.token_bucket import TokenBucket, clear_tokens

PRODUCE: Final = 0
FETCH: Final = 1
OTHER: Final = 2
"""A request that only the request quota limits."""
STRICT: Final = 3
"""Topics created, deleted or extended by a version that knows THROTTLING_QUOTA_EXCEEDED."""
PERMISSIVE: Final = 4
"""The same by an older version, which is muted instead."""

DONE: Final = LONG_MAX
"""The time of what will not happen any more."""
NONE: Final = -1
"""The sensor of a connection that none limits."""

Ints: TypeAlias = MutableSequence[int]
Floats: TypeAlias = MutableSequence[float]
IntRows: TypeAlias = Sequence[Ints]
FloatRows: TypeAlias = Sequence[Floats]


class Sensors(NamedTuple):
    """The counters of a broker, a row each: limit, state of the statistic, and what happened."""

    samples: int
    window_ms: int
    by_last: bool
    mutation_samples: int
    mutation_window_ms: int
    origin: int
    """When the simulation starts, ms."""
    bucket_ms: int
    """The width of the buckets of the series."""
    scrape_ms: int
    """How often somebody reads the metrics, which changes what follows; 0 for never."""
    bounds: Floats
    starts: IntRows
    lasts: IntRows
    sums: FloatRows
    marks: IntRows
    head: FloatRows
    tokens: FloatRows
    updated: IntRows
    recorded: Ints
    """The last mutation, or the sensor's creation; NEVER before the first."""
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
    touched: Ints
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
    saturating: Ints
    """1 for a client without a pace: it sends whenever it may."""
    size: Ints
    """Bytes of a request, of a batch to fetch, or partitions of a topic."""
    nanos: Ints
    """Request-handler time of a request, ns."""
    nanos_per_mib: Ints
    network_nanos: Ints
    """Network-thread time of a request, ns."""
    acks: Ints
    latency: Ints
    """From the reading of a request to its response."""
    to_broker: Ints
    to_client: Ints
    think: Ints
    in_flight: Ints
    max_bytes: Ints
    """What a fetch asks for at most."""
    max_wait: Ints
    """How long a fetch waits for data."""
    topics: Ints
    retry: Ints
    """1 for a client that sends rejected topics again."""
    honours: Ints
    """1 for a client that waits for the throttle time of a response by itself."""
    start: Ints
    stop: Ints
    plan_end: Ints
    """After the last segment of the plan; the connections know the first."""
    seg_from: Floats
    """Segments of all plans, in order: from, to (ms since the origin), arrivals per ms at either end."""
    seg_to: Floats
    seg_rate: Floats
    seg_rate_to: Floats
    seg_count: Floats
    """Arrivals before the segment."""
    seg_count_to: Floats


class Connections(NamedTuple):
    """The state and the totals of each connection."""

    behaviour: Ints
    bytes_sensor: Ints
    request_sensor: Ints
    mutation_sensor: Ints
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
    pending: Ints
    """Bytes that a consumer has yet to fetch, or topics that were rejected."""
    due: Ints
    tie: Ints
    """Who goes first at the same ms."""
    muted: Ints
    waits: Ints
    """Until when the client itself waits."""
    last_received: Ints
    received: IntRows
    """When the last `in_flight` responses were received."""
    sent: Ints
    """Responses so far."""
    heap: Ints
    """All connections, the one with the earliest event first."""
    offered_units: Ints
    delivered_units: Ints
    rejected_units: Ints
    rejections: Ints
    """Topics answered with THROTTLING_QUOTA_EXCEEDED, retries included."""
    waiting_units: Ints
    throttled: Ints
    throttle_ms: Ints
    max_ms: Ints
    first_ms: Ints
    until_ms: Ints
    bytes_charged: Ints
    nanos_charged: Ints
    mutations_charged: Ints
    bytes_ms: Ints
    request_ms: Ints
    mutation_ms: Ints


class Given(NamedTuple):
    """Events as they were recorded: times (ms), bytes and thread time (ns); a connection owns a range of rows."""

    times: Ints
    sizes: Ints
    nanos: Ints
    order: Ints


class Traffic(NamedTuple):
    """All that a run works on."""

    sensors: Sensors
    behaviours: Behaviours
    connections: Connections
    given: Given


_FLOATS: Final = {"bounds", "peak", "target", "step"}
T = TypeVar("T", Behaviours, Connections, Sensors)


def new_columns(of: type[T], rows: int, column: Callable[[Sequence[Any], str], Any], **given: Any) -> T:
    """Columns of that kind: those given (lists, tables or numbers), and zeros in the others.

    `column` makes the kernel's kind of sequence from a list.
    """
    columns = []
    for name in of._fields:
        values = given.get(name)
        if values is None:
            values = [0] * rows
        if isinstance(values, list) and not (values and isinstance(values[0], list)):
            floats = name in _FLOATS or name.startswith("seg_")
            values = column([float(value) for value in values] if floats else values, "float64" if floats else "int64")
        columns.append(values)
    return of(*columns)


# --- sensors ---


@compilable
def rate_of(sensors: Sensors, sensor: int) -> Rate:
    """The statistic of a row."""
    return Rate(
        sensors.samples,
        sensors.window_ms,
        sensors.by_last,
        sensors.starts[sensor],
        sensors.lasts[sensor],
        sensors.sums[sensor],
        sensors.marks[sensor],
        sensors.head[sensor],
    )


@compilable
def bucket_of(sensors: Sensors, sensor: int) -> TokenBucket:
    """The token bucket of a row."""
    return TokenBucket(
        sensors.mutation_samples, sensors.mutation_window_ms, sensors.tokens[sensor], sensors.updated[sensor]
    )


@compilable
def place(sensors: Sensors, now: int) -> int:
    """The bucket of the series that a time falls into, the last one for what is later."""
    number = (now - sensors.origin) // sensors.bucket_ms
    last = len(sensors.offered[0]) - 1
    return last if number > last else number


@compilable
def touch(sensors: Sensors, sensor: int, now: int) -> None:
    """Reads the metric as often as somebody would have since the last event, and notes the silence."""
    if sensors.touched[sensor] != NEVER:
        gap = now - sensors.touched[sensor]
        if gap > sensors.gap_ms[sensor]:
            sensors.gap_ms[sensor] = gap
    sensors.touched[sensor] = now
    if sensors.scrape_ms > 0:
        rate = rate_of(sensors, sensor)
        if rate.marks[COUNT] > 0:
            while sensors.scraped[sensor] < now:
                measure(rate, sensors.scraped[sensor])
                sensors.scraped[sensor] += sensors.scrape_ms
        else:
            since = now - sensors.origin
            sensors.scraped[sensor] = now + sensors.scrape_ms - since % sensors.scrape_ms


@compilable
def check(sensors: Sensors, sensor: int, now: int, value: float, cap_ms: int) -> int:
    """Records and checks; returns the raw delay."""
    touch(sensors, sensor, now)
    verdict: Verdict = record_and_check(rate_of(sensors, sensor), value, now, sensors.bounds[sensor], cap_ms)
    sensors.events[sensor] += 1
    if verdict.violated:
        sensors.violated[sensor] += 1
    if verdict.rate > sensors.peak[sensor]:
        sensors.peak[sensor] = verdict.rate
        sensors.peak_ms[sensor] = now
    return verdict.throttle_ms


@compilable
def note_throttle(sensors: Sensors, sensor: int, now: int, delay: int) -> None:
    """Counts a throttle time that this sensor is the reason of."""
    sensors.throttled[sensor] += 1
    sensors.throttle_ms[sensor] += delay
    if delay > sensors.max_ms[sensor]:
        sensors.max_ms[sensor] = delay
    if sensors.first_ms[sensor] == NEVER:
        sensors.first_ms[sensor] = now
    end = now + delay
    if end > sensors.until_ms[sensor]:
        sensors.until_ms[sensor] = end
    bucket = place(sensors, now)
    sensors.throttling[sensor][bucket] += delay
    if end - sensors.origin > sensors.ends[sensor][bucket]:
        sensors.ends[sensor][bucket] = end - sensors.origin


# --- arrivals ---


@compilable
def thread_nanos(traffic: Traffic, connection: int, size: int) -> int:
    """Request-handler time of a request: fixed, and per MiB."""
    behaviours = traffic.behaviours
    row = traffic.connections.behaviour[connection]
    if behaviours.nanos_per_mib[row] == 0:
        return behaviours.nanos[row]
    return behaviours.nanos[row] + size * behaviours.nanos_per_mib[row] // 1048576


@compilable
def random_gap(connections: Connections, connection: int) -> float:
    """An exponentially distributed gap with a mean of 1, from a xorshift of 32 bits; 1 for even gaps."""
    state = connections.random[connection]
    if state == 0:
        return 1.0
    state ^= (state << 13) & 0xFFFFFFFF
    state ^= state >> 17
    state ^= (state << 5) & 0xFFFFFFFF
    connections.random[connection] = state
    return -math.log((state - 0.5) / 4294967296.0)


@compilable
def planned(traffic: Traffic, connection: int) -> int:
    """The time of the next arrival of the plan, or DONE; the plan moves on."""
    behaviours, connections = traffic.behaviours, traffic.connections
    row = connections.behaviour[connection]
    segment = connections.segment[connection]
    end = behaviours.plan_end[row]
    target = connections.target[connection]
    # A hair of tolerance: sums of doubles must not push an arrival over the edge of its ms or of its segment.
    while segment < end and target >= behaviours.seg_count_to[segment] - 1e-9:
        segment += 1
    connections.segment[connection] = segment
    if segment >= end:
        return DONE
    connections.target[connection] = target + connections.step[connection] * random_gap(connections, connection)
    more = target - behaviours.seg_count[segment]
    elapsed = 0.0
    if more > 0.0:
        rate = behaviours.seg_rate[segment]
        length = behaviours.seg_to[segment] - behaviours.seg_from[segment]
        slope = (behaviours.seg_rate_to[segment] - rate) / length
        inner = rate * rate + 2.0 * slope * more
        elapsed = 2.0 * more / (rate + math.sqrt(inner if inner > 0.0 else 0.0))
    return traffic.sensors.origin + int(behaviours.seg_from[segment] + elapsed + 1e-6)


@compilable
def take(traffic: Traffic, connection: int) -> int:
    """The next arrival, or DONE; it counts as offered."""
    connections, given = traffic.connections, traffic.given
    row = connections.given_next[connection]
    if connections.given_end[connection] > 0:
        if row == connections.given_end[connection]:
            return DONE
        connections.given_next[connection] = row + 1
        connections.tie[connection] = given.order[row]
        offer(traffic, connection, given.times[row], given.sizes[row], given.nanos[row])
        return given.times[row]
    now = planned(traffic, connection)
    if now != DONE:
        size = traffic.behaviours.size[connections.behaviour[connection]]
        offer(traffic, connection, now, size, thread_nanos(traffic, connection, size))
    return now


@compilable
def offer(traffic: Traffic, connection: int, now: int, size: int, nanos: int) -> None:
    """Counts an arrival."""
    connections, sensors = traffic.connections, traffic.sensors
    row = connections.behaviour[connection]
    kind = traffic.behaviours.kind[row]
    units = 1 if kind == OTHER else size
    if kind >= STRICT:
        units = size * traffic.behaviours.topics[row]
    connections.offered_units[connection] += units
    bucket = place(sensors, now)
    sensor = connections.bytes_sensor[connection]
    if sensor != NONE:
        sensors.offered[sensor][bucket] += units
    sensor = connections.request_sensor[connection]
    if sensor != NONE:
        sensors.offered[sensor][bucket] += nanos + traffic.behaviours.network_nanos[row]
    sensor = connections.mutation_sensor[connection]
    if sensor != NONE:
        sensors.offered[sensor][bucket] += units


# --- one request ---


@compilable
def charge(traffic: Traffic, connection: int, now: int) -> int:
    """The broker's part: charges the request that is due, and returns the throttle time of its response (0 for none).

    Produce charges bytes first and thread time after, fetch the other way round; the longer delay counts. A delayed
    fetch is taken back and answered empty.
    """
    sensors, behaviours, connections = traffic.sensors, traffic.behaviours, traffic.connections
    row = connections.behaviour[connection]
    kind = behaviours.kind[row]
    if kind >= STRICT:
        return charge_mutation(traffic, connection, now)
    bytes_sensor = connections.bytes_sensor[connection]
    request_sensor = connections.request_sensor[connection]
    size = request_size(traffic, connection, now)
    nanos = thread_nanos(traffic, connection, size)
    if connections.given_end[connection] > 0:
        nanos = traffic.given.nanos[connections.given_next[connection] - 1]
    if behaviours.saturating[row] != 0:
        offer(traffic, connection, now, size, nanos)
    exempt = kind == PRODUCE and behaviours.acks[row] == 0
    bandwidth_ms = 0
    request_ms = 0
    if kind == PRODUCE and bytes_sensor != NONE:
        bandwidth_ms = check(sensors, bytes_sensor, now, float(size), UNBOUNDED)
    if request_sensor != NONE and not exempt:
        request_ms = check(sensors, request_sensor, now, nanos * PERCENT_PER_NANO, sensors.window_ms)
    if kind == FETCH and bytes_sensor != NONE:
        bandwidth_ms = check(sensors, bytes_sensor, now, float(size), UNBOUNDED)
    outcome = throttle(bandwidth_ms, request_ms)
    delay = outcome.throttle_ms if outcome.throttle_ms > 0 else 0
    refused = kind == FETCH and delay > 0
    if refused and bytes_sensor != NONE:
        record(rate_of(sensors, bytes_sensor), -float(size), now)
    bucket = place(sensors, now)
    if request_sensor != NONE and not exempt:
        network = behaviours.network_nanos[row]
        if network > 0:
            record(rate_of(sensors, request_sensor), network * PERCENT_PER_NANO, now)
        connections.nanos_charged[connection] += nanos + network
        sensors.delivered[request_sensor][bucket] += nanos + network
    if delay > 0:
        if outcome.muted_by == BANDWIDTH:
            note_throttle(sensors, bytes_sensor, now, delay)
            connections.bytes_ms[connection] += delay
        elif outcome.muted_by == REQUEST:
            note_throttle(sensors, request_sensor, now, delay)
            connections.request_ms[connection] += delay
    units = 1 if kind == OTHER else size
    if not refused:
        connections.delivered_units[connection] += units
        if bytes_sensor != NONE:
            connections.bytes_charged[connection] += size
            sensors.delivered[bytes_sensor][bucket] += size
        if kind == FETCH and behaviours.closed[row] != 0 and behaviours.saturating[row] == 0:
            connections.pending[connection] -= size
    elif behaviours.closed[row] == 0:
        connections.rejected_units[connection] += units
    return delay


@compilable
def request_size(traffic: Traffic, connection: int, now: int) -> int:
    """The bytes of the request, or of the response to a fetch, that is charged at `now`."""
    sensors, behaviours, connections = traffic.sensors, traffic.behaviours, traffic.connections
    row = connections.behaviour[connection]
    if connections.given_end[connection] > 0:
        return traffic.given.sizes[connections.given_next[connection] - 1]
    size = behaviours.size[row]
    if behaviours.kind[row] != FETCH or behaviours.closed[row] == 0:
        return size
    most = behaviours.max_bytes[row]
    sensor = connections.bytes_sensor[connection]
    if sensor != NONE:
        most = min(most, max_fetch_bytes(sensors.bounds[sensor], sensors.samples, sensors.window_ms // 1000))
    most = max(most, size)  # the first batch is sent whole, whatever its size
    if behaviours.saturating[row] != 0:
        return most
    collect(traffic, connection, now - behaviours.latency[row])
    return min(connections.pending[connection], most)


@compilable
def collect(traffic: Traffic, connection: int, until: int) -> None:
    """Adds the batches that have arrived to what a consumer can fetch."""
    connections = traffic.connections
    while connections.arrived[connection] <= until:
        connections.pending[connection] += traffic.behaviours.size[connections.behaviour[connection]]
        connections.arrived[connection] = take(traffic, connection)


@compilable
def charge_mutation(traffic: Traffic, connection: int, now: int) -> int:
    """A request that changes topics: each topic is charged by itself, and some may be rejected."""
    sensors, behaviours, connections = traffic.sensors, traffic.behaviours, traffic.connections
    row = connections.behaviour[connection]
    partitions = behaviours.size[row]
    topics = connections.pending[connection]
    if topics == 0:
        topics = behaviours.topics[row]
        if behaviours.saturating[row] != 0:
            offer(traffic, connection, now, partitions, behaviours.nanos[row])
    sensor = connections.mutation_sensor[connection]
    request_sensor = connections.request_sensor[connection]
    rejected = 0
    last_ms = 0
    if sensor != NONE:
        bucket = bucket_of(sensors, sensor)
        idle_since = sensors.recorded[sensor]
        if idle_since == NEVER or now - idle_since > SENSOR_EXPIRY_MS:
            clear_tokens(bucket)
            sensors.recorded[sensor] = now
        bound = sensors.bounds[sensor]
        for _ in range(topics):
            if behaviours.kind[row] == STRICT:
                outcome = mutate_strict(bucket, now, float(partitions), bound)
            else:
                outcome = mutate_permissive(bucket, now, float(partitions), bound)
            sensors.events[sensor] += 1
            if outcome.violated:
                sensors.violated[sensor] += 1
                last_ms = outcome.delay_ms
            if -outcome.tokens > sensors.peak[sensor]:
                sensors.peak[sensor] = -outcome.tokens
                sensors.peak_ms[sensor] = now
            if outcome.accepted:
                sensors.recorded[sensor] = now
            else:
                rejected += 1
    accepted = topics - rejected
    mutation_ms = long_to_int(last_ms) if last_ms > 0 else 0
    request_ms = 0
    if request_sensor != NONE:
        request_ms = check(sensors, request_sensor, now, behaviours.nanos[row] * PERCENT_PER_NANO, sensors.window_ms)
        network = behaviours.network_nanos[row]
        if network > 0:
            record(rate_of(sensors, request_sensor), network * PERCENT_PER_NANO, now)
        connections.nanos_charged[connection] += behaviours.nanos[row] + network
        sensors.delivered[request_sensor][place(sensors, now)] += behaviours.nanos[row] + network
    delay = max(request_ms, mutation_ms, 0)
    if delay > 0:
        if mutation_ms >= request_ms:
            note_throttle(sensors, sensor, now, delay)
            connections.mutation_ms[connection] += delay
        else:
            note_throttle(sensors, request_sensor, now, delay)
            connections.request_ms[connection] += delay
    connections.rejections[connection] += rejected
    connections.delivered_units[connection] += accepted * partitions
    connections.mutations_charged[connection] += accepted * partitions
    if sensor != NONE:
        sensors.delivered[sensor][place(sensors, now)] += accepted * partitions
    connections.pending[connection] = 0
    if behaviours.retry[row] != 0 and behaviours.closed[row] != 0:
        connections.pending[connection] = rejected
    else:
        connections.rejected_units[connection] += rejected * partitions
    return delay


@compilable
def answer(traffic: Traffic, connection: int, now: int, delay: int) -> None:
    """The response is sent: at once, whatever the delay; the channel is muted and the client told (KIP-219)."""
    behaviours, connections = traffic.behaviours, traffic.connections
    row = connections.behaviour[connection]
    if delay > 0:
        connections.throttled[connection] += 1
        connections.throttle_ms[connection] += delay
        if delay > connections.max_ms[connection]:
            connections.max_ms[connection] = delay
        if connections.first_ms[connection] == NEVER:
            connections.first_ms[connection] = now
        if now + delay > connections.until_ms[connection]:
            connections.until_ms[connection] = now + delay
    connections.muted[connection] = now + delay
    received = now + behaviours.to_client[row]
    connections.received[connection][connections.sent[connection] % behaviours.in_flight[row]] = received
    connections.sent[connection] += 1
    connections.last_received[connection] = received
    if behaviours.honours[row] != 0:
        connections.waits[connection] = received + delay


@compilable
def send(traffic: Traffic, connection: int, now: int) -> None:
    """Decides when the next request of the connection is charged; `now` is the time of the last response."""
    behaviours, connections = traffic.behaviours, traffic.connections
    row = connections.behaviour[connection]
    if behaviours.closed[row] == 0:
        connections.due[connection] = take(traffic, connection)
        return
    sent = max(
        behaviours.start[row],
        connections.received[connection][connections.sent[connection] % behaviours.in_flight[row]],
        connections.waits[connection],
    )
    if behaviours.think[row] > 0 and connections.sent[connection] > 0:
        sent = max(sent, connections.last_received[connection] + behaviours.think[row])
    polls = behaviours.kind[row] == FETCH
    if polls or behaviours.saturating[row] != 0:
        if sent >= behaviours.stop[row] and (polls or connections.pending[connection] == 0):
            connections.due[connection] = DONE
            return
    elif connections.pending[connection] == 0:  # no rejected topics that go first
        arrived = take(traffic, connection)
        connections.arrived[connection] = arrived
        if arrived == DONE:
            connections.due[connection] = DONE
            return
        sent = max(sent, arrived)
    # The broker reads the next request of a connection when the response to the last is sent and the mute is over.
    read = max(sent + behaviours.to_broker[row], now, connections.muted[connection])
    if polls and behaviours.saturating[row] == 0:
        collect(traffic, connection, read)
        if connections.pending[connection] == 0:
            read = min(connections.arrived[connection], read + behaviours.max_wait[row])
    connections.due[connection] = read + behaviours.latency[row]


# --- the loop ---


@compilable
def before(connections: Connections, one: int, other: int) -> bool:
    """Whether one connection's event is before another's."""
    if connections.due[one] != connections.due[other]:
        return connections.due[one] < connections.due[other]
    return connections.tie[one] < connections.tie[other]


@compilable
def sift(connections: Connections, position: int) -> None:
    """Puts the connection at a position of the heap where it belongs, further down."""
    heap = connections.heap
    count = len(heap)
    moving = heap[position]
    while True:
        child = 2 * position + 1
        if child >= count:
            break
        if child + 1 < count and before(connections, heap[child + 1], heap[child]):
            child += 1
        if not before(connections, heap[child], moving):
            break
        heap[position] = heap[child]
        position = child
    heap[position] = moving


@compilable
def begin_traffic(traffic: Traffic) -> None:
    """Plans the first request of every connection."""
    connections = traffic.connections
    for connection in range(len(connections.heap)):
        row = connections.behaviour[connection]
        polls = traffic.behaviours.kind[row] == FETCH and traffic.behaviours.closed[row] != 0
        if connections.random[connection] != 0:
            connections.target[connection] = connections.step[connection] * random_gap(connections, connection)
        if polls and traffic.behaviours.saturating[row] == 0:
            connections.arrived[connection] = take(traffic, connection)
        send(traffic, connection, traffic.sensors.origin)
    for position in range(len(connections.heap) // 2 - 1, -1, -1):
        sift(connections, position)


@compilable
def run_traffic(traffic: Traffic, until: int) -> int:
    """Runs all events before `until`; returns how many there were. It can be called again, with a later time."""
    connections = traffic.connections
    events = 0
    while True:
        connection = connections.heap[0]
        now = connections.due[connection]
        if now >= until:
            return events
        delay = charge(traffic, connection, now)
        answer(traffic, connection, now, delay)
        send(traffic, connection, now)
        sift(connections, 0)
        events += 1


@compilable
def end_traffic(traffic: Traffic) -> None:
    """Counts what still waits: what arrived, and was neither delivered nor rejected."""
    behaviours, connections = traffic.behaviours, traffic.connections
    for connection in range(len(connections.heap)):
        row = connections.behaviour[connection]
        kind = behaviours.kind[row]
        if behaviours.closed[row] == 0:
            continue  # every arrival is an event
        size = behaviours.size[row]
        if kind == FETCH:
            connections.waiting_units[connection] = connections.pending[connection]
        elif kind >= STRICT and connections.pending[connection] > 0:
            connections.waiting_units[connection] = connections.pending[connection] * size
        elif behaviours.saturating[row] == 0 and connections.arrived[connection] != DONE:
            connections.waiting_units[connection] = 1 if kind == OTHER else size
            if kind >= STRICT:
                connections.waiting_units[connection] *= behaviours.topics[row]
        if behaviours.saturating[row] != 0:
            continue
        units = 1 if kind == OTHER else size
        if kind >= STRICT:
            units = size * behaviours.topics[row]
        if kind == FETCH and connections.arrived[connection] != DONE:
            connections.waiting_units[connection] += units
        while take(traffic, connection) != DONE:
            connections.waiting_units[connection] += units
