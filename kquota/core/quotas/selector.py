"""Selectors: which entities a rule of a quota file is about, by the names of their parts."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kquota.core.quotas.entity import DEFAULT, Default, Entity, EntityType
from kquota.core.quotas.expression import Expression

Pattern: TypeAlias = Expression | re.Pattern[str] | Literal[Default.DEFAULT]


@dataclass(frozen=True)
class Selector:
    """Selects every entity that has all the parts named here, whatever else it has.

    A part is a regular expression that matches the whole name, or DEFAULT; an expression never matches the default.
    """

    parts: Mapping[EntityType, Pattern]

    def matches(self, entity: Entity) -> bool:
        """Whether the entity is selected."""
        for entity_type, pattern in self.parts.items():
            name = entity.name_of(entity_type)
            if pattern is DEFAULT or name is DEFAULT:
                if pattern is not name:
                    return False
            elif name is None or not pattern.fullmatch(name):
                return False
        return True

    def __str__(self) -> str:
        return ",".join(
            f"{entity_type.value}={pattern.value if pattern is DEFAULT else f'/{pattern.pattern}/'}"
            for entity_type, pattern in self.parts.items()
        )


def selected(entity: Entity, selectors: Iterable[Selector]) -> Selector | None:
    """The first of the selectors that selects the entity."""
    return next((selector for selector in selectors if selector.matches(entity)), None)
