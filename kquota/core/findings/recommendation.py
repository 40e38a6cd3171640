"""Which value a quota should have, from what was measured of those it is for.

A quota that suffices stays as it is. A missing or insufficient quota becomes the smallest value at which at most a
given share of the time would be throttled. Headroom is added, and the result is rounded up to two digits. The smallest
value is unknown where the client was throttled each time it wanted more. The quota is then raised by a step, to be
measured again: it never goes down on the word of a client that was throttled.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, Decimal
from statistics import NormalDist
from typing import NamedTuple
from urllib.parse import unquote

from kquota.core.change.history import QuotaHistory
from kquota.core.findings.demand import Estimate
from kquota.core.findings.verdicts import QuotaVerdict
from kquota.core.quotas.entity import DEFAULT, Entity
from kquota.core.quotas.quota import LONG_MAX, QuotaKey, Value, check_value
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.resolve.resolver import PER_PAIR, Resolver

DIGITS = 2
"""What a recommended value has, so that people can read it."""


class Scope(enum.Enum):
    """For whom quotas are recommended; every value gives each of them a counter of its own on each broker."""

    USERS = "users"
    CLIENTS = "clients"
    USER_CLIENTS = "user-clients"

    @property
    def default(self) -> Entity:
        """The default entity of the kind."""
        return _DEFAULTS[self]

    @property
    def option(self) -> str:
        """What asks for recommendations of the kind."""
        return f"--entities {self.value}"

    @classmethod
    def of(cls, entities: Iterable[Entity]) -> list[Scope]:
        """The kinds that these entities are of."""
        kinds = {entity.types for entity in entities}
        return [scope for scope in cls if scope.default.types in kinds]

    def current(self, quotas: QuotaSnapshot, entity: Entity, key: QuotaKey) -> Value | None:
        """The limit of a named entity's own counter under these quotas; None where it has none of its own."""
        if self is Scope.USER_CLIENTS:
            assert isinstance(entity.user, str)
            assert isinstance(entity.client_id, str)
            resolution = Resolver.of(quotas, key).resolve(entity.user, entity.client_id)
            return resolution.limit if resolution.level in PER_PAIR else None
        own = quotas.get(entity, {}).get(key)
        return own if own is not None else quotas.get(self.default, {}).get(key)


_DEFAULTS = {
    Scope.USERS: Entity(user=DEFAULT),
    Scope.CLIENTS: Entity(client_id=DEFAULT),
    Scope.USER_CLIENTS: Entity(user=DEFAULT, client_id=DEFAULT),
}


def entity_of(sensor: str) -> Entity:
    """Whose counter it is, by the sensor's tags (`str(Sensor)`)."""
    user, _, client_id = sensor.partition(":")
    return Entity(user=unquote(user) or None, client_id=client_id or None)


def unlimited(
    quotas: QuotaHistory, scope: Scope, keys: Sequence[QuotaKey], *, default_only: bool = False
) -> QuotaHistory:
    """The quotas without the scope's own, under which brokers would count what each of its entities uses.

    Quotas of a higher level stay: who is limited by one of them is not limited by one of the scope. With `default_only`
    that is seen from the default entity of the scope, else from its named entities, which outrank more.
    """
    return quotas.each(lambda snapshot: _unlimited(snapshot, scope, keys, default_only))


def _unlimited(quotas: QuotaSnapshot, scope: Scope, keys: Sequence[QuotaKey], default_only: bool) -> QuotaSnapshot:
    types = scope.default.types
    lifted: dict[Entity, dict[QuotaKey, Value]] = {scope.default: dict.fromkeys(keys, LONG_MAX)}
    for entity, values in quotas.items():
        own = {key: value for key, value in values.items() if key in keys}
        if entity.types == types:
            own = dict.fromkeys(own, LONG_MAX)
        elif not default_only and scope is Scope.USERS and entity.user is DEFAULT:
            continue
        elif not default_only and scope is Scope.USER_CLIENTS and isinstance(entity.user, str):
            lifted.setdefault(Entity(user=entity.user, client_id=DEFAULT), {}).update(dict.fromkeys(own, LONG_MAX))
        lifted.setdefault(entity, {}).update(own)
    return QuotaSnapshot(lifted)


