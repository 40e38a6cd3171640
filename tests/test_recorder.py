"""Recordings on loggers in memory: every way in which one ends leaves the loggers as they were, or says why not."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kquota import Conflict, InputError, Rejected, Unreachable, recorder
from kquota.backends.kafka.brokers import KafkaLoggers
from kquota.core.change.plan import Cluster
from kquota.core.change.recording import LINE_BYTES, Bounds, Fate, Level, LevelChange, Reading, Space
from kquota.documents.journal import Journal

PLACE = Cluster("kafka://a:1", "id")


class Loggers(KafkaLoggers):
    """Two brokers: their own level, or None for the root's; `before` is called with each call and its node."""

    noun = "broker"

    def __init__(self, own: dict[int, str | None], root: str = "INFO") -> None:
        self.own, self.root = own, root
        self.calls: list[tuple[str, int, Any]] = []
        self.before: Callable[[str, int], None] = lambda name, node: None
        self.usable = 10**12

    def place(self) -> Cluster:
        return PLACE

    def nodes(self) -> tuple[int, ...]:
        return tuple(sorted(self.own))

    def level(self, node: int) -> Level:
        self.before("level", node)
        if node not in self.own:
            raise InputError(f"there is no broker {node} alive in the cluster")
        own = self.own[node]
        return Level(own or self.root, own is None or own == self.root)

    def set_level(self, node: int, level: str | None) -> None:
        self.before("set", node)
        self.calls.append(("set", node, level))
        self.own[node] = level

    def spaces(self, node: int) -> tuple[Space, ...]:
        return (Space(node, "/d", 10**12, self.usable),)

    def close(self) -> None: ...


class Counting:
    """A meter that counts so much with every look."""

    interval_s = 0.0

    def __init__(self, each: int, *, unlogged: bool = False) -> None:
        self.each, self.counts_unlogged, self.count = each, unlogged, 0

    def start(self) -> None:
        self.count = 0

    def read(self) -> Reading:
        self.count += self.each
        return Reading(self.count, 10 * self.count, exact=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "_TICK_S", 0.001)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


ticks = itertools.count(1_700_000_000_000)


def clock() -> int:
    return next(ticks)


def run(loggers: Loggers, journal: Journal, bounds: Bounds, **options: Any) -> recorder.Recorded:
    drafted = recorder.draft(loggers, None, bounds, options.get("meters"), probe_s=0)
    return recorder.record(drafted, loggers, journal=journal, clock=clock, **options)


def fates(recorded: recorder.Recorded) -> dict[int, Fate]:
    return {each.node: each.fate for each in recorded.settled}


def test_a_level_of_its_own_is_set_again_and_an_inherited_one_is_taken_away(journal: Journal) -> None:
    loggers = Loggers({1: "ERROR", 2: None}, root="WARN")
    recorded = run(loggers, journal, Bounds(5))
    assert (loggers.own, recorded.ended_by) == ({1: "ERROR", 2: None}, "time")
    assert loggers.calls == [("set", 1, "DEBUG"), ("set", 2, "DEBUG"), ("set", 1, "ERROR"), ("set", 2, None)]
    assert fates(recorded) == {1: Fate.RESTORED, 2: Fate.RESTORED}
    (entry,) = journal.read().entries
    assert (entry.command, entry.outcome, entry.place) == ("record", "rolled back", PLACE)
    assert [(each.node, each.before) for each in entry.levels] == [(1, Level("ERROR")), (2, Level("WARN", True))]
    assert not journal.read().can_be_undone(entry)


def test_the_lease_is_there_before_the_first_switch(journal: Journal) -> None:
    loggers = Loggers({1: "WARN"})
    seen: list[bool] = []

    def look(name: str, node: int) -> None:
        if name == "set":
            (entry,) = journal.read().entries
            seen.append(entry.outcome is None and not journal.is_abandoned(entry) and entry.expires is not None)

    loggers.before = look
    run(loggers, journal, Bounds(1))
    assert seen == [True, True]


def test_without_a_lease_nothing_is_switched(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Journal, *arguments: object, **options: object) -> None:
        raise InputError("no room")

    monkeypatch.setattr(Journal, "begin", fail)
    loggers = Loggers({1: "WARN"})
    with pytest.raises(InputError, match="no room"):
        run(loggers, journal, Bounds(1))
    assert (loggers.calls, journal.read().entries) == ([], ())


