"""The page itself: the result of an audit in the words of `words`, put into the template."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kquota import __version__
from kquota.cli.report import MOST, words
from kquota.cli.streams import warned
from kquota.cli.text import many, moment, rate_text, records_text, safe
from kquota.core.findings.finding import Finding, limits_under
from kquota.core.findings.together import over_brokers
from kquota.core.findings.whatif import Comparison
from kquota.core.quotas.quota import QuotaKey, Value, humanize, limit_text, share_of_limit
from kquota.errors import InputError
from kquota.files import replacing

if TYPE_CHECKING:
    from kquota.audit.ledger.timeline import Timeline
    from kquota.audit.result import AuditResult
    from kquota.audit.settings import AuditSettings


_Limits: TypeAlias = Sequence[tuple[int | None, Value | None]]
"""The limits of a counter in the recorded time, each with its beginning."""
MOST_ROWS: Final = 200
"""Counters in a table; the rest is in the JSON."""
MOST_NUMBERS: Final = 32
"""Lines in the table below a chart."""
NEAR: Final = 0.8
"""A peak of this share of the limit is near it."""


def write_report(
    path: Path,
    result: AuditResult,
    settings: AuditSettings,
    *,
    command: str,
    comparison: Comparison | None = None,
) -> None:
    """Writes the page of an audit that this command line makes again. Raises InputError where it cannot be written.

    `comparison` is what these quotas change, where others were replayed beside them.
    """
    environment = Environment(
        loader=PackageLoader("kquota.cli.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.globals |= {"words": words, "humanize": humanize, "rate": rate_text, "width": words.length}
    environment.filters |= {
        "count": lambda number: f"{number:,}",
        "limit_of": lambda limit, key: limit_text(key, limit),
        "length_of": words.length,
        "many": many,
        "whole": _whole,
    }
    given = {"command": command, "comparison": comparison}
    page = environment.get_template("page.html").render(_values(result, settings) | given)
    try:
        with replacing(path) as aside:
            aside.write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot write the report: {error.strerror or error}") from None


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


def _values(result: AuditResult, settings: AuditSettings) -> dict[str, Any]:
    rows, quality = [*result.found], result.quality
    throttled = [row for row in rows if row.throttled]
    calm = [row for row in rows if not row.throttled and not row.undetermined]
    near = sorted((row for row in over_brokers(calm) if _peak(row) >= NEAR), key=_peak, reverse=True)
    bases = {row.basis.value for row in rows}
    step = words.next_step({row.entity for row in throttled}, {row.basis.value for row in throttled}, reported=True)
    first, last = quality.period
    limits = limits_under(settings.quotas.within(first, last))
    changes = [*settings.quotas.changes_within(first, last)]
    period = words.times(first, last)
    day, comma, _ = period.partition(", ")
    return {
        "findings": rows,
        "settings": settings,
        "engine": result.engine,
        "quality": quality,
        "warned": warned(),
        "version": __version__,
        "totals": words.totals(rows),
        "answer": words.answer(rows, quality.answers),
        "next_step": _with_commands(step or ""),
        "predicted": any(row.prediction is not None for row in rows),
        "period": period,
        "period_length": words.length(last - first),
        "day": day + comma if comma else "",
        "brokers": sorted({row.broker for row in rows} - {""}),
        "most_rows": MOST_ROWS,
        "limits": limits,
        "worst": throttled[:MOST],
        "throttled": [row for row in over_brokers(rows) if row.throttled],
        "undetermined": over_brokers(row for row in rows if row.undetermined),
        "near": near,
        "calm": len(calm),
        "highest": words.share(max(map(_peak, calm)), 1) if calm else "",
        "charts": {
            row.name: _chart(row, result.timelines[row.name], limits(row), (first, last))
            for row in throttled[:MOST]
            if row.name in result.timelines
        },
        "read": records_text(quality.events, bases),
        "mutations": any(row.key is QuotaKey.CONTROLLER_MUTATION_RATE for row in rows),
        "sampled": bool(bases) and bases.isdisjoint({"requests", "connections"}),
        "ungoverned": records_text(quality.ungoverned, bases),
        "quotas": [f"{text[0].upper()}{text[1:]}." for text in words.verdict_lines(result.quotas)],
        "changed": len(changes),
        "changes_meanwhile": [(f"{moment(time_ms)} UTC", reason) for time_ms, reason in changes[:MOST_ROWS]],
    }


def _peak(row: Finding) -> float:
    """The most that the peak can be, as a share of the limit."""
    return share_of_limit(row.peak_rate_max or row.peak_rate, row.limit) or 0.0


def _chart(row: Finding, timeline: Timeline, limits: _Limits, period: tuple[int, int]) -> dict[str, Any]:
    """The chart of a counter with a timeline, and the same as numbers in wider bins."""
    from kquota.audit.ledger.timeline import width_of

    first, last = timeline.around or period
    # What is drawn holds no name: Vega escapes text, and there is none but numbers and units.
    wide, narrow = (
        Markup(_drawn(row.key, timeline, limits, first, last, width))  # noqa: S704 - made here, of numbers
        for width in (WIDE, NARROW)
    )
    then = [humanize(row.key, one.limit) for one in timeline.bins if one.throttled]
    return {
        "wide": wide,
        "narrow": narrow,
        "timeline": timeline,
        "coarse": timeline.coarser(width_of(first, last, timeline.width_ms, MOST_NUMBERS)),
        "limit_then": ", then ".join(limit for limit, _ in groupby(then)) if len(limits) > 1 else "",
    }


WIDE: Final = 624
NARROW: Final = 272
"""The two widths of the drawing itself (px), the axis left out: for a page on a desk or on paper, and for a phone."""

HEADROOM: Final = 2
"""So many times what is shown is what the axis reaches to at most."""


def _drawn(key: QuotaKey, timeline: Timeline, limits: _Limits, first_ms: int, last_ms: int, width: int) -> str:
    """The chart of one counter as SVG: its rate against the limit over time, and below it the delayed requests.

    It has the colours of the page, and is of the time from the first to the last ms.
    """
    import vl_convert

    drawn = vl_convert.vegalite_to_svg(_specification(key, timeline, limits, first_ms, last_ms, width))
    # A tenth of a pixel is enough, and half of the page.
    return re.sub(r' d="[^"]*"', lambda path: re.sub(r"\d+\.\d+", lambda n: f"{float(n[0]):.1f}", path[0]), drawn)


def _specification(
    key: QuotaKey, timeline: Timeline, limits: _Limits, first_ms: int, last_ms: int, width: int
) -> dict[str, Any]:
    """The chart of `chart.json`, with the numbers, the period and the width of this one."""
    chart: dict[str, Any] = json.loads((files("kquota.cli.report") / "chart.json").read_text(encoding="utf-8"))
    step = timeline.width_ms
    begin, end = first_ms // step * step, (last_ms // step + 1) * step
    bins = [
        {
            "start": one.start_ms,
            "end": one.start_ms + step,
            "within": min(one.peak_rate, one.limit),
            "over": max(one.peak_rate, one.limit),
            "limit": one.limit,
            "delay": one.throttled,
        }
        for one in timeline.bins
    ]
    # The last one before the chart is the one at its begin; no value where there was no limit.
    steps = [(min(max(since or begin, begin), end), limit) for since, limit in limits]
    line = {start: {"start": start, "limit": limit} for start, limit in [*steps, (end, limits[-1][1])]}
    over = [one for one in bins if one["over"] > one["limit"]]
    chart["datasets"] = {"bins": bins, "over": over, "limits": [*line.values()]}
    # A limit far above all that was used, such as one that was lifted, must not flatten the rest.
    room = HEADROOM * max(min(one.limit for one in timeline.bins), *(one.peak_rate for one in timeline.bins))
    scale = {"domainMax": room, "clamp": True} if max(limit or 0 for _, limit in steps) > room else {}
    rate, delay = chart["vconcat"]
    rate["width"] = delay["width"] = width
    for layer in rate["layer"]:
        layer["encoding"]["y"]["scale"] = scale
        layer["encoding"]["y"]["axis"]["title"] = key.unit.replace("bytes", "B").replace(
            "partition mutations", "partitions"
        )
    for layer in (*rate["layer"], delay):
        layer["encoding"]["x"]["scale"]["domain"] = [begin, end]
        layer["encoding"]["x"]["axis"] |= {"format": time_format(end - begin), "tickCount": width // 100}
    return chart


def time_format(span_ms: int) -> str:
    """How the axis tells a time."""
    if span_ms <= 15 * 60_000:
        return "%H:%M:%S"
    if span_ms <= 36 * 3_600_000:
        return "%H:%M"
    return "%d %b %H:%M" if span_ms <= 5 * 86_400_000 else "%d %b"
