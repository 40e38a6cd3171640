"""Packed usage on the disk: what came is appended, and is read again when findings are wanted."""

from __future__ import annotations

import os
from array import array
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kquota.audit.stages import Blob


class Place(NamedTuple):
    """Where a blob lies in the spool, and from which part of which file it came."""

    bucket: int
    start_ms: int
    """Blobs go to the reduce side in this order."""
    offset: int
    length: int
    file: int
    part: int


_WIDTH = len(Place._fields)


class Spool:
    """A file of blobs and a file of their places, in a folder; a spool of an earlier run is taken up up to `places`."""

    def __init__(self, folder: Path, places: int = 0) -> None:
        self._path, self._index = folder / "blobs", folder / "places"
        self._places = array("q")
        if places:
            with open(self._index, "rb") as file:
                self._places.frombytes(file.read(places * _WIDTH * self._places.itemsize))
        self._open(len(self._places))

    def _open(self, kept: int) -> None:
        del self._places[kept:]
        last = self[len(self) - 1] if len(self) else None
        self.size = 0 if last is None else last.offset + last.length
        """The bytes of all blobs."""
        # Without buffers: what an old process still holds must not come behind what a new one wrote.
        self._data = open(self._path, "a+b", buffering=0)  # noqa: SIM115 - `close` closes it
        self._table = open(self._index, "a+b", buffering=0)  # noqa: SIM115
        self._data.truncate(self.size)
        self._table.truncate(kept * self._places.itemsize)

    def __len__(self) -> int:
        return len(self._places) // _WIDTH

    def __getitem__(self, number: int) -> Place:
        return Place(*self._places[number * _WIDTH : (number + 1) * _WIDTH])

    def __iter__(self) -> Iterator[Place]:
        return (self[number] for number in range(len(self)))

    def add(self, blob: Blob, number: int, part: int) -> Place:
        """Appends a blob that came from that part of the file with that number."""
        place = Place(blob.bucket, blob.start_ms, self.size, len(blob.data), number, part)
        entry = array("q", place)
        for file, data in ((self._data, blob.data), (self._table, entry.tobytes())):
            left = memoryview(data)
            while left:
                left = left[file.write(left) :]
        self._places.extend(entry)
        self.size += len(blob.data)
        return place

    def read(self, place: Place) -> bytes:
        """The data of a blob."""
        data = b""
        while len(data) < place.length and (
            more := os.pread(self._data.fileno(), place.length - len(data), place.offset + len(data))
        ):
            data += more
        return data

    def in_order(self, ranks: Sequence[int], void: Collection[int]) -> list[Place]:
        """The places in the order in which the reduce side takes their blobs.

        `ranks` are the places of the files in the export; `void` are files that do not count.
        """
        places = (place for place in self if place.file not in void)
        return sorted(places, key=lambda place: (place.start_ms, ranks[place.file], place.part))

    def shorten(self, places: int) -> None:
        """Forgets all places but the first."""
        self.close()
        self._open(places * _WIDTH)

    def sync(self) -> None:
        """Writes everything to the disk."""
        for file in (self._data, self._table):
            os.fsync(file.fileno())

    def close(self) -> None:
        """Closes the files."""
        self._data.close()
        self._table.close()
