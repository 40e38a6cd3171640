"""The canonical usage table: Parquet, ORC, CSV or JSON lines (schemas/usage.schema.json describes a row).

Columns: `time_ms` (epoch ms of the charge, or a timestamp), `broker`, `user`, `client_id`, `api` (`produce`, `fetch`,
`share_fetch`, or any other); `bytes` (what the byte-rate quota is charged; null for a throttled fetch or any share
fetch whose size is not known). Optional columns: `request_time_ns` (all thread time of the request: handler and
network), `throttle_time_ms` (what the broker answered), `connection`; `acks` (of a produce request: with 0 its thread
time is exempt); `error_code` (31, a failed cluster authorization: a request among brokers is then charged). Other
columns are ignored. A null client_id is the empty one.

Rows of `create_topics`, `create_partitions` and `delete_topics` have `partitions` (created, added or deleted, of one
topic; `broker` is the controller) and `strict` (whether the request knows THROTTLING_QUOTA_EXCEEDED; null is true).
Rows of `connect` are connections, with `ip` and `listener` in place of all the rest. What a table does not hold is
undetermined: `SIGHT` says why.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kquota.audit.batch import (
    API_KINDS,
    NO_CONNECTION,
    SHARE_FETCH_API,
    UNKNOWN,
    Batch,
    Column,
    Int32s,
    Int64s,
    Tally,
    is_text,
)
from kquota.audit.sources import ReadSettings, Split, blocks, line_splits, lines, lost
from kquota.audit.sources.files import ClosedFile, File, UnreadableFile, first_line, name_of, open_for_arrow
from kquota.audit.sources.names import connection_id
from kquota.core.change.history import EARLIEST_MS, LATEST_MS
from kquota.core.enforcement.apis import CLUSTER_AUTHORIZATION_FAILED, CONNECT_API, is_spared, spelled
from kquota.core.enforcement.kind import CONNECTION, FETCH, MUTATION, PRODUCE, REQUEST
from kquota.core.findings.verdicts import ALWAYS, Need
from kquota.core.quotas.entity import address
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.version import Version
from kquota.errors import InputError

DIALECT = "usage"
REQUIRED = ("time_ms", "user", "api", "bytes")
TEXTS = ("broker", "user", "client_id", "api", "connection", "ip", "listener")
NUMBERS = ("time_ms", "bytes", "request_time_ns", "throttle_time_ms", "partitions", "acks", "error_code")
FLAGS = ("strict",)
COLUMNS = (*TEXTS, *NUMBERS, *FLAGS)
_UNPLACED = "connections without an ip"
SIGHT = {
    **dict.fromkeys(QuotaKey, ALWAYS),
    QuotaKey.CONTROLLER_MUTATION_RATE: Need((("partitions", "the table has no partitions column"),)),
    QuotaKey.CONNECTION_CREATION_RATE: Need(
        (("ip", "the table has no ip column"), ("connect", "the table has no rows of connect")),
        ((_UNPLACED, "some connections in the table have no ip"),),
    ),
}
"""What can be judged from a table: for some keys it needs a column, with a value in some row."""
TOPIC_APIS = frozenset({"CREATETOPICS", "CREATEPARTITIONS", "DELETETOPICS"})
"""As `spelled` has them."""
_NO_ERROR, _QUOTA_EXCEEDED, _INVALID_REPLICATION_FACTOR = 0, 89, 38
BATCH_ROWS = 1 << 20

_MAX_BYTES = _MAX_NS = 2**53
"""Kafka adds bytes and times up as doubles: beyond this a sum is not exact, and no request is as large."""
_MAX_INT = 2**31
"""Throttle times and numbers of partitions are ints in Kafka's messages."""


def splits(file: File) -> list[Split]:
    """Row groups of Parquet; stripes of ORC; pieces of JSON lines; a CSV file whole. Raises InputError for another."""
    form = _format(file.name)
    if form in _ARROW:
        return _arrow_splits(file, form)
    return line_splits(DIALECT, file, 80, whole=True) if form == "csv" else line_splits(DIALECT, file, 150)


