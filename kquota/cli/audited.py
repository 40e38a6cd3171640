"""What the commands share that judge recorded usage, `kquota audit` and `kquota follow`: options, settings, answers."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from kquota.audit.run import Audit
from kquota.cli import auditing, findings, grammar, params, session, usage
from kquota.cli.exit_codes import ExitCode
from kquota.cli.options import choice, count, flag, group, path, value
from kquota.cli.report import MOST, check_report
from kquota.cli.report.words import markdown_lines, share, throttled_clients
from kquota.cli.streams import note, warned, wrote
from kquota.cli.text import Column, code, duration, many, markdown, period, safe
from kquota.cli.views import Document, Note, Part, Table, View, csv_of, markdown_of, table_of
from kquota.core.findings.answers import Answered, Answers, AnswersOf, by_harm
from kquota.core.findings.whatif import Comparison
from kquota.documents.audit import audit_document
from kquota.documents.encoding import to_json, write_text
from kquota.errors import InputError

if TYPE_CHECKING:
    from kquota.audit.result import AuditResult
    from kquota.audit.settings import AuditSettings


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of an audit."""

    top: int = count("Clients to name.", default=5)
    show_all: bool = flag("In the table, also the counters that were never throttled, and more than 500.", "--all")
    out: Path | None = value("DIR", "Write the findings as Parquet.", type=click.Path(path_type=Path))
    out_json: Path | None = path("Write the answer as -o json prints it: spark-submit mixes stderr into stdout.")
    report: Path | None = path(
        "Write a page for people, with charts: who is delayed, by which quota, when, how much. It needs no network.",
        metavar="FILE.html",
    )
    against: str | None = value(
        "live|FILE",
        "Other quotas, of the live cluster or of a file: show who is throttled anew, more, less or no longer.",
    )
    prune: bool = flag(
        "With --against live: the file is all quotas, and others would go. Else the file changes the live quotas."
    )
    recorded_under: str | None = usage.RECORDED_UNDER
    fail_on: tuple[str, ...] = choice(
        ["throttled", "undetermined", "newly-throttled", "throttled-more"],
        "Exit with 1 when a client would be throttled, when a counter or a quota that is set is undetermined"
        " (with --against: a quota that differs there), or when a client would be newly throttled, or throttled more,"
        " compared with --against. May be given several times.",
        multiple=True,
    )


WANTED: Any = group(Wanted)
"""The options that say what is wanted of an audit."""


def settings_for(asked: usage.Asked, wanted: Wanted, output: str, needs: str | None = None) -> AuditSettings:
    """The settings of an audit. `needs` is an option that needs quotas; without one they may be missing.

    Then the brokers' own answers are counted (`ReadSettings.by_client`). Raises UsageError, InputError.
    """
    against = wanted.against
    if against is None and {"newly-throttled", "throttled-more"} & set(wanted.fail_on):
        raise click.UsageError("what would change is known with --against live|FILE only")
    if wanted.prune and against != "live":
        raise click.UsageError("--prune says what a file is beside the live quotas: it needs --against live")
    if wanted.report is not None:
        check_report(wanted.report)
    names = ("fail_on", "against", "out", "report", "recorded_under")
    given = {f"--{name.replace('_', '-')}": getattr(wanted, name) for name in names}
    given |= {"--quotas-journal": asked.quotas_journal, "--in-force": asked.in_force}
    needs = needs or next((name for name, value in given.items() if value), None)
    settings = asked.settings(against, wanted.recorded_under, prune=wanted.prune, needs_quotas=needs is not None)
    snapshots = [snapshot for variant in settings.variants for snapshot in variant.snapshots]
    if not any(snapshots) and not any(snapshot.ignored for snapshot in snapshots):
        if needs is not None:
            hint = f"{needs} needs quotas: audit proposed ones with --quotas FILE"
            raise InputError("no quotas are set: nobody would be throttled", hint=hint)
        return replace(settings, read=replace(settings.read, by_client=True))
    compared = settings.against is not None
    return replace(
        settings,
        top_clients=None if compared else wanted.top,
        per_client=wanted.report is not None or compared,
        timelines=0 if wanted.report is None else MOST,
    )


