"""What an audit reads and how its brokers enforce: the options that say it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kquota.cli import params, session
from kquota.errors import InputError, MissingDependency

if TYPE_CHECKING:
    from kquota.audit.settings import AuditSettings
    from kquota.core.change.history import QuotaHistory
    from kquota.core.quotas.snapshot import QuotaSnapshot

F = TypeVar("F", bound=Callable[..., Any])

_EVENTS = ("auto", "request-log", "usage")
_SAMPLES = ("prometheus", "openmetrics", "kafka-jmx", "rpk-connections", "confluent-metrics")


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


_WHAT = (
    click.argument("paths", nargs=-1, type=click.Path(), metavar="PATH…"),
    click.option("--table", metavar="NAME", help="Instead of files: a usage table of Spark's catalogue."),
    click.option(
        "--topic",
        metavar="NAME",
        help="Instead of files: a topic of usage records in JSON, on --bootstrap-server, up to its end of now.",
    ),
    params.quotas_option,
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
        help="The quotas are those that were in force: with samples, what a broker says it throttled is throttled.",
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
        help="The broker that wrote the files; else those of several folders are called like these.",
    ),
    click.option(
        "--log-timezone", default="UTC", show_default=True, metavar="ZONE", help="The time zone of a log's times."
    ),
    params.kafka_version_option,
    params.server_properties_option,
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
        default=Path("kquota-quarantine.jsonl"),
        show_default=True,
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
    params.cluster_options,
)


def usage_options(*, samples: bool) -> Callable[[F], F]:
    """The argument and the options that `settings_of` and `kquota.cli.auditing` take; with those of samples, or not."""

    def decorate(function: F) -> F:
        for each in reversed((*_WHAT, *(_OF_SAMPLES if samples else _OF_EVENTS), *_HOW)):
            function = each(function)
        return function

    return decorate


def settings_of(options: dict[str, Any]) -> AuditSettings:
    """What the options ask for; `--against` where the command has it. Raises InputError, and click.UsageError."""
    from zoneinfo import ZoneInfo

    _check_input(options)
    if options["table"] is not None and options["engine"] == "local":
        raise click.UsageError("--table is Spark's: it needs --engine spark")
    try:
        ZoneInfo(options["log_timezone"])
    except (ValueError, KeyError, OSError):
        raise InputError(
            f"unknown time zone {options['log_timezone']!r}", hint="an IANA name such as UTC or Europe/Berlin"
        ) from None
    from kquota.core.enforcement.generation import Generation, QuotaWindows
    from kquota.core.quotas.version import parse_version

    generation = Generation.for_version(options["kafka_version"])
    broker = session.load_broker_settings(options)
    windows = QuotaWindows() if broker is None else broker.windows
    kafka = None if options["topic"] is None else _topic_client(options)
    quotas, against = _quotas(options)
    enforced = session.enforced_by_brokers(options, broker)
    quotas = quotas.each(enforced)
    against = against.each(enforced) if against is not None else None
    snapshots = (*quotas.snapshots, *(against.snapshots if against is not None else ()))
    session.warn_approximations(options["kafka_version"])
    session.warn_ignored(each for snapshot in snapshots for each in snapshot.ignored)
    try:
        from kquota.audit.settings import AuditSettings
        from kquota.audit.sources import ReadSettings
    except ImportError as error:
        raise MissingDependency(f"the audit needs {error.name}", extra="audit") from None
    return AuditSettings(
        quotas=quotas,
        generation=generation,
        windows=QuotaWindows(
            options["quota_window_num"] or windows.samples,
            options["quota_window_size_seconds"] or windows.window_seconds,
        ),
        controller_windows=QuotaWindows() if broker is None else broker.controller_windows,
        against=against,
        in_force=options.get("in_force", False),
        recorded_under=recorded_under(options, enforced),
        read=ReadSettings(
            options["broker"],
            options["log_timezone"],
            options["num_partitions"],
            kafka,
            parse_version(options["kafka_version"]),
        ),
    )


def recorded_under(
    options: Mapping[str, Any], enforced: Callable[[QuotaSnapshot], QuotaSnapshot]
) -> QuotaHistory | None:
    """The quotas that `--recorded-under` says were in force, as brokers enforce them; None where it is not given.

    Raises InputError.
    """
    from kquota.core.change.history import QuotaHistory
    from kquota.core.quotas.snapshot import QuotaSnapshot

    said: str | None = options.get("recorded_under")
    if said is None:
        return None
    return (
        QuotaHistory.of(QuotaSnapshot({})) if said == "none" else session.read_history_file(Path(said)).each(enforced)
    )


def _check_input(options: Mapping[str, Any]) -> None:
    """Raises click.UsageError unless one thing is named to be audited."""
    asked = options.get("prometheus") is not None
    files = ["files" if options["paths"] else "--prometheus"] if options["paths"] or asked else []
    named = files + [f"--{name}" for name in ("table", "topic") if options[name] is not None]
    if not named:
        or_ask = "--prometheus URL, " if "prometheus" in options else ""
        raise click.UsageError(f"what to audit: give files, {or_ask}--table NAME or --topic NAME")
    if len(named) > 1:
        raise click.UsageError(f"what to audit: {' and '.join(named)} are too much, give one of them")
    for name in ("prometheus_match", "last", "step"):
        if options.get(name) is not None and not asked:
            raise click.UsageError(f"--{name.replace('_', '-')} is of --prometheus URL: give that, too")


def _topic_client(options: dict[str, Any]) -> dict[str, Any]:
    """How to connect to the cluster with the topic."""
    from kquota.backends.kafka.librdkafka import settings_of as librdkafka_settings
    from kquota.cli.contexts import settled

    return librdkafka_settings(*session.open_brokers(settled(options)), "kquota-audit")


def _quotas(options: dict[str, Any]) -> tuple[QuotaHistory, QuotaHistory | None]:
    """The quotas to audit, and those that they are compared with."""
    against: str | None = options.get("against")
    if against == "live":
        if options["quotas"] is None or options["quotas_journal"] is not None:
            raise click.UsageError(
                "--against live compares the cluster with the quotas of --quotas FILE: give only that"
            )
        file = session.read_history_file(options["quotas"])
        return file, session.load_history({**options, "quotas": None})
    # With a topic, the options of a cluster say where that is.
    quotas = session.load_history(options, only_a_file=options["topic"] is None)
    return quotas, None if against is None else session.read_history_file(Path(against))
