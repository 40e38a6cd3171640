"""Where usage events, and samples of usage, come from: one module per export dialect.

A dialect is two functions: `splits(path)` cuts a file into independent pieces, `read(split, settings, tally)` turns one
piece into batches, or samples; and, of a request log, what is to be brought together with the other pieces first.
Everything about files that dialects share is here.
"""

import importlib
import io
import itertools
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import ModuleType
from typing import IO, Any, Final, TypeAlias

import numpy as np

from kquota.audit.batch import Batch, Tally, answers_in
from kquota.audit.sources import lost
from kquota.audit.sources.data_log import ConnectionLog, DataLog
from kquota.audit.sources.files import (
    ClosedFile,
    File,
    UnreadableFile,
    brokers_of,
    damage_of,
    find,
    is_packed,
    open_text,
)
from kquota.audit.sources.mutations import TopicLog
from kquota.audit.sources.samples import Samples
from kquota.core.enforcement.kind import MUTATION
from kquota.core.findings.verdicts import Need, Sight
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.version import NEWEST, Version
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
}
"""The dialects and their modules in this folder."""

SAMPLED = frozenset(DIALECTS) - {"request-log", "usage"}
"""The dialects of samples."""

Piece: TypeAlias = Batch | Samples | TopicLog | ConnectionLog | DataLog
"""What a source yields."""

CONTROLLER: Final = "controller"
"""Noted of a request log with lines of the controller."""
WHOLE_SECONDS: Final = "whole seconds"
"""Noted of a request log whose times have no ms."""
SET_BACK: Final = "a clock that was set back"
"""Noted, with the epoch ms, of a request log in which later requests of connections have times of long before."""

_NO_SAMPLE: Final = {QuotaKey.CONNECTION_CREATION_RATE: "samples hold no connections of ips"}
SAMPLED_SIGHT: Final[Sight] = {key: Need(((key.value, _NO_SAMPLE.get(key, "no sample is of it")),)) for key in QuotaKey}
"""What can be judged from samples: the keys that there are samples of."""


def hidden(noted: Mapping[str, Iterable[object]]) -> dict[QuotaKey, str | None]:
    """Why each key cannot be judged from sources that were read, None where it can; `noted` is the tally's."""
    reasons: dict[QuotaKey, str | None] = {}
    for key in QuotaKey:
        missing = [module(dialect).SIGHT[key].missing(noted[dialect]) for dialect in sorted(noted)]
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
    broker: str = ""
    """The broker that wrote the file, by its folder; empty where the folders do not distinguish brokers."""
    fault: str = ""
    """Why the file cannot be read: nothing of it is."""
    is_closed: bool = False
    """Whether there may be usage in it all the same."""


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """What the export itself does not say."""

    broker: str | None = None
    """The broker's name; None: as the splits say."""
    zone: str = "UTC"
    """The time zone of log4j's prefix, as an IANA name."""
    num_partitions: int = 1
    """The controller's `num.partitions`: what a topic gets that is created without a number."""
    kafka: Mapping[str, Any] | None = field(default=None, repr=False)
    """How a librdkafka client connects to the cluster with a topic of usage records; it may hold a password."""
    timeout_s: float = field(default=10.0, compare=False)
    """How long to wait for each of that cluster's first answers."""
    version: Version = NEWEST
    """The brokers' Kafka version: which requests among brokers it does not charge."""
    addresses: bool = False
    """Whether it matters which connections a log shows, as it does where an ip has a quota."""
    data: bool = False
    """Whether to yield what a request log shows of the data (`DataLog`), besides what is charged."""
    by_client: bool = False
    """Whether to count the requests of each client, and not only the throttled ones, for what brokers answered."""
    since_ms: float = -math.inf
    until_ms: float = math.inf
    """The time that counts (epoch ms), without its end: what came before or after is as if it had not been recorded."""

    def counts(self, time_ms: Any) -> Any:
        """Whether each of some times counts."""
        return (self.since_ms <= time_ms) & (time_ms < self.until_ms)