@dataclass(frozen=True, slots=True)
class Policy:
    """What the values are to achieve. Shares are between 0 and 1."""

    max_throttled: float = 0.01
    """The share of an entity's active time that may be throttled, on its busiest broker."""
    confidence: float = 0.95
    """Of the intervals that are told."""
    headroom: float = 0.2
    """What is added to a measured need."""
    step: float = 0.5
    """By how much a quota is raised that hides what it should be."""
    covers: float = 0.9
    """The share of the entities for which a default should be enough; the others get a quota of their own."""
    lower: bool = False
    """Whether a quota that is higher than needed is lowered."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What one entity did on one broker. Rates are in units of the key per second."""

    broker: str
    requests: int
    seconds: int
    """In which it was active, or muted."""
    throttled: int
    """How many of them it was throttled or muted in."""
    peak: float
    estimate: Estimate


class Basis(enum.Enum):
    """What a value rests on."""

    MEASURED = "measured"
    CENSORED = "censored"
    """The need is unknown: the client was throttled each time it wanted more. Measure again after the change."""


class Change(enum.Enum):
    """What becomes of a quota."""

    KEEP = "keep"
    MEASURE = "measure"
    """It stays for now: who was held back by something else may want more. Measure again under it."""
    NEW = "new"
    RAISE = "raise"
    LOWER = "lower"


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A quota of one entity, and why."""

    entity: Entity
    key: QuotaKey
    current: Value | None
    """The limit of its counter as it is now, be it the entity's own, a default's, or that of `governed_by`."""
    value: Value
    basis: Basis
    usage: Usage
    """On the broker that decides; of a default, that of the entity that decides."""
    brokers: int
    """On how many brokers it was seen."""
    low: float | None
    high: float | None
    """The confidence interval of what is needed, without headroom; None where the data do not tell."""
    entities: int | None = None
    """Of a default: how many it is for."""
    covered: int | None = None
    """And for how many of them it is enough."""
    own: bool = True
    """Whether the current limit is the entity's own, or there is none."""
    predicted: float | None = None
    """The share of the recorded time that is throttled in a replay under all recommendations, on the worst broker; None
    where no recording shows it."""
    governed_by: tuple[Entity, ...] = ()
    """Quotas at other levels that limit its clients now, and that a quota of its own would replace.

    The current limit is that of the first: the lowest that throttled them, or the highest where none did."""
    held_back: bool = False
    """Whether somebody that it is for was held back while recorded, and may want more than what was seen."""

    @property
    def change(self) -> Change:
        """What becomes of the current limit."""
        if self.current is None:
            return Change.NEW
        if self.value == self.current:
            return Change.MEASURE if self.basis is Basis.CENSORED else Change.KEEP
        if self.value < self.current:
            return Change.LOWER
        return Change.NEW if self.governed_by else Change.RAISE

    def beside(self, governing: Mapping[Entity, Value], tight: Collection[Entity], policy: Policy) -> Recommendation:
        """The recommendation where these quotas at other levels limit its clients now; `tight` ones throttle them.

        A quota of its own would replace them. Where they suffice they stay, and no lower limit takes their place unless
        the policy lowers.
        """
        if self.current is not None or not governing:
            return self
        most = max(governing.values())
        usage, need = self.usage, self.usage.estimate.value
        suffices = need is not None and need <= most and usage.throttled <= policy.max_throttled * usage.seconds
        stays = self.value <= most or (suffices and not tight)
        value = most if stays and not (policy.lower and self.value < most) else self.value
        # Counters of several limits are no counter of the highest: one that throttles says what is not enough.
        first = min(tight, key=governing.__getitem__) if tight else max(governing, key=governing.__getitem__)
        others = (entity for entity in governing if entity != first)
        return replace(self, current=governing[first], value=value, governed_by=(first, *others))


@dataclass(frozen=True)
class Recommendations:
    """All quotas that are recommended, and the quotas that stay."""

    scope: Scope
    policy: Policy
    quotas: Sequence[Recommendation]
    undetermined: Mapping[QuotaKey, int] = field(default_factory=dict)
    """How many counters of a key are left out, because the usage does not record everything that their quota counts."""
    verdicts: tuple[QuotaVerdict, ...] = ()
    """What became of each quota that was in force."""
    left_out: tuple[QuotaVerdict, ...] = ()
    """Quotas of these that throttled, and nothing is recommended for: of another kind, or whom nobody asked about."""
    charged: Sequence[Entity] = ()
    """Those of another kind whose quotas count some of the usage: nothing is recommended for it."""

    def proposed(self, current: QuotaSnapshot) -> QuotaSnapshot:
        """The quotas as they are, with what is recommended."""
        merged: dict[Entity, dict[QuotaKey, Value]] = {entity: dict(values) for entity, values in current.items()}
        for quota in self.quotas:
            if quota.value != quota.current:
                merged.setdefault(quota.entity, {})[quota.key] = quota.value
        return QuotaSnapshot(merged)


