"""What an audit reads and how its brokers enforce: the options that say it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import click

from kquota.audit.run import LAST_MS, Engine, Prometheus, Usage, settings_of
from kquota.brokers import BrokerFacts
from kquota.cli import params, session
from kquota.cli.options import argument, choice, count, flag, group, instant, lasting, path, value
from kquota.cli.streams import note
from kquota.cli.text import many
from kquota.core.change.history import QuotaHistory
from kquota.core.change.plan import plan
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.history import read_history
from kquota.errors import InputError
from kquota.state import state_folder

if TYPE_CHECKING:
    from kquota.audit.settings import AuditSettings

_EVENTS = ("auto", "request-log", "usage")
_SAMPLES = ("prometheus", "openmetrics", "kafka-jmx")


def _a_second(context: click.Context, parameter: click.Parameter, value: int | None) -> int | None:
    if value is not None and value < 1000:
        raise click.BadParameter("a second is the least")
    return value


_OF_EVENTS = "Kafka's request log, or usage tables (Parquet, ORC, CSV, JSON lines)"
_OF_SAMPLES = (
    "Kafka's request log, usage tables (Parquet, ORC, CSV, JSON lines), or samples of the brokers' quota metrics"
)


def _source(dialects: tuple[str, ...], about: str) -> Any:
    return choice(dialects, f"What the files are: {about}.", default="auto")


def _quarantine() -> Path:
    """In the user's state folder; in the current one for a user who has none."""
    try:
        return state_folder("quarantine.jsonl", "--quarantine")
    except InputError:
        return Path("kquota-quarantine.jsonl")


RECORDED_UNDER: Any = value(
    "FILE|none",
    "The quotas that were in force while the usage was recorded, or none; else what its throttle times show."
    " Who was held back may want more than it got.",
)
"""For commands that call a quota enough: of the parameter `recorded_under`."""


