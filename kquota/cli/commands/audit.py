"""`kquota audit`."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kquota.audit.stream import TOPIC
from kquota.cli import auditing, following, session, usage, whatif
from kquota.cli.exit_codes import ExitCode
from kquota.cli.streams import note, wrote
from kquota.cli.views import Csv, Document, Note, Part, Table, View, check_sorting, shown_as
from kquota.core.findings.finding import Basis
from kquota.core.findings.verdicts import Verdict
from kquota.core.quotas.quota import QuotaKey
from kquota.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kquota.audit.result import AuditResult, DataQuality
    from kquota.audit.run import Audit
    from kquota.audit.settings import AuditSettings
    from kquota.core.findings.closed_loop import Closed, ClosedLoop
    from kquota.core.findings.finding import Finding
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
@usage.recorded_under_option
@click.option(
    "--closed-loop",
    is_flag=True,
    help="Also show what clients meet that wait out their throttle, by the likeliest prediction, beside the same"
    " requests at the same times.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["throttled", "undetermined", "newly-throttled", "throttled-more"]),
    multiple=True,
    help="Exit with 1 when a client would be throttled, when a counter or a quota that is set is undetermined (with"
    " --against: a quota that differs there), or when a client would be newly throttled, or throttled more, compared"
    " with --against. May be given several times.",
)
@following.options
@shown_as("table", "wide", "json", "csv", "markdown", takes_output=True)
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
    follow: bool,
    until_idle: int | None,
    checkpoint: Path | None,
    settle: int | None,
    episodes: tuple[str, ...],
    keep: int,
    output: str,
) -> View:
    """Show who would be throttled, when, by which quota and by how much.

    Replays recorded usage (Kafka's request log, or a usage table) under the given quotas, by the broker's own rules.
    Every quota holds per broker, and so do the times in the table. 'kquota help columns' explains the columns. Files
    may be named by URIs (s3://logs/broker-1/). The quotas may also be a history: a file of periods ('kquota schema
    quota-history'), or by --quotas-journal.

    Without quotas it shows whom the brokers throttled by what the recording itself says: client, share, longest, when.
    By which quota is not known then. What judges quotas, such as --fail-on, asks for them.

    Each quota that is set ends in one verdict: throttled, not throttled, undetermined with the reason, or nobody seen.
    Nobody seen means that the usage would show the clients of the quota, and there are none. Some quotas need more
    columns of a usage table, such as connections, partitions and acks ('kquota schema usage'). Of connections a request
    log shows a lower bound.

    Samples of monitoring (Prometheus, kafka-jmx, …) do not hold each request. Where they decide it, a counter is
    throttled or not throttled. Otherwise it is undetermined, between the bounds in the table.

    With --against the same usage is replayed under both quotas, and the table shows the clients for whom something
    changes. Clients are compared one by one, because a quota on another level gives a client another counter.

    A damaged file does not end the audit: the file is named, its readable part counts, and the exit code is 9.

    Clients that were held back while the usage was recorded may want more than they got. Under a higher limit they are
    undetermined, with the least rate that they wanted. The throttle times in the usage show the clients that were held
    back. Where the usage has none, --recorded-under names the quotas that were in force.

    The simulator predicts how long clients wait. It runs the recorded clients as producers that queue, as clients that
    wait for their answers, or as consumers that catch up. With --closed-loop the most probable prediction stands beside
    the replay of the same requests at the same times.

    With --follow, files are read as they grow, are rotated and come anew. A line is printed when a counter begins to
    throttle its clients, and when it ended: the peak, the loudest clients, and the limit that would have been enough.
    Topic changes and connections of a request log are judged at the end only. The findings at the end are the findings
    of the audit of the same files. For them the requests are kept on the disk, up to --keep. With --until-idle nothing
    but the findings is printed. With --checkpoint the same command goes on where it stopped, or was killed. The quotas
    of a live cluster are followed too: a change counts from the moment on when it is seen.

    \b
    Examples:
      kquota audit kafka-request.log
      kquota audit kafka-request.log --quotas quotas.yaml
      kquota audit logs/broker-1/ logs/broker-2/ --zookeeper localhost:2181 --out findings/
      kquota audit kafka-request.log --quotas quotas.yaml --report report.html
      kquota audit usage.parquet --quotas proposed.yaml --fail-on throttled
      kquota audit usage.parquet --quotas proposed.yaml --against live --bootstrap-server host:9092
      kquota audit usage.parquet --quotas proposed.yaml --against current.yaml --fail-on newly-throttled -o markdown
      kquota audit kafka-request.log --quotas proposed.yaml --closed-loop
      kquota audit usage.parquet --quotas history.yaml
      kquota audit usage.parquet --bootstrap-server host:9092 --quotas-journal ~/.local/state/kquota/journal
      kquota audit logs/broker-1/ --quotas quotas.yaml --follow --checkpoint kept/
      kquota audit kafka-request.log --quotas quotas.yaml --follow --until-idle 5s -o json
      kquota audit logs/ --bootstrap-server host:9092 --follow --checkpoint kept/ --episodes topic:throttled
      kquota audit --topic usage --bootstrap-server host:9092
      kquota audit --prometheus http://prometheus:9090 --last 6h --bootstrap-server host:9092 --in-force
      spark-submit $(python -m kquota.cli.submit) usage.parquet --quotas proposed.yaml
    """
    if output in ("table", "wide"):
        check_sorting(_COLUMNS if against is None else whatif.COLUMNS)
    if against is None and {"newly-throttled", "throttled-more"} & set(fail_on):
        raise click.UsageError("what would change is known with --against live|FILE only")
    if report is not None:
        from kquota.cli.report import check_report

        check_report(report)
    to_topic = follow and any(target.startswith(TOPIC) for target in episodes)
    wants = {
        "--fail-on": fail_on,
        "--against": against,
        "--out": out,
        "--report": report,
        "--closed-loop": closed_loop,
        "--follow": follow,
        "--recorded-under": recorded_under,
        "--quotas-journal": asked.journal,
        "--in-force": asked.in_force,
    }
    needs = next((name for name, value in wants.items() if value), None)
    settings = _settings(
        asked, against, recorded_under, top, reported=report is not None, writes_topic=to_topic, needs=needs
    )
    from kquota.audit.held_back import audited

    lines = follow and until_idle is None
    if settings.read.by_client:
        return _without_quotas(asked, settings, show_all=show_all)
    if follow:
        how = following.Following(until_idle, checkpoint, settle, episodes, keep)
        if to_topic:
            kafka, timeout_s = asked.topic_client()
            how = replace(how, kafka=kafka, timeout_s=timeout_s)
        run, settings = _followed(asked, settings, how, output if lines else "", _live(asked, settings, against))
        result = audited(run, settings)
    else:
        following.refuse_without_follow(
            {"until-idle": until_idle, "checkpoint": checkpoint, "settle": settle, "episodes": episodes}
        )
        with auditing.auditor(asked.usage, settings, "--closed-loop" if closed_loop else None) as run:
            result = audited(run, settings)
    if closed_loop:
        result = replace(result, closed_loop=_closed_loops(result))
    auditing.keep_rejects(result, asked.quarantine)
    auditing.say_recorded_under(result, settings)
    comparison = None
    if settings.against is not None:
        from kquota.audit.whatif import compare

        comparison = compare(result, settings)
        result = result.naming(top)
    if out is not None:
        result.write(out)
    if report is not None:
        _write_report(report, result, settings, comparison, asked.quarantine)
    code = ExitCode.PARTIAL if result.quality.unread_files else ExitCode.OK
    if set(fail_on) & _answers(result, comparison):
        code = ExitCode.DIFFERENT
    set_in = _quotas_from(asked, result)
    if asked.quotas.file is None and (comparison is not None or output not in ("table", "wide")):
        note(f"quotas: {set_in}")
    view = audited_view(
        result, settings, comparison, show_all=show_all, reported=report is not None, quotas_from=set_in
    )
    if comparison is not None:
        view = _compared(view, comparison, result, asked.quotas.file, against)
    if lines and view.document is not None:
        # Lines of episodes came before it.
        view = replace(view, document=functools.partial(_in_a_line, view.document))
    return replace(view, code=code)


def _without_quotas(asked: usage.Asked, settings: AuditSettings, *, show_all: bool) -> View:
    """What the usage itself says, where no quotas are given, or none are set."""
    from kquota.cli.logged import logged_view

    with auditing.auditor(asked.usage, settings, "an audit without quotas") as run:
        result = run(settings)
    auditing.keep_rejects(result, asked.quarantine)
    if asked.quotas.is_named:
        place = asked.quotas.file or session.label(asked.quotas.live.cluster.access())
        why = f"no quotas are set in {place}: it would throttle nobody; --quotas FILE tries others"
    else:
        why = (
            "the quotas are not known: --quotas FILE, --bootstrap-server HOST:PORT or --zookeeper HOST:PORT names them"
        )
    view = logged_view(result, settings, why, show_all=show_all)
    return replace(view, code=ExitCode.PARTIAL if result.quality.unread_files else ExitCode.OK)


def _quotas_from(asked: usage.Asked, result: AuditResult) -> str:
    """Where the quotas come from, and how many there are: `quotas.yaml (7 set)`, `live, localhost:2181 (11 set)`."""
    from kquota.cli.text import safe

    file = asked.quotas.file
    place = str(file) if file is not None else f"live, {session.label(asked.quotas.live.cluster.access())}"
    return safe(f"{place} ({len(result.quotas)} set)")


def _in_a_line(document: Callable[[], Document | Iterator[Document]]) -> Iterator[Document]:
    """The document as the last of several, which are a line each."""
    found = document()
    yield from (found,) if isinstance(found, Mapping) else found


def _live(asked: usage.Asked, settings: AuditSettings, against: str | None) -> following.LiveQuotas | None:
    """The quotas whose changes count while files are followed: those of a cluster, unless a journal leads to them."""
    variant = 1 if against == "live" else 0
    access = asked.quotas.live.access if variant else asked.quotas.access
    if access is None or asked.journal is not None:
        return None
    known = asked.facts.settings()
    return following.LiveQuotas(variant, access, lambda snapshot: asked.facts.enforced(snapshot, known))


def _followed(
    asked: usage.Asked,
    settings: AuditSettings,
    how: following.Following,
    output: str,
    live: following.LiveQuotas | None,
) -> tuple[Audit, AuditSettings]:
    """An audit that has followed its files, and the settings with the quotas that were seen.

    Prints episodes on the way in that format (empty: not). Other settings than these are audited on the files that are
    there in the end.
    """
    how.check(asked.usage)
    show = {"json": following.show_json, "table": following.show_text, "wide": following.show_text}.get(output)
    followed, seen = following.follow(asked.usage, settings, how, show, live)

    def run(its: AuditSettings) -> AuditResult:
        if its == seen:
            return followed
        with auditing.auditor(asked.usage, its) as batch:
            return batch(its)

    return run, seen


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
    answers = {"throttled"} if result.throttled else set()
    if comparison is not None:
        return answers | comparison.answers
    return answers | {"undetermined"} if result.undetermined else answers


def _settings(
    asked: usage.Asked,
    against: str | None,
    recorded_under: str | None,
    top: int,
    *,
    reported: bool,
    writes_topic: bool,
    needs: str | None,
) -> AuditSettings:
    """The settings; `needs` is an option that needs quotas. Without one the brokers' own answers are counted."""
    from kquota.cli.report import MOST

    settings = asked.settings(against, recorded_under, writes_topic=writes_topic, needs_quotas=needs is not None)
    snapshots = [snapshot for variant in settings.variants for snapshot in variant.snapshots]
    if not any(snapshots) and not any(snapshot.ignored for snapshot in snapshots):
        if needs is not None:
            hint = f"{needs} needs quotas: audit proposed ones with --quotas FILE"
            raise InputError("no quotas are set: nobody would be throttled", hint=hint)
        return replace(settings, read=replace(settings.read, by_client=True))
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
        list(result.found),
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


def _compared(view: View, comparison: Comparison, result: AuditResult, file: Path | None, against: str | None) -> View:
    """What changes, in the formats of an audit; the document of an audit holds it already."""
    from kquota.cli.text import code

    def screen() -> Iterator[Part]:
        yield Note(whatif.summary(comparison))
        yield from whatif.comparison_screen(comparison)
        yield Note(f"{whatif.records(result)} read ({result.engine} engine)")
        yield from _about_quotas(result, counts=False)
        yield from _how_on_spark(result)
        yield from map(Note, _closed_loop_lines(result))

    def csv() -> Iterator[Part]:
        yield whatif.comparison_csv(comparison)
        yield from _about_quotas(result, counts=False)

    def markdown() -> Iterator[Part]:
        live = "the live quotas"
        before = live if against in (None, "live") else code(against)
        replayed = whatif.Replayed(before, code(file) if file else live, whatif.usage_text(result))
        yield from whatif.comparison_markdown(comparison, replayed)
        yield from _closed_loop_markdown(result)

    return replace(view, screen=screen, csv=csv, others={"wide": screen, "markdown": markdown})


def audited_view(
    result: AuditResult,
    settings: AuditSettings,
    comparison: Comparison | None,
    *,
    show_all: bool,
    reported: bool = False,
    quotas_from: str = "",
) -> View:
    """The findings in audit's formats; `reported` says that there is a page of them already.

    `quotas_from` names where the quotas come from.
    """
    findings = result.found

    def document() -> Document:
        from kquota.documents.audit import audit_document

        return audit_document(
            findings,
            auditing.data_of(result.quality),
            auditing.enforcement_of(settings),
            result.engine,
            comparison,
            result.closed_loop,
            result.quotas,
            auditing.recorded_under_of(result, settings),
            result.quality.answers,
        )

    def csv() -> Iterator[Part]:
        yield _csv(result, list(findings))
        yield from _about_quotas(result, counts=False)

    def markdown() -> Iterator[Part]:
        from kquota.cli.report.markdown import summary

        yield summary(list(findings), result.quality, result.quotas)
        yield from _closed_loop_markdown(result)

    def screen(*, wide: bool = False) -> Iterator[Part]:
        # Values once, as a screen goes through them several times.
        every = list(findings)
        shown: Sequence[Finding]
        shown = [found for found in every if show_all or found.throttled or found.undetermined]
        folded: Sequence[Finding] = ()
        if not show_all:
            shown, folded = _fold(shown)
        return _screen(result, settings, every, shown, folded, quotas_from, wide=wide, reported=reported)

    return View(
        screen=screen,
        document=document,
        csv=csv,
        others={"wide": functools.partial(screen, wide=True), "markdown": markdown},
    )


_PREDICTED = ("throttle_time_max_ms", "muted_share", "delivered_per_s", "wanted_per_s", "done_ms", "left_units")
"""What CSV has of a prediction, with the two bounds of each."""
_OPEN_LOOP = ("throttled_events", "throttle_time_ms")


def _csv(result: AuditResult, findings: Sequence[Finding]) -> Csv:
    """The findings table as CSV, and what is predicted; what only an open loop says is named so."""
    rows = {
        (row["broker"], row["key"], row["sensor"]): row for row in result.findings.drop_columns(["clients"]).to_pylist()
    }
    names = [name for name in result.findings.schema.names if name != "clients"]
    headings = [f"open_loop_{name}" if name in _OPEN_LOOP else name for name in names]
    lines = [[rows[found.name][name] for name in names] for found in findings]
    if result.closed_loop:
        headings += [f"closed_loop_{name}" for name in _CLOSED]
        for line, found in zip(lines, findings, strict=True):
            closed = _closed(result, found)
            line += [None if closed is None else getattr(closed, name) for name in _CLOSED]
    if any(found.prediction is not None for found in findings):
        headings += ["client_kind", *(f"predicted_{name}_{end}" for name in _PREDICTED for end in ("low", "high"))]
        headings += ["times_out"]
        for line, found in zip(lines, findings, strict=True):
            told = found.prediction
            if told is None:
                line += [None] * (2 * len(_PREDICTED) + 2)
                continue
            ends = [end for name in _PREDICTED for each in (getattr(told, name),) for end in (each.low, each.high)]
            line += [told.client_kind, *ends, str(told.times_out).lower()]
    return Csv(headings, lines)


_COLUMNS = (
    *("BROKER", "WHO", "COUNTER", "QUOTA", "LIMIT", "PEAK", "DELAYED", "MUTED", "LONGEST", "DELIVERED", "LOGGED"),
    *("WHEN (UTC)", "CLIENTS"),
)
"""The columns that a table of findings can have."""


def _fold(shown: Sequence[Finding]) -> tuple[Sequence[Finding], Sequence[Finding]]:
    """(the rows of a table, the undetermined counters that it leaves out beside counters that somebody met).

    Left out are counters whose clients the log shows unthrottled, and ips that it shows no connection of.
    """

    def met(found: Finding) -> bool:
        return found.throttled or (found.logged is not None and found.logged.throttled_events > 0)

    def unmet(found: Finding) -> bool:
        return not met(found) and (found.logged is not None or found.events == 0)

    if not any(map(met, shown)):
        return shown, ()
    return [found for found in shown if not unmet(found)], [found for found in shown if unmet(found)]


def _screen(
    result: AuditResult,
    settings: AuditSettings,
    findings: Sequence[Finding],
    shown: Sequence[Finding],
    folded: Sequence[Finding],
    quotas_from: str,
    *,
    wide: bool,
    reported: bool,
) -> Iterator[Part]:
    """The answer in a sentence, the counters, and what to do next."""
    from kquota.cli.report import words
    from kquota.cli.text import many, records_text, safe

    quality = result.quality
    yield Note(safe(words.answer(findings, quality.answers, result.quotas)))
    if quotas_from:
        yield Note(safe(f"quotas: {quotas_from}"))
    if shown:
        yield _table(result, settings, findings, shown, wide=wide)
    if folded:
        named = ", ".join(f"{found.subject} {found.key.value}" for found in folded[:_MOST_DELAYED])
        more = f" and {len(folded) - _MOST_DELAYED} more" if len(folded) > _MOST_DELAYED else ""
        text = f"{many(len(folded), 'undetermined limit')} without a throttled request in the log: {named}{more}"
        yield Note(safe(f"{text} (--all shows them)"))
    others = words.throttled_clients(words.ungoverned(findings, quality.answers))
    if others and any(found.throttled for found in findings):
        yield Note(safe(f"the log also shows throttled clients that none of these quotas governs: {others}"))
    if any(words.times_out(found) for found in findings):
        yield Note("times out: the wait is longer than the clients' time-out, so they reconnect and send again")
    if any(found.prediction is not None for found in shown):
        yield Note("muted: the broker holds a connection back, and reads nothing from it ('kquota help columns')")
    undetermined = [found for found in findings if found.undetermined]
    said = " ".join(quota.reason or "" for quota in result.quotas if quota.verdict is Verdict.UNDETERMINED)
    if any((found.reason or "") not in said for found in undetermined):
        yield Note(f"undetermined: {_why_undetermined(undetermined)}")
    yield Note(
        f"{records_text(quality.events, (found.basis.value for found in findings))} read,"
        f" {quality.ungoverned:,} without a quota, {quality.exempt:,} exempt{_spared(quality)}{_unread(quality)}"
        f" ({result.engine} engine)"
    )
    yield from _about_quotas(result, counts=False)
    yield from map(Note, _closed_loop_lines(result))
    if any(found.throttled for found in findings):
        pages = "" if reported else "--report FILE.html shows when and who; "
        yield Note(f"next: {pages}'kquota recommend' proposes limits that are enough")
    yield from _how_on_spark(result)


def _table(
    result: AuditResult,
    settings: AuditSettings,
    findings: Sequence[Finding],
    shown: Sequence[Finding],
    *,
    wide: bool,
) -> Table:
    from kquota.cli.report import words
    from kquota.cli.text import Column, entity_text

    brokers = len({found.broker for found in findings}) > 1
    logs = any(found.logged is not None for found in findings)
    predicted = any(found.prediction is not None for found in findings)
    held = any(found.held_back for found in findings)
    day, when = _when(shown)
    return Table(
        [
            *([Column("BROKER")] if brokers else []),
            Column("WHO", style="bold"),
            *([Column("COUNTER")] if wide else []),
            Column("QUOTA", style="cyan", least=min(_KEY, max(len(found.key.value) for found in shown))),
            Column("LIMIT", number=True),
            Column("PEAK", number=True, spare=6),
            Column("DELAYED", number=True),
            *([Column("MUTED", number=True, spare=3)] if predicted else []),
            Column("LONGEST", number=True, spare=1 if brokers else 0),
            *([Column("DELIVERED", spare=4)] if predicted or held else []),
            *([Column("LOGGED", number=True, style="dim", spare=5)] if logs else []),
            Column(f"WHEN ({day}UTC)", spare=2, least=_WHEN),
            Column("CLIENTS", spare=7),
        ],
        [
            (
                *([found.broker] if brokers else []),
                found.subject,
                *([found.sensor] if wide else []),
                (found.key.value, f"of {entity_text(found.entity)}"),
                words.limit_parts(found, settings.quotas),
                _peak(found),
                (*_delayed(found), *_closed_events(result, found)),
                *([words.muted(found)] if predicted else []),
                (*_longest(found), "times out" if words.times_out(found) else ""),
                *([(*words.delivered_parts(found), words.behind(found))] if predicted or held else []),
                *([_logged(found)] if logs else []),
                times,
                _clients(found),
            )
            for found, times in zip(shown, when, strict=True)
        ],
        ["" if found.throttled else "yellow" if found.undetermined else "dim" for found in shown],
    )


_KEY, _WHEN = 20, 11
"""The widths of a key, the longest in two lines, and of a time with a word beside it."""


def _when(shown: Sequence[Finding]) -> tuple[str, list[tuple[str, ...]]]:
    """(the day of all throttles and a blank, nothing where there are several; the first and the last throttle)."""
    from kquota.cli.text import period

    periods = [period(found.first_throttled_ms, found.last_throttled_ms) for found in shown]
    days = {parts[0] for parts in periods if parts != ("-",)}
    if len(days) != 1 or any(len(parts) not in (1, 3) for parts in periods):
        return "", periods
    return f"{days.pop()} ", [parts[-2:] for parts in periods]


def _about_quotas(result: AuditResult, *, counts: bool = True) -> Iterator[Part]:
    """What became of each quota that is set; without `counts` only of those that nobody can judge, or meets."""
    from kquota.cli.verdicts import lines

    return map(Note, lines(result.quotas, counts=counts))


_CLOSED = ("throttled_events", "throttle_time_ms", "throttle_time_max_ms")
_MOST_DELAYED = 5


def _closed(result: AuditResult, found: Finding) -> Closed | None:
    """What the counter of a finding did in the closed loop; None where only the open loop is known."""
    return result.closed_loop[0].counters.get(found.name)


def _closed_events(result: AuditResult, found: Finding) -> tuple[str, ...]:
    from kquota.cli.text import duration

    if not result.closed_loop:
        return ()
    closed = _closed(result, found)
    if closed is None:
        return ("open loop only",)
    return (f"closed loop {closed.throttled_events}", f"longest {duration(closed.throttle_time_max_ms)}")


def _closed_loop_lines(result: AuditResult) -> list[str]:
    """Who comes later when each connection waits out its throttle."""
    from kquota.cli.text import code, duration

    if not result.closed_loop:
        return []
    late = [
        (delay, *client) for client, delay in result.closed_loop[0].delays.items() if delay is None or delay >= 1000
    ]
    late.sort(key=lambda each: (each[0] is not None, -(each[0] or 0), *each[1:]))
    if not late:
        return []
    named = [
        f"{code(f'{user}:{client_id}')} by {duration(delay)}"
        if delay is not None
        else f"{code(f'{user}:{client_id}')} never"
        for delay, user, client_id in late[:_MOST_DELAYED]
    ]
    more = f" and {len(late) - _MOST_DELAYED} more" if len(late) > _MOST_DELAYED else ""
    return [f"in the closed loop the last request comes later: {', '.join(named)}{more}"]


def _closed_loop_markdown(result: AuditResult) -> Iterator[str]:
    """The same as paragraphs of Markdown."""
    for text in _closed_loop_lines(result):
        yield f"\n{text[0].upper()}{text[1:]}."


def _spared(quality: DataQuality) -> str:
    """The exempt thread time, by reason."""
    from kquota.cli.report.words import EXEMPTIONS
    from kquota.cli.text import duration

    told = [
        f"{spared.requests:,} {EXEMPTIONS[reason]} ({duration(spared.request_time_ns // 1_000_000)})"
        for reason, spared in quality.exemptions.items()
    ]
    return f"; not charged for their thread time: {', '.join(told)}" if told else ""


def _how_on_spark(result: AuditResult) -> Iterator[Part]:
    """How the same audit runs on Spark, where it did not."""
    if result.engine == "local" and not result.closed_loop:
        yield Note("the same on Spark: --engine spark, or spark-submit $(python -m kquota.cli.submit) …")


def _unread(quality: DataQuality) -> str:
    """How many files could not be read to their ends."""
    from kquota.cli.text import many

    return f"; {many(len(quality.unread_files), 'file')} not read to the end" if quality.unread_files else ""


def _why_undetermined(findings: Sequence[Finding]) -> str:
    """Why counters are undetermined."""
    counts: dict[str, int] = {}
    for found in findings:
        reason = found.reason or ""
        counts[reason] = counts.get(reason, 0) + 1
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{count}: {reason}" for reason, count in sorted(counts.items(), key=lambda item: -item[1]))


def _peak(found: Finding) -> tuple[str, str]:
    """The highest rate, and its share of the limit below it; a request quota is a percentage itself."""
    from kquota.cli.report import words

    measured, of_limit = words.peak_parts(found)
    in_percent = found.key is QuotaKey.REQUEST_PERCENTAGE
    return measured, f"{of_limit} of limit" if of_limit and in_percent else of_limit


def _delayed(found: Finding) -> tuple[str, ...]:
    """Which of the requests would be throttled if they came as they were recorded."""
    from kquota.cli.report import words

    if found.throttled_events is None or found.basis is not Basis.REQUESTS:
        basis = "" if found.basis is Basis.REQUESTS else found.basis.value
        return found.verdict.value, f"of {found.events:,} {basis}".rstrip()
    return words.share(found.throttled_events, found.events), f"of {found.events:,}"


def _longest(found: Finding) -> tuple[str, ...]:
    """The longest wait; the word before a number that the log shows stands above it, as the column is narrow."""
    from kquota.cli.report import words

    told = words.longest(found)
    number = told.removeprefix(f"{words.LOGGED} ")
    return (told,) if number == told else (words.LOGGED, number)


def _logged(found: Finding) -> tuple[str, ...]:
    """What the broker itself said."""
    from kquota.cli.report import words

    if found.logged is None:
        return ("-",)
    most = words.length(found.logged.throttle_time_max_ms)
    if found.logged.throttle_time_ms is None:
        return f"{found.logged.throttled_events:,}", f"mean ≤ {most}"
    return words.share(found.logged.throttled_events, found.events), f"≤ {most}"


def _clients(found: Finding) -> str:
    """The clients behind a counter, without what the counter's own name says of them."""
    user, _, client_id = found.sensor.partition(":")
    if (user and client_id) or found.key is QuotaKey.CONNECTION_CREATION_RATE:
        return ""
    names = [client.user if client_id else client.client_id or "(empty client-id)" for client in found.clients]
    more = found.client_count - len(names)
    return ", ".join(names) + (f" and {more} more" if names and more > 0 else "") or "-"
