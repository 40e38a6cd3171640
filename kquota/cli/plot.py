"""The most throttled counters over time as a picture: SVG, PNG, or an HTML page that needs no network.

The only module that knows the drawing library (vl-convert: Vega-Lite, without a browser).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kquota.errors import InputError, MissingDependency

if TYPE_CHECKING:
    from kquota.core.simulation import CounterResult, Simulation

FORMATS: Final = (".svg", ".png", ".html")
MOST: Final = 6
"""Counters in a picture."""

# The three differ in hue, in lightness and in their dashes, and stand out from white and from a dark page alike.
_SERIES: Final = ("delivered", "offered", "limit")
_DASHES: Final = ((1, 0), (2, 2), (8, 4))
_LIGHT: Final = {"colours": ("#0072b2", "#b35900", "#c00000"), "text": "#24292f", "grid": "#d8dee4", "page": "#ffffff"}
_DARK: Final = {"colours": ("#56b4e9", "#e69f00", "#ff7b72"), "text": "#e6edf3", "grid": "#30363d", "page": "#0d1117"}


def check_plot(path: Path) -> None:
    """Says early what would fail late. Raises click.UsageError for a name, MissingDependency without the library."""
    if path.suffix not in FORMATS:
        raise click.UsageError(f"--plot: {path} is none of *.svg, *.png and *.html")
    try:
        import vl_convert  # noqa: F401
    except ImportError as error:
        raise MissingDependency(f"--plot needs {error.name}", hint="pip install 'kquota[plot]'") from None


def write_plot(result: Simulation, path: Path) -> None:
    """Draws the counters that have a timeline. Raises InputError when there is none, or no such place to write to."""
    drawable = [counter for counter in result.counters if counter.timeline is not None]
    counters = [counter for counter in drawable if counter.throttled][:MOST] or drawable[:1]
    if not counters:
        raise InputError("nothing to plot: no client has a quota", hint="give quotas that govern the clients")
    picture = _picture(counters, path.suffix)
    try:
        path.write_bytes(picture)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _picture(counters: Sequence[CounterResult], suffix: str) -> bytes:
    import vl_convert

    if suffix == ".html":
        return _page(counters, vl_convert.javascript_bundle()).encode()  # type: ignore[call-arg]  # its stub wants a snippet
    spec = specification(counters, _LIGHT)
    if suffix == ".svg":
        svg: str = vl_convert.vegalite_to_svg(spec)
        return svg.encode()
    png: bytes = vl_convert.vegalite_to_png(spec, scale=2)
    return png


def specification(counters: Sequence[CounterResult], theme: Mapping[str, Any]) -> dict[str, Any]:
    """The picture in Vega-Lite: a chart for each counter, below each other."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": theme["page"],
        "padding": 16,
        "vconcat": [_chart(counter, theme) for counter in counters],
        "config": {
            "font": "sans-serif",
            "view": {"stroke": None},
            "axis": {
                "labelColor": theme["text"],
                "titleColor": theme["text"],
                "gridColor": theme["grid"],
                "domainColor": theme["grid"],
                "tickColor": theme["grid"],
                "labelFontSize": 12,
                "titleFontSize": 12,
            },
            "title": {
                "color": theme["text"],
                "subtitleColor": theme["text"],
                "anchor": "start",
                "frame": "group",
                "fontSize": 14,
                "subtitleFontSize": 12,
                "offset": 10,
            },
            "legend": {
                "labelColor": theme["text"],
                "labelFontSize": 12,
                "orient": "top",
                "symbolSize": 400,
                "symbolStrokeWidth": 3,
            },
        },
    }


