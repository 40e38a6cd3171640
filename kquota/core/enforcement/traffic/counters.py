"""A counter of a broker, one row of `Sensors`: record, check, and the account of what happened."""

from __future__ import annotations

from typing import Final

from kquota.core.enforcement.check import SENSOR_EXPIRY_MS, Verdict, record_and_check
from kquota.core.enforcement.compilable import compilable
from kquota.core.enforcement.rate import COUNT, Rate, clear, measure
from kquota.core.enforcement.replay import NEVER
from kquota.core.enforcement.token_bucket import TokenBucket
from kquota.core.enforcement.traffic.columns import Connections, Sensors


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


METRIC_SAMPLES: Final = 2
"""`metrics.num.samples`, its default."""
METRIC_WINDOW_MS: Final = 30_000
"""`metrics.sample.window.ms`, its default."""


@compilable
def mutation_rate_of(sensors: Sensors, sensor: int) -> Rate:
    """The metric `mutation-rate` of a row, which limits nothing."""
    return Rate(
        METRIC_SAMPLES,
        METRIC_WINDOW_MS,
        sensors.by_last,
        sensors.rate_starts[sensor],
        sensors.rate_lasts[sensor],
        sensors.rate_sums[sensor],
        sensors.rate_marks[sensor],
        sensors.rate_head[sensor],
    )


@compilable
def place(sensors: Sensors, now: int) -> int:
    """The bucket of the series that a time falls into, the last one for what is later."""
    number = (now - sensors.origin) // sensors.bucket_ms
    last = len(sensors.offered[0]) - 1
    return last if number > last else number


@compilable
def touch(sensors: Sensors, sensor: int, now: int) -> None:
    """Reads the metric as often as somebody would have since the last event, and notes the silence.

    A sensor that recorded nothing for more than an hour starts anew, as on a broker; nobody reads it meanwhile.
    """
    if sensors.touched[sensor] != NEVER:
        gap = now - sensors.touched[sensor]
        if gap > SENSOR_EXPIRY_MS:
            clear(rate_of(sensors, sensor))
        elif gap > sensors.gap_ms[sensor]:
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
def note_throttle(sensors: Sensors, sensor: int, now: int, delay: int) -> None:
    """Counts a throttle time that this sensor is the reason of."""
    count_throttle(sensors, sensor, now, delay)
    end = now + delay
    bucket = place(sensors, now)
    sensors.throttling[sensor][bucket] += delay
    if end - sensors.origin > sensors.ends[sensor][bucket]:
        sensors.ends[sensor][bucket] = end - sensors.origin
