"""An apply and an alter, killed at every one of their steps on real servers: the journal leads back each time."""

import itertools
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kquota import Alteration, Entity, QuotaBackend, QuotaSnapshot
from kquota.changes import journal_of
from kquota.reconcile import Terms, apply
from kquota.state import CLUSTER
from tests.brokers.kafka import KafkaBroker
from tests.conftest import new_chroot
from tests.faults.killed import KEY, NEW, OLD, clock, opened, write_and_die

EVERY = int(os.environ.get("KILL_EVERY", "6"))
"""How many steps lie between two kills; `make nightly` leaves none out."""
_MARKER = Entity(user="marker")
_marks = itertools.count(1)


@pytest.fixture(params=["zookeeper", "bootstrap_server"])
def settings(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    if request.param == "zookeeper":
        yield {"zookeeper": new_chroot(request.getfixturevalue("zookeeper"))}
    else:
        with KafkaBroker() as broker:
            yield {"bootstrap_server": broker.bootstrap}


def settled(backend: QuotaBackend) -> QuotaSnapshot:
    """What is there when the server has done what it had in hand.

    A broker's own copy lags behind: it is looked at after one more write, which comes after all others there.
    """
    before = None
    while True:
        assert backend.wait_visible(backend.alter([Alteration(_MARKER, {KEY: next(_marks)})]), timeout_s=60) == ()
        shown = backend.describe()
        now = QuotaSnapshot({entity: values for entity, values in shown.items() if entity != _MARKER})
        if now == before:
            return now
        before = now
        time.sleep(0.1)


@pytest.mark.parametrize("command", ["apply", "alter"])
def test_killed_at_every_step_it_leaves_a_journal_that_leads_back(
    settings: dict[str, str], tmp_path: Path, command: str
) -> None:
    _killed_at_every_step(settings, tmp_path, command)


@pytest.mark.parametrize("command", ["apply", "alter"])
def test_the_journal_of_the_cluster_leads_back_as_well(settings: dict[str, str], command: str) -> None:
    _killed_at_every_step(settings, None, command)


def _killed_at_every_step(settings: dict[str, str], folders: Path | None, command: str) -> None:
    """Each step has a folder of its own for its journal; without folders, the cluster has the journal."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.faults.killed", "kquota.backends.zookeeper", "kquota.backends.kafka"])
    start = QuotaSnapshot(OLD)
    with opened(settings) as backend:
        backend.wait_visible(backend.alter([Alteration(entity, values) for entity, values in OLD.items()]))
        unwritten = begun = done = step = 0
        while not done:
            step += (EVERY if folders else min(EVERY, 3)) if step else 1  # a cluster has fewer steps
            folder = CLUSTER if folders is None else folders / str(step)
            book = journal_of(backend, folder)
            process = context.Process(target=write_and_die, args=(command, settings, str(folder), step))
            process.start()
            process.join(120)
            assert process.exitcode in (0, -signal.SIGKILL)
            done = process.exitcode == 0

            shown = settled(backend)
            for entity, values in NEW.items():
                assert shown.get(entity, {}) in (OLD.get(entity, {}), values)
            pages = book.read()
            assert pages.unreadable == ()
            if not pages.entries:
                assert shown == start
                unwritten += 1
                continue
            (entry,) = pages.entries
            assert entry.outcome in (None, "applied")
            if entry.outcome == "applied":
                assert {values[KEY] for values in shown.values()} == {2000}
            begun += entry.outcome is None and shown != start
            undo = apply(
                entry.made.inverse,
                backend,
                Terms(journal=book, cluster="killed", clock=clock, command="undo", undoes=entry.id),
            )
            assert undo.outcome == "applied"
            assert settled(backend) == start
            pages = book.read()
            assert undo.entry is None or pages.undone == {entry.id}
            if folders is None:
                book.remove(pages.entries)
    assert step > 15
    assert unwritten
    assert begun
