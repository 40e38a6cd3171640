"""The chart of one counter: its rate against the limit over time, and below it the delayed requests."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from kquota.core.quotas.quota import QuotaKey

if TYPE_CHECKING:
    from kquota.audit.ledger.timeline import Timeline

WIDE: Final = 624
NARROW: Final = 272
"""The two widths of the drawing itself (px), the axis left out: for a page on a desk or on paper, and for a phone."""

_CALM, _HIT, _LIMIT = "var(--calm)", "var(--hit)", "var(--limit)"
_TEXT, _LINE = "var(--text)", "var(--line)"
"""The colours of the page."""

_ENGINEERING: Final = "datum.value == 0 ? '0' : format(datum.value, '~s')"
"""The label of a number on an axis, as a Vega expression: `300k`."""

_CONFIG: Final = {
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": _TEXT,
        "titleColor": _TEXT,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "gridColor": _LINE,
        "domainColor": _LINE,
        "tickColor": _LINE,
    },
    "axisY": {"minExtent": 44},  # charts below each other begin at the same place
}

HEADROOM: Final = 2
"""So many times what is shown is what the axis reaches to at most."""


def draw(key: QuotaKey, timeline: Timeline, first_ms: int, last_ms: int, width: int) -> str:
    """SVG in the colours of the page, of the time from the first to the last ms."""
    import vl_convert

    drawn = vl_convert.vegalite_to_svg(_specification(key, timeline, first_ms, last_ms, width))
    # A tenth of a pixel is enough, and half of the page.
    return re.sub(r' d="[^"]*"', lambda path: re.sub(r"\d+\.\d+", lambda n: f"{float(n[0]):.1f}", path[0]), drawn)


def _specification(key: QuotaKey, timeline: Timeline, first_ms: int, last_ms: int, width: int) -> dict[str, Any]:
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
    limits = [{"start": one.start_ms, "limit": one.limit} for one in timeline.bins]
    limits = [{**limits[0], "start": begin}, *limits[1:], {**limits[-1], "start": end}]
    # A limit far above all that was used, such as one that was lifted, must not flatten the rest.
    room = HEADROOM * max(min(one.limit for one in timeline.bins), *(one.peak_rate for one in timeline.bins))
    scale = {"domainMax": room, "clamp": True} if max(one.limit for one in timeline.bins) > room else {}
    axis = {
        "title": None,
        "grid": False,
        "format": time_format(end - begin),
        "tickCount": width // 100,
        "labelFlush": False,
        "labelOverlap": "greedy",
        "labelSeparation": 12,
    }
    x: dict[str, Any] = {
        "field": "start",
        "type": "temporal",
        "scale": {"type": "utc", "domain": [begin, end], "nice": False},
        "axis": {**axis, "labels": False},
    }
    bar: dict[str, Any] = {"x": x, "x2": {"field": "end"}}
    unit = key.unit.replace("bytes", "B").replace("partition mutations", "partitions")
    y_axis = {"title": unit, "tickCount": 4, "labelExpr": _ENGINEERING}

    def bars(values: list[dict[str, Any]], bottom: dict[str, Any], top: str, colour: str) -> dict[str, Any]:
        y = {"field": top, "type": "quantitative", "axis": y_axis, "scale": scale}
        mark = {"type": "rect", "aria": False, "color": colour}
        return {"data": {"values": values}, "mark": mark, "encoding": {**bar, "y": y, "y2": bottom}}

    line = {"type": "line", "aria": False, "interpolate": "step-after", "strokeWidth": 2, "strokeDash": [6, 3]}
    rate = {
        "width": width,
        "height": 150,
        "layer": [
            bars(bins, {"datum": 0}, "within", _CALM),
            bars([one for one in bins if one["over"] > one["limit"]], {"field": "limit"}, "over", _HIT),
            {
                "data": {"values": limits},
                "mark": {**line, "color": _LIMIT},
                "encoding": {"x": x, "y": {"field": "limit", "type": "quantitative", "axis": y_axis, "scale": scale}},
            },
        ],
    }
    x = {**x, "axis": axis}
    bar["x"] = x
    y_axis, scale = {"title": "delayed", "tickCount": 2, "labelExpr": _ENGINEERING}, {}
    delay = {"width": width, "height": 56, **bars(bins, {"datum": 0}, "delay", _HIT)}
    padding = {"left": 0, "top": 6, "right": 14, "bottom": 2}
    return {"background": None, "padding": padding, "spacing": 10, "vconcat": [rate, delay], "config": _CONFIG}


def time_format(span_ms: int) -> str:
    """How the axis tells a time."""
    if span_ms <= 15 * 60_000:
        return "%H:%M:%S"
    if span_ms <= 36 * 3_600_000:
        return "%H:%M"
    return "%d %b %H:%M" if span_ms <= 5 * 86_400_000 else "%d %b"
