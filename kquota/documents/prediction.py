"""A prediction as part of a JSON document."""

from __future__ import annotations

from kquota.core.findings.finding import undelivered
from kquota.core.findings.prediction import Interval, Prediction, RecordedUnder
from kquota.documents.encoding import Document


def prediction_document(prediction: Prediction) -> Document:
    """What the clients of a counter will meet; numbers are null where nothing is known of them."""
    return {
        "client_kind": prediction.client_kind,
        "basis": prediction.basis,
        "verdict": prediction.verdict,
        "reason": prediction.reason,
        "throttle_time_ms": interval_document(prediction.throttle_time_ms),
        "throttle_time_max_ms": interval_document(prediction.throttle_time_max_ms),
        "muted_share": interval_document(prediction.muted_share),
        "delivered_per_s": interval_document(prediction.delivered_per_s),
        "wanted_per_s": interval_document(prediction.wanted_per_s),
        "undelivered_share": undelivered(prediction),
        "done_ms": interval_document(prediction.done_ms),
        "left_units": interval_document(prediction.left_units),
        "times_out": prediction.times_out,
    }


def interval_document(interval: Interval) -> Document:
    """The least, the most probable and the greatest value."""
    return {"low": interval.low, "estimate": interval.estimate, "high": interval.high}


def recorded_under_document(recorded: RecordedUnder) -> Document:
    """What was in force while the clients of a counter were recorded."""
    return {"source": recorded.source.value, "limit": recorded.limit, "held_back": recorded.held_back}
