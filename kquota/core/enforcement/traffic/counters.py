"""A counter of a broker, one row of `Sensors`: the readings of its metric, and the account of what happened."""

from kquota.core.enforcement.broker import Verdict, note
from kquota.core.enforcement.compilable import compilable
from kquota.core.enforcement.counter import COUNT, NEW, RECORDED, Counter, counter_of, wake
from kquota.core.enforcement.kind import REQUEST
from kquota.core.enforcement.rate import measure
from kquota.core.enforcement.replay import NEVER
from kquota.core.enforcement.traffic.columns import NONE, Connections, Sensors, Traffic


@compilable
def place(sensors: Sensors, now: int) -> int:
    """The bucket of the series that a time falls into, the last one for what is later."""
    number = (now - sensors.origin) // sensors.bucket_ms
    last = len(sensors.offered[0]) - 1
    return last if number > last else number


@compilable
def touch(sensors: Sensors, sensor: int, counter: Counter, now: int) -> None:
    """Reads the metric as often as somebody would have since the last event, and notes the silence.

    A sensor that recorded nothing for more than an hour starts anew; nobody reads it meanwhile.
    """
    recorded = counter.ints[RECORDED]
    wake(counter, now)
    if recorded != NEW:
        gap = now - recorded
        if gap <= counter.expiry_ms and gap > sensors.gap_ms[sensor]:
            sensors.gap_ms[sensor] = gap
    if sensors.scrape_ms > 0:
        if counter.ints[COUNT] > 0:
            while sensors.scraped[sensor] < now:
                measure(counter, sensors.scraped[sensor])
                sensors.scraped[sensor] += sensors.scrape_ms
        else:
            since = now - sensors.origin
            sensors.scraped[sensor] = now + sensors.scrape_ms - since % sensors.scrape_ms


@compilable
def count_event(sensors: Sensors, sensor: int, now: int, verdict: Verdict, usage: float) -> None:
    """Adds a checked event to the account of a counter; `usage` is the rate, or the tokens that are owed."""
    sensors.events[sensor] += 1
    if verdict.violated:
        sensors.violated[sensor] += 1
    if usage > sensors.peak[sensor]:
        sensors.peak[sensor] = usage
        sensors.peak_ms[sensor] = now


@compilable
def count_throttle(throttled: Sensors | Connections, row: int, now: int, delay: int) -> None:
    """Adds a throttle time to the totals of a counter or of a connection."""
    throttled.throttled[row] += 1
    throttled.throttle_ms[row] += delay
    if delay > throttled.max_ms[row]:
        throttled.max_ms[row] = delay
    if throttled.first_ms[row] == NEVER:
        throttled.first_ms[row] = now
    if now + delay > throttled.until_ms[row]:
        throttled.until_ms[row] = now + delay


@compilable
def mute(traffic: Traffic, connection: int, now: int, delay: int, by_time: bool) -> None:
    """Counts a throttle time to the counter that it comes from: of the thread time, or of the load."""
    sensors, connections = traffic.sensors, traffic.connections
    sensor = connections.request_sensor[connection] if by_time else connections.load_sensor[connection]
    if by_time:
        connections.request_ms[connection] += delay
    else:
        connections.load_ms[connection] += delay
    connections.muted_by[connection] = sensor
    count_throttle(sensors, sensor, now, delay)
    end = now + delay
    bucket = place(sensors, now)
    sensors.throttling[sensor][bucket] += delay
    if end - sensors.origin > sensors.ends[sensor][bucket]:
        sensors.ends[sensor][bucket] = end - sensors.origin


@compilable
def deliver(traffic: Traffic, connection: int, now: int, units: int) -> None:
    """Counts what a client got through: bytes, requests, partitions or connections."""
    sensors, connections = traffic.sensors, traffic.connections
    connections.delivered_units[connection] += units
    if units > 0:
        connections.delivered_ms[connection] = now
    sensor = connections.load_sensor[connection]
    if sensor != NONE:
        connections.load_charged[connection] += units
        sensors.delivered[sensor][place(sensors, now)] += units


@compilable
def spend(traffic: Traffic, connection: int, now: int, nanos: int, network: int) -> None:
    """Counts thread time that was charged; the network thread's is charged here, after the response."""
    sensors, connections = traffic.sensors, traffic.connections
    sensor = connections.request_sensor[connection]
    if network > 0:
        note(counter_of(sensors.counters, sensor, REQUEST), REQUEST, now, float(network))
    connections.nanos_charged[connection] += nanos + network
    sensors.delivered[sensor][place(sensors, now)] += nanos + network
