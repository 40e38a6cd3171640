"""What a lease is and how it ends, from the order of the entries alone."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kquota import Change, Entity, Plan, QuotaKey, QuotaSnapshot
from kquota.core.change.plan import Cluster
from kquota.documents.journal import Entry, Journal, Pages
from kquota.leases import Fate, Leases, by_place, ending, read_leases

ALICE, KEY = Entity(user="alice"), QuotaKey.PRODUCER_BYTE_RATE
HERE = "zookeeper://zk1:2181"


def wrote(folder: Path, before: float | None, after: float | None, outcome: str = "applied", **more: Any) -> Entry:
    old, new = ({} if value is None else {KEY: value} for value in (before, after))
    return keep(folder, Plan((Change(ALICE, old, new, relative=True),)), outcome, **more)


def keep(folder: Path, plan: Plan, outcome: str = "applied", **more: Any) -> Entry:
    journal = Journal(folder)
    entry = journal.begin(Entry("", HERE, started=1000, plan=plan, **{"command": "alter", **more}))
    if outcome:
        journal.finish(entry, outcome, now=1001)  # type: ignore[arg-type]
    return entry


def fates(folder: Path) -> list[Fate]:
    return [lease.fate for lease in read_leases(Journal(folder), HERE).all]


def test_a_lease_holds_what_was_set_and_what_comes_back(tmp_path: Path) -> None:
    """A deletion is leased as well; a write without an end, or one that was rolled back, begins none."""
    wrote(tmp_path, None, 3.0)
    assert read_leases(Journal(tmp_path), HERE) == Leases()
    wrote(tmp_path, 3.0, 9.0, "rolled back", expires=5)
    wrote(tmp_path, 3.0, None, expires=2000)
    (lease,) = read_leases(Journal(tmp_path), HERE).all
    assert (lease.entity, lease.key, lease.value, lease.back, lease.ends) == (ALICE, KEY, None, 3.0, 2000)
    assert (lease.is_overdue(1999), lease.is_overdue(2000)) == (False, True)
    assert read_leases(Journal(tmp_path), "zookeeper://other:2181") == Leases()


def test_only_what_was_certainly_written_overtakes(tmp_path: Path) -> None:
    """A killed write may have left the leased value: the lease is on until somebody knows."""
    wrote(tmp_path, None, 3.0, expires=2000)
    wrote(tmp_path, 3.0, 7.0, "")
    wrote(tmp_path, 3.0, 7.0, "rolled back")
    assert fates(tmp_path) == [Fate.ON]
    wrote(tmp_path, 3.0, 7.0)
    assert fates(tmp_path) == [Fate.OVERTAKEN]


def test_a_write_that_stopped_midway_overtakes_what_it_wrote(tmp_path: Path) -> None:
    """Not the lease of an entity whose answer was lost, and none where the journal does not say."""
    bob, carol = Entity(user="bob"), Entity(user="carol")

    def of(before: float | None, after: float) -> Plan:
        old = {} if before is None else {KEY: before}
        return Plan(tuple(Change(who, old, {KEY: after}, relative=True) for who in (ALICE, bob, carol)))

    keep(tmp_path, of(None, 3.0), expires=2000)
    journal = Journal(tmp_path)
    for unknown in (None, [bob]):
        entry = journal.begin(Entry("", HERE, "apply", 1000, of(3.0, 7.0)))
        assert fates(tmp_path) == [Fate.ON] * 3
        journal.finish(entry, "incomplete", now=1001, untouched=[carol], unknown=unknown)
    assert fates(tmp_path) == [Fate.OVERTAKEN, Fate.ON, Fate.ON]


def test_a_lease_below_another_waits(tmp_path: Path) -> None:
    lower = wrote(tmp_path, None, 3.0, expires=2000)
    upper = wrote(tmp_path, 3.0, 5.0, expires=9000)
    leases = read_leases(Journal(tmp_path), HERE)
    assert [lease.covered for lease in leases.all] == [True, False]
    assert (leases.due(3000), leases.overdue(3000)) == ({}, ())
    assert list(leases.due(9000)) == [upper.id]
    wrote(tmp_path, 5.0, 3.0, command="reconcile", undoes=upper.id)
    assert list(read_leases(Journal(tmp_path), HERE).due(3000)) == [lower.id]


def test_kept_values_get_another_end_or_none(tmp_path: Path) -> None:
    """Made permanent, both of two leases on one value end."""
    wrote(tmp_path, None, 3.0, expires=2000)
    wrote(tmp_path, 3.0, 5.0, expires=3000)
    kept = ((ALICE, (KEY,)),)
    moved = keep(tmp_path, Plan(()), kept=kept, expires=9000)
    found = read_leases(Journal(tmp_path), HERE).all
    assert [(lease.ends, lease.moved and lease.moved.id) for lease in found] == [(2000, None), (9000, moved.id)]
    keep(tmp_path, Plan(()), kept=kept)
    assert fates(tmp_path) == [Fate.PERMANENT, Fate.PERMANENT]


def test_what_is_kept_does_not_hang_on_other_values(tmp_path: Path) -> None:
    """An alter of several entities may have failed for others. A reconcile tries its conflicts again."""
    wrote(tmp_path, None, 3.0, expires=2000)
    kept = ((ALICE, (KEY,)),)
    keep(tmp_path, Plan(()), "incomplete", kept=kept, command="reconcile")
    keep(tmp_path, Plan(()), "rolled back", kept=kept, command="apply")
    keep(tmp_path, Plan(()), "", kept=kept)
    assert fates(tmp_path) == [Fate.ON]
    keep(tmp_path, Plan(()), "incomplete", kept=kept)
    assert fates(tmp_path) == [Fate.PERMANENT]


@pytest.mark.parametrize("command", ["alter", "delete"])
def test_what_takes_nothing_back_keeps_values_although_all_others_failed(tmp_path: Path, command: str) -> None:
    """The journal calls that "rolled back", because nothing of the plan remains."""
    wrote(tmp_path, None, 3.0, expires=2000)
    kept = ((ALICE, (KEY,)),)
    keep(tmp_path, Plan(()), "rolled back", kept=kept, command=command, expires=9000)
    assert [lease.ends for lease in read_leases(Journal(tmp_path), HERE).on] == [9000]
    keep(tmp_path, Plan(()), "rolled back", kept=kept, command=command)
    assert fates(tmp_path) == [Fate.PERMANENT]


def test_an_undo_of_what_was_before_all_leases_overtakes_them(tmp_path: Path) -> None:
    """It is the same whether the journal is read from its beginning, or from the first lease."""
    before = wrote(tmp_path, 1.0, 2.0)
    wrote(tmp_path, 2.0, 3.0, expires=2000)
    wrote(tmp_path, 2.0, 1.0, command="undo", undoes=before.id)
    assert fates(tmp_path) == [Fate.OVERTAKEN]
    assert [lease.fate for lease in Leases.of(Journal(tmp_path).read().entries).all] == [Fate.OVERTAKEN]


def test_an_ending_takes_back_what_is_as_it_was_left(tmp_path: Path) -> None:
    """What is back already needs nothing; another value is a conflict, and other keys are no concern of it."""
    other = QuotaKey.CONSUMER_BYTE_RATE
    wrote(tmp_path, None, 3.0, expires=2000)
    (lease,) = read_leases(Journal(tmp_path), HERE).all

    def end(values: dict[QuotaKey, float]) -> tuple[int, int]:
        found = ending([lease], QuotaSnapshot({ALICE: values} if values else {}), is_whole=True)
        return len(found.plan.changes), len(found.conflicts)

    assert end({KEY: 3.0, other: 1.0}) == (1, 0)
    assert end({other: 1.0}) == (0, 0)
    assert end({KEY: 4.0}) == (0, 1)


def test_a_part_of_an_entry_ends_by_itself(tmp_path: Path) -> None:
    """Although nothing had to be written for it; the rest stays on, and an undo takes back the rest alone."""
    bob = Entity(user="bob")
    both = Plan(tuple(Change(who, {}, {KEY: 3.0}, relative=True) for who in (ALICE, bob)))
    lease = keep(tmp_path, both, expires=2000)
    keep(tmp_path, Plan(()), expires=9000, kept=((bob, (KEY,)),))
    assert list(read_leases(Journal(tmp_path), HERE).due(3000)) == [lease.id]
    ended = keep(tmp_path, Plan(()), command="reconcile", undoes=lease.id, part=((ALICE, (KEY,)),))
    assert fates(tmp_path) == [Fate.ENDED, Fate.ON]
    pages = Journal(tmp_path).read()
    assert (pages.undone, pages.undone_by(lease)) == (frozenset(), (pages.entry(ended.id),))
    assert [change.entity for change in pages.way_back(lease).changes] == [bob]
    keep(tmp_path, Plan((Change(bob, {KEY: 3.0}, {}),)), command="undo", undoes=lease.id, part=((bob, (KEY,)),))
    assert Journal(tmp_path).read().undone == {lease.id}
    assert fates(tmp_path) == [Fate.ENDED, Fate.UNDONE]


def test_a_part_that_was_taken_back_by_mistake_can_be_taken_back_again(tmp_path: Path) -> None:
    """An undo of the undo; and an undo of a part of an undo leaves the other part undone."""
    bob = Entity(user="bob")
    both = Plan(tuple(Change(who, {}, {KEY: 3.0}, relative=True) for who in (ALICE, bob)))
    first = keep(tmp_path, both)
    part = keep(
        tmp_path, Plan((Change(ALICE, {KEY: 3.0}, {}),)), command="undo", undoes=first.id, part=((ALICE, (KEY,)),)
    )
    keep(tmp_path, Plan((Change(ALICE, {}, {KEY: 3.0}),)), command="undo", undoes=part.id)
    pages = Journal(tmp_path).read()
    assert (pages.undone, pages.way_back(first)) == (frozenset({part.id}), both.inverse)

    second = keep(tmp_path, both)
    whole = keep(tmp_path, both.inverse, command="undo", undoes=second.id)
    keep(tmp_path, Plan((Change(bob, {}, {KEY: 3.0}),)), command="undo", undoes=whole.id, part=((bob, (KEY,)),))
    pages = Journal(tmp_path).read()
    assert pages.undone == {part.id}
    assert [change.entity for change in pages.way_back(second).changes] == [bob]


def test_leases_of_a_cluster_that_got_its_id_later(tmp_path: Path) -> None:
    """One cluster by two addresses, of which the first entry knows the address alone; and then another one there."""
    old, new = Cluster(HERE, "first"), Cluster(HERE, "second")
    set_ = Plan((Change(ALICE, {}, {KEY: 3.0}, relative=True),))
    back = set_.inverse
    lease = keep(tmp_path, set_, expires=2000)
    keep(tmp_path, replace(set_, cluster=old), expires=3000, command="apply")
    keep(tmp_path, replace(back, cluster=replace(old, address="zookeeper://zk2:2181")), command="delete")
    keep(tmp_path, replace(set_, cluster=new), expires=4000)
    found = list(by_place(Journal(tmp_path).read().entries))
    assert [(place, [each.fate for each in leases.all]) for place, leases in found] == [
        (old, [Fate.OVERTAKEN, Fate.OVERTAKEN]),
        (new, [Fate.ON]),
    ]
    assert len(read_leases(Journal(tmp_path), old).all) == 2
    assert Journal(tmp_path).read().entry(lease.id).plan == lease.plan


def test_what_is_over_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark says so, until an entry before it comes or goes; what cannot be read is never before it."""
    journal = Journal(tmp_path)
    for number in range(30):
        wrote(tmp_path, number + 1.0, number + 2.0, expires=2000 if number == 5 else None)
    read: list[int] = []
    real = Journal.read

    def watched(self: Journal, names: Iterable[str] | None = None) -> Pages:
        assert names is not None
        pages = real(self, names)
        read.append(len(pages.entries))
        return pages

    monkeypatch.setattr(Journal, "read", watched)
    for _ in range(2):
        assert read_leases(journal, HERE).on == ()
    lease = wrote(tmp_path, 3.0, 9.0, expires=2000)
    for _ in range(2):
        assert [each.entry.id for each in read_leases(journal, HERE).on] == [lease.id]
    assert read == [30, 0, 1, 1]

    file = next(tmp_path.glob("*-4.json"))
    text = file.read_text()
    file.unlink()
    for _ in range(2):
        assert len(read_leases(journal, HERE).on) == 1
    file.write_text("{")
    for _ in range(2):
        assert [each.name for each in read_leases(journal, HERE).unreadable] == [file.name]
    file.write_text(text)
    for _ in range(3):
        assert len(read_leases(journal, HERE).on) == 1
    assert read[4:] == [30, 1, 30, 27, 28, 1, 1]
    # Marks of an entry that never was, of more than there is, and what is no mark.
    for forged in (b"1 forged.json", b"99 x", b"9" * 40, b"\xff\n"):
        (tmp_path / ".ended").write_bytes(forged)
        assert len(read_leases(journal, HERE).on) == 1
        assert read[-1] == 31
