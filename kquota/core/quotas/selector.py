"""Which entities are meant: selectors of a quota file, shell patterns of a person, filters of a describe (KIP-546)."""

import enum
import fnmatch
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from kquota.core.quotas.entity import DEFAULT, Default, Entity, EntityType, Name
from kquota.errors import InputError, InvalidRequest

_LONGEST = 1_000
"""Characters of an expression."""


def expression(pattern: str) -> re.Pattern[str]:
    """An expression for whole names. Raises InputError for a malformed or a very long expression."""
    if len(pattern) > _LONGEST:
        raise InputError(f"a regular expression of {len(pattern)} characters: at most {_LONGEST} are read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise InputError(f"{pattern!r} is not a regular expression: {error}") from None


Pattern: TypeAlias = re.Pattern[str] | Literal[Default.DEFAULT]


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


@dataclass(frozen=True)
class NamePatterns:
    """Patterns of which one has to match; without any, everything matches.

    `*` stands for any text, `?` for one character, `[ab]` for one of these, as in a shell; case matters. A pattern is
    compared with each name of an entity: user, client-id or ip. `user=team-a-*` is compared with users only. A default
    has no name, and no pattern matches it. Raises InputError for an empty pattern.
    """

    patterns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if any(not text for _, text in map(_parted, self.patterns)):
            raise InputError("an empty pattern matches no name", hint="for all names, leave --match out")

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def __str__(self) -> str:
        return " or ".join(map(repr, self.patterns))

    def matches(self, entity: Entity) -> bool:
        """Whether a name of the entity matches."""
        return self.matches_names((kind, name) for kind, name in entity.parts)

    def matches_names(self, names: Iterable[tuple[EntityType, object]]) -> bool:
        """Whether one of these names matches; names that are no text match nothing."""
        if not self.patterns:
            return True
        texts = [(kind, name) for kind, name in names if isinstance(name, str)]
        return any(
            only in (None, kind) and pattern.match(name) is not None
            for only, pattern in self._compiled
            for kind, name in texts
        )

    @cached_property
    def _compiled(self) -> tuple[tuple[EntityType | None, re.Pattern[str]], ...]:
        return tuple((only, re.compile(fnmatch.translate(text))) for only, text in map(_parted, self.patterns))


def _parted(pattern: str) -> tuple[EntityType | None, str]:
    """A pattern, and the entity type that it is limited to."""
    for kind in EntityType:
        if pattern.startswith(f"{kind.value}="):
            return kind, pattern.removeprefix(f"{kind.value}=")
    return None, pattern


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
