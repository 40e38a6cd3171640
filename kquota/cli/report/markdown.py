"""Findings as Markdown, for a ticket or a comment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kquota.cli.report import words
from kquota.cli.text import Markdown, code, many, markdown, markdown_table, records_text
from kquota.cli.verdicts import markdown_lines
from kquota.core.findings.finding import Finding
from kquota.core.findings.verdicts import QuotaVerdict

if TYPE_CHECKING:
    from kquota.audit.result import DataQuality

MOST_ROWS: Final = 20
"""Counters in a table: a comment is to be read."""

_HEADINGS: Final = ("broker", "who", "quota", "limit", "peak", "delayed", "muted", "longest", "delivered", "when (UTC)")
_NUMBERS: Final = frozenset({"limit", "peak", "delayed", "muted", "longest", "delivered"})


def summary(findings: Sequence[Finding], quality: DataQuality, quotas: Sequence[QuotaVerdict] = ()) -> str:
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
        named = [
            f"{code(found.subject)} ({found.key.value}, {_known(found)}: {found.reason})"
            for found in undetermined[:MOST_ROWS]
        ]
        rest = f" and {len(undetermined) - len(named)} more" if len(undetermined) > len(named) else ""
        lines += ["", f"Undetermined: {', '.join(named)}{rest}."]
    if quality.rejected:
        lines += ["", f"{many(quality.rejected, 'record')} could not be read."]
    if quality.unread_files:
        named = [f"{code(file.path)} ({file.reason})" for file in quality.unread_files[:MOST_ROWS]]
        rest = f" and {len(quality.unread_files) - len(named)} more" if len(quality.unread_files) > len(named) else ""
        lines += ["", f"Not read to the end: {', '.join(named)}{rest}."]
    for line in markdown_lines(quotas):
        lines += ["", line]
    return "\n".join(lines)


def _known(found: Finding) -> str:
    """What is known of an undetermined counter."""
    if found.wanted_at_least is not None:
        return f"wanted at least {words.rate(found, found.wanted_at_least)}"
    return f"peak {words.peak(found)}"


def findings_table(findings: Sequence[Finding]) -> str:
    """Findings, each a line: the first MOST_ROWS. Columns that nothing is known for are left out."""
    rows = [_cells(found) for found in findings[:MOST_ROWS]]
    kept = [
        place for place, name in enumerate(_HEADINGS) if name in _ALWAYS or any(row[place] not in _NONE for row in rows)
    ]
    return markdown_table(
        [_HEADINGS[place] for place in kept], [[row[place] for place in kept] for row in rows], _NUMBERS
    )


_ALWAYS: Final = frozenset({"who", "quota", "limit", "delayed"})
_NONE: Final = frozenset({"", "-"})


def _cells(found: Finding) -> tuple[str, ...]:
    quota = Markdown(f"{found.key.value} of {code(words.source(found)[0])}")
    first, last = found.first_throttled_ms, found.last_throttled_ms
    delayed = "?" if found.throttled else "undetermined"
    if found.throttled_events is not None:
        delayed = f"{words.share(found.throttled_events, found.events)} of {found.events:,}"
    return (
        found.broker,
        code(found.subject),
        quota,
        words.limit(found),
        words.peak(found),
        delayed,
        words.muted(found),
        ", ".join(filter(None, [words.longest(found), words.times_out(found)])),
        ", ".join(filter(None, [words.delivered(found), words.behind(found)])),
        "-" if first is None or last is None else words.times(first, last),
    )
