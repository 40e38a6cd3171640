"""How the journal of a cluster keeps an entry that is large: a node and a record have room for about 1 MB."""

import zlib

from kquota.errors import InputError

_PLAIN = 100_000
_LARGEST = 1 << 28


def packed(data: bytes, most: int, limit: int) -> bytes:
    """The bytes to keep. Raises InputError where they, or the end with so many bytes at most, have no room."""
    if most <= _PLAIN:
        return data
    small = zlib.compress(data)
    expected = len(small) * max(most, len(data)) // len(data)
    if expected > limit:
        raise InputError(
            f"the entry has about {expected:,} bytes, and the journal of a cluster takes {limit:,}",
            hint="write in several parts, or give --journal DIR",
        )
    return small


def unpacked(data: bytes) -> bytes | InputError:
    """The bytes that were packed; an error where they are none."""
    if data[:1] != b"\x78":
        return data
    try:
        return zlib.decompressobj().decompress(data, _LARGEST)
    except zlib.error as error:
        return InputError(f"not JSON: {error}")
