"""What an audit reads and how its brokers enforce: the options that say it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from zoneinfo import ZoneInfo

import click

from kquota.audit.run import LAST_MS, Engine, Prometheus, Usage
from kquota.brokers import BrokerFacts
from kquota.cli import params, session
from kquota.cli.contexts import SETTINGS, Given, Value
from kquota.cli.streams import note
from kquota.cli.text import many
from kquota.core.change.history import QuotaHistory
from kquota.core.change.plan import plan
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.errors import InputError
from kquota.state import state_folder

if TYPE_CHECKING:
    from kquota.audit.settings import AuditSettings

F = TypeVar("F", bound=Callable[..., Any])

_EVENTS = ("auto", "request-log", "usage")
_SAMPLES = ("prometheus", "openmetrics", "kafka-jmx")


def _a_second(context: click.Context, parameter: click.Parameter, value: int | None) -> int | None:
    if value is not None and value < 1000:
        raise click.BadParameter("a second is the least")
    return value


def _source(dialects: tuple[str, ...], help_text: str) -> Callable[[F], F]:
    return click.option(
        "--source",
        type=click.Choice(dialects),
        default="auto",
        show_default=True,
        help=f"What the files are: {help_text}.",
    )


def _quarantine() -> Path:
    """In the user's state folder; in the current one for a user who has none."""
    try:
        return state_folder("quarantine.jsonl", "--quarantine")
    except InputError:
        return Path("kquota-quarantine.jsonl")


_WHAT = (
    click.argument("paths", nargs=-1, type=click.Path(), metavar="PATH…"),
    click.option("--table", metavar="NAME", help="Instead of files: a usage table of Spark's catalogue."),
    click.option(
        "--topic",
        metavar="NAME",
        help="Instead of files: a topic of usage records in JSON, on --bootstrap-server, up to its end of now.",
    ),
    params.quotas_flag,
    click.option(
        "--quotas-journal",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="The journal of 'kquota apply': what it changed since goes back in time from the quotas that are given.",
    ),
)
_OF_EVENTS = (_source(_EVENTS, "Kafka's request log, or usage tables (Parquet, ORC, CSV, JSON lines)"),)
_OF_SAMPLES = (
    _source(
        (*_EVENTS, *_SAMPLES),
        "Kafka's request log, usage tables (Parquet, ORC, CSV, JSON lines), or samples of the brokers' quota metrics",
    ),
    click.option("--prometheus", metavar="URL", help="Ask a Prometheus for samples of the brokers' quota metrics."),
    click.option(
        "--prometheus-match",
        metavar="MATCHERS",
        help="Which series of it, besides their names: 'cluster=\"prod\"'.",
    ),
    click.option(
        "--last", type=params.DURATION, callback=_a_second, show_default="1h", metavar="TIME", help="How much of it."
    ),
    click.option(
        "--step",
        type=params.DURATION,
        callback=_a_second,
        metavar="TIME",
        help="A value in each step only, and not every sample: less to fetch, but then nobody is found not throttled.",
    ),
    click.option(
        "--in-force",
        is_flag=True,
        help="The quotas were in force while it was recorded: what the brokers answered is the answer.",
    ),
)
recorded_under_option = click.option(
    "--recorded-under",
    metavar="FILE|none",
    help="The quotas that were in force while the usage was recorded, or none; else what its throttle times show."
    " Who was held back may want more than it got.",
)
"""For commands that call a quota enough."""

_HOW = (
    click.option(
        "--broker",
        metavar="NAME",
        help="The broker that wrote the files; else each of several folders names its broker.",
    ),
    click.option(
        "--log-timezone", default="UTC", show_default=True, metavar="ZONE", help="The time zone of a log's times."
    ),
    params.kafka_version_flag,
    params.server_properties_flag,
    click.option(
        "--quota-window-num",
        type=click.IntRange(min=1),
        show_default="of --server-properties, else 11",
        metavar="N",
        help="The brokers' quota.window.num.",
    ),
    click.option(
        "--quota-window-size-seconds",
        type=click.IntRange(min=1),
        show_default="of --server-properties, else 1",
        metavar="N",
        help="The brokers' quota.window.size.seconds.",
    ),
    click.option(
        "--num-partitions",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        metavar="N",
        help="The controller's num.partitions: what a topic gets that is created without a number.",
    ),
    click.option(
        "--quarantine",
        type=click.Path(path_type=Path),
        default=_quarantine,
        show_default="quarantine.jsonl in the user's state folder",
        metavar="FILE",
        help="Where records that cannot be read go; written only when there are some.",
    ),
    click.option(
        "--engine",
        type=click.Choice(["auto", "local", "spark"]),
        default="auto",
        show_default=True,
        help="What runs it: Spark, or for small inputs a few processes here; auto goes by the size of the input.",
    ),
    click.option("--master", metavar="URL", help="The Spark master; else local[*], or what spark-submit says."),
    params.cluster_flags,
)