def answered(
    asked: usage.Asked, wanted: Wanted, settings: AuditSettings, run: Audit, output: str, *, in_a_line: bool = False
) -> View:
    """What an audit finds: writes what is wanted besides; the document is in a line where others came before it."""
    from kquota.audit.evidence.verdict import audited

    result = audited(run, settings)
    auditing.keep_rejects(result, asked.quarantine)
    auditing.warn_of_log(result.quality, settings.read.zone)
    auditing.say_recorded_under(result, settings)
    of_now = settings.in_force and asked.named.file is None and asked.quotas_journal is None
    if of_now and result.quality.first_ms is not None:
        session.warn_of_changes(asked.named, result.quality.first_ms)
    comparison = None
    if settings.against is not None:
        from kquota.audit.answers.whatif import compare

        comparison = compare(result, settings)
        result = result.naming(wanted.top)
    if wanted.out is not None:
        result.write(wanted.out)
        wrote(wanted.out)
    if wanted.report is not None:
        from kquota.cli.report.page import write_report

        called = click.get_current_context().meta[grammar.CALLED]
        write_report(wanted.report, result, settings, command=called, comparison=comparison)
        wrote(wanted.report)
    code = ExitCode.PARTIAL if result.quality.unread_files else ExitCode.OK
    if auditing.fails(wanted.fail_on, _answers(result, comparison)):
        code = ExitCode.DIFFERENT
    set_in = _quotas_from(asked, result)
    if asked.named.file is None and (comparison is not None or output not in ("table", "wide")):
        other_way = f", in place of {wanted.against} (--quotas FILE --against live shows what FILE would change)"
        note(safe(f"quotas: {set_in}{'' if comparison is None else other_way}"))
    view = findings.audited_view(
        result,
        settings,
        comparison,
        show_all=wanted.show_all,
        reported=wanted.report is not None,
        quotas_from=set_in,
        recommend=_recommend(asked),
    )
    if comparison is not None:
        view = findings.compared_view(view, comparison, result, asked.named.file, wanted.against, prune=wanted.prune)
    _write_json(view, wanted.out_json)
    if in_a_line and view.document is not None:
        view = replace(view, document=functools.partial(_in_a_line, view.document))
    return replace(view, code=code)


def without_quotas(asked: usage.Asked, wanted: Wanted, settings: AuditSettings) -> View:
    """What the usage itself says, where no quotas are given, or none are set."""
    with auditing.auditor(asked.usage, settings, "an audit without quotas") as run:
        result = run(settings)
    auditing.keep_rejects(result, asked.quarantine)
    auditing.warn_of_log(result.quality, settings.read.zone)
    if asked.named.is_named:
        place = asked.named.file or session.label(asked.named.cluster.access())
        why = f"no quotas are set in {place}: it would throttle nobody; --quotas FILE tries others"
    else:
        why = (
            "the quotas are not known: --quotas FILE, --bootstrap-server HOST:PORT or --zookeeper HOST:PORT names them"
        )
    view = _logged_view(result, settings, why, show_all=wanted.show_all)
    _write_json(view, wanted.out_json)
    return replace(view, code=ExitCode.PARTIAL if result.quality.unread_files else ExitCode.OK)


def _write_json(view: View, path: Path | None) -> None:
    if path is not None and view.document is not None:
        document = view.document()
        assert isinstance(document, Mapping)
        write_text(path, to_json(document))
        wrote(path)


def _quotas_from(asked: usage.Asked, result: AuditResult) -> str:
    """Where the quotas come from, and how many there are: `quotas.yaml (7 set)`, `live, localhost:2181 (11 set)`."""
    file, journal = asked.named.file, asked.quotas_journal
    place = str(file) if file is not None else f"live, {session.label(asked.named.cluster.access())}"
    place += f", back through {journal}" if journal is not None else ""
    return safe(f"{place} ({len(result.quotas)} set)")


def _recommend(asked: usage.Asked) -> str:
    """The command that proposes limits for the same usage, where it is files."""
    words = ["kquota", "recommend", *asked.paths]
    if not asked.paths:
        return "kquota recommend"
    words += [] if asked.named.file is None else ["--quotas", str(asked.named.file)]
    words += [] if asked.broker is None else ["--broker", asked.broker]
    words += [] if asked.since is None else ["--since", asked.since]
    words += [] if asked.until is None else ["--until", asked.until]
    words += ["--log-timezone", asked.log_timezone] if params.on_command_line("log_timezone") else []
    return safe(shlex.join(words) + params.there(asked.named.cluster.access()))


def _in_a_line(document: Callable[[], Document | Iterator[Document]]) -> Iterator[Document]:
    """The document as the last of several, which are a line each."""
    answer = document()
    yield from (answer,) if isinstance(answer, Mapping) else answer


