"""The library's road of a write: plan, apply, undo."""

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kquota
from kquota import Alteration, Entity, QuotaKey, Refused, changes, reconcile
from kquota.backends.memory import MemoryBackend
from kquota.changes import Altered, Rehearsal, alter
from kquota.core.change.plan import Change, Plan
from kquota.core.change.recording import Level, LevelChange
from kquota.core.change.review import Guards
from kquota.core.quotas.alteration import AlterResult
from kquota.core.quotas.selector import EVERYTHING, QuotaFilter
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.journal import Entry, Journal
from kquota.errors import Conflict, InputError, Locked, Rejected, Unreachable
from kquota.leases import read_leases
from kquota.reconcile import Terms
from tests.support.memory import Refusing, Results

PRODUCER, CONSUMER = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
ALICE, BOB = Entity(user="alice"), Entity(user="bob")
MB = 1_000_000


def test_plan_apply_undo(tmp_path: Path) -> None:
    cluster = MemoryBackend(QuotaSnapshot({ALICE: {PRODUCER: 5 * MB, CONSUMER: MB}}))
    planned = kquota.plan(cluster, {ALICE: {PRODUCER: 6 * MB}, BOB: {PRODUCER: MB}})
    assert planned.objections == ()
    report = kquota.apply(cluster, planned, journal=tmp_path)
    assert dict(cluster.describe()) == {ALICE: {PRODUCER: 6 * MB, CONSUMER: MB}, BOB: {PRODUCER: MB}}
    assert report.entry is not None
    kquota.undo(cluster, report.entry, journal=tmp_path)
    assert dict(cluster.describe()) == {ALICE: {PRODUCER: 5 * MB, CONSUMER: MB}}


def test_a_recording_is_not_undone_as_if_it_were_quotas(tmp_path: Path) -> None:
    """Its request loggers may be on: they would stay on, and the journal would say that all is undone."""
    cluster, journal = MemoryBackend(), Journal(tmp_path)
    address = changes.place_of(cluster).address
    levels = (LevelChange(1, Level("WARN", inherited=True)),)
    entry = journal.begin(Entry("", address, "record", 0, Plan(()), expires=1, levels=levels))
    for id in (None, entry.id):
        with pytest.raises(InputError, match="request loggers"):
            kquota.undo(cluster, id, journal=tmp_path)
    assert journal.read().can_be_undone(entry)


def test_an_entry_that_moved_an_end_is_not_undone_as_if_it_had_set_a_value(tmp_path: Path) -> None:
    cluster, journal = MemoryBackend(), Journal(tmp_path)
    kept = ((ALICE, (PRODUCER,)),)
    entry = journal.begin(Entry("", changes.place_of(cluster).address, "alter", 0, Plan(()), expires=1, kept=kept))
    journal.finish(entry, "applied", now=0)
    with pytest.raises(InputError, match="changed when a value ends, and no value"):
        kquota.undo(cluster, entry.id, journal=tmp_path)


def test_a_file_is_a_wish_too(tmp_path: Path) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text(
        "kind: kquota.quotas\nversion: 1\nprotected: [{user: alice}]\nquotas:\n"
        "  - {entity: {user: alice}, values: {producer_byte_rate: 6MB}}\n"
    )
    cluster = MemoryBackend(QuotaSnapshot({BOB: {PRODUCER: MB}}))
    planned = kquota.plan(cluster, file, prune=True)
    assert [each.name for each in planned.objections] == ["protected"]
    with pytest.raises(Refused, match="protected by"):
        kquota.apply(cluster, planned, yes=True, journal=tmp_path / "journal")
    kquota.apply(cluster, planned, force=True, journal=tmp_path / "journal")
    assert dict(cluster.describe()) == {ALICE: {PRODUCER: 6 * MB}}


def test_a_question_needs_a_yes(tmp_path: Path) -> None:
    cluster = MemoryBackend(QuotaSnapshot({ALICE: {PRODUCER: 10 * MB}}))
    planned = kquota.plan(cluster, [Alteration(ALICE, {PRODUCER: 10_000})])
    assert [each.name for each in planned.objections] == ["freeze"]
    with pytest.raises(Refused, match="blocked"):
        kquota.apply(cluster, planned, journal=tmp_path)
    assert kquota.apply(cluster, planned, yes=True, journal=tmp_path).outcome == "applied"


class Looked(MemoryBackend):
    """Remembers whether somebody read all of it."""

    everything = 0

    def describe(self, filter: QuotaFilter = EVERYTHING) -> QuotaSnapshot:
        self.everything += filter == EVERYTHING
        return super().describe(filter)


def here(folder: Path) -> Terms:
    return Terms(journal=Journal(folder), cluster="here", command="alter")


