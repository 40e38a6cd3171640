"""Recommendations from recorded usage: they hold what they promise, and a throttled client is not held down by them."""

import gzip
import json
import math
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kquota import DEFAULT, Entity, InputError, QuotaKey, QuotaSnapshot
from kquota.audit.answers.recommend import Wanted, recommendations
from kquota.audit.engines import local
from kquota.audit.engines import spark as job
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings, Question
from kquota.audit.sources import plan_splits
from kquota.core.change.history import QuotaHistory
from kquota.core.findings.recommendation import Basis, Change, Policy, Recommendation, Recommendations
from kquota.core.quotas.quota import Value
from kquota.documents.quotas import read_quotas
from tests.audit import recorded
from tests.support.enforcement import ProduceSensor
from tests.support.scheduling import by_day

START_MS = 1_773_219_600_000
PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
EXACTLY = Policy(headroom=0.0)


class Row(NamedTuple):
    time_ms: int
    user: str
    api: str
    bytes: int
    broker: str = "1"
    client_id: str = "app"
    throttle_time_ms: int | None = None


def engine(folder: Path, rows: Iterable[Row]) -> Callable[[AuditSettings], AuditResult]:
    file = folder / "usage.jsonl"
    with file.open("w", encoding="utf-8") as out:
        for row in rows:
            told = {name: value for name, value in row._asdict().items() if value is not None}
            out.write(json.dumps(told) + "\n")
    splits = plan_splits([str(file)], "usage")
    return lambda settings: local.audit(splits, settings, "usage")


def in_force(quotas: dict[Entity, dict[QuotaKey, Value]] | None = None) -> AuditSettings:
    """Settings with these quotas in force."""
    return AuditSettings(quotas=QuotaHistory.of(QuotaSnapshot(quotas or {})))


def traffic(seed: int, seconds: int = 600 if by_day() else 1500) -> list[Row]:
    """Users of different appetite on two brokers, in waves."""
    rng = random.Random(seed)
    rows = []
    for number, user in enumerate(["alice", "bob", "carol", "dave"]):
        for broker in ("1", "2"):
            wave = 1.0
            for second in range(seconds):
                if second % 20 == 0:
                    wave = rng.lognormvariate(0, 0.6)
                for _ in range(3):
                    api = rng.choice(["produce", "fetch"])
                    size = int(4**number * 1000 * wave * rng.expovariate(1)) + 1
                    rows.append(Row(START_MS + 1000 * second + rng.randrange(1000), user, api, size, broker))
    return sorted(rows)


def by_name(found: Recommendations) -> dict[tuple[Entity, QuotaKey], Recommendation]:
    """The recommendations by entity and key."""
    return {(quota.entity, quota.key): quota for quota in found.quotas}


@pytest.mark.parametrize("share", [0.01, 0.05])
def test_the_replay_throttles_no_more_than_allowed(tmp_path: Path, share: float) -> None:
    """And two percent less would throttle more: the value is the smallest, to the width of a bin."""
    run = engine(tmp_path, traffic(1))
    policy = replace(EXACTLY, max_throttled=share)

    found, _ = recommendations(run, in_force(), Wanted(policy=policy))

    assert len(found.quotas) == 8
    assert {quota.change for quota in found.quotas} == {Change.NEW}
    for quota in found.quotas:
        assert quota.predicted is not None
        assert quota.predicted <= share
        assert quota.brokers == 2
        assert quota.low is not None
        need = quota.usage.estimate.value
        assert need is not None
        assert quota.low <= need <= quota.value <= 1.11 * need
    smaller: dict[Entity, dict[QuotaKey, Value]] = {
        quota.entity: {PRODUCE: int(quota.usage.estimate.value / 1.02)}
        for quota in found.quotas
        if quota.key is PRODUCE and quota.usage.estimate.value
    }
    checked = run(replace(in_force(smaller), question=Question(share, 0.95)))
    worst: dict[str, float] = {}
    for counter, measured in checked.measured.items():
        worst[counter.sensor] = max(worst.get(counter.sensor, 0.0), measured.throttled / measured.seconds)
    assert all(throttled > share for throttled in worst.values())
    assert len(worst) == 4


