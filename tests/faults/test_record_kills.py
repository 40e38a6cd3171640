"""A recording whose kquota, or whose broker, is killed at each of its steps: the logger is as before each time."""

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kquota import KquotaError, recorder
from kquota.backends.kafka.brokers import KafkaLoggers
from kquota.core.change.recording import Bounds, Level
from kquota.documents.journal import Journal
from tests.brokers.kafka import KafkaBroker
from tests.faults.killed import around

EVERY = int(os.environ.get("KILL_EVERY", "6"))
"""How many steps lie between two kills; `make nightly` leaves none out."""
LEVELS = {"set": (Level("ERROR"), "ERROR"), "inherited": (Level("WARN", inherited=True), None)}
"""The root of the broker's loggers is at WARN."""


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker(log_level=None) as running:
        yield running


def clock() -> int:
    return time.time_ns() // 1_000_000


def record_and(bootstrap: str, folder: str, step: int, act: Callable[[], None]) -> None:
    """Records for a moment, and acts at the step of that number: before and after each write and each request."""
    from kquota.backends.kafka.session import Session
    from kquota.documents import folder as folder_store

    steps = 0

    def stepping() -> None:
        nonlocal steps
        steps += 1
        if steps == step:
            act()

    def watch(owner: Any, name: str) -> None:
        stack.callback(setattr, owner, name, around(owner, name, stepping))

    with contextlib.ExitStack() as stack, KafkaLoggers(bootstrap) as loggers:
        drafted = recorder.draft(loggers, None, Bounds(1))
        # Looking writes nothing: the steps begin here.
        for name in ("link", "fsync", "replace", "pwrite"):
            watch(os, name)
        watch(folder_store, folder_store._write.__name__)  # which mypy sees by day
        watch(Session, "ask")
        recorder.record(drafted, loggers, journal=Journal(Path(folder)), clock=clock)
    if steps < step:
        raise SystemExit(9)


def die() -> None:
    """Ends this process as a crash does."""
    os.kill(os.getpid(), signal.SIGKILL)


def reconciled(loggers: KafkaLoggers, journal: Journal) -> None:
    """What `kquota reconcile` does to the leases of loggers, an hour later where nobody knows who held them."""
    pages = journal.read()
    assert pages.unreadable == ()
    for entry in pages.entries:
        if entry.levels and pages.can_be_undone(entry):
            later = 0 if recorder.is_due(entry, journal, clock()) else 3_600_000
            assert recorder.is_due(entry, journal, clock() + later)
            # Only where nothing was switched yet does the lease have to run out.
            assert not later or loggers.level(1) == entry.levels[0].before
            settled = recorder.take_back(entry, loggers, journal=journal, clock=clock, command="reconcile")
            assert all(each.fate.is_settled for each in settled)
    pages = journal.read()
    assert not any(pages.can_be_undone(entry) for entry in pages.entries if entry.levels)


@pytest.mark.parametrize("kind", ["set", "inherited"])
def test_kquota_is_killed_at_every_step(broker: KafkaBroker, tmp_path: Path, kind: str) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["kquota.recorder", "kquota.backends.kafka.brokers", "tests.brokers.kafka"])
    before, own = LEVELS[kind]
    left_on = step = 0
    with KafkaLoggers(broker.bootstrap) as loggers:
        while True:
            step += EVERY if step else 1
            loggers.set_level(1, own)
            assert loggers.level(1) == before
            folder = tmp_path / str(step)
            process = context.Process(target=record_and, args=(broker.bootstrap, str(folder), step, die))
            process.start()
            process.join(120)
            assert process.exitcode in (9, -signal.SIGKILL)
            shown = loggers.level(1)
            assert shown.name in (before.name, "DEBUG")
            left_on += shown.name == "DEBUG"
            reconciled(loggers, Journal(folder))
            assert loggers.level(1) == before
            if process.exitcode == 9:
                break
    assert step > 20
    assert left_on


def test_the_broker_is_killed_at_steps(tmp_path: Path) -> None:
    """Its level ends with its process; kquota says what it could not see, and reconcile finds it as it was."""
    with KafkaBroker(log_level=None) as broker:
        for step in range(1, 60) if EVERY == 1 else (9, 17):
            folder = tmp_path / str(step)

            def kill(broker: KafkaBroker = broker) -> None:
                broker.kill()

            with contextlib.suppress(KquotaError, SystemExit):
                record_and(broker.bootstrap, str(folder), step, kill)
            with contextlib.suppress(AssertionError):  # it was not killed where there is no such step
                broker.start_again()
            with KafkaLoggers(broker.bootstrap) as loggers:
                assert loggers.level(1) == LEVELS["inherited"][0]
                reconciled(loggers, Journal(folder))
                assert loggers.level(1) == LEVELS["inherited"][0]