def _answers(result: AuditResult, comparison: Comparison | None) -> set[str]:
    """What is true of what `--fail-on` can name."""
    answers = {"throttled"} if result.throttled else set()
    if comparison is not None:
        return answers | comparison.answers
    return answers | {"undetermined"} if result.undetermined else answers


_CSV = """broker=0.broker user=0.user client_id=0.client_id requests=0.requests events=1.events
    throttled_events=1.throttled_events throttle_time_max_ms=1.throttle_time_max_ms
    first_throttled_ms=1.first_throttled_ms last_throttled_ms=1.last_throttled_ms"""
_WHICH = (
    "by which quota: producer_byte_rate delays produce requests, consumer_byte_rate fetches,"
    " controller_mutation_rate changes of topics, and request_percentage any request"
)


def _logged_view(result: AuditResult, settings: AuditSettings, why_no_quotas: str, *, show_all: bool) -> View:
    """An audit without quotas: what the recording itself says, in audit's formats.

    `why_no_quotas` says why no quota is known, and what to do about it.
    """
    from kquota.audit.sources.lost import Lost

    answers = result.quality.answers
    every = by_harm(answers)
    lost = Lost(result.quality.noted)
    sentence = _what_log_says(answers) + (f"; {lost.of_anybody}" if lost else "")
    throttled = any(answer.throttled_events for answer in answers.values())
    shown = [item for item in every if show_all or item[1].throttled_events]

    def document() -> Document:
        return audit_document(
            (),
            auditing.data_of(result.quality),
            auditing.enforcement_of(settings),
            result.engine,
            recorded_under={
                "source": "log" if answers else "unknown",
                "quotas": None,
                "throttled": throttled or (None if lost or not answers else False),
            },
            answers=answers,
            counted=True,
            warned=warned(),
        )

    def screen() -> Iterator[Part]:
        yield Note(safe(sentence))
        if shown:
            yield _answers_table(shown)
        yield Note(f"{many(result.quality.events, 'request')} read{_when(result)} ({result.engine} engine)")
        if throttled:
            yield Note(_WHICH)
        yield Note(safe(why_no_quotas))

    def text() -> Iterator[Part]:
        yield f"**{markdown(sentence[0].upper() + sentence[1:])}.**"
        if shown:
            yield ""
            yield markdown_of(_answers_table(shown, names=code), " ")
        yield ""
        yield f"{markdown(why_no_quotas[0].upper() + why_no_quotas[1:])}."
        yield from (f"\n{line}" for line in markdown_lines((), warned=warned()))

    return View(
        screen=screen, document=document, csv=lambda: csv_of(every, _CSV), others={"wide": screen, "markdown": text}
    )


def _when(result: AuditResult) -> str:
    first, last = result.quality.first_ms, result.quality.last_ms
    return "" if first is None or last is None else f", {' '.join(period(first, last))} UTC"


def _what_log_says(answers: AnswersOf) -> str:
    """The answer in a sentence."""
    if not answers:
        return "the usage does not record what brokers answered: who was throttled is not known"
    seen = len({name.client for name in answers})
    throttled = throttled_clients(answers)
    if not throttled:
        return f"in the log itself, the brokers throttled nobody: no request of {many(seen, 'client')} was delayed"
    return f"in the log itself, the brokers throttled {throttled} (of {many(seen, 'client')})"


Item: TypeAlias = tuple[Answered, Answers]


def _answers_table(items: Sequence[Item], names: Callable[[str], str] = str) -> Table:
    def delayed(item: Item) -> tuple[str, ...]:
        return share(item[1].throttled_events, item[1].events), f"of {item[1].events:,}"

    def named(name: str) -> str:
        return names(name) if name else ""

    several = len({name.broker for name, _ in items}) > 1
    return table_of(
        items,
        [
            (several or names is not str) and (Column("BROKER", spare=1, tells=True), lambda item: item[0].broker),
            (Column("USER", style="bold"), lambda item: named(item[0].user)),
            (Column("CLIENT-ID"), lambda item: named(item[0].client_id)),
            (Column("REQUESTS", whole=True), lambda item: item[0].requests),
            (Column("DELAYED", number=True), delayed),
            (
                Column("LONGEST", number=True),
                lambda item: duration(item[1].throttle_time_max_ms) if item[1].throttled_events else "-",
            ),
            (
                Column("WHEN (UTC)", whole=True),
                lambda item: period(item[1].first_throttled_ms, item[1].last_throttled_ms),
            ),
        ],
    )
