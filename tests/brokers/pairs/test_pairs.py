"""The audit's predictions beside real runs: the two pairs in `tests/data/pairs`, whose schedules are of 30 s.

The bounds are below what these pairs reach, so that a step back shows. `docs/accuracy.md` shows pairs of full length.
Kinds of clients are harder to tell from 30 s, and nothing was tuned on these recordings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kquota.audit import feeds, prediction
from kquota.core.quotas.quota import QuotaKey
from tests.brokers.pairs.measure import IN_FORCE, LOWERING, RAISING, Recording, audit, compare
from tests.brokers.pairs.tables import Question, summary

DATA = Path(__file__).parents[2] / "data" / "pairs"


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


def audited(folder: Path, *limits: tuple[str, QuotaKey, int]) -> Mapping[str, Any]:
    """The findings of a recording without quotas under limits of some client-ids, by sensor."""
    path = folder / "quotas.json"
    entries = [{"entity": {"client-id": client}, "values": {key.value: limit}} for client, key, limit in limits]
    path.write_text(json.dumps({"kind": "kquota.quotas", "version": 1, "quotas": entries}))
    run = recording("none")
    return {each["sensor"]: each for each in audit(run, path, run.quotas)["findings"]}


def test_a_consumer_sees_what_its_throttled_producer_delivers(tmp_path: Path) -> None:
    """A limit that data meets as it was recorded, and does not meet where its producer is held to less."""
    consumer = ("coupled", QuotaKey.CONSUMER_BYTE_RATE, 30_000)
    alone = audited(tmp_path, consumer)[":coupled"]
    found = audited(tmp_path, consumer, ("const", QuotaKey.PRODUCER_BYTE_RATE, 20_000))
    fed, producer = found[":coupled"], found[":const"]

    assert alone["verdict"] == "throttled"
    assert alone["predicted"]["throttle_time_ms"]["estimate"] > 20_000
    assert producer["verdict"] == "throttled"
    assert fed["verdict"] == fed["predicted"]["verdict"] == "not throttled"
    assert "throttled producers" in fed["predicted"]["basis"]
    assert fed["predicted"]["throttle_time_ms"] == {"low": 0, "estimate": 0, "high": 0}
    done = (each["predicted"]["done_ms"]["estimate"] for each in (fed, producer))
    assert next(done) == pytest.approx(next(done), rel=0.05)


def test_a_consumer_of_a_producer_whose_thread_time_is_not_known(tmp_path: Path) -> None:
    """The log has a part of the producer's thread time: nobody knows how much that quota slows it down."""
    found = audited(
        tmp_path, ("coupled", QuotaKey.CONSUMER_BYTE_RATE, 30_000), ("const", QuotaKey.REQUEST_PERCENTAGE, 1)
    )
    assert found[":const"]["verdict"] == found[":coupled"]["verdict"] == "undetermined"
    assert found[":coupled"]["reason"] == "the quota of its producers may keep the clients below the limit"


@pytest.mark.parametrize(
    ("module", "limit", "most", "reason"),
    [(feeds, "MOST_FEEDS", 3, "pairs of a connection"), (prediction, "MOST_FED", 100, "1,000,000 requests")],
)
def test_a_consumer_that_is_not_coupled_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, limit: str, most: int, reason: str
) -> None:
    """Where a broker has too many connections, or a counter too many requests; its producers have nothing to say."""
    monkeypatch.setattr(module, limit, most)
    quotas = (("coupled", QuotaKey.CONSUMER_BYTE_RATE, 30_000), ("const", QuotaKey.PRODUCER_BYTE_RATE, 20_000))
    found = {name: each["predicted"] for name, each in audited(tmp_path, *quotas).items()}
    assert "data of throttled producers is taken to come as recorded" in found[":coupled"]["basis"]
    assert reason in found[":coupled"]["basis"]
    assert "as recorded" not in found[":const"]["basis"]


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
