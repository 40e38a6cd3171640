"""The library's road of a write: plan, apply, undo."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import kquota
from kquota import Alteration, Entity, QuotaKey, Refused
from kquota.backends.memory import MemoryBackend
from kquota.changes import Rehearsal, alter
from kquota.core.alteration import AlterResult
from kquota.core.filter import EVERYTHING, QuotaFilter
from kquota.core.snapshot import QuotaSnapshot
from kquota.documents.journal import Journal

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
    with pytest.raises(Refused, match="stand still"):
        kquota.apply(cluster, planned, journal=tmp_path)
    assert kquota.apply(cluster, planned, yes=True, journal=tmp_path).outcome == "applied"


class Looked(MemoryBackend):
    """Remembers whether somebody read all of it."""

    everything = 0

    def describe(self, filter: QuotaFilter = EVERYTHING) -> QuotaSnapshot:
        self.everything += filter == EVERYTHING
        return super().describe(filter)


def altered(cluster: MemoryBackend, alterations: list[Alteration], folder: Path) -> tuple[AlterResult, ...]:
    def consent(rehearsal: Rehearsal) -> None:
        assert not rehearsal.blind

    done = alter(cluster, alterations, consent=consent, journal=Journal(folder), cluster="here")
    return done.results


def test_an_alter_reads_no_more_than_it_needs(tmp_path: Path) -> None:
    cluster = Looked(QuotaSnapshot({Entity(user=f"u{number}"): {PRODUCER: MB} for number in range(50)}))
    altered(cluster, [Alteration(ALICE, {PRODUCER: MB})], tmp_path)
    assert cluster.everything == 0


def test_many_deletions_are_judged_by_their_share(tmp_path: Path) -> None:
    cluster = MemoryBackend(QuotaSnapshot({Entity(user=f"u{number}"): {PRODUCER: MB} for number in range(10)}))
    wish = [Alteration(Entity(user=f"u{number}"), remove=frozenset({PRODUCER})) for number in range(3)]
    assert [each.name for each in kquota.plan(cluster, wish).objections] == ["deleted-share"]
    assert kquota.plan(cluster, wish[:2]).objections == ()


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
