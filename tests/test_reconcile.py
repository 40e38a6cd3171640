"""Applying plans on every backend: what is reached, what is refused, what is taken back, and what the journal says."""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from kquota import reconcile
from kquota.access import connect
from kquota.backends import QuotaBackend
from kquota.backends.memory import MemoryBackend
from kquota.core.change.plan import ApplyReport, Change, Plan, plan
from kquota.core.quotas.alteration import Alteration, AlterResult
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.selector import EVERYTHING, QuotaFilter
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.journal import Entry, Journal
from kquota.errors import Conflict, InputError, InvalidRequest, KquotaError, Locked, Rejected, Uncertain, Unreachable
from kquota.leases import Leases
from kquota.reconcile import Terms, apply, rehearsed
from tests.conftest import new_chroot
from tests.core.strategies import snapshots
from tests.support.memory import Refusing, Results, Writing
from tests.support.scheduling import examples

PRODUCER, CONSUMER = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
ALICE, BOB, CAROL = (Entity(user=name) for name in ("alice", "bob", "carol"))
_clock = itertools.count(1_700_000_000_000)


def clock() -> int:
    return next(_clock)


def applied(planned: Plan, backend: QuotaBackend, journal: Journal, **options: Any) -> ApplyReport:
    return apply(planned, backend, Terms(journal=journal, cluster="test", clock=clock, **options))


def run(backend: QuotaBackend, journal: Journal, desired: Any, **options: Any) -> ApplyReport:
    return applied(plan(backend.describe(), desired, prune=True), backend, journal, **options)


def entry_of(report: ApplyReport, journal: Journal) -> Entry:
    """What the journal has of it."""
    assert report.entry is not None
    return journal.read().entry(report.entry)


@pytest.fixture(scope="module", params=["memory", "zookeeper", "kafka"])
def backend(request: pytest.FixtureRequest) -> Iterator[QuotaBackend]:
    if request.param == "memory":
        yield MemoryBackend()
    elif request.param == "zookeeper":
        with connect(zookeeper=new_chroot(request.getfixturevalue("zookeeper"))) as live:
            yield live
    else:
        with connect(bootstrap_server=request.getfixturevalue("broker").bootstrap) as live:
            yield live


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Journal:
    return Journal(tmp_path_factory.mktemp("journal"))


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(before=snapshots, desired=snapshots)
def test_plan_apply_plan_is_empty_and_undo_restores(
    backend: QuotaBackend, journal: Journal, before: QuotaSnapshot, desired: QuotaSnapshot
) -> None:
    """Whatever the cluster has, and whatever the file says."""
    assert run(backend, journal, before).outcome == "applied"
    assert backend.describe() == before
    planned = plan(before, desired, prune=True)
    report = applied(planned, backend, journal)
    assert report.outcome == "applied"
    assert values_of(report.applied) == values_of(planned.changes)
    assert backend.describe() == desired
    assert not plan(backend.describe(), desired, prune=True)
    if report.entry is not None:
        entry = journal.read().entry(report.entry)
        assert (entry.outcome, values_of(entry.plan.changes)) == ("applied", values_of(planned.changes))
        undo = applied(entry.plan.inverse, backend, journal, undoes=entry.id)
        assert undo.outcome == "applied"
    assert backend.describe() == before


def values_of(changes: Iterable[Change]) -> list[Change]:
    """The changes without the form in which the store had the entities."""
    return [replace(change, form=None) for change in changes]


def test_what_somebody_else_changed_is_a_conflict(backend: QuotaBackend, journal: Journal) -> None:
    run(backend, journal, {ALICE: {PRODUCER: 1}, BOB: {PRODUCER: 1}})
    planned = plan(backend.describe(), {ALICE: {PRODUCER: 2}, BOB: {PRODUCER: 2}})
    backend.wait_visible(backend.alter([Alteration(BOB, {PRODUCER: 7})]))
    with pytest.raises(Conflict, match="user=bob"):
        applied(planned, backend, journal)
    assert dict(backend.describe()[ALICE]) == {PRODUCER: 1}
    # What somebody else did as planned needs no doing.
    backend.wait_visible(backend.alter([Alteration(BOB, {PRODUCER: 2})]))
    report = applied(planned, backend, journal)
    assert ([change.entity for change in report.applied], report.already) == ([ALICE], (BOB,))