@pytest.mark.parametrize(
    ("before", "shown", "fate", "now"),
    [
        (Level("WARN"), "DEBUG", Fate.RESTORED, "WARN"),
        (Level("INFO", inherited=True), "DEBUG", Fate.RESTORED, None),
        (Level("WARN"), "WARN", Fate.AS_BEFORE, "WARN"),
        (Level("WARN"), "TRACE", Fate.FOREIGN, "TRACE"),
        (Level("WARN"), "ERROR", Fate.FOREIGN, "ERROR"),
        (Level("OFF"), "DEBUG", Fate.RESTORED, "FATAL"),
        (Level("OFF"), "FATAL", Fate.AS_BEFORE, "FATAL"),
        (Level("OFF"), "OFF", Fate.AS_BEFORE, "OFF"),
        (Level("OFF"), "INFO", Fate.FOREIGN, "INFO"),
    ],
)
def test_the_way_back_never_writes_over_somebody_else(before: Level, shown: str, fate: Fate, now: str | None) -> None:
    loggers = Loggers({1: shown})
    assert recorder.switch_back(loggers, LevelChange(1, before)).fate is fate
    assert loggers.own == {1: now}


def test_a_logger_that_is_on_is_left_alone(journal: Journal) -> None:
    loggers = Loggers({1: "TRACE", 2: "DEBUG"})
    recorded = run(loggers, journal, Bounds(1))
    assert (loggers.calls, recorded.ended_by, recorded.entry) == ([], "nothing to do", None)
    assert fates(recorded) == {1: Fate.ALREADY_ON, 2: Fate.ALREADY_ON}
    assert not journal.folder.exists()


def test_if_the_ancestor_was_changed_meanwhile_the_old_level_comes_back_all_the_same(journal: Journal) -> None:
    loggers = Loggers({1: None}, root="WARN")
    loggers.before = lambda name, node: setattr(loggers, "root", "DEBUG" if loggers.calls else "WARN")
    recorded = run(loggers, journal, Bounds(1))
    assert loggers.calls[1:] == [("set", 1, None), ("set", 1, "WARN")]
    assert fates(recorded) == {1: Fate.RESTORED}


def test_somebody_elses_level_stays(journal: Journal) -> None:
    loggers = Loggers({1: "WARN"})
    recorded = run(
        loggers, journal, Bounds(1), said=lambda line: loggers.own.update({1: "TRACE"}) if "on" in line else None
    )
    assert (loggers.own, fates(recorded)) == ({1: "TRACE"}, {1: Fate.FOREIGN})
    assert journal.read().entries[0].outcome == "rolled back"


def test_who_changed_it_after_the_draft_is_not_overwritten(journal: Journal) -> None:
    loggers = Loggers({1: "WARN", 2: "WARN"})
    drafted = recorder.draft(loggers, None, Bounds(1))
    loggers.own[2] = "INFO"
    recorded = recorder.record(drafted, loggers, journal=journal, clock=clock)
    assert isinstance(recorded.error, Conflict)
    assert (loggers.own, fates(recorded)) == ({1: "WARN", 2: "INFO"}, {1: Fate.RESTORED, 2: Fate.FOREIGN})


@pytest.mark.parametrize(
    ("bounds", "ended", "requests"),
    [
        (Bounds(60_000, requests=50), "requests", 50),
        (Bounds(60_000, size=300), "size", 30),
        (Bounds(60_000, requests=50, size=300), "size", 30),
    ],
)
def test_the_first_bound_ends_it(journal: Journal, bounds: Bounds, ended: str, requests: int) -> None:
    loggers = Loggers({1: "WARN", 2: "WARN"})
    recorded = run(loggers, journal, bounds, meters={1: Counting(5), 2: Counting(5)})
    assert recorded.ended_by == ended
    assert recorded.total is not None
    assert requests <= recorded.total.requests <= requests + 20
    assert loggers.own == {1: "WARN", 2: "WARN"}


def test_a_stop_ends_it(journal: Journal) -> None:
    loggers = Loggers({1: "WARN"})
    recorded = run(loggers, journal, Bounds(60_000), stop=lambda: bool(loggers.calls))
    assert (recorded.ended_by, loggers.own) == ("signal", {1: "WARN"})


def test_a_second_ctrl_c_leaves_a_lease_that_leads_back(journal: Journal) -> None:
    loggers = Loggers({1: "WARN"})

    def interrupt() -> bool:
        if loggers.calls:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        run(loggers, journal, Bounds(60_000), stop=interrupt)
    (entry,) = journal.read().entries
    assert (loggers.own, entry.outcome) == ({1: "DEBUG"}, None)
    assert recorder.is_due(entry, journal, clock())
    settled = recorder.take_back(entry, loggers, journal=journal, clock=clock, command="reconcile")
    assert ([each.fate for each in settled], loggers.own) == ([Fate.RESTORED], {1: "WARN"})
    assert not journal.read().can_be_undone(entry)


def test_a_log_dir_without_room_ends_it(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "_SPACE_S", 0.0)
    loggers = Loggers({1: "WARN"})
    recorded = run(loggers, journal, Bounds(60_000), said=lambda line: setattr(loggers, "usable", 10**10))
    assert (recorded.ended_by, loggers.own) == ("space", {1: "WARN"})


