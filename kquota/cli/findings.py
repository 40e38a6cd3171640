"""The findings of an audit in its formats: the table, its lines of text, CSV, Markdown and the document."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kquota.cli import auditing, whatif
from kquota.cli.report import words
from kquota.cli.report.words import EXEMPTIONS
from kquota.cli.streams import warned
from kquota.cli.text import (
    Column,
    Markdown,
    code,
    duration,
    entity_text,
    layout,
    many,
    moment,
    period,
    records_text,
    safe,
)
from kquota.cli.text import markdown as as_markdown
from kquota.cli.views import Csv, Document, Note, Part, Table, View, csv_of, markdown_of, table_of
from kquota.core.findings.finding import Basis, Finding, limits_under, of_concern
from kquota.core.findings.together import over_brokers
from kquota.core.findings.verdicts import Verdict
from kquota.core.findings.whatif import Comparison
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.documents.audit import audit_document

if TYPE_CHECKING:
    from kquota.audit.batch import Tally
    from kquota.audit.findings import Findings
    from kquota.audit.result import AuditResult
    from kquota.audit.settings import AuditSettings


def compared_view(
    view: View, comparison: Comparison, result: AuditResult, file: Path | None, against: str | None, *, prune: bool
) -> View:
    """What changes, in the formats of an audit; the document of an audit holds it already.

    Beside the live quotas a file is a change of them; with `prune` it is all quotas.
    """

    def screen() -> Iterator[Part]:
        yield Note(words.changes(comparison))
        if comparison.clients:
            yield whatif.clients_table(comparison.clients)
        yield Note(f"{whatif.records(result)} read ({result.engine} engine)")
        yield from map(Note, words.verdict_lines(result.quotas, counts=False))
        yield from _how_on_spark(result)

    def csv() -> Iterator[Part]:
        yield whatif.comparison_csv(comparison)
        yield from map(Note, words.verdict_lines(result.quotas, counts=False))

    def markdown() -> Iterator[Part]:
        live = "the live quotas"
        before = live if against in (None, "live") else code(against)
        after = code(file) if file else live
        after += "" if prune or against != "live" else f" as a change of {live}"
        yield from whatif.comparison_markdown(comparison, result, before, after)

    return replace(view, screen=screen, csv=csv, others={"wide": screen, "markdown": markdown})


def audited_view(
    result: AuditResult,
    settings: AuditSettings,
    comparison: Comparison | None,
    *,
    show_all: bool,
    reported: bool = False,
    quotas_from: str = "",
    recommend: str = "kquota recommend",
) -> View:
    """The findings in audit's formats; `reported` says that there is a page of them already.

    `quotas_from` names where the quotas come from, `recommend` the command that proposes others for the same usage.
    """
    findings = result.found
    changed = [*settings.quotas.changes_within(*result.quality.period)]
    changes = [{"time_ms": time_ms, "reason": reason or None} for time_ms, reason in changed]

    def document() -> Document:
        return audit_document(
            findings,
            auditing.data_of(result.quality) | ({"quota_changes": changes} if changes else {}),
            auditing.enforcement_of(settings),
            result.engine,
            comparison,
            result.quotas,
            auditing.recorded_under_of(result, settings),
            result.quality.answers,
            warned=warned(),
        )

    def csv() -> Iterator[Part]:
        yield _csv(result, findings)
        yield from map(Note, words.verdict_lines(result.quotas, counts=False))

    def markdown() -> Iterator[Part]:
        yield summary(result, settings, quotas_from)
        for time_ms, reason in changed[:MOST_ROWS]:
            yield f"\nQuotas changed at {moment(time_ms)} UTC{reason and ': ' + as_markdown(reason)}."

    def screen(*, wide: bool = False) -> Iterator[Part]:
        yield from _screen(result, settings, findings, quotas_from, show_all=show_all, wide=wide)
        throttled, _ = of_concern(findings)
        entities = map(Entity.parse, throttled.counted("entity"))
        step = words.next_step(entities, throttled.counted("basis"), reported=reported, recommend=recommend)
        if step is not None:
            yield Note(f"next: {step}")
        yield from _how_on_spark(result)

    return View(
        screen=screen,
        document=document,
        csv=csv,
        others={"wide": functools.partial(screen, wide=True), "markdown": markdown},
    )


MOST_ROWS: Final = 20
"""Counters in a table of Markdown: a comment is to be read."""
MOST_SHOWN: Final = 500
"""Counters in a table on the screen, unless all are asked for: the rest is for programs."""
MOST_NOTES: Final = 3
"""Changes of the quotas that the screen names."""


def summary(result: AuditResult, settings: AuditSettings, quotas_from: str = "") -> str:
    """What an audit found as Markdown: a sentence, the counters that suffer, and what is not known."""
    findings, quality = result.found, result.quality
    shown = [finding for some in of_concern(findings) for finding in some]
    sentence = words.answer(findings, quality.answers)
    paragraphs = [f"**{as_markdown(sentence[0].upper() + sentence[1:])}.** "]
    if quality.first_ms is not None and quality.last_ms is not None:
        paragraphs[0] += f"{whatif.records(result)}, {words.times(quality.first_ms, quality.last_ms)} UTC."
    if quotas_from:
        paragraphs[0] += f" Quotas: {as_markdown(quotas_from)}."
    names = [*dict.fromkeys((finding.key.value, finding.sensor) for finding in shown)]
    if names:
        rows = over_brokers(findings.named(names[:MOST_ROWS]))
        paragraphs.append(markdown_of(_table(result, settings, rows, in_markdown=True), " "))
    if len(names) > MOST_ROWS:
        paragraphs.append(f"{many(len(names) - MOST_ROWS, 'counter')} more: `kquota audit -o json`.")
    return "\n\n".join([*paragraphs, *words.markdown_lines(result.quotas, warned=warned())])


_PREDICTED = ("throttle_time_max_ms", "muted_share", "delivered_per_s", "wanted_per_s", "done_ms", "left_units")
"""What CSV has of a prediction, with the two bounds of each."""
_OPEN_LOOP = {name: f"open_loop_{name}" for name in ("throttled_events", "throttle_time_ms")}


def _csv(result: AuditResult, findings: Sequence[Finding]) -> Csv:
    """The findings table as CSV, and what is predicted; what only an open loop says is named so."""
    own = [name for name in result.findings.schema.names if name != "clients"]
    names = [f"{_OPEN_LOOP.get(name, name)}={name.replace('logged_', 'logged.')}" for name in own]
    if result.predictions:
        ends = [(name, end) for name in _PREDICTED for end in ("low", "high")]
        names += ["client_kind=prediction.client_kind"]
        names += [f"predicted_{name}_{end}=prediction.{name}.{end}" for name, end in ends]
        names += ["times_out=prediction.times_out"]
    return csv_of(findings, " ".join(names))


def _screen(
    result: AuditResult,
    settings: AuditSettings,
    findings: Findings,
    quotas_from: str,
    *,
    show_all: bool,
    wide: bool,
) -> Iterator[Part]:
    """The answer in a sentence, the counters, and what is behind them."""
    quality = result.quality
    throttled, undetermined = of_concern(findings)
    most = len(findings) if show_all or layout().sort_by else MOST_SHOWN
    left, folded = undetermined, findings[:0]
    # Beside counters that somebody met, the others are no news.
    if not show_all and (throttled or undetermined.counted("logged_throttled_events").keys() - {None, 0}):
        left, folded = undetermined.fold()
    shown = [*findings] if show_all else [*throttled[:most], *left[:most]][:most]
    yield Note(safe(words.answer(findings, quality.answers, result.quotas)))
    for time_ms, reason in islice(settings.quotas.changes_within(*quality.period), MOST_NOTES):
        yield Note(safe(f"quotas changed at {moment(time_ms)} UTC{reason and ': ' + reason}"))
    names = {(finding.key.value, finding.sensor) for finding in shown}
    if shown:
        yield _table(result, settings, shown if wide else over_brokers(findings.named(names)), wide=wide)
    if (left_out := len(throttled) + len(left) - len(throttled.named(names)) - len(left.named(names))) > 0:
        yield Note(f"left out, with less harm: {many(left_out, 'counter')} (--all shows all, -o csv too)")
    if folded:
        text = f"{many(len(folded), 'undetermined limit')} without a throttled request in the log"
        yield Note(safe(f"{text}: {words.counter_names(folded)} (--all shows them)"))
    counters = (result.findings.column(name).to_pylist() for name in ("broker", "sensor") if quality.answers)
    others = words.throttled_clients(words.ungoverned({*zip(*counters, strict=True)}, quality.answers))
    if others and throttled:
        yield Note(safe(f"the log also shows throttled clients that none of these quotas governs: {others}"))
    reasons = " ".join(quota.reason or "" for quota in result.quotas if quota.verdict is Verdict.UNDETERMINED)
    why = undetermined.counted("reason")
    if any((reason or "") not in reasons for reason in why):
        texts = [f"{count}: {reason}" if len(why) > 1 else reason or "" for reason, count in why.most_common()]
        yield Note(f"undetermined: {'; '.join(texts)}")
    answered = findings if quality.answers else ()
    logged = [finding for finding in answered if finding.logged is not None and finding.logged.throttled_events > 0]
    if logged and not settings.quotas.changes_ms and not settings.in_force and settings.recorded_under is None:
        fit, open_ = ([finding for finding in logged if finding.throttled is fits] for fits in (True, False))
        of = [f"of {words.counter_names(fit)}, as these quotas would"] if fit else []
        of += [f"of {words.counter_names(open_)}"] if open_ else []
        way = "where they were in force, add --in-force: what the brokers answered is the answer then"
        yield Note(safe(f"the log itself shows throttled requests {', and '.join(of)}; {way}"))
    under = safe(f"quotas: {quotas_from}; ") if quotas_from else ""
    explained = "; 'kquota help columns' explains the table" if shown else ""
    yield Note(
        f"{under}{records_text(quality.events, result.findings.column('basis').unique().to_pylist())} read,"
        f" {quality.ungoverned:,} without a quota, {quality.exempt:,}{' more' if quality.exempt else ''} exempt"
        f"{_spared(quality)}{_unread(quality)}"
        f" ({result.engine} engine{explained})"
    )
    yield from map(Note, words.verdict_lines(result.quotas, counts=False))


def _table(
    result: AuditResult,
    settings: AuditSettings,
    shown: Sequence[Finding],
    *,
    wide: bool = False,
    in_markdown: bool = False,
) -> Table:
    def named(name: str, before: str = "") -> str:
        return Markdown(f"{before}{code(name)}") if in_markdown else before + name

    brokers = len(result.findings.column("broker").unique()) > 1
    logs = result.findings.column("logged_throttled_events").null_count < len(result.findings)
    predicted = bool(result.predictions)
    limits = limits_under(settings.quotas.within(*result.quality.period))
    held = any(finding.held_back for finding in shown)
    day = _day(shown)
    key_width = min(_KEY, max(len(finding.key.value) for finding in shown))
    return table_of(
        shown,
        [
            (Column("WHO", style="bold"), lambda row: named(row.subject)),
            brokers and (Column("BROKER"), lambda row: row.broker),
            wide and (Column("COUNTER"), lambda row: row.sensor),
            (
                Column("QUOTA", style="cyan", least=key_width),
                lambda row: (row.key.value, named(entity_text(row.entity), "of ")),
            ),
            (Column("LIMIT", number=True), lambda row: words.limit_parts(row, len(limits(row)) - 1)),
            (Column("PEAK", number=True, spare=7), _peak),
            (Column("DELAYED", number=True), _delayed),
            predicted and (Column("MUTED", number=True, spare=4), words.muted),
            (
                Column("LONGEST", number=True, spare=2),
                lambda row: (*_longest(row), "times out" if words.times_out(row) else ""),
            ),
            (predicted or held)
            and (Column("DELIVERED", spare=5), lambda row: (*words.delivered_parts(row), words.behind(row))),
            logs and (Column("LOGGED", number=True, style="dim", spare=1 if settings.in_force else 6), _logged),
            (
                Column(f"WHEN ({day}UTC)", spare=1 if settings.in_force else 3, least=_WHEN),
                lambda row: _times(row)[-2:] if day else _times(row),
            ),
            (Column("CLIENTS", spare=8), _clients),
        ],
        lambda row: "" if row.throttled else "yellow" if row.undetermined else "dim",
    )


_KEY, _WHEN = 20, 11
"""The widths of a key, the longest in two lines, and of a time with a word beside it."""


def _day(shown: Sequence[Finding]) -> str:
    """The day of all throttles and a blank; nothing where there are several."""
    periods = [*map(_times, shown)]
    days = {parts[0] for parts in periods if parts != ("-",)}
    return "" if len(days) != 1 or any(len(parts) not in (1, 3) for parts in periods) else f"{days.pop()} "


def _times(finding: Finding) -> tuple[str, ...]:
    """The first and the last throttle."""
    return period(finding.first_throttled_ms, finding.last_throttled_ms)


_MANY = 1_000_000
"""So many requests take this machine long enough for Spark to be worth a word."""


def _spared(quality: Tally) -> str:
    """The exempt thread time, by reason."""
    parts = [
        f"{spared.requests:,} {EXEMPTIONS[reason]} ({duration(spared.request_time_ns // 1_000_000)})"
        for reason, spared in quality.exemptions.items()
    ]
    return f"; not charged for their thread time: {', '.join(parts)}" if parts else ""


def _how_on_spark(result: AuditResult) -> Iterator[Part]:
    """How the same audit runs on Spark, where it did not and would gain by it."""
    if result.engine == "local" and result.quality.events >= _MANY:
        yield Note("the same on Spark: --engine spark, or spark-submit $(python -m kquota.cli.submit) …")


def _unread(quality: Tally) -> str:
    """How many requests do not count, were there twice, and how many files could not be read to their ends."""
    text = f"; {many(quality.outside, 'record')} outside --since and --until" if quality.outside else ""
    text += f"; {many(quality.repeated, 'request')} twice in the log, and counted once" if quality.repeated else ""
    files = len(quality.unread_files)
    return f"{text}; {many(files, 'file')} not read to the end" if files else text


def _peak(finding: Finding) -> tuple[str, str]:
    """The highest rate, and its share of the limit below it; a request quota is a percentage itself."""
    measured, of_limit = words.peak_parts(finding)
    in_percent = finding.key is QuotaKey.REQUEST_PERCENTAGE
    return measured, f"{of_limit} of limit" if of_limit and in_percent else of_limit


def _delayed(finding: Finding) -> tuple[str, ...]:
    """Which of the requests would be throttled if they came as they were recorded."""
    if finding.basis is not Basis.REQUESTS:
        return finding.verdict.value, f"of {finding.events:,}", finding.basis.value
    if finding.throttled_events is None:
        # Throttled by the prediction: at the times at which they were recorded, nobody knows how many.
        return "some" if finding.throttled else finding.verdict.value, f"of {finding.events:,}"
    return words.share(finding.throttled_events, finding.events), f"of {finding.events:,}"


def _longest(finding: Finding) -> tuple[str, ...]:
    """The longest wait; the word before a number that the log shows stands above it, as the column is narrow."""
    wait = words.longest(finding)
    number = wait.removeprefix(f"{words.LOGGED} ")
    return (wait,) if number == wait else (words.LOGGED, number)


def _logged(finding: Finding) -> tuple[str, ...]:
    """What the broker itself said."""
    if finding.logged is None:
        return ("-",)
    count, most = finding.logged.throttled_events, words.length(finding.logged.throttle_time_max_ms)
    if finding.logged.throttle_time_ms is None:
        cell = f"{count:,}", f"mean ≤ {most}"
    else:
        cell = words.share(count, finding.events), f"≤ {most}"
    return cell if count else cell[:1]


def _clients(finding: Finding) -> str:
    """The clients behind a counter, without what the counter's own name says of them."""
    user, _, client_id = finding.sensor.partition(":")
    if (user and client_id) or finding.key is QuotaKey.CONNECTION_CREATION_RATE:
        return ""
    names = [client.user if client_id else client.client_id or "(empty client-id)" for client in finding.clients]
    more = finding.client_count - len(names)
    return ", ".join(names) + (f" and {more} more" if names and more > 0 else "") or "-"
