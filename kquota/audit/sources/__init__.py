"""Where usage events, and samples of usage, come from: one module per export dialect.

A dialect is two functions: `splits(path)` cuts a file into independent pieces, `read(split, settings, tally)` turns one
piece into batches, or samples; and, of a request log, what is to be brought together with the other pieces first.
Everything about files that dialects share is here.
"""

from __future__ import annotations

import gzip
import importlib
import io
import itertools
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import IO, Any, Final, TypeAlias

from kquota.audit.batch import Batch, Tally
from kquota.audit.samples import Samples
from kquota.audit.sources.connections import ConnectionLog
from kquota.audit.sources.files import File, UnreadableFile, find, folder_of, open_binary, open_text
from kquota.audit.sources.mutations import TopicLog
from kquota.core.quota import QuotaKey
from kquota.core.verdicts import Need, Sight
from kquota.core.version import NEWEST, Version
from kquota.errors import InputError, Unreachable

MAX_LINE_BYTES = 16 << 20
"""A longer line is read up to here and then rejected; brokers log answers of some MB."""

BLOCK_BYTES = 128 << 10
"""Text is read in pieces of this size: larger ones leave the processor's cache, which takes three times as long."""

LINE_SPLIT_BYTES = 32 << 20
"""Uncompressed text is cut into pieces of this size, so that one large file is many tasks."""

DIALECTS = {
    "request-log": "request_log",
    "usage": "usage",
    "usage-topic": "usage_topic",
    "prometheus": "prometheus",
    "openmetrics": "openmetrics",
    "kafka-jmx": "kafka_jmx",
    "rpk-connections": "rpk_connections",
    "confluent-metrics": "confluent_metrics",
}
"""The dialects and their modules in this folder."""

SAMPLED = frozenset(DIALECTS) - {"request-log", "usage"}
"""The dialects of samples."""


Piece: TypeAlias = Batch | Samples | TopicLog | ConnectionLog
"""What a source yields."""

CONTROLLER: Final = "controller"
"""Noted of a request log with lines of the controller."""

SAMPLED_SIGHT: Final[Sight] = {
    key: Need(
        (
            (
                key.value,
                "samples hold no connections of ips"
                if key is QuotaKey.CONNECTION_CREATION_RATE
                else "no sample is of it",
            ),
        )
    )
    for key in QuotaKey
}
"""What can be judged from samples: the keys that there are samples of."""


def sight_of(dialect: str) -> Sight:
    """What can be judged from a source of that dialect."""
    sight: Sight = module(dialect).SIGHT
    return sight


def hidden(noted: Mapping[str, Iterable[str]]) -> dict[QuotaKey, str | None]:
    """Why each key cannot be judged from sources that were read, None where it can; `noted` is the tally's."""
    reasons: dict[QuotaKey, str | None] = {}
    for key in QuotaKey:
        missing = [sight_of(dialect)[key].missing(noted[dialect]) for dialect in sorted(noted)]
        reasons[key] = "; ".join(dict.fromkeys(reason for reason in missing if reason is not None)) or None
    return reasons


@dataclass(frozen=True, slots=True)
class Split:
    """One independent piece of a file. `path` is absolute: executors have another working directory."""

    dialect: str
    path: str
    start: int
    end: int
    """Bytes for text, row groups for Parquet, stripes for ORC, offsets for a topic; exclusive, -1 for a whole file."""
    rows: int = 0
    """An estimate of its events, for sizing the job."""
    size: int = 0
    """Its part of the file, in bytes."""


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """What the export itself does not say."""

    broker: str | None = None
    """The broker's name; None: the name of the file's folder."""
    zone: str = "UTC"
    """The time zone of log4j's prefix, as an IANA name."""
    num_partitions: int = 1
    """The controller's `num.partitions`: what a topic gets that is created without a number."""
    kafka: Mapping[str, Any] | None = field(default=None, repr=False)
    """How a librdkafka client connects to the cluster with a topic of usage records; it may hold a password."""
    version: Version = NEWEST
    """The brokers' Kafka version: which requests among brokers it does not charge."""
    addresses: bool = False
    """Whether it matters which connections a log shows, as it does where an ip has a quota."""
    connections: bool = False
    """Whether the connection of every request is wanted, and not only where a throttled fetch needs it."""

    def with_connections(self) -> ReadSettings:
        """The same, with every connection."""
        return replace(self, connections=True)


