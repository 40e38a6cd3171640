"""`kquota generate`."""

from collections.abc import Sequence
from typing import Any

import click

from kquota.brokers import BrokerFacts
from kquota.cli import live as watched
from kquota.cli import params
from kquota.cli.grammar import Group
from kquota.cli.options import declared, lasting, values
from kquota.cli.streams import note, warn
from kquota.core.quotas.quota import QuotaKey
from kquota.documents.encoding import to_json, to_yaml
from kquota.documents.foreign.prometheus import USUAL, Metric, Thresholds, grafana_dashboard, prometheus_rules, shipped
from kquota.live.sources import is_broken, metrics_of

_INTERVAL: Any = lasting("The --interval of 'kquota exporter'.", default="15s")
_TIMEOUT_S = 10.0


@click.group("generate", cls=Group)
def command() -> None:
    """Write rules, alerts and a dashboard for 'kquota exporter'.

    The rules use the names and labels of the brokers' own metrics, found by looking: give the page of one broker's
    exporter, or the Prometheus. Without either, they are what the rules of 'kquota generate jmx-exporter' make.

    \b
    Examples:
      kquota generate prometheus --metrics http://broker-1:7071/metrics > kquota-rules.yaml
      kquota generate grafana --prometheus http://prometheus:9090 > dashboard.json
      kquota generate jmx-exporter > jmx-exporter.yaml
    """


@command.command("prometheus")
@declared
def prometheus(
    *,
    live: watched.Asked = watched.ASKED,
    by: tuple[str, ...] = values("LABEL", "A label by which clusters differ, such as cluster; repeat it."),
    interval: int = _INTERVAL,
    facts: BrokerFacts = params.FACTS,
) -> None:
    """Write a rules file: use divided by limit, and alerts with runbooks.

    The thresholds follow from how brokers enforce quotas: from which share of the limit on a request may be throttled,
    and above which share one was. --server-properties and --kafka-version change them.

    \b
    Examples:
      kquota generate prometheus > kquota-rules.yaml
      kquota generate prometheus --metrics http://broker-1:7071/metrics
      kquota generate prometheus --prometheus http://prometheus:9090 --by cluster --kafka-version 3.7
    """
    for name in by:
        watched.label(f"{name}=")
    metrics, thresholds = _metrics(live), _thresholds(facts, interval)
    if absent := [key.value for key in QuotaKey if all(metric.key is not key for metric in metrics)]:
        why = "brokers forget a counter that clients have not used for an hour"
        hint = "generate the rules again when it is there, or without --metrics for the usual names"
        warn(f"no rules for {', '.join(absent)}: no such counter was found ({why}: {hint})")
    click.echo(to_yaml(prometheus_rules(metrics, thresholds, by)), nl=False)


@command.command("grafana")
@declared
def grafana(
    *, live: watched.Asked = watched.ASKED, interval: int = _INTERVAL, facts: BrokerFacts = params.FACTS
) -> None:
    """Write a dashboard. Its panels need the rules of 'kquota generate prometheus'.

    \b
    Examples:
      kquota generate grafana > dashboard.json
      kquota generate grafana --metrics http://broker-1:7071/metrics > dashboard.json
    """
    click.echo(to_json(grafana_dashboard(_metrics(live), _thresholds(facts, interval))), nl=False)


@command.command("jmx-exporter")
def jmx_exporter() -> None:
    """Write rules of the JMX exporter that keep all labels of the quota metrics.

    The exporter's own example swallows labels: pairs lose the user, and counters of users alone are missing. Strimzi's
    metrics reporter and Redpanda need no such rules.

    \b
    Examples:
      kquota generate jmx-exporter > jmx-exporter.yaml
    """
    click.echo(shipped("jmx-exporter.yaml"), nl=False)


def _thresholds(facts: BrokerFacts, interval_ms: int) -> Thresholds:
    brokers = watched.enforcers(facts)
    return Thresholds(brokers.near, brokers.proven, interval_ms / 1000)


def _metrics(live: watched.Asked) -> Sequence[Metric]:
    """The metrics that the source has; says what was found, and what is wrong with it."""
    if not live.is_named:
        return USUAL
    look = live.open(_TIMEOUT_S).look()
    metrics = metrics_of(look.samples)
    for place, why in look.missing:
        warn(f"{place} is left out: {why}")
    if not metrics:
        warn("no quota metric was found: the names are those of 'kquota generate jmx-exporter'")
    elif is_broken(look.samples):
        warn("the exporter's rules swallow users: 'kquota generate jmx-exporter' writes rules that keep them")
    else:
        note(f"found {', '.join(sorted({metric.name for metric in metrics}))}")
    return metrics or USUAL
