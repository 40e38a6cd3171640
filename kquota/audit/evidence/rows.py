"""The recorded requests of one counter as columns: what predictions are made of."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from kquota.audit.batch import Int64s


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

    def __len__(self) -> int:
        return len(self.time)

    def take(self, which: Any) -> Rows:
        """Some of the rows: a slice of them, their numbers, or whether to take each."""
        return Rows(*(getattr(self, name)[which] for name in _NAMES))


_NAMES: Final = tuple(field.name for field in fields(Rows))
