"""Clusters in memory that do not write as usual."""

from collections.abc import Mapping, Sequence

from kquota import Alteration, AlterResult, Entity, KquotaError, QuotaSnapshot
from kquota.backends.memory import MemoryBackend

Results = tuple[AlterResult, ...]


class Writing(MemoryBackend):
    """Tests say how it writes; its rehearsals are as usual."""

    def alter(self, alterations: Sequence[Alteration], *, validate_only: bool = False) -> Results:
        return super().alter(alterations, validate_only=True) if validate_only else self.write(alterations)

    def write(self, alterations: Sequence[Alteration]) -> Results:
        """As usual, unless it is replaced."""
        return super().alter(alterations)


class Refusing(Writing):
    """Has an error for some entities, when they are written."""

    def __init__(self, errors: Mapping[Entity, KquotaError], snapshot: QuotaSnapshot | None = None) -> None:
        super().__init__(snapshot)
        self.errors = dict(errors)

    def write(self, alterations: Sequence[Alteration]) -> Results:
        fine = super().write([each for each in alterations if each.entity not in self.errors])
        done = {each.entity: each for each in fine}
        return tuple(
            done.get(each.entity) or AlterResult(each.entity, {}, {}, self.errors[each.entity]) for each in alterations
        )
