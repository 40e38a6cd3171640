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
from kquota.cli import auditing, findings, following, grammar, session, usage, whatif
from kquota.cli.exit_codes import ExitCode
from kquota.cli.streams import note, wrote
from kquota.cli.views import Document, View, check_sorting, shown_as
from kquota.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kquota.audit.result import AuditResult
    from kquota.audit.run import Audit
    from kquota.audit.settings import AuditSettings
    from kquota.core.findings.closed_loop import ClosedLoop
    from kquota.core.findings.whatif import Comparison


class _Remembering(grammar.Command):
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
      kquota audit usage.parquet --quotas proposed.yaml --against current.yaml -o markdown
      kquota audit usage.parquet --quotas new.yaml --against old.yaml --fail-on newly-throttled --fail-on throttled-more
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
        check_sorting(findings.COLUMNS if against is None else whatif.COLUMNS)
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
    auditing.warn_repeated_hours(result.quality, settings.read.zone)
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
    if auditing.fails(fail_on, _answers(result, comparison)):
        code = ExitCode.DIFFERENT
    set_in = _quotas_from(asked, result)
    if asked.quotas.file is None and (comparison is not None or output not in ("table", "wide")):
        note(f"quotas: {set_in}")
    view = findings.audited_view(
        result, settings, comparison, show_all=show_all, reported=report is not None, quotas_from=set_in
    )
    if comparison is not None:
        view = findings.compared_view(view, comparison, result, asked.quotas.file, against)
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
    auditing.warn_repeated_hours(result.quality, settings.read.zone)
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
