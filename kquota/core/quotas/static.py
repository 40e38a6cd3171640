"""The byte-rate quotas of a broker's own configuration: `quota.producer.default` and `quota.consumer.default`.

KIP-13 brought them in 0.9.0, for every client-id without a value of its own. Since 0.10.1 (KIP-55, which deprecates
them) they come last, after the default client-id. Kafka 3.0 removed them (KAFKA-12591). `enforced` is what brokers of
one version make of a snapshot.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Self

from kquota.core.quotas.entity import DEFAULT, Entity
from kquota.core.quotas.quota import LONG_MAX, QuotaKey, Value
from kquota.core.quotas.snapshot import Ignored, QuotaSnapshot, Values
from kquota.core.quotas.version import EMPTY_CLIENT_ID_ESCAPES, STATIC_REMOVED, STATIC_SINCE, Version, ignored

STATIC_CONFIGS: Final[Mapping[QuotaKey, str]] = {
    QuotaKey.PRODUCER_BYTE_RATE: "quota.producer.default",
    QuotaKey.CONSUMER_BYTE_RATE: "quota.consumer.default",
}
"""The broker configs that are quotas."""


@dataclass(frozen=True)
class StaticQuotas:
    """The static defaults of one broker, by key; a level of their own below the default client-id.

    As with that one, each client-id has a counter of its own that all its users share.
    """

    values: Mapping[QuotaKey, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Long.MAX_VALUE is the config's own default: no quota.
        values = {key: value for key, value in self.values.items() if value != LONG_MAX}
        object.__setattr__(self, "values", MappingProxyType(values))

    @classmethod
    def of(cls, values: Mapping[QuotaKey, Value], version: Version) -> Self:
        """What brokers of that version make of the configs; none at all from 3.0 on."""
        return cls(values if STATIC_SINCE <= version < STATIC_REMOVED else {})

    def added_to(self, snapshot: QuotaSnapshot) -> QuotaSnapshot:
        """The snapshot with these as values of the default client-id where it has none: the same to every client."""
        entity = Entity(client_id=DEFAULT)
        if not self.values:
            return snapshot
        return replace(snapshot, quotas={**snapshot, entity: {**self.values, **snapshot.get(entity, {})}})


NO_STATIC_QUOTAS: Final = StaticQuotas()


def enforced(snapshot: QuotaSnapshot, version: Version, static: StaticQuotas = NO_STATIC_QUOTAS) -> QuotaSnapshot:
    """The quotas that brokers of that version enforce, with the static defaults as values of the default client-id.

    The other quotas are in its `ignored`, each with the reason.
    """
    kept: dict[Entity, Values] = {}
    left_out: list[Ignored] = []
    for entity, values in snapshot.items():
        reasons = {key: reason for key in values if (reason := ignored(entity, key, version)) is not None}
        left_out += [Ignored(entity, key, values[key], reason) for key, reason in reasons.items()]
        kept[entity] = {key: value for key, value in values.items() if key not in reasons} if reasons else values
    return static.added_to(
        replace(
            snapshot,
            quotas=kept if left_out else snapshot.quotas,
            ignored=(*snapshot.ignored, *left_out),
            empty_client_id=version < EMPTY_CLIENT_ID_ESCAPES,
        )
    )
