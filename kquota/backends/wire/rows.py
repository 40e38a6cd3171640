"""The entries of a DescribeClientQuotasResponse as rows: what answers of thousands are read into, in one loop.

The loop knows the shape of nearly every entry, and bytes that it has seen: the same bytes are the same entity types,
the same key, the same values. An entry at which it stumbles is read field by field: that codec alone decides what is
malformed.
"""

from __future__ import annotations

import struct
from typing import Any, TypeAlias

from kquota.backends.wire.types import (
    FLOAT64,
    NULLABLE_STRING,
    STRING,
    Codec,
    FrameError,
    array_of,
    read_count,
    struct_of,
)

Row: TypeAlias = tuple[tuple[str, ...], tuple[str | None, ...], tuple[tuple[str, float], ...]]
"""(entity types, names, values); the default's name is null. Rows with equal values mostly share one tuple of them."""

_MANY, _SMALLEST = 1_000_000, 16
"""So many entries take that many bytes each, at the least: a part and a value. Empty ones would be 30 millions."""

_double = struct.Struct(">d").unpack_from


def entry_rows(version: int, flexible: bool) -> Codec:
    """The codec of the entries, null with an error, as a list of rows."""
    parts = array_of(struct_of(_pair, STRING, NULLABLE_STRING))
    entry = struct_of(_pair, parts, array_of(struct_of(_pair, STRING, FLOAT64)))(version, flexible)

    def read_row(frame: bytes, at: int) -> tuple[Row, int]:
        (entity, values), at = entry.read(frame, at)
        return (tuple([kind for kind, _ in entity]), tuple([name for _, name in entity]), tuple(values)), at

    def write_row(out: bytearray, row: Row) -> None:
        kinds, names, values = row
        entry.write(out, (list(zip(kinds, names, strict=True)), values))

    one_by_one = array_of(lambda version, flexible: Codec(read_row, write_row), nullable=True)(version, flexible)

    def read(frame: bytes, at: int) -> tuple[list[Row] | None, int]:
        count, at = read_count(frame, at, flexible=True, nullable=True)
        if count is None:
            return None, at
        if count > _MANY and count > (len(frame) - at) // _SMALLEST:
            raise FrameError(f"a frame of {len(frame)} bytes with {count} entries")
        rows: list[Row] = []
        known_kinds: dict[bytes, tuple[str, ...]] = {}
        known_values: dict[bytes, tuple[tuple[str, float], ...]] = {}
        known_keys: dict[bytes, str] = {}
        for _ in range(count):
            start = at
            try:
                # A length is one more than it says: it leads from its own byte to the one behind what it measures.
                left = frame[at]
                at += 1
                kinds = frame[start:at]
                names: tuple[str | None, ...] = ()
                while left > 1:
                    left -= 1
                    begin = at
                    at += frame[at]
                    kinds += frame[begin:at]
                    size = frame[at]
                    begin = at + 1
                    at += size or 1
                    if size > 0x7F or frame[at]:
                        raise KeyError
                    names += (str(frame[begin:at], "utf-8") if size else None,)
                    at += 1
                begin = at
                left = frame[at]
                at += 1
                while left > 1:
                    left -= 1
                    at += frame[at] + 9
                section = frame[begin:at]
                values = known_values.get(section)
                if values is None:
                    values = known_values[section] = _values(section, known_keys)
                if frame[at]:
                    raise KeyError
                at += 1
                rows.append((known_kinds[kinds], names, values))
            except (KeyError, IndexError, struct.error, UnicodeDecodeError):
                row, at = read_row(frame, start)
                rows.append(row)
                if not frame[start] & 0x80:
                    known_kinds[frame[start : start + 1] + b"".join(map(_sized, row[0]))] = row[0]
                known_keys.update((_sized(key), key) for key, _ in row[2])
        return rows, at

    return Codec(read, one_by_one.write) if flexible else one_by_one


def _values(section: bytes, keys: dict[bytes, str]) -> tuple[tuple[str, float], ...]:
    """The values in those bytes. Raises KeyError, IndexError or struct.error for what only the other codec can read."""
    if section[0] > 0x7F:
        raise KeyError
    values = []
    at = 1
    for _ in range(section[0] - 1):
        end = at + section[at]
        values.append((keys[section[at:end]], _double(section, end)[0]))
        at = end + 9
        if section[at - 1]:
            raise KeyError
    return tuple(values)


def _sized(text: str) -> bytes:
    """A text behind its length; nothing that a frame could hold where the length is more than a byte."""
    data = text.encode()
    return bytes([len(data) + 1]) + data if len(data) < 0x7F else b"\0"


def _pair(*values: Any) -> tuple[Any, ...]:
    return values
