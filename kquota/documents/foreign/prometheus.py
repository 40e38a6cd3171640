"""Rules for Prometheus and for the JMX exporter, in the names of the brokers' own metrics.

The alerts' thresholds follow from how brokers enforce quotas (`kquota.core.findings.use`), not from habit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from kquota.core.quotas.quota import QuotaKey, format_number
from kquota.documents.encoding import Document

SHARE: Final = "kquota:share"
"""The recorded use divided by limit, by broker."""
THROTTLE: Final = "kquota:throttle_time_ms"
"""The recorded throttle time of counters with a limit, by broker."""
_USERS: Final = ("user", "redpanda_quota_user")
_CLIENTS: Final = ("clientId", "client_id", "clientid", "client", "redpanda_quota_client_id")
_OF_LIMIT: Final = ("key", "level", "entity")


class Metric(NamedTuple):
    """A metric of the brokers: its name, the quota key and what it says, and the labels that identify a counter."""

    name: str
    key: QuotaKey
    what: Literal["rate", "counter", "throttle", "tokens"]
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
"""What the rules of `jmx_exporter_rules` make."""


@dataclass(frozen=True)
class Thresholds:
    """Shares of a limit, and how long something may last."""

    near: float
    """From here on the moments of requests decide (`near_share`)."""
    proven: float
    """Above it a request was throttled (`proven_share`)."""
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
    left = metric.name if metric.what != "counter" else _rate_of_counter(metric, by)
    on = ", ".join((*by, *metric.labels))
    return f"{left} {operator} on ({on}) group_left ({', '.join(_OF_LIMIT)}) {other}"


def _rate_of_counter(metric: Metric, by: Sequence[str]) -> str:
    """Of a counter that grows, the rate of all shards."""
    return f"sum by ({', '.join((*by, *metric.labels, 'instance'))}) (rate({metric.name}[1m]))"


def _recorded(metrics: Sequence[Metric], by: Sequence[str]) -> Iterator[Document]:
    for metric in metrics:
        if metric.what in ("rate", "counter"):
            yield _record(SHARE, metric, _joined(metric, "/", limit(metric, by), by))
        elif metric.what == "throttle":
            yield _record(THROTTLE, metric, _joined(metric, "*", f"({limit(metric, by)} > bool 0)", by))


def _record(name: str, metric: Metric, expr: str) -> Document:
    return {"record": name, "expr": expr, "labels": {"key": metric.key.value}}


def _alerts(metrics: Sequence[Metric], thresholds: Thresholds, by: Sequence[str]) -> Iterator[Document]:
    whom = _whom(metrics)
    runbook = _runbook(metrics)
    mutations = f'key!="{QuotaKey.CONTROLLER_MUTATION_RATE.value}"'
    near, proven = (format_number(round(share, 4)) for share in (thresholds.near, thresholds.proven))
    late = max(300, round(4 * thresholds.interval_s))
    yield _alert(
        "KafkaClientThrottled",
        f"{THROTTLE} > 0",
        "1m",
        "warning",
        f"{whom} is throttled on {{{{ $labels.instance }}}}, {{{{ $value | humanize }}}} ms a request",
        f"The broker reports a throttle time of the last half minute or minute. {runbook}",
    )
    yield _alert(
        "KafkaQuotaExceeded",
        f"{SHARE}{{{mutations}}} > {proven}",
        None,
        "warning",
        f"{whom} is at {{{{ $value | humanizePercentage }}}} of its limit on {{{{ $labels.instance }}}}",
        f"Between requests a rate rises to at most {proven} of the limit: a request was throttled. {runbook}",
    )
    yield _alert(
        "KafkaQuotaNear",
        f"{SHARE}{{{mutations}}} > {near} and {SHARE}{{{mutations}}} <= {proven}",
        "5m",
        "info",
        f"{whom} is at {{{{ $value | humanizePercentage }}}} of its limit on {{{{ $labels.instance }}}}",
        f"From {near} of the limit on, the moments at which requests arrive decide whether one is throttled. {runbook}",
    )
    for metric in metrics:
        if metric.what == "tokens":
            yield _alert(
                "KafkaMutationsThrottled",
                _joined(metric._replace(name=f"({metric.name} < 0)"), "*", f"({limit(metric, by)} > bool 0)", by),
                None,
                "warning",
                f"{whom} has no mutations left on {{{{ $labels.instance }}}}",
                f"The bucket of topic and partition changes is empty: the controller throttles. {runbook}",
            )
    sum_by = f"sum by ({', '.join(by)}) " if by else "sum "
    yield _alert(
        "KafkaQuotaDrift",
        f"{sum_by}(kquota_drift_entities) > 0",
        "15m",
        "warning",
        "{{ $value }} entities have other quotas than the file",
        "'kquota plan FILE' shows the differences; 'kquota apply FILE' brings the cluster to the file.",
    )
    yield _alert(
        "KafkaQuotaLeaseOverdue",
        "kquota_lease_expires_timestamp_seconds < time() - 600",
        None,
        "warning",
        "the quotas of {{ $labels.entry }} should have ended",
        "'kquota reconcile' takes back what 'kquota apply --for' set: run it from cron, and see why it did not run.",
    )
    yield _alert(
        "KafkaQuotaLint",
        f'{sum_by}(kquota_lint_findings{{severity="error"}}) > 0',
        "15m",
        "warning",
        "{{ $value }} quotas are wrong",
        "'kquota lint' on the cluster names each of them, with the proof and what to do.",
    )
    yield _alert(
        "KquotaStale",
        f"time() - kquota_last_success_timestamp_seconds > {late}",
        None,
        "warning",
        "kquota has not read {{ $labels.part }} for {{ $value | humanizeDuration }}",
        "The exporter serves the metrics of before. Its log on stderr says why it cannot read.",
    )
    yield _alert(
        "KquotaAbsent",
        "absent(kquota_build_info)",
        "5m",
        "warning",
        "no kquota exporter is scraped",
        "No limits and no alerts of quotas without it: start 'kquota exporter', and look at Prometheus's targets.",
    )


def _alert(name: str, expr: str, lasting: str | None, severity: str, summary: str, description: str) -> Document:
    return {
        "alert": name,
        "expr": expr,
        **({} if lasting is None else {"for": lasting}),
        "labels": {"severity": severity},
        "annotations": {"summary": summary, "description": description},
    }


def _whom(metrics: Sequence[Metric]) -> str:
    """The counter of an alert in words, by the labels that there are."""
    used = _used(metrics)
    parts = [
        f"{{{{ if $labels.{label} }}}}{word} {{{{ $labels.{label} }}}} {{{{ end }}}}"
        for word, labels in (("user", _USERS), ("client-id", _CLIENTS), ("ip", ("ip",)))
        for label in labels
        if label in used
    ]
    return f"{''.join(parts)}({{{{ $labels.key }}}})"


def _runbook(metrics: Sequence[Metric]) -> str:
    used = _used(metrics)
    flags = [
        f'{{{{ if $labels.{label} }}}} --{flag} "{{{{ $labels.{label} }}}}"{{{{ end }}}}'
        for flag, labels in (("user", _USERS), ("client", _CLIENTS), ("ip", ("ip",)))
        for label in labels
        if label in used
    ]
    return (
        "The quota of {{ $labels.entity }} (level {{ $labels.level }}) governs this counter:"
        f" 'kquota resolve{''.join(flags)}' shows what it shadows."
        " 'kquota top --explain SUBJECT' shows who is in the counter, and how to lift the limit for two hours."
        " 'kquota audit' of the request log shows what would be enough."
    )


def _used(metrics: Iterable[Metric]) -> set[str]:
    return {label for metric in metrics for label in metric.labels}


JMX_EXPORTER_RULES: Final = """\
# Rules of the JMX exporter for Kafka's quota metrics. The rule for both tags comes first: in another order the rule of
# one tag swallows the other, and a counter of users alone has no series at all.
lowercaseOutputName: true
rules:
- pattern: 'kafka.server<type=(Produce|Fetch|Request|ControllerMutation), user=(.+), client-id=(.+)><>([a-z-]+)'
  name: kafka_server_quota_$4
  type: GAUGE
  labels: {resource: "$1", user: "$2", clientId: "$3"}
- pattern: 'kafka.server<type=(Produce|Fetch|Request|ControllerMutation), user=(.+)><>([a-z-]+)'
  name: kafka_server_quota_$3
  type: GAUGE
  labels: {resource: "$1", user: "$2"}
- pattern: 'kafka.server<type=(Produce|Fetch|Request|ControllerMutation), client-id=(.+)><>([a-z-]+)'
  name: kafka_server_quota_$3
  type: GAUGE
  labels: {resource: "$1", clientId: "$2"}
- pattern: 'kafka.server<type=socket-server-metrics, ip=(.+)><>connection-accept-rate'
  name: kafka_server_socket_server_metrics_connection_accept_rate
  type: GAUGE
  labels: {ip: "$1"}
"""
"""The rules that keep all labels: `USUAL` is what they make."""
