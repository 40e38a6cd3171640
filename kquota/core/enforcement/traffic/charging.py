"""The broker's part of a request: what it charges to which counters, and the throttle time of the response."""

from kquota.core.enforcement.arithmetic import long_to_int
from kquota.core.enforcement.broker import charge_counter, charge_request, max_fetch_bytes, mutation_delay, note
from kquota.core.enforcement.compilable import compilable, inlined
from kquota.core.enforcement.counter import counter_of
from kquota.core.enforcement.kind import FETCH, MUTATION, REQUEST
from kquota.core.enforcement.traffic.arrivals import collect, load_of, offer, thread_nanos
from kquota.core.enforcement.traffic.counters import count_event, deliver, mute, spend, touch
from kquota.core.enforcement.traffic.state import NONE, Traffic


@inlined
def charge(traffic: Traffic, connection: int, now: int) -> int:
    """The broker's part: charges the request that is due, and returns the throttle time of its response (0 for none).

    Produce charges bytes first and thread time after, fetch the other way round; the longer delay counts. A delayed
    fetch is taken back and answered empty.
    """
    sensors, row = traffic.sensors, traffic.connections[connection]
    client = traffic.behaviours[row.behaviour]
    kind = client.kind
    if kind >= MUTATION:
        return charge_mutation(traffic, connection, now)
    bytes_sensor = row.load_sensor
    request_sensor = row.request_sensor
    size = request_size(traffic, connection, now)
    nanos = thread_nanos(traffic, connection, size)
    if row.given_end > 0:
        nanos = traffic.given.nanos[row.given_next - 1]
        traffic.given.charged[row.given_next - 1] = now
    exempt = client.exempt != 0
    counts_bytes = bytes_sensor != NONE
    counts_time = request_sensor != NONE and not exempt
    bandwidth = counter_of(sensors.counters, bytes_sensor, kind)
    requests = counter_of(sensors.counters, request_sensor, REQUEST)
    if counts_bytes:
        touch(sensors, bytes_sensor, bandwidth, now)
    if counts_time:
        touch(sensors, request_sensor, requests, now)
    byte_limit, request_limit = sensors.accounts[bytes_sensor].bound, sensors.accounts[request_sensor].bound
    of_bytes, of_time, outcome = charge_request(
        kind, bandwidth, byte_limit, requests, request_limit, now, float(size), float(nanos), counts_bytes, counts_time
    )
    if counts_bytes:
        count_event(sensors.accounts[bytes_sensor], now, of_bytes, of_bytes.rate)
    if counts_time:
        count_event(sensors.accounts[request_sensor], now, of_time, of_time.rate)
    delay = outcome.throttle_ms if outcome.throttle_ms > 0 else 0
    refused = kind == FETCH and delay > 0
    if client.saturates != 0:
        # A refused fetch asks again for the same bytes.
        offer(traffic, connection, now, 0 if refused else size, nanos)
    if counts_time:
        spend(traffic, connection, now, nanos, client.network_nanos)
    if exempt:
        row.exempt_nanos += nanos + client.network_nanos
    if delay > 0:
        mute(traffic, connection, now, delay, outcome.muted_by == REQUEST)
    units = 1 if kind == REQUEST else size
    if not refused:
        deliver(traffic, connection, now, units)
        if kind == FETCH and client.closed != 0 and client.saturates == 0:
            row.pending -= size - client.overhead
    elif client.closed == 0:
        row.rejected_units += units
    return delay


@inlined
def request_size(traffic: Traffic, connection: int, now: int) -> int:
    """The bytes of the request, or of the response to a fetch, that is charged at `now`."""
    sensors, row = traffic.sensors, traffic.connections[connection]
    client = traffic.behaviours[row.behaviour]
    if client.kind != FETCH or client.closed == 0:
        return load_of(traffic, connection)
    size, most = client.size, client.most_bytes
    sensor, counters = row.load_sensor, sensors.counters
    if sensor != NONE:
        most = min(most, max_fetch_bytes(sensors.accounts[sensor].bound, counters.samples, counters.window_ms // 1000))
    most = max(most, size)  # the first batch is sent whole, whatever its size
    if client.saturates != 0:
        return most
    collect(traffic, connection, now - client.latency_ms)
    return min(row.pending, most) + client.overhead


@compilable
def charge_mutation(traffic: Traffic, connection: int, now: int) -> int:
    """A request that changes topics: each topic is charged by itself, and some may be rejected."""
    sensors, row = traffic.sensors, traffic.connections[connection]
    client = traffic.behaviours[row.behaviour]
    partitions = load_of(traffic, connection)
    topics = row.pending
    if topics == 0:
        topics = client.topics
        if client.saturates != 0:
            offer(traffic, connection, now, partitions, client.nanos)
    sensor = row.load_sensor
    request_sensor = row.request_sensor
    rejected = 0
    last_ms = 0
    if sensor != NONE:
        kind = client.kind
        bucket = counter_of(sensors.counters, sensor, kind)
        bound = sensors.accounts[sensor].bound
        for _ in range(topics):
            verdict = charge_counter(bucket, kind, now, float(partitions), bound)
            count_event(sensors.accounts[sensor], now, verdict, -verdict.rate)
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
        nanos, request_limit = float(client.nanos), sensors.accounts[request_sensor].bound
        on_time = charge_counter(requests, REQUEST, now, nanos, request_limit)
        count_event(sensors.accounts[request_sensor], now, on_time, on_time.rate)
        request_ms = on_time.throttle_ms
        spend(traffic, connection, now, client.nanos, client.network_nanos)
    delay = max(request_ms, mutation_ms, 0)
    if delay > 0 or rejected > 0:  # the wait of a rejection may round to 0
        mute(traffic, connection, now, delay, request_ms > mutation_ms)
    row.rejections += rejected
    deliver(traffic, connection, now, (topics - rejected) * partitions)
    row.pending = 0
    if client.retry != 0 and client.closed != 0:
        row.pending = rejected
    else:
        row.rejected_units += rejected * partitions
    return delay
