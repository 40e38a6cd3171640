"""What other quotas would change: a part of the documents of audit and plan (schemas/audit.schema.json)."""

from kquota.core.findings.whatif import ClientChange, Comparison, CounterChange, Outcome, Standing
from kquota.core.quotas.quota import QuotaKey
from kquota.documents.derive import picked
from kquota.documents.encoding import Document
from kquota.documents.prediction import prediction_document
from kquota.documents.quotas import limit_document
from kquota.documents.verdicts import verdicts_document


def comparison_document(comparison: Comparison) -> Document:
    """How many clients each outcome is true of, and the clients and counters for which something changes or may."""
    client = "outcome key unit=key.unit user client-id=client_id ip requests"
    counter = "outcome broker key unit=key.unit sensor requests"
    return {
        "summary": {outcome.name.lower(): comparison.count(outcome) for outcome in Outcome},
        "clients": [_change(change, client) for change in comparison.clients],
        "counters": [_change(change, counter) for change in comparison.counters],
        "quotas": verdicts_document(comparison.quotas),
        "unjudged": verdicts_document(comparison.unjudged),
    }


def _change(change: ClientChange | CounterChange, names: str) -> Document:
    sides = {"before": _standing(change.key, change.before), "after": _standing(change.key, change.after)}
    return picked(change, names) | sides


def _standing(key: QuotaKey, standing: Standing) -> Document:
    return {
        **picked(standing, "verdict throttled_events throttle_time_ms brokers sensor entity"),
        "limit": None if standing.limit is None else limit_document(key, standing.limit),
        "wanted_at_least": standing.wanted,
        "predicted": None if standing.predicted is None else prediction_document(standing.predicted),
    }
