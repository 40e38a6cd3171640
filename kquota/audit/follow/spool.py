"""Parcels on the disk: what came is appended, and is read again when findings are wanted."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Place(NamedTuple):
    """Where a parcel lies in the spool, and from which part of which file it came."""

    start_ms: int
    """The time of its first request."""
    offset: int
    length: int
    file: int
    part: int


_WIDTH = len(Place._fields)


class Spool:
    """A file of parcels and a file of their places, in a folder; one of an earlier run goes on after `places`."""

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
        """The bytes of all parcels."""
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

    def add(self, data: bytes, start_ms: int, number: int, part: int) -> Place:
        """Appends a parcel that came from that part of the file with that number."""
        place = Place(start_ms, self.size, len(data), number, part)
        entry = array("q", place)
        for file, written in ((self._data, data), (self._table, entry.tobytes())):
            left = memoryview(written)
            while left:
                left = left[file.write(left) :]
        self._places.extend(entry)
        self.size += len(data)
        return place

    def read(self, place: Place) -> bytes:
        """The data of a parcel."""
        data = b""
        while len(data) < place.length and (
            more := os.pread(self._data.fileno(), place.length - len(data), place.offset + len(data))
        ):
            data += more
        return data

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
