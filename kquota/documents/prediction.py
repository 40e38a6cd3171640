"""A prediction as part of a JSON document."""

from kquota.core.findings.finding import undelivered
from kquota.core.findings.prediction import Prediction
from kquota.documents.derive import picked
from kquota.documents.encoding import Document

_BEFORE = (
    "client_kind basis verdict reason throttle_time_ms throttle_time_max_ms muted_share delivered_per_s wanted_per_s"
)


def prediction_document(prediction: Prediction) -> Document:
    """What the clients of a counter will meet; numbers are null where nothing is known of them."""
    return {
        **picked(prediction, _BEFORE),
        "undelivered_share": undelivered(prediction),
        **picked(prediction, "done_ms left_units times_out"),
    }
