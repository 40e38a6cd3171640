"""What Kafka's own `kafka-jmx.sh` (JmxTool) prints: rates of all counters of one broker, every few seconds.

    kafka-jmx.sh --jmx-url service:jmx:rmi:///jndi/rmi://BROKER:PORT/jmxrmi --reporting-interval 5000 \\
        --object-name 'kafka.server:type=Produce,*' --object-name 'kafka.server:type=Fetch,*' \\
        --object-name 'kafka.server:type=Request,*' > BROKER/kafka-jmx.csv

The names are looked up when the tool starts: a counter that comes later is not in the file. Both of its forms are read:
rows below a header of `"time","<ObjectName>:<attribute>",…` (`--report-format original`, the default), and a line for
each attribute, `<ObjectName>:<attribute>,"<value>"`, after a line with the time (`--report-format csv`). Neither is CSV
as others understand it: names hold commas, and the quotes of an ObjectName stay as they are. A tab or `=` stands before
the value with `tsv` and `properties`. Times are epoch ms, or in a `--date-format` that log lines have, too. Jolokia's
answers to a read of these MBeans are read as well. The broker is what `--broker` says, else the name of the file's
folder where there are several.
"""

import math
import re
from collections.abc import Iterator
from datetime import tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from kquota.audit.batch import Tally
from kquota.audit.sources import SAMPLED_SIGHT, ReadSettings, Split, broker_of, lines
from kquota.audit.sources.files import File, open_text
from kquota.audit.sources.moments import moment_of
from kquota.audit.sources.samples import Reading, Samples, documents, gather, reading, reject
from kquota.metrics.series import Series, of_mbean

DIALECT: Final = "kafka-jmx"
SIGHT: Final = SAMPLED_SIGHT
HEADER: Final = '"time",'
_TIME: Final = re.compile(r'time[,\t=]"?(.+?)"?')
_ATTRIBUTE: Final = re.compile(r'(kafka\.server:.+:[a-z-]+)(?:,"|\t|=)([^"]*)"?', re.DOTALL)
_PROPERTY: Final = re.compile(r'(?:\A|,)(type|user|client-id)=("(?:\\.|[^"\\])*"|[^,]*)')


def splits(file: File) -> list[Split]:
    """The file as one piece: its header is needed all along."""
    return [Split(DIALECT, file.path, 0, -1, file.size // 15)]


def read(split: Split, settings: ReadSettings, tally: Tally) -> Iterator[Samples]:
    """The series in the file."""
    with open_text(split.path) as stream:
        is_json = stream.read(100).lstrip()[:1] in (b"{", b"[")
    broker, zone = broker_of(split, settings), ZoneInfo(settings.zone)
    return gather(_answers(split, broker, tally) if is_json else _readings(split, broker, zone, tally))


def _answers(split: Split, broker: str, tally: Tally) -> Iterator[Reading]:
    """What Jolokia answered: an object of objects by the names of MBeans, or the attributes of one."""
    for place, document in documents(split.path, tally):
        for answer in document if isinstance(document, list) else [document]:
            try:
                asked, value = answer["request"], answer["value"]
                beans = value if "*" in asked["mbean"] else {asked["mbean"]: value}
                if isinstance(asked.get("attribute"), str) and "*" not in asked["mbean"]:
                    beans = {asked["mbean"]: {asked["attribute"]: value}}
                time_ms = round(answer["timestamp"] * 1000)
                for bean, attributes in beans.items():
                    for attribute, number in attributes.items():
                        if (series := of_mbean(f"{_in_order(bean)}:{attribute}", broker)) is not None:
                            yield from _reading(series, time_ms, str(number))
            except ValueError as error:
                tally.reject(split.path, place, str(error), str(answer))
            except (KeyError, TypeError, AttributeError):
                tally.reject(split.path, place, "not an answer of Jolokia to a read of MBeans", str(answer))


def _in_order(bean: str) -> str:
    """The name of an MBean with its properties as Kafka orders them: Jolokia sorts them."""
    domain, _, rest = bean.partition(":")
    properties = dict(_PROPERTY.findall(rest))
    ordered = [f"{name}={properties[name]}" for name in ("type", "user", "client-id") if name in properties]
    return f"{domain}:{','.join(ordered)}"


def _readings(split: Split, broker: str, zone: tzinfo, tally: Tally) -> Iterator[Reading]:
    columns: list[Series | None] = []
    time_ms: int | None = None
    for place, raw in lines(split, tally):
        try:
            line = raw.decode().rstrip("\r\n")
            if line.startswith(HEADER):
                # A quote inside of a name is escaped: this cuts between names only.
                columns = [of_mbean(name, broker) for name in line[1:].removesuffix('"').split('","')[1:]]
            elif (match := _TIME.fullmatch(line)) is not None:
                time_ms = None
                time_ms = _time_ms(match[1], zone)
            elif columns:
                yield from _row(line, columns, zone)
            else:
                yield from _attribute(line, time_ms, broker)
        except ValueError as error:
            reject(tally, DIALECT, split.path, place, error, raw)


def _row(line: str, columns: list[Series | None], zone: tzinfo) -> list[Reading]:
    """A row below a header."""
    time, *texts = line.rsplit(",", len(columns))
    if len(texts) != len(columns):
        raise ValueError(f"{len(texts)} values instead of {len(columns)}")
    readings, time_ms = [], _time_ms(time.strip('"'), zone)  # other tools quote each cell when they save it
    for series, text in zip(columns, texts, strict=True):
        if series is not None:
            readings += _reading(series, time_ms, text.strip('"'))
    return readings


def _attribute(line: str, time_ms: int | None, broker: str) -> list[Reading]:
    """A line of its own for an attribute."""
    if (match := _ATTRIBUTE.fullmatch(line)) is None:
        raise ValueError("not a line of JmxTool")
    if (series := of_mbean(match[1], broker)) is None:
        return []
    if time_ms is None:
        raise ValueError("no time before it")
    return _reading(series, time_ms, match[2])


def _reading(series: Series, time_ms: int, text: str) -> list[Reading]:
    try:
        number = float(text)
    except ValueError:
        raise ValueError("a value is not a number") from None
    return [*reading(series, time_ms, number)]


def _time_ms(text: str, zone: tzinfo) -> int:
    dated = None if text.isdecimal() else moment_of(text, zone)
    try:
        return int(text) if dated is None else math.floor(dated[0])
    except ValueError:
        raise ValueError(f"{text} is not a time: without --date-format, JmxTool prints epoch ms") from None
