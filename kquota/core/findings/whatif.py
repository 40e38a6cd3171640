"""What other quotas would change for the clients: findings of the same usage under two sets of quotas, side by side.

Clients are matched by who they are, not by their counters: a quota on another level gives a client another counter.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from kquota.core.findings.finding import Harm
from kquota.core.findings.prediction import Interval, Prediction
from kquota.core.findings.verdicts import QuotaVerdict
from kquota.core.findings.verdicts import Verdict as Judged
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, Value, differ

Verdict: TypeAlias = Literal["throttled", "not throttled", "undetermined"]


class Outcome(enum.Enum):
    """What changes for a client; in the order of reports."""

    NEWLY_THROTTLED = "newly throttled"
    MORE = "throttled more"
    LESS = "throttled less"
    NO_LONGER_THROTTLED = "no longer throttled"
    UNDETERMINED = "undetermined"
    """The usage does not record what the answer depends on."""
    SAME = "as before"


@dataclass(frozen=True, slots=True)
class Standing:
    """How a client fares under one of the two sets of quotas.

    `brokers` are the brokers that throttle it. The counts are None when undetermined. `limit` and `entity` are the last
    ones of a history of quotas, None where nothing limits it. `unknown` says what leaves it open whether or how much it
    is throttled, on some of its brokers or on all: where that is the same under both sets, it changes nothing.
    """

    verdict: Verdict = "not throttled"
    throttled_events: int | None = 0
    throttle_time_ms: int | None = 0
    brokers: tuple[str, ...] = ()
    sensor: str | None = None
    entity: Entity | None = None
    limit: Value | None = None
    unknown: frozenset[Hashable] = frozenset()
    wanted: float | None = None
    """The least that the clients of its counter want on the busiest broker, units per second, where they were held back
    while the usage was recorded; else None."""
    predicted: Prediction | None = None
    """What the clients of its counter will meet, of several counters at the most harmful one; None where nothing is
    predicted."""
    delivered: Interval | None = None
    """What all clients of its counter get together, units (handler seconds for thread time) per second: on the broker
    that is the most harmful one after the change. None where it is not known."""
    clients: int = 1
    """How many clients share its counter, the most on one broker."""


def outcome(before: Standing, after: Standing) -> Outcome:
    """What changed, never a guess: more or less by throttle time, then by throttled events."""
    verdicts = before.verdict, after.verdict
    if verdicts == ("not throttled", "throttled"):
        return Outcome.NEWLY_THROTTLED
    if verdicts == ("throttled", "not throttled"):
        return Outcome.NO_LONGER_THROTTLED
    if before.wanted is not None and verdicts == ("undetermined", "throttled"):
        return Outcome.NEWLY_THROTTLED  # what was recorded is throttled now, and was not before
    if verdicts[0] != verdicts[1] or before.unknown != after.unknown:
        return Outcome.UNDETERMINED
    if verdicts[0] != "throttled":
        return Outcome.SAME
    counts = [
        (side.throttle_time_ms, side.throttled_events)
        for side in (before, after)
        if side.throttle_time_ms is not None and side.throttled_events is not None
    ]
    if len(counts) < 2:
        return Outcome.UNDETERMINED if counts or not before.unknown else Outcome.SAME
    if counts[0] == counts[1]:
        return Outcome.SAME
    return Outcome.MORE if counts[1] > counts[0] else Outcome.LESS


@dataclass(frozen=True, slots=True)
class ClientChange:
    """One client under one quota key; `requests` are its own that are charged where it is throttled, or may be.

    Where the usage is samples, which name no clients, all those behind a counter: a user or client-id of None is any,
    and `requests` is None.
    """

    key: QuotaKey
    user: str | None
    client_id: str | None
    requests: int | None
    before: Standing
    after: Standing
    outcome: Outcome
    ip: str | None = None
    """In place of a user and a client-id under the quota of connections."""

    @property
    def brokers(self) -> list[str]:
        """The brokers that throttle it before or after the change, where they have names."""
        return sorted({*self.before.brokers, *self.after.brokers} - {""})


@dataclass(frozen=True)
class Comparison:
    """All clients for whom something changes or may change, in the order of outcomes, worst first.

    `same` counts the clients that are throttled, or undetermined, as before.
    """

    clients: tuple[ClientChange, ...] = ()
    same: int = 0
    quotas: tuple[QuotaVerdict, ...] = ()
    """What became of each quota under test."""
    unjudged: tuple[QuotaVerdict, ...] = ()
    """Those that the two sets of quotas hold otherwise, of which the usage does not tell what comes of it."""

    @classmethod
    def of(cls, clients: Iterable[ClientChange]) -> Comparison:
        """From all clients."""
        everybody = tuple(clients)
        changed = sorted((change for change in everybody if change.outcome is not Outcome.SAME), key=_order)
        return cls(tuple(changed), len(everybody) - len(changed))

    def judging(self, before: Iterable[QuotaVerdict], after: Iterable[QuotaVerdict]) -> Comparison:
        """The comparison with what became of the quotas under each of the two sets."""
        old = {(quota.entity, quota.key): quota for quota in before}
        new = {(quota.entity, quota.key): quota for quota in after}
        changed = [
            quota
            for name, quota in (old | new).items()
            if name not in old or name not in new or differ(old[name].value, new[name].value)
        ]
        unjudged = tuple(quota for quota in changed if quota.verdict is Judged.UNDETERMINED)
        return replace(self, quotas=tuple(new.values()), unjudged=unjudged)

    @property
    def undetermined(self) -> bool:
        """Whether it is open for anybody, or of any quota that is not the same, what changes."""
        return bool(self.unjudged) or self.count(Outcome.UNDETERMINED) > 0

    @property
    def answers(self) -> frozenset[str]:
        """What is true of `newly-throttled`, `throttled-more` and `undetermined`, as `--fail-on` names them."""
        true = {
            "newly-throttled": self.count(Outcome.NEWLY_THROTTLED) > 0,
            "throttled-more": self.count(Outcome.MORE) > 0,
            "undetermined": self.undetermined,
        }
        return frozenset(answer for answer, is_true in true.items() if is_true)

    def count(self, outcome: Outcome) -> int:
        """How many clients it is so for."""
        if outcome is Outcome.SAME:
            return self.same
        return sum(change.outcome is outcome for change in self.clients)


_OUTCOMES = tuple(Outcome)


def _order(change: ClientChange) -> tuple[object, ...]:
    """By the outcome, by the harm to clients under the worse of the two sets, and by name.

    Where nothing is predicted, the open loop's throttle time decides.
    """
    sides = (change.before, change.after)
    worst = max(Harm.predicted(side.predicted) for side in sides)
    longest = max(side.throttle_time_ms or 0 for side in sides)
    names = change.user or "", change.ip or change.client_id or "", change.key.value
    return _OUTCOMES.index(change.outcome), *(-part for part in worst), -longest, *names
