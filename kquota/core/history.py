"""Quotas over time: which snapshot was in force when."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from kquota.core.snapshot import QuotaSnapshot
from kquota.errors import InputError


@dataclass(frozen=True)
class QuotaHistory:
    """Snapshots in the order of time, each in force until the next one.

    `changes_ms` are the moments (epoch ms) from which `snapshots[1:]` hold; the first holds from ever.
    """

    snapshots: tuple[QuotaSnapshot, ...]
    changes_ms: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.snapshots) != len(self.changes_ms) + 1:
            raise ValueError("a history has one snapshot more than changes")
        for earlier, later in zip(self.changes_ms, self.changes_ms[1:], strict=False):
            if later <= earlier:
                raise InputError("the times of a quota history must increase")

    @classmethod
    def of(cls, snapshot: QuotaSnapshot) -> QuotaHistory:
        """The same quotas at all times."""
        return cls((snapshot,))

    def __bool__(self) -> bool:
        """Whether a quota was ever set."""
        return any(self.snapshots)

    def __iter__(self) -> Iterator[tuple[int | None, QuotaSnapshot]]:
        """(from when, snapshot), the first with None."""
        return zip((None, *self.changes_ms), self.snapshots, strict=True)

    def at(self, time_ms: int) -> QuotaSnapshot:
        """What was in force at that time."""
        return self.snapshots[bisect_right(self.changes_ms, time_ms)]

    @property
    def latest(self) -> QuotaSnapshot:
        """What is in force at the end."""
        return self.snapshots[-1]
