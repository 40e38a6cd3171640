"""The worst counters over time say what the findings say, however they were put together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.audit import local, replay, timeline
from kquota.audit.findings import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import ReadSettings, plan_splits
from kquota.audit.timeline import MOST_BINS, Bin, Timeline, width_of
from kquota.core.history import QuotaHistory
from kquota.documents.quotas import read_quotas
from tests.audit.recorded import LOG, QUOTAS

MOMENTS = st.integers(min_value=0, max_value=10**14)


def audit(timelines: int) -> AuditResult:
    """The audit of the recorded log with as many timelines."""
    settings = AuditSettings(
        QuotaHistory.of(read_quotas(QUOTAS)), per_client=True, timelines=timelines, read=ReadSettings(broker="1")
    )
    return local.audit(plan_splits([str(LOG)], "request-log"), settings, "the recorded log", processes=1)


def rows_with_timeline(result: AuditResult) -> list[tuple[dict[str, Any], Timeline]]:
    """The findings of the counters that have one."""
    named = ((row, (row["broker"], row["key"], row["sensor"])) for row in result.findings.to_pylist())
    return [(row, result.timelines[name]) for row, name in named if name in result.timelines]


def assert_told_alike(row: dict[str, Any], line: Timeline) -> None:
    """The bins add up to the finding."""
    assert sum(one.events for one in line.bins) == row["events"]
    assert sum(one.throttled for one in line.bins) == row["throttled_events"]
    assert sum(one.throttle_ms for one in line.bins) == row["throttle_time_ms"]
    assert max(one.peak_rate for one in line.bins) == row["peak_rate"]
    assert {one.limit for one in line.bins} == {row["limit"]}
    hit = [one.start_ms for one in line.bins if one.throttled]
    assert hit[0] <= row["first_throttled_ms"] < hit[0] + line.width_ms
    assert hit[-1] <= row["last_throttled_ms"] < hit[-1] + line.width_ms


def test_the_bins_add_up_to_the_findings() -> None:
    """For the most throttled counters, the worst first; the clients' throttles add up, too."""
    result = audit(4)

    told = rows_with_timeline(result)
    assert [row["sensor"] for row, _ in told] == ["alice:", "carol:", "bob:fraud-reader", ":sensor-gw"]
    for row, line in told:
        assert line.width_ms == 2000
        assert_told_alike(row, line)
        assert sum(client["throttled_events"] for client in row["clients"]) == row["throttled_events"]
    (undetermined,) = (row for row in result.findings.to_pylist() if row["verdict"] == "undetermined")
    assert [client["throttled_events"] for client in undetermined["clients"]] == [None]


def test_how_the_replay_is_cut_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small parts make the same bins."""
    whole = audit(8)

    monkeypatch.setattr(replay, "FLUSH_ROWS", 500)
    assert audit(8).timelines == whole.timelines


def test_memory_is_bounded_by_wider_bins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are too many bins they get wider, and still add up."""
    monkeypatch.setattr(timeline, "MOST_CELLS", 60)
    monkeypatch.setattr(replay, "FLUSH_ROWS", 500)

    told = rows_with_timeline(audit(8))

    assert len(told) == 6
    for row, line in told:
        assert line.width_ms > 2000
        assert_told_alike(row, line)


def test_nothing_is_followed_unless_asked_for() -> None:
    """Timelines are for reports."""
    assert audit(0).timelines == {}


@given(MOMENTS, MOMENTS, st.integers(min_value=1, max_value=MOST_BINS))
def test_a_width_makes_few_bins(one: int, other: int, most: int) -> None:
    """At most as many as asked for, and widths divide each other."""
    first, last = sorted((one, other))
    width = width_of(first, last, most=most)

    assert last // width - first // width < most
    assert width % width_of(first, first + (last - first) // 2, most=most) == 0


@given(st.lists(st.integers(0, 5000), unique=True, min_size=1), st.sampled_from([1, 2, 10, 20, 60, 120, 600]))
def test_coarser_bins_hold_the_same(starts: list[int], factor: int) -> None:
    """Sums stay, the highest rate stays, the limit is the last one."""
    fine = Timeline(
        1000, tuple(Bin(1000 * start, 3, start % 2, start % 2 * 70, start * 1.5, start) for start in sorted(starts))
    )
    coarse = fine.coarser(1000 * factor)

    assert coarse.width_ms == 1000 * factor
    assert all(one.start_ms % coarse.width_ms == 0 for one in coarse.bins)
    for name in ("events", "throttled", "throttle_ms"):
        assert sum(getattr(one, name) for one in coarse.bins) == sum(getattr(one, name) for one in fine.bins)
    assert max(one.peak_rate for one in coarse.bins) == max(one.peak_rate for one in fine.bins)
    assert coarse.bins[-1].limit == fine.bins[-1].limit
