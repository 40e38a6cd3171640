"""When the next request of a connection arrives: by the plan of its client, or as it was recorded."""

import math
from typing import Final

from kquota.core.enforcement.compilable import compilable, inlined
from kquota.core.enforcement.kind import MUTATION, REQUEST
from kquota.core.enforcement.traffic.columns import DONE, NONE, PARTITIONS, Connections, Traffic
from kquota.core.enforcement.traffic.counters import place

MOST_PASSED: Final = 1000
"""So many waiting requests of partitions whose batches are full are passed over; those behind them wait as well."""


@inlined
def load_of(traffic: Traffic, connection: int) -> int:
    """Bytes of the request or batch that is under way, or partitions of each topic: as recorded, or as planned."""
    connections = traffic.connections
    if connections.given_end[connection] > 0:
        return connections.given_size[connection]
    return traffic.behaviours.size[connections.behaviour[connection]]


@inlined
def units_of(kind: int, load: int, topics: int) -> int:
    """What an arrival counts as: bytes, one request, or partitions."""
    if kind == REQUEST:
        return 1
    return load * topics if kind >= MUTATION else load


@inlined
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
    while segment < end and target >= behaviours.seg_after[segment] - 1e-9:
        segment += 1
    connections.segment[connection] = segment
    if segment >= end:
        return DONE
    connections.target[connection] = target + connections.step[connection] * random_gap(connections, connection)
    more = target - behaviours.seg_before[segment]
    elapsed = 0.0
    if more > 0.0:
        rate = behaviours.seg_rate[segment]
        length = behaviours.seg_end[segment] - behaviours.seg_start[segment]
        slope = (behaviours.seg_end_rate[segment] - rate) / length
        inner = rate * rate + 2.0 * slope * more
        elapsed = 2.0 * more / (rate + math.sqrt(inner if inner > 0.0 else 0.0))
    return traffic.sensors.origin + int(behaviours.seg_start[segment] + elapsed + 1e-6)


@compilable
def take(traffic: Traffic, connection: int) -> int:
    """The next arrival, or DONE; it counts as offered."""
    connections, given = traffic.connections, traffic.given
    row = connections.given_next[connection]
    if connections.given_end[connection] > 0:
        # Those that went out with an earlier request are gone.
        while row < connections.given_end[connection] and given.charged[row] >= 0:
            row += 1
        if row == connections.given_end[connection]:
            connections.given_next[connection] = row
            return DONE
        connections.given_next[connection] = row + 1
        connections.tie[connection] = given.order[row]
        connections.given_size[connection] = given.sizes[row]
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
    units = units_of(traffic.behaviours.kind[row], size, traffic.behaviours.topics[row])
    connections.offered_units[connection] += units
    bucket = place(sensors, now)
    sensor = connections.load_sensor[connection]
    if sensor != NONE:
        sensors.offered[sensor][bucket] += units
    sensor = connections.request_sensor[connection]
    if sensor != NONE and traffic.behaviours.exempt[row] == 0:
        sensors.offered[sensor][bucket] += nanos + traffic.behaviours.network_nanos[row]


@inlined
def merge_waiting(traffic: Traffic, connection: int, until: int, charged: int) -> None:
    """Joins the recorded requests that have arrived meanwhile to the one that goes out, which will be `charged` then.

    Java's `RecordAccumulator` drains one batch of each partition into a request. A batch that is full lets the next
    ones of its partition wait, and those of other partitions overtake them.
    """
    behaviours, connections, given = traffic.behaviours, traffic.connections, traffic.given
    row = connections.behaviour[connection]
    first = connections.given_next[connection] - 1
    filled = connections.filled[connection]
    for partition in range(PARTITIONS):
        filled[partition] = 0
    filled[given.partitions[first]] = given.sizes[first]
    passed = 0
    for following in range(first + 1, connections.given_end[connection]):
        if given.times[following] > until or given.thinks[following] >= 0 or passed == MOST_PASSED:
            return
        if given.charged[following] >= 0:
            continue
        saves = min(behaviours.merge_saves[row], given.sizes[following])
        more = given.sizes[following] - saves
        partition = given.partitions[following]
        # A batch that has no room for the next request of its partition is closed, also for smaller ones.
        if filled[partition] < 0 or (filled[partition] > 0 and filled[partition] + more > behaviours.batch[row]):
            filled[partition] = -1
            passed += 1
            continue
        if connections.given_size[connection] + more > behaviours.merge[row]:
            return
        filled[partition] += more
        offer(traffic, connection, given.times[following], given.sizes[following], given.nanos[following])
        given.charged[following] = charged
        connections.given_size[connection] += more
        connections.offered_units[connection] -= saves


@compilable
def collect(traffic: Traffic, connection: int, until: int) -> None:
    """Adds the batches that have arrived to what a consumer can fetch."""
    connections = traffic.connections
    while connections.arrived[connection] <= until:
        connections.pending[connection] += load_of(traffic, connection)
        connections.arrived[connection] = take(traffic, connection)
        if connections.given_end[connection] > 0 and connections.arrived[connection] != DONE:
            thinks = traffic.given.thinks[connections.given_next[connection] - 1] >= 0
            if thinks:  # it asks for these when it has got and processed what is pending
                connections.arrived[connection] = DONE - 1