class _Choice(NamedTuple):
    value: Value
    need: float
    """What is needed at least, without headroom."""
    enough: float
    """The smallest limit that need not be raised: the need where it is known."""
    basis: Basis
    usage: Usage


def recommend(
    usages: Sequence[Usage], entity: Entity, key: QuotaKey, current: Value | None, policy: Policy
) -> Recommendation:
    """The quota of an entity that did this on its brokers, at least one; the busiest decides."""
    chosen = _choose(usages, key, current, policy)
    return _recommendation(chosen, entity, key, current, len(usages))


def _recommendation(
    chosen: _Choice, entity: Entity, key: QuotaKey, current: Value | None, brokers: int
) -> Recommendation:
    estimate = chosen.usage.estimate
    return Recommendation(
        entity, key, current, chosen.value, chosen.basis, chosen.usage, brokers, estimate.low, estimate.high
    )


def _choose(usages: Iterable[Usage], key: QuotaKey, current: Value | None, policy: Policy) -> _Choice:
    choices = [_on_one(usage, key, current, policy) for usage in usages]
    busiest = max(choices, key=lambda choice: (choice.value, choice.need))
    return busiest._replace(enough=max(choice.enough for choice in choices))


def _on_one(usage: Usage, key: QuotaKey, current: Value | None, policy: Policy) -> _Choice:
    need = usage.estimate.value
    if need is None:
        least = usage.estimate.at_least
        if current is not None and usage.peak >= current:
            least = max(least, current)
        # A limit that was never reached held nobody back: another one did, and this one may be enough.
        value = max(rounded_up(key, least * (1 + policy.step)), current or 0)
        return _Choice(value, least, value, Basis.CENSORED, usage)
    value = rounded_up(key, need * (1 + policy.headroom))
    if current is not None and current >= need and not (policy.lower and value < current):
        value = current
    return _Choice(value, need, need, Basis.MEASURED, usage)


def recommend_default(
    usages: Mapping[Entity, Sequence[Usage]], entity: Entity, key: QuotaKey, current: Value | None, policy: Policy
) -> list[Recommendation]:
    """A value for the default entity that is enough for most, and a quota of its own for each that needs more.

    `usages` has the usage of each entity, at least one, that the default is for.
    """
    choices = {name: _choose(usages[name], key, None, policy) for name in usages}
    if current is not None:
        # Whom the present default holds back wants more than it.
        again = {name: _choose(usages[name], key, current, policy) for name in usages}
        choices |= {name: choice for name, choice in again.items() if choice.basis is Basis.CENSORED}
    order = sorted(choices, key=lambda name: (choices[name].value, choices[name].need))
    wanted = math.ceil(policy.covers * len(order) - 1e-9)
    decides = choices[order[max(wanted, 1) - 1]]
    value = decides.value

    if current is not None:
        suffices = sum(current >= choice.enough for choice in choices.values()) >= wanted
        if not (policy.lower and value < current):
            value = current if suffices else max(value, current)
    outliers = [name for name in order if choices[name].enough > value]
    low, high = _between(sorted(choice.need for choice in choices.values()), policy)
    default = Recommendation(
        entity,
        key,
        current,
        value,
        decides.basis,
        decides.usage,
        len({usage.broker for by_broker in usages.values() for usage in by_broker}),
        low,
        high,
        len(order),
        len(order) - len(outliers),
    )
    return [default, *(_recommendation(choices[name], name, key, current, len(usages[name])) for name in outliers)]


def _between(needs: Sequence[float], policy: Policy) -> tuple[float | None, float | None]:
    """The interval of the need that covers so many entities, were these drawn from many: order statistics.

    Of all that there may be, the most is not known from some.
    """
    count = len(needs)
    middle = policy.covers * count
    width = NormalDist().inv_cdf((1 + policy.confidence) / 2) * math.sqrt(count * policy.covers * (1 - policy.covers))
    low, high = math.floor(middle - width), math.ceil(middle + width)
    return needs[low - 1] if low >= 1 else None, needs[high - 1] if high <= count and policy.covers < 1 else None


def rounded_up(key: QuotaKey, rate: float, digits: int = DIGITS) -> Value:
    """The rate as a value of the key: so many digits, not less, and at least the smallest there can be."""
    exact = Decimal(rate)
    if exact > 0:
        exact = exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), ROUND_CEILING)
    if key.value_type.integral:
        return check_value(key, min(max(1, math.ceil(exact)), LONG_MAX))
    return check_value(key, max(exact, Decimal("1e-6")))
