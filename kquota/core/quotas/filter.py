"""Filters: which entities a describe asks for (KIP-546, `ClientQuotaFilter`)."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from kquota.core.quotas.entity import DEFAULT, Entity, EntityType, Name
from kquota.errors import InputError, InvalidRequest


class Any(enum.Enum):
    """Matches every name of a type, the default included."""

    ANY = "any"


ANY: Final = Any.ANY
Match: TypeAlias = Name | Literal[Any.ANY]


@dataclass(frozen=True)
class QuotaFilter:
    """Components per entity type; strict leaves out entities that have other types as well.

    Without components, a filter that is not strict matches everything and a strict one nothing. Raises InvalidRequest
    for an ip together with a user or client-id, InputError for an empty name.
    """

    components: Mapping[EntityType, Match] = field(default_factory=dict)
    strict: bool = False

    def __post_init__(self) -> None:
        if EntityType.IP in self.components and len(self.components) > 1:
            raise InvalidRequest("INVALID_REQUEST: a filter on ip cannot be combined with user or client-id")
        for entity_type, match in self.components.items():
            if match == "":
                raise InputError(f"empty {entity_type.value} in a filter matches nothing")
        ordered = {kind: self.components[kind] for kind in EntityType if kind in self.components}
        object.__setattr__(self, "components", MappingProxyType(ordered))

    def matches(self, entity: Entity) -> bool:
        """Whether the entity is asked for."""
        if not self.components:
            return not self.strict
        if self.strict and entity.types != self.components.keys():
            return False
        for entity_type, match in self.components.items():
            name = entity.name_of(entity_type)
            if name is None or (match is not ANY and name != match):
                return False
        return True

    @property
    def exact(self) -> Entity | None:
        """The one entity that a strict filter without ANY can match, else None."""
        if not self.strict or not self.components or ANY in self.components.values():
            return None
        names = {kind: match for kind, match in self.components.items() if match is DEFAULT or isinstance(match, str)}
        return Entity.of(names)


EVERYTHING: Final = QuotaFilter()
