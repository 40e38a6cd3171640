"""Kafka's types on the wire, each as a pair of functions; messages are put together from them.

A schema makes the codec of a version. Flexible versions (KIP-482) have compact lengths, and read past tagged fields.
Source: `org.apache.kafka.common.protocol.types.Type` and the generated messages of Kafka's clients.
"""

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

LONGEST_STRING: Final = 0x7FFF
"""In UTF-8 bytes: Kafka reads no longer one, in flexible versions neither."""


class FrameError(ValueError):
    """Bytes that are not the message they should be, or a message that no frame can carry."""


class Codec(NamedTuple):
    read: Callable[[bytes, int], tuple[Any, int]]
    """(frame, position) → (value, position behind it)"""
    write: Callable[[bytearray, Any], None]


Schema: TypeAlias = Callable[[int, bool], Codec]
"""(version, whether it is flexible) → codec"""


def encode(header: Codec, head: tuple[Any, ...], codec: Codec, message: Any) -> bytes:
    out = bytearray()
    try:
        header.write(out, head)
        codec.write(out, message)
    except (struct.error, UnicodeEncodeError, OverflowError) as error:
        raise FrameError(f"{type(message).__name__} cannot be encoded: {error}") from None
    return bytes(out)


def decode(codec: Codec, frame: bytes, at: int) -> tuple[Any, int]:
    try:
        return codec.read(frame, at)
    except (struct.error, IndexError):
        raise FrameError(f"a frame of {len(frame)} bytes ends in the middle of a value") from None
    except UnicodeDecodeError:
        raise FrameError("a frame with a text that is not UTF-8") from None


def decode_whole(codec: Codec, frame: bytes, at: int) -> Any:
    message, end = decode(codec, frame, at)
    if end != len(frame):
        raise FrameError(f"a frame of {len(frame)} bytes whose message ends at byte {end}")
    return message


def _fixed(layout: str) -> Schema:
    packer = struct.Struct(layout)
    unpack_from, pack, size = packer.unpack_from, packer.pack, packer.size

    def read(frame: bytes, at: int) -> tuple[Any, int]:
        return unpack_from(frame, at)[0], at + size

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    codec = Codec(read, write)
    return lambda version, flexible: codec


