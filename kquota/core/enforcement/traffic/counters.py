"""A counter of a broker, a row of `Sensors`: the readings of its metric, and the account of what happened."""

from kquota.core.enforcement.broker import Verdict, note
from kquota.core.enforcement.compilable import compilable
from kquota.core.enforcement.counter import COUNT, NEW, RECORDED, Counter, counter_of, wake
from kquota.core.enforcement.kind import REQUEST
from kquota.core.enforcement.rate import measure
from kquota.core.enforcement.replay import NEVER
from kquota.core.enforcement.traffic.state import NONE, Account, Connection, Sensors, Traffic


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
    account, recorded = sensors.accounts[sensor], counter.ints[RECORDED]
    wake(counter, now)
    if recorded != NEW:
        gap = now - recorded
        if gap <= counter.expiry_ms and gap > account.gap_ms:
            account.gap_ms = gap
    if sensors.scrape_ms > 0:
        if counter.ints[COUNT] > 0:
            while account.scraped < now:
                measure(counter, account.scraped)
                account.scraped += sensors.scrape_ms
        else:
            since = now - sensors.origin
            account.scraped = now + sensors.scrape_ms - since % sensors.scrape_ms


@compilable
def count_event(account: Account, now: int, verdict: Verdict, usage: float) -> None:
    """Adds a checked event to the account of a counter; `usage` is the rate, or the tokens that are owed."""
    account.events += 1
    if verdict.violated:
        account.violated += 1
    if usage > account.peak:
        account.peak = usage
        account.peak_ms = now


@compilable
def count_throttle(row: Account | Connection, now: int, delay: int) -> None:
    """Adds a throttle time to the totals of a counter or of a connection."""
    row.throttled += 1
    row.throttle_ms += delay
    if delay > row.max_ms:
        row.max_ms = delay
    if row.first_ms == NEVER:
        row.first_ms = now
    if now + delay > row.until_ms:
        row.until_ms = now + delay


@compilable
def mute(traffic: Traffic, connection: int, now: int, delay: int, by_time: bool) -> None:
    """Counts a throttle time to the counter that it comes from: of the thread time, or of the load."""
    sensors, row = traffic.sensors, traffic.connections[connection]
    sensor = row.request_sensor if by_time else row.load_sensor
    if by_time:
        row.request_ms += delay
    else:
        row.load_ms += delay
    row.muted_by = sensor
    count_throttle(sensors.accounts[sensor], now, delay)
    end = now + delay
    bucket = place(sensors, now)
    sensors.throttling[sensor][bucket] += delay
    if end - sensors.origin > sensors.ends[sensor][bucket]:
        sensors.ends[sensor][bucket] = end - sensors.origin


@compilable
def deliver(traffic: Traffic, connection: int, now: int, units: int) -> None:
    """Counts what a client got through: bytes, requests, partitions or connections."""
    sensors, row = traffic.sensors, traffic.connections[connection]
    row.delivered_units += units
    if units > 0:
        row.delivered_ms = now
    sensor = row.load_sensor
    if sensor != NONE:
        row.load_charged += units
        sensors.delivered[sensor][place(sensors, now)] += units


@compilable
def spend(traffic: Traffic, connection: int, now: int, nanos: int, network: int) -> None:
    """Counts thread time that was charged; the network thread's is charged here, after the response."""
    sensors, row = traffic.sensors, traffic.connections[connection]
    sensor = row.request_sensor
    if network > 0:
        note(counter_of(sensors.counters, sensor, REQUEST), REQUEST, now, float(network))
    row.nanos_charged += nanos + network
    sensors.delivered[sensor][place(sensors, now)] += nanos + network
