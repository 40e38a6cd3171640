"""Findings as Markdown, for a ticket or a comment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kquota.cli.report import words
from kquota.cli.text import Column, Markdown, code, first_of, many, markdown, records_text
from kquota.cli.verdicts import markdown_lines
from kquota.cli.views import markdown_of, table_of
from kquota.core.findings.finding import Finding
from kquota.core.findings.verdicts import QuotaVerdict

if TYPE_CHECKING:
    from kquota.audit.batch import Tally

MOST_ROWS: Final = 20
"""Counters in a table: a comment is to be read."""


def summary(findings: Sequence[Finding], quality: Tally, quotas: Sequence[QuotaVerdict] = ()) -> str:
    """What an audit found: a sentence, the counters that suffer, and what is not known."""
    throttled = [found for found in findings if found.throttled]
    undetermined = [found for found in findings if found.undetermined]
    said = words.answer(findings, quality.answers)
    lines = [f"**{markdown(said[0].upper() + said[1:])}.** "]
    if quality.first_ms is not None and quality.last_ms is not None:
        read = records_text(quality.events, (found.basis.value for found in findings))
        lines[0] += f"{read}, {words.times(quality.first_ms, quality.last_ms)} UTC."
    if throttled:
        lines += ["", findings_table(throttled)]
    if len(throttled) > MOST_ROWS:
        lines += ["", f"{many(len(throttled) - MOST_ROWS, 'counter')} more: `kquota audit -o json`."]
    if undetermined:
        lines += ["", f"Undetermined: {first_of(undetermined, _undetermined, MOST_ROWS)}."]
    if quality.rejected:
        lines += ["", f"{many(quality.rejected, 'record')} could not be read."]
    if quality.unread_files:
        unread = first_of(quality.unread_files, lambda file: f"{code(file.path)} ({file.reason})", MOST_ROWS)
        lines += ["", f"Not read to the end: {unread}."]
    for line in markdown_lines(quotas):
        lines += ["", line]
    return "\n".join(lines)


def _undetermined(found: Finding) -> str:
    """An undetermined counter, and what is known of it."""
    wanted = found.wanted_at_least
    known = f"peak {words.peak(found)}" if wanted is None else f"wanted at least {words.rate(found, wanted)}"
    return f"{code(found.subject)} ({found.key.value}, {known}: {found.reason})"


def findings_table(findings: Sequence[Finding]) -> str:
    """Findings, each a line: the first MOST_ROWS. Columns that nothing is known for are left out."""
    some = findings[:MOST_ROWS]
    kept = [
        (column, told)
        for column, told in _COLUMNS
        if column.whole or any(told(found) not in ("", "-") for found in some)
    ]
    return markdown_of(table_of(some, kept))


def _delayed(found: Finding) -> str:
    if found.throttled_events is None:
        return "?" if found.throttled else "undetermined"
    return f"{words.share(found.throttled_events, found.events)} of {found.events:,}"


_COLUMNS: Final[Sequence[tuple[Column, Callable[[Finding], str]]]] = (
    (Column("broker"), lambda found: found.broker),
    (Column("who", whole=True), lambda found: code(found.subject)),
    (Column("quota", whole=True), lambda found: Markdown(f"{found.key.value} of {code(found.entity)}")),
    (Column("limit", number=True, whole=True), words.limit),
    (Column("peak", number=True), words.peak),
    (Column("delayed", number=True, whole=True), _delayed),
    (Column("muted", number=True), words.muted),
    (Column("longest", number=True), lambda found: _both(words.longest(found), words.times_out(found))),
    (Column("delivered", number=True), lambda found: _both(words.delivered(found), words.behind(found))),
    (Column("when (UTC)"), lambda found: words.when(found) or "-"),
)
"""The columns, with what they say of a finding; those that are `whole` always stay."""


def _both(first: str, second: str) -> str:
    return ", ".join(filter(None, (first, second)))
