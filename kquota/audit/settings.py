"""What an audit is asked to do, as one value that travels to the executors."""

from __future__ import annotations

from dataclasses import dataclass, field

from kquota.audit.sources import ReadSettings
from kquota.core.enforcement.generation import Generation, QuotaWindows
from kquota.core.snapshot import QuotaSnapshot


@dataclass(frozen=True)
class AuditSettings:
    """The quotas to test against, and how the brokers enforce them."""

    quotas: QuotaSnapshot
    generation: Generation = Generation.N_PLUS_1_BY_LAST
    windows: QuotaWindows = field(default_factory=QuotaWindows)
    top_clients: int = 5
    """How many clients of a counter a finding names, the busiest first."""
    read: ReadSettings = field(default_factory=ReadSettings)
