"""What the functions of the library take for quotas: a cluster, a file, a snapshot, or a mapping."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from kquota.backends import QuotaBackend
from kquota.core.change.history import QuotaHistory
from kquota.core.quotas.alteration import WrittenQuotas, quotas_of
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.history import read_history
from kquota.documents.quotas import read_quotas

Quotas: TypeAlias = QuotaBackend | QuotaSnapshot | WrittenQuotas | Path | str
"""A cluster (`connect`), a quotas file by its path, a snapshot, or `{"user=alice": {"producer_byte_rate": "10MB"}}`."""


def snapshot_of(quotas: Quotas) -> QuotaSnapshot:
    """The quotas that are meant. Raises InputError for a wrong file or mapping, and what `describe` raises."""
    if isinstance(quotas, QuotaSnapshot):
        return quotas
    if isinstance(quotas, str | Path):
        return read_quotas(Path(quotas))
    return QuotaSnapshot(quotas_of(quotas)) if isinstance(quotas, Mapping) else quotas.describe()


def history_of(quotas: Quotas | QuotaHistory) -> QuotaHistory:
    """As `snapshot_of`, but a file may be a history. Others hold at all times."""
    if isinstance(quotas, QuotaHistory):
        return quotas
    if isinstance(quotas, str | Path):
        return read_history(Path(quotas))
    return QuotaHistory.of(snapshot_of(quotas))