class Faulty(Refusing):
    """Fails for one entity, or for all, except when it takes back."""

    def __init__(self, snapshot: QuotaSnapshot, error: KquotaError, *, at: Entity | None = None) -> None:
        super().__init__({} if at is None else {at: error}, snapshot)
        self.lost = error if at is None else None
        self.rival: Alteration | None = None

    def write(self, alterations: Sequence[Alteration]) -> Results:
        if any(alteration.expect == {} or not alteration.set for alteration in alterations):
            return MemoryBackend.alter(self, alterations)
        if self.rival is not None:
            MemoryBackend.alter(self, [self.rival])
        if self.lost is not None:
            raise self.lost
        return super().write(alterations)


START = QuotaSnapshot({entity: {PRODUCER: 1} for entity in (ALICE, BOB, CAROL)})
GOAL = {entity: {PRODUCER: 2} for entity in (ALICE, BOB, CAROL)}


class Once(Faulty):
    """Fails once; what comes later (the way back) succeeds."""

    def write(self, alterations: Sequence[Alteration]) -> Results:
        results = super().write(alterations)
        self.errors = {}
        return results


def test_a_failure_is_rolled_back(journal: Journal) -> None:
    backend = Once(START, Rejected("POLICY_VIOLATION: no"), at=BOB)
    report = run(backend, journal, GOAL)
    assert report.outcome == "rolled back"
    assert [entity for entity, _ in report.failed] == [BOB]
    assert set(report.rolled_back) == {ALICE, CAROL}
    assert backend.describe() == START
    entry = entry_of(report, journal)
    assert (entry.outcome, entry.error, entry.may_have_changed) == ("rolled back", "POLICY_VIOLATION: no", False)


def test_without_rollback_the_rest_stays(journal: Journal) -> None:
    backend = Once(START, Rejected("no"), at=BOB)
    report = run(backend, journal, GOAL, rollback=False)
    assert report.outcome == "incomplete"
    assert {change.entity for change in report.applied} == {ALICE, CAROL}
    assert backend.describe() == QuotaSnapshot({**GOAL, BOB: {PRODUCER: 1}})
    entry = entry_of(report, journal)
    assert {change.entity for change in entry.certain} == {ALICE, CAROL}
    # The way back is known as far as it is due.
    undo = applied(entry.plan.inverse, backend, journal)
    assert {change.entity for change in undo.applied} == {ALICE, CAROL}
    assert backend.describe() == START


def test_an_answer_that_was_lost_is_unknown_until_it_shows(journal: Journal) -> None:
    backend = Faulty(START, Uncertain("the connection was lost"))
    report = run(backend, journal, GOAL)
    assert report.outcome == "incomplete"
    assert set(report.unknown) == {ALICE, BOB, CAROL}
    entry = entry_of(report, journal)
    assert (set(entry.unknown or ()), entry.certain) == ({ALICE, BOB, CAROL}, ())


def test_a_writer_in_between_is_not_overwritten(journal: Journal) -> None:
    """It comes after the plan was compared, just before the write."""
    backend = Faulty(START, Rejected("unused"), at=Entity(user="nobody"))
    backend.rival = Alteration(BOB, {PRODUCER: 77})
    report = run(backend, journal, GOAL)
    assert [(entity, type(error)) for entity, error in report.failed] == [(BOB, Conflict)]
    assert backend.describe() == QuotaSnapshot({**START, BOB: {PRODUCER: 77}})
    # Nothing of this run is left, and it is known that the other value is another's.
    assert (report.outcome, report.unknown, set(report.rolled_back)) == ("rolled back", (), {ALICE, CAROL})


def test_what_another_writer_kept_from_being_taken_back_is_not_forgotten(tmp_path: Path) -> None:
    """It set another key of the same entity, before the rollback."""

    class Since(Once):
        def write(self, alterations: Sequence[Alteration]) -> Results:
            results = super().write(alterations)
            if any(result.error is not None for result in results):
                MemoryBackend.alter(self, [Alteration(ALICE, {CONSUMER: 9})])
            return results

    journal = Journal(tmp_path)
    backend = Since(START, Rejected("no"), at=BOB)
    report = run(backend, journal, GOAL, expires=clock())
    assert (report.outcome, report.unknown, report.rolled_back) == ("incomplete", (ALICE,), (CAROL,))
    assert {entity: type(error) for entity, error in report.failed} == {ALICE: Conflict, BOB: Rejected}
    assert backend.describe() == QuotaSnapshot({**START, ALICE: {PRODUCER: 2, CONSUMER: 9}})
    pages = journal.read()
    (entry,) = pages.entries
    assert [change.entity for change in pages.way_back(entry).changes] == [ALICE]
    assert [lease.entity for lease in Leases.of(pages.entries).on] == [ALICE]


