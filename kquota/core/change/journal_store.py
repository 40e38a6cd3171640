"""What a journal needs of the place that keeps it: bytes by names, in a folder or in the cluster itself."""

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