def plan_splits(
    paths: Sequence[str], dialect: str, left_out: Callable[[str, str], None] = lambda path, why: None
) -> list[Split]:
    """Cuts files, and the files of folders, into splits, in the order of their names; a path may be a URI.

    `dialect` is one of DIALECTS or `auto` (by the file's name and beginning). A file that is given more than once, also
    by links, is read once. A document of kquota beside the usage is not read. `left_out` is called with the path of
    either, and the reason. A file that is not what its name says is a split with a fault, beside others. Raises
    InputError for a path that is missing or unreadable, a folder without files, and when nothing can be read or
    everything is empty.
    """
    splits: list[Split] = []
    faults: list[InputError] = []
    known: set[object] = set()
    others: list[tuple[str, str]] = []
    for path in paths:
        for file in find(path):
            if (file.identity or file.path) in known:
                left_out(file.path, "given more than once, and read once")
                continue
            known.add(file.identity or file.path)
            if (own := own_document(file)) is not None:
                others.append((file.path, f"left out: {own}"))
                continue
            kind = detect(file) if dialect == "auto" else dialect
            try:
                pieces = module(kind).splits(file)
            except UnreadableFile:
                raise
            except InputError as error:
                faults.append(error)
                pieces = [faulty(kind, file.path, error)]
            splits += [replace(split, size=file.size // len(pieces)) for split in pieces]
    if not splits and others:
        raise InputError(f"{', '.join(paths)}: no usage events in it ({others[0][1].removeprefix('left out: ')})")
    if not splits:
        raise InputError(f"{', '.join(paths)}: empty, no usage events in it")
    for path, why in others:
        left_out(path, why)
    if len(faults) == len(splits):
        raise faults[0]
    brokers = brokers_of(split.path for split in splits)
    return [replace(split, broker=brokers[split.path]) for split in splits]


def faulty(dialect: str, path: str, error: InputError) -> Split:
    """What stands for a file that cannot be read, for that reason."""
    fault, is_closed = error.message.removeprefix(f"{path}: "), isinstance(error, ClosedFile)
    return Split(dialect, path, 0, 0, fault=fault, is_closed=is_closed)


def module(dialect: str) -> ModuleType:
    """The module of a dialect."""
    return importlib.import_module(f"{__name__}.{DIALECTS[dialect]}")


def read(split: Split, settings: ReadSettings, tally: Tally) -> Iterator[Piece]:
    """The batches, the samples, or the facts about topics and connections, of one split; the tally gets the rest.

    Raises UnreadableFile.
    """
    if split.fault:
        tally.leave(split.path, "file", split.fault)
        if split.is_closed:
            tally.note(split.dialect, *lost.ANY)
        return
    batches: Iterator[Piece] = module(split.dialect).read(split, settings, tally)
    before = tally.events + tally.exempt
    try:
        for batch in batches:
            if isinstance(batch, Samples):
                if settings.since_ms > -math.inf or settings.until_ms < math.inf:
                    raise UnreadableFile(f"{split.path}: samples, of which no part can be audited")
                tally.note(split.dialect, batch.series.key.value)
                tally.saw(batch.end_ms, len(batch))
            elif isinstance(batch, Batch):
                batch = counted(batch, settings, tally)
            elif isinstance(batch, TopicLog) and batch.listeners:
                tally.note(split.dialect, CONTROLLER)
            yield batch
    except UnreadableFile:
        raise
    except InputError as error:
        # Damage in the middle of a file costs the rest of this split, not the other files.
        tally.leave(split.path, "file", error.message.removeprefix(f"{split.path}: "))
    except OSError as error:
        raise UnreadableFile(f"{split.path}: {os.strerror(error.errno) if error.errno else error}") from None
    finally:
        # A file that is none of the export, a README beside the logs, hides nothing.
        if tally.events + tally.exempt > before:
            tally.note(split.dialect, *(lost.ANY if split.path in tally.unread else ()))


def counted(batch: Batch, settings: ReadSettings, tally: Tally) -> Batch:
    """The events in the time that counts; the tally gets what they show."""
    counts = settings.counts(batch.time_ms)
    if outside := len(batch) - int(np.count_nonzero(counts)):
        tally.outside += outside
        batch = batch.take(counts)
    tally.saw(batch.time_ms, 0 if batch.only == MUTATION else len(batch))  # a topic is a part of a request
    tally.heard(answers_in(batch, every=settings.by_client))
    return batch


def broker_of(split: Split, settings: ReadSettings) -> str:
    """The broker that wrote the file: as given, else as the folders distinguish brokers."""
    return settings.broker if settings.broker is not None else split.broker


def own_document(file: File) -> str | None:
    """What a file is that kquota itself wrote, or that it reads elsewhere; None for all others."""
    if not file.name.endswith((".json", ".jsonl", ".yaml", ".yml")):
        return None
    head = file.beginning
    if _QUARANTINE.match(head):
        return "records that could not be read before"
    match = _DOCUMENT.match(head)
    return None if match is None else f"a document {match[1].decode()}"


_DOCUMENT = re.compile(rb"""\A(?:\s|#.*\n)*\{?\s*["']?kind["']?\s*:\s*["']?(kquota\.[a-z-]+)""")
_QUARANTINE = re.compile(rb'\A\{"source": "[^\n]*", "place": "[^\n]*", "reason": "')


def detect(file: File) -> str:
    """The dialect of a file, by its name and its beginning."""
    name = file.name.removesuffix(".gz")
    if name.endswith((".parquet", ".orc")):
        return "usage"
    head = file.beginning
    for dialect, sign in _SIGNS.items():
        if sign.search(head):
            return dialect
    return "usage" if name.endswith((".csv", ".jsonl", ".ndjson")) else "request-log"


_SIGNS = {
    "request-log": re.compile(rb"isForwarded|Completed request:|requestHeader\."),
    "kafka-jmx": re.compile(rb'\A(?:"time","|time[,\t=]"?[0-9]|kafka\.server:|\s*[\[{].*"kafka\.server:)', re.S),
    "prometheus": re.compile(rb'\A\s*\{.*(?:"resultType"|"metric"\s*:\s*\{.*"timestamps")', re.S),
    "openmetrics": re.compile(rb"\A\s*(?:# (?:TYPE|HELP) |[A-Za-z_:][A-Za-z0-9_:]*\{)"),
}


def line_splits(dialect: str, file: File, bytes_per_row: int, *, whole: bool = False) -> list[Split]:
    """Splits of a text file by bytes; a compressed file is one split. Raises InputError when it cannot be read."""
    compressed, head = is_packed(file.path), file.beginning
    if re.match(rb"(?:\0[^\0]){3}|(?:[^\0]\0){3}", head):
        head = b"\xff\xfe"
    for magic, (form, command) in _FOREIGN.items():
        if head.startswith(magic):
            raise ClosedFile(f"{file}: {form}, which is not read", hint=f"{command} makes a file that is")
    if file.name.endswith((".tar", ".tgz", ".tar.gz")) or head[257:262] == b"ustar":
        raise ClosedFile(
            f"{file}: an archive, whose members may be of several brokers",
            hint="unpack it, and give its folder: a folder for each broker",
        )
    size = file.size
    if compressed or (whole and size):
        return [Split(dialect, file.path, 0, -1, size * (12 if compressed else 1) // bytes_per_row)]
    starts = range(0, size, LINE_SPLIT_BYTES)
    return [
        Split(dialect, file.path, start, end, (end - start) // bytes_per_row)
        for start, end in ((start, min(start + LINE_SPLIT_BYTES, size)) for start in starts)
    ]


_FOREIGN: Final = {
    b"\xff\xfe": ("UTF-16 text", "iconv -f UTF-16 -t UTF-8"),
    b"\xfe\xff": ("UTF-16 text", "iconv -f UTF-16 -t UTF-8"),
    b"PK\x03\x04": ("a zip archive", "unzip"),
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ": ("xz", "unxz"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
    b"\x04\x22\x4d\x18": ("lz4", "unlz4"),
    b"\x1f\x8b": ("gzip in gzip", "gunzip"),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "7z x"),
    b"\x1f\x9d": ("compress", "uncompress"),
    b"LPKSHHRH": ("a journal of systemd", "journalctl -o cat --file"),
}
"""What no text begins with, its name, and what makes a text of it."""


@dataclass
class Block:
    """Some lines of a split; blank ones may be among them."""

    padded: bytes
    """The lines with their ends, and PADDING behind them."""
    number: int
    """How many lines came before."""
    offset: int
    """Where the first one begins."""
    whole: bool
    """Whether the split is a whole file, whose lines can be counted."""
    size: int
    """In the file; larger than the text where that is one line that was cut short."""

    @cached_property
    def text(self) -> bytes:
        """The lines with their ends."""
        return self.padded.removesuffix(PADDING)

    @cached_property
    def lines(self) -> list[bytes]:
        """The lines, cut short at MAX_LINE_BYTES."""
        return [line[:MAX_LINE_BYTES] for line in io.BytesIO(self.text).readlines()]

    @cached_property
    def _starts(self) -> Sequence[int]:
        """Where each of the lines begins, where they cannot be counted."""
        return () if self.whole else [*itertools.accumulate(map(len, io.BytesIO(self.text).readlines()), initial=0)]

    def place(self, index: int) -> str:
        """Where one of the lines is."""
        return self.place_of(index, self._starts[index] if self._starts else 0)

    def place_of(self, number: int, start: int) -> str:
        """Where the line of that number in the text is, which begins there: its number in the file, else its byte."""
        return f"line {self.number + number + 1}" if self.whole else f"byte {self.offset + start}"


def blocks(split: Split, tally: Tally, size: int | None = None) -> Iterator[Block]:
    """The lines that begin inside a split, of `size` bytes at a time (BLOCK_BYTES unless it is given), unless blank.

    A damaged gzip file ends after the last line before the damage, which goes to the tally.
    """
    with open_text(split.path) as stream:
        offset = 0
        whole = split.end < 0 or (split.start == 0 and split.end >= stream.seek(0, io.SEEK_END))
        if split.end >= 0:
            stream.seek(split.start)
        if split.start > 0:
            # The line that straddles the cut belongs to the split before.
            stream.seek(split.start - 1)
            offset = split.start - 1 + _skip_line(stream, split.end - split.start + 1)
            if offset >= split.end:
                return
        for text, length, number in _whole_lines(stream, split, tally, size or BLOCK_BYTES, counted=whole):
            last = 0 <= split.end <= offset + length  # what a whole file has beyond it came while it is read
            cut = text.find(b"\n", split.end - offset - 1, -len(PADDING)) if last else -1
            if cut >= 0:
                text, length = text[: cut + 1] + PADDING, cut + 1
            if not text.isspace():
                yield Block(text, number, offset, whole, length)
            if last:
                return
            offset += length


def lines(split: Split, tally: Tally) -> Iterator[tuple[str, bytes]]:
    """(place, line) of the lines that begin inside a split; blank lines are left out. As `blocks`, a line at a time."""
    for block in blocks(split, tally):
        for index, line in enumerate(block.lines):
            if not line.isspace():
                yield block.place(index), line


def _skip_line(stream: IO[bytes], limit: int) -> int:
    """Reads to the end of a line, and at most that many bytes; how much that was.

    Without a limit, a file without line ends would be read to its end from each of its splits.
    """
    length = 0
    while part := stream.readline(min(limit - length, MAX_LINE_BYTES)):
        length += len(part)
        if part.endswith(b"\n"):
            break
    return length


PADDING: Final = b"\n" * 64
"""What follows the lines of a block: whoever looks at many bytes at once may look beyond their end."""


def _count(text: bytes, length: int) -> int:
    # bytes.count looks at a byte at a time.
    return int(np.count_nonzero(np.frombuffer(text, np.uint8, length) == ord("\n"))) + (text[length - 1] != ord("\n"))


def _whole_lines(
    stream: IO[bytes], split: Split, tally: Tally, size: int, *, counted: bool
) -> Iterator[tuple[bytes, int, int]]:
    """All lines of a stream, of `size` bytes at a time: (text, size in the file, lines before it if they are counted).

    PADDING follows the text. The text of a line that is cut short is smaller than its size.
    """
    number = 0
    # The beginning of a line, and how much more of it was read: a file without line ends must not fill the memory.
    pending, dropped = bytearray(), 0
    while True:
        try:
            data = stream.read(size)
        except OSError as error:
            # Not what is in the file, but the way to it: the rest is not to be given up in silence.
            raise Unreachable(f"{split.path}: cannot read on: {error}") from None
        cut = data.rfind(b"\n") + 1
        if data and not cut:
            kept = data[: MAX_LINE_BYTES - len(pending)]
            pending += kept
            dropped += len(data) - len(kept)
            continue
        if dropped:
            end = data.find(b"\n") + 1
            yield bytes(pending) + PADDING, len(pending) + dropped + end, number
            data, cut, pending, dropped, number = data[end:], cut - end, bytearray(), 0, number + 1
        damage = None if data else damage_of(stream)
        if damage is not None and damage.inside:
            pending = bytearray()  # half a line at best
        if length := len(pending) + cut:
            text = b"".join((pending, memoryview(data)[:cut], PADDING))
            yield text, length, number
            number += _count(text, length) if counted else 0
        if damage is not None:
            tally.leave(split.path, "file", f"{damage.reason} (after line {number})")
            tally.note(split.dialect, *lost.ANY)
        if not data:
            return
        pending = bytearray(data[cut:])
