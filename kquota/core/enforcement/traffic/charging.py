"""The broker's part of a request: what it charges to which counters, and the throttle time of the response."""

from __future__ import annotations

from kquota.core.enforcement.arithmetic import long_to_int
from kquota.core.enforcement.check import PERCENT_PER_NANO, SENSOR_EXPIRY_MS, UNBOUNDED, max_fetch_bytes
from kquota.core.enforcement.combined import BANDWIDTH, throttle
from kquota.core.enforcement.compilable import compilable
from kquota.core.enforcement.kind import FETCH, MUTATION, PRODUCE, REQUEST
from kquota.core.enforcement.mutation import mutate_permissive, mutate_strict
from kquota.core.enforcement.rate import clear, record
from kquota.core.enforcement.replay import NEVER
from kquota.core.enforcement.token_bucket import clear_tokens
from kquota.core.enforcement.traffic.arrivals import collect, offer, thread_nanos
from kquota.core.enforcement.traffic.columns import NONE, Traffic
from kquota.core.enforcement.traffic.counters import bucket_of, check, mutation_rate_of, note_throttle, place, rate_of


@compilable
def charge(traffic: Traffic, connection: int, now: int) -> int:
    """The broker's part: charges the request that is due, and returns the throttle time of its response (0 for none).

    Produce charges bytes first and thread time after, fetch the other way round; the longer delay counts. A delayed
    fetch is taken back and answered empty.
    """
    sensors, behaviours, connections = traffic.sensors, traffic.behaviours, traffic.connections
    row = connections.behaviour[connection]
    kind = behaviours.kind[row]
    if kind >= MUTATION:
        return charge_mutation(traffic, connection, now)
    bytes_sensor = connections.bytes_sensor[connection]
    request_sensor = connections.request_sensor[connection]
    size = request_size(traffic, connection, now)
    nanos = thread_nanos(traffic, connection, size)
    if connections.given_end[connection] > 0:
        nanos = traffic.given.nanos[connections.given_next[connection] - 1]
    if behaviours.saturating[row] != 0:
        offer(traffic, connection, now, size, nanos)
    exempt = behaviours.exempt[row] != 0
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
    if exempt:
        connections.exempt_nanos[connection] += nanos + behaviours.network_nanos[row]
    if delay > 0:
        if outcome.muted_by == BANDWIDTH:
            connections.muted_by[connection] = bytes_sensor
            note_throttle(sensors, bytes_sensor, now, delay)
            connections.bytes_ms[connection] += delay
        elif outcome.muted_by == REQUEST:
            connections.muted_by[connection] = request_sensor
            note_throttle(sensors, request_sensor, now, delay)
            connections.request_ms[connection] += delay
    units = 1 if kind == REQUEST else size
    if not refused:
        connections.delivered_units[connection] += units
        if units > 0:
            connections.delivered_ms[connection] = now
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
    fetches = behaviours.kind[row] == FETCH and behaviours.closed[row] != 0
    if connections.given_end[connection] > 0 and not fetches:
        return connections.given_size[connection]
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
            clear(mutation_rate_of(sensors, sensor))
            sensors.recorded[sensor] = now
        bound = sensors.bounds[sensor]
        for _ in range(topics):
            if behaviours.kind[row] == MUTATION:
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
                record(mutation_rate_of(sensors, sensor), float(partitions), now)
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
            connections.muted_by[connection] = sensor
            note_throttle(sensors, sensor, now, delay)
            connections.mutation_ms[connection] += delay
        else:
            connections.muted_by[connection] = request_sensor
            note_throttle(sensors, request_sensor, now, delay)
            connections.request_ms[connection] += delay
    connections.rejections[connection] += rejected
    connections.delivered_units[connection] += accepted * partitions
    if accepted > 0:
        connections.delivered_ms[connection] = now
    connections.mutations_charged[connection] += accepted * partitions
    if sensor != NONE:
        sensors.delivered[sensor][place(sensors, now)] += accepted * partitions
    connections.pending[connection] = 0
    if behaviours.retry[row] != 0 and behaviours.closed[row] != 0:
        connections.pending[connection] = rejected
    else:
        connections.rejected_units[connection] += rejected * partitions
    return delay