@dataclass(frozen=True)
class Asked:
    """What a command is asked to audit: the usage, the quotas to try on it, and the brokers that enforce them."""

    paths: tuple[str, ...] = argument(nargs=-1, type=click.Path(), metavar="PATH…")
    table: str | None = value("NAME", "Instead of files: a usage table of Spark's catalogue.")
    topic: str | None = value(
        "NAME", "Instead of files: a topic of usage records in JSON, on --bootstrap-server, up to its end of now."
    )
    named: session.QuotaSource = params.SOURCE
    quotas_journal: Path | None = path(
        "The journal of 'kquota apply': what it changed since goes back in time from the quotas that are given.",
        metavar="DIR|cluster",
    )
    source: str = _source((*_EVENTS, *_SAMPLES), _OF_SAMPLES)
    prometheus: str | None = value("URL", "Ask a Prometheus for samples of the brokers' quota metrics.")
    prometheus_match: str | None = value("MATCHERS", "Which series of it, besides their names: 'cluster=\"prod\"'.")
    last: int | None = lasting("How much of it.", callback=_a_second, show_default="1h")
    step: int | None = lasting(
        "A value in each step only, and not every sample: less to fetch, but then nobody is found not throttled.",
        callback=_a_second,
    )
    in_force: bool | None = flag(
        "The quotas were in force while it was recorded: what the brokers answered is the answer."
    )
    """None for a command that takes no samples."""
    broker: str | None = value(
        "NAME", "The broker that wrote the files; else each of several folders names its broker."
    )
    log_timezone: str = value("ZONE", "The time zone of a log's times.", default="UTC")
    since: str | None = value(
        "TIME",
        "Only what was recorded from then on: 2026-01-31T12:00, 12:00 of the last day, or yesterday 12:00, all in"
        " --log-timezone; or so long before now, as 1h.",
    )
    until: str | None = value("TIME", "Only what was recorded before then.")
    facts: BrokerFacts = params.FACTS
    quota_window_num: int | None = count(
        "The brokers' quota.window.num.", show_default="of --server-properties, else 11"
    )
    quota_window_size_seconds: int | None = count(
        "The brokers' quota.window.size.seconds.", show_default="of --server-properties, else 1"
    )
    num_partitions: int = count(
        "The controller's num.partitions: what a topic gets that is created without a number.", default=1
    )
    quarantine: Path = path(
        "Where records that cannot be read go; written only when there are some.",
        default=_quarantine,
        show_default="quarantine.jsonl in the user's state folder",
    )
    engine: Engine = choice(
        ["auto", "local", "spark"],
        "What runs it: Spark, or for small inputs a few processes here; auto goes by the size of the input,"
        " also under spark-submit.",
        default="auto",
    )
    master: str | None = value("URL", "The Spark master; else local[*], or what spark-submit says.")

    @property
    def usage(self) -> Usage:
        """What is read, and what runs over it."""
        prometheus = None
        if self.prometheus is not None:
            last_ms = self.last or LAST_MS
            prometheus = Prometheus(
                self.prometheus, self.prometheus_match, last_ms, self.step, self.named.cluster.timeout_s
            )
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
        since_ms, until_ms = self._epoch_ms(self.since, -math.inf), self._epoch_ms(self.until, math.inf)
        if since_ms >= until_ms:
            raise click.UsageError("--since has to be before --until")
        facts = session.with_release(self.facts, (self.named.live if against == "live" else self.named).access)
        broker = session.load_broker_settings(facts)
        topic: dict[str, Any] = {}
        if self.topic is not None:
            from kquota.backends.kafka import librdkafka

            access = self.named.cluster.access()
            kafka = librdkafka.settings_of(*session.open_brokers(access), "kquota-audit")
            topic = {"kafka": kafka, "timeout_s": access.timeout_s}
        if needs_quotas or self.named.is_named:
            quotas, other = self._quotas(against, prune=prune, only_a_file=self.topic is None)
        else:
            quotas, other = _nothing_set(), None
        windows = self.quota_window_num, self.quota_window_size_seconds
        settings = settings_of(quotas, facts, windows, against=other, broker=broker)
        self._check_paths()
        session.warn_approximations(facts.kafka_version)
        snapshots = [snapshot for variant in settings.variants for snapshot in variant.snapshots]
        session.warn_ignored(ignored for snapshot in snapshots for ignored in snapshot.ignored)
        read = replace(settings.read, broker=self.broker, zone=self.log_timezone, num_partitions=self.num_partitions)
        read = replace(read, since_ms=since_ms, until_ms=until_ms, **topic)
        recorded = recorded_quotas(recorded_under)
        return replace(settings, in_force=bool(self.in_force), recorded_under=recorded, read=read)

    def _epoch_ms(self, text: str | None, without: float) -> float:
        """The time that an option names, or the time without one. Raises click.BadParameter."""
        return without if text is None else instant(text, ZoneInfo(self.log_timezone))

    def _check_input(self) -> None:
        """Raises click.UsageError unless one thing is named to be audited."""
        asked = self.prometheus is not None
        files = ["files" if self.paths else "--prometheus"] if self.paths or asked else []
        tables = {"--table": self.table, "--topic": self.topic}
        named = files + [name for name, value in tables.items() if value is not None]
        if not named:
            or_ask = "--prometheus URL, " if self.in_force is not None else ""
            raise click.UsageError(f"which usage? Give files, {or_ask}--table NAME or --topic NAME")
        if len(named) > 1:
            raise click.UsageError(f"give only one of {' and '.join(named)}")
        how = {"--prometheus-match": self.prometheus_match, "--last": self.last, "--step": self.step}
        for name, given in how.items():
            if given is not None and not asked:
                raise click.UsageError(f"{name} is of --prometheus URL: give that, too")

    def _check_paths(self) -> None:
        """Raises InputError for quotas among the usage that nothing else names: the live ones would answer for them."""
        from kquota.audit.sources import own_document
        from kquota.audit.sources.files import find

        for name in self.paths if self.named.file is None else ():
            if Path(name).is_file() and own_document(find(name)[0]) == "a document kquota.quotas":
                raise InputError(f"{name} has quotas, and no usage", hint=f"--quotas {name} audits them")

    def _quotas(
        self, against: str | None, *, prune: bool, only_a_file: bool
    ) -> tuple[QuotaHistory, QuotaHistory | None]:
        """The quotas to audit, and those that they are compared with."""
        if against == "live":
            if self.named.file is None or self.quotas_journal is not None:
                raise click.UsageError(
                    "--against live compares the cluster with the quotas of --quotas FILE: give only that"
                )
            file = read_history(self.named.file)
            live = session.load_history(self.named.live, None)
            current, named = live.latest, file.latest
            if unnamed := sum(entity not in named for entity in current):
                fate = "as all quotas: {} would go" if prune else "as a change: {} stay (--prune takes them away)"
                who = f"{many(unnamed, 'entity', 'entities')} of the cluster that it does not name"
                note(f"{self.named.file} counts {fate.format(who)}")
            if prune:
                return file, live
            return file.each(lambda snapshot: plan(current, snapshot).applied_to(current)), live
        # With a topic, the options of a cluster say where that is.
        quotas = session.load_history(self.named, self.quotas_journal, only_a_file=only_a_file)
        return quotas, None if against is None else read_history(Path(against))


ASKED: Any = group(Asked)
"""The argument and the options that say what is audited."""
ASKED_TO_FOLLOW: Any = group(Asked, until=None)
"""The same for a command that reads what comes."""
ASKED_OF_EVENTS: Any = group(
    Asked,
    source=_source(_EVENTS, _OF_EVENTS),
    **dict.fromkeys(("prometheus", "prometheus_match", "last", "step", "in_force")),
)
"""The same for a command that takes no samples."""


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
    return _nothing_set() if named == "none" else read_history(Path(named))


def _nothing_set() -> QuotaHistory:
    """A history without any quota."""
    return QuotaHistory.of(QuotaSnapshot({}))
