"""The report of an audit (schemas/audit.schema.json)."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kquota.core.findings.answers import Answered, Answers, AnswersOf, by_harm
from kquota.core.findings.finding import Finding
from kquota.core.findings.prediction import ClosedLoop, RecordedUnder, Source
from kquota.core.findings.verdicts import QuotaVerdict
from kquota.core.findings.whatif import Comparison
from kquota.documents.derive import derived, picked, plain
from kquota.documents.encoding import Document, Each
from kquota.documents.prediction import prediction_document
from kquota.documents.quotas import limit_document, who_document
from kquota.documents.verdicts import verdicts_document
from kquota.documents.whatif import comparison_document


def audit_document(
    findings: Sequence[Finding],
    quality: Mapping[str, Any],
    brokers: Mapping[str, Any],
    engine: str,
    comparison: Comparison | None = None,
    closed_loop: Sequence[ClosedLoop] = (),
    quotas: Sequence[QuotaVerdict] = (),
    recorded_under: Mapping[str, Any] | None = None,
    answers: AnswersOf = MappingProxyType({}),
    *,
    counted: bool = False,
) -> Document:
    """The findings, the account of the data, the enforcement assumed, and what ran it.

    Also what changes, where other quotas were audited beside these, and the closed loop (under the quotas, and under
    those others), where it was replayed; what became of each of the `quotas` that are set; and which quotas were in
    force while the usage was recorded, as far as that is known. `answers` are what the brokers themselves answered;
    `counted` says that they count all requests, and not only throttled ones. The document of a finding is made when it
    is written.
    """
    recorded = {"source": "unknown", "quotas": None, "throttled": None} if recorded_under is None else recorded_under
    source = Source(recorded["source"])
    loop = closed_loop[0] if closed_loop else None

    def finding(found: Finding) -> Document:
        return {**_finding(found, loop), "recorded_under": plain(_recorded_under(found, source))}

    return {
        "kind": "kquota.audit",
        "version": 1,
        "engine": engine,
        "enforcement": dict(brokers),
        "data": dict(quality),
        "recorded_under": dict(recorded),
        "quotas": verdicts_document(quotas),
        "findings": Each(findings, finding),
        "logged": [_answered(name, told, counted=counted) for name, told in by_harm(answers)],
        **({} if comparison is None else {"comparison": comparison_document(comparison)}),
        **({} if not closed_loop else {"closed_loop": _closed_loop(closed_loop)}),
    }


def _answered(name: Answered, told: Answers, *, counted: bool) -> Document:
    return {
        **picked(name, "broker user client-id=client_id requests"),
        "events": told.events if counted else None,
        "throttled_events": told.throttled_events,
        "throttled_share": told.throttled_events / max(told.events, 1) if counted else None,
        **picked(told, "throttle_time_max_ms first_throttled_ms last_throttled_ms"),
    }


def _closed_loop(loops: Sequence[ClosedLoop]) -> Document:
    """The throttle time of all counters, and by how much clients come later."""
    after, *before = loops
    return {
        "throttle_time_ms": after.throttle_time_ms,
        "throttle_time_before_ms": before[0].throttle_time_ms if before else None,
        "clients": [
            {"user": user, "client-id": client_id, "delay_ms": delay_ms}
            for (user, client_id), delay_ms in after.delays.items()
        ],
    }


def _finding(found: Finding, closed_loop: ClosedLoop | None) -> Document:
    key = found.key
    closed = None if closed_loop is None else closed_loop.counters.get(found.name)
    made = {
        "limit": limit_document(key, found.limit),
        "predicted": None if found.prediction is None else prediction_document(found.prediction),
        "sizes_from": _sizes_from(found),
        "closed_loop": plain(closed),
        "clients": [{**who_document(key, each.user, each.client_id), **derived(each)} for each in found.clients],
    }
    return derived(found, made)


def _recorded_under(found: Finding, source: Source) -> RecordedUnder:
    """What held the clients of a counter back while they were recorded, also where nothing is predicted."""
    if found.prediction is not None:
        return found.prediction.recorded_under
    return RecordedUnder(
        source, None, found.held_back or (found.logged is not None and found.logged.throttled_events > 0)
    )


def _sizes_from(found: Finding) -> Document | None:
    """Where the sizes of throttled fetches come from; None where there were none."""
    if not found.estimated_events:
        return None
    return {
        "batches": found.rebuilt_events,
        "retry": found.estimated_events - found.rebuilt_events,
        "reproduced_share": found.rebuilt_share,
    }
