"""Predictions: recorded clients that the simulator runs under other quotas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from random import Random

import pytest

from kquota.audit import local
from kquota.audit.findings import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import plan_splits
from kquota.core.change.history import QuotaHistory
from kquota.core.enforcement import Generation, Mode, kernel
from kquota.core.findings.prediction import Prediction, Source
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.simulation import simulate
from kquota.core.simulation.workload import Client, Workload

START_MS = 1_700_000_000_000
Row = tuple[int, str, int, int, str]
"""(ms after START_MS, api, bytes, logged throttle, connection)"""
PRODUCER, CONSUMER = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE


def quotas(key: QuotaKey, limit: float) -> QuotaHistory:
    """A limit of alice."""
    return QuotaHistory.of(QuotaSnapshot({Entity(user="alice"): {key: int(limit)}}))


def audited(folder: Path, rows: Iterable[Row], key: QuotaKey, limit: float, parts: int = 1) -> AuditResult:
    """The audit of these rows of alice's, in so many files."""
    lines = [
        f"{START_MS + ms},alice,app,{api},{size},{throttle},{connection}"
        for ms, api, size, throttle, connection in rows
    ]
    size = -(-len(lines) // parts)
    paths = []
    for part in range(parts):
        path = folder / f"{part}.csv"
        mine = lines[part * size : (part + 1) * size]
        path.write_text("\n".join(["time_ms,user,client_id,api,bytes,throttle_time_ms,connection", *mine, ""]))
        paths.append(str(path))
    settings = AuditSettings(quotas(key, limit))
    return local.audit(plan_splits(paths, "usage"), settings, "rows", processes=1)


def predicted(folder: Path, rows: Iterable[Row], key: QuotaKey, limit: float) -> Prediction:
    """The prediction of the one counter."""
    (prediction,) = audited(folder, rows, key, limit).predictions.values()
    return prediction


def simulated(client: Client, key: QuotaKey, limit: float, seconds: int) -> int:
    """What a simulation of the known client under the limit says of its throttle time."""
    history = quotas(key, limit)
    ran = simulate(
        Workload(seconds * 1000, (replace(client, user="alice", latency_ms=1, round_trip_ms=0),)),
        history.latest,
        generation=Generation.N_PLUS_1_BY_LAST,
        using=kernel(Mode.PLAIN),
    )
    (counter,) = ran.counters
    return counter.throttle_ms


@pytest.mark.parametrize(("gap_ms", "size", "limit"), [(50, 2000, 30_000), (25, 300, 10_000), (400, 20_000, 45_000)])
def test_a_paced_producer_meets_what_its_simulation_meets(tmp_path: Path, gap_ms: int, size: int, limit: int) -> None:
    """From a recording without quotas: its requests queue, in the recorded time and after it."""
    count = 60_000 // gap_ms
    prediction = predicted(tmp_path, [(n * gap_ms, "produce", size, 0, "a") for n in range(count)], PRODUCER, limit)

    # The simulated client sends for as long as it takes to deliver as much.
    needed = -(-count * size // limit)
    simulation = simulated(Client("p", "produce", pace=1000 / gap_ms, size=size), PRODUCER, limit, needed)
    assert prediction.client_kind == "paced"
    assert prediction.throttle_time_ms.estimate == pytest.approx(simulation, rel=0.05)
    assert prediction.verdict == "throttled"
    assert prediction.delivered_per_s.estimate == pytest.approx(limit, rel=0.25)
    assert prediction.done_ms.estimate == pytest.approx(1000 * needed, rel=0.2)


def test_a_client_that_waits_for_answers_thinks_while_it_is_muted(tmp_path: Path) -> None:
    """Wait and think overlap, and it stops when it stopped: less is delivered, and nothing later."""
    draws = Random(1)
    times = list(accumulate(draws.randint(46, 56) for _ in range(1200)))
    limit = 100_000
    prediction = predicted(tmp_path, [(ms, "produce", 10_000, 0, "a") for ms in times], PRODUCER, limit)

    client = Client("p", "produce", size=10_000, think_ms=50, in_flight=1)
    simulation = simulated(client, PRODUCER, limit, times[-1] // 1000)
    assert prediction.client_kind == "synchronous"
    assert prediction.throttle_time_ms.estimate == pytest.approx(simulation, rel=0.1)
    assert prediction.done_ms.estimate is not None
    assert prediction.done_ms.estimate <= times[-1] + 1000
    assert prediction.throttle_time_ms.high is not None, "the queue fits worse, and bounds it"


def test_a_throttled_fetch_comes_back_larger(tmp_path: Path) -> None:
    """A tailing consumer a tenth over its limit loses a third of it: few deliveries, each of what came meanwhile."""
    rows = [(n * 50, "fetch", 1600, 0, "a") for n in range(1800)]
    prediction = predicted(tmp_path, rows, CONSUMER, 29_000)

    client = Client("c", "fetch", pace=20, size=1600, max_bytes=1 << 20, max_wait_ms=500)
    simulation = simulated(client, CONSUMER, 29_000, 90)
    assert prediction.client_kind == "consumer"
    assert prediction.muted_share.estimate is not None
    assert prediction.muted_share.estimate * 90_000 == pytest.approx(simulation, rel=0.15)
    assert prediction.throttle_time_max_ms.estimate is not None
    assert prediction.throttle_time_max_ms.estimate > 8000
    assert prediction.delivered_per_s.estimate is not None
    assert prediction.delivered_per_s.estimate < 25_000
    assert (prediction.left_units.estimate or 0) > 500_000


def test_nothing_is_simulated_where_nothing_is_throttled(tmp_path: Path) -> None:
    """The clients meet what was recorded."""
    rows = [(n * 100, "produce", 100, 0, "a") for n in range(101)]
    prediction = predicted(tmp_path, rows, PRODUCER, 10_000)

    assert (prediction.verdict, prediction.throttle_time_ms.high) == ("not throttled", 0)
    assert prediction.delivered_per_s == prediction.wanted_per_s
    assert prediction.delivered_per_s.estimate == pytest.approx(1010)


def held_back(limit: float) -> Sequence[Row]:
    """A producer that a quota held at its limit all the time."""
    gap = int(5000 * 1000 / limit)
    return [(n * gap, "produce", 5000, gap - 2, "a") for n in range(600)]


def test_demand_that_a_quota_held_back_is_a_lower_bound(tmp_path: Path) -> None:
    """Under a higher limit nobody knows; under a lower one it is throttled all the more."""
    raised = predicted(tmp_path, held_back(50_000), PRODUCER, 80_000)

    assert raised.verdict == "undetermined"
    assert raised.recorded_under.held_back
    assert raised.recorded_under.source is Source.LOG
    assert raised.reason is not None
    assert raised.reason.startswith("wanted at least 50,")
    assert raised.wanted_per_s.low == pytest.approx(50_000, rel=0.02)
    assert raised.wanted_per_s.high is None
    assert raised.throttle_time_ms.high is None

    lowered = predicted(tmp_path, held_back(50_000), PRODUCER, 30_000)
    assert lowered.verdict == "throttled"


def test_without_connections_no_client_is_known(tmp_path: Path) -> None:
    """The verdict stands, the numbers do not."""
    rows = [(n * 50, "produce", 2000, 0, "") for n in range(600)]
    prediction = predicted(tmp_path, rows, PRODUCER, 20_000)

    assert prediction.verdict == "throttled"
    assert prediction.client_kind == "unknown"
    assert prediction.throttle_time_ms.low is None
    assert "no connections" in prediction.basis


def test_how_rows_are_cut_changes_nothing(tmp_path: Path) -> None:
    """One file or seven: the same predictions."""
    rows = [(n * 37, "produce", 1000 + n % 7 * 300, 0, "ab"[n % 3 % 2]) for n in range(2000)]
    whole = audited(tmp_path, rows, PRODUCER, 20_000)

    assert audited(tmp_path, rows, PRODUCER, 20_000, parts=7).predictions == whole.predictions