def _chart(counter: CounterResult, theme: Mapping[str, Any]) -> dict[str, Any]:
    from kquota.cli.text import counter_title

    timeline = counter.timeline
    assert timeline is not None
    rows = []
    for number, values in enumerate(zip(timeline.delivered, timeline.offered, timeline.limit, strict=True)):
        start = number * timeline.bucket_ms
        rows += [
            {"time": start, "series": series, "value": value}
            for series, value in zip(_SERIES, values, strict=True)
            if value is not None
        ]
    end_ms = len(timeline.offered) * timeline.bucket_ms
    rows += [{**row, "time": end_ms} for row in rows if row["time"] == end_ms - timeline.bucket_ms]
    unit = counter.key.unit.replace("bytes", "B").replace("partition mutations", "partitions")
    hours = end_ms >= 3_600_000
    x = {
        "field": "time",
        "type": "quantitative",
        "scale": {"domain": [0, end_ms], "nice": False},
        "axis": {
            "title": None,
            "grid": False,
            "values": list(range(0, end_ms + 1, _tick_ms(end_ms))),
            "labelExpr": f"utcFormat(datum.value, '{'%-H:%M:%S' if hours else '%-M:%S'}')",
        },
    }
    y = {"field": "value", "type": "quantitative", "axis": {"title": unit, "tickCount": 5, "labelExpr": _ENGINEERING}}
    tooltip = [
        {"field": "series", "type": "nominal"},
        {"field": "value", "type": "quantitative", "format": ".3~s", "title": unit},
    ]
    delivered = theme["colours"][0]
    return {
        "width": 760,
        "height": 200,
        "title": {"text": counter_title(counter), "subtitle": _subtitle(counter)},
        "data": {"values": rows},
        "layer": [
            {
                "transform": [{"filter": "datum.series == 'delivered'"}],
                "mark": {"type": "area", "interpolate": "step-after", "opacity": 0.35, "color": delivered},
                "encoding": {"x": x, "y": y},
            },
            {
                "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2, "clip": True},
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": {
                        "field": "series",
                        "type": "nominal",
                        "scale": {"domain": list(_SERIES), "range": list(theme["colours"])},
                        "legend": {"title": None},
                    },
                    "strokeDash": {
                        "field": "series",
                        "type": "nominal",
                        "scale": {"domain": list(_SERIES), "range": [list(dashes) for dashes in _DASHES]},
                    },
                    "tooltip": tooltip,
                },
            },
        ],
    }


_ENGINEERING: Final = "datum.value == 0 ? '0' : format(datum.value, '~s')"
_TICKS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600)


def _tick_ms(end_ms: int) -> int:
    """A round distance of marks, of which at most eight fit."""
    return next((1000 * seconds for seconds in _TICKS_S if end_ms <= 8000 * seconds), end_ms)


def _subtitle(counter: CounterResult) -> str:
    from kquota.cli.text import clock, duration

    if counter.first_throttled_ms is None or counter.throttled_until_ms is None:
        return "never throttled"
    when = f"from {clock(counter.first_throttled_ms)} to {clock(counter.throttled_until_ms)}"
    return f"throttled {when}, {counter.throttled} requests, longest {duration(counter.throttle_max_ms)}"


def _page(counters: Sequence[CounterResult], library: str) -> str:
    """A page of its own: the library, the data, and the reader's choice of light or dark."""
    # Names come from a cluster: nothing in them may end the script.
    specs = {
        name: json.dumps(specification(counters, theme)).replace("<", "\\u003c")
        for name, theme in (("light", _LIGHT), ("dark", _DARK))
    }
    style = (
        f":root {{ color-scheme: light dark }} body {{ margin: 0; padding: 8px; background: {_LIGHT['page']} }}"
        f" @media (prefers-color-scheme: dark) {{ body {{ background: {_DARK['page']} }} }}"
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>kquota simulate</title>
<style>{style}</style>
</head>
<body>
<div id="chart"></div>
<script type="module">
{library}
const specs = {{ light: {specs["light"]}, dark: {specs["dark"]} }};
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const options = {{ actions: false, renderer: "svg" }};
const draw = () => window.vegaEmbed("#chart", specs[dark.matches ? "dark" : "light"], options);
dark.addEventListener("change", draw);
draw();
</script>
</body>
</html>
"""
