"""Results in notebooks: DataFrames, and HTML in which names are text."""

import builtins
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kquota import DEFAULT, Entity, MissingDependency, QuotaKey, QuotaSnapshot, Resolution
from kquota.core.resolve.resolver import Level, Sensor, Shadowed
from kquota.core.tabular import tabulated

SNAPSHOT = QuotaSnapshot(
    {
        Entity(user="<b>alice</b>"): {QuotaKey.PRODUCER_BYTE_RATE: 10_000_000, QuotaKey.REQUEST_PERCENTAGE: 50.0},
        Entity(user=DEFAULT, client_id="app"): {QuotaKey.CONSUMER_BYTE_RATE: 1},
    }
)


def test_a_data_frame_has_a_row_for_each_value() -> None:
    frame = SNAPSHOT.to_pandas()
    assert list(frame.columns) == ["entity", "user", "client_id", "ip", "key", "value", "limit"]
    assert len(frame) == 3
    first = frame[frame["key"] == "producer_byte_rate"].iloc[0]
    assert (first["user"], first["value"], first["limit"]) == ("<b>alice</b>", 10_000_000, "10 MB/s")
    assert list(QuotaSnapshot().to_pandas().columns) == list(frame.columns)


def test_a_row_follows_paths_and_words_are_words() -> None:
    """Behind None is None; entities and enumerations are texts, and numbers stay numbers."""
    limited = Resolution(
        QuotaKey.PRODUCER_BYTE_RATE,
        5,
        Level.USER,
        Entity(user="a"),
        Sensor("a", ""),
        (Shadowed(Level.CLIENT, None, 7),),
    )
    names = "key unit=key.unit limit entity sensor level=level.number below=shadows.0.value"
    headings, rows = tabulated([limited, replace(limited, level=None, entity=None)], names)
    assert list(headings) == ["key", "unit", "limit", "entity", "sensor", "level", "below"]
    assert list(rows) == [
        ["producer_byte_rate", "bytes/s", 5, "user=a", "a:", 3, 7],
        ["producer_byte_rate", "bytes/s", 5, None, "a:", None, 7],
    ]


def test_html_escapes_names() -> None:
    html = SNAPSHOT._repr_html_()
    assert html is not None
    assert "&lt;b&gt;alice&lt;/b&gt;" in html
    assert "<b>" not in html
    assert html.count("<tr") == 4


def test_without_pandas_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(MissingDependency) as raised:
        SNAPSHOT.to_pandas()
    assert raised.value.extra == "audit"
    assert SNAPSHOT._repr_html_() is None