_PARAMETERS = (
    *("paths", "table", "topic", "quotas", "quotas_journal", "source", "broker", "log_timezone"),
    *("kafka_version", "server_properties", "quota_window_num", "quota_window_size_seconds", "num_partitions"),
    *("quarantine", "engine", "master", "context", *SETTINGS),
)
_OF_PROMETHEUS = ("prometheus", "prometheus_match", "last", "step", "in_force")


def usage_options(*, samples: bool) -> Callable[[F], F]:
    """The argument and the options that say what is audited, as the argument `asked`; `samples` adds their options."""

    def decorate(function: F) -> F:
        parameters = (*_PARAMETERS, *_OF_PROMETHEUS) if samples else _PARAMETERS
        function = params.collected("asked", Asked.of, parameters)(function)
        for each in reversed((*_WHAT, *(_OF_SAMPLES if samples else _OF_EVENTS), *_HOW)):
            function = each(function)
        return function

    return decorate


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command is asked to audit: the usage, the quotas to try on it, and the brokers that enforce them."""

    paths: tuple[str, ...]
    table: str | None
    topic: str | None
    source: str
    engine: Engine
    master: str | None
    quotas: session.QuotaSource
    journal: Path | None
    facts: BrokerFacts
    windows: tuple[int | None, int | None]
    """quota.window.num and quota.window.size.seconds, where they are given."""
    broker: str | None
    log_timezone: str
    num_partitions: int
    quarantine: Path
    prometheus: str | None = None
    prometheus_match: str | None = None
    last: int | None = None
    step: int | None = None
    """Lengths of time, ms."""
    in_force: bool | None = None
    """None for a command that takes no samples."""

    @classmethod
    def of(
        cls,
        *,
        quotas: Path | None,
        quotas_journal: Path | None,
        kafka_version: str,
        server_properties: Path | None,
        quota_window_num: int | None,
        quota_window_size_seconds: int | None,
        **given: Any,
    ) -> Asked:
        """The value of the options of a command; the options for samples are None where it has none."""
        cluster: dict[str, Value] = {name: given.pop(name) for name in ("context", *SETTINGS)}
        return cls(
            quotas=session.QuotaSource(quotas, Given.of(**cluster)),
            journal=quotas_journal,
            facts=BrokerFacts(kafka_version, server_properties, params.on_command_line("kafka_version")),
            windows=(quota_window_num, quota_window_size_seconds),
            **given,
        )

    @property
    def usage(self) -> Usage:
        """What is read, and what runs over it."""
        prometheus = None
        if self.prometheus is not None:
            timeout_s = self.quotas.cluster.timeout_s
            last_ms = self.last or LAST_MS
            prometheus = Prometheus(self.prometheus, self.prometheus_match, last_ms, self.step, timeout_s)
        return Usage(self.paths, self.table, self.topic, prometheus, self.source, self.engine, self.master)

    def settings(
        self,
        against: str | None = None,
        recorded_under: str | None = None,
        *,
        prune: bool = False,
        needs_quotas: bool = True,
    ) -> AuditSettings:
        """What the audit is asked to do; `against` is a file of other quotas, or `live`.

        Beside the live quotas a file is a change of them, as `plan` takes it; with `prune` it is all of them.

        `recorded_under` is a file of the quotas that were in force while the usage was recorded, or `none`. Without
        `needs_quotas` there may be none at all.

        Raises InputError, click.UsageError, and MissingDependency without the libraries of the audit.
        """
        self._check_input()
        if self.table is not None and self.engine == "local":
            raise click.UsageError("--table is Spark's: it needs --engine spark")
        time_zone(self.log_timezone)
        from kquota.audit.run import settings_of

        facts = session.with_release(self.facts, (self.quotas.live if against == "live" else self.quotas).access)
        broker = session.load_broker_settings(facts)
        topic = None if self.topic is None else self.topic_client()
        if needs_quotas or self.quotas.is_named:
            quotas, other = self._quotas(against, prune=prune, only_a_file=self.topic is None)
        else:
            quotas, other = _nothing_set(), None
        settings = settings_of(quotas, facts, self.windows, against=other, broker=broker)
        session.warn_approximations(facts.kafka_version)
        snapshots = [snapshot for variant in settings.variants for snapshot in variant.snapshots]
        session.warn_ignored(each for snapshot in snapshots for each in snapshot.ignored)
        read = replace(
            settings.read,
            broker=self.broker,
            zone=self.log_timezone,
            num_partitions=self.num_partitions,
        )
        if topic is not None:
            kafka, timeout_s = topic
            read = replace(read, kafka=kafka, timeout_s=timeout_s)
        recorded = recorded_quotas(recorded_under)
        return replace(settings, in_force=bool(self.in_force), recorded_under=recorded, read=read)

    def _check_input(self) -> None:
        """Raises click.UsageError unless one thing is named to be audited."""
        asked = self.prometheus is not None
        files = ["files" if self.paths else "--prometheus"] if self.paths or asked else []
        tables = {"--table": self.table, "--topic": self.topic}
        named = files + [name for name, value in tables.items() if value is not None]
        if not named:
            or_ask = "--prometheus URL, " if self.in_force is not None else ""
            raise click.UsageError(f"what to audit: give files, {or_ask}--table NAME or --topic NAME")
        if len(named) > 1:
            raise click.UsageError(f"give only one of {' and '.join(named)}")
        how = {"--prometheus-match": self.prometheus_match, "--last": self.last, "--step": self.step}
        for name, value in how.items():
            if value is not None and not asked:
                raise click.UsageError(f"{name} is of --prometheus URL: give that, too")

    def topic_client(self) -> tuple[dict[str, Any], float]:
        """(how librdkafka connects to the cluster with the topic, the seconds that it has to answer)."""
        from kquota.backends.kafka.librdkafka import settings_of

        access = self.quotas.cluster.access()
        return settings_of(*session.open_brokers(access), "kquota-audit"), access.timeout_s

    def _quotas(
        self, against: str | None, *, prune: bool, only_a_file: bool
    ) -> tuple[QuotaHistory, QuotaHistory | None]:
        """The quotas to audit, and those that they are compared with."""
        if against == "live":
            if self.quotas.file is None or self.journal is not None:
                raise click.UsageError(
                    "--against live compares the cluster with the quotas of --quotas FILE: give only that"
                )
            file = session.read_history_file(self.quotas.file)
            live = session.load_history(self.quotas.live, None)
            current, named = live.latest, file.latest
            unnamed = many(sum(entity not in named for entity in current), "entity", "entities")
            fate = "as all quotas: {} would go" if prune else "as a change: {} stay (--prune: go)"
            note(f"{self.quotas.file} counts {fate.format(f'{unnamed} of the cluster that it does not name')}")
            if prune:
                return file, live
            return file.each(lambda snapshot: plan(current, snapshot).applied_to(current)), live
        # With a topic, the options of a cluster say where that is.
        quotas = session.load_history(self.quotas, self.journal, only_a_file=only_a_file)
        return quotas, None if against is None else session.read_history_file(Path(against))


def time_zone(name: str) -> str:
    """The name of a time zone, as it is given. Raises InputError for a name that is unknown."""
    try:
        ZoneInfo(name)
    except (ValueError, KeyError, OSError):
        raise InputError(f"unknown time zone {name!r}", hint="an IANA name such as UTC or Europe/Berlin") from None
    return name


def recorded_quotas(named: str | None) -> QuotaHistory | None:
    """The quotas that were in force while the usage was recorded, as `--recorded-under` names them."""
    if named is None:
        return None
    return _nothing_set() if named == "none" else session.read_history_file(Path(named))


def _nothing_set() -> QuotaHistory:
    """A history without any quota."""
    return QuotaHistory.of(QuotaSnapshot({}))
