"""What an audit reads and how its brokers enforce: the options that say it, and running an audit over it."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kquota.cli import params, session
from kquota.cli.streams import console, shows_progress
from kquota.errors import InputError, MissingDependency

if TYPE_CHECKING:
    from kquota.audit.batch import Reject
    from kquota.audit.findings import AuditResult
    from kquota.audit.settings import AuditSettings
    from kquota.audit.sources import Split
    from kquota.core.history import QuotaHistory

F = TypeVar("F", bound=Callable[..., Any])

Audit = Callable[["AuditSettings"], "AuditResult"]
"""Audits one input on one engine, as often as it is asked to."""

_OPTIONS = (
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
    click.option(
        "--source",
        type=click.Choice(
            [
                "auto",
                "request-log",
                "usage",
                "prometheus",
                "openmetrics",
                "kafka-jmx",
                "rpk-connections",
                "confluent-metrics",
            ]
        ),
        default="auto",
        show_default=True,
        help="What the files are: Kafka's request log, usage tables (Parquet, ORC, CSV, JSON lines), or samples of the"
        " brokers' quota metrics.",
    ),
    click.option("--prometheus", metavar="URL", help="Ask a Prometheus for samples of the brokers' quota metrics."),
    click.option(
        "--prometheus-match",
        "matchers",
        metavar="MATCHERS",
        help="Which series of it, besides their names: 'cluster=\"prod\"'.",
    ),
    click.option(
        "--last", type=params.DURATION, default="1h", show_default=True, metavar="TIME", help="How much of it."
    ),
    click.option(
        "--step",
        type=params.DURATION,
        metavar="TIME",
        help="A value in each step only, and not every sample: less to fetch, but then nobody is found not throttled.",
    ),
    click.option(
        "--in-force",
        is_flag=True,
        help="The quotas are those that were in force: with samples, what a broker says it throttled is throttled.",
    ),
    click.option("--broker", metavar="NAME", help="The broker that wrote the files; else the name of a file's folder."),
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


def usage_options(function: F) -> F:
    """The argument and the options that `settings_of`, `auditor` and `keep_rejects` take."""
    for decorate in reversed(_OPTIONS):
        function = decorate(function)
    return function


def settings_of(options: dict[str, Any]) -> AuditSettings:
    """What the options ask for; `--against` where the command has it. Raises InputError, and click.UsageError."""
    from zoneinfo import ZoneInfo

    if not _named(options):
        raise click.UsageError("what to audit: give files, --prometheus URL, --table NAME or --topic NAME")
    if len(_named(options)) > 1:
        raise click.UsageError(f"what to audit: {' and '.join(_named(options))} are too much, give one of them")
    if options["table"] is not None and options["engine"] == "local":
        raise click.UsageError("--table is Spark's: it needs --engine spark")
    try:
        ZoneInfo(options["log_timezone"])
    except (ValueError, KeyError, OSError):
        raise InputError(
            f"unknown time zone {options['log_timezone']!r}", hint="an IANA name such as UTC or Europe/Berlin"
        ) from None
    from kquota.core.enforcement.generation import Generation, QuotaWindows

    generation = Generation.for_version(options["kafka_version"])
    broker = session.load_broker_settings(options)
    windows = QuotaWindows() if broker is None else broker.windows
    kafka = None if options["topic"] is None else _topic_client(options)
    quotas, against = _quotas(options)
    if broker is not None:
        quotas = quotas.each(broker.static.added_to)
        against = against.each(broker.static.added_to) if against is not None else None
    try:
        from kquota.audit.settings import AuditSettings
        from kquota.audit.sources import ReadSettings
    except ImportError as error:
        raise MissingDependency(f"the audit needs {error.name}", hint="pip install 'kquota[audit]'") from None
    return AuditSettings(
        quotas=quotas,
        generation=generation,
        windows=QuotaWindows(
            options["quota_window_num"] or windows.samples,
            options["quota_window_size_seconds"] or windows.window_seconds,
        ),
        controller_windows=QuotaWindows() if broker is None else broker.controller_windows,
        against=against,
        in_force=options["in_force"],
        read=ReadSettings(options["broker"], options["log_timezone"], options["num_partitions"], kafka),
    )


def _named(options: Mapping[str, Any]) -> list[str]:
    """What is named to be audited."""
    named = ["files"] if options["paths"] or options["prometheus"] is not None else []
    return named + [f"--{name}" for name in ("table", "topic") if options[name] is not None]


def _topic_client(options: dict[str, Any]) -> dict[str, Any]:
    """How to connect to the cluster with the topic."""
    from kquota.backends.kafka.librdkafka import settings_of as librdkafka_settings
    from kquota.cli.contexts import settled

    return librdkafka_settings(*session.open_brokers(settled(options)), "kquota-audit")


def _quotas(options: dict[str, Any]) -> tuple[QuotaHistory, QuotaHistory | None]:
    """The quotas to audit, and those that they are compared with."""
    against: str | None = options.get("against")
    if options["topic"] is not None and options["quotas"] is not None and against != "live":
        # The cluster is where the topic is then.
        other = None if against is None else session.read_history_file(Path(against))
        return session.read_history_file(options["quotas"]), other
    if against is None:
        return session.load_history(options), None
    if against != "live":
        return session.load_history(options), session.read_history_file(Path(against))
    if options["quotas"] is None or options["quotas_journal"] is not None:
        raise click.UsageError("--against live compares the cluster with the quotas of --quotas FILE: give only that")
    file = session.read_history_file(options["quotas"])
    return file, session.load_history({**options, "quotas": None})


@contextlib.contextmanager
def auditor(options: Mapping[str, Any], settings: AuditSettings, needs: str | None = None) -> Iterator[Audit]:
    """Finds the input and the engine; yields what audits the one on the other. Raises InputError.

    `needs` names what cannot be done without each request: then samples raise InputError, too.
    """
    table, topic, url = options["table"], options["topic"], options["prometheus"]
    if table is not None:
        from kquota.audit import spark

        with _on_spark(options["master"], lambda session, its: spark.audit_table(session, table, its)) as audit:
            yield audit
        return
    if topic is not None:
        from kquota.audit.sources.usage_topic import plan_topic

        splits = plan_topic(topic, settings.read.kafka or {})
        with _audits(splits, f"topic {topic}", options["engine"], options["master"]) as audit:
            yield audit
        return
    from kquota.audit.sources import SAMPLED, plan_splits

    with tempfile.TemporaryDirectory(prefix="kquota-audit-") if url else contextlib.nullcontext() as folder:
        fetched = _ask_prometheus(options, Path(folder)) if folder is not None else ()
        # What is wrong with the input is said at once, not after ten seconds of starting Spark.
        splits = plan_splits((*options["paths"], *fetched), options["source"])
        what = ", ".join((*options["paths"], *([url] if url else ())))
        if needs is not None and any(split.dialect in SAMPLED for split in splits):
            raise InputError(f"{what}: there are samples, and {needs} needs each request")
        with _audits(splits, what, options["engine"], options["master"]) as audit:
            yield audit


def audit_files(paths: Sequence[str], settings: AuditSettings) -> AuditResult:
    """Audits files of any dialect on the engine that their size asks for. Raises InputError."""
    from kquota.audit.sources import plan_splits

    with _audits(plan_splits(paths, "auto"), ", ".join(paths), "auto", None) as audit:
        return audit(settings)


@contextlib.contextmanager
def _audits(splits: Sequence[Split], what: str, engine: str, master: str | None) -> Iterator[Audit]:
    """Audits of these splits, which errors call `what`."""
    from kquota.audit import engines

    if engines.choose(engine, splits, master) == "local":
        from kquota.audit import local

        def run(settings: AuditSettings) -> AuditResult:
            with _progress("auditing") as show:
                counts = [(0, 0)]
                show(lambda: counts[-1])
                return local.audit(splits, settings, what, progress=lambda done, known: counts.append((done, known)))

        yield run
        return
    from kquota.audit import spark

    with _on_spark(master, lambda session, settings: spark.audit(session, splits, settings, what)) as audit:
        yield audit


@contextlib.contextmanager
def _on_spark(master: str | None, audit: Callable[[Any, AuditSettings], AuditResult]) -> Iterator[Audit]:
    """Audits on one session, which is started for the first of them and stopped at the end."""
    from kquota.audit import spark

    session = None

    def run(settings: AuditSettings) -> AuditResult:
        nonlocal session
        with _progress("starting Spark") as show:
            if session is None:
                session = spark.open_session(master)
            show(lambda: spark.progress(session))
            return audit(session, settings)

    try:
        yield run
    finally:
        if session is not None:
            session.stop()


def _ask_prometheus(options: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    """The files with what `--prometheus` answered."""
    import time

    from kquota.audit.sources import prometheus_api

    credentials = prometheus_api.Credentials.of(os.environ)
    now, last, step = int(time.time()), options["last"] // 1000, options["step"]
    server = prometheus_api.Server(options["prometheus"], credentials, options["timeout"])
    selector = prometheus_api.selector(options["matchers"])
    return tuple(map(str, prometheus_api.fetch(server, selector, now - last, now, step and step // 1000, folder)))


@contextlib.contextmanager
def _progress(first: str) -> Iterator[Callable[[Callable[[], tuple[int, int]]], None]]:
    """A progress bar on stderr when that is a terminal; what it yields takes the function that tells how far it is."""
    if not shows_progress():
        yield lambda poll: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    over = threading.Event()
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    bar = Progress(*columns, TimeElapsedColumn(), console=console(sys.stderr), transient=True)
    with bar:
        task = bar.add_task(first, total=None)

        def show(poll: Callable[[], tuple[int, int]]) -> None:
            def watch() -> None:
                while not over.wait(0.3):
                    try:
                        done, known = poll()
                    except Exception:  # Spark is being stopped: there is nothing left to show
                        return
                    if known:
                        bar.update(task, description="auditing", completed=done, total=known)

            threading.Thread(target=watch, daemon=True).start()

        try:
            yield show
        finally:
            over.set()


def keep_rejects(result: AuditResult, quarantine: Path) -> None:
    """Writes the records that cannot be read into that file, and says so; nothing where there are none."""
    rejected = result.quality.rejected
    if not rejected:
        return
    try:
        with open(quarantine, "w", encoding="utf-8") as file:
            for reject in result.rejects:
                file.write(json.dumps(asdict(reject), ensure_ascii=False) + "\n")
    except OSError as error:
        raise InputError(f"{quarantine}: {error.strerror}: cannot keep the records that cannot be read") from None
    what = "record" if rejected == 1 else "records"
    click.echo(
        f"kquota: warning: {rejected} {what} cannot be read, quarantined in {quarantine}: {why(result.rejects)}",
        err=True,
    )


def why(rejects: Sequence[Reject]) -> str:
    """`3 × not JSON; 1 × time_ms is missing`: the most frequent reasons."""
    return "; ".join(f"{count} × {reason}" for reason, count in reasons(rejects)[:3])


def reasons(rejects: Sequence[Reject]) -> list[tuple[str, int]]:
    """Why records could not be read, the most frequent reason first."""
    return Counter(reject.reason for reject in rejects).most_common()


def enforcement_of(settings: AuditSettings) -> dict[str, Any]:
    """How brokers are taken to enforce, as documents say it."""
    return {
        "generation": settings.generation.value,
        "quota_window_num": settings.windows.samples,
        "quota_window_size_seconds": settings.windows.window_seconds,
    }
