"""The page itself: the values of a report in the words of `words`, put into the template."""

from __future__ import annotations

from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kquota import __version__
from kquota.cli.report import charts, words
from kquota.cli.report.content import MOST, Report
from kquota.cli.text import many, moment, rate_text, records_text, safe
from kquota.cli.verdicts import lines as verdict_lines
from kquota.core.findings.finding import Finding
from kquota.core.findings.whatif import ClientChange, Comparison, Outcome, Standing
from kquota.core.quotas.quota import QuotaKey, humanize, share_of_limit

if TYPE_CHECKING:
    from kquota.audit.ledger.timeline import Timeline

MOST_ROWS: Final = 200
"""Counters in a table; the rest is in the JSON."""
MOST_NUMBERS: Final = 32
"""Lines in the table below a chart."""
NEAR: Final = 0.8
"""A peak of this share of the limit is near it."""


def render(report: Report) -> str:
    """The whole page as HTML."""
    environment = Environment(
        loader=PackageLoader("kquota.cli.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters |= {
        "count": lambda number: f"{number:,}",
        "length_of": words.length,
        "many": many,
        "whole": _whole,
    }
    page: str = environment.get_template("page.html").render(_values(report))
    return page


def _whole(text: str) -> Markup:
    """A text that is not broken between lines: a number and its unit."""
    return Markup('<span class="u">{}</span>').format(safe(text))


def _with_commands(text: str) -> Markup:
    """A text in which the commands are set as code, and not in quotation marks."""
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else part for number, part in enumerate(text.split("'"))
    )


