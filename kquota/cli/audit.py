"""`kquota audit`."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kquota.cli import params, session
from kquota.cli.exit_codes import ExitCode
from kquota.cli.streams import note
from kquota.errors import InputError, MissingDependency

if TYPE_CHECKING:
    from kquota.audit.batch import Reject
    from kquota.audit.findings import AuditResult, DataQuality
    from kquota.audit.settings import AuditSettings
    from kquota.audit.sources import Split
    from kquota.core.history import QuotaHistory
    from kquota.core.whatif import Comparison


class _Remembering(click.Command):
    """A command that knows how it was called."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_CALLED] = shlex.join(["kquota", "audit", *args])
        return super().parse_args(ctx, args)


_CALLED = "kquota.audit.called"


@click.command("audit", cls=_Remembering)
@click.argument("paths", nargs=-1, type=click.Path(), metavar="PATH…")
@click.option("--table", metavar="NAME", help="Instead of files: a usage table of Spark's catalogue.")
@click.option(
    "--topic",
    metavar="NAME",
    help="Instead of files: a topic of usage records in JSON, on --bootstrap-server, up to its end of now.",
)
@params.quotas_option
@click.option(
    "--quotas-journal",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="The journal of 'kquota apply': what it changed since goes back in time from the quotas that are given.",
)
@click.option(
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
)
@click.option("--prometheus", metavar="URL", help="Ask a Prometheus for samples of the brokers' quota metrics.")
@click.option(
    "--prometheus-match",
    "matchers",
    metavar="MATCHERS",
    help="Which series of it, besides their names: 'cluster=\"prod\"'.",
)
@click.option("--last", type=params.DURATION, default="1h", show_default=True, metavar="TIME", help="How much of it.")
@click.option(
    "--step",
    type=params.DURATION,
    metavar="TIME",
    help="A value in each step only, and not every sample: less to fetch, but then nobody is found not throttled.",
)
@click.option(
    "--in-force",
    is_flag=True,
    help="The quotas are those that were in force: with samples, what a broker says it throttled is throttled.",
)
@click.option("--broker", metavar="NAME", help="The broker that wrote the files; else the name of a file's folder.")
@click.option(
    "--log-timezone", default="UTC", show_default=True, metavar="ZONE", help="The time zone of a log's times."
)
@params.kafka_version_option
@params.server_properties_option
@click.option(
    "--quota-window-num",
    type=click.IntRange(min=1),
    show_default="of --server-properties, else 11",
    metavar="N",
    help="The brokers' quota.window.num.",
)
@click.option(
    "--quota-window-size-seconds",
    type=click.IntRange(min=1),
    show_default="of --server-properties, else 1",
    metavar="N",
    help="The brokers' quota.window.size.seconds.",
)
@click.option(
    "--num-partitions",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="The controller's num.partitions: what a topic gets that is created without a number.",
)
@click.option("--top", type=click.IntRange(min=1), default=5, show_default=True, metavar="N", help="Clients to name.")
@click.option("--all", "show_all", is_flag=True, help="In the table, also the counters that were never throttled.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Write the findings as Parquet.")
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    metavar="FILE.html",
    help="Write a page for people, with charts: who is delayed, by which quota, when, how much. It needs no network.",
)
@click.option(
    "--quarantine",
    type=click.Path(path_type=Path),
    default=Path("kquota-quarantine.jsonl"),
    show_default=True,
    metavar="FILE",
    help="Where records that cannot be read go; written only when there are some.",
)
@click.option(
    "--against",
    metavar="live|FILE",
    help="Other quotas, of the live cluster or of a file: show who is throttled anew, more, less or no longer.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["throttled", "undetermined", "newly-throttled"]),
    multiple=True,
    help="Exit with 1 when a client would be throttled, when that cannot be told, or when one would be that is not so"
    " under --against. May be given several times.",
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "local", "spark"]),
    default="auto",
    show_default=True,
    help="What runs it: Spark, or for small inputs a few processes here; auto goes by the size of the input.",
)
@click.option("--master", metavar="URL", help="The Spark master; else local[*], or what spark-submit says.")
@params.cluster_options
@params.output_option("table", "json", "csv", "markdown")
def command(
    paths: tuple[str, ...],
    table: str | None,
    topic: str | None,
    source: str,
    out: Path | None,
    report: Path | None,
    quarantine: Path,
    fail_on: tuple[str, ...],
    engine: str,
    master: str | None,
    show_all: bool,
    output: str,
    **options: Any,
) -> int:
    """Show who would be throttled, when, by which quota and by how much.

    Replays recorded usage under the given quotas, exactly as brokers enforce them: Kafka's request log, or a usage
    table. Files may be named by URIs (s3://logs/broker-1/). Times are per broker; every quota holds per broker. The
    quotas may also be a history: a file of periods ('kquota schema quota-history'), or by --quotas-journal.

    Samples that monitoring keeps (Prometheus, kafka-jmx, …) do not hold each request: where it follows from them, a
    counter is throttled, or is not; else it is undetermined, between the bounds that are shown.

    With --against the same usage is replayed under both quotas, and what changes is shown: clients are matched
    by who they are, as a quota on another level gives them another counter.

    \b
    Examples:
      kquota audit kafka-request.log --quotas quotas.yaml
      kquota audit logs/broker-1/ logs/broker-2/ --zookeeper localhost:2181 --out findings/
      kquota audit kafka-request.log --quotas quotas.yaml --report report.html
      kquota audit usage.parquet --quotas proposed.yaml --fail-on throttled
      kquota audit usage.parquet --quotas proposed.yaml --against live --bootstrap-server host:9092
      kquota audit usage.parquet --quotas proposed.yaml --against current.yaml --fail-on newly-throttled -o markdown
      kquota audit usage.parquet --quotas history.yaml
      kquota audit --topic usage --bootstrap-server host:9092
      kquota audit usage.parquet --bootstrap-server host:9092 --quotas-journal ~/.local/state/kquota/journal
      kquota audit --prometheus http://prometheus:9090 --last 6h --bootstrap-server host:9092 --in-force
      spark-submit $(python -m kquota.cli.submit) usage.parquet --quotas proposed.yaml
    """
    url = options["prometheus"]
    if bool(paths or url) + (table is not None) + (topic is not None) != 1:
        raise click.UsageError("what to audit: give PATH… or --prometheus URL, --table NAME, or --topic NAME")
    if options["against"] is None and "newly-throttled" in fail_on:
        raise click.UsageError("what would change is known with --against live|FILE only")
    if report is not None:
        from kquota.cli.report import check_report

        check_report(report)
    if table is not None and engine == "local":
        raise click.UsageError("--table is Spark's: it needs --engine spark")
    settings = settings_of(options, topic=topic, reported=report is not None)
    if table is not None:
        result = _run_table(table, settings, master)
    elif topic is not None:
        result = _run_topic(topic, settings, engine, master)
    else:
        with tempfile.TemporaryDirectory(prefix="kquota-audit-") if url else contextlib.nullcontext() as folder:
            fetched = _ask_prometheus(options, Path(folder)) if folder is not None else ()
            what = ", ".join((*paths, *([url] if url else ())))
            result = run((*paths, *fetched), source, settings, engine, master, what)
    keep_rejects(result, quarantine)
    comparison = None
    if settings.against is not None:
        from kquota.audit.whatif import compare

        comparison = compare(result, settings)
        result = result.naming(options["top"])
    if out is not None:
        result.write(out)
    if report is not None:
        _write_report(report, result, settings, comparison, quarantine)
    if comparison is None or output == "json":
        print_result(result, settings, output, comparison, show_all=show_all)
    else:
        _print_comparison(comparison, result, output, options)
    return ExitCode.DIFFERENT if set(fail_on) & _answers(result, comparison) else ExitCode.OK


