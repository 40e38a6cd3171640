"""What a report is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kquota.core.findings.finding import Finding
from kquota.core.findings.prediction import CounterName
from kquota.core.findings.verdicts import QuotaVerdict
from kquota.core.findings.whatif import Comparison

if TYPE_CHECKING:
    from kquota.audit.batch import Tally
    from kquota.audit.ledger.timeline import Timeline
    from kquota.audit.settings import AuditSettings

MOST: Final = 8
"""Counters that get a chart."""


@dataclass(frozen=True, slots=True)
class Report:
    """All that the page shows."""

    findings: Sequence[Finding]
    """The most harmful first."""
    timelines: Mapping[CounterName, Timeline]
    quality: Tally
    reasons: Sequence[tuple[str, int]]
    """Why records could not be read, and how many."""
    settings: AuditSettings
    engine: str
    command: str
    """The command line that makes the same report again."""
    quarantine: str = ""
    """The file with the records that could not be read; empty when there are none."""
    comparison: Comparison | None = None
    """What these quotas change, where others were replayed beside them."""
    quotas: Sequence[QuotaVerdict] = ()
    """What became of each quota that is set."""
    doubts: Sequence[str] = ()
    """What makes verdicts doubtful."""
