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
from kquota.audit.sources import ReadSettings, Split, blocks, line_splits, lines
from kquota.audit.sources.files import File, UnreadableFile, first_line, name_of, open_for_arrow
from kquota.audit.sources.names import connection_id
from kquota.core.change.history import EARLIEST_MS, LATEST_MS
from kquota.core.enforcement.exempt import CLUSTER_AUTHORIZATION_FAILED, is_spared, spelled
from kquota.core.enforcement.kind import CONNECTION, MUTATION, PRODUCE, REQUEST
from kquota.core.findings.verdicts import ALWAYS, Need
from kquota.core.quotas.entity import address
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.version import NEWEST, Version
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
CONNECT_API = "connect"
_NO_ERROR, _QUOTA_EXCEEDED, _INVALID_REPLICATION_FACTOR = 0, 89, 38
BATCH_ROWS = 1 << 20

_MAX_BYTES = _MAX_NS = 2**53
"""Kafka adds bytes and times up as doubles: beyond this a sum is not exact, and no request is as large."""
_MAX_THROTTLE_MS = 2**31
"""Throttle times are ints in Kafka's answers."""


def splits(file: File) -> list[Split]:
    """Row groups of Parquet; stripes of ORC; pieces of JSON lines; a CSV file whole. Raises InputError for another."""
    match _format(file.name):
        case "parquet":
            return _parquet_splits(file)
        case "orc":
            return _orc_splits(file)
        case "csv":
            return line_splits(DIALECT, file, 80, whole=True)
    return line_splits(DIALECT, file, 150)


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
            batches = json_tables(lines(split, tally), split.path, tally)
    return to_batches(batches, split.path, settings.broker, split.broker, tally, version=settings.version)


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


def to_batches(
    tables: Iterable[pa.RecordBatch],
    source: str,
    broker: str | None,
    elsewhere: str,
    tally: Tally,
    *,
    version: Version = NEWEST,
    dialect: str = DIALECT,
) -> Iterator[Batch]:
    """The events in rows of a usage table, which have the columns that are REQUIRED; other rows are tallied.

    `broker` is what all rows are of; None for what the column says, or without one `elsewhere`. A row says for itself
    what is known of it, so that it does not matter which rows are read together. `version` is the brokers' version;
    what the rows show is noted in the tally under the `dialect`.
    """
    row = 0
    for table in tables:
        yield from _to_batch(table, source, broker, elsewhere, row, tally, version=version, dialect=dialect)
        row += table.num_rows


def _format(name: str) -> str:
    name = name.removesuffix(".gz")
    for suffix in ("parquet", "orc", "csv"):
        if name.endswith(f".{suffix}"):
            return suffix
    return "jsonl"


def _parquet_splits(file: File) -> list[Split]:
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(open_for_arrow(file.path)) as opened:
            metadata, schema = opened.metadata, opened.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise _not_a(file, "Parquet", error) from None
    require_columns(file, schema.names)
    _require_texts(file, schema)
    return [
        Split(DIALECT, file.path, group, group + 1, metadata.row_group(group).num_rows)
        for group in range(metadata.num_row_groups)
    ]


