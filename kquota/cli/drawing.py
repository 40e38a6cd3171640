"""How pictures look, and the only module that knows the drawing library (vl-convert: Vega-Lite, without a browser)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kquota.errors import MissingDependency


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of a picture, as CSS has them.

    The three of the series differ in hue and in lightness, and stand out from the page alike.
    """

    series: tuple[str, str, str]
    text: str
    grid: str
    page: str | None
    """The background; None: what is behind the picture."""


LIGHT: Final = Theme(("#0072b2", "#b35900", "#c00000"), text="#24292f", grid="#d8dee4", page="#ffffff")
DARK: Final = Theme(("#56b4e9", "#e69f00", "#ff7b72"), text="#e6edf3", grid="#30363d", page="#0d1117")

ENGINEERING: Final = "datum.value == 0 ? '0' : format(datum.value, '~s')"
"""The label of a number on an axis, as a Vega expression: `300k`."""

AS_AROUND: Final = Theme(("var(--calm)", "var(--hit)", "var(--limit)"), "var(--text)", "var(--line)", None)
"""The colours of the page that an SVG is part of."""


def check_drawing(option: str, extra: str) -> None:
    """Says early what would fail late. Raises MissingDependency, with the option and the extra, without the library."""
    try:
        import vl_convert  # noqa: F401
    except ImportError as error:
        raise MissingDependency(f"{option} needs {error.name}", extra=extra) from None


def picture(theme: Theme, charts: dict[str, Any]) -> dict[str, Any]:
    """Charts in the house's style as a whole specification of Vega-Lite."""
    line = {"gridColor": theme.grid, "domainColor": theme.grid, "tickColor": theme.grid}
    return {
        "background": theme.page,
        **charts,
        "config": {
            "font": "sans-serif",
            "view": {"stroke": None},
            "axis": {
                "labelColor": theme.text,
                "titleColor": theme.text,
                "labelFontSize": 12,
                "titleFontSize": 12,
                "titleFontWeight": "normal",
                **line,
            },
            "axisY": {"minExtent": 44},  # charts below each other begin at the same place
            "title": {
                "color": theme.text,
                "subtitleColor": theme.text,
                "anchor": "start",
                "frame": "group",
                "fontSize": 14,
                "subtitleFontSize": 12,
                "offset": 10,
            },
            "legend": {
                "labelColor": theme.text,
                "labelFontSize": 12,
                "orient": "top",
                "symbolSize": 400,
                "symbolStrokeWidth": 3,
            },
        },
    }


def svg(specification: dict[str, Any]) -> str:
    """The picture as SVG."""
    import vl_convert

    drawn: str = vl_convert.vegalite_to_svg(specification)
    return drawn


def png(specification: dict[str, Any]) -> bytes:
    """The picture as PNG, two pixels for one."""
    import vl_convert

    drawn: bytes = vl_convert.vegalite_to_png(specification, scale=2)
    return drawn


def scripts() -> str:
    """JavaScript that draws in a browser, without a network: it sets `window.vegaEmbed`."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stub wants a snippet
    return bundle
