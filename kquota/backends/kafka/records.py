"""Batches of records as logs have them (`DefaultRecordBatch`, magic 2): one record a batch is written, any are read."""

import struct
import zlib
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from kquota.backends.wire.types import read_uvarint, write_uvarint
from kquota.errors import InputError

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CHECKED = 21
"""Where the bytes begin that the checksum is of."""
_MAGIC = 2
_GZIP = 1


class Record(NamedTuple):
    """A record of a compacted topic; without a value the key is deleted."""

    offset: int
    time_ms: int
    key: str
    value: bytes | None


def batch_of(key: str, value: bytes | None, time_ms: int) -> bytes:
    """A batch with one record."""
    name = key.encode()
    body = b"\0" + _varint(0) * 2 + _varint(len(name)) + name
    body += _varint(-1) if value is None else _varint(len(value)) + value
    record = _varint(len(body) + 1) + body + _varint(0)
    size = _HEADER.size - 12 + len(record)
    head = _HEADER.pack(0, size, -1, _MAGIC, 0, 0, 0, time_ms, time_ms, -1, -1, -1, 1)
    checked = head[_CHECKED:] + record
    return head[: _CHECKED - 4] + struct.pack(">I", crc32c(checked)) + checked


def records_of(data: bytes) -> Iterator[Record]:
    """The records of whole batches; a batch that is cut off at the end is left for the next fetch.

    Raises InputError for batches that this module does not read.
    """
    at = 0
    while len(data) - at >= _HEADER.size:
        first, size, _, magic, _, attributes, _, since, latest, _, _, _, count = _HEADER.unpack_from(data, at)
        end = at + 12 + size
        if end > len(data):
            return
        codec = attributes & 7
        if magic != _MAGIC or codec > _GZIP:
            raise InputError("the journal's topic is compressed", hint="set its compression.type to producer")
        body = data[at + _HEADER.size : end]
        body = zlib.decompress(body, 31) if codec == _GZIP else body
        appended, place = bool(attributes & 8), 0
        for _ in range(count):
            length, place = _read_varint(body, place)
            yield _record(body[place : place + length], first, latest if appended else since, appended)
            place += length
        at = end


def offset_after(data: bytes) -> int:
    """The offset behind the last whole batch; 0 where there is none."""
    at = after = 0
    while len(data) - at >= _HEADER.size:
        first, size, _, magic, _, _, last, *_ = _HEADER.unpack_from(data, at)
        at += 12 + size
        if at > len(data):
            break
        # Batches of the formats before bear the offset of their last record.
        after = first + 1 + (last if magic == _MAGIC else 0)
    return after


def _record(data: bytes, offset: int, time_ms: int, appended: bool) -> Record:
    later, at = _read_varint(data, 1)
    further, at = _read_varint(data, at)
    size, at = _read_varint(data, at)
    key = data[at : at + max(size, 0)].decode(errors="replace")
    size, at = _read_varint(data, at + max(size, 0))
    return Record(
        offset + further, time_ms if appended else time_ms + later, key, None if size < 0 else data[at : at + size]
    )


def _varint(value: int) -> bytes:
    """Zigzag: small numbers are short, negative ones too."""
    out = bytearray()
    write_uvarint(out, (value << 1) ^ (value >> 63))
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value, at = read_uvarint(data, at)
    return (value >> 1) ^ -(value & 1), at


@cache
def _table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return tuple(table)


def crc32c(data: bytes) -> int:
    """Castagnoli's checksum, which the standard library has not."""
    table, value = _table(), 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ table[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF
