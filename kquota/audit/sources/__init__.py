"""Where usage events, and samples of usage, come from: one module per export dialect.

A dialect is two functions: `splits(path)` cuts a file into independent pieces, `read(split, settings, tally)` turns one
piece into batches, or samples. Everything about files that dialects share is here.
"""

from __future__ import annotations

import gzip
import importlib
import io
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import IO

from kquota.audit.batch import Batch, Tally
from kquota.audit.samples import Samples
from kquota.errors import InputError

MAX_LINE_BYTES = 16 << 20
"""A longer line is read up to here and then rejected; brokers log answers of some MB."""

LINE_SPLIT_BYTES = 32 << 20
"""Uncompressed text is cut into pieces of this size, so that one large file is many tasks."""

DIALECTS = {
    "request-log": "request_log",
    "usage": "usage",
    "prometheus": "prometheus",
    "openmetrics": "openmetrics",
    "kafka-jmx": "kafka_jmx",
    "rpk-connections": "rpk_connections",
    "confluent-metrics": "confluent_metrics",
}
"""The dialects and their modules in this folder."""


@dataclass(frozen=True, slots=True)
class Split:
    """One independent piece of a file. `path` is absolute: executors have another working directory."""

    dialect: str
    path: str
    start: int
    end: int
    """Bytes for text, row groups for Parquet; end exclusive, -1 for the whole file."""
    rows: int = 0
    """An estimate of its events, for sizing the job."""


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """What the export itself does not say."""

    broker: str | None = None
    """The broker's name; None: the name of the file's folder."""
    zone: str = "UTC"
    """The time zone of log4j's prefix, as an IANA name."""
    num_partitions: int = 1
    """The controller's `num.partitions`: what a topic gets that is created without a number."""


def plan_splits(paths: Sequence[str], dialect: str) -> list[Split]:
    """Cuts files, and the files of folders, into splits, in the order of their names.

    `dialect` is one of DIALECTS or `auto` (by the file's name and beginning). Raises InputError for a path that is
    missing or unreadable, a folder without files, and when everything is empty.
    """
    splits: list[Split] = []
    for path in paths:
        for file in _files(Path(path)):
            kind = _detect(file) if dialect == "auto" else dialect
            splits.extend(module(kind).splits(file))
    if not splits:
        raise InputError(f"{', '.join(paths)}: empty, no usage events in it")
    return splits


def module(dialect: str) -> ModuleType:
    """The module of a dialect."""
    return importlib.import_module(f"{__name__}.{DIALECTS[dialect]}")


def read(split: Split, settings: ReadSettings, tally: Tally) -> Iterator[Batch | Samples]:
    """The batches, or the samples, of one split; what cannot be read goes to the tally."""
    batches: Iterator[Batch | Samples] = module(split.dialect).read(split, settings, tally)
    try:
        for batch in batches:
            tally.saw(batch.end_ms if isinstance(batch, Samples) else batch.time_ms)
            yield batch
    except InputError as error:
        # Damage in the middle of a file costs the rest of this split, not the other files.
        tally.reject(split.path, "file", error.message, "")


def broker_of(split: Split, settings: ReadSettings) -> str:
    """The broker that wrote the file: as given, else the name of the folder that holds it."""
    return settings.broker if settings.broker is not None else Path(split.path).parent.name


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    if not path.is_dir():
        return [path.resolve()]
    # Hidden files and the markers of Spark and Hadoop (_SUCCESS) are not data.
    found = sorted(
        file.resolve()
        for file in path.rglob("*")
        if file.is_file() and not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
    )
    if not found:
        raise InputError(f"{path}: a folder without files", hint="give a log file, or a folder of log files")
    return found


def _detect(file: Path) -> str:
    """The dialect of a file, by its name and its beginning."""
    name = file.name.removesuffix(".gz")
    if name.endswith(".parquet"):
        return "usage"
    try:
        with open_text(str(file)) as stream:
            head = stream.read(_HEAD_BYTES)
    except (OSError, EOFError):
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


def line_splits(dialect: str, file: Path, bytes_per_row: int) -> list[Split]:
    """Splits of a text file by bytes; a compressed file is one split. Raises InputError when it cannot be opened."""
    try:
        with open(file, "rb") as stream:
            compressed = stream.read(2) == b"\x1f\x8b"
        size = file.stat().st_size
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from None
    if compressed:
        return [Split(dialect, str(file), 0, -1, size * 12 // bytes_per_row)]
    starts = range(0, size, LINE_SPLIT_BYTES)
    return [
        Split(dialect, str(file), start, min(start + LINE_SPLIT_BYTES, size), LINE_SPLIT_BYTES // bytes_per_row)
        for start in starts
    ]


def open_text(path: str) -> IO[bytes]:
    """The bytes of a file, unpacked when it is gzip."""
    stream = open(path, "rb")  # noqa: SIM115 - the caller closes it
    if stream.peek(2)[:2] == b"\x1f\x8b":
        return io.BufferedReader(gzip.GzipFile(fileobj=stream))
    return stream


def lines(split: Split) -> Iterator[tuple[str, bytes]]:
    """(place, line) of the lines that begin inside a split; blank lines are left out.

    A whole file's places are line numbers, a piece's are byte offsets. A truncated gzip file ends with an InputError.
    """
    with open_text(split.path) as stream:
        if split.end < 0 or split.start == 0:
            offset = 0
        else:
            # The line that straddles the cut belongs to the split before.
            stream.seek(split.start - 1)
            offset = split.start - 1 + len(stream.readline())
        number = 0
        whole = split.end < 0 or (split.start == 0 and split.end >= os.path.getsize(split.path))
        while whole or offset < split.end:
            try:
                line, length = _read_line(stream)
            except (EOFError, gzip.BadGzipFile, OSError) as error:
                raise InputError(f"{split.path}: damaged gzip data after line {number}: {error}") from None
            if not line:
                return
            number += 1
            if not line.isspace():
                yield (f"line {number}" if whole else f"byte {offset}"), line
            offset += length


def _read_line(stream: IO[bytes]) -> tuple[bytes, int]:
    """(the beginning of the next line, its whole length): a file without line ends must not fill the memory."""
    line = rest = stream.readline(MAX_LINE_BYTES)
    length = len(line)
    while len(rest) == MAX_LINE_BYTES and not rest.endswith(b"\n"):
        rest = stream.readline(MAX_LINE_BYTES)
        length += len(rest)
    return line, length
