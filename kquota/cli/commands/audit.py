"""`kquota audit`."""

from __future__ import annotations

import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kquota.cli import auditing, params, usage
from kquota.cli.exit_codes import ExitCode
from kquota.cli.streams import note, wrote
from kquota.errors import InputError

if TYPE_CHECKING:
    from kquota.audit.findings import AuditResult, DataQuality
    from kquota.audit.settings import AuditSettings
    from kquota.core.findings.closed_loop import Closed, ClosedLoop
    from kquota.core.findings.whatif import Comparison


class _Remembering(click.Command):
    """A command that knows how it was called."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_CALLED] = shlex.join(["kquota", "audit", *args])
        return super().parse_args(ctx, args)


_CALLED = "kquota.audit.called"


@click.command("audit", cls=_Remembering)
@usage.usage_options(samples=True)
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
    "--against",
    metavar="live|FILE",
    help="Other quotas, of the live cluster or of a file: show who is throttled anew, more, less or no longer.",
)
@click.option(
    "--recorded-under",
    metavar="none|FILE",
    help="The quotas that were in force while the usage was recorded; else the throttle times in it show them.",
)
@click.option(
    "--closed-loop",
    is_flag=True,
    help="Also show what clients meet that wait out their throttle, by the likeliest prediction, beside the same"
    " requests at the same times.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["throttled", "undetermined", "newly-throttled"]),
    multiple=True,
    help="Exit with 1 when a client would be throttled, when a counter or a quota that is set is undetermined (with"
    " --against: a quota that differs there), or when a client would be newly throttled compared with --against. May be"
    " given several times.",
)
@params.output_option("table", "json", "csv", "markdown")
def command(
    out: Path | None,
    report: Path | None,
    asked: usage.Asked,
    against: str | None,
    recorded_under: str | None,
    fail_on: tuple[str, ...],
    top: int,
    show_all: bool,
    closed_loop: bool,
    output: str,
) -> int:
    """Show who would be throttled, when, by which quota and by how much.

    Replays recorded usage under the given quotas, exactly as brokers enforce them: Kafka's request log, or a usage
    table. Files may be named by URIs (s3://logs/broker-1/). Times are per broker; every quota holds per broker. The
    quotas may also be a history: a file of periods ('kquota schema quota-history'), or by --quotas-journal.

    Each quota that is set ends in one verdict: throttled, not throttled, undetermined with the reason, or nobody seen,
    where the usage would show whom it governs. A usage table has connections (rows of api connect, with ip), partitions
    and acks for the quotas that need them ('kquota schema usage'); of connections a request log shows a lower bound.

    Samples that monitoring keeps (Prometheus, kafka-jmx, …) do not hold each request: where it follows from them, a
    counter is throttled, or is not; else it is undetermined, between the bounds that are shown.

    With --against the same usage is replayed under both quotas, and what changes is shown: clients are matched
    by who they are, as a quota on another level gives them another counter.

    A file that is damaged does not end the audit: it is named, what can be read of it counts, and the exit code is 9.

    What clients will meet is predicted by the simulator. It runs the recorded clients: as producers that queue, as
    clients that wait for their answers, or as consumers that fetch what has come meanwhile. With --closed-loop the
    most probable of it stands beside what the same requests at the same times would meet.

    \b
    Examples:
      kquota audit kafka-request.log --quotas quotas.yaml
      kquota audit logs/broker-1/ logs/broker-2/ --zookeeper localhost:2181 --out findings/
      kquota audit kafka-request.log --quotas quotas.yaml --report report.html
      kquota audit usage.parquet --quotas proposed.yaml --fail-on throttled
      kquota audit usage.parquet --quotas proposed.yaml --against live --bootstrap-server host:9092
      kquota audit usage.parquet --quotas proposed.yaml --against current.yaml --fail-on newly-throttled -o markdown
      kquota audit kafka-request.log --quotas proposed.yaml --closed-loop
      kquota audit usage.parquet --quotas history.yaml
      kquota audit usage.parquet --bootstrap-server host:9092 --quotas-journal ~/.local/state/kquota/journal
      kquota audit --topic usage --bootstrap-server host:9092
      kquota audit --prometheus http://prometheus:9090 --last 6h --bootstrap-server host:9092 --in-force
      spark-submit $(python -m kquota.cli.submit) usage.parquet --quotas proposed.yaml
    """
    if against is None and "newly-throttled" in fail_on:
        raise click.UsageError("what would change is known with --against live|FILE only")
    if report is not None:
        from kquota.cli.report import check_report

        check_report(report)
    settings = _settings(asked, against, recorded_under, top, reported=report is not None)
    with auditing.auditor(asked.usage, settings, "--closed-loop" if closed_loop else None) as run:
        result = run(settings)
    if closed_loop:
        result = replace(result, closed_loop=_closed_loops(result))
    auditing.keep_rejects(result, asked.quarantine)
    comparison = None
    if settings.against is not None:
        from kquota.audit.whatif import compare

        comparison = compare(result, settings)
        result = result.naming(top)
    if out is not None:
        result.write(out)
    if report is not None:
        _write_report(report, result, settings, comparison, asked.quarantine)
    if comparison is None or output == "json":
        print_result(result, settings, output, comparison, show_all=show_all)
    else:
        _print_comparison(comparison, result, output, asked.quotas.file, against)
    if set(fail_on) & _answers(result, comparison):
        return ExitCode.DIFFERENT
    return ExitCode.PARTIAL if result.quality.unread_files else ExitCode.OK


def _closed_loops(result: AuditResult) -> tuple[ClosedLoop, ...]:
    """The closed loop under the quotas and, where these are compared with others, under those."""
    from kquota.core.findings.closed_loop import closed_loop

    loops = []
    for table, predictions in ((result.findings, result.predictions), (result.before, result.predictions_before)):
        if table is None:
            continue
        alone = {
            (row["broker"], row["key"], row["sensor"]): (row["clients"][0]["user"], row["clients"][0]["client_id"])
            for row in table.to_pylist()
            if row["client_count"] == 1 and row["clients"]
        }
        loops.append(closed_loop(predictions, alone))
    return tuple(loops)


def _answers(result: AuditResult, comparison: Comparison | None) -> set[str]:
    """What is true of what `--fail-on` can name."""
    if comparison is None:
        answers = {"throttled": result.throttled, "undetermined": result.undetermined}
    else:
        from kquota.core.findings.whatif import Outcome

        answers = {
            "throttled": result.throttled,
            "undetermined": comparison.undetermined,
            "newly-throttled": comparison.count(Outcome.NEWLY_THROTTLED) > 0,
        }
    return {answer for answer, true in answers.items() if true}


def _settings(
    asked: usage.Asked, against: str | None, recorded_under: str | None, top: int, *, reported: bool
) -> AuditSettings:
    from kquota.cli.report import MOST

    settings = asked.settings(against, recorded_under)
    snapshots = [snapshot for variant in settings.variants for snapshot in variant.snapshots]
    if not any(snapshots) and not any(snapshot.ignored for snapshot in snapshots):
        raise InputError("no quotas are set: nobody would be throttled", hint="audit proposed ones with --quotas FILE")
    compared = settings.against is not None
    return replace(
        settings,
        top_clients=None if compared else top,
        per_client=reported or compared,
        timelines=MOST if reported else 0,
    )


def _write_report(
    path: Path, result: AuditResult, settings: AuditSettings, comparison: Comparison | None, quarantine: Path
) -> None:
    from kquota.cli.report import Report, write_report

    report = Report(
        result.findings.to_pylist(),
        result.timelines,
        result.quality,
        auditing.reasons(result.rejects),
        settings,
        result.engine,
        click.get_current_context().meta[_CALLED],
        str(quarantine),
        comparison,
        result.quotas,
    )
    write_report(report, path)
    wrote(path)


def _print_comparison(
    comparison: Comparison, result: AuditResult, output: str, file: Path | None, against: str | None
) -> None:
    """Prints what changes."""
    from kquota.cli import whatif
    from kquota.cli.text import code

    if output == "csv":
        whatif.print_comparison_csv(comparison)
        _note_quotas(result, counts=False)
    elif output == "markdown":
        live = "the live quotas"
        whatif.print_comparison_markdown(
            comparison,
            whatif.Replayed(
                live if against in (None, "live") else code(against),
                code(file) if file else live,
                whatif.usage_text(result),
            ),
        )
        _print_closed_loop(result)
    else:
        whatif.print_comparison(comparison)
        note(f"{whatif.summary(comparison)}; {whatif.records(result)} read ({result.engine} engine)")
        _note_quotas(result, counts=False)
        _say_how_on_spark(result)
        for line in _closed_loop_lines(result):
            note(line)


def print_result(
    result: AuditResult, settings: AuditSettings, output: str, comparison: Comparison | None, *, show_all: bool
) -> None:
    """Prints the findings in one of audit's formats."""
    rows: list[dict[str, Any]] = result.findings.to_pylist()
    if output == "json":
        from kquota.documents.audit import audit_document
        from kquota.documents.encoding import to_json

        enforcement = auditing.enforcement_of(settings)
        click.echo(
            to_json(
                audit_document(
                    rows,
                    asdict(result.quality),
                    enforcement,
                    result.engine,
                    comparison,
                    result.closed_loop,
                    result.quotas,
                    result.predictions,
                )
            ),
            nl=False,
        )
        return
    if output == "csv":
        from kquota.cli.text import print_csv

        headings = [name for name in result.findings.schema.names if name != "clients"]
        lines = [[row[name] for name in headings] for row in rows]
        if result.closed_loop:
            headings += [f"closed_loop_{name}" for name in _CLOSED]
            for line, row in zip(lines, rows, strict=True):
                closed = _closed(result, row)
                line += [None if closed is None else getattr(closed, name) for name in _CLOSED]
        print_csv(headings, lines)
        _note_quotas(result, counts=False)
        return
    if output == "markdown":
        from kquota.cli.report.markdown import summary

        click.echo(summary(rows, result.quality, result.quotas))
        _print_closed_loop(result)
        return
    _print_table(result, rows, [row for row in rows if show_all or row["verdict"] != "not throttled"])


def _print_table(result: AuditResult, rows: list[dict[str, Any]], shown: list[dict[str, Any]]) -> None:
    from kquota.cli.text import Column, period, print_table, records_text
    from kquota.core.quotas.quota import QuotaKey, humanize

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
                    (*_throttled(row), *_closed_events(result, row)),
                    (*_time(row["throttle_time_ms"], row["throttle_time_max_ms"]), *_closed_time(result, row)),
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
    note(
        f"{summary}; {records_text(quality.events, (row['basis'] for row in rows))} read,"
        f" {quality.ungoverned} without a quota, {quality.exempt} exempt{_spared(quality)}{_unread(quality)}"
        f" ({result.engine} engine)"
    )
    _note_quotas(result)
    _say_how_on_spark(result)
    for line in _closed_loop_lines(result):
        note(line)


def _note_quotas(result: AuditResult, *, counts: bool = True) -> None:
    """Says what became of each quota that is set; without `counts` only of those that nobody can judge, or meets."""
    from kquota.cli.verdicts import lines

    for line in lines(result.quotas, counts=counts):
        note(line)


_CLOSED = ("throttled_events", "throttle_time_ms", "throttle_time_max_ms")
_MOST_DELAYED = 5


def _closed(result: AuditResult, row: dict[str, Any]) -> Closed | None:
    """What the counter of a finding did in the closed loop; None where only the open loop is known."""
    return result.closed_loop[0].counters.get((row["broker"], row["key"], row["sensor"]))


def _closed_events(result: AuditResult, row: dict[str, Any]) -> tuple[str, ...]:
    if not result.closed_loop:
        return ()
    closed = _closed(result, row)
    return ("open loop only",) if closed is None else (f"closed loop {closed.throttled_events}",)


def _closed_time(result: AuditResult, row: dict[str, Any]) -> tuple[str, ...]:
    from kquota.cli.text import duration

    closed = _closed(result, row) if result.closed_loop else None
    if closed is None:
        return ()
    return f"closed loop {duration(closed.throttle_time_ms)}", f"longest {duration(closed.throttle_time_max_ms)}"


def _closed_loop_lines(result: AuditResult) -> list[str]:
    """The closed loop beside the open one, over the counters that both know, and who comes later in it."""
    from kquota.cli.text import code, duration

    if not result.closed_loop:
        return []
    loop, *before = result.closed_loop
    rows = result.findings.drop_columns(["clients"]).to_pylist()
    opened = sum(row["throttle_time_ms"] or 0 for row in rows if _closed(result, row) is not None)
    line = f"throttle time: open loop {duration(opened)}, closed loop {duration(loop.throttle_time_ms)}"
    if before:
        line += f" ({duration(before[0].throttle_time_ms)} under the quotas of --against)"
    lines = [line]
    late = [(delay, *client) for client, delay in loop.delays.items() if delay is None or delay >= 1000]
    late.sort(key=lambda each: (each[0] is not None, -(each[0] or 0), *each[1:]))
    if late:
        named = [
            f"{code(f'{user}:{client_id}')} by {duration(delay)}"
            if delay is not None
            else f"{code(f'{user}:{client_id}')} never"
            for delay, user, client_id in late[:_MOST_DELAYED]
        ]
        more = f" and {len(late) - _MOST_DELAYED} more" if len(late) > _MOST_DELAYED else ""
        lines.append(f"in the closed loop the last request comes later: {', '.join(named)}{more}")
    return lines


def _print_closed_loop(result: AuditResult) -> None:
    """The same as paragraphs of Markdown."""
    for text in _closed_loop_lines(result):
        click.echo(f"\n{text[0].upper()}{text[1:]}.")


def _spared(quality: DataQuality) -> str:
    """The exempt thread time, by reason."""
    from kquota.cli.report.words import EXEMPTIONS
    from kquota.cli.text import duration

    told = [
        f"{spared.requests} {EXEMPTIONS[reason]} ({duration(spared.request_time_ns // 1_000_000)})"
        for reason, spared in quality.exemptions.items()
    ]
    return f"; exempt thread time: {', '.join(told)}" if told else ""


def _say_how_on_spark(result: AuditResult) -> None:
    """How the same audit runs on Spark, where it did not."""
    if result.engine == "local" and not result.closed_loop:
        note("on Spark, with the same findings: --engine spark, or spark-submit $(python -m kquota.cli.submit) …")


def _unread(quality: DataQuality) -> str:
    """How many files could not be read to their ends."""
    from kquota.cli.text import many

    return f"; {many(len(quality.unread_files), 'file')} not read to the end" if quality.unread_files else ""


def _peak(row: dict[str, Any]) -> str:
    if not row["limit"] > 0:
        return ""
    least, most = (None if row[name] is None else f"{100 * row[name] / row['limit']:.0f}%" for name in _PEAKS)
    if least == most:
        return f"peak {least}"
    return f"peak ≥ {least}" if most is None else f"peak {least} to {most}"


_PEAKS = ("peak_rate", "peak_rate_max")


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
    from kquota.core.quotas.entity import Entity

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
    from kquota.core.quotas.quota import QuotaKey

    user, _, client_id = row["sensor"].partition(":")
    if (user and client_id) or row["key"] == QuotaKey.CONNECTION_CREATION_RATE.value:
        return "-"
    names = [client["user"] if client_id else client["client_id"] or "(empty client-id)" for client in row["clients"]]
    more = row["client_count"] - len(names)
    return ", ".join(names) + (f" and {more} more" if names and more > 0 else "") or "-"
