"""When the next request of a connection arrives: by the plan of its client, or as it was recorded."""

import math
from typing import Final

from kquota.core.enforcement.compilable import compilable, inlined
from kquota.core.enforcement.kind import MUTATION, REQUEST
from kquota.core.enforcement.traffic.counters import place
from kquota.core.enforcement.traffic.state import DONE, NONE, PARTITIONS, Connection, Traffic

MOST_PASSED: Final = 1000
"""So many waiting requests of partitions whose batches are full are passed over; those behind them wait as well."""


@inlined
def load_of(traffic: Traffic, connection: int) -> int:
    """Bytes of the request or batch that is under way, or partitions of each topic: as recorded, or as planned."""
    row = traffic.connections[connection]
    if row.given_end > 0:
        return row.given_size
    return traffic.behaviours[row.behaviour].size


@inlined
def units_of(kind: int, load: int, topics: int) -> int:
    """What an arrival counts as: bytes, one request, or partitions."""
    if kind == REQUEST:
        return 1
    return load * topics if kind >= MUTATION else load


@inlined
def thread_nanos(traffic: Traffic, connection: int, size: int) -> int:
    """Request-handler time of a request: fixed, and per MiB."""
    client = traffic.behaviours[traffic.connections[connection].behaviour]
    if client.nanos_per_mib == 0:
        return client.nanos
    return client.nanos + size * client.nanos_per_mib // 1048576


@inlined
def random_gap(row: Connection) -> float:
    """An exponentially distributed gap with a mean of 1, from a xorshift of 32 bits; 1 for even gaps."""
    state = row.random
    if state == 0:
        return 1.0
    state ^= (state << 13) & 0xFFFFFFFF
    state ^= state >> 17
    state ^= (state << 5) & 0xFFFFFFFF
    row.random = state
    return -math.log((state - 0.5) / 4294967296.0)


@inlined
def planned(traffic: Traffic, connection: int) -> int:
    """The time of the next arrival of the plan, or DONE; the plan moves on."""
    row = traffic.connections[connection]
    client = traffic.behaviours[row.behaviour]
    segments, segment = traffic.segments, row.segment
    end = client.plan_end
    target = row.target
    # A hair of tolerance: sums of doubles must not push an arrival over the edge of its ms or of its segment.
    while segment < end and target >= segments[segment].after - 1e-9:
        segment += 1
    row.segment = segment
    if segment >= end:
        return DONE
    row.target = target + row.step * random_gap(row)
    more = target - segments[segment].before
    elapsed = 0.0
    if more > 0.0:
        rate = segments[segment].rate
        length = segments[segment].end - segments[segment].start
        slope = (segments[segment].end_rate - rate) / length
        inner = rate * rate + 2.0 * slope * more
        elapsed = 2.0 * more / (rate + math.sqrt(inner if inner > 0.0 else 0.0))
    return traffic.sensors.origin + int(segments[segment].start + elapsed + 1e-6)


@inlined
def take(traffic: Traffic, connection: int) -> int:
    """The next arrival, or DONE; it counts as offered."""
    row, given = traffic.connections[connection], traffic.given
    event = row.given_next
    if row.given_end > 0:
        # Those that went out with an earlier request are gone.
        while event < row.given_end and given.charged[event] >= 0:
            event += 1
        if event == row.given_end:
            row.given_next = event
            return DONE
        row.given_next = event + 1
        row.tie = given.order[event]
        row.given_size = given.sizes[event]
        offer(traffic, connection, given.times[event], given.sizes[event], given.nanos[event])
        return given.times[event]
    now = planned(traffic, connection)
    if now != DONE:
        size = traffic.behaviours[row.behaviour].size
        offer(traffic, connection, now, size, thread_nanos(traffic, connection, size))
    return now


@inlined
def offer(traffic: Traffic, connection: int, now: int, size: int, nanos: int) -> None:
    """Counts an arrival."""
    sensors, row = traffic.sensors, traffic.connections[connection]
    client = traffic.behaviours[row.behaviour]
    units = units_of(client.kind, size, client.topics)
    row.offered_units += units
    bucket = place(sensors, now)
    sensor = row.load_sensor
    if sensor != NONE:
        sensors.offered[sensor][bucket] += units
    sensor = row.request_sensor
    if sensor != NONE and client.exempt == 0:
        sensors.offered[sensor][bucket] += nanos + client.network_nanos


@inlined
def merge_waiting(traffic: Traffic, connection: int, until: int, charged: int) -> None:
    """Joins the recorded requests that have arrived meanwhile to the one that goes out, which will be `charged` then.

    Java's `RecordAccumulator` drains one batch of each partition into a request. A batch that is full lets the next
    ones of its partition wait, and those of other partitions overtake them.
    """
    row, given = traffic.connections[connection], traffic.given
    client = traffic.behaviours[row.behaviour]
    first = row.given_next - 1
    filled = traffic.filled[connection]
    for partition in range(PARTITIONS):
        filled[partition] = 0
    filled[given.partitions[first]] = given.sizes[first]
    passed = 0
    for following in range(first + 1, row.given_end):
        if given.times[following] > until or given.thinks[following] >= 0 or passed == MOST_PASSED:
            return
        if given.charged[following] >= 0:
            continue
        saves = min(client.merge_saves, given.sizes[following])
        more = given.sizes[following] - saves
        partition = given.partitions[following]
        # A batch that has no room for the next request of its partition is closed, also for smaller ones.
        if filled[partition] < 0 or (filled[partition] > 0 and filled[partition] + more > client.batch):
            filled[partition] = -1
            passed += 1
            continue
        if row.given_size + more > client.merge:
            return
        filled[partition] += more
        offer(traffic, connection, given.times[following], given.sizes[following], given.nanos[following])
        given.charged[following] = charged
        row.given_size += more
        row.offered_units -= saves


@compilable
def collect(traffic: Traffic, connection: int, until: int) -> None:
    """Adds the batches that have arrived to what a consumer can fetch."""
    row = traffic.connections[connection]
    while row.arrived <= until:
        row.pending += load_of(traffic, connection)
        row.arrived = take(traffic, connection)
        if row.given_end > 0 and row.arrived != DONE:
            thinks = traffic.given.thinks[row.given_next - 1] >= 0
            if thinks:  # it asks for these when it has got and processed what is pending
                row.arrived = DONE - 1
