"""Findings as Markdown, for a ticket or a comment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kquota.cli.report import Row, words
from kquota.cli.text import Markdown, code, many, markdown_table, records_text
from kquota.cli.verdicts import markdown_lines

if TYPE_CHECKING:
    from kquota.audit.findings import DataQuality
    from kquota.core.findings.verdicts import QuotaVerdict

MOST_ROWS: Final = 20
"""Counters in a table: a comment is to be read."""

_HEADINGS: Final = ("broker", "counter", "quota", "limit", "peak", "delayed", "delay", "longest", "when (UTC)")
_NUMBERS: Final = frozenset({"limit", "peak", "delayed", "delay", "longest"})


def summary(rows: Sequence[Row], quality: DataQuality, quotas: Sequence[QuotaVerdict] = ()) -> str:
    """What an audit found: a sentence, the counters that suffer, and what is not known."""
    sums = words.totals(rows)
    throttled, undetermined = (
        [row for row in rows if row["verdict"] == verdict] for verdict in ("throttled", "undetermined")
    )
    lines = [f"**{sums['throttled']:,} of {many(sums['counters'], 'counter')} throttled.** "]
    if sums["delayed"]:
        lines[0] += (
            f"{many(sums['delayed'], 'request')} delayed, {words.length(sums['delay_ms'])} in all,"
            f" {words.length(sums['longest_ms'])} at most. "
        )
    if quality.first_ms is not None and quality.last_ms is not None:
        read = records_text(quality.events, (row["basis"] for row in rows))
        lines[0] += f"{read}, {words.times(quality.first_ms, quality.last_ms)} UTC."
    if throttled:
        lines += ["", findings_table(throttled)]
    if len(throttled) > MOST_ROWS:
        lines += ["", f"{many(len(throttled) - MOST_ROWS, 'counter')} more: `kquota audit -o json`."]
    if undetermined:
        named = [
            f"{code(words.who(row))} ({row['key']}, peak {words.peak(row)}: {row['reason']})"
            for row in undetermined[:MOST_ROWS]
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


def findings_table(rows: Sequence[Row]) -> str:
    """Rows of the findings table, each a line: the first MOST_ROWS. Undetermined ones have no delays."""
    return markdown_table(_HEADINGS, [_cells(row) for row in rows[:MOST_ROWS]], _NUMBERS)


def _cells(row: Row) -> tuple[str, ...]:
    quota = Markdown(f"{row['key']} of {code(words.source(row)[0])}")
    head = (row["broker"], code(words.who(row)), quota, words.limit(row), words.peak(row))
    first, last = row["first_throttled_ms"], row["last_throttled_ms"]
    when = "–" if first is None else words.times(first, last)
    if row["throttled_events"] is None:
        return (*head, "?" if row["verdict"] == "throttled" else "undetermined", "–", "–", when)
    delays = (words.length(row["throttle_time_ms"]), words.length(row["throttle_time_max_ms"]))
    return (*head, f"{row['throttled_events']:,} of {row['events']:,}", *delays, when)
