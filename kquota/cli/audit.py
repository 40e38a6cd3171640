"""`kquota audit`."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kquota.cli import params, session
from kquota.cli.exit_codes import ExitCode
from kquota.errors import InputError, MissingDependency

if TYPE_CHECKING:
    from kquota.audit.batch import Reject
    from kquota.audit.findings import AuditResult, DataQuality
    from kquota.audit.settings import AuditSettings
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
    type=click.Choice(["auto", "request-log", "usage"]),
    default="auto",
    show_default=True,
    help="What the files are: Kafka's request log, or usage tables (Parquet, ORC, CSV, JSON lines).",
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
      spark-submit $(python -m kquota.cli.submit) usage.parquet --quotas proposed.yaml
    """
    if options["against"] is None and "newly-throttled" in fail_on:
        raise click.UsageError("what would change is known with --against live|FILE only")
    if report is not None:
        from kquota.cli.report import check_report

        check_report(report)
    if bool(paths) + (table is not None) + (topic is not None) != 1:
        raise click.UsageError("what to audit: give files, --table NAME or --topic NAME, one of them")
    if table is not None and engine == "local":
        raise click.UsageError("--table is Spark's: it needs --engine spark")
    settings = _settings(options, topic, report is not None)
    if table is not None:
        result = _run_table(table, settings, master)
    else:
        result = _run(paths, topic, source, settings, engine, master)
    _keep_rejects(result, quarantine)
    comparison = None
    if settings.against is not None:
        from kquota.audit.whatif import compare

        comparison = compare(result, settings)
        result = result.naming(options["top"])
    if out is not None:
        result.write(out)
    if report is not None:
        _write_report(report, result, settings, quarantine)
    if comparison is None or output == "json":
        print_result(result, settings, output, comparison, show_all=show_all)
    else:
        _print_comparison(comparison, result, output, options)
    return ExitCode.DIFFERENT if set(fail_on) & _answers(result, comparison) else ExitCode.OK


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


def _settings(options: dict[str, Any], topic: str | None, reported: bool) -> AuditSettings:
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
        against=against,
        top_clients=options["top"] if against is None else None,
        per_client=reported or against is not None,
        timelines=MOST if reported else 0,
        read=ReadSettings(broker=options["broker"], zone=options["log_timezone"], kafka=kafka),
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
    return _on_spark(lambda session: spark.audit_table(session, table, settings), master)


def _run(
    paths: tuple[str, ...], topic: str | None, source: str, settings: AuditSettings, engine: str, master: str | None
) -> AuditResult:
    from kquota.audit import engines
    from kquota.audit.sources import plan_splits
    from kquota.audit.sources.usage_topic import plan_topic

    _require_quotas(settings)
    # What is wrong with the input is said at once, not after ten seconds of starting Spark.
    splits = plan_splits(paths, source) if topic is None else plan_topic(topic, settings.read.kafka or {})
    what = ", ".join(paths) if topic is None else f"topic {topic}"
    if engines.choose(engine, splits, master) == "local":
        from kquota.audit import local

        with _progress("auditing") as show:
            counts = [(0, 0)]
            show(lambda: counts[-1])
            return local.audit(splits, settings, what, progress=lambda done, known: counts.append((done, known)))
    from kquota.audit import spark

    return _on_spark(lambda session: spark.audit(session, splits, settings, what), master)


def _on_spark(run: Callable[[Any], AuditResult], master: str | None) -> AuditResult:
    from kquota.audit import spark

    with _progress("starting Spark") as show:
        session = spark.open_session(master)
        show(lambda: spark.progress(session))
        try:
            return run(session)
        finally:
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


def _keep_rejects(result: AuditResult, quarantine: Path) -> None:
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
        f"kquota: warning: {rejected} {what} cannot be read, quarantined in {quarantine}: {_why(result.rejects)}",
        err=True,
    )


def _why(rejects: tuple[Reject, ...]) -> str:
    return "; ".join(f"{count} × {reason}" for reason, count in _reasons(rejects)[:3])


def _reasons(rejects: tuple[Reject, ...]) -> list[tuple[str, int]]:
    """Why records could not be read, the most frequent reason first."""
    return Counter(reject.reason for reject in rejects).most_common()


def _write_report(path: Path, result: AuditResult, settings: AuditSettings, quarantine: Path) -> None:
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
                live if against == "live" else code(against), code(file) if file else live, replayed_usage(quality)
            ),
        )
    else:
        whatif.print_comparison(comparison)
        click.echo(
            f"{whatif.summary(comparison)}; {quality.events} requests read ({result.engine} engine)",
            err=True,
        )


def replayed_usage(quality: DataQuality) -> str:
    """`300 requests, 2026-03-11 09:00:00 to 09:00:29 UTC`, and what of it could not be read."""
    from kquota.cli.text import period

    text = f"{quality.events} requests, {' '.join(period(quality.first_ms, quality.last_ms))} UTC"
    return f"{text} ({quality.rejected} records cannot be read)" if quality.rejected else text


def print_result(
    result: AuditResult, settings: AuditSettings, output: str, comparison: Comparison | None, *, show_all: bool
) -> None:
    """Prints the findings in one of audit's formats."""
    rows: list[dict[str, Any]] = result.findings.to_pylist()
    if output == "json":
        from kquota.documents.audit import audit_document
        from kquota.documents.encoding import to_json

        enforcement = {
            "generation": settings.generation.value,
            "quota_window_num": settings.windows.samples,
            "quota_window_size_seconds": settings.windows.window_seconds,
        }
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
    from kquota.cli.text import Column, duration, period, print_table
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
                    _throttled(row["throttled_events"], row["events"]),
                    _time(row["throttle_time_ms"], row["throttle_time_max_ms"]),
                    *([(row["logged_throttled_events"], duration(row["logged_throttle_time_ms"]))] if logs else []),
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
        summary += f", {undetermined} undetermined (the export does not hold all that they are charged)"
    click.echo(
        f"{summary}; {quality.events} requests read, {quality.ungoverned} without a quota, {quality.exempt} exempt"
        f"{_spared(quality)}"
        f" ({result.engine} engine)",
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
    share = f"{100 * row['peak_rate'] / row['limit']:.0f}%"
    return f"peak ≥ {share}" if row["verdict"] == "undetermined" else f"peak {share}"


def _quota(row: dict[str, Any]) -> tuple[str, ...]:
    from kquota.core.entity import Entity

    entity = Entity.parse(row["entity"])
    return row["key"], *(f"{kind.value}={name if isinstance(name, str) else name.value}" for kind, name in entity.parts)


def _throttled(throttled: int | None, events: int) -> tuple[str, str]:
    if throttled is None:
        return "undetermined", f"of {events}"
    return f"{throttled} ({100 * throttled / events:.0f}%)", f"of {events}"


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