def test_a_meter_that_fails_ends_it(journal: Journal) -> None:
    class Broken(Counting):
        def read(self) -> Reading:
            raise Unreachable("no page")

    loggers = Loggers({1: "WARN"})
    recorded = run(loggers, journal, Bounds(60_000, requests=1), meters={1: Broken(1)})
    assert (recorded.ended_by, str(recorded.error), loggers.own) == ("error", "no page", {1: "WARN"})


def test_a_rotation_has_one_broker_on_at_a_time(journal: Journal) -> None:
    loggers = Loggers({1: "WARN", 2: "INFO"}, root="ERROR")
    on: list[set[int]] = []

    def look(name: str, node: int) -> None:
        on.append({node for node, level in loggers.own.items() if level == "DEBUG"})

    loggers.before = look
    recorded = run(loggers, journal, Bounds(400, rotate=(50, 100)))
    assert max(map(len, on)) == 1
    assert [call[1:] for call in loggers.calls] == [(1, "DEBUG"), (1, "WARN"), (2, "DEBUG"), (2, "INFO")] * 2
    assert fates(recorded) == {1: Fate.RESTORED, 2: Fate.RESTORED}
    assert all(20 < each.on_ms < 10_000 for each in recorded.settled)


def test_a_rotation_ends_where_a_broker_may_still_be_on(journal: Journal) -> None:
    loggers = Loggers({1: "WARN", 2: "WARN"})

    def fail(name: str, node: int) -> None:
        if node == 1 and failing:
            raise Unreachable("gone")

    failing: list[bool] = []
    loggers.before = fail
    recorded = run(loggers, journal, Bounds(60_000, rotate=(5, 10)), said=lambda line: failing.append(True))
    assert (recorded.ended_by, fates(recorded)) == ("error", {1: Fate.UNKNOWN, 2: Fate.AS_BEFORE})
    assert [call[1] for call in loggers.calls] == [1]
    (entry,) = journal.read().entries
    assert entry.outcome == "incomplete"
    # The next reconcile does not wait for the end of the lease.
    assert recorder.is_due(entry, journal, clock())
    loggers.before = lambda name, node: None
    recorder.take_back(entry, loggers, journal=journal, clock=clock, command="reconcile")
    assert loggers.own == {1: "WARN", 2: "WARN"}


def test_what_cannot_be_taken_back_yet_stays_in_the_journal(journal: Journal) -> None:
    loggers = Loggers({1: "WARN"})

    def fail(name: str, node: int) -> None:
        raise Unreachable("gone")

    recorded = run(loggers, journal, Bounds(1), said=lambda line: setattr(loggers, "before", fail))
    (entry,) = journal.read().entries
    assert (fates(recorded), entry.outcome, entry.error) == ({1: Fate.UNKNOWN}, "incomplete", "gone")
    again = recorder.take_back(entry, loggers, journal=journal, clock=clock, command="undo")
    assert [each.fate for each in again] == [Fate.UNKNOWN]
    assert journal.read().can_be_undone(entry)
    loggers.own[1], loggers.before = "WARN", lambda name, node: None  # the broker was started again
    (settled,) = recorder.take_back(entry, loggers, journal=journal, clock=clock, command="undo")
    assert settled.fate is Fate.AS_BEFORE
    assert not journal.read().can_be_undone(entry)


def test_a_switch_without_effect_is_an_error(journal: Journal) -> None:
    loggers = Loggers({1: "WARN"})
    loggers.set_level = lambda node, level: None  # type: ignore[method-assign]
    recorded = run(loggers, journal, Bounds(1))
    assert isinstance(recorded.error, Rejected)
    assert fates(recorded) == {1: Fate.AS_BEFORE}


def test_a_draft_estimates_by_meters_that_count_before(journal: Journal) -> None:
    loggers = Loggers({1: "WARN", 2: "WARN", 3: "DEBUG"})
    meters = {1: Counting(100, unlogged=True), 2: Counting(100), 3: Counting(100, unlogged=True)}
    drafted = recorder.draft(loggers, None, Bounds(10_000), meters, probe_s=0.05)
    first, second = drafted.estimates
    assert (first.node, second.node, second.requests_per_second, drafted.on) == (1, 2, None, (3,))
    assert first.requests_per_second is not None
    assert 0 < first.requests_per_second <= 2000
    assert first.bytes == pytest.approx(first.requests_per_second * 10 * LINE_BYTES)
    assert [each.name for each in drafted.objections] == ["unmeasured-log"]
    with pytest.raises(InputError, match="no broker 9"):
        recorder.draft(loggers, [1, 9], Bounds(1))
