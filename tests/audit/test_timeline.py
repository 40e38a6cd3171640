"""The worst counters over time say what the findings say, however they were put together."""

from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kquota import DEFAULT, Entity, QuotaKey, QuotaSnapshot
from kquota.audit.engines import local
from kquota.audit.ledger import timeline
from kquota.audit.ledger.timeline import MOST_BINS, Bin, Timeline, width_of
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import plan_splits
from kquota.core.change.history import QuotaHistory
from tests.cli.test_report import recorded

MOMENTS = st.integers(min_value=0, max_value=10**14)


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
    """For every throttled counter; the clients' throttles add up, too."""
    result, _ = recorded()

    told = rows_with_timeline(result)
    pairs = {"bob:fraud-reader", "bob:etl"}
    assert {row["sensor"] for row, _ in told} == {"alice:", "carol:", ":sensor-gw", ":web-edge", *pairs}
    for row, line in told:
        assert line.width_ms == 2000
        assert_told_alike(row, line)
        assert sum(client["throttled_events"] for client in row["clients"]) == row["throttled_events"]
    (undetermined,) = (row for row in result.findings.to_pylist() if row["verdict"] == "undetermined")
    assert [client["throttled_events"] for client in undetermined["clients"]] == [None]


MONTH_MS, MINUTE_MS = 30 * 86_400_000, 60_000


def test_ten_minutes_of_a_month_are_shown_alone(tmp_path: Path) -> None:
    """With as much again before and after, in bins that tell them apart; what goes on all month is shown as it was."""
    start, trouble = 1_700_000_000_000, 1_700_000_000_000 + 20 * 86_400_000
    rows = [(start + at, user, 1000) for at in range(0, MONTH_MS, 2 * MINUTE_MS) for user in ("alice", "carol")]
    rows += [(trouble + at, "alice", 100_000) for at in range(0, 10 * MINUTE_MS + 1, 10_000)]
    rows += [(start + at, "bob", 200_000) for at in range(0, MONTH_MS, 10 * MINUTE_MS)]
    usage = tmp_path / "usage.csv"
    lines = [f"{time},{user},produce,{size}" for time, user, size in sorted(rows)]
    usage.write_text("\n".join(["time_ms,user,api,bytes", *lines]))
    quotas = QuotaHistory.of(QuotaSnapshot({Entity(user=DEFAULT): {QuotaKey.PRODUCER_BYTE_RATE: 5000}}))
    asked = AuditSettings(quotas, timelines=8)

    result = local.audit(plan_splits([str(usage)], "auto"), asked, "usage.csv", processes=1)

    told = {row["sensor"]: (row, line) for row, line in rows_with_timeline(result)}
    assert set(told) == {"alice:", "bob:"}
    worst = local.audit(plan_splits([str(usage)], "auto"), replace(asked, timelines=1), "usage.csv", processes=1)
    assert [sensor for _, _, sensor in worst.timelines] == ["alice:"]
    assert told["bob:"][1].around is None
    assert_told_alike(*told["bob:"])
    row, line = told["alice:"]
    assert line.around == (trouble - 10 * MINUTE_MS, trouble + 20 * MINUTE_MS)
    assert row["last_throttled_ms"] - row["first_throttled_ms"] == 10 * MINUTE_MS
    assert sum(one.throttle_ms for one in line.bins) == row["throttle_time_ms"]
    assert sum(one.throttled for one in line.bins) == row["throttled_events"] == 61 + 5
    assert line.bins[0].start_ms <= line.around[0] + 2 * MINUTE_MS
    assert line.bins[-1].start_ms >= line.around[1] - 2 * MINUTE_MS - line.width_ms
    assert len([one for one in line.bins if one.throttled]) >= 61


@given(st.lists(st.integers(0, 1000) | st.integers(0, 10**6), min_size=6, max_size=6))
def test_what_is_small_in_a_part_is_small_in_all(gaps: list[int]) -> None:
    """Whoever replays a part may drop the rest."""
    whole_first, part_first, first, last, part_last, whole_last = accumulate(gaps)
    part = timeline.around(first, last, part_first, part_last)
    whole = timeline.around(first, last, whole_first, whole_last)

    if part is not None:
        assert whole is not None
        assert part == (max(whole[0], part_first), min(whole[1], part_last))
        assert part_first <= part[0] <= first <= last <= part[1] <= part_last


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
