"""Scrapes with timestamps, in Prometheus's text format or as OpenMetrics.

    promtool tsdb dump-openmetrics --match='{__name__=~"kafka_server_quota_.*"}' --min-time=… --max-time=… DATA > FILE
    promtool query instant http://prometheus:9090 '{__name__=~"kafka_server_quota_.*"}' >> FILE
    curl -G http://prometheus:9090/federate --data-urlencode 'match[]={__name__=~"kafka_server_quota_.*"}' >> FILE

A line is `name{label="value",…} value timestamp`, the timestamp in ms (text format) or seconds (OpenMetrics). A scrape
of the exporter itself has none: such lines are rejected, for when they were read is not known. Comments and metrics
that are not about a client's quota are passed over; `kquota.metrics.series` says which are.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from kquota.audit.batch import Tally
from kquota.audit.sources import SAMPLED_SIGHT, ReadSettings, Split, line_splits, lines
from kquota.audit.sources.files import File
from kquota.audit.sources.samples import Reading, Samples, gather, reading, reject
from kquota.metrics.exposition import labels_of, parse
from kquota.metrics.series import Series, of_labels

DIALECT: Final = "openmetrics"
SIGHT: Final = SAMPLED_SIGHT
_PROMTOOL: Final = re.compile(
    r"(?:(?P<series>[A-Za-z_:][A-Za-z0-9_:]*(?:\{.*\})?) =>)?\s*(?:(?P<value>\S+) @\[(?P<time>[0-9.]{1,20})\])?\s*"
)


def splits(file: File) -> list[Split]:
    """Pieces of the file. Raises InputError when it cannot be opened."""
    return line_splits(DIALECT, file, 150)


def read(split: Split, settings: ReadSettings, tally: Tally) -> Iterator[Samples]:
    """The series in one split."""
    return gather(_readings(split, settings, tally))


def _readings(split: Split, settings: ReadSettings, tally: Tally) -> Iterator[Reading]:
    printed = ""
    for place, raw in lines(split, tally):
        try:
            text = raw.decode()
            if (match := _PROMTOOL.fullmatch(text)) is not None:
                # What `promtool query` prints: each value behind its series, or in lines of their own below it.
                printed = match["series"] or printed
                if not match["value"]:
                    continue
                text = f"{printed} {match['value']} {round(float(match['time']) * 1000)}"
            yield from parse_line(text, settings.broker)
        except ValueError as error:  # UnicodeDecodeError is one
            reject(tally, DIALECT, split.path, place, error, raw)


def parse_line(line: str, broker: str | None) -> Iterator[Reading]:
    """One line; nothing of a comment, another metric, a value that says nothing. Raises ValueError with the reason."""
    parts = parse(line)
    series = None if parts is None else _series(parts.name, parts.labels, broker)
    if parts is not None and series is not None:
        value, time_ms = parts.numbers()
        if time_ms is None:
            raise ValueError("no timestamp: when it was read is not known")
        yield from reading(series, time_ms, value)


@lru_cache(maxsize=65536)
def _series(name: str, labels: str, broker: str | None) -> Series | None:
    return of_labels({**labels_of(labels), "__name__": name}, broker)
