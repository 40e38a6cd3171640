"""Rules for Prometheus and for the JMX exporter, and a dashboard for Grafana, in the names of the brokers' own metrics.

The alerts' thresholds follow from how brokers enforce quotas (`kquota.core.findings.use`), not from habit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

from kquota.core.quotas.quota import QuotaKey, format_number
from kquota.documents.encoding import Document, parse

SHARE: Final = "kquota:share"
"""The recorded use divided by limit, by broker."""
THROTTLE: Final = "kquota:throttle_time_ms"
"""The recorded throttle time of counters with a limit, by broker."""
_USERS: Final = ("user", "redpanda_quota_user")
CLIENTS: Final = ("clientId", "client_id", "clientid", "client", "redpanda_quota_client_id")
_OF_LIMIT: Final = ("key", "level", "entity")


class Metric(NamedTuple):
    """A metric of the brokers: its name, the quota key and what it says, and the labels that identify a counter."""

    name: str
    key: QuotaKey
    what: str
    """`rate`, `counter`, `throttle` or `tokens`."""
    labels: tuple[str, ...]


def _usual() -> Iterator[Metric]:
    labels = ("clientId", "resource", "user")
    rates = {
        QuotaKey.PRODUCER_BYTE_RATE: "byte_rate",
        QuotaKey.CONSUMER_BYTE_RATE: "byte_rate",
        QuotaKey.REQUEST_PERCENTAGE: "request_time",
        QuotaKey.CONTROLLER_MUTATION_RATE: "mutation_rate",
    }
    for key, attribute in rates.items():
        yield Metric(f"kafka_server_quota_{attribute}", key, "rate", labels)
        yield Metric("kafka_server_quota_throttle_time", key, "throttle", labels)
    yield Metric("kafka_server_quota_tokens", QuotaKey.CONTROLLER_MUTATION_RATE, "tokens", labels)
    ip = "kafka_server_socket_server_metrics_connection_accept_rate"
    yield Metric(ip, QuotaKey.CONNECTION_CREATION_RATE, "rate", ("ip",))


USUAL: Final = tuple(_usual())
"""What the rules of `jmx-exporter.yaml` make."""


@dataclass(frozen=True)
class Thresholds:
    """Shares of a limit, and how long something may last."""

    near: float
    """From here on the moments of requests decide (`Enforcers.near`)."""
    proven: float
    """Above it a request was throttled (`Enforcers.proven`)."""
    interval_s: float = 15.0
    """How often the exporter reads."""


def prometheus_rules(metrics: Sequence[Metric], thresholds: Thresholds, by: Sequence[str] = ()) -> Document:
    """A rules file: recorded shares and throttle times, and alerts. `by` are labels by which clusters differ."""
    by = tuple(by)
    return {
        "groups": [
            {"name": "kquota-recorded", "rules": [*_recorded(metrics, by)]},
            {"name": "kquota-alerts", "rules": [*_alerts(metrics, thresholds, by)]},
        ]
    }


def limit(metric: Metric, by: Sequence[str]) -> str:
    """The limits of the counters behind a metric. Of several exporters that see one cluster, one answer is left."""
    kept = ", ".join((*by, *metric.labels, *_OF_LIMIT))
    return f'max by ({kept}) (kquota_limit{{key="{metric.key.value}"}})'


def _joined(metric: Metric, operator: str, other: str, by: Sequence[str]) -> str:
    left = metric.name
    if metric.what == "counter":  # it grows: the rate of all shards
        left = f"sum by ({', '.join((*by, *metric.labels, 'instance'))}) (rate({metric.name}[1m]))"
    on = ", ".join((*by, *metric.labels))
    return f"{left} {operator} on ({on}) group_left ({', '.join(_OF_LIMIT)}) {other}"


def _recorded(metrics: Sequence[Metric], by: Sequence[str]) -> Iterator[Document]:
    for metric in metrics:
        if metric.what in ("rate", "counter"):
            yield _record(SHARE, metric, _joined(metric, "/", limit(metric, by), by))
        elif metric.what == "throttle":
            yield _record(THROTTLE, metric, _joined(metric, "*", f"({limit(metric, by)} > bool 0)", by))


def _record(name: str, metric: Metric, expr: str) -> Document:
    return {"record": name, "expr": expr, "labels": {"key": metric.key.value}}


def _alerts(metrics: Sequence[Metric], thresholds: Thresholds, by: Sequence[str]) -> Iterator[Document]:
    known = {label for metric in metrics for label in metric.labels}
    there = [
        (f"{{{{ if $labels.{label} }}}}", flag, word, f"{{{{ $labels.{label} }}}}")
        for flag, word, labels in (("user", "user", _USERS), ("client", "client-id", CLIENTS), ("ip", "ip", ("ip",)))
        for label in labels
        if label in known
    ]
    alerts = filled(
        "alerts.yaml",
        runbook=shipped("runbook.txt").strip(),
        flags="".join(f'{begin} --{flag} "{value}"{{{{ end }}}}' for begin, flag, _, value in there),
        whom="".join(f"{begin}{word} {value} {{{{ end }}}}" for begin, _, word, value in there),
        near=format_number(round(thresholds.near, 4)),
        proven=format_number(round(thresholds.proven, 4)),
        late=max(300, round(4 * thresholds.interval_s)),
        sum=f"sum by ({', '.join(by)})" if by else "sum",
    )["alerts"]
    for alert in alerts:
        if alert["expr"] != "<tokens>":
            yield alert
            continue
        for metric in metrics:
            if metric.what == "tokens":
                empty = metric._replace(name=f"({metric.name} < 0)")
                yield {**alert, "expr": _joined(empty, "*", f"({limit(metric, by)} > bool 0)", by)}


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


def filled(file: str, **holes: object) -> Document:
    """The document in a file beside this module, with values in its holes, as `<near>`; they may have holes, too."""

    def fill(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: fill(value) for key, value in part.items()}
        if isinstance(part, list):
            return [fill(value) for value in part]
        for name, value in holes.items():
            if isinstance(part, str):
                part = value if part == f"<{name}>" else part.replace(f"<{name}>", str(value))
        return part

    document: Document = fill(parse(Path(file), shipped(file)))
    return document


def shipped(file: str) -> str:
    """The text of a file beside this module."""
    return (files("kquota.documents.foreign") / file).read_text(encoding="utf-8")
