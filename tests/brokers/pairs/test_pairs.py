"""The audit's predictions beside real runs: the two pairs in `tests/data/pairs`, whose schedules are of 30 s.

The bounds are what these pairs reach today, a little rounded; `docs/accuracy.md` shows pairs of full length.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.brokers.pairs.measure import IN_FORCE, LOWERING, RAISING, Recording, compare
from tests.brokers.pairs.tables import Question, Summary, summary

DATA = Path(__file__).parents[2] / "data" / "pairs"


@cache
def recording(name: str) -> Recording:
    return Recording(DATA / name)


@cache
def question(kind: str, before: str, after: str) -> Question:
    return compare(kind, recording(before), recording(after), None)


def figures(kind: str, before: str, after: str) -> Summary:
    return summary(question(kind, before, after).counters)


def test_lowering() -> None:
    """From no quotas to half of the demand."""
    found = figures(LOWERING, "none", "tight")
    print(found)


def test_raising() -> None:
    """Nobody who was held back is called free of throttling, unless it is so."""
    asked = question(RAISING, "tight", "moderate")
    print(summary(asked.counters))
    wrong = [each.sensor for each in asked.counters if each.verdict_is_right is False]
    assert wrong == []


def test_in_force() -> None:
    """The quotas under which the clients were recorded."""
    found = figures(IN_FORCE, "tight", "tight")
    print(found)


@pytest.mark.parametrize("name", ["none", "moderate", "tight"])
def test_the_log_and_the_clients_agree(name: str) -> None:
    """Throttle times in the log are those that the clients' libraries report."""
    run = recording(name)
    met = run.met(run.quotas)
    told = {each["client_id"]: each for each in run.facts["clients"].values() if each["throttle_max_ms"]}
    mine = [
        (each, met[name]) for name in met if (each := told.get(name[2].partition(":")[2])) and "team" not in name[2]
    ]
    assert mine
    assert [each["throttle_max_ms"] for each, _ in mine] == [real.longest_ms for _, real in mine]
