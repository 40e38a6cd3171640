"""Gzip files, read up to whatever is wrong with them: no byte that can be unpacked is lost."""

from __future__ import annotations

import io
import zlib
from typing import IO, TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAGIC = b"\x1f\x8b"
_PACKED_BYTES = 64 << 10
_AROUND_DATA = ("header", "compression method", "data check", "length check")
"""What zlib finds wrong before or behind the data of a member."""


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
        self._is_first, self._has_data = True, False

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
            self._ahead = self._ahead or self._packed.read(_PACKED_BYTES)
            if self._member is None and not self._is_first:
                self._ahead = self._ahead.lstrip(b"\0")  # tapes and blocks are filled up with zeros
            if not self._ahead:
                if self._member is not None:
                    self._fail("it is cut off", inside=self._has_data)
                elif self._packed.peek(1):  # type: ignore[attr-defined]
                    continue
                break
            if self._member is None:
                if not MAGIC.startswith(self._ahead[:2]):
                    self._fail("something follows the data", inside=False)
                    break
                self._member, self._has_data = zlib.decompressobj(zlib.MAX_WBITS | 16), False
            if data := self._unpack(size):
                return data
        return b""

    def _unpack(self, size: int) -> bytes:
        before = self._member.copy()
        try:
            data: bytes = self._member.decompress(self._ahead, size)
        except zlib.error as error:
            data = _up_to_the_damage(before, self._ahead, size)
            reason = str(error).rpartition(": ")[2]
            self._fail(reason, inside=not any(part in reason for part in _AROUND_DATA))
            return data
        self._has_data |= bool(data)
        self._ahead = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        if self._member.eof:
            self._member, self._is_first = None, False
        return data

    def _fail(self, reason: str, *, inside: bool) -> None:
        self.damage = Damage(f"damaged gzip data: {reason}", inside)


def _up_to_the_damage(member: Any, packed: bytes, size: int) -> bytes:
    """What comes of the most of the packed bytes that can be unpacked."""
    good, bad, unpacked = 0, len(packed), b""
    while good < bad - 1:
        middle = (good + bad) // 2
        try:
            unpacked = member.copy().decompress(packed[:middle], size)
            good = middle
        except zlib.error:
            bad = middle
    return unpacked


def damage_of(stream: IO[bytes]) -> Damage | None:
    """What is wrong with the gzip file behind a stream that was read to its end; None where nothing is."""
    raw = getattr(stream, "raw", None)
    return raw.damage if isinstance(raw, Unpacked) else None
