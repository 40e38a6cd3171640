"""Producers with connections to several brokers: told by their requests to all of them, and run against all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import pytest

from kquota.audit import local
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import plan_splits
from kquota.core.change.history import QuotaHistory
from kquota.core.enforcement import ProduceSensor
from kquota.core.findings.prediction import Prediction
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, Value
from kquota.core.quotas.snapshot import QuotaSnapshot
from tests.audit.test_prediction import PRODUCER, START_MS, TIME

SIZE = 10_000
Sent = tuple[int, int, int]
"""(ms after START_MS, broker, throttle time)"""


def sent(
    limit: int | None, *, seconds: int = 80, waits: bool = True, seed: int = 1, shares: Sequence[int] = (1, 1, 1)
) -> list[Sent]:
    """What a client sends to three brokers in turn of its keys, under a limit at each of them.

    One that waits thinks for some 50 ms after each answer; else records come every 50 ms, and queue at their broker.
    """
    draws = Random(seed)
    sensors = [ProduceSensor(limit) for _ in range(3)]
    free = [0, 0, 0]
    found: list[Sent] = []
    turns = [broker for broker, share in enumerate(shares) for _ in range(share)]
    now = due = 0
    while (now if waits else due) < seconds * 1000:
        broker = turns[draws.randrange(len(turns))]
        due += draws.randint(46, 56) if waits else 50
        now = max(now + draws.randint(46, 56), free[broker]) if waits else max(due, free[broker])
        throttle = max(sensors[broker].produce(now, SIZE).throttle_ms, 0)
        free[broker] = now + throttle
        found.append((now, broker, throttle))
    return sorted(found)


def predictions(
    folder: Path, rows: Sequence[Sent], limit: int, percent: float | None = None
) -> Mapping[str, Prediction]:
    """What the audit predicts under a limit, by broker; each broker has a connection of its own.

    A request takes a millisecond of thread time, of which the client may have a limit as well.
    """
    values: dict[QuotaKey, Value] = {PRODUCER: limit} | ({} if percent is None else {TIME: percent})
    both = QuotaHistory.of(QuotaSnapshot({Entity(user="alice"): values}))
    paths = []
    for broker in range(3):
        path = folder / f"{broker}.csv"
        lines = [
            f"{START_MS + ms},b{at},alice,app,produce,{SIZE},{wait},c{at},1000000"
            for ms, at, wait in rows
            if at == broker
        ]
        head = "time_ms,broker,user,client_id,api,bytes,throttle_time_ms,connection,request_time_ns"
        path.write_text("\n".join([head, *lines, ""]))
        paths.append(str(path))
    found = local.audit(plan_splits(paths, "usage"), AuditSettings(both), "rows", processes=1)
    return {name[0]: prediction for name, prediction in found.predictions.items() if name[1] == PRODUCER.value}


def totals(rows: Sequence[Sent]) -> dict[str, int]:
    """The throttle time that was met at each broker."""
    return {f"b{broker}": sum(wait for _, at, wait in rows if at == broker) for broker in range(3)}


def test_a_client_that_waits_for_the_answers_of_all_its_brokers(tmp_path: Path) -> None:
    """Recorded without quotas: it meets at each broker what it really meets there, and is muted at the others too."""
    limit = 45_000
    found = predictions(tmp_path, sent(None), limit)
    real = totals(sent(limit))

    assert {prediction.client_kind for prediction in found.values()} == {"synchronous"}
    for broker, prediction in found.items():
        assert prediction.throttle_time_ms.estimate == pytest.approx(real[broker], rel=0.1)
        assert prediction.throttle_time_ms.high is not None
        assert "at 3 brokers" in prediction.basis


@pytest.mark.parametrize("percent", [None, 1.6, 0.2])
def test_who_waits_for_a_busy_broker_is_not_throttled_at_an_idle_one(tmp_path: Path, percent: float | None) -> None:
    """By the requests that the idle ones got without quotas their limits would throttle; then they get far fewer.

    Another kind of client would go on at the idle ones, and nobody knows that it is not of this kind.
    """
    limit, shares = 15_000, (8, 1, 1)
    found = predictions(tmp_path, sent(None, shares=shares), limit, percent)
    real = totals(sent(limit, shares=shares))

    assert real["b0"] > 20_000
    assert real["b1"] == real["b2"] == 0
    assert {broker: each.verdict for broker, each in found.items()} == {
        "b0": "throttled",
        "b1": "undetermined",
        "b2": "undetermined",
    }
    assert (found["b1"].reason or "").endswith(" may keep the clients below the limit")
    assert found["b1"].throttle_time_ms.low == 0


def test_a_client_with_a_schedule_keeps_it_at_each_broker(tmp_path: Path) -> None:
    """Its records queue at each broker alone: what the others do does not matter."""
    found = predictions(tmp_path, sent(None, waits=False), 45_000)
    real = totals(sent(45_000, waits=False))
    for broker, prediction in found.items():
        assert prediction.client_kind == "paced"
        assert prediction.throttle_time_ms.low is not None
        assert prediction.throttle_time_ms.high is not None
        assert prediction.throttle_time_ms.high >= 0.9 * real[broker]


def test_who_is_quiet_at_one_broker_may_wait_at_another(tmp_path: Path) -> None:
    """Recorded under a limit: a pause at one broker is no evidence that a higher limit is enough."""
    # One broker throttles in the first half only; then the client waits at the other ones.
    rows = [(ms, broker, wait if broker or ms < 40_000 else 0) for ms, broker, wait in sent(45_000)]
    found = predictions(tmp_path, rows, 60_000)
    assert [prediction.verdict for prediction in found.values() if prediction.verdict == "not throttled"] == []
