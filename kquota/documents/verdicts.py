"""What became of each quota that is set, as reports have it (`$defs/quota_verdicts` of their schemas)."""

from __future__ import annotations

from collections.abc import Iterable

from kquota.core.findings.verdicts import QuotaVerdict, Verdict
from kquota.documents.encoding import Document
from kquota.documents.quotas import entity_document, value_document


def verdicts_document(quotas: Iterable[QuotaVerdict]) -> list[Document]:
    """One entry for each value that is set, with the counters that it governed."""
    return [
        {
            "entity": entity_document(quota.entity),
            "key": quota.key.value,
            "unit": quota.key.unit,
            "value": value_document(quota.value),
            "verdict": quota.verdict.value,
            "reason": quota.reason,
            "counters": {
                verdict.name.lower(): quota.counters.get(verdict, 0)
                for verdict in Verdict
                if verdict is not Verdict.NOBODY_SEEN
            },
        }
        for quota in quotas
    ]