def test_a_change_without_a_way_back_does_not_end_a_rollback(journal: Journal) -> None:
    """It took away what was no value."""
    unusable = Change(ALICE, {}, {}, True, frozenset({PRODUCER}))
    due = Plan((unusable, *plan(START, {BOB: {PRODUCER: 2}, CAROL: {PRODUCER: 2}}).changes))
    backend = Refusing({CAROL: Rejected("no")}, QuotaSnapshot({BOB: {PRODUCER: 1}, CAROL: {PRODUCER: 1}}))
    report = applied(due, backend, journal)
    assert (report.rolled_back, [change.entity for change in report.applied]) == ((BOB,), [ALICE])


def test_an_undo_that_fails_brings_back_what_it_deleted(chroot: str, znodes: Any, tmp_path: Path) -> None:
    """A user's node goes after those of its pairs, in a transaction of its own."""
    from kazoo.security import OPEN_ACL_UNSAFE, make_acl

    journal = Journal(tmp_path)
    pair, zed = Entity(user="alice", client_id="app"), Entity(user="zed")
    with connect(zookeeper=chroot) as backend:
        run(backend, journal, {zed: {PRODUCER: 1}})
        done = run(backend, journal, {entity: {PRODUCER: 2} for entity in (ALICE, pair, zed)})
        before = backend.describe()
        znodes.set_acls("/config/users/zed", [make_acl("world", "anyone", read=True, admin=True)])
        back = entry_of(done, journal).plan.inverse
        report = applied(back, backend, journal, undoes=done.entry)
        assert (report.outcome, set(report.rolled_back)) == ("rolled back", {ALICE, pair})
        assert [entity for entity, _ in report.failed] == [zed]
        assert backend.describe() == before
        znodes.set_acls("/config/users/zed", OPEN_ACL_UNSAFE)
        again = applied(back, backend, journal, undoes=done.entry)
        assert again.outcome == "applied"
        assert backend.describe() == QuotaSnapshot({zed: {PRODUCER: 1}})
        assert znodes.get_children("/config/users") == ["zed"]