def altered(cluster: MemoryBackend, alterations: list[Alteration], folder: Path) -> tuple[AlterResult, ...]:
    def consent(rehearsal: Rehearsal) -> None:
        assert not rehearsal.blind

    done = alter(cluster, alterations, here(folder), consent=consent)
    return done.results


def test_an_alter_reads_no_more_than_it_needs(tmp_path: Path) -> None:
    cluster = Looked(QuotaSnapshot({Entity(user=f"u{number}"): {PRODUCER: MB} for number in range(50)}))
    altered(cluster, [Alteration(ALICE, {PRODUCER: MB})], tmp_path)
    assert cluster.everything == 0


@pytest.mark.parametrize("count", [1, 2])
def test_the_shares_of_guards_hold_for_few_changes(count: int) -> None:
    """Alterations are judged as the same quotas are."""
    users = [Entity(user=f"u{number}") for number in range(50)]
    cluster = MemoryBackend(QuotaSnapshot({user: {PRODUCER: MB} for user in users}))
    wish = {user: {PRODUCER: 2 * MB} for user in users[:count]}
    alterations = [Alteration(user, values) for user, values in wish.items()]
    strict = Guards(most_changed=0.0, most_deleted=0.0)
    for planned in (kquota.plan(cluster, wish, guards=strict), kquota.plan(cluster, alterations, guards=strict)):
        assert [each.name for each in planned.objections] == ["changed-share"]


def test_writers_of_other_keys_get_out_of_each_others_way(tmp_path: Path) -> None:
    """And those of the same key plan anew: none fails, none is lost."""
    lock = threading.Lock()

    class Shared(MemoryBackend):
        def alter(self, alterations: object, *, validate_only: bool = False) -> tuple[AlterResult, ...]:
            with lock:
                return super().alter(alterations, validate_only=validate_only)  # type: ignore[arg-type]

    cluster = Shared()
    keys = (PRODUCER, CONSUMER)

    def write(number: int) -> None:
        results = altered(cluster, [Alteration(ALICE, {keys[number % 2]: MB + number})], tmp_path)
        assert all(result.error is None for result in results)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(cluster.describe()[ALICE]) == set(keys)


def all_altered(
    cluster: MemoryBackend, users: Sequence[Entity], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Altered:
    """What came of an alter in batches of two."""
    monkeypatch.setattr(reconcile, "_BATCH", 2)
    monkeypatch.setattr("time.sleep", lambda _: None)
    wish = [Alteration(user, {PRODUCER: MB}) for user in users]
    altered = alter(cluster, wish, here(folder), consent=lambda rehearsal: None)
    done = {each.entity for each in altered.results if each.error is None}
    assert done == set(cluster.describe())
    return altered


USERS = [Entity(user=f"u{number}") for number in range(50)]


def test_a_refusal_in_each_batch_keeps_no_other_from_being_altered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Refusing(dict.fromkeys(USERS[::2], Rejected("no")))
    altered = all_altered(cluster, USERS, tmp_path, monkeypatch)
    assert [str(each.error) for each in altered.results] == ["no", "None"] * 25
    assert len(altered.entries) > changes._ATTEMPTS


def test_that_nothing_was_written_is_said_once() -> None:
    class Leaderless(MemoryBackend):
        def alter(self, alterations: Sequence[Alteration], *, validate_only: bool = False) -> tuple[AlterResult, ...]:
            return tuple(AlterResult(each.entity, {}, {}, Unreachable("No controller.")) for each in alterations)

    wish = Plan((Change(USERS[0], {}, {PRODUCER: MB}),))
    with pytest.raises(Unreachable) as raised:
        reconcile.rehearsed(wish, Leaderless(), False)
    assert str(changes.unwritten(raised.value)) == "No controller. Nothing was written."


def test_what_an_endless_race_left_untried_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Refusing(dict.fromkeys(USERS[:2], Conflict("changed by somebody else")))
    altered = all_altered(cluster, USERS[:5], tmp_path, monkeypatch)
    assert [str(each.error) for each in altered.results] == ["changed by somebody else"] * 2 + [
        "not altered: not tried"
    ] * 3
    assert cluster.describe() == QuotaSnapshot()


def test_a_later_round_that_fails_forgets_no_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Dying(MemoryBackend):
        writes = 0

        def alter(self, alterations: Sequence[Alteration], *, validate_only: bool = False) -> Results:
            self.writes += not validate_only
            if self.writes > 1:
                raise Unreachable("no connection")
            return super().alter(alterations, validate_only=validate_only)

    altered = all_altered(Dying(), USERS[:6], tmp_path, monkeypatch)
    assert [str(each.error) for each in altered.results] == ["None"] * 2 + ["no connection"] * 4
    (entry,) = Journal(tmp_path).read().entries
    assert altered.entries == (entry.id,)


def test_a_no_to_a_later_question_forgets_no_earlier_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "_BATCH", 1)
    rounds: list[Rehearsal] = []

    def consent(rehearsal: Rehearsal) -> None:
        rounds.append(rehearsal)
        if len(rounds) > 1:
            raise Refused("the answer was no")

    cluster = Refusing({USERS[1]: Rejected("no")})
    wish = [Alteration(user, {PRODUCER: MB}) for user in USERS[:3]]
    altered = alter(cluster, wish, here(tmp_path), consent=consent)
    assert [str(each.error) for each in altered.results] == ["None", "no", "the answer was no"]
    assert len(altered.entries) == 1


