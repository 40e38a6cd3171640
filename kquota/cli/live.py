"""The options of commands that watch live metrics, and what they come to: a source, quotas, and brokers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from kquota.brokers import BrokerFacts
from kquota.cli import session
from kquota.cli.contexts import choices
from kquota.cli.options import group, value, values
from kquota.cli.security import prometheus_credentials
from kquota.core.findings.use import Enforcers
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.errors import InputError
from kquota.live.sources import LiveSource, open_source
from kquota.metrics.prometheus import Server


@dataclass(frozen=True)
class Asked:
    """Where live metrics are read: pages of exporters, or a Prometheus."""

    metrics: tuple[str, ...] = values(
        "[BROKER=]URL|FILE", "The page of a broker's exporter, http://broker-1:7071/metrics; repeat it for each broker."
    )
    prometheus: str | None = value("URL", "Ask a Prometheus for the brokers' quota metrics instead.")
    prometheus_match: str | None = value("MATCHERS", "Which series of it, besides their names: 'cluster=\"prod\"'.")

    @property
    def is_named(self) -> bool:
        """Whether any source was given."""
        return bool(self.metrics) or self.prometheus is not None or self.prometheus_match is not None

    def open(self, timeout_s: float) -> LiveSource:
        """The source. Raises InputError."""
        server = None
        if self.prometheus is not None:
            server = Server(self.prometheus, prometheus_credentials(self.prometheus), timeout_s)
        elif self.prometheus_match is not None:
            raise click.UsageError("--prometheus-match is of --prometheus URL: give that, too")
        return open_source(self.metrics, server, self.prometheus_match, timeout_s)


ASKED: Any = group(Asked)
"""`--metrics`, `--prometheus` and `--prometheus-match`."""


def enforcers(facts: BrokerFacts) -> Enforcers:
    """What is known of the brokers. Raises InputError."""
    settings = session.load_broker_settings(facts)
    if settings is None:
        return Enforcers(generation=facts.generation)
    return Enforcers(settings.windows, facts.generation, settings.static)


def quotas_reader(source: session.QuotaSource, facts: BrokerFacts) -> Callable[[], QuotaSnapshot]:
    """A function that reads the quotas anew, from a file too. Raises click.UsageError where none are named."""
    if not source.is_named:
        raise click.UsageError(session.NO_QUOTAS + choices())

    def read() -> QuotaSnapshot:
        snapshot = session.load_quotas(source)
        return facts.enforced(snapshot, facts.settings())

    return read


def label(text: str) -> tuple[str, str]:
    """Reads `NAME=VALUE`. Raises InputError for a name that no label of Prometheus has."""
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name) or name.startswith("__"):
        raise InputError(f"{text!r} is no label", hint="--label NAME=VALUE, such as cluster=prod")
    return name, value
