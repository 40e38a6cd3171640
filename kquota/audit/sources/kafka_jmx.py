"""What Kafka's own `kafka-jmx.sh` (JmxTool) prints: rates of all counters of one broker, every few seconds.

    kafka-jmx.sh --jmx-url service:jmx:rmi:///jndi/rmi://BROKER:PORT/jmxrmi --reporting-interval 5000 \\
        --object-name 'kafka.server:type=Produce,*' --object-name 'kafka.server:type=Fetch,*' \\
        --object-name 'kafka.server:type=Request,*' > BROKER/kafka-jmx.csv

The names are looked up when the tool starts: a counter that comes later is not in the file. Both of its forms are read:
rows below a header of `"time","<ObjectName>:<attribute>",…` (`--report-format original`, the default), and a line for
each attribute, `<ObjectName>:<attribute>,"<value>"`, after a line with the time (`--report-format csv`). Neither is CSV
as others understand it: names hold commas, and the quotes of an ObjectName stay as they are. Times are epoch ms: do
without `--date-format`. The broker is what `--broker` says, else the name of the file's folder where there are several.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kquota.audit.batch import Tally
from kquota.audit.samples import Reading, Samples, gather
from kquota.audit.sources import SAMPLED_SIGHT, ReadSettings, Split, broker_of, lines
from kquota.audit.sources.files import File
from kquota.metrics.series import Series, checked, of_mbean

DIALECT: Final = "kafka-jmx"
SIGHT: Final = SAMPLED_SIGHT
HEADER: Final = '"time",'
TIME: Final = "time,"


def splits(file: File) -> list[Split]:
    """The file as one piece: its header is needed all along."""
    return [Split(DIALECT, file.path, 0, -1, file.size // 15)]


def read(split: Split, settings: ReadSettings, tally: Tally) -> Iterator[Samples]:
    """The series in the file."""
    return gather(_readings(split, broker_of(split, settings), tally))


def _readings(split: Split, broker: str, tally: Tally) -> Iterator[Reading]:
    columns: list[Series | None] = []
    time_ms: int | None = None
    for place, raw in lines(split, tally):
        try:
            line = raw.decode().rstrip("\r\n")
            if line.startswith(HEADER):
                # A quote inside of a name is escaped: this cuts between names only.
                columns = [of_mbean(name, broker) for name in line[1:].removesuffix('"').split('","')[1:]]
            elif line.startswith(TIME):
                time_ms = None
                time_ms = int(line[len(TIME) :].strip('"'))
            elif columns:
                yield from _row(line, columns)
            else:
                yield from _attribute(line, time_ms, broker)
        except ValueError as error:
            reason = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
            tally.reject(split.path, place, reason, raw.decode(errors="replace").rstrip("\r\n"))


def _row(line: str, columns: list[Series | None]) -> list[Reading]:
    """A row below a header."""
    time, *texts = line.split(",")
    if len(texts) != len(columns):
        raise ValueError(f"{len(texts)} values instead of {len(columns)}")
    readings = []
    for series, text in zip(columns, texts, strict=True):
        if series is not None:
            readings += _reading(series, time, text)
    return readings


def _attribute(line: str, time_ms: int | None, broker: str) -> list[Reading]:
    """A line of its own for an attribute."""
    name, comma, text = line.removesuffix('"').rpartition(',"')
    if not comma:
        raise ValueError("not a line of JmxTool")
    series = of_mbean(name, broker)
    if series is None:
        return []
    if time_ms is None:
        raise ValueError("no time before it")
    return _reading(series, str(time_ms), text)


def _reading(series: Series, time: str, text: str) -> list[Reading]:
    try:
        time_ms, number = int(time), float(text)
    except ValueError:
        raise ValueError("the time or a value is not a number") from None
    value = checked(series.nature, time_ms, number)
    return [] if value is None else [Reading(series, time_ms, value)]