def test_nobody_waits_for_a_person(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    class Turns(Writing):
        held = 0
        free = True

        @contextlib.contextmanager
        def alone(self, stop: Callable[[], bool] = lambda: False) -> Iterator[None]:
            if not self.free:
                raise Locked("another kquota is writing")
            self.held += 1
            yield
            self.held -= 1

        def write(self, alterations: Sequence[Alteration]) -> Results:
            assert self.held == 1
            return super().write(alterations)

    monkeypatch.setattr(reconcile, "_BATCH", 1)
    for free in (True, False):
        backend = Turns(START)
        stops = iter([False, False, True])

        def take_back(done: int, total: int, backend: Turns = backend, free: bool = free) -> bool:
            assert (backend.held, done, total) == (0, 1, 3)
            backend.free = free
            return True

        report = run(backend, journal, GOAL, stop=stops.__next__, take_back=take_back)
        assert (report.outcome, report.interrupted) == ("rolled back" if free else "incomplete", True)
        assert (backend.describe() == START) == free


def test_what_is_written_and_not_shown_is_reported(tmp_path: Path) -> None:
    """A store that confirms a write, and goes on to show an entity as it was."""

    class Stale(Writing):
        old: AlterResult | None = None

        def write(self, alterations: Sequence[Alteration]) -> Results:
            results = super().write(alterations)
            self.old = next(result for result in results if result.entity == BOB)
            return results

        def describe(self, filter: QuotaFilter = EVERYTHING) -> QuotaSnapshot:
            shown = super().describe(filter)
            if self.old is None or BOB not in shown:
                return shown
            return QuotaSnapshot({**shown, BOB: self.old.before})

    journal = Journal(tmp_path)
    report = run(Stale(START), journal, GOAL)
    assert (report.outcome, report.unverified, report.failed) == ("incomplete", (BOB,), ())
    assert {change.entity for change in report.applied} == {ALICE, BOB, CAROL}
    # What an undo takes back includes the entity: its write was confirmed.
    entry = entry_of(report, journal)
    assert (entry.outcome, entry.unknown, len(entry.certain)) == ("incomplete", (), 3)


def test_a_describe_that_fails_after_a_write_leaves_all_of_it_unverified(tmp_path: Path) -> None:
    class Gone(MemoryBackend):
        written = False

        def alter(self, alterations: Sequence[Alteration], *, validate_only: bool = False) -> tuple[AlterResult, ...]:
            self.written = not validate_only
            return super().alter(alterations, validate_only=validate_only)

        def describe(self, filter: QuotaFilter = EVERYTHING) -> QuotaSnapshot:
            if self.written:
                raise Unreachable("the connection was lost")
            return super().describe(filter)

    report = run(Gone(START), Journal(tmp_path), GOAL)
    assert (report.outcome, set(report.unverified)) == ("incomplete", {ALICE, BOB, CAROL})


def test_what_cannot_be_written_down_is_not_done(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    backend = MemoryBackend(START)
    with pytest.raises(InputError, match="the journal cannot be written"):
        run(backend, Journal(tmp_path / "file" / "journal"), GOAL)
    assert backend.describe() == START


def test_the_whole_set_is_validated_first(journal: Journal) -> None:
    class Strict(MemoryBackend):
        def alter(self, alterations: Sequence[Alteration], *, validate_only: bool = False) -> tuple[AlterResult, ...]:
            assert validate_only, "written although one is refused"
            results = super().alter(alterations, validate_only=True)
            return (*results[:-1], AlterResult(results[-1].entity, {}, {}, Rejected("no")))

    with pytest.raises(Rejected, match="nothing was written: no"):
        run(Strict(START), journal, GOAL)


def test_an_entry_is_there_before_the_first_write(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "new" / "journal")

    class Killed(Writing):
        def write(self, alterations: Sequence[Alteration]) -> Results:
            super().write(alterations[:1])
            raise KeyboardInterrupt

    backend = Killed(START)
    with pytest.raises(KeyboardInterrupt):
        run(backend, journal, GOAL)
    (entry,) = journal.read().of("test")
    assert (entry.outcome, entry.finished, entry.may_have_changed) == (None, None, True)
    again = MemoryBackend(backend.describe())
    undo = applied(entry.plan.inverse, again, journal, undoes=entry.id)
    assert [change.entity for change in undo.applied] == [ALICE]
    assert again.describe() == START


def test_an_undo_leaves_out_what_it_cannot_write(tmp_path: Path) -> None:
    """A stored 0, where the store does not say how it had it."""
    backend = MemoryBackend(QuotaSnapshot({ALICE: {PRODUCER: 0}, BOB: {PRODUCER: 1}}))
    journal = Journal(tmp_path)
    done = run(backend, journal, {ALICE: {PRODUCER: 2}, BOB: {PRODUCER: 2}})
    back = entry_of(done, journal).made.inverse
    assert [*rehearsed(back, backend, undoing=True)[2]] == [ALICE]
    report = applied(back, backend, journal, undoes=done.entry)
    assert report.outcome == "incomplete"
    assert [entity for entity, _ in report.failed] == [ALICE]
    assert dict(backend.describe()) == {ALICE: {PRODUCER: 2}, BOB: {PRODUCER: 1}}
    with pytest.raises(InputError, match="user=alice"):
        applied(back, backend, journal, undoes=done.entry)


def test_an_undo_through_brokers_leaves_out_what_only_zookeeper_holds(tmp_path: Path) -> None:
    """A stored 0, journalled with its form; the error says how it comes back, and the rest is done."""

    class Store(MemoryBackend):
        by_brokers = False

        def alter(self, alterations: Sequence[Alteration], *, validate_only: bool = False) -> tuple[AlterResult, ...]:
            results = super().alter(alterations, validate_only=validate_only)
            zeros = {each.entity for each in alterations if self.by_brokers and 0 in each.set.values()}
            error = InvalidRequest("INVALID_REQUEST: Invalid value 0")
            return tuple(
                AlterResult(each.entity, {}, {}, error) if each.entity in zeros else replace(each, form="{}")
                for each in results
            )

    backend = Store(QuotaSnapshot({ALICE: {PRODUCER: 0}, BOB: {PRODUCER: 1}}))
    journal = Journal(tmp_path)
    done = run(backend, journal, {ALICE: {PRODUCER: 2}, BOB: {PRODUCER: 2}})
    back = entry_of(done, journal).made.inverse
    backend.by_brokers = True
    report = applied(back, backend, journal, undoes=done.entry)
    assert report.outcome == "incomplete"
    ((entity, error),) = report.failed
    assert entity == ALICE
    assert str(error).endswith("(INVALID_REQUEST: Invalid value 0): undo it with --zookeeper")
    assert dict(backend.describe()) == {ALICE: {PRODUCER: 2}, BOB: {PRODUCER: 1}}
    with pytest.raises(InputError, match="undo it with --zookeeper"):
        applied(back, backend, journal, undoes=done.entry)
    backend.by_brokers = False
    assert applied(back, backend, journal, undoes=done.entry).outcome == "applied"
    assert dict(backend.describe()) == {ALICE: {PRODUCER: 0}, BOB: {PRODUCER: 1}}