def test_a_default_and_its_outliers(tmp_path: Path) -> None:
    """The default is enough for most, the others have their own; everybody is throttled little enough."""
    run = engine(tmp_path, traffic(2))

    found, _ = recommendations(run, in_force(), Wanted(default=True, policy=replace(EXACTLY, covers=0.75)))

    quotas = by_name(found)
    assert set(quotas) == {(Entity(user=name), key) for name in (DEFAULT, "dave") for key in (PRODUCE, FETCH)}
    for key in (PRODUCE, FETCH):
        default, dave = quotas[Entity(user=DEFAULT), key], quotas[Entity(user="dave"), key]
        assert (default.entities, default.covered) == (4, 3)
        assert default.value < dave.value
        assert default.predicted is not None
        assert default.predicted <= 0.01
        assert dave.predicted is not None
        assert dave.predicted <= 0.01


def test_what_suffices_stays(tmp_path: Path) -> None:
    """Unless quotas are to be lowered: by then, those that nobody was throttled by."""
    run = engine(tmp_path, traffic(3))
    quotas: dict[Entity, dict[QuotaKey, Value]] = {
        Entity(user="alice"): {PRODUCE: 10**9},
        Entity(user=DEFAULT): {PRODUCE: 10**8},
    }

    kept, _ = recommendations(run, in_force(quotas), Wanted(keys=(PRODUCE,)))
    lowered, _ = recommendations(run, in_force(quotas), Wanted(keys=(PRODUCE,), policy=Policy(lower=True)))

    assert [(quota.change, quota.own) for quota in kept.quotas] == [(Change.KEEP, True), *[(Change.KEEP, False)] * 3]
    assert kept.proposed(QuotaSnapshot(quotas)) == QuotaSnapshot(quotas)
    assert {quota.change for quota in lowered.quotas} == {Change.LOWER}
    assert all(quota.predicted is not None and quota.predicted <= 0.01 for quota in lowered.quotas)


def test_quotas_of_a_higher_level_stay_out_of_it(tmp_path: Path) -> None:
    """Who is limited by a quota of user and client-id does not count for that of the user."""
    run = engine(tmp_path, traffic(4, 300))
    pair = Entity(user="dave", client_id="app")

    found, _ = recommendations(run, in_force({pair: {PRODUCE: 10**9}}), Wanted(keys=(PRODUCE,)))

    assert [quota.entity.user for quota in found.quotas] == ["alice", "bob", "carol"]


def test_whom_a_quota_of_a_higher_level_limits_in_the_end_stays_out_of_it(tmp_path: Path) -> None:
    """A user's own quota would not count beside that of the pair, which came while requests were recorded."""
    run = engine(tmp_path, traffic(4, 300))
    pair = QuotaSnapshot({Entity(user="dave", client_id="app"): {PRODUCE: 10**5}})
    history = AuditSettings(quotas=QuotaHistory((QuotaSnapshot({}), pair), (START_MS + 100_000,)))

    found, _ = recommendations(run, history, Wanted(keys=(PRODUCE,)))

    assert [quota.entity.user for quota in found.quotas] == ["alice", "bob", "carol"]
    with pytest.raises(InputError, match="other quotas count them: user=dave,client-id=app"):
        recommendations(run, history, Wanted(keys=(PRODUCE,), only=("dave",)))


def test_a_file_that_hides_who_else_was_there_is_named(tmp_path: Path) -> None:
    """What it holds may be of every counter."""
    engine(tmp_path, traffic(4, 300))
    packed = tmp_path / "more.jsonl.gz"
    packed.write_bytes(gzip.compress((tmp_path / "usage.jsonl").read_bytes())[:5000])
    splits = plan_splits([str(tmp_path)], "usage")

    with pytest.raises(InputError, match=r"nothing to recommend: .*; .*more\.jsonl\.gz: .*cut off"):
        recommendations(lambda settings: local.audit(splits, settings, "usage"), in_force(), Wanted(keys=(PRODUCE,)))