def _orc_splits(file: File) -> list[Split]:
    try:
        opened = _open_orc(file.path)
    except (pa.ArrowException, OSError) as error:
        raise _not_a(file, "ORC", error) from None
    require_columns(file, opened.schema.names)
    _require_texts(file, opened.schema)
    stripes = opened.nstripes
    return [Split(DIALECT, file.path, stripe, stripe + 1, opened.nrows // stripes) for stripe in range(stripes)]


def _not_a(file: File, what: str, error: Exception) -> InputError:
    """The error for a file that Arrow does not open."""
    if isinstance(error, OSError) and error.errno:
        return UnreadableFile(f"{file}: {os.strerror(error.errno)}")
    return InputError(f"{file}: not {'an' if what == 'ORC' else 'a'} {what} file: {first_line(error)}")


def _require_texts(file: File, schema: pa.Schema) -> None:
    """Raises InputError when a column of texts or flags is one of lists, structs or maps."""
    for name in (*TEXTS, *FLAGS):
        if name in schema.names and pa.types.is_nested(schema.field(name).type):
            raise _not_text(str(file), name, schema.field(name).type)


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


def _read_parquet(split: Split) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    # Dictionary pages arrive as dictionaries: strings are decoded once per distinct value, not once per row.
    source = open_for_arrow(split.path)
    with pq.ParquetFile(source) as file:
        names = set(file.schema_arrow.names)
    texts = [name for name in TEXTS if name in names]
    present = texts + [name for name in (*NUMBERS, *FLAGS) if name in names]
    source = open_for_arrow(split.path)
    with pq.ParquetFile(source, read_dictionary=texts, page_checksum_verification=True) as file:
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


def json_tables(records: Iterable[tuple[str, bytes]], source: str, tally: Tally) -> Iterator[pa.RecordBatch]:
    """The rows that stand as JSON objects in (place, text) pairs; other texts are tallied."""
    rows: list[Mapping[str, Any]] = []
    for place, line in records:
        try:
            row = json.loads(line)
            problem = _json_problem(row)
        except (ValueError, RecursionError) as error:
            problem = _why_not_json(error)
        if problem:
            tally.reject(source, place, problem, line.decode(errors="replace").rstrip("\n"))
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


def _to_batch(
    table: pa.RecordBatch,
    source: str,
    broker: str | None,
    elsewhere: str,
    first_row: int,
    tally: Tally,
    *,
    version: Version,
    dialect: str,
) -> Iterator[Batch]:
    """The events of a table: topics and connections are batches of their own."""
    rows = table.num_rows
    columns = {name: table.column(name) for name in COLUMNS if name in table.schema.names}
    good = np.ones(rows, bool)
    reasons: list[tuple[Any, str]] = []

    def check(ok: Any, reason: str) -> None:
        bad = good & ~ok
        if bad.any():
            reasons.append((bad, reason))
            good[bad] = False

    numbers = {name: _integers(columns[name]) for name in NUMBERS if name in columns}
    for name, (_, valid, present) in numbers.items():
        check(valid | ~present, f"{name} is not a whole number")
    time_ms, _, has_time = numbers["time_ms"]
    check(has_time & (time_ms >= EARLIEST_MS) & (time_ms < LATEST_MS), "time_ms is not a time in epoch ms")
    for name, most in (("request_time_ns", _MAX_NS), ("throttle_time_ms", _MAX_THROTTLE_MS)):
        if name in numbers:
            values, _, present = numbers[name]
            check(~present | ((values >= 0) & (values < most)), f"{name} is out of range")
    texts = {name: _texts(columns[name], source, name) for name in TEXTS if name in columns}
    for name, column in texts.items():
        check(column.codes != _NOT_TEXT, f"{name} is not UTF-8 text")
    user, api = texts["user"], texts["api"]
    check(api.codes >= 0, "api is missing")
    connects = _of_apis(api, lambda name: name.lower() == CONNECT_API)
    check((user.codes >= 0) | connects, "user is missing")
    strict, readable = _flags(columns["strict"]) if "strict" in columns else (np.ones(rows, bool), True)
    check(readable, "strict is not true or false")
    place = _addresses(texts["ip"]) if "ip" in texts else Column(np.full(rows, _MISSING, np.int32), [])
    if "ip" in texts:
        check((texts["ip"].codes < 0) | (place.codes >= 0) | ~connects, "ip is not an address")
    kinds = np.array([*(API_KINDS.get(name.lower(), REQUEST) for name in api.values), REQUEST], np.uint8)[api.codes]
    size, _, has_size = numbers["bytes"]
    check((size >= 0) & (size < _MAX_BYTES), "bytes is out of range")
    # Of a fetch, but not of a share fetch, the retry tells what a throttled one tried to read.
    untold = ~has_size & _of_apis(api, lambda name: name.lower() == SHARE_FETCH_API)
    size = size if has_size.all() else np.where(has_size, size, np.where((kinds == REQUEST) | untold, 0, UNKNOWN))
    check(has_size | (kinds != API_KINDS["produce"]), "bytes is missing")
    if "partitions" in numbers:
        check((numbers["partitions"][0] >= 0) | ~numbers["partitions"][2], "partitions is out of range")
    for bad, reason in reasons:
        for row in np.flatnonzero(bad):
            text = json.dumps(
                {name: _cell(columns[name], int(row)) for name in columns}, default=str, ensure_ascii=False
            )
            tally.reject(source, f"row {first_row + int(row) + 1}", reason, text)

    def number(name: str, otherwise: int) -> Int64s:
        if name not in numbers:
            return np.broadcast_to(np.int64(otherwise), rows)
        values, _, present = numbers[name]
        return values if present.all() else np.where(present, values, otherwise)

    nanos, errors, partitions = number("request_time_ns", 0), number("error_code", 0), number("partitions", UNKNOWN)
    # Requests among brokers are charged to nobody.
    spared = good & _of_apis(api, lambda name: is_spared(name, version)) & (errors != CLUSTER_AUTHORIZATION_FAILED)
    if spared.any():
        tally.spare("inter_broker", int(spared.sum()), int(nanos[spared].sum()), whole=True)
    unplaced = connects & good & (place.codes < 0)
    tally.saw(time_ms[unplaced], int(unplaced.sum()))
    notes = {
        "ip": good & (place.codes >= 0),
        CONNECT_API: good & connects,
        "partitions": good & (partitions >= 0),
        _UNPLACED: unplaced,
    }
    if good.any():
        tally.note(dialect, *(note for note, some in notes.items() if some.any()))
    good &= ~spared & ~unplaced
    # A column that is not there is one without a value: JSON lines have every column.
    timed = numbers["request_time_ns"][2] if "request_time_ns" in numbers else np.zeros(rows, bool)
    unacknowledged = good & (number("acks", 1) == 0) & (kinds == PRODUCE)
    if unacknowledged.any():
        # The broker counts the thread time as exempt, the bytes as any other: 0 is charged, whatever time it took.
        tally.spare("acks_0", int(unacknowledged.sum()), int(nanos[unacknowledged].sum()), whole=False)
        nanos, timed = np.where(unacknowledged, 0, nanos), timed | unacknowledged

    client = _known(texts.get("client_id", Column.constant("", rows)))
    brokers = Column.constant(elsewhere if broker is None else broker, rows)
    if broker is None and "broker" in texts:
        brokers = _known(texts["broker"], elsewhere)
    throttle = number("throttle_time_ms", -1)

    def batch(some: Any, kind: Any, charged: Int64s, **facts: Any) -> Batch:
        """Those rows, with their kinds and what is charged."""
        who: dict[str, Any] = {"user": user.take(some), "client_id": client.take(some)}
        if kind is not CONNECTION and (throttle >= 0).any():
            who["throttle_ms"] = throttle[some]
        kinds = np.broadcast_to(np.uint8(kind), rows)[some]
        return Batch(broker=brokers.take(some), kind=kinds, time_ms=time_ms[some], bytes=charged[some], **(who | facts))

    opened = good & connects
    if opened.any():
        names = {"user": Column.constant("", int(opened.sum())), "client_id": place.take(opened)}
        yield batch(opened, CONNECTION, np.ones(rows, np.int64), **names)
        good = good & ~connects
    keep: Any = slice(None) if good.all() else good
    connection = None
    if "connection" in columns and columns["connection"].null_count < rows:
        # The retry of a throttled fetch may be in another batch. hash() differs between processes.
        connection = _fingerprints(_known(texts["connection"]))[keep]
    yield batch(
        keep,
        kinds,
        size,
        request_ns=nanos[keep] if timed.any() else None,
        request_complete=timed[keep],
        bytes_complete=~untold[keep],
        connection=connection,
    )
    asked = _of_apis(api, lambda name: spelled(name) in TOPIC_APIS) & good
    if asked.any():
        charged = np.isin(errors, (_NO_ERROR, _QUOTA_EXCEEDED))
        charged |= (errors == _INVALID_REPLICATION_FACTOR) & _of_apis(
            api, lambda name: spelled(name) == "CREATEPARTITIONS"
        )
        topics = asked & charged
        for known in (True, False):
            some = topics & ((partitions >= 0) == known)
            if some.any():
                detail = (~strict[some]).astype(np.int64)
                yield batch(some, MUTATION, np.maximum(partitions, 0), bytes_complete=known, detail=detail)


def _of_apis(api: Column, wanted: Callable[[str], bool]) -> Any:
    """Which rows are of the APIs that are wanted."""
    is_wanted = np.array([*map(wanted, api.values), False])
    return is_wanted[api.codes] if is_wanted.any() else np.zeros(len(api.codes), bool)


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
