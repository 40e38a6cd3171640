"""What became of each quota that is set, as reports have it (`$defs/quota_verdicts` of their schemas)."""

from collections.abc import Iterable

from kquota.core.findings.verdicts import QuotaVerdict, Verdict
from kquota.documents.derive import picked
from kquota.documents.encoding import Document


def verdicts_document(quotas: Iterable[QuotaVerdict]) -> list[Document]:
    """One entry for each value that is set, with the counters that it governed."""
    return [
        {
            **picked(quota, "entity key unit=key.unit value verdict reason"),
            "counters": {
                verdict.name.lower(): quota.counters.get(verdict, 0)
                for verdict in Verdict
                if verdict is not Verdict.NOBODY_SEEN
            },
        }
        for quota in quotas
    ]
