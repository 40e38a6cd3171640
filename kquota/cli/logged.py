"""What brokers answered by themselves, for people: the throttled clients of a recording, whatever quotas there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kquota.cli import auditing
from kquota.cli.report.words import share, throttled_clients
from kquota.cli.text import Column, code, duration, many, markdown, markdown_table, period, safe
from kquota.cli.views import Csv, Document, Note, Part, Table, View
from kquota.core.findings.answers import Answered, Answers, AnswersOf, by_harm
from kquota.documents.audit import audit_document

if TYPE_CHECKING:
    from kquota.audit.result import AuditResult
    from kquota.audit.settings import AuditSettings

COLUMNS = ("BROKER", "USER", "CLIENT-ID", "REQUESTS", "DELAYED", "LONGEST", "WHEN (UTC)")
"""The columns that the table of answers can have."""
_CSV = (
    *("broker", "user", "client_id", "requests", "events", "throttled_events", "throttle_time_max_ms"),
    *("first_throttled_ms", "last_throttled_ms"),
)
_WHICH = (
    "by which quota: producer_byte_rate delays produce requests, consumer_byte_rate fetches,"
    " controller_mutation_rate changes of topics, and request_percentage any request"
)


def logged_view(result: AuditResult, settings: AuditSettings, why_no_quotas: str, *, show_all: bool) -> View:
    """An audit without quotas: what the recording itself says, in audit's formats.

    `why_no_quotas` says why no quota is known, and what to do about it.
    """
    answers = result.quality.answers
    every = by_harm(answers)
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
                "throttled": any(told.throttled_events for told in answers.values()) if answers else None,
            },
            answers=answers,
            counted=True,
        )

    def screen() -> Iterator[Part]:
        yield Note(safe(_answer(answers)))
        if shown:
            yield _table(shown)
        yield Note(f"{many(result.quality.events, 'request')} read{_of(result)} ({result.engine} engine)")
        if any(told.throttled_events for told in answers.values()):
            yield Note(_WHICH)
        yield Note(safe(why_no_quotas))

    def csv() -> Csv:
        return Csv(_CSV, [(*name, *told) for name, told in every])

    def text() -> Iterator[Part]:
        said = _answer(answers)
        yield f"**{markdown(said[0].upper() + said[1:])}.**"
        if shown:
            headings = [*(name.lower() for name in COLUMNS[:-1]), "when (UTC)"]
            rows = [_cells(*item) for item in shown]
            cells = [
                [code(cell) if cell and place in (1, 2) else " ".join(_joined(cell)) for place, cell in enumerate(row)]
                for row in rows
            ]
            yield ""
            yield markdown_table(headings, cells, frozenset({"delayed", "longest"}))
        yield ""
        yield f"{markdown(why_no_quotas[0].upper() + why_no_quotas[1:])}."

    return View(screen=screen, document=document, csv=csv, others={"wide": screen, "markdown": text})


def _joined(cell: object) -> Sequence[str]:
    return [str(part) for part in cell] if isinstance(cell, tuple) else [str(cell)]


def _of(result: AuditResult) -> str:
    first, last = result.quality.first_ms, result.quality.last_ms
    return "" if first is None or last is None else f", {' '.join(period(first, last))} UTC"


def _answer(answers: AnswersOf) -> str:
    """The answer in a sentence."""
    if not answers:
        return "the usage does not record what brokers answered: who was throttled is not known"
    seen = len({name.client for name in answers})
    throttled = throttled_clients(answers)
    if not throttled:
        return f"the brokers throttled nobody: no request of {many(seen, 'client')} was delayed"
    return f"in the log itself, the brokers throttled {throttled} (of {many(seen, 'client')})"


def _cells(name: Answered, told: Answers) -> tuple[object, ...]:
    delayed = (share(told.throttled_events, told.events), f"of {told.events:,}")
    longest = duration(told.throttle_time_max_ms) if told.throttled_events else "-"
    return (
        name.broker,
        name.user,
        name.client_id,
        name.requests,
        delayed,
        longest,
        period(told.first_throttled_ms, told.last_throttled_ms),
    )


def _table(items: Sequence[tuple[Answered, Answers]]) -> Table:
    brokers = len({name.broker for name, _ in items}) > 1
    columns = [
        Column("BROKER", spare=1),
        Column("USER", style="bold"),
        Column("CLIENT-ID"),
        Column("REQUESTS", whole=True),
        Column("DELAYED", number=True),
        Column("LONGEST", number=True),
        Column("WHEN (UTC)", whole=True),
    ]
    rows = [_cells(*item) for item in items]
    return Table(columns if brokers else columns[1:], rows if brokers else [row[1:] for row in rows])
