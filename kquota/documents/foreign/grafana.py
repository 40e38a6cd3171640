"""A dashboard for Grafana: who is throttled or near it, and whether the quotas are what they should be.

The JSON model of dashboards (schema version 39) is a file, `grafana.json`, with holes for labels and thresholds.
"""

from collections.abc import Sequence

from kquota.documents.encoding import Document
from kquota.documents.foreign.prometheus import Metric, Thresholds, filled


def grafana_dashboard(metrics: Sequence[Metric], thresholds: Thresholds) -> Document:
    """The dashboard; its panels need the recorded metrics of `prometheus_rules`."""
    labels = {label for metric in metrics for label in metric.labels}
    names = [label for label in ("user", "clientId", "client_id", "client", "ip") if label in labels]
    return filled(
        "grafana.json",
        whom=" ".join(f"{{{{{label}}}}}" for label in names),
        near=thresholds.near,
        proven=thresholds.proven,
        near_text=f"{thresholds.near:.2f}",
        proven_text=f"{thresholds.proven:.2f}",
        late=max(300.0, 4 * thresholds.interval_s),
    )
