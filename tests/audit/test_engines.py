"""Which engine runs an audit."""

import gc
from pathlib import Path

import pytest

from kquota import InputError, QuotaSnapshot
from kquota.audit import engines
from kquota.audit.engines import local
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import Split
from kquota.core.change.history import QuotaHistory

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


def test_under_spark_submit_only_what_is_small_is_audited_in_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """YARN would call a driver on the cluster that starts no Spark a failure: there it is always Spark."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    small, larger = ([Split("usage", "a.parquet", 0, 1, size=engines.DRIVER_BYTES + more)] for more in (0, 1))
    assert [engines.choose("auto", splits, None) for splits in (small, larger)] == ["local", "spark"]
    assert engines.choose("spark", small, None) == "spark"
    monkeypatch.setenv("SPARK_YARN_STAGING_DIR", "hdfs:///user/kafka/.sparkStaging/application_1")
    assert engines.choose("auto", small, None) == "spark"


@pytest.mark.parametrize(("before", "meanwhile"), [(700, 500_000), (0, 0), (600_000, 600_000)])
def test_an_audit_leaves_the_garbage_collector_of_its_process_as_it_was(
    tmp_path: Path, before: int, meanwhile: int
) -> None:
    """Also where it fails. A process that never looks for garbage, or more seldom, has its reasons."""
    missing, seen = Split("usage", str(tmp_path / "missing.parquet"), 0, 1), []
    ours = gc.get_threshold()
    gc.set_threshold(before, 11, 12)
    try:
        with pytest.raises(InputError):
            local.audit(
                [missing],
                AuditSettings(QuotaHistory.of(QuotaSnapshot({}))),
                "it",
                progress=lambda *_: seen.append(gc.get_threshold()),
            )
        assert (gc.get_threshold(), set(seen)) == ((before, 11, 12), {(meanwhile, 11, 12)})
    finally:
        gc.set_threshold(*ours)
