"""A dashboard for Grafana: who is throttled or near it, and whether the quotas are what they should be.

The JSON model of Grafana's dashboards (schema version 39). The data source is a variable of the dashboard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kquota.documents.encoding import Document
from kquota.documents.foreign.prometheus import SHARE, THROTTLE, Metric, Thresholds

_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH: Final = 24


@dataclass(frozen=True)
class Panel:
    """A panel: its question to Prometheus, the legend of each series, and the size on a grid of 24 columns."""

    title: str
    about: str
    expr: str
    legend: str
    kind: Literal["timeseries", "table", "stat"] = "timeseries"
    unit: str = "short"
    width: int = 12
    height: int = 8
    marks: tuple[tuple[str, float | None], ...] = ()
    """(colour, from which value on); the first has no value."""


def panels(metrics: Sequence[Metric], thresholds: Thresholds) -> Iterator[Panel]:
    """All panels, in order."""
    labels = {label for metric in metrics for label in metric.labels}
    names = [label for label in ("user", "clientId", "client_id", "client", "ip") if label in labels]
    whom = " ".join(f"{{{{{label}}}}}" for label in names)
    legend = f"{whom} {{{{key}}}} {{{{instance}}}}"
    marks = (("green", None), ("orange", thresholds.near), ("red", thresholds.proven))
    yield Panel(
        "Throttled now",
        "The mean throttle time of requests in the last half minute or minute, by broker.",
        f"{THROTTLE} > 0",
        legend,
        "table",
        "ms",
    )
    yield Panel(
        "Counters by state",
        "Near: the moments of requests decide. Within: not throttled.",
        "sum by (state) (kquota_counters)",
        "{{state}}",
        width=6,
    )
    yield Panel(
        "Age of quotas and metrics",
        "How long ago kquota read each part.",
        "kquota_age_seconds",
        "{{part}}",
        "stat",
        "s",
        6,
        marks=(("green", None), ("red", max(300.0, 4 * thresholds.interval_s))),
    )
    yield Panel(
        "Use divided by limit, the 20 highest",
        f"From {thresholds.near:.2f} on a request may be throttled, above {thresholds.proven:.2f} one was.",
        f"topk(20, {SHARE})",
        legend,
        unit="percentunit",
        width=_WIDTH,
        height=10,
        marks=marks,
    )
    yield Panel(
        "Throttle time",
        "By counter and broker.",
        f"{THROTTLE} > 0",
        legend,
        unit="ms",
    )
    yield Panel(
        "Time until throttled",
        "If clients go on as now.",
        "kquota_until_throttled_seconds",
        f"{whom} {{{{key}}}} {{{{broker}}}}",
        unit="s",
    )
    yield Panel(
        "Drift from the file", "Entities.", "sum by (state) (kquota_drift_entities)", "{{state}}", "stat", width=6
    )
    yield Panel(
        "Temporary quotas end in",
        "Set by 'kquota apply --for'; below 0 'kquota reconcile' did not run.",
        "kquota_lease_expires_timestamp_seconds - time()",
        "{{entry}}",
        "stat",
        "s",
        6,
    )
    yield Panel("Findings of lint", "By rule.", "kquota_lint_findings", "{{severity}} {{rule}}", "stat", width=6)
    yield Panel(
        "Not shown",
        "Counters beyond --max-series, and pages of metrics without an answer.",
        "sum(kquota_left_out_counters) or vector(0)",
        "counters left out",
        "stat",
        width=6,
    )


def grafana_dashboard(metrics: Sequence[Metric], thresholds: Thresholds) -> Document:
    """The dashboard; its panels need the recorded metrics of `prometheus_rules`."""
    placed: list[Document] = []
    x = y = row = 0
    for number, panel in enumerate(panels(metrics, thresholds), 1):
        if x + panel.width > _WIDTH:
            x, y, row = 0, y + row, 0
        placed.append(_panel(number, panel, x, y))
        x, row = x + panel.width, max(row, panel.height)
    return {
        "title": "Kafka client quotas",
        "uid": "kquota",
        "description": "Use beside the limits that govern it, by kquota.",
        "tags": ["kafka", "kquota"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "templating": {
            "list": [{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}]
        },
        "annotations": {"list": []},
        "panels": placed,
    }


def _panel(number: int, panel: Panel, x: int, y: int) -> Document:
    table = panel.kind == "table"
    steps = [{"color": colour, "value": value} for colour, value in panel.marks] or [{"color": "green", "value": None}]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}},
            "overrides": [],
        },
        "options": {},
        "targets": [
            {
                "refId": "A",
                "datasource": _SOURCE,
                "expr": panel.expr,
                "legendFormat": panel.legend,
                "instant": table or panel.kind == "stat",
                "range": panel.kind == "timeseries",
                "format": "table" if table else "time_series",
            }
        ],
    }