@pytest.mark.parametrize("told", [True, False])
def test_a_throttle_of_another_level_counts(tmp_path: Path, told: bool) -> None:
    """Clients that a client-id's quota holds back want more than they got, as users too."""
    rows = [
        Row(START_MS + 500 * number, user, "produce", 1000 if number % 10 else 30_000)
        for number in range(2000)
        for user in ("alice", "bob")
    ]
    if told:
        rows = [row._replace(throttle_time_ms=700 if row.bytes > 1000 else 0) for row in rows]
    quotas: dict[Entity, dict[QuotaKey, Value]] = {} if told else {Entity(client_id="app"): {PRODUCE: 15_000}}

    found, _ = recommendations(engine(tmp_path, rows), in_force(quotas), Wanted(keys=(PRODUCE,)))

    assert [(quota.entity.user, quota.basis) for quota in found.quotas] == [
        ("alice", Basis.CENSORED),
        ("bob", Basis.CENSORED),
    ]
    assert all(quota.usage.throttled > 0 for quota in found.quotas)


def test_a_default_that_another_quota_replaces_says_nothing(tmp_path: Path) -> None:
    """The users' default is not too small where a quota of a client-id throttles in its place."""
    rows = [Row(START_MS + 500 * number, "bob", "produce", 1000 if number % 10 else 30_000) for number in range(2000)]
    pair = Entity(user=DEFAULT, client_id="app")
    quotas: dict[Entity, dict[QuotaKey, Value]] = {Entity(user=DEFAULT): {PRODUCE: 5_000_000}, pair: {PRODUCE: 7000}}

    found, _ = recommendations(engine(tmp_path, rows), in_force(quotas), Wanted(keys=(PRODUCE,)))

    (bob,) = found.quotas
    assert (bob.current, bob.governed_by, bob.basis, bob.change) == (7000, (pair,), Basis.CENSORED, Change.NEW)
    assert 7000 < bob.value < 100_000
    assert found.left_out == ()


def test_a_client_that_one_of_several_quotas_throttles_is_not_kept(tmp_path: Path) -> None:
    """The sum of its counters was compared with the highest limit, under the name of another one."""
    rows = [
        Row(START_MS + 500 * number, "bob", "produce", 200_000, client_id=client_id, throttle_time_ms=0)
        for number in range(400)
        for client_id in ("etl", "orders")
    ]
    pair = Entity(user=DEFAULT, client_id="etl")
    for limit, expected in (
        (400_000, (400_000, (pair, Entity(user=DEFAULT)), 2_000_000, Change.NEW)),
        (500_000, (2_000_000, (Entity(user=DEFAULT), pair), 2_000_000, Change.KEEP)),
    ):
        quotas: dict[Entity, dict[QuotaKey, Value]] = {
            pair: {PRODUCE: limit},
            Entity(user=DEFAULT): {PRODUCE: 2_000_000},
        }
        (bob,) = recommendations(engine(tmp_path, rows), in_force(quotas), Wanted(keys=(PRODUCE,)))[0].quotas
        assert (bob.current, bob.governed_by, bob.value, bob.change) == expected


def test_thread_time_that_is_not_known(tmp_path: Path) -> None:
    """The key is left out."""
    found, _ = recommendations(engine(tmp_path, traffic(5, 60)), in_force(), Wanted())

    assert found.undetermined == {QuotaKey.REQUEST_PERCENTAGE: 8}  # four users on two brokers
    assert {quota.key for quota in found.quotas} == {PRODUCE, FETCH}


def closed_loop(limit: Value | None, seconds: int = 600 if by_day() else 1200) -> list[Row]:
    """What a producer sends that waits when it is throttled, and loses what its buffer cannot hold.

    It wants the same each time: bursts and waves around 400 kB/s.
    """
    rng = random.Random(7)
    sensor = ProduceSensor(limit)
    rows: list[Row] = []
    level, waiting, muted_to = 0.0, 0.0, START_MS
    for tick in range(seconds * 10):
        if tick % 10 == 0:
            level = 0.95 * level + math.sqrt(1 - 0.95**2) * rng.gauss(0, 1)
        waiting = min(waiting + 40_000 * math.exp(0.6 * level), 1_000_000)
        now = START_MS + 100 * tick
        while now >= muted_to and waiting >= 50_000:
            waiting -= 50_000
            delay = max(0, sensor.produce(now, 50_000).throttle_ms)
            muted_to = now + delay
            rows.append(Row(now, "alice", "produce", 50_000, throttle_time_ms=delay))
    return rows