def plan_splits(paths: Sequence[str], dialect: str) -> list[Split]:
    """Cuts files, and the files of folders, into splits, in the order of their names; a path may be a URI.

    `dialect` is one of DIALECTS or `auto` (by the file's name and beginning). Raises InputError for a path that is
    missing or unreadable, a folder without files, and when everything is empty.
    """
    splits: list[Split] = []
    for path in paths:
        for file in find(path):
            kind = _detect(file) if dialect == "auto" else dialect
            mine = module(kind).splits(file)
            splits += [replace(split, size=file.size // len(mine)) for split in mine]
    if not splits:
        raise InputError(f"{', '.join(paths)}: empty, no usage events in it")
    return splits


def module(dialect: str) -> ModuleType:
    """The module of a dialect."""
    return importlib.import_module(f"{__name__}.{DIALECTS[dialect]}")


def read(split: Split, settings: ReadSettings, tally: Tally) -> Iterator[Piece]:
    """The batches, the samples, or what is told of topics and connections, of one split; the tally gets the rest.

    Raises UnreadableFile.
    """
    batches: Iterator[Piece] = module(split.dialect).read(split, settings, tally)
    before = tally.events + tally.exempt
    try:
        for batch in batches:
            if isinstance(batch, Samples):
                tally.note(split.dialect, batch.series.key.value)
                tally.saw(batch.end_ms, len(batch))
            elif isinstance(batch, Batch):
                tally.saw(batch.time_ms, batch.records)
            elif isinstance(batch, TopicLog) and batch.listeners:
                tally.note(split.dialect, CONTROLLER)
            yield batch
    except UnreadableFile:
        raise
    except InputError as error:
        # Damage in the middle of a file costs the rest of this split, not the other files.
        tally.reject(split.path, "file", error.message, "")
    except OSError as error:
        raise UnreadableFile(f"{split.path}: {os.strerror(error.errno) if error.errno else error}") from None
    finally:
        # A file that is none of the export, a README beside the logs, hides nothing.
        if tally.events + tally.exempt > before:
            tally.note(split.dialect)


def broker_of(split: Split, settings: ReadSettings) -> str:
    """The broker that wrote the file: as given, else the name of the folder that holds it."""
    return settings.broker if settings.broker is not None else folder_of(split.path)


def _detect(file: File) -> str:
    """The dialect of a file, by its name and its beginning."""
    name = file.name.removesuffix(".gz")
    if name.endswith((".parquet", ".orc")):
        return "usage"
    try:
        with open_text(file.path) as stream:
            head = stream.read(_HEAD_BYTES)
    except (InputError, OSError, EOFError, zlib.error):
        head = b""  # the dialect's own reader says what is wrong
    for dialect, sign in _SIGNS.items():
        if sign.search(head):
            return dialect
    return "usage" if name.endswith((".csv", ".jsonl", ".ndjson")) else "request-log"


_HEAD_BYTES = 1 << 16
_SIGNS = {
    "request-log": re.compile(rb'"isForwarded"'),
    "kafka-jmx": re.compile(rb'\A(?:"time","|time,"[0-9]|kafka\.server:)'),
    "prometheus": re.compile(rb'\A\s*\{.*"resultType"', re.S),
    "rpk-connections": re.compile(rb'\A\s*[\[{].*"(?:request_statistics_all|[a-z]+_?[rR]equest_?[sS]tatistics)"', re.S),
    "confluent-metrics": re.compile(rb'\A\s*\{.*"(?:metric\.principal_id|io\.confluent\.kafka\.server/)', re.S),
    "openmetrics": re.compile(rb"\A\s*(?:# (?:TYPE|HELP) |[A-Za-z_:][A-Za-z0-9_:]*\{)"),
}


def line_splits(dialect: str, file: File, bytes_per_row: int) -> list[Split]:
    """Splits of a text file by bytes; a compressed file is one split. Raises InputError when it cannot be opened."""
    with open_binary(file.path) as stream:
        compressed = stream.read(2) == b"\x1f\x8b"
    size = file.size
    if compressed:
        return [Split(dialect, file.path, 0, -1, size * 12 // bytes_per_row)]
    starts = range(0, size, LINE_SPLIT_BYTES)
    return [
        Split(dialect, file.path, start, min(start + LINE_SPLIT_BYTES, size), LINE_SPLIT_BYTES // bytes_per_row)
        for start in starts
    ]


@dataclass(frozen=True, slots=True)
class Block:
    """Some lines of a split, with their ends; blank ones are among them."""

    lines: list[bytes]
    number: int
    """How many lines came before."""
    offset: int
    """Where the first one begins."""
    whole: bool
    """Whether the split is a whole file, whose lines can be counted."""
    lengths: list[int]
    """Those of the lines, when some were cut short; else empty."""

    def place(self, index: int) -> str:
        """Where a line is: its number in a whole file, its byte offset in a piece of one."""
        if self.whole:
            return f"line {self.number + index + 1}"
        return f"byte {self.offset + sum(self.lengths[:index] or map(len, self.lines[:index]))}"


def blocks(split: Split, tally: Tally) -> Iterator[Block]:
    """The lines that begin inside a split, some thousands at a time.

    A truncated gzip file ends after the lines before the damage, which goes to the tally: the other files count.
    """
    with open_text(split.path) as stream:
        offset = number = 0
        whole = split.end < 0 or (split.start == 0 and split.end >= stream.seek(0, io.SEEK_END))
        if split.end >= 0:
            stream.seek(split.start)
        if split.start > 0:
            # The line that straddles the cut belongs to the split before.
            stream.seek(split.start - 1)
            offset = split.start - 1 + _skip_line(stream)
        for lines, lengths in _whole_lines(stream, split.path, tally):
            size = sum(lengths or map(len, lines))
            last = not whole and offset + size >= split.end
            if last:
                starts = itertools.accumulate(lengths or map(len, lines), initial=offset)
                count = sum(start < split.end for start in itertools.islice(starts, len(lines)))
                lines, lengths = lines[:count], lengths[:count]
            yield Block(lines, number, offset, whole, lengths)
            if last:
                return
            offset, number = offset + size, number + len(lines)


def lines(split: Split, tally: Tally) -> Iterator[tuple[str, bytes]]:
    """(place, line) of the lines that begin inside a split; blank lines are left out. As `blocks`, a line at a time."""
    for block in blocks(split, tally):
        for index, line in enumerate(block.lines):
            if not line.isspace():
                yield block.place(index), line


def _skip_line(stream: IO[bytes]) -> int:
    """Reads to the end of a line; how much that was."""
    length = 0
    while part := stream.readline(MAX_LINE_BYTES):
        length += len(part)
        if part.endswith(b"\n"):
            break
    return length


def _whole_lines(stream: IO[bytes], path: str, tally: Tally) -> Iterator[tuple[list[bytes], list[int]]]:
    """Lines as they come, and their lengths where some were cut short at MAX_LINE_BYTES, else nothing."""
    number = 0
    # The beginning of a line, and how much more of it was read: a file without line ends must not fill the memory.
    pending, dropped = b"", 0
    while True:
        try:
            data = stream.read1(BLOCK_BYTES)  # type: ignore[attr-defined]
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            tally.reject(path, "file", f"{path}: damaged gzip data after line {number}: {error}", "")
            return
        except OSError as error:
            # Not what is in the file, but the way to it: the rest is not to be given up in silence.
            raise Unreachable(f"{path}: cannot read on after line {number}: {error}") from None
        cut = data.rfind(b"\n") + 1
        if data and not cut:
            pending += data
            dropped += max(len(pending) - MAX_LINE_BYTES, 0)
            pending = pending[:MAX_LINE_BYTES]
            continue
        if dropped:
            end = data.find(b"\n") + 1
            yield [pending], [len(pending) + dropped + end]
            data, cut, pending, dropped, number = data[end:], cut - end, b"", 0, number + 1
        lines = io.BytesIO(pending + data[:cut]).readlines()
        lengths: list[int] = []
        if len(pending) + cut > MAX_LINE_BYTES:
            lengths = [len(line) for line in lines]
            lines = [line[:MAX_LINE_BYTES] for line in lines]
        if lines:
            yield lines, lengths
        if not data:
            return
        pending, number = data[cut:], number + len(lines)
