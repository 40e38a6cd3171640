"""The page itself: the values of a report in the words of `words`, put into the template."""

from __future__ import annotations

from itertools import groupby, islice
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kquota import __version__
from kquota.cli.report import charts, words
from kquota.cli.report.content import MOST, Report
from kquota.cli.text import many, moment, rate_text, records_text, safe
from kquota.cli.verdicts import lines as verdict_lines
from kquota.core.findings.finding import Finding
from kquota.core.findings.whatif import Outcome
from kquota.core.quotas.quota import QuotaKey, humanize, share_of_limit

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
    environment.globals |= {"words": words, "humanize": humanize, "rate": rate_text, "width": width_text}
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
    quality = report.quality
    throttled = [row for row in rows if row.throttled]
    undetermined = [row for row in rows if row.undetermined]
    calm = [row for row in rows if not row.throttled and not row.undetermined]
    near = sorted((row for row in calm if _peak(row) >= NEAR), key=_peak, reverse=True)
    bases = {row.basis.value for row in rows}
    first, last = _period(report)
    period = words.times(first, last)
    day, comma, _ = period.partition(", ")
    return {
        "report": report,
        "quality": quality,
        "version": __version__,
        "totals": words.totals(rows),
        "answer": words.answer(rows, quality.answers),
        "next_step": _with_commands(words.next_step(rows, reported=True) or ""),
        "predicted": any(row.prediction is not None for row in rows),
        "period": period,
        "period_length": words.length(last - first),
        "day": day + comma if comma else "",
        "brokers": sorted({row.broker for row in rows} - {""}),
        "most": MOST,
        "most_rows": MOST_ROWS,
        "throttled": throttled,
        "undetermined": undetermined,
        "near": near,
        "calm": len(calm),
        "highest": words.share(max(map(_peak, calm)), 1) if calm else "",
        "charts": {row.name: _chart(report, row) for row in throttled[:MOST] if row.name in report.timelines},
        "read": records_text(quality.events, bases),
        "mutations": any(row.key is QuotaKey.CONTROLLER_MUTATION_RATE for row in rows),
        "sampled": bool(bases) and bases.isdisjoint({"requests", "connections"}),
        "ungoverned": records_text(quality.ungoverned, bases),
        "quotas": [f"{text[0].upper()}{text[1:]}." for text in verdict_lines(report.quotas)],
        "outcomes": Outcome,
        "changes_meanwhile": [
            (f"{moment(time_ms)} UTC", reason)
            for time_ms, reason in islice(report.settings.quotas.changes_within(first, last), MOST_ROWS)
        ],
    }


def _period(report: Report) -> tuple[int, int]:
    """The first and the last event; 0 where there are exempt requests only."""
    return report.quality.first_ms or 0, report.quality.last_ms or 0


def _peak(row: Finding) -> float:
    """The most that the peak can be, as a share of the limit."""
    return share_of_limit(row.peak_rate_max or row.peak_rate, row.limit) or 0.0


def _chart(report: Report, row: Finding) -> dict[str, Any]:
    """The chart of a counter with a timeline, and the same as numbers in wider bins."""
    from kquota.audit.ledger.timeline import width_of

    timeline = report.timelines[row.name]
    first, last = timeline.around or _period(report)
    # What is drawn holds no name: Vega escapes text, and there is none but numbers and units.
    wide, narrow = (
        Markup(charts.draw(row.key, timeline, first, last, width))  # noqa: S704 - made here, of numbers
        for width in (charts.WIDE, charts.NARROW)
    )
    then = [humanize(row.key, one.limit) for one in timeline.bins if one.throttled]
    return {
        "wide": wide,
        "narrow": narrow,
        "timeline": timeline,
        "coarse": timeline.coarser(width_of(first, last, timeline.width_ms, MOST_NUMBERS)),
        "limit_then": ", then ".join(each for each, _ in groupby(then)) if row.limit_changes else "",
    }


def width_text(width_ms: int) -> str:
    """The width of a bin: `2 s`, `10 min`, `6 h`."""
    for unit, length in (("weeks", 604_800_000), ("days", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if width_ms >= length:
            count = width_ms // length
            return f"{count} {unit}" if count > 1 or unit in ("h", "min") else unit.removesuffix("s")
    return f"{width_ms // 1000} s"
