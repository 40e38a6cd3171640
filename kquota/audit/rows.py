"""The recorded requests of one counter as columns: what predictions are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

from kquota.audit.batch import Int64s

_RECORD: Final = np.dtype(
    [("time", "<i8"), ("size", "<i8"), ("connection", "<i8"), ("throttle", "<i4"), ("detail", "<i2")]
)
RECORD_BYTES: Final = _RECORD.itemsize
"""The size of a row on the disk."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Requests of one counter. The columns may be parts of others, and nobody changes them."""

    time: Int64s
    """Epoch ms."""
    size: Int64s
    """Bytes, ns or partitions."""
    connection: Int64s
    throttle: Int64s
    """What the broker answered, ms; less than 0 where that is not known."""
    detail: Int64s
    """The library and the partition, that the request is permissive, or its kind; 0 where that is not known."""

    @classmethod
    def joined(cls, pieces: Sequence[Rows]) -> Rows:
        """The rows of several pieces, in their order."""
        if len(pieces) == 1:
            return pieces[0]
        return cls(*(np.concatenate([getattr(piece, name) for piece in pieces]) for name in _NAMES))

    @classmethod
    def unpacked(cls, data: bytes) -> Rows:
        """The rows that `packed` made bytes of."""
        records = np.frombuffer(data, _RECORD)
        return cls(*(records[name].astype(np.int64) for name in _NAMES))

    def packed(self) -> bytes:
        """The rows as RECORD_BYTES each."""
        records = np.zeros(len(self), _RECORD)
        for name in _NAMES:
            records[name] = getattr(self, name)
        return records.tobytes()

    def __len__(self) -> int:
        return len(self.time)

    def take(self, which: Any) -> Rows:
        """Some of the rows: a slice of them, their numbers, or whether to take each."""
        return Rows(*(getattr(self, name)[which] for name in _NAMES))

    def copy(self) -> Rows:
        """The rows by themselves, which keep no larger columns in memory."""
        return Rows(*(getattr(self, name).copy() for name in _NAMES))


_NAMES: Final = tuple(field.name for field in fields(Rows))
