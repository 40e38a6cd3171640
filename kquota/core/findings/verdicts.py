"""What became of each quota that is set: every value of every entity ends in exactly one verdict.

An audit finds something of counters; people set values. Here the one is said of the other: a value is judged by the
counters that it governed, and a value without any by what the recording could have shown.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kquota.core.change.history import QuotaHistory
from kquota.core.findings.prediction import CounterName
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, Value


class Verdict(enum.Enum):
    """What can be said about a counter, or about a quota that is set; in the order of precedence."""

    THROTTLED = "throttled"
    UNDETERMINED = "undetermined"
    """The export does not record what the answer depends on."""
    NOT_THROTTLED = "not throttled"
    NOBODY_SEEN = "nobody seen"
    """Of a quota only: the export would show whom it governs, and there is nobody."""


SLOWED: Final = "may keep the clients below the limit"
"""How the reason of a counter ends that is undetermined because something else slows its clients down."""
BURSTS: Final = "delays them, and what waited may exceed the limit"
"""How it ends where the replay throttles nobody, and something else delays its clients."""
HELD_BACK: Final = "its clients were held back while this was recorded, and may want more than they got"
"""Why a counter is undetermined that would not have been throttled: see `kquota.audit.evidence.verdict`."""


class InTurn(NamedTuple):
    """What is known of a counter while one of several quotas governed it, which took turns."""

    verdict: Verdict
    """What the replay found of this time."""
    answered: bool
    """Whether brokers throttled requests at this time, by their own answers."""


@dataclass
class Governed:
    """The counters that one value governed."""

    verdicts: Counter[Verdict] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    """Why counters are undetermined."""
    in_turn: dict[CounterName, InTurn] = field(default_factory=dict)
    """Those that other values governed at other times, where the brokers' answers are known."""

    def add(self, verdict: Verdict, reason: str | None, count: int = 1) -> None:
        """Adds so many counters."""
        self.verdicts[verdict] += count
        if verdict is Verdict.UNDETERMINED and reason is not None:
            self.reasons[reason] += count

    def merge(self, other: Governed) -> None:
        """Adds the counters of another part of the audit."""
        self.verdicts.update(other.verdicts)
        self.reasons.update(other.reasons)
        self.in_turn |= other.in_turn


Governing = Mapping[tuple[str, str], Governed]
"""The counters by (key, entity), as texts."""


def gather(parts: Iterable[Governing]) -> dict[tuple[str, str], Governed]:
    """The counters of all parts of an audit."""
    whole: dict[tuple[str, str], Governed] = {}
    for part in parts:
        for name, governed in part.items():
            if name not in whole:
                whole[name] = Governed()
            whole[name].merge(governed)
    return whole


class QuotaVerdict(NamedTuple):
    """One value that is set, and what became of it."""

    entity: Entity
    key: QuotaKey
    value: Value
    """The last one, in a history of quotas."""
    verdict: Verdict
    reason: str | None
    """Why it is undetermined, or why the brokers do not enforce it; else None."""
    counters: Mapping[Verdict, int]
    """How many counters it governed, by what was found of them."""
    in_turn: Mapping[CounterName, InTurn]
    """Those that other values governed at other times, where the brokers' answers are known."""

    def __str__(self) -> str:
        return f"{self.entity} {self.key.value}"


def verdicts(
    quotas: QuotaHistory, governing: Governing, hidden: Mapping[QuotaKey, str | None]
) -> tuple[QuotaVerdict, ...]:
    """The verdict on each value that is set at any time, in the order of the last snapshot; removed ones come last.

    A value that the brokers' version ignores throttles nobody, with the reason. `hidden` says of each key why the
    recording may leave out some of its usage; None where it leaves out none.
    """
    last: dict[tuple[Entity, QuotaKey], Value] = {}
    reasons: dict[tuple[Entity, QuotaKey], str] = {}
    for snapshot in reversed(quotas.snapshots):
        for entity, values in snapshot.items():
            for key, value in values.items():
                last.setdefault((entity, key), value)
        for ignored in snapshot.ignored:
            last.setdefault((ignored.entity, ignored.key), ignored.value)
            reasons[ignored.entity, ignored.key] = ignored.reason
    nothing = Governed()
    return tuple(
        QuotaVerdict(*name, value, Verdict.NOT_THROTTLED, reasons[name], {}, {})
        if name in reasons
        else _verdict(*name, value, governing.get((name[1].value, str(name[0])), nothing), hidden.get(name[1]))
        for name, value in last.items()
    )


def _verdict(entity: Entity, key: QuotaKey, value: Value, governed: Governed, hidden: str | None) -> QuotaVerdict:
    counters = {verdict: governed.verdicts[verdict] for verdict in Verdict if governed.verdicts[verdict]}
    verdict, reason = Verdict.NOT_THROTTLED if counters else Verdict.NOBODY_SEEN, None
    if Verdict.THROTTLED in counters:
        verdict = Verdict.THROTTLED
    elif hidden is not None or Verdict.UNDETERMINED in counters:
        often = sorted(governed.reasons, key=lambda reason: (-governed.reasons[reason], reason))
        verdict, reason = Verdict.UNDETERMINED, "; ".join(often) if hidden is None else hidden
    return QuotaVerdict(entity, key, value, verdict, reason, counters, governed.in_turn)


def of(verdict: Verdict, quotas: Iterable[QuotaVerdict]) -> Sequence[QuotaVerdict]:
    """The quotas with that verdict."""
    return [quota for quota in quotas if quota.verdict is verdict]


@dataclass(frozen=True)
class Need:
    """What a source must show so that a quota key can be judged from it.

    Each is (what the reader of the source notes of it, why the key is undetermined): `shown` without the note,
    `spoiled` with it. The first one that holds is the reason.
    """

    shown: tuple[tuple[str, str], ...] = ()
    spoiled: tuple[tuple[str, str], ...] = ()

    def missing(self, noted: Iterable[object]) -> str | None:
        """Why the key cannot be judged, None where it can; `noted` is what was noted of a source."""
        noted = set(noted)
        lacking = [reason for note, reason in self.shown if note not in noted]
        return next(iter([*lacking, *(reason for note, reason in self.spoiled if note in noted)]), None)


Sight = Mapping[QuotaKey, Need]
"""What a source can judge: every key is in it."""
ALWAYS = Need()
