"""What a journal needs of the place that keeps it: bytes by names, in a folder or in the cluster itself."""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias

from kquota.errors import InputError

Draft: TypeAlias = Callable[[Sequence[str]], tuple[str, bytes, int]]
"""Of the names that are taken: the name and the bytes of a new entry, and how many bytes it may have at its end."""


class JournalStore(Protocol):
    """Entries by their names. Whatever happens to a writer, readers see each entry as it was last written.

    Each method raises InputError where the store says no, and the errors of a cluster. `mark` is a hint to readers that
    may be lost; see `kquota.leases.read_entries`.
    """

    mark: bytes
    sees_all_hosts: bool
    """Whether `is_held` knows of writers on other hosts."""

    def names(self) -> list[str]:
        """The names of all entries, in no order."""

    def read(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | InputError]]:
        """The bytes of those entries, or why they cannot be read; entries that are gone are left out."""

    def create(self, draft: Draft) -> None:
        """Adds an entry, and room for its end. No other writer gets its name, or its number, meanwhile.

        This process holds the entry from the moment that others see it.
        """

    def replace(self, name: str, data: bytes) -> None:
        """Gives an entry its last bytes, whole or not at all, and lets it go."""

    def release(self, name: str) -> None:
        """Lets an entry go without an end; does nothing where this process does not hold it."""

    def is_held(self, name: str) -> bool:
        """Whether a process that runs holds it; of hosts that the store does not see nobody knows."""

    def remove(self, names: Iterable[str]) -> None:
        """Forgets entries."""


# How the journal of a cluster keeps an entry that is large: a node and a record have room for about 1 MB

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
