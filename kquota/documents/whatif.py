"""What other quotas would change: a part of the documents of audit and plan (schemas/audit.schema.json)."""

from __future__ import annotations

from kquota.core.findings.whatif import Comparison, Outcome, Standing
from kquota.core.quotas.quota import QuotaKey
from kquota.documents.encoding import Document
from kquota.documents.prediction import prediction_document
from kquota.documents.quotas import entity_document, limit_document
from kquota.documents.verdicts import verdicts_document


def comparison_document(comparison: Comparison) -> Document:
    """How many clients each outcome is true of, and the clients and counters for which something changes or may."""
    return {
        "summary": {outcome.name.lower(): comparison.count(outcome) for outcome in Outcome},
        "clients": [
            {
                "outcome": change.outcome.value,
                "key": change.key.value,
                "unit": change.key.unit,
                "user": change.user,
                "client-id": change.client_id,
                "ip": change.ip,
                "requests": change.requests,
                "before": _standing(change.key, change.before),
                "after": _standing(change.key, change.after),
            }
            for change in comparison.clients
        ],
        "counters": [
            {
                "outcome": change.outcome.value,
                "broker": change.broker,
                "key": change.key.value,
                "unit": change.key.unit,
                "sensor": change.sensor,
                "requests": change.requests,
                "before": _standing(change.key, change.before),
                "after": _standing(change.key, change.after),
            }
            for change in comparison.counters
        ],
        "quotas": verdicts_document(comparison.quotas),
        "unjudged": verdicts_document(comparison.unjudged),
    }


def _standing(key: QuotaKey, standing: Standing) -> Document:
    return {
        "verdict": standing.verdict,
        "throttled_events": standing.throttled_events,
        "throttle_time_ms": standing.throttle_time_ms,
        "brokers": list(standing.brokers),
        "sensor": standing.sensor,
        "entity": None if standing.entity is None else entity_document(standing.entity),
        "limit": None if standing.limit is None else limit_document(key, standing.limit),
        "wanted_at_least": standing.wanted,
        "predicted": None if standing.predicted is None else prediction_document(standing.predicted),
    }
