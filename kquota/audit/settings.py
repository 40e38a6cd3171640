"""What an audit is asked to do, as one value that travels to the executors."""

from __future__ import annotations

from dataclasses import dataclass, field

from kquota.audit.sources import ReadSettings
from kquota.core.enforcement.generation import Generation, QuotaWindows
from kquota.core.history import QuotaHistory


@dataclass(frozen=True)
class AuditSettings:
    """The quotas to test, and how the brokers enforce them."""

    quotas: QuotaHistory
    generation: Generation = Generation.N_PLUS_1_BY_LAST
    windows: QuotaWindows = field(default_factory=QuotaWindows)
    controller_windows: QuotaWindows = field(default_factory=QuotaWindows)
    """Those of the controller mutation quota."""
    against: QuotaHistory | None = None
    """Other quotas to test in the same pass, to tell what the first ones change."""
    top_clients: int | None = 5
    """How many clients of a counter a finding names, the busiest first; None: all of them."""
    per_client: bool = False
    """Whether to count the throttled events of each client of a shared counter."""
    timelines: int = 0
    """Of how many of the most throttled counters to tell what happened when."""
    in_force: bool = False
    """Whether the quotas are those that were in force: what a broker says it throttled is then throttled."""
    read: ReadSettings = field(default_factory=ReadSettings)

    @property
    def variants(self) -> tuple[QuotaHistory, ...]:
        """The quotas under test: `quotas`, and `against` where it is given."""
        return (self.quotas,) if self.against is None else (self.quotas, self.against)
