"""The byte-rate quotas of a broker's own configuration: `quota.producer.default` and `quota.consumer.default`.

KIP-13 brought them in 0.9.0, for every client-id without a value of its own. Since 0.10.1 (KIP-55, which deprecates
them) they come last, after the default client-id. Kafka 3.0 removed them (KAFKA-12591).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Self

from kquota.core.entity import DEFAULT, Entity
from kquota.core.quota import LONG_MAX, QuotaKey, Value
from kquota.core.snapshot import QuotaSnapshot
from kquota.core.version import Version

STATIC_CONFIGS: Final[Mapping[QuotaKey, str]] = {
    QuotaKey.PRODUCER_BYTE_RATE: "quota.producer.default",
    QuotaKey.CONSUMER_BYTE_RATE: "quota.consumer.default",
}
"""The broker configs that are quotas."""

_SINCE: Final = (0, 9, 0)
_REMOVED: Final = (3, 0, 0)
_CALLBACK: Final = (2, 0, 0)


@dataclass(frozen=True)
class StaticQuotas:
    """The static defaults of one broker, by key; a level of their own below the default client-id.

    As with that one, each client-id has a counter of its own that all its users share.
    """

    values: Mapping[QuotaKey, Value] = field(default_factory=dict)
    empty_client_id: bool = False
    """Whether a client without a client-id has the limits of client-ids: so before Kafka 2.0 (KIP-257), never since."""

    def __post_init__(self) -> None:
        # Long.MAX_VALUE is the config's own default: no quota.
        values = {key: value for key, value in self.values.items() if value != LONG_MAX}
        object.__setattr__(self, "values", MappingProxyType(values))

    @classmethod
    def of(cls, values: Mapping[QuotaKey, Value], version: Version) -> Self:
        """What brokers of that version make of the configs; none at all from 3.0 on."""
        return cls(values if _SINCE <= version < _REMOVED else {}, version < _CALLBACK)

    def added_to(self, snapshot: QuotaSnapshot) -> QuotaSnapshot:
        """The snapshot with these as values of the default client-id where it has none: the same to every client.

        (But for those without a client-id, where `empty_client_id` is true.)
        """
        entity = Entity(client_id=DEFAULT)
        if not self.values:
            return snapshot
        return QuotaSnapshot({**snapshot, entity: {**self.values, **snapshot.get(entity, {})}}, snapshot.problems)


NO_STATIC_QUOTAS: Final = StaticQuotas()
