"""The audit's predictions beside real runs: the two pairs in `tests/data/pairs`, whose schedules are of 30 s.

The bounds are below what these pairs reach, so that a step back shows. `docs/accuracy.md` shows pairs of full length.
Kinds of clients are harder to tell from 30 s, and nothing was tuned on these recordings.
"""

from functools import cache
from pathlib import Path

import pytest

from tools.accuracy.pairs.measure import IN_FORCE, LOWERING, RAISING, Recording, compare
from tools.accuracy.pairs.tables import Question, summary

DATA = Path(__file__).parents[1] / "data" / "pairs"


@cache
def recording(name: str) -> Recording:
    return Recording(DATA / name)


@cache
def question(kind: str, before: str, after: str) -> Question:
    return compare(kind, recording(before), recording(after), None)


@pytest.mark.parametrize(
    ("kind", "before", "after", "total", "coverage"),
    [(LOWERING, "none", "tight", 0.75, 0.85), (IN_FORCE, "tight", "tight", 0.55, 0.9)],
)
def test_predictions_come_as_near_as_stated(kind: str, before: str, after: str, total: float, coverage: float) -> None:
    """Verdicts, the share of totals within 10 % of the real run, and the share of totals in their intervals."""
    found = summary(question(kind, before, after).counters)
    assert found.verdicts == 1
    assert found.total is not None
    assert found.total >= total, found
    assert found.coverage is not None
    assert found.coverage >= coverage, found


def test_who_was_held_back_is_not_called_free_of_throttling() -> None:
    """Raising a limit: nobody is said to be no longer throttled who still was."""
    asked = question(RAISING, "tight", "moderate").counters
    free = [each for each in asked if each.predicted and each.predicted["verdict"] == "not throttled"]
    assert [each.sensor for each in free if each.throttled] == []
    assert sum(each.verdict_is_right is None for each in asked) > len(asked) / 2, "demand under a limit is not known"


def test_thread_time_that_no_log_holds_gives_an_interval() -> None:
    """A request quota that was not in force: bounds of what its clients meet, and no number between them."""
    (poll,) = [each for each in question(LOWERING, "none", "tight").counters if each.key == "request_percentage"]

    assert poll.predicted is not None
    assert poll.predicted["verdict"] == "undetermined"
    assert poll.predicted["basis"].startswith("thread time between")
    total = poll.predicted["throttle_time_ms"]
    assert total["estimate"] is None
    assert total["high"] > 0
    assert poll.covered, (total, poll.total_ms)


@pytest.mark.parametrize("name", ["none", "moderate", "tight"])
def test_the_log_and_the_clients_agree(name: str) -> None:
    """The longest throttle time in the log is the one that the client's library reports."""
    run = recording(name)
    met = run.met(run.quotas)
    told = {each["client_id"]: each for each in run.facts["clients"].values() if each["throttle_max_ms"]}
    mine = [
        (each["throttle_max_ms"], met[name].longest_ms)
        for name in met
        if (each := told.get(name[2].partition(":")[2])) and each["client_id"] != "team"
    ]
    assert mine
    assert [client for client, _ in mine] == [log for _, log in mine]
