"""Scrapes with timestamps, in Prometheus's text format or as OpenMetrics.

    promtool tsdb dump-openmetrics --match='{__name__=~"kafka_server_quota_.*"}' --min-time=… --max-time=… DATA > FILE
    curl -G http://prometheus:9090/federate --data-urlencode 'match[]={__name__=~"kafka_server_quota_.*"}' >> FILE

A line is `name{label="value",…} value timestamp`, the timestamp in ms (text format) or seconds (OpenMetrics). A scrape
of the exporter itself has none: such lines are rejected, for when they were read is not known. Comments and metrics
that are not about a client's quota are passed over; `kquota.audit.sources.series` says which are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from kquota.audit.batch import Tally
from kquota.audit.samples import Reading, Samples, Series, checked, gather
from kquota.audit.sources import SAMPLED_SIGHT, ReadSettings, Split, line_splits, lines
from kquota.audit.sources.files import File
from kquota.audit.sources.series import of_labels

DIALECT: Final = "openmetrics"
SIGHT: Final = SAMPLED_SIGHT
_LABELS: Final = r'(?:\s*[A-Za-z_][A-Za-z0-9_]*\s*=\s*"(?:[^"\\]|\\.)*"\s*,?)*\s*'
_LINE: Final = re.compile(
    rf"(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)(?:\s*\{{(?P<labels>{_LABELS})\}}\s*|\s+)"
    r"(?P<value>\S+)(?:\s+(?P<time>[-+0-9.eE]+))?\s*(?:#.*)?"
)
_LABEL: Final = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"')
_SECONDS_BEFORE: Final = 1e11
"""Smaller timestamps are seconds: as ms they would be of 1973, and larger ones as seconds of the year 5138."""


def splits(file: File) -> list[Split]:
    """Pieces of the file. Raises InputError when it cannot be opened."""
    return line_splits(DIALECT, file, 150)


def read(split: Split, settings: ReadSettings, tally: Tally) -> Iterator[Samples]:
    """The series in one split."""
    return gather(_readings(split, settings, tally))


def _readings(split: Split, settings: ReadSettings, tally: Tally) -> Iterator[Reading]:
    for place, raw in lines(split, tally):
        try:
            reading = parse_line(raw.decode(), settings.broker)
        except ValueError as error:  # UnicodeDecodeError is one
            reason = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
            tally.reject(split.path, place, reason, raw.decode(errors="replace").rstrip("\r\n"))
            continue
        if reading is not None:
            yield reading


def parse_line(line: str, broker: str | None) -> Reading | None:
    """One line; None for a comment, another metric, a value that says nothing. Raises ValueError with the reason."""
    line = line.strip()
    if not line or line.startswith("#"):
        return None
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError("not a line of a scrape")
    series = _series(match["name"], match["labels"] or "", broker)
    if series is None:
        return None
    try:
        value = float(match["value"])
        time = None if match["time"] is None else float(match["time"])
    except ValueError:
        raise ValueError("the value or the timestamp is not a number") from None
    if time is None:
        raise ValueError("no timestamp: when it was read is not known")
    time_ms = round(time * 1000) if abs(time) < _SECONDS_BEFORE else round(time)
    counted = checked(series.nature, time_ms, value)
    return None if counted is None else Reading(series, time_ms, counted)


@lru_cache(maxsize=65536)
def _series(name: str, labels: str, broker: str | None) -> Series | None:
    pairs = {label: _unescaped(text) for label, text in _LABEL.findall(labels)}
    return of_labels({**pairs, "__name__": name}, broker)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda escape: "\n" if escape[1] == "n" else escape[1], text) if "\\" in text else text
