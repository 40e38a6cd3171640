"""Quotas as people write them, `{"user=alice": {"producer_byte_rate": "10MB"}}`, as values."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, Value, parse_value

WrittenValues: TypeAlias = Mapping[QuotaKey, Value] | Mapping[QuotaKey, Value | str] | Mapping[str, Value | str]
"""Values by quota key; keys may be their names, and values texts with units such as `10MB` or `50%`."""
WrittenQuotas: TypeAlias = Mapping[Entity, WrittenValues] | Mapping[str, WrittenValues]
"""Values by entity; entities may be texts such as `user=alice,client-id=app1` or `user=<default>`."""


def keys_of(written: Iterable[QuotaKey | str]) -> frozenset[QuotaKey]:
    """The keys. Raises InputError for an unknown one."""
    return frozenset(QuotaKey.parse(key) if isinstance(key, str) else key for key in written)


def values_of(written: WrittenValues) -> dict[QuotaKey, Value]:
    """The values. Raises InputError for an unknown key, and for a text that is no value of its key."""
    found: dict[QuotaKey, Value] = {}
    for key, value in written.items():
        key = QuotaKey.parse(key) if isinstance(key, str) else key
        found[key] = parse_value(key, value) if isinstance(value, str) else value
    return found


def quotas_of(written: WrittenQuotas) -> dict[Entity, dict[QuotaKey, Value]]:
    """The values by entity. Raises InputError for a text that is no entity, and as `values_of` does."""
    return {
        Entity.parse(entity) if isinstance(entity, str) else entity: values_of(values)
        for entity, values in written.items()
    }
