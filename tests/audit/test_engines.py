"""Which engine runs an audit."""

from __future__ import annotations

import pytest

from kquota.audit import engines
from kquota.audit.sources import Split

SMALL = [Split("usage", "a.parquet", 0, 1, size=engines.LOCAL_BYTES // 2)] * 2
LARGE = [*SMALL, Split("usage", "b.parquet", 0, 1, size=1)]


@pytest.mark.parametrize(
    ("engine", "splits", "master", "chosen"),
    [
        ("auto", SMALL, None, "local"),
        ("auto", LARGE, None, "spark"),
        ("auto", SMALL, "local[2]", "spark"),
        ("local", LARGE, None, "local"),
        ("spark", SMALL, None, "spark"),
    ],
)
def test_the_size_decides_where_nothing_else_does(
    monkeypatch: pytest.MonkeyPatch, engine: str, splits: list[Split], master: str | None, chosen: str
) -> None:
    """All files together."""
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert engines.choose(engine, splits, master) == chosen


def test_under_spark_submit_it_is_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which has started it by then."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert engines.choose("auto", SMALL, None) == "spark"