def test_a_lock_that_another_holds_is_waited_for_once(tmp_path: Path) -> None:
    class Taken(MemoryBackend):
        waits = 0

        def alone(self, stop: Callable[[], bool] = lambda: False) -> contextlib.AbstractContextManager[object]:
            self.waits += 1
            raise Locked("another kquota is writing")

    cluster = Taken()
    with pytest.raises(Locked):
        altered(cluster, [Alteration(ALICE, {PRODUCER: MB})], tmp_path)
    assert cluster.waits == 1


class At(Refusing):
    """A cluster by one of its addresses."""

    def __init__(self, snapshot: QuotaSnapshot, address: str) -> None:
        super().__init__({}, snapshot)
        self.cluster_address = address

    def cluster_id(self) -> str:
        return "lkc"


def kept_at(cluster: At, folder: Path, wishes: list[Alteration], **more: Any) -> Altered:
    terms = replace(here(folder), cluster=cluster.cluster_address, **more)
    return alter(cluster, wishes, terms, consent=lambda rehearsal: None)


def test_a_lease_is_made_permanent_by_any_address_of_its_cluster(tmp_path: Path) -> None:
    here = At(QuotaSnapshot(), "zookeeper://zk1:2181")
    kept_at(here, tmp_path, [Alteration(ALICE, {PRODUCER: MB})], expires=1)
    there = At(here.describe(), "kafka://broker1:9092")
    assert len(kept_at(there, tmp_path, [Alteration(ALICE, {PRODUCER: MB})]).kept) == 1
    assert read_leases(Journal(tmp_path), changes.place_of(here)).on == ()


def test_a_lost_race_forgets_no_lease_that_was_made_permanent(tmp_path: Path) -> None:
    cluster = At(QuotaSnapshot(), "zookeeper://zk1:2181")
    kept_at(cluster, tmp_path, [Alteration(ALICE, {PRODUCER: MB})], expires=1)

    rivals = [{CONSUMER: 7 * MB}]

    def consent(rehearsal: Rehearsal) -> None:
        for values in rivals:  # another writer of the same key, between the plan and its write
            MemoryBackend.alter(cluster, [Alteration(BOB, values)])
        rivals.clear()

    wishes = [Alteration(ALICE, {PRODUCER: MB}), Alteration(BOB, {CONSUMER: 2 * MB})]
    terms = replace(here(tmp_path), cluster=cluster.cluster_address)
    done = alter(cluster, wishes, terms, consent=consent)
    assert (len(done.kept), cluster.describe()[BOB]) == (1, {CONSUMER: 2 * MB})
    assert read_leases(Journal(tmp_path), changes.place_of(cluster)).on == ()


def test_a_lost_race_leaves_nothing_to_undo(tmp_path: Path) -> None:
    """The entry of the round that wrote nothing is not among those that an undo takes back."""

    class Racing(Refusing):
        def write(self, alterations: Sequence[Alteration]) -> Results:
            results = super().write(alterations)
            self.errors = {}
            return results

    cluster = Racing({BOB: Conflict("changed meanwhile")})
    done = alter(cluster, [Alteration(BOB, {CONSUMER: MB})], here(tmp_path), consent=lambda _: None)
    entries = Journal(tmp_path).read().entries
    assert (len(entries), done.entries) == (2, (entries[-1].id,))


def test_a_write_that_failed_ends_no_lease(tmp_path: Path) -> None:
    cluster = At(QuotaSnapshot(), "zookeeper://zk1:2181")
    both = [Alteration(who, {PRODUCER: MB}) for who in (ALICE, BOB)]
    kept_at(cluster, tmp_path, both, expires=1)
    cluster.errors = {ALICE: Rejected("no")}
    done = kept_at(cluster, tmp_path, [Alteration(who, {PRODUCER: 2 * MB}) for who in (ALICE, BOB)])
    assert [lease.entity for lease in done.ended] == [BOB]
    assert [lease.entity for lease in read_leases(Journal(tmp_path), changes.place_of(cluster)).on] == [ALICE]
