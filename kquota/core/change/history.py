"""Quotas over time: which snapshot was in force when."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from kquota.core.change.plan import Change
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.errors import InputError

EARLIEST_MS, LATEST_MS = 978_307_200_000, 4_102_444_800_000
"""2001 to 2100: a time outside was in another unit, or misread."""


@dataclass(frozen=True)
class Step:
    """Changes that were made at one time (epoch ms); `name` is what errors call them, `reason` what people gave.

    Of a step that is not `certain` (it was stopped in the middle) any change may have been made or not.
    """

    time_ms: int
    changes: tuple[Change, ...]
    name: str
    certain: bool = True
    reason: str | None = None


@dataclass(frozen=True)
class QuotaHistory:
    """Snapshots in the order of time, each in force until the next one.

    `changes_ms` are the moments (epoch ms) from which `snapshots[1:]` hold; the first holds from ever. `reasons` are
    why they do, by moment, as far as that is known. Before `known_from` (epoch ms, and why) nothing is certain.
    """

    snapshots: tuple[QuotaSnapshot, ...]
    changes_ms: tuple[int, ...] = ()
    reasons: Mapping[int, tuple[str, ...]] = field(default_factory=dict, compare=False)
    known_from: tuple[int, str] | None = None

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

    @classmethod
    def leading_to(cls, current: QuotaSnapshot, steps: Iterable[Step]) -> QuotaHistory:
        """What was in force before and between the steps, in their order, that led to the quotas of today.

        Where somebody else changed an entity between two steps, nothing is known from before the later one. Raises
        InputError where no step came later: when it was changed is not known.
        """
        snapshots, times, reasons = [current], list[int](), dict[int, tuple[str, ...]]()
        latest = LATEST_MS
        set_at: dict[Entity, int] = {}
        known_from: tuple[int, str] | None = None
        for step in reversed(list(steps)):
            # A clock that went back: no step was made after the one that follows it.
            latest = min(latest, step.time_ms)
            quotas = dict(snapshots[-1])
            for change in step.changes:
                values = quotas.get(change.entity, {})
                if change.is_made(values):
                    quotas[change.entity] = change.undone_in(values)
                elif step.certain or not change.is_due(values):
                    why = f"after {step.name}, {change.entity} was changed by something else"
                    if change.entity not in set_at:
                        hint = "a history of periods can say when: 'kquota schema quota-history'"
                        raise InputError(f"{why}, and it is not known when", hint=hint)
                    known_from = max(known_from or (0, ""), (set_at[change.entity], why))
                set_at[change.entity] = latest
            if known_from is not None:
                break
            earlier = QuotaSnapshot(quotas)
            if earlier == snapshots[-1]:
                continue
            if times and times[-1] == latest:
                snapshots[-1] = earlier
            else:
                snapshots.append(earlier)
                times.append(latest)
            if step.reason is not None:
                reasons[latest] = (step.reason, *reasons.get(latest, ()))
        return cls(tuple(reversed(snapshots)), tuple(reversed(times)), reasons, known_from)

    def then(self, snapshot: QuotaSnapshot, time_ms: int) -> QuotaHistory:
        """The history with other quotas from that time on, which is after all its changes."""
        return replace(self, snapshots=(*self.snapshots, snapshot), changes_ms=(*self.changes_ms, time_ms))

    def each(self, change: Callable[[QuotaSnapshot], QuotaSnapshot]) -> QuotaHistory:
        """The history with every snapshot changed so."""
        return replace(self, snapshots=tuple(map(change, self.snapshots)))

    def __bool__(self) -> bool:
        """Whether a quota was ever set."""
        return any(self.snapshots)

    def __iter__(self) -> Iterator[tuple[int | None, QuotaSnapshot]]:
        """(from when, snapshot), the first with None."""
        return zip((None, *self.changes_ms), self.snapshots, strict=True)

    def at(self, time_ms: int) -> QuotaSnapshot:
        """What was in force at that time."""
        return self.snapshots[bisect_right(self.changes_ms, time_ms)]

    def within(self, first_ms: int, last_ms: int) -> QuotaHistory:
        """The part of it that was in force between these times."""
        first, last = bisect_right(self.changes_ms, first_ms), bisect_right(self.changes_ms, last_ms)
        return replace(self, snapshots=self.snapshots[first : last + 1], changes_ms=self.changes_ms[first:last])

    def changes_within(self, first_ms: int, last_ms: int) -> Iterator[tuple[int, str]]:
        """(when, why) of each change in that time, in epoch ms; the text is empty where no reason is known."""
        for time_ms in self.changes_ms:
            if first_ms <= time_ms <= last_ms:
                yield time_ms, "; ".join(self.reasons.get(time_ms, ()))

    @property
    def latest(self) -> QuotaSnapshot:
        """What is in force at the end."""
        return self.snapshots[-1]
