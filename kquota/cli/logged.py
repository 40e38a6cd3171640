"""What brokers answered by themselves, for people: the throttled clients of a recording, whatever quotas there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from kquota.cli import auditing
from kquota.cli.report.words import share, throttled_clients
from kquota.cli.text import Column, code, duration, many, markdown, period, safe
from kquota.cli.views import Document, Note, Part, Table, View, csv_of, markdown_of, table_of
from kquota.core.findings.answers import Answered, Answers, AnswersOf, by_harm
from kquota.documents.audit import audit_document

if TYPE_CHECKING:
    from kquota.audit.result import AuditResult
    from kquota.audit.settings import AuditSettings

COLUMNS = ("BROKER", "USER", "CLIENT-ID", "REQUESTS", "DELAYED", "LONGEST", "WHEN (UTC)")
"""The columns that the table of answers can have."""
_CSV = """broker=0.broker user=0.user client_id=0.client_id requests=0.requests events=1.events
    throttled_events=1.throttled_events throttle_time_max_ms=1.throttle_time_max_ms
    first_throttled_ms=1.first_throttled_ms last_throttled_ms=1.last_throttled_ms"""
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

    def text() -> Iterator[Part]:
        said = _answer(answers)
        yield f"**{markdown(said[0].upper() + said[1:])}.**"
        if shown:
            yield ""
            yield markdown_of(_table(shown, names=code), " ")
        yield ""
        yield f"{markdown(why_no_quotas[0].upper() + why_no_quotas[1:])}."

    return View(
        screen=screen, document=document, csv=lambda: csv_of(every, _CSV), others={"wide": screen, "markdown": text}
    )


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
        return f"in the log itself, the brokers throttled nobody: no request of {many(seen, 'client')} was delayed"
    return f"in the log itself, the brokers throttled {throttled} (of {many(seen, 'client')})"


Item: TypeAlias = tuple[Answered, Answers]


def _table(items: Sequence[Item], names: Callable[[str], str] = str) -> Table:
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
