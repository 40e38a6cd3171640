"""Several writers at once, on real servers: no update is lost where that is promised, nobody takes back what is
another's, and the journal tells the truth.

RACE_ROUNDS says how often; `make nightly` plays ten rounds.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kquota.access import connect
from kquota.backends import QuotaBackend
from kquota.backends.zookeeper import ZooKeeperBackend
from kquota.core.change.plan import ApplyReport, plan
from kquota.core.quotas.alteration import Alteration, AlterResult
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.documents.journal import Journal
from kquota.errors import Conflict, Rejected
from kquota.reconcile import Terms, apply
from tests.brokers.kafka import KafkaBroker
from tests.conftest import new_chroot
from tests.support.sandbox import Sandbox

ROUNDS = int(os.environ.get("RACE_ROUNDS", "2"))
rounds = pytest.mark.parametrize("turn", range(ROUNDS))
KEY = QuotaKey.PRODUCER_BYTE_RATE
COUNT = 1200 if ROUNDS <= 2 else 3000
"""More than a batch, so that the writers meet between batches, too."""
ENTITIES = [Entity(user=f"u{number:04}") for number in range(COUNT)]


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as running:
        yield running


Open = Callable[[], QuotaBackend]


@pytest.fixture(params=["zookeeper", "bootstrap_server"])
def cluster(request: pytest.FixtureRequest) -> Open:
    """Opens a connection to a cluster without quotas."""
    if request.param == "zookeeper":
        connection = new_chroot(request.getfixturevalue("zookeeper"))
        return lambda: connect(zookeeper=connection, timeout_s=30)
    bootstrap = request.getfixturevalue("broker").bootstrap
    with connect(bootstrap_server=bootstrap, timeout_s=30) as backend:
        left = backend.describe()
        gone = [Alteration(entity, remove=frozenset(values)) for entity, values in left.items()]
        backend.wait_visible(backend.alter(gone))
    return lambda: connect(bootstrap_server=bootstrap, timeout_s=30)


def at_once(jobs: list[Callable[[], None]]) -> None:
    """Runs all of them in threads that start together; the first error is raised."""
    errors: list[BaseException] = []
    ready = threading.Barrier(len(jobs))

    def run(job: Callable[[], None]) -> None:
        try:
            ready.wait(60)
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def clock() -> int:
    return 1_700_000_000_000


def rates(backend: QuotaBackend) -> dict[Entity, int | float]:
    return {entity: values[KEY] for entity, values in backend.describe().items()}


@rounds
def test_two_equal_applies_reach_their_end_together(cluster: Open, tmp_path: Path, turn: int) -> None:
    """Each with a journal of its own, as on two hosts: whoever says `applied` tells the truth."""
    rate = 1000 + turn
    with cluster() as backend:
        planned = plan(backend.describe(), {entity: {KEY: rate} for entity in ENTITIES})
    reports: list[ApplyReport] = []

    def run(folder: Path) -> None:
        with cluster() as backend:
            reports.append(apply(planned, backend, Terms(journal=Journal(folder), cluster="race", clock=clock)))

    folders = [tmp_path / "one", tmp_path / "two"]
    at_once([partial(run, folder) for folder in folders])
    with cluster() as backend:
        shown = rates(backend)
    assert [report.outcome for report in reports] == ["applied", "applied"], reports
    assert shown == dict.fromkeys(ENTITIES, rate)
    # Each change was made by one of them, and each journal knows of its own.
    made = [change.entity for report in reports for change in report.applied]
    assert sorted(made, key=str) == ENTITIES
    entries = [entry for folder in folders for entry in Journal(folder).read().entries]
    assert {entry.outcome for entry in entries} == {"applied"}
    assert sorted((change.entity for entry in entries for change in entry.made.changes), key=str) == ENTITIES


class Meddled(ZooKeeperBackend):
    """Fails for one entity; another writer gives one entity its new value anew, and one another value."""

    def __init__(self, connection: str, other: QuotaBackend) -> None:
        super().__init__(connection)
        self.other: QuotaBackend | None = other

    def alter(self, alterations: Sequence[Alteration], *, validate_only: bool = False) -> tuple[AlterResult, ...]:
        results = super().alter(alterations, validate_only=validate_only)
        if validate_only or self.other is None:
            return results
        # Away and back, so that nothing but the write itself tells the difference.
        for entity, rate in ((REWRITTEN, 3), (REWRITTEN, 2), (RIVAL, 9)):
            self.other.alter([Alteration(entity, {KEY: rate})])
        self.other = None
        return tuple(replace(each, error=Rejected("no")) if each.entity == LAST else each for each in results)


OWN, NEW, REWRITTEN, RIVAL, LAST = (Entity(user=name) for name in ("a", "b", "c", "d", "z"))


def test_a_failed_apply_takes_back_its_own_writes_only(zookeeper: Sandbox, tmp_path: Path) -> None:
    """Another writer gave an entity that this run wrote the same value anew: nobody can tell whose it is then."""
    connection = new_chroot(zookeeper)
    with connect(zookeeper=connection) as other, Meddled(connection, other) as backend:
        other.alter([Alteration(entity, {KEY: 1}) for entity in (OWN, REWRITTEN, RIVAL, LAST)])
        planned = plan(backend.describe(), {entity: {KEY: 2} for entity in (OWN, NEW, REWRITTEN, RIVAL, LAST)})
        journal = Journal(tmp_path)
        report = apply(planned, backend, Terms(journal=journal, cluster="c", clock=clock))
        shown = rates(other)
    assert (shown[OWN], shown.get(NEW)) == (1, None)
    assert (shown[REWRITTEN], shown[RIVAL]) == (2, 9)
    assert report.rolled_back == (OWN, NEW)
    assert {entity for entity, _ in report.failed} == {REWRITTEN, RIVAL, LAST}
    (entry,) = journal.read().entries
    # Of the entity with a value of the rival's own, nothing is left to take back.
    assert (report.outcome, entry.outcome, report.unknown) == ("incomplete", "incomplete", (REWRITTEN,))
    assert [change.entity for change in entry.made.changes] == [REWRITTEN]


@rounds
def test_four_clusters_share_one_journal(zookeeper: Sandbox, tmp_path: Path, turn: int) -> None:
    """The same file, in the same second: each has its entry, and each undo takes back its own."""
    journal = Journal(tmp_path / "journal")
    chroots = [new_chroot(zookeeper) for _ in range(4)]
    wanted = {Entity(user=f"u{number}"): {KEY: 5 + turn} for number in range(20)}

    def run(chroot: str) -> None:
        with connect(zookeeper=chroot) as backend:
            planned = plan(backend.describe(), wanted)
            report = apply(planned, backend, Terms(journal=journal, cluster=chroot, clock=clock))
            assert report.outcome == "applied"
            assert report.entry is not None
            entry = journal.read().entry(report.entry)
            assert entry.plan.fingerprint == planned.fingerprint
            back = entry.made.inverse
            undo = apply(
                back, backend, Terms(journal=journal, cluster=chroot, clock=clock, command="undo", undoes=entry.id)
            )
            assert undo.outcome == "applied"
            assert backend.describe() == QuotaSnapshot({})

    at_once([partial(run, chroot) for chroot in chroots])
    pages = journal.read()
    assert (len(pages.entries), pages.unreadable) == (8, ())
    assert [len(pages.of(chroot)) for chroot in chroots] == [2] * 4
    assert not [entry for entry in pages.entries if entry.undoes is None and pages.can_be_undone(entry)]


WRITERS, STEPS = 8, 10 if ROUNDS <= 2 else 25


@rounds
def test_eight_writers_that_compare_and_set_lose_no_update(cluster: Open, turn: int) -> None:
    """Each adds one to the same value, until so many were accepted: the sum is the number of writes."""
    counter = Entity(user=f"counter-{turn}")
    with cluster() as backend:
        backend.wait_visible(backend.alter([Alteration(counter, {KEY: 1})]))

    def count() -> None:
        with cluster() as backend:
            done = 0
            while done < STEPS:
                now = backend.describe()[counter]
                (result,) = backend.alter([Alteration(counter, {KEY: now[KEY] + 1}, expect=now)])
                done += result.error is None
                assert result.error is None or isinstance(result.error, Conflict)

    at_once([count] * WRITERS)
    with cluster() as backend:
        # Nobody told this reader what was written: a busy broker shows it late. An update that is lost never comes.
        end = time.monotonic() + 30
        while rates(backend)[counter] < 1 + WRITERS * STEPS and time.monotonic() < end:
            time.sleep(0.1)
        assert rates(backend)[counter] == 1 + WRITERS * STEPS
