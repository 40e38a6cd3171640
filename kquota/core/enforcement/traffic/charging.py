"""The broker's part of a request: what it charges to which counters, and the throttle time of the response."""

from kquota.core.enforcement.arithmetic import long_to_int
from kquota.core.enforcement.broker import charge_counter, charge_request, max_fetch_bytes, mutation_delay, note
from kquota.core.enforcement.compilable import compilable, inlined
from kquota.core.enforcement.counter import counter_of
from kquota.core.enforcement.kind import FETCH, MUTATION, REQUEST
from kquota.core.enforcement.traffic.arrivals import collect, load_of, offer, thread_nanos
from kquota.core.enforcement.traffic.columns import NONE, Traffic
from kquota.core.enforcement.traffic.counters import count_event, deliver, mute, spend, touch


@inlined
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
    bytes_sensor = connections.load_sensor[connection]
    request_sensor = connections.request_sensor[connection]
    size = request_size(traffic, connection, now)
    nanos = thread_nanos(traffic, connection, size)
    if connections.given_end[connection] > 0:
        nanos = traffic.given.nanos[connections.given_next[connection] - 1]
        traffic.given.charged[connections.given_next[connection] - 1] = now
    exempt = behaviours.exempt[row] != 0
    counts_bytes = bytes_sensor != NONE
    counts_time = request_sensor != NONE and not exempt
    bandwidth = counter_of(sensors.counters, bytes_sensor, kind)
    requests = counter_of(sensors.counters, request_sensor, REQUEST)
    if counts_bytes:
        touch(sensors, bytes_sensor, bandwidth, now)
    if counts_time:
        touch(sensors, request_sensor, requests, now)
    byte_limit, request_limit = sensors.bounds[bytes_sensor], sensors.bounds[request_sensor]
    of_bytes, of_time, outcome = charge_request(
        kind, bandwidth, byte_limit, requests, request_limit, now, float(size), float(nanos), counts_bytes, counts_time
    )
    if counts_bytes:
        count_event(sensors, bytes_sensor, now, of_bytes, of_bytes.rate)
    if counts_time:
        count_event(sensors, request_sensor, now, of_time, of_time.rate)
    delay = outcome.throttle_ms if outcome.throttle_ms > 0 else 0
    refused = kind == FETCH and delay > 0
    if behaviours.saturates[row] != 0:
        # A refused fetch asks again for the same bytes.
        offer(traffic, connection, now, 0 if refused else size, nanos)
    if counts_time:
        spend(traffic, connection, now, nanos, behaviours.network_nanos[row])
    if exempt:
        connections.exempt_nanos[connection] += nanos + behaviours.network_nanos[row]
    if delay > 0:
        mute(traffic, connection, now, delay, outcome.muted_by == REQUEST)
    units = 1 if kind == REQUEST else size
    if not refused:
        deliver(traffic, connection, now, units)
        if kind == FETCH and behaviours.closed[row] != 0 and behaviours.saturates[row] == 0:
            connections.pending[connection] -= size - behaviours.overhead[row]
    elif behaviours.closed[row] == 0:
        connections.rejected_units[connection] += units
    return delay


@inlined
def request_size(traffic: Traffic, connection: int, now: int) -> int:
    """The bytes of the request, or of the response to a fetch, that is charged at `now`."""
    sensors, behaviours, connections = traffic.sensors, traffic.behaviours, traffic.connections
    row = connections.behaviour[connection]
    if behaviours.kind[row] != FETCH or behaviours.closed[row] == 0:
        return load_of(traffic, connection)
    size, most = behaviours.size[row], behaviours.most_bytes[row]
    sensor, counters = connections.load_sensor[connection], sensors.counters
    if sensor != NONE:
        most = min(most, max_fetch_bytes(sensors.bounds[sensor], counters.samples, counters.window_ms // 1000))
    most = max(most, size)  # the first batch is sent whole, whatever its size
    if behaviours.saturates[row] != 0:
        return most
    collect(traffic, connection, now - behaviours.latency_ms[row])
    return min(connections.pending[connection], most) + behaviours.overhead[row]


@compilable
def charge_mutation(traffic: Traffic, connection: int, now: int) -> int:
    """A request that changes topics: each topic is charged by itself, and some may be rejected."""
    sensors, behaviours, connections = traffic.sensors, traffic.behaviours, traffic.connections
    row = connections.behaviour[connection]
    partitions = load_of(traffic, connection)
    topics = connections.pending[connection]
    if topics == 0:
        topics = behaviours.topics[row]
        if behaviours.saturates[row] != 0:
            offer(traffic, connection, now, partitions, behaviours.nanos[row])
    sensor = connections.load_sensor[connection]
    request_sensor = connections.request_sensor[connection]
    rejected = 0
    last_ms = 0
    if sensor != NONE:
        kind = behaviours.kind[row]
        bucket = counter_of(sensors.counters, sensor, kind)
        bound = sensors.bounds[sensor]
        for _ in range(topics):
            verdict = charge_counter(bucket, kind, now, float(partitions), bound)
            count_event(sensors, sensor, now, verdict, -verdict.rate)
            if verdict.violated:
                last_ms = mutation_delay(verdict.rate, bound)
            if kind == MUTATION and verdict.violated:
                rejected += 1
            else:
                note(counter_of(sensors.meters, sensor, kind), kind, now, float(partitions))
    mutation_ms = long_to_int(last_ms) if last_ms > 0 else 0
    request_ms = 0
    if request_sensor != NONE:
        requests = counter_of(sensors.counters, request_sensor, REQUEST)
        touch(sensors, request_sensor, requests, now)
        nanos, request_limit = float(behaviours.nanos[row]), sensors.bounds[request_sensor]
        on_time = charge_counter(requests, REQUEST, now, nanos, request_limit)
        count_event(sensors, request_sensor, now, on_time, on_time.rate)
        request_ms = on_time.throttle_ms
        spend(traffic, connection, now, behaviours.nanos[row], behaviours.network_nanos[row])
    delay = max(request_ms, mutation_ms, 0)
    if delay > 0 or rejected > 0:  # the wait of a rejection may round to 0
        mute(traffic, connection, now, delay, request_ms > mutation_ms)
    connections.rejections[connection] += rejected
    deliver(traffic, connection, now, (topics - rejected) * partitions)
    connections.pending[connection] = 0
    if behaviours.retry[row] != 0 and behaviours.closed[row] != 0:
        connections.pending[connection] = rejected
    else:
        connections.rejected_units[connection] += rejected * partitions
    return delay