def _ask_prometheus(options: dict[str, Any], folder: Path) -> tuple[str, ...]:
    """The files with what `--prometheus` answered."""
    import time

    from kquota.audit.sources import prometheus_api

    credentials = prometheus_api.Credentials.of(os.environ)
    now, last, step = int(time.time()), options["last"] // 1000, options["step"]
    server = prometheus_api.Server(options["prometheus"], credentials, options["timeout"])
    selector = prometheus_api.selector(options["matchers"])
    return tuple(map(str, prometheus_api.fetch(server, selector, now - last, now, step and step // 1000, folder)))


def _answers(result: AuditResult, comparison: Comparison | None) -> set[str]:
    """What is true of what `--fail-on` can name."""
    if comparison is None:
        answers = {"throttled": result.throttled, "undetermined": result.undetermined}
    else:
        from kquota.core.whatif import Outcome

        answers = {
            "throttled": result.throttled,
            "undetermined": comparison.count(Outcome.UNDETERMINED) > 0,
            "newly-throttled": comparison.count(Outcome.NEWLY_THROTTLED) > 0,
        }
    return {answer for answer, true in answers.items() if true}


def settings_of(options: dict[str, Any], *, topic: str | None = None, reported: bool = False) -> AuditSettings:
    """What the options of `kquota audit` ask for."""
    from zoneinfo import ZoneInfo

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
    kafka = None if topic is None else _topic_client(options)
    quotas, against = _quotas(options, topic)
    if broker is not None:
        quotas = quotas.each(broker.static.added_to)
        against = against.each(broker.static.added_to) if against is not None else None
    from kquota.cli.report import MOST

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
        top_clients=options["top"] if against is None else None,
        per_client=reported or against is not None,
        in_force=options["in_force"],
        timelines=MOST if reported else 0,
        read=ReadSettings(options["broker"], options["log_timezone"], options["num_partitions"], kafka),
    )


def _topic_client(options: dict[str, Any]) -> dict[str, Any]:
    """How to connect to the cluster with the topic."""
    from kquota.backends.kafka.librdkafka import settings_of
    from kquota.cli.contexts import settled

    return settings_of(*session.open_brokers(settled(options)), "kquota-audit")


def _quotas(options: dict[str, Any], topic: str | None) -> tuple[QuotaHistory, QuotaHistory | None]:
    """The quotas to audit, and those that they are compared with."""
    against: str | None = options["against"]
    if topic is not None and options["quotas"] is not None and against != "live":
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


def _require_quotas(settings: AuditSettings) -> None:
    if not any(settings.variants):
        raise InputError("no quotas are set: nobody would be throttled", hint="audit proposed ones with --quotas FILE")


def _run_table(table: str, settings: AuditSettings, master: str | None) -> AuditResult:
    from kquota.audit import spark

    _require_quotas(settings)
    with _progress("starting Spark") as show:
        session = spark.open_session(master)
        show(lambda: spark.progress(session))
        try:
            return spark.audit_table(session, table, settings)
        finally:
            session.stop()


def _run_topic(topic: str, settings: AuditSettings, engine: str, master: str | None) -> AuditResult:
    from kquota.audit.sources.usage_topic import plan_topic

    _require_quotas(settings)
    splits = plan_topic(topic, settings.read.kafka or {})
    with _auditor(splits, engine, master, f"topic {topic}") as audit:
        return audit(settings)


def run(
    paths: Sequence[str],
    source: str,
    settings: AuditSettings,
    engine: str = "auto",
    master: str | None = None,
    what: str | None = None,
) -> AuditResult:
    """Runs an audit on the engine that its size asks for, with its progress on a terminal. Raises InputError.

    Errors call the input `what`, by default by its paths.
    """
    _require_quotas(settings)
    with auditor(paths, source, engine, master, what) as audit:
        return audit(settings)


@contextlib.contextmanager
def auditor(
    paths: Sequence[str], source: str, engine: str, master: str | None, what: str | None = None
) -> Iterator[Callable[[AuditSettings], AuditResult]]:
    """Finds the export and the engine; yields a function that audits the one on the other."""
    from kquota.audit.sources import plan_splits

    # What is wrong with the input is said at once, not after ten seconds of starting Spark.
    splits = plan_splits(paths, source)
    with _auditor(splits, engine, master, ", ".join(paths) if what is None else what) as audit:
        yield audit


@contextlib.contextmanager
def _auditor(
    splits: Sequence[Split], engine: str, master: str | None, what: str
) -> Iterator[Callable[[AuditSettings], AuditResult]]:
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

    session = None

    def run_on_spark(settings: AuditSettings) -> AuditResult:
        nonlocal session
        with _progress("starting Spark") as show:
            if session is None:
                session = spark.open_session(master)
            show(lambda: spark.progress(session))
            return spark.audit(session, splits, settings, what)

    try:
        yield run_on_spark
    finally:
        if session is not None:
            session.stop()


@contextlib.contextmanager
def _progress(first: str) -> Iterator[Callable[[Callable[[], tuple[int, int]]], None]]:
    """A progress bar on stderr when that is a terminal; what it yields takes the function that tells how far it is."""
    if not sys.stderr.isatty():
        yield lambda poll: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    over = threading.Event()
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
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
    return "; ".join(f"{count} × {reason}" for reason, count in _reasons(rejects)[:3])


def _reasons(rejects: Sequence[Reject]) -> list[tuple[str, int]]:
    """Why records could not be read, the most frequent reason first."""
    return Counter(reject.reason for reject in rejects).most_common()


def _write_report(
    path: Path, result: AuditResult, settings: AuditSettings, comparison: Comparison | None, quarantine: Path
) -> None:
    from kquota.cli.report import Report, write_report

    report = Report(
        result.findings.to_pylist(),
        result.timelines,
        result.quality,
        _reasons(result.rejects),
        settings,
        result.engine,
        click.get_current_context().meta[_CALLED],
        str(quarantine),
        comparison,
    )
    write_report(report, path)


def _print_comparison(comparison: Comparison, result: AuditResult, output: str, options: dict[str, Any]) -> None:
    """Prints what changes."""
    from kquota.cli import whatif
    from kquota.cli.text import code

    quality = result.quality
    if output == "csv":
        whatif.print_comparison_csv(comparison)
    elif output == "markdown":
        file, against = options["quotas"], options["against"]
        live = "the live quotas"
        whatif.print_comparison_markdown(
            comparison,
            whatif.Replayed(
                live if against == "live" else code(against), code(file) if file else live, whatif.usage_text(quality)
            ),
        )
    else:
        whatif.print_comparison(comparison)
        note(f"{whatif.summary(comparison)}; {quality.events} requests read ({result.engine} engine)")


def enforcement_of(settings: AuditSettings) -> dict[str, Any]:
    """How brokers are taken to enforce, as documents say it."""
    return {
        "generation": settings.generation.value,
        "quota_window_num": settings.windows.samples,
        "quota_window_size_seconds": settings.windows.window_seconds,
    }


def print_result(
    result: AuditResult, settings: AuditSettings, output: str, comparison: Comparison | None, *, show_all: bool
) -> None:
    """Prints the findings in one of audit's formats."""
    rows: list[dict[str, Any]] = result.findings.to_pylist()
    if output == "json":
        from kquota.documents.audit import audit_document
        from kquota.documents.encoding import to_json

        enforcement = enforcement_of(settings)
        click.echo(
            to_json(audit_document(rows, asdict(result.quality), enforcement, result.engine, comparison)), nl=False
        )
        return
    if output == "csv":
        from kquota.cli.text import print_csv

        headings = [name for name in result.findings.schema.names if name != "clients"]
        print_csv(headings, [[row[name] for name in headings] for row in rows])
        return
    if output == "markdown":
        from kquota.cli.report.markdown import summary

        click.echo(summary(rows, result.quality))
        return
    _print_table(result, rows, [row for row in rows if show_all or row["verdict"] != "not throttled"])


def _print_table(result: AuditResult, rows: list[dict[str, Any]], shown: list[dict[str, Any]]) -> None:
    from kquota.cli.text import Column, period, print_table
    from kquota.core.quota import QuotaKey, humanize

    if shown:
        brokers = len({row["broker"] for row in rows}) > 1
        logs = any(row["logged_throttled_events"] is not None for row in rows)
        print_table(
            [
                *([Column("BROKER")] if brokers else []),
                Column("COUNTER", style="bold"),
                Column("QUOTA", style="cyan", whole=True),
                Column("LIMIT", number=True),
                Column("THROTTLED", number=True),
                Column("TIME", number=True),
                *([Column("LOGGED", number=True, style="dim")] if logs else []),
                Column("WHEN (UTC)", whole=True),
                Column("CLIENTS"),
            ],
            [
                (
                    *([row["broker"]] if brokers else []),
                    row["sensor"],
                    _quota(row),
                    (humanize(QuotaKey(row["key"]), row["limit"]), _peak(row)),
                    _throttled(row),
                    _time(row["throttle_time_ms"], row["throttle_time_max_ms"]),
                    *([_logged(row)] if logs else []),
                    period(row["first_throttled_ms"], row["last_throttled_ms"]),
                    _clients(row),
                )
                for row in shown
            ],
            styles=["red" if row["verdict"] == "throttled" else "yellow" for row in shown],
        )
    throttled = sum(row["verdict"] == "throttled" for row in rows)
    undetermined = sum(row["verdict"] == "undetermined" for row in rows)
    quality = result.quality
    summary = f"{throttled} of {len(rows)} counters throttled"
    if undetermined:
        summary += f", {undetermined} undetermined ({_why_undetermined(rows)})"
    click.echo(
        f"{summary}; {quality.events} {_UNITS.get(_bases(rows), 'requests and samples')} read,"
        f" {quality.ungoverned} without a quota, {quality.exempt} exempt{_spared(quality)} ({result.engine} engine)",
        err=True,
    )


_EXEMPTIONS = {
    "acks_0": "with acks=0",
    "follower_fetch": "of followers",
    "forwarded": "forwarded",
    "inter_broker": "among brokers",
}


def _spared(quality: DataQuality) -> str:
    """The exempt thread time, by reason."""
    from kquota.cli.text import duration

    told = [
        f"{spared.requests} {_EXEMPTIONS[reason]} ({duration(spared.request_time_ns // 1_000_000)})"
        for reason, spared in quality.exemptions.items()
    ]
    return f"; exempt thread time: {', '.join(told)}" if told else ""


def _peak(row: dict[str, Any]) -> str:
    least, most = (None if row[name] is None else f"{100 * row[name] / row['limit']:.0f}%" for name in _PEAKS)
    if least == most:
        return f"peak {least}"
    return f"peak ≥ {least}" if most is None else f"peak {least} to {most}"


_PEAKS = ("peak_rate", "peak_rate_max")
_UNITS = {"requests": "requests", "rates": "samples", "totals": "samples"}


def _bases(rows: list[dict[str, Any]]) -> str:
    """What all findings rest on; empty where that differs."""
    bases = {row["basis"] for row in rows} or {"requests"}
    return bases.pop() if len(bases) == 1 else ""


def _why_undetermined(rows: list[dict[str, Any]]) -> str:
    """Why counters are undetermined."""
    counts: dict[str, int] = {}
    for row in rows:
        if row["reason"] is not None:
            counts[row["reason"]] = counts.get(row["reason"], 0) + 1
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{count}: {reason}" for reason, count in sorted(counts.items(), key=lambda item: -item[1]))


def _quota(row: dict[str, Any]) -> tuple[str, ...]:
    from kquota.core.entity import Entity

    entity = Entity.parse(row["entity"])
    return row["key"], *(f"{kind.value}={name if isinstance(name, str) else name.value}" for kind, name in entity.parts)


def _throttled(row: dict[str, Any]) -> tuple[str, str]:
    throttled, events = row["throttled_events"], row["events"]
    if row["basis"] != "requests":
        return row["verdict"], f"by {events} {row['basis']}"
    if throttled is None:
        return "undetermined", f"of {events}"
    return f"{throttled} ({100 * throttled / events:.0f}%)", f"of {events}"


def _logged(row: dict[str, Any]) -> tuple[str, ...]:
    """What the broker itself said."""
    from kquota.cli.text import duration

    total, longest = row["logged_throttle_time_ms"], row["logged_throttle_time_max_ms"]
    if row["logged_throttled_events"] is None:
        return ("-",)
    return str(row["logged_throttled_events"]), duration(total) if total is not None else f"mean ≤ {duration(longest)}"


def _time(total_ms: int | None, longest_ms: int | None) -> tuple[str, ...]:
    from kquota.cli.text import duration

    if total_ms is None or longest_ms is None:
        return ("-",)
    return duration(total_ms), f"longest {duration(longest_ms)}"


def _clients(row: dict[str, Any]) -> str:
    """The clients behind a counter, without what the counter's own name says of them."""
    user, _, client_id = row["sensor"].partition(":")
    if user and client_id:
        return "-"
    names = [client["user"] if client_id else client["client_id"] or "(empty client-id)" for client in row["clients"]]
    more = row["client_count"] - len(names)
    return ", ".join(names) + (f" and {more} more" if names and more > 0 else "") or "-"