def read_uvarint(frame: bytes, at: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes, seven bits a byte, and the position behind it."""
    byte = frame[at]
    if byte < 0x80:
        return byte, at + 1
    value = shift = 0
    while True:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise FrameError("a frame with a length of more than five bytes")
    return value, at


def write_uvarint(out: bytearray, value: int) -> None:
    """The inverse of `read_uvarint`."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _read_compact(frame: bytes, at: int) -> tuple[int, int]:
    size, at = read_uvarint(frame, at)
    return size - 1, at


def _write_compact(out: bytearray, size: int) -> None:
    if size < 0x7F:
        out.append(size + 1)
    else:
        write_uvarint(out, size + 1)


INT16 = _fixed(">h")
INT32 = _fixed(">i")
_COMPACT = Codec(_read_compact, _write_compact)


def _sized(classic: Schema, *, text: bool, nullable: bool) -> Schema:
    """Bytes behind their length; null is the length -1. Compact lengths are one more, and varints."""

    def make(version: int, flexible: bool) -> Codec:
        read_size, write_size = _COMPACT if flexible else classic(version, flexible)

        def read(frame: bytes, at: int) -> tuple[Any, int]:
            if flexible and 0 < (size := frame[at]) < 0x80 and text:
                # A short text, in one go: what large answers consist of.
                at, end = at + 1, at + size
                if end > len(frame):
                    raise IndexError
                return str(frame[at:end], "utf-8"), end
            size, at = read_size(frame, at)
            end = at + size
            if size < 0:
                if size != -1 or not nullable:
                    raise FrameError(f"a frame with a {'text' if text else 'value'} of length {size}")
                return None, at
            if end > len(frame):
                raise IndexError
            return (frame[at:end].decode() if text else frame[at:end]), end

        def write(out: bytearray, value: Any) -> None:
            if value is None:
                if not nullable:
                    raise FrameError("null cannot be encoded here")
                write_size(out, -1)
                return
            data = value.encode() if text else value
            if text and len(data) > LONGEST_STRING:
                raise FrameError(f"a text of {len(data)} bytes is longer than Kafka reads ({LONGEST_STRING})")
            write_size(out, len(data))
            out += data

        return Codec(read, write)

    return make


NULLABLE_STRING = _sized(INT16, text=True, nullable=True)

PRIMITIVES: Final[dict[str, Schema]] = {
    "int8": _fixed(">b"),
    "int16": INT16,
    "int32": INT32,
    "int64": _fixed(">q"),
    "float64": _fixed(">d"),
    "bool": _fixed(">?"),
    "string": _sized(INT16, text=True, nullable=False),
    "string?": NULLABLE_STRING,
    "bytes": _sized(INT32, text=False, nullable=False),
    "bytes?": _sized(INT32, text=False, nullable=True),
}
"""The types by their names in Kafka's definitions; null is allowed where a question mark stands."""

_CLASSIC = INT32(0, False)
_MANY, _SMALLEST = 1_000_000, 16
"""So many entries take that many bytes each, at the least: a part and a value. Empty ones would be 30 millions."""


def array_of(element: Schema, *, nullable: bool = False) -> Schema:
    def make(version: int, flexible: bool) -> Codec:
        read_count, write_count = _COMPACT if flexible else _CLASSIC
        read_element, write_element = element(version, flexible)

        def read(frame: bytes, at: int) -> tuple[Any, int]:
            count, at = read_count(frame, at)
            if count == -1 and nullable:
                return None, at
            if count < 0:
                raise FrameError(f"a frame with a list of length {count}")
            if count > len(frame) - at:  # an element takes a byte at least: never believe a length blindly
                raise IndexError
            if count > _MANY and count > (len(frame) - at) // _SMALLEST:
                raise FrameError(f"a frame of {len(frame)} bytes with {count} entries")
            elements = []
            for _ in range(count):
                value, at = read_element(frame, at)
                elements.append(value)
            return elements, at

        def write(out: bytearray, elements: Any) -> None:
            if elements is None:
                if not nullable:
                    raise FrameError("null cannot be encoded here")
                write_count(out, -1)
                return
            write_count(out, len(elements))
            for value in elements:
                write_element(out, value)

        return Codec(read, write)

    return make


_ABSENT: Final = Codec(lambda frame, at: (None, at), lambda out, value: None)


def struct_of(build: Callable[..., Any], *fields: Schema | tuple[int, Schema]) -> Schema:
    """The fields in their order, a later one with the version that brought it; then the tagged fields.

    In a version before its own a field is left out: at the end it has its default, further ahead it is None.
    """
    numbered = [field if isinstance(field, tuple) else (0, field) for field in fields]

    def make(version: int, flexible: bool) -> Codec:
        codecs = [field(version, flexible) if version >= since else _ABSENT for since, field in numbered]
        while codecs and codecs[-1] is _ABSENT:
            codecs.pop()
        readers = [codec.read for codec in codecs]
        writers = [codec.write for codec in codecs]

        def read(frame: bytes, at: int) -> tuple[Any, int]:
            values = []
            for reader in readers:
                value, at = reader(frame, at)
                values.append(value)
            if flexible:
                at = at + 1 if frame[at] == 0 else _skip_tagged(frame, at)
            return build(*values), at

        def read_pair(frame: bytes, at: int) -> tuple[Any, int]:
            one, at = first(frame, at)
            other, at = second(frame, at)
            if flexible:
                at = at + 1 if frame[at] == 0 else _skip_tagged(frame, at)
            return build(one, other), at

        def write(out: bytearray, message: Any) -> None:
            for writer, value in zip(writers, message, strict=False):  # an older version leaves the last fields out
                writer(out, value)
            if flexible:
                out.append(0)

        if len(readers) == 2:
            # All that there are thousands of in an answer; the loop takes twice the time.
            first, second = readers
            return Codec(read_pair, write)
        return Codec(read, write)

    return make


def _skip_tagged(frame: bytes, at: int) -> int:
    count, at = read_uvarint(frame, at)
    for _ in range(count):
        _, at = read_uvarint(frame, at)
        size, at = read_uvarint(frame, at)
        at += size
        if at > len(frame):
            raise IndexError
    return at