def read(split: Split, settings: ReadSettings, tally: Tally) -> Iterator[Batch]:
    """The events of one split."""
    match _format(name_of(split.path)):
        case "parquet":
            batches = _up_to_the_damage(split, _read_parquet(split), tally)
        case "orc":
            batches = _up_to_the_damage(split, _read_orc(split), tally)
        case "csv":
            batches = _read_csv(split, tally)
        case _:
            batches = json_tables(lines(split, tally), split.path, settings, tally)
    return to_batches(batches, split.path, settings, split.broker, tally)


def _up_to_the_damage(split: Split, tables: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[pa.RecordBatch]:
    """The tables before the first one that is damaged; the rows behind them are tallied. Raises UnreadableFile."""
    rows = 0
    try:
        for table in tables:
            yield table
            rows += table.num_rows
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise UnreadableFile(f"{split.path}: {os.strerror(error.errno)}") from None
        what = "row group" if _format(name_of(split.path)) == "parquet" else "stripe"
        reason = f"{what} {split.start + 1} is damaged: {first_line(error)}"
        tally.leave(split.path, f"{what} {split.start + 1}", reason, max(split.rows - rows, 1))
        tally.note(DIALECT, *lost.ANY)


def to_batches(
    tables: Iterable[pa.RecordBatch],
    source: str,
    settings: ReadSettings,
    elsewhere: str,
    tally: Tally,
    *,
    dialect: str = DIALECT,
) -> Iterator[Batch]:
    """The events in rows of a usage table, which have the columns that are REQUIRED; other rows are tallied.

    All rows are of the settings' broker; without one of what the column says, or else of `elsewhere`. A row says for
    itself what is known of it, so that it does not matter which rows are read together. What the rows show is noted in
    the tally under the `dialect`.
    """
    first_row = 1
    for table in tables:
        rows = _Rows(table, source, settings.broker, elsewhere)
        rows.check(settings, tally)
        rows.reject(tally, dialect, first_row)
        rows.note(tally, dialect)
        rows.spare(tally, settings.version)
        yield from rows.batches()
        first_row += table.num_rows


def _format(name: str) -> str:
    name = name.removesuffix(".gz")
    for suffix in ("parquet", "orc", "csv"):
        if name.endswith(f".{suffix}"):
            return suffix
    return "jsonl"


_ARROW = {"parquet": "a Parquet", "orc": "an ORC"}
"""What Arrow opens."""


def _arrow_splits(file: File, form: str) -> list[Split]:
    """A split for each row group, or stripe. Raises InputError, also for a column of lists, structs or maps."""
    try:
        if form == "parquet":
            with _open_parquet(file.path) as opened:
                schema, metadata = opened.schema_arrow, opened.metadata
            rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        else:
            opened = _open_orc(file.path)
            schema, rows = opened.schema, [opened.nrows // max(opened.nstripes, 1)] * opened.nstripes
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise UnreadableFile(f"{file}: {os.strerror(error.errno)}") from None
        raise ClosedFile(f"{file}: not {_ARROW[form]} file: {first_line(error)}") from None
    require_columns(file, schema.names)
    for name in (*TEXTS, *FLAGS):
        if name in schema.names and pa.types.is_nested(schema.field(name).type):
            raise _not_text(str(file), name, schema.field(name).type)
    return [Split(DIALECT, file.path, place, place + 1, count) for place, count in enumerate(rows)]


def _not_text(source: str, name: str, its_type: pa.DataType) -> InputError:
    return InputError(f"{source}: column {name} is {its_type}, not text")


def require_columns(file: File | str, names: Sequence[str]) -> None:
    """Raises InputError when a column is missing that a usage table must have, or one of it is there twice."""
    if twice := [name for name in COLUMNS if names.count(name) > 1]:
        raise InputError(f"{file}: column {', '.join(twice)} is there more than once")
    if missing := [name for name in REQUIRED if name not in names]:
        raise InputError(
            f"{file}: column {', '.join(missing)} is missing",
            hint=f"a usage table has {', '.join(REQUIRED)} and optionally broker, client_id, request_time_ns, …",
        )


def _open_parquet(path: str, **options: Any) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetFile(open_for_arrow(path), **options)


def _read_parquet(split: Split) -> Iterator[pa.RecordBatch]:
    with _open_parquet(split.path) as file:
        names = set(file.schema_arrow.names)
    texts = [name for name in TEXTS if name in names]
    present = texts + [name for name in (*NUMBERS, *FLAGS) if name in names]
    # Dictionary pages arrive as dictionaries: strings are decoded once per distinct value, not once per row.
    with _open_parquet(split.path, read_dictionary=texts, page_checksum_verification=True) as file:
        yield from file.iter_batches(
            BATCH_ROWS, row_groups=list(range(split.start, split.end)), columns=present, use_threads=False
        )


def _open_orc(path: str) -> Any:
    from pyarrow import orc

    return orc.ORCFile(open_for_arrow(path))


def _read_orc(split: Split) -> Iterator[pa.RecordBatch]:
    file = _open_orc(split.path)
    present = [name for name in COLUMNS if name in file.schema.names]
    for stripe in range(split.start, split.end):
        yield file.read_stripe(stripe, columns=present)


def _read_csv(split: Split, tally: Tally) -> Iterator[pa.RecordBatch]:
    """The rows of a CSV file, some thousands of lines at a time.

    Arrow would end at a line that is no UTF-8, and join one with an open quote to those behind it. Such a line is
    tallied before. Raises InputError where the header is one.
    """
    from pyarrow import csv

    texts = (block.text for block in blocks(split, tally, _CSV_BYTES))
    first = next(texts, b"").removeprefix(BOM_UTF8)  # the first value begins behind it
    header = b"" if (match := _HEADER.match(first)) is None else match[0]
    if reason := _fault(header):
        cure = " (iconv -f CP1252 -t UTF-8 makes it of what Windows writes)" if reason == _NOT_UTF8 else ""
        raise InputError(f"{split.path}: not a CSV file with a header: {reason}{cure}")
    read_whole = csv.ReadOptions(use_threads=False, block_size=_ARROW_BLOCK)
    try:
        names = csv.open_csv(io.BytesIO(header), read_options=read_whole).schema.names
    except pa.ArrowInvalid as error:
        raise InputError(f"{split.path}: not a CSV file with a header: {first_line(error)}") from None
    require_columns(split.path, names)
    present = [name for name in COLUMNS if name in names]
    before = 0  # the lines between the header and the text

    def on_invalid(row: Any) -> str:
        if row.text != _LEFT_OUT:
            reason = f"{row.actual_columns} fields instead of {row.expected_columns}"
            tally.reject(split.path, f"line {before + row.number}", reason, row.text)
            tally.note(DIALECT, *lost.ANY)
        return "skip"

    # Everything is read as text: a bad number is then one rejected row and not the end of the file. Of other columns
    # Arrow would guess the type, and end at a value of another type.
    as_texts = csv.ConvertOptions(
        include_columns=present,
        column_types={name: pa.string() for name in present},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
    )
    row_by_row = csv.ParseOptions(invalid_row_handler=on_invalid)
    for text in itertools.chain([first[len(header) :]], texts):
        lines = text
        if _fault(text):
            number = before + _count_lines(header) + 1
            numbered = enumerate(text.splitlines(keepends=True), number)  # at \n, \r\n and \r, as Arrow
            lines = b"".join(_checked(line, split.path, f"line {number}", tally) for number, line in numbered)
        try:
            table = csv.read_csv(io.BytesIO(header + lines), read_whole, row_by_row, as_texts)
        except pa.ArrowInvalid as error:
            raise InputError(f"{split.path}: not a CSV file: {first_line(error)}") from None
        yield from table.to_batches()
        before += _count_lines(text)


_CSV_BYTES = 1 << 21
_ARROW_BLOCK = 32 << 20
"""Arrow reads no line that is longer."""
_PAIRED = re.compile(
    rb"""(?: [^"]*+
             " (?: (?<![^,\r\n]") [^"\r\n]*+ (?: ""[^"\r\n]*+ )*+  # a value in quotes
                 | [^",\r\n]*+                                   # or two quotes inside a value
               ) "
         )*+ [^"]*+""",
    re.VERBOSE,
)
"""Lines in which the quotes of each value come in pairs. Arrow looks for the second one in all lines that follow."""
_HEADER = re.compile(rb"[\r\n]*[^\r\n]+(?:\r\n|[\r\n]|\Z)")
_LEFT_OUT = 'left out"'
"""Stands for a line that is tallied, so that Arrow counts it. No other line is so: its quote has no other."""
_NOT_UTF8 = "not UTF-8 text"


def _fault(lines: bytes) -> str:
    """Why some lines of CSV would cost others; nothing where they would not."""
    if not _is_utf8(lines):
        return _NOT_UTF8
    return "" if _PAIRED.fullmatch(lines) else "a quote is not closed"


def _checked(line: bytes, path: str, place: str, tally: Tally) -> bytes:
    """The line; `_LEFT_OUT` for one that would cost others, which is tallied."""
    if not (reason := _fault(line)):
        return line
    tally.reject(path, place, reason, line.decode(errors="replace").rstrip("\r\n"))
    tally.note(DIALECT, *lost.ANY)
    return f"{_LEFT_OUT}\n".encode()


def _count_lines(text: bytes) -> int:
    return text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def json_tables(
    records: Iterable[tuple[str, bytes]], source: str, settings: ReadSettings, tally: Tally, dialect: str = DIALECT
) -> Iterator[pa.RecordBatch]:
    """The rows that stand as JSON objects in (place, text) pairs; other texts are tallied."""
    rows: list[Mapping[str, Any]] = []
    for place, line in records:
        row: Any = None
        try:
            row = json.loads(line)
            problem = _json_problem(row)
        except (ValueError, RecursionError) as error:
            problem = _why_not_json(error)
        if problem:
            time_ms = row.get("time_ms") if isinstance(row, dict) else None
            if isinstance(time_ms, int) and EARLIEST_MS <= time_ms < LATEST_MS and not settings.counts(time_ms):
                tally.outside += 1
                continue
            tally.reject(source, place, problem, line.decode(errors="replace").rstrip("\n"))
            if b'"time_ms"' in line or b'"api"' in line:
                tally.note(dialect, *lost.ANY)
            continue
        rows.append(row)
        if len(rows) == 100_000:
            yield _json_table(rows)
            rows = []
    if rows:
        yield _json_table(rows)


def _why_not_json(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "not JSON: nested too deeply"
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return f"not JSON: {error}"
    return "not JSON: a number has too many digits"


def _json_problem(row: Any) -> str | None:
    if not isinstance(row, dict):
        return "not a JSON object"
    for name in TEXTS:
        text = row.get(name)
        if not isinstance(text, str | None):
            return f"{name} is not a string"
        if text and not text.isascii() and not is_text(text):
            return f"{name} is not UTF-8 text"
    for name in NUMBERS:
        value = row.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**63):
            return f"{name} is not a whole number"
    for name in FLAGS:
        if not isinstance(row.get(name), bool | None):
            return f"{name} is not true or false"
    return None


def _json_table(rows: list[Mapping[str, Any]]) -> pa.RecordBatch:
    columns = {name: pa.array([row.get(name) for row in rows], pa.string()) for name in TEXTS}
    columns |= {name: pa.array([row.get(name) for row in rows], pa.int64()) for name in NUMBERS}
    columns |= {name: pa.array([row.get(name) for row in rows], pa.bool_()) for name in FLAGS}
    return pa.RecordBatch.from_pydict(columns)


class _Rows:
    """The rows of a table, and which of them are good."""

    def __init__(self, table: pa.RecordBatch, source: str, broker: str | None, elsewhere: str) -> None:
        self._source, self._count = source, table.num_rows
        self._columns = {name: table.column(name) for name in COLUMNS if name in table.schema.names}
        self._numbers = {name: _integers(self._columns[name]) for name in NUMBERS if name in self._columns}
        self._texts = {name: _texts(self._columns[name], source, name) for name in TEXTS if name in self._columns}
        self._good = np.ones(self._count, bool)
        self._reasons: list[tuple[Any, str]] = []
        api = self._texts["api"]
        kinds = np.array([*(API_KINDS.get(name.lower(), REQUEST) for name in api.values), REQUEST], np.uint8)
        self._kinds = kinds[api.codes]
        self._connects = self._of_apis(lambda name: name.lower() == CONNECT_API)
        # Of a throttled fetch, but not of a share fetch, the retry tells what it tried to read.
        served = self._of_apis(lambda name: name.lower() == SHARE_FETCH_API) | (
            self._number("throttle_time_ms", -1) == 0
        )
        self._untold = ~self._numbers["bytes"][2] & (self._kinds == FETCH) & served
        self._nanos, self._errors = self._number("request_time_ns", 0), self._number("error_code", 0)
        # A column that is not there is one without a value: JSON lines have every column.
        self._timed = self._present("request_time_ns")
        self._partitions = self._number("partitions", UNKNOWN)
        ips = self._texts.get("ip")
        self._places = Column(np.full(self._count, _MISSING, np.int32), []) if ips is None else _addresses(ips)
        self._client = _known(self._texts.get("client_id", Column.constant("", self._count)))
        self._brokers = Column.constant(elsewhere if broker is None else broker, self._count)
        if broker is None and "broker" in self._texts:
            self._brokers = _known(self._texts["broker"], elsewhere)

    def _of_apis(self, wanted: Callable[[str], bool]) -> Any:
        """Which rows are of the APIs that are wanted."""
        api = self._texts["api"]
        is_wanted = np.array([*map(wanted, api.values), False])
        return is_wanted[api.codes] if is_wanted.any() else np.zeros(self._count, bool)

    def _number(self, name: str, otherwise: int) -> Int64s:
        """The values of a column; another number where there is none."""
        if name not in self._numbers:
            return np.broadcast_to(np.int64(otherwise), self._count)
        values, _, present = self._numbers[name]
        return values if present.all() else np.where(present, values, otherwise)

    def _present(self, name: str) -> Any:
        """Which rows have that number."""
        return self._numbers[name][2] if name in self._numbers else np.zeros(self._count, bool)

    def _require(self, ok: Any, reason: str) -> None:
        bad = self._good & ~ok
        if bad.any():
            self._reasons.append((bad, reason))
            self._good[bad] = False

    def check(self, settings: ReadSettings, tally: Tally) -> None:
        """Finds the rows that are not good. The first reason of a row counts, and none of one outside the time."""
        time_ms, is_whole, has_time = self._numbers["time_ms"]
        is_time = has_time & (time_ms >= EARLIEST_MS) & (time_ms < LATEST_MS)
        outside = is_time & is_whole & ~settings.counts(time_ms)
        tally.outside += int(outside.sum())
        self._good &= ~outside
        for name, (_, valid, present) in self._numbers.items():
            self._require(valid | ~present, f"{name} is not a whole number")
        self._require(is_time, "time_ms is not a time in epoch ms")
        self._require_range("request_time_ns", _MAX_NS)
        self._require_range("throttle_time_ms", _MAX_INT)
        for name, column in self._texts.items():
            self._require(column.codes != _NOT_TEXT, f"{name} is not UTF-8 text")
        self._require(self._texts["api"].codes >= 0, "api is missing")
        self._require((self._texts["user"].codes >= 0) | self._connects, "user is missing")
        if "strict" in self._columns:
            self._require(_flags(self._columns["strict"])[1], "strict is not true or false")
        if "ip" in self._texts:
            is_address = (self._texts["ip"].codes < 0) | (self._places.codes >= 0)
            self._require(is_address | ~self._connects, "ip is not an address")
        self._require_range("bytes", _MAX_BYTES)
        self._require(self._present("bytes") | (self._kinds != PRODUCE), "bytes is missing")
        self._require_range("partitions", _MAX_INT)

    def _require_range(self, name: str, most: int) -> None:
        if name in self._numbers:
            values, _, present = self._numbers[name]
            self._require(~present | ((values >= 0) & (values < most)), f"{name} is out of range")

    def reject(self, tally: Tally, dialect: str, first_row: int) -> None:
        """Tallies the rows that are not good, and notes whose requests they may be."""
        for bad, reason in self._reasons:
            for row in np.flatnonzero(bad).tolist():
                cells = {name: _cell(column, row) for name, column in self._columns.items()}
                text = json.dumps(cells, default=str, ensure_ascii=False)
                tally.reject(self._source, f"row {first_row + row}", reason, text)
                tally.note(dialect, *self._lost(row))

    def _lost(self, row: int) -> Iterable[lost.LostRequest]:
        """What to note of a row that is not good."""
        if self._connects[row]:
            return [lost.LostRequest(QuotaKey.CONNECTION_CREATION_RATE.value)]
        columns = (self._texts["api"], self._client, self._texts["user"])
        return lost.of(*(column.values[code] if (code := column.codes[row]) >= 0 else "" for column in columns))

    def note(self, tally: Tally, dialect: str) -> None:
        """Notes what the good rows show."""
        shown = {
            "ip": self._places.codes >= 0,
            CONNECT_API: self._connects,
            "partitions": self._partitions >= 0,
            _UNPLACED: self._connects & (self._places.codes < 0),
        }
        if self._good.any():
            tally.note(dialect, *(note for note, rows in shown.items() if (self._good & rows).any()))

    def spare(self, tally: Tally, version: Version) -> None:
        """Tallies what nobody is charged for: the requests among brokers, and connections from nowhere."""
        spared = self._good & self._of_apis(lambda name: is_spared(name, version))
        spared &= self._errors != CLUSTER_AUTHORIZATION_FAILED
        if spared.any():
            tally.spare("inter_broker", int(spared.sum()), int(self._nanos[spared].sum()), whole=True)
        unplaced = self._good & self._connects & (self._places.codes < 0)
        tally.saw(self._numbers["time_ms"][0][unplaced], int(unplaced.sum()))
        self._good &= ~spared & ~unplaced
        unacknowledged = self._good & (self._number("acks", 1) == 0) & (self._kinds == PRODUCE)
        if unacknowledged.any():
            # The broker counts the thread time as exempt, the bytes as any other: 0 is charged, whatever time it took.
            nanos = int(self._nanos[unacknowledged].sum())
            tally.spare("acks_0", int(unacknowledged.sum()), nanos, whole=False)
            self._nanos = np.where(unacknowledged, 0, self._nanos)
            self._timed = self._timed | unacknowledged

    def batches(self) -> Iterator[Batch]:
        """The good rows. Connections and topics are batches of their own."""
        opened = self._good & self._connects
        if opened.any():
            names = {"user": Column.constant("", int(opened.sum())), "client_id": self._places.take(opened)}
            yield self._batch(opened, CONNECTION, np.ones(self._count, np.int64), **names)
            self._good &= ~self._connects
        yield self._requests()
        yield from self._topics()

    def _batch(self, rows: Any, kind: Any, charged: Int64s, **facts: Any) -> Batch:
        """Those rows, with their kinds and what is charged."""
        parts: dict[str, Any] = {"user": self._texts["user"].take(rows), "client_id": self._client.take(rows)}
        throttle_ms = self._number("throttle_time_ms", -1)
        if kind is not CONNECTION and (throttle_ms >= 0).any():
            parts["throttle_ms"] = throttle_ms[rows]
        return Batch(
            broker=self._brokers.take(rows),
            kind=np.broadcast_to(np.uint8(kind), self._count)[rows],
            time_ms=self._numbers["time_ms"][0][rows],
            bytes=charged[rows],
            **(parts | facts),
        )

    def _requests(self) -> Batch:
        """Each good row as a request that pays with bytes and thread time."""
        size, _, has_size = self._numbers["bytes"]
        if not has_size.all():
            size = np.where(has_size, size, np.where((self._kinds == REQUEST) | self._untold, 0, UNKNOWN))
        rows: Any = slice(None) if self._good.all() else self._good
        connection = None
        if "connection" in self._columns and self._columns["connection"].null_count < self._count:
            # The retry of a throttled fetch may be in another batch. hash() differs between processes.
            connection = _fingerprints(_known(self._texts["connection"]))[rows]
        return self._batch(
            rows,
            self._kinds,
            size,
            request_ns=self._nanos[rows] if self._timed.any() else None,
            request_complete=self._timed[rows],
            bytes_complete=~self._untold[rows],
            connection=connection,
        )

    def _topics(self) -> Iterator[Batch]:
        """What the good rows changed of topics, as a broker charges it."""
        asked = self._good & self._of_apis(lambda name: spelled(name) in TOPIC_APIS)
        if not asked.any():
            return
        is_charged = np.isin(self._errors, (_NO_ERROR, _QUOTA_EXCEEDED))
        of_partitions = self._of_apis(lambda name: spelled(name) == "CREATEPARTITIONS")
        is_charged |= (self._errors == _INVALID_REPLICATION_FACTOR) & of_partitions
        for is_known in (True, False):
            rows = asked & is_charged & ((self._partitions >= 0) == is_known)
            if rows.any():
                lenient = (
                    ~_flags(self._columns["strict"])[0] if "strict" in self._columns else np.zeros(self._count, bool)
                )
                charged = np.maximum(self._partitions, 0)
                detail = lenient[rows].astype(np.int64)
                yield self._batch(rows, MUTATION, charged, bytes_complete=is_known, detail=detail)


def _addresses(ips: Column) -> Column:
    """The ips as brokers compare them; those that are no addresses have code -1."""
    texts = [text.strip() for text in ips.values]
    values = [address(text) for text in texts]
    known = np.array([*map(_is_address, texts), False], np.bool_)
    return Column(np.where((ips.codes >= 0) & known[ips.codes], ips.codes, -1).astype(np.int32), values)


def _is_address(text: str) -> bool:
    """Whether it is a whole address: a column of numbers is no column of ips."""
    from ipaddress import ip_address

    try:
        ip_address(address(text).partition("%")[0] if ":" in text or text.count(".") == 3 else text)
    except ValueError:
        return False
    return True


def _flags(array: pa.Array) -> tuple[Any, Any]:
    """(values, readable) of a column of true and false, or their names; null is true."""
    names = pc.ascii_lower(pc.ascii_trim_whitespace(array.cast(pa.string())))
    places = pc.index_in(names, pa.array(["false", "0", "true", "1", None], pa.string()))
    return np.asarray(pc.greater(pc.fill_null(places, 2), 1)), np.asarray(pc.is_valid(places))


def _integers(array: pa.Array) -> tuple[Int64s, Any, Any]:
    """(values, readable, present) of a column of numbers, texts or timestamps."""
    present = _valid(array)
    if pa.types.is_timestamp(array.type):
        array = _epoch_ms(array)
    elif pa.types.is_string(array.type):
        # At most 18 digits always fit; longer texts are no byte count and no time.
        readable = pc.match_substring_regex(array, r"^\s*[+-]?\d{1,18}\s*$")
        array = pc.utf8_trim_whitespace(pc.if_else(readable, array, None)).cast(pa.int64())
    elif pa.types.is_decimal(array.type) or pa.types.is_floating(array.type):
        whole = pc.and_(pc.equal(pc.floor(array), array), pc.less(pc.abs(array), 2.0**53))
        array = pc.if_else(whole, array, None).cast(pa.int64())
    elif pa.types.is_integer(array.type):
        array = array.cast(pa.int64(), safe=False)
    else:
        array = pa.nulls(len(array), pa.int64())
    valid = _valid(array)
    if array.null_count:
        array = pc.fill_null(array, 0)
    values: Int64s = array.to_numpy(zero_copy_only=False)
    return values, valid, present


def _valid(array: pa.Array) -> Any:
    """Which values of a column are there."""
    return np.asarray(pc.is_valid(array)) if array.null_count else np.ones(len(array), bool)


def _epoch_ms(array: pa.Array) -> pa.Array:
    """Timestamps in ms; of seconds that are too many for ms as many as are out of range all the same."""
    ticks = pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    if array.type.unit == "s":
        times = np.clip(ticks, -LATEST_MS, LATEST_MS) * 1000
    else:
        times = ticks // {"ms": 1, "us": 1000, "ns": 1_000_000}[array.type.unit]
    return pa.array(times, mask=~_valid(array))


_MISSING, _NOT_TEXT = -1, -2
"""The codes of a null, and of bytes that are not UTF-8."""


def _texts(array: pa.Array, source: str, name: str) -> Column:
    """A column of strings, some of which may be missing or no text. Raises InputError for a list, a struct or a map."""
    if not pa.types.is_dictionary(array.type):
        if pa.types.is_nested(array.type):
            raise _not_text(source, name, array.type)
        if not any(is_type(array.type) for is_type in _BYTES):
            array = array.cast(pa.string())
        array = array.dictionary_encode()
    indices = array.indices
    if indices.null_count:
        indices = pc.fill_null(indices.cast(pa.int32()), _MISSING)
    codes = indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    values = array.dictionary
    values = values if any(is_type(values.type) for is_type in _BYTES) else values.cast(pa.string())
    try:
        return Column(codes, values.cast(pa.string()).to_pylist())
    except (UnicodeDecodeError, pa.ArrowInvalid):
        return _checked_texts(codes, values.cast(pa.large_binary()).to_pylist())


_BYTES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


def _checked_texts(codes: Int32s, values: list[bytes]) -> Column:
    """The column with what is not UTF-8 as such."""
    bad = np.array([not _is_utf8(value) for value in values])
    checked = np.where((codes >= 0) & bad[codes], _NOT_TEXT, codes).astype(np.int32)
    return Column(checked, [value.decode(errors="replace") for value in values])


def _known(column: Column, otherwise: str = "") -> Column:
    """The column with something else where it is null."""
    if len(column.codes) == 0 or column.codes.min() >= 0:
        return column
    codes = np.where(column.codes < 0, len(column.values), column.codes).astype(np.int32)
    return Column(codes, [*column.values, otherwise])


def _cell(column: pa.Array, row: int) -> Any:
    """A value for people, whatever it is."""
    try:
        return column[row].as_py()
    except (ValueError, OverflowError, pa.ArrowException):  # no text, or a time beyond Python's
        return f"({column.type} that cannot be shown)"


def _fingerprints(column: Column) -> Int64s:
    ids = [connection_id(text) if text else NO_CONNECTION for text in column.values]
    return np.array(ids or [0], np.int64)[column.codes]
