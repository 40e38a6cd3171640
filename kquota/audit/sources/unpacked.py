"""Gzip files, read up to whatever is wrong with them: no byte that can be unpacked is lost."""

from __future__ import annotations

import io
import zlib
from typing import IO, TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAGIC = b"\x1f\x8b"
_PACKED_BYTES = 64 << 10
_TEXT, _HEADER_CRC, _EXTRA, _NAME, _COMMENT = 1, 2, 4, 8, 16
"""The flags of a member's header (RFC 1952)."""


class Damage(NamedTuple):
    """What is wrong with a gzip file."""

    reason: str
    inside: bool
    """Whether it is in the data of a member: then the last line that was read may be half a line."""


class Unpacked(io.RawIOBase):
    """The text of a gzip file. It ends where the file is damaged; then `damage` says how.

    `gzip.GzipFile` raises an error there, and what it had unpacked since the read before is lost.
    """

    def __init__(self, packed: IO[bytes]) -> None:
        self.damage: Damage | None = None
        self._packed = packed
        self._ahead = b""
        self._member: Any = None
        self._crc = self._size = 0
        self._first = True

    def readable(self) -> bool:
        """It is."""
        return True

    def close(self) -> None:
        """Closes the packed file, too."""
        self._packed.close()
        super().close()

    def readinto(self, buffer: WriteableBuffer) -> int:
        """As `io.RawIOBase` has it. Raises OSError where the file itself cannot be read."""
        target = memoryview(buffer).cast("B")
        data = self._next(len(target))
        target[: len(data)] = data
        return len(data)

    def _next(self, size: int) -> bytes:
        """Up to that many bytes; nothing at the end."""
        while self.damage is None:
            if self._member is None and not self._begin():
                break
            if not self._ahead:
                self._ahead = self._packed.read(_PACKED_BYTES)
            if not self._ahead:
                self._fail("it is cut off", inside=True)
                break
            data = self._unpack(size)
            self._crc = zlib.crc32(data, self._crc)
            self._size += len(data)
            if self.damage is None and self._member.eof:
                self._end()
            if data:
                return data
        return b""

    def _unpack(self, size: int) -> bytes:
        before = self._member.copy()
        try:
            data: bytes = self._member.decompress(self._ahead, size)
        except zlib.error as error:
            data = _up_to_the_damage(before, self._ahead, size)
            self._fail(str(error).rpartition(": ")[2], inside=True)
            return data
        self._ahead = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        return data

    def _begin(self) -> bool:
        """Reads the header of the next member; whether there is one."""
        first, self._first = self._first, False
        start = self._take(2)
        while not first and start and not start.strip(b"\0"):  # tapes and blocks are filled up with zeros
            start = (start + self._take(_PACKED_BYTES)).lstrip(b"\0")
            start, self._ahead = start[:2], start[2:] + self._ahead
        if not start:
            return False
        if start != MAGIC:
            self._fail("something follows the data" if not first else "it does not begin as one", inside=False)
            return False
        header = self._take(8)
        flags = header[1] if len(header) == 8 else -1
        if flags < 0 or header[0] != 8 or not self._skip_fields(flags):
            self._fail("a header is cut off or damaged", inside=False)
            return False
        self._member, self._crc, self._size = zlib.decompressobj(-zlib.MAX_WBITS), 0, 0
        return True

    def _skip_fields(self, flags: int) -> bool:
        """Skips the optional fields of a header; whether they are all there."""
        if flags & _EXTRA:
            length = int.from_bytes(self._take(2), "little")
            if len(self._take(length)) < length:
                return False
        for flag in (_NAME, _COMMENT):
            if flags & flag:
                while (byte := self._take(1)) != b"\0":
                    if not byte:
                        return False
        return not flags & _HEADER_CRC or len(self._take(2)) == 2

    def _end(self) -> None:
        """Checks a member against its trailer."""
        self._member = None
        trailer = self._take(8)
        if len(trailer) < 8:
            self._fail("it is cut off", inside=False)
        elif trailer != self._crc.to_bytes(4, "little") + (self._size & 0xFFFFFFFF).to_bytes(4, "little"):
            self._fail("its checksum is that of other data", inside=False)

    def _take(self, size: int) -> bytes:
        """The next bytes as they are in the file; fewer at its end."""
        while len(self._ahead) < size and (more := self._packed.read(_PACKED_BYTES)):
            self._ahead += more
        taken, self._ahead = self._ahead[:size], self._ahead[size:]
        return taken

    def _fail(self, reason: str, *, inside: bool) -> None:
        self.damage = Damage(f"damaged gzip data: {reason}", inside)


def _up_to_the_damage(member: Any, packed: bytes, size: int) -> bytes:
    """What comes of the most of the packed bytes that can be unpacked."""
    good, bad, found = 0, len(packed), b""
    while good < bad - 1:
        middle = (good + bad) // 2
        try:
            found = member.copy().decompress(packed[:middle], size)
            good = middle
        except zlib.error:
            bad = middle
    return found


def damage_of(stream: IO[bytes]) -> Damage | None:
    """What is wrong with the gzip file behind a stream that was read to its end; None where nothing is."""
    raw = getattr(stream, "raw", None)
    return raw.damage if isinstance(raw, Unpacked) else None
