"""The most throttled counters over time as a picture: SVG, PNG, or an HTML page that needs no network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import click

from kquota.cli import drawing
from kquota.cli.drawing import DARK, LIGHT, Theme
from kquota.cli.simulation import alike
from kquota.cli.text import clock, counter_title, duration
from kquota.core.simulation import CounterResult, Simulation
from kquota.documents.encoding import write_bytes
from kquota.errors import InputError

FORMATS: Final = (".svg", ".png", ".html")
MOST: Final = 6
"""Counters in a picture."""
WIDTH: Final = 760
"""Of a chart in a picture, in px; on a page it is as wide as there is room."""

_SERIES: Final = ("delivered", "offered", "limit")
_DASHES: Final = ((1, 0), (2, 2), (8, 4))


def check_plot(path: Path) -> None:
    """Says early what would fail late. Raises click.UsageError for a name, MissingDependency without the library."""
    if path.suffix not in FORMATS:
        raise click.UsageError(f"--plot: {path} must end in .svg, .png or .html")
    drawing.check_drawing("--plot", "plot")


def write_plot(result: Simulation, path: Path) -> None:
    """Draws the counters that have a timeline. Raises InputError when there is none, or no such place to write to."""
    drawable = alike([counter for counter in result.counters if counter.timeline is not None])
    counters = [counter for counter in drawable if counter.throttled][:MOST] or drawable[:1]
    if not counters:
        raise InputError("nothing to plot: no client has a quota", hint="give quotas that govern the clients")
    write_bytes(path, _picture(counters, path.suffix), mode=0o644)


def _picture(counters: Sequence[CounterResult], suffix: str) -> bytes:
    if suffix == ".html":
        return _page(counters).encode()
    charts = [_chart(counter, LIGHT, WIDTH) for counter in counters]
    specification = drawing.picture(LIGHT, {"padding": 16, "vconcat": charts})
    return drawing.svg(specification).encode() if suffix == ".svg" else drawing.png(specification)


def _chart(counter: CounterResult, theme: Theme, width: int | str) -> dict[str, Any]:
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
            "labelOverlap": "greedy",
            "labelSeparation": 12,
            "values": list(range(0, end_ms + 1, _tick_ms(end_ms))),
            "labelExpr": f"utcFormat(datum.value, '{'%-H:%M:%S' if hours else '%-M:%S'}')",
        },
    }
    y = {
        "field": "value",
        "type": "quantitative",
        "axis": {"title": unit, "tickCount": 5, "labelExpr": drawing.ENGINEERING},
    }
    tooltip = [
        {"field": "series", "type": "nominal"},
        {"field": "value", "type": "quantitative", "format": ".3~s", "title": unit},
    ]
    delivered = theme.series[0]
    return {
        "width": width,
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
                        "scale": {"domain": list(_SERIES), "range": list(theme.series)},
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


_TICKS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600)


def _tick_ms(end_ms: int) -> int:
    """A round distance of marks, of which at most eight fit."""
    return next((1000 * seconds for seconds in _TICKS_S if end_ms <= 8000 * seconds), end_ms)


def _subtitle(counter: CounterResult) -> str:
    if counter.first_throttled_ms is None or counter.throttled_until_ms is None:
        return "never throttled"
    when = f"from {clock(counter.first_throttled_ms)} to {clock(counter.throttled_until_ms)}"
    return f"throttled {when}, {counter.throttled} requests, longest {duration(counter.throttle_max_ms)}"


def _page(counters: Sequence[CounterResult]) -> str:
    """A page of its own: the library, the data, and the reader's choice of light or dark."""
    # A title in a chart would be cut off where the page is narrow.
    sections = "".join(
        f"<section><h2>{escape(counter_title(counter))}</h2><p>{escape(_subtitle(counter))}</p><div></div></section>\n"
        for counter in counters
    )
    # Names come from a cluster: nothing in them may end the script.
    charts = {
        name: json.dumps([_whole(counter, theme) for counter in counters]).replace("<", "\\u003c")
        for name, theme in (("light", LIGHT), ("dark", DARK))
    }
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>kquota simulate</title>
<style>{_STYLE}</style>
</head>
<body>
{sections}<script type="module">
{drawing.scripts()}
const charts = {{ light: {charts["light"]}, dark: {charts["dark"]} }};
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const options = {{ actions: false, renderer: "svg" }};
const places = document.querySelectorAll("section > div");
const draw = () => charts[dark.matches ? "dark" : "light"].forEach((chart, number) =>
  window.vegaEmbed(places[number], chart, options));
dark.addEventListener("change", draw);
draw();
</script>
</body>
</html>
"""


def _whole(counter: CounterResult, theme: Theme) -> dict[str, Any]:
    """One chart for a page: as wide as there is room, without the title."""
    chart = _chart(counter, theme, "container")
    del chart["title"]
    return drawing.picture(theme, {"autosize": {"type": "fit-x", "contains": "padding"}, **chart})


_STYLE: Final = f"""
:root {{ color-scheme: light dark }}
body {{ margin: 0 auto; max-width: 60rem; padding: 1rem; font: 14px/1.4 sans-serif }}
body {{ color: {LIGHT.text}; background: {LIGHT.page} }}
section {{ margin-bottom: 2rem }}
h2, p {{ margin: 0; overflow-wrap: anywhere }}
h2 {{ font-size: 1rem }}
div {{ width: 100% }}
@media (prefers-color-scheme: dark) {{ body {{ color: {DARK.text}; background: {DARK.page} }} }}
"""