@pytest.mark.parametrize("lower", [False, True])
def test_a_throttled_client_is_not_held_down(tmp_path: Path, lower: bool) -> None:
    """Measured and raised again and again, its quota becomes what it wants, also when quotas may be lowered.

    The naive way, the rate of the busiest minute (but the first), keeps it about where it is.
    """
    alice = Entity(user="alice")
    wanted = Wanted(keys=(PRODUCE,), policy=Policy(lower=lower))

    def measure(limit: Value | None) -> Recommendation:
        run = engine(tmp_path, closed_loop(limit))
        quotas = {} if limit is None else {alice: {PRODUCE: limit}}
        ((found),) = recommendations(run, in_force(quotas), wanted)[0].quotas
        return found

    truth = measure(None).usage.estimate.value
    assert truth is not None
    limit: Value = 150_000
    limits: list[Value] = [limit]
    naive = 150_000
    for _ in range(12):
        found = measure(limit)
        if limit < 0.5 * truth:
            assert found.basis is Basis.CENSORED
            assert found.value >= 1.45 * limit
        limit = found.value
        limits.append(limit)
        if found.change is Change.KEEP:
            break
    for _ in range(3):
        minutes = [0] * 20
        for row in closed_loop(naive):
            minutes[(row.time_ms - START_MS) // 60_000] += row.bytes
        naive = max(minutes[1:]) // 60

    assert limits[-1] == limits[-2]
    held = [place for place, value in enumerate(limits) if value < 0.9 * truth]
    assert held == list(range(len(held)))
    assert limits[: len(held)] == sorted(limits[: len(held)])
    assert 0.9 * truth <= limit <= 1.6 * truth
    assert naive < 0.2 * truth


def test_spark_and_the_local_engine_agree(spark: Any, tmp_path: Path) -> None:
    run = engine(tmp_path, traffic(8, 400))
    splits = plan_splits([str(tmp_path / "usage.jsonl")], "usage")
    settings = in_force({Entity(user=DEFAULT): {PRODUCE: 20_000}, Entity(client_id="app"): {FETCH: 50_000}})

    here, _ = recommendations(run, settings, Wanted())
    there, _ = recommendations(lambda audit: job.audit(spark, splits, audit, "usage"), settings, Wanted())

    assert here == there


def test_the_log_of_a_real_broker() -> None:
    """Whoever it throttled wants more than its quota, which goes up; the others are measured."""
    quotas = read_quotas(recorded.QUOTAS)
    splits = plan_splits([str(recorded.LOG)], "request-log")
    settings = AuditSettings(quotas=QuotaHistory.of(quotas))

    found, _ = recommendations(lambda audit: local.audit(splits, audit, "the log"), settings, Wanted())

    bases = {(str(quota.entity), quota.key): quota.basis for quota in found.quotas}
    assert bases == {
        ("user=alice", PRODUCE): Basis.CENSORED,
        ("user=carol", FETCH): Basis.CENSORED,
        ("user=dave", PRODUCE): Basis.CENSORED,
        ("user=erin", PRODUCE): Basis.CENSORED,
        ("user=grace", PRODUCE): Basis.MEASURED,
        ("user=grace", FETCH): Basis.MEASURED,
    }
    for quota in found.quotas:
        # The limit of a quota at another level, which is enough for what was measured, stays.
        stays = quota.basis is Basis.MEASURED and quota.governed_by and quota.value == quota.current
        assert quota.current is None or quota.value > quota.current or stays
        assert (quota.usage.throttled > 0) == (quota.basis is Basis.CENSORED)
        if quota.basis is Basis.CENSORED:
            assert (quota.predicted, quota.held_back) == (None, True)
        elif stays:
            assert (quota.predicted, quota.usage.throttled) == (None, 0)
        else:
            assert quota.predicted is not None
            assert quota.predicted <= 0.01