def _shown(value: Any) -> Any:
    """Names come from a cluster: what would not be seen in one, or would turn the text around, is spelled out."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else safe(value)


def _values(report: Report) -> dict[str, Any]:
    rows = report.findings
    quality, settings = report.quality, report.settings
    throttled = [row for row in rows if row.throttled]
    undetermined = [row for row in rows if row.undetermined]
    calm = [row for row in rows if not row.throttled and not row.undetermined]
    near = sorted((row for row in calm if _peak(row) >= NEAR), key=_peak, reverse=True)
    bases = {row.basis.value for row in rows}
    first, last = _period(report)
    period = words.times(first, last)
    day, comma, _ = period.partition(", ")
    return {
        "words": words,
        "version": __version__,
        "totals": words.totals(rows),
        "answer": words.answer(rows, quality.answers),
        "next_step": _with_commands(words.next_step(rows, reported=True) or ""),
        "predicted": any(row.prediction is not None for row in rows),
        "period": period,
        "period_length": words.length(last - first),
        "day": day + comma if comma else "",
        "brokers": sorted({row.broker for row in rows} - {""}),
        "worst": [_counter(report, row) for row in throttled[:MOST]],
        "most": MOST,
        "throttled": [_counter(report, row) for row in throttled[:MOST_ROWS]],
        "undetermined": [_counter(report, row) for row in undetermined[:MOST_ROWS]],
        "near": [_counter(report, row) for row in near[:MOST_ROWS]],
        "left_out": sum(max(0, len(some) - MOST_ROWS) for some in (throttled, undetermined, near)),
        "calm": len(calm),
        "highest": words.share(max(map(_peak, calm)), 1) if calm else "",
        "quality": quality,
        "read": records_text(quality.events, bases),
        "mutations": any(row.key is QuotaKey.CONTROLLER_MUTATION_RATE for row in rows),
        "sampled": bool(bases) and bases.isdisjoint({"requests", "connections"}),
        "ungoverned": records_text(quality.ungoverned, bases),
        "exemptions": [
            (spared.requests, words.EXEMPTIONS[reason], words.length(spared.request_time_ns // 1_000_000))
            for reason, spared in quality.exemptions.items()
        ],
        "reasons": report.reasons,
        "most_files": MOST_ROWS,
        "quarantine": report.quarantine,
        "estimated": sum(row.estimated_events for row in rows),
        "logged": any(row.logged is not None for row in rows),
        "quotas": [f"{text[0].upper()}{text[1:]}." for text in verdict_lines(report.quotas)],
        "comparison": None if report.comparison is None else _comparison(report.comparison),
        "command": report.command,
        "engine": report.engine,
        "windows": settings.windows,
        "by_last": settings.generation.by_last,
        "changes_in_quotas": len(settings.quotas.changes_ms),
        "changes_meanwhile": [
            (f"{moment(time_ms)} UTC", reason)
            for time_ms, reason in islice(settings.quotas.changes_within(first, last), MOST_ROWS)
        ],
    }


def _period(report: Report) -> tuple[int, int]:
    """The first and the last event; 0 where there are exempt requests only."""
    return report.quality.first_ms or 0, report.quality.last_ms or 0


def _peak(row: Finding) -> float:
    """The most that the peak can be, as a share of the limit."""
    return share_of_limit(row.peak_rate_max or row.peak_rate, row.limit) or 0.0


def _counter(report: Report, row: Finding) -> dict[str, Any]:
    """A row; with its chart and clients where it has a timeline."""
    values: dict[str, Any] = {"found": row, "limit_then": None, "clients": [], "chart": None}
    timeline = report.timelines.get(row.name)
    if timeline is not None:
        values["clients"] = _clients(row)
        values["chart"] = _chart(report, row, timeline)
        then = [humanize(row.key, one.limit) for one in timeline.bins if one.throttled]
        if row.limit_changes:
            values["limit_then"] = ", then ".join(each for each, _ in groupby(then))
    return values


def _clients(row: Finding) -> list[dict[str, Any]]:
    """The clients of a shared counter; a share of the usage only where all of them are known."""
    clients = row.clients
    if row.client_count < 2:
        return []
    whole = sum(client.value for client in clients) if len(clients) == row.client_count else 0
    return [
        {
            "user": client.user,
            "client_id": client.client_id,
            "events": client.events,
            "throttled_events": client.throttled_events,
            "used": words.used(row.key, client.value),
            "share": words.share(client.value, whole) if whole else None,
        }
        for client in clients
    ]


def _chart(report: Report, row: Finding, timeline: Timeline) -> dict[str, Any]:
    from kquota.audit.ledger.timeline import width_of

    first, last = timeline.around or _period(report)
    coarse = timeline.coarser(width_of(first, last, timeline.width_ms, MOST_NUMBERS))
    # What is drawn holds no name: Vega escapes text, and there is none but numbers and units.
    wide, narrow = (
        Markup(charts.draw(row.key, timeline, first, last, width))  # noqa: S704 - made here, of numbers
        for width in (charts.WIDE, charts.NARROW)
    )
    return {
        "wide": wide,
        "narrow": narrow,
        "width": duration_of(timeline.width_ms),
        "around": None if timeline.around is None else (words.length(last - first), words.times(first, last)),
        "numbers_width": duration_of(coarse.width_ms),
        "numbers": [
            {
                "time": words.moment(one.start_ms, coarse.width_ms),
                "events": one.events,
                "throttled": one.throttled,
                "peak_rate": words.rate(row, one.peak_rate),
                "limit": words.rate(row, one.limit),
            }
            for one in coarse.bins
        ],
    }


def duration_of(width_ms: int) -> str:
    """The width of a bin: `2 s`, `10 min`, `6 h`."""
    for unit, length in (("weeks", 604_800_000), ("days", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if width_ms >= length:
            count = width_ms // length
            return f"{count} {unit}" if count > 1 or unit in ("h", "min") else unit.removesuffix("s")
    return f"{width_ms // 1000} s"


def _comparison(comparison: Comparison) -> dict[str, Any]:
    """What changes for clients, by outcome, the worst first."""
    tables = []
    for outcome in Outcome:
        changes = [change for change in comparison.clients if change.outcome is outcome]
        if changes:
            lines = [_change(change) for change in changes[:MOST_ROWS]]
            tables.append({"title": _OUTCOMES[outcome], "lines": lines, "left_out": len(changes) - len(lines)})
    return {"tables": tables, "newly": comparison.count(Outcome.NEWLY_THROTTLED), "same": comparison.same}


_OUTCOMES: Final = {
    Outcome.NEWLY_THROTTLED: "Newly delayed",
    Outcome.MORE: "Delayed more",
    Outcome.LESS: "Delayed less",
    Outcome.NO_LONGER_THROTTLED: "No longer delayed",
    Outcome.UNDETERMINED: "Undetermined",
}


def _change(change: ClientChange) -> dict[str, Any]:
    """One client before and after."""
    return {
        "user": change.user if change.ip is None else f"ip {change.ip}",
        "client_id": change.client_id if change.ip is None else "–",
        "key": change.key.value,
        "brokers": sorted({*change.before.brokers, *change.after.brokers}),
        "sides": [_side(change, standing) for standing in (change.before, change.after)],
    }


def _delayed(standing: Standing) -> str:
    """How often; samples may show that it is, and not how often."""
    if standing.throttled_events is not None:
        return f"{standing.throttled_events:,}"
    return "yes" if standing.verdict == "throttled" else standing.verdict


def _side(change: ClientChange, standing: Standing) -> dict[str, Any]:
    """One client under one set of quotas."""
    return {
        "entity": "" if standing.entity is None else str(standing.entity),
        "limit": "no limit" if standing.limit is None else humanize(change.key, standing.limit),
        "delayed": _delayed(standing),
        "longest": " ".join(words.predicted_parts("throttle_time_max_ms", standing)).strip("-?"),
        "wanted": None if standing.wanted is None else rate_text(standing.wanted, change.key.unit),
    }
