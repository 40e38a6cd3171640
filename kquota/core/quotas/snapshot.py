"""A snapshot: every quota that is set, at one moment, as an immutable value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from kquota.core.quotas.entity import DEFAULT, Entity, address
from kquota.core.quotas.quota import QuotaKey, Value, humanize
from kquota.core.tabular import Rows, Tabular

Values = Mapping[QuotaKey, Value]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something stored that a broker cannot use; the rest of the snapshot is complete without it."""

    where: str
    """The place as an operator finds it, such as a znode path."""
    message: str


class Ignored(NamedTuple):
    """A value that is set, and that brokers of the version in question do not enforce."""

    entity: Entity
    key: QuotaKey
    value: Value
    reason: str
    """Such as `not enforced by Kafka 2.6: since 2.8 (KIP-612)`."""


@dataclass(frozen=True)
class QuotaSnapshot(Tabular, Mapping[Entity, Values]):
    """The set values by entity, in stable order (`Entity.sort_key`); an entity without any value is not in it.

    `kquota.core.quotas.static` makes of it the part that brokers of one version enforce.
    """

    quotas: Mapping[Entity, Values] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    ignored: tuple[Ignored, ...] = ()
    """The values that are set and left out of `quotas`, because the brokers do not enforce them."""
    empty_client_id: bool = False
    """Whether an empty client-id has the limits of client-ids, as on brokers before 2.0."""

    def __post_init__(self) -> None:
        quotas = dict(self.quotas)
        # Most entities share their values with others, and backends hand out one mapping for all of those.
        views: dict[int, Values] = {}
        ordered: dict[Entity, Values] = {}
        for entity in sorted(quotas, key=lambda entity: entity.sort_key):
            values = quotas[entity]
            if values:
                view = views.get(id(values))
                if view is None:
                    view = views[id(values)] = MappingProxyType(in_key_order(values))
                ordered[entity] = view
        object.__setattr__(self, "quotas", MappingProxyType(ordered))

    def __repr__(self) -> str:
        shown = {
            str(entity): {key.value: humanize(key, value) for key, value in values.items()}
            for entity, values in self.items()
        }
        return f"QuotaSnapshot({shown})"

    def table(self) -> Rows:
        """A row for each value: the entity, its parts, the key, and the value as a number and for people."""

        def rows() -> Iterator[Sequence[object]]:
            for entity, values in self.quotas.items():
                user, client_id, ip = (name.value if name is DEFAULT else name for name in entity)
                for key, value in values.items():
                    yield str(entity), user, client_id, ip, key.value, value, humanize(key, value)

        return ("entity", "user", "client_id", "ip", "key", "value", "limit"), rows()

    def part(self, wanted: Callable[[Entity], bool]) -> QuotaSnapshot:
        """The part of the wanted entities, with all the problems."""
        return replace(self, quotas={entity: values for entity, values in self.quotas.items() if wanted(entity)})

    def __getitem__(self, entity: Entity) -> Values:
        return self.quotas[entity]

    def __iter__(self) -> Iterator[Entity]:
        return iter(self.quotas)

    def __len__(self) -> int:
        return len(self.quotas)

    @cached_property
    def addresses(self) -> Mapping[str, Sequence[Entity]]:
        """The named ips by their `address`, which several may spell."""
        spellings: dict[str, list[Entity]] = {}
        for entity in self.quotas:
            if isinstance(entity.ip, str):
                spellings.setdefault(address(entity.ip), []).append(entity)
        return spellings

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QuotaSnapshot):
            return NotImplemented
        return dict(self.quotas) == dict(other.quotas) and self.empty_client_id == other.empty_client_id

    def __hash__(self) -> int:
        return hash(frozenset((entity, frozenset(values.items())) for entity, values in self.quotas.items()))

    def __reduce__(self) -> tuple[type[QuotaSnapshot], tuple[object, ...]]:
        # A read-only view does not pickle; a snapshot travels to Spark's executors.
        quotas = {entity: dict(values) for entity, values in self.quotas.items()}
        return QuotaSnapshot, (quotas, self.problems, self.ignored, self.empty_client_id)


def merged(parts: Iterable[QuotaSnapshot]) -> QuotaSnapshot:
    """Several looks at one cluster as one, each problem once."""
    looks = list(parts)
    problems = dict.fromkeys(problem for look in looks for problem in look.problems)
    return QuotaSnapshot({entity: values for look in looks for entity, values in look.items()}, tuple(problems))


_KEYS = tuple(QuotaKey)  # walking the enum itself costs ten times as much


def in_key_order(values: Values) -> dict[QuotaKey, Value]:
    """A copy whose keys are in the order of `QuotaKey`."""
    return dict(values) if len(values) == 1 else {key: values[key] for key in _KEYS if key in values}
