"""The reference backend: a snapshot in memory, which is also what an offline quota file becomes."""

from collections.abc import Sequence

from kquota.backends import QuotaBackend
from kquota.core.quotas.alteration import Alteration, AlterResult, merge
from kquota.core.quotas.selector import EVERYTHING, QuotaFilter
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.errors import KquotaError


class MemoryBackend(QuotaBackend):
    """Holds a snapshot; see `QuotaBackend` for the contract."""

    def __init__(self, snapshot: QuotaSnapshot | None = None) -> None:
        self._snapshot = snapshot if snapshot is not None else QuotaSnapshot()

    def describe(self, filter: QuotaFilter = EVERYTHING) -> QuotaSnapshot:
        matching = {entity: values for entity, values in self._snapshot.items() if filter.matches(entity)}
        return QuotaSnapshot(matching, self._snapshot.problems)

    def alter(self, alterations: Sequence[Alteration], *, validate_only: bool = False) -> tuple[AlterResult, ...]:
        quotas = dict(self._snapshot)
        results = []
        for alteration in merge(alterations):
            before = quotas.get(alteration.entity, {})
            try:
                after = alteration.applied_to(before)
            except KquotaError as error:
                results.append(AlterResult(alteration.entity, before, before, error))
                continue
            quotas[alteration.entity] = after
            results.append(AlterResult(alteration.entity, before, after))
        if not validate_only:
            self._snapshot = QuotaSnapshot(quotas, self._snapshot.problems)
        return tuple(results)

    def close(self) -> None:
        """Nothing to release."""
