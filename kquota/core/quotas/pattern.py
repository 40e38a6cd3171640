"""Shell patterns of names, such as `team-a-*`: which entities and clients a person means."""

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from kquota.core.quotas.entity import Entity, EntityType
from kquota.errors import InputError


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
        found = [(kind, name) for kind, name in names if isinstance(name, str)]
        return any(
            only in (None, kind) and pattern.match(name) is not None
            for only, pattern in self._compiled
            for kind, name in found
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
