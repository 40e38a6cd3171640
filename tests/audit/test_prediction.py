"""Predictions: recorded clients that the simulator runs under other quotas."""

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from random import Random

import pytest

from kquota import DEFAULT, Entity, QuotaKey, QuotaSnapshot
from kquota.audit.answers.whatif import compare
from kquota.audit.engines import local
from kquota.audit.evidence.verdict import audited as audited_twice
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import plan_splits
from kquota.core.change.history import QuotaHistory
from kquota.core.enforcement import Generation, Mode, QuotaWindows, kernel
from kquota.core.findings.prediction import Interval, Prediction, RecordedUnder, Source
from kquota.core.findings.verdicts import BURSTS, HELD_BACK, SLOWED, Verdict
from kquota.core.findings.whatif import Outcome
from kquota.core.quotas.quota import Value
from kquota.core.simulation.engine import simulate
from kquota.core.simulation.recorded import Mutating, run_mutations
from kquota.core.simulation.workload import Client, Workload
from tests.support.enforcement import ProduceSensor, RequestSensor

START_MS = 1_700_000_000_000
HEAD = "time_ms,user,client_id,api,bytes,throttle_time_ms,connection,request_time_ns"
Row = tuple[int, str, int, int, str]
"""(ms after START_MS, api, bytes, logged throttle, connection)"""
PRODUCER, CONSUMER = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
TIME = QuotaKey.REQUEST_PERCENTAGE


def quotas(key: QuotaKey, limit: float) -> QuotaHistory:
    return QuotaHistory.of(QuotaSnapshot({Entity(user="alice"): {key: int(limit)}}))


def audit_of(folder: Path, head: str, lines: Sequence[str], settings: AuditSettings, parts: int = 1) -> AuditResult:
    """The audit of a usage table with those columns and lines, in so many files."""
    size = -(-len(lines) // parts)
    paths = [folder / f"{part}.csv" for part in range(parts)]
    for part, path in enumerate(paths):
        path.write_text("\n".join([head, *lines[part * size : (part + 1) * size], ""]))
    return local.audit(plan_splits(list(map(str, paths)), "usage"), settings, "rows", processes=1)


def audited(folder: Path, rows: Iterable[Row], key: QuotaKey, limit: float, parts: int = 1) -> AuditResult:
    """The audit of these rows of alice's, in so many files."""
    head = "time_ms,user,client_id,api,bytes,throttle_time_ms,connection"
    lines = [f"{START_MS + ms},alice,app,{api},{size},{delay},{link}" for ms, api, size, delay, link in rows]
    return audit_of(folder, head, lines, AuditSettings(quotas(key, limit)), parts)


def known(value: float | None) -> float:
    """A number that has to be there."""
    assert value is not None
    return value


def predicted(folder: Path, rows: Iterable[Row], key: QuotaKey, limit: float) -> Prediction:
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
    assert known(prediction.done_ms.estimate) <= times[-1] + 1000
    assert prediction.throttle_time_ms.high is not None, "the queue fits worse, and bounds it"


def test_whoever_may_wait_for_answers_at_random_has_it_in_the_interval(tmp_path: Path) -> None:
    """Random gaps are those of random thinks, or of data that comes at random: no gap is too short for an answer."""
    draws, limit, size = Random(1), 80_000, 10_000
    thinks = [3 + int(draws.expovariate(0.01)) for _ in range(600)]
    prediction = predicted(tmp_path, [(ms, "produce", size, 0, "a") for ms in accumulate(thinks)], PRODUCER, limit)

    sensor, now, total = ProduceSensor(limit), 0, 0
    for think in thinks:
        delay = max(sensor.produce(START_MS + now, size).throttle_ms, 0)
        total, now = total + delay, now + max(delay, think)
    throttled_ms = prediction.throttle_time_ms
    assert 0.9 * known(throttled_ms.low) <= total <= 1.1 * known(throttled_ms.high)


def test_a_consumer_under_a_quota_on_thread_time_alone_fetches_all_that_waits_at_once(tmp_path: Path) -> None:
    """Data comes each 100 ms. Nobody knows the bytes; as many fetches as were recorded are far too many."""
    limit, nanos, end = 4, 12_000_000, 60_000
    head = "time_ms,user,client_id,api,bytes,connection,request_time_ns"
    lines = [f"{START_MS + ms},alice,app,fetch,600,a,{nanos}" for ms in range(0, end, 100)]
    result = audit_of(tmp_path, head, lines, AuditSettings(quotas(TIME, limit)))

    sensor, now, total = RequestSensor(limit), 0, 0
    while now < end:
        delay = max(sensor.request(START_MS + now, nanos).throttle_ms, 0)
        total, now = total + delay, max(now + delay, 100 * (now // 100 + 1) * (delay < 100))
    (prediction,) = result.predictions.values()
    throttled_ms = prediction.throttle_time_ms
    assert 0.9 * known(throttled_ms.low) <= total <= 1.1 * known(throttled_ms.high)


def test_a_consumer_that_gets_little_at_once_waits_for_little(tmp_path: Path) -> None:
    """Full responses one after the other show how much one holds, also where they are a small part of all."""
    backlog = [(3 * n, "fetch", 50_000, 0, "a") for n in range(40)]
    rows = [*backlog, *((1000 + 100 * n, "fetch", 600, 0, "a") for n in range(500))]
    prediction = predicted(tmp_path, rows, CONSUMER, 50_000)

    assert known(prediction.throttle_time_max_ms.estimate) <= 1100  # 50 kB are a second's worth


def test_a_throttled_fetch_comes_back_larger(tmp_path: Path) -> None:
    """A tailing consumer a tenth over its limit loses a third of it: few deliveries, each of what came meanwhile."""
    rows = [(n * 50, "fetch", 1600, 0, "a") for n in range(1800)]
    prediction = predicted(tmp_path, rows, CONSUMER, 29_000)

    client = Client("c", "fetch", pace=20, size=1600, max_bytes=1 << 20, max_wait_ms=500)
    simulation = simulated(client, CONSUMER, 29_000, 90)
    assert prediction.client_kind == "consumer"
    assert known(prediction.muted_share.estimate) * 90_000 == pytest.approx(simulation, rel=0.15)
    assert known(prediction.throttle_time_max_ms.estimate) > 8000
    assert known(prediction.delivered_per_s.estimate) < 25_000
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
    assert (raised.reason or "").startswith("wanted at least 50,")
    assert raised.wanted_per_s.low == pytest.approx(50_000, rel=0.02)
    assert raised.wanted_per_s.high is None
    assert raised.throttle_time_ms.high is None

    lowered = predicted(tmp_path, held_back(50_000), PRODUCER, 30_000)
    assert lowered.verdict == "throttled"


@pytest.mark.parametrize(("limit", "verdict"), [(25_000, Verdict.THROTTLED), (45_000, Verdict.UNDETERMINED)])
def test_a_burst_after_a_mute_shows_no_burst_under_a_higher_limit(
    tmp_path: Path, limit: float, verdict: Verdict
) -> None:
    """30 kB came each second, and waited as one request for 9 s; a higher limit mutes nobody for so long."""
    rows = [(9001 * n, "produce", 270_000 if n else 30_000, 9000, "a") for n in range(7)]

    assert predicted(tmp_path, rows, PRODUCER, limit).verdict == verdict.value


@pytest.mark.parametrize("others", ["", "c1", "c2", "c3", "c4"])
def test_without_connections_no_client_is_known(tmp_path: Path, others: str) -> None:
    """The verdict stands, the numbers do not: also where some rows have a connection, whatever its id is."""
    rows = [(n * 50, "produce", 2000, 0, "" if n % 3 else others) for n in range(600)]
    prediction = predicted(tmp_path, rows, PRODUCER, 20_000)

    assert prediction.verdict == "throttled"
    assert prediction.client_kind == "unknown"
    assert prediction.throttle_time_ms.low is None
    assert "no connections" in prediction.basis


def test_how_rows_are_cut_changes_nothing(tmp_path: Path) -> None:
    rows = [(n * 37, "produce", 1000 + n % 7 * 300, 0, "ab"[n % 3 % 2]) for n in range(2000)]
    whole = audited(tmp_path, rows, PRODUCER, 20_000)

    assert audited(tmp_path, rows, PRODUCER, 20_000, parts=7).predictions == whole.predictions


KEYS = (PRODUCER, CONSUMER, QuotaKey.REQUEST_PERCENTAGE)


def generated_quotas(draws: Random) -> QuotaHistory:
    """Limits of some users, of a pair and of everybody else."""
    entities = [Entity(user="a"), Entity(user="b"), Entity(user="a", client_id="x"), Entity(user=DEFAULT)]
    values: dict[Entity, dict[QuotaKey, Value]] = {}
    for entity in entities:
        mine: dict[QuotaKey, Value] = {key: draws.choice([3, 12_000, 40_000, 10**7]) for key in KEYS[:2]}
        if draws.random() < 0.4:
            mine[KEYS[2]] = draws.choice([1, 5, 200])
        if draws.random() < 0.7:
            values[entity] = mine
    return QuotaHistory.of(QuotaSnapshot(values or {Entity(user="a"): {PRODUCER: 20_000}}))


@pytest.mark.parametrize("seed", range(12))
def test_a_counter_has_one_verdict(tmp_path: Path, seed: int) -> None:
    """In its finding, its prediction and its quota: under both sets of quotas, whatever was in force."""
    draws = Random(seed)
    connected, answered = draws.random() < 0.8, draws.random() < 0.8
    names = ["time_ms", "user", "client_id", "api", "bytes", "request_time_ns"]
    names += ["throttle_time_ms"] * answered + ["connection"] * connected
    lines = []
    for user, client_id, api in itertools.product("ab", "xy", ("produce", "fetch")):
        now, gap, held = 0, draws.choice([20, 90, 400]), draws.random() < 0.5
        for _ in range(draws.choice([5, 60, 250])):
            now += round(gap * draws.uniform(0.5, 1.5))
            throttle = draws.choice([0, 0, 30, 700]) * held
            row = [START_MS + now, user, client_id, api, draws.choice([90, 1500, 30_000]), 1_000_000]
            lines.append([*row, *[throttle] * answered, *[f"{user}{client_id}"] * connected])
            now += throttle * draws.choice([0, 1, 1])
    lines.sort()
    table = [",".join(map(str, line)) for line in lines]
    quotas, against = generated_quotas(draws), generated_quotas(draws)
    recorded = draws.choice([None, quotas, against, QuotaHistory.of(QuotaSnapshot({}))])
    settings = AuditSettings(quotas, against=against, top_clients=None, per_client=True, recorded_under=recorded)

    result = audited_twice(lambda asked: audit_of(tmp_path, ",".join(names), table, asked), settings)
    assert result.against is not None
    for side in (result, result.against):
        counted: dict[tuple[str, str], Counter[str]] = {}
        for row in side.findings.to_pylist():
            name = (row["broker"], row["key"], row["sensor"])
            assert side.predictions[name].verdict == row["verdict"], name
            assert (row["reason"] is not None) == (row["verdict"] == "undetermined"), name
            if row["verdict"] == "not throttled":
                assert (row["throttled_events"], side.predictions[name].throttle_time_ms.high) == (0, 0)
            counted.setdefault((row["entity"], row["key"]), Counter())[row["verdict"]] += 1
        for quota in side.quotas:
            told = {verdict.value: count for verdict, count in quota.counters.items()}
            assert told == dict(counted.get((str(quota.entity), quota.key.value), Counter()))
            assert quota.verdict is Verdict.UNDETERMINED or not told or quota.verdict.value in told


def test_other_quotas_know_who_was_held_back(tmp_path: Path) -> None:
    """Also where the quotas in question limit nobody, so that no finding of theirs lacks throttle times."""
    lines = [f"{START_MS + 100 * n},alice,app,produce,3000" for n in range(300)]
    settings = AuditSettings(
        QuotaHistory.of(QuotaSnapshot({})), against=quotas(PRODUCER, 10**6), recorded_under=quotas(PRODUCER, 10_000)
    )
    head = "time_ms,user,client_id,api,bytes"
    result = audited_twice(lambda asked: audit_of(tmp_path, head, lines, asked), settings)
    assert result.against is not None
    assert [quota.reason for quota in result.against.quotas] == [HELD_BACK]


@pytest.mark.parametrize("parts", [1, 2])
def test_each_counter_knows_the_limits_of_its_own_clients(tmp_path: Path, parts: int) -> None:
    """Also where clients of several users share it, and however the export is cut."""
    clients = [(f"u{user}", f"c{number}") for user in range(3) for number in range(6)]
    lines = [f"{START_MS + ms},{user},{client},produce,1000" for ms in range(0, 9000, 300) for user, client in clients]
    for part in range(parts):
        rows = "\n".join(lines[part::parts])
        (tmp_path / f"{part}.csv").write_text(f"time_ms,user,client_id,api,bytes\n{rows}\n")
    limits = {f"c{number}": 500_000 + number for number in range(6)}
    recorded = QuotaSnapshot({Entity(client_id=name): {PRODUCER: limit} for name, limit in limits.items()})
    proposed = QuotaHistory.of(QuotaSnapshot({Entity(client_id=DEFAULT): {PRODUCER: 10**6}}))
    settings = AuditSettings(proposed, recorded_under=QuotaHistory.of(recorded))

    result = local.audit(plan_splits([str(tmp_path)], "usage"), settings, "rows", processes=1)

    found = {sensor: prediction.recorded_under.limit for (_, _, sensor), prediction in result.predictions.items()}
    assert found == {f":{name}": limit for name, limit in limits.items()}


def throttled_by(limit: int, rows: Iterable[Row]) -> list[Row]:
    """The rows as a broker with that limit answers them; the client waits until it is not muted."""
    sensor, answered, free = ProduceSensor(limit), list[Row](), 0
    for ms, api, size, _, connection in rows:
        now = max(ms, free)
        delay = max(sensor.produce(START_MS + now, size).throttle_ms, 0)
        free = now + delay
        answered.append((now, api, size, delay, connection))
    return answered


def test_quotas_that_were_in_force_need_no_simulation(tmp_path: Path) -> None:
    """What the log holds is the prediction, also where nobody says which quotas were in force."""
    rows = throttled_by(20_000, [(n * 60, "produce", 2000, 0, "a") for n in range(1000)])
    prediction = predicted(tmp_path, rows, PRODUCER, 20_000)

    answers = [throttle for *_, throttle, _ in rows]
    assert (prediction.basis, prediction.verdict) == ("logged", "throttled")
    assert prediction.throttle_time_ms == Interval.exactly(sum(answers))
    assert prediction.throttle_time_max_ms == Interval.exactly(max(answers))
    assert prediction.delivered_per_s == Interval.exactly(2_000_000 / (rows[-1][0] / 1000))
    assert prediction.wanted_per_s.high is None
    assert prediction.recorded_under == RecordedUnder(Source.LOG, 20_000, True)
    assert predicted(tmp_path, rows, PRODUCER, 19_000).basis != "logged"
    assert predicted(tmp_path, rows, PRODUCER, 21_000).basis != "logged"


def test_what_another_quota_may_have_caused_is_an_interval(tmp_path: Path) -> None:
    """A broker answers the longest of several throttle times, and not which quota it is of."""
    rows = throttled_by(20_000, [(n * 60, "produce", 2000, 0, "a") for n in range(400)])
    lines = [f"{START_MS + ms},alice,app,{api},{size},{delay},{link},9000000" for ms, api, size, delay, link in rows]
    quotas = QuotaHistory.of(QuotaSnapshot({Entity(user="alice"): {PRODUCER: 20_000, QuotaKey.REQUEST_PERCENTAGE: 5}}))
    result = audit_of(tmp_path, HEAD, lines, AuditSettings(quotas, in_force=True))

    told = sum(delay for *_, delay, _ in rows)
    for (_, key, _), prediction in result.predictions.items():
        assert prediction.verdict == "throttled", key
        assert (prediction.throttle_time_ms.low, prediction.throttle_time_ms.high) == (0, told), key


@pytest.mark.parametrize(
    ("api", "size", "limit", "percent", "of_bytes", "of_time"),
    [
        ("produce", 2000, 30_000, 3.0, Verdict.THROTTLED, Verdict.THROTTLED),
        ("produce", 2000, 30_000, 3.9, Verdict.THROTTLED, Verdict.NOT_THROTTLED),
        ("produce", 2000, 33_000, 3.5, Verdict.THROTTLED, Verdict.UNDETERMINED),
        ("produce", 2000, 36_000, 3.0, Verdict.UNDETERMINED, Verdict.THROTTLED),
        ("produce", 2000, 33_000, 1.0, Verdict.NOT_THROTTLED, Verdict.THROTTLED),
        ("produce", 2000, 10**9, 3.0, Verdict.NOT_THROTTLED, Verdict.THROTTLED),
        ("fetch", 1600, 29_000, 3.8, Verdict.THROTTLED, Verdict.THROTTLED),
        ("fetch", 1600, 24_000, 3.92, Verdict.THROTTLED, Verdict.NOT_THROTTLED),
    ],
)
def test_a_connection_waits_for_the_longest_of_its_throttle_times(
    tmp_path: Path, api: str, size: int, limit: int, percent: float, of_bytes: Verdict, of_time: Verdict
) -> None:
    """Of bytes and of thread time: as in a simulation of the known client under both quotas.

    A quota that would throttle the client by itself may never do so: the other one slows the client down enough. A
    counter that comes near its limit in the simulation may pass it in a real run.
    """
    key = PRODUCER if api == "produce" else CONSUMER
    lines = [f"{START_MS + 50 * n},alice,app,{api},{size},0,a,2000000" for n in range(1200)]
    values: dict[QuotaKey, Value] = {key: limit, QuotaKey.REQUEST_PERCENTAGE: percent}
    both = QuotaHistory.of(QuotaSnapshot({Entity(user="alice"): values}))
    result = audit_of(tmp_path, HEAD, lines, AuditSettings(both))

    client = Client(
        "c", api, user="alice", pace=20, size=size, nanos=2_000_000, latency_ms=1, round_trip_ms=0,
        max_bytes=1 << 20, max_wait_ms=1 << 40, stop_ms=60_000,
    )  # fmt: skip
    ran = simulate(
        Workload(400_000, (client,)), both.latest, generation=Generation.N_PLUS_1_BY_LAST, using=kernel(Mode.PLAIN)
    )
    really = {counter.key: counter.throttled > 0 for counter in ran.counters}
    found = {QuotaKey(name[1]): prediction for name, prediction in result.predictions.items()}
    told = {QuotaKey(row["key"]): row for row in result.findings.to_pylist()}
    throttle_ms = ran.clients[0].throttle_ms
    assert throttle_ms > 5000
    assert {quota.key: quota.verdict for quota in result.quotas} == {key: of_bytes, TIME: of_time}
    for quota in result.quotas:
        prediction, row = found[quota.key], told[quota.key]
        assert prediction.verdict == row["verdict"] == quota.verdict.value
        assert really[quota.key] == (quota.verdict is Verdict.THROTTLED)
        if quota.verdict is Verdict.NOT_THROTTLED:
            assert prediction.throttle_time_ms == Interval.exactly(0)
            assert row["throttled_events"] == 0
            continue
        if quota.verdict is Verdict.UNDETERMINED:
            assert prediction.reason == row["reason"] == quota.reason
            assert prediction.reason == "another quota of its clients may keep the clients below the limit"
            assert (prediction.throttle_time_ms.low, prediction.throttle_time_ms.estimate) == (0, None)
            continue
        # The simulated consumer stops when the recording does, which the muted share is of.
        muted = prediction.muted_share.estimate
        waited = prediction.throttle_time_ms.estimate if api == "produce" else known(muted) * 60_000
        assert waited == pytest.approx(throttle_ms, rel=0.05), quota.key


Timed = tuple[int, str, int, str]
"""(ms after START_MS, user, logged throttle, connection) of a request of 2,000 bytes and 2 ms of thread time."""


def both(limit: int, percent: float, **others: int) -> QuotaHistory:
    """Limits of alice on bytes and thread time, and of others on bytes."""
    mine: dict[Entity, dict[QuotaKey, Value]] = {Entity(user="alice"): {PRODUCER: limit, TIME: percent}}
    return QuotaHistory.of(QuotaSnapshot(mine | {Entity(user=name): {PRODUCER: rate} for name, rate in others.items()}))


def timed(folder: Path, rows: Iterable[Timed], settings: AuditSettings) -> AuditResult:
    lines = [f"{START_MS + ms},{user},app,produce,2000,{delay},{link},2000000" for ms, user, delay, link in rows]
    return audit_of(folder, HEAD, lines, settings)


STEADY: Sequence[Timed] = [(50 * n, "alice", 0, "a") for n in range(1200)]


def test_a_counter_that_another_quota_spares_shows_its_own_rate(tmp_path: Path) -> None:
    """Nothing of the replay is left beside the verdict of the simulation: no counts, no times, no rates."""
    settings = AuditSettings(both(33_000, 3.5), per_client=True, timelines=5)
    result = timed(tmp_path, STEADY, settings)
    throttled, spared = result.findings.to_pylist()
    assert (throttled["key"], spared["key"]) == (PRODUCER.value, TIME.value)
    assert (throttled["verdict"], spared["verdict"]) == ("throttled", "undetermined")
    assert spared["first_throttled_ms"] is spared["last_throttled_ms"] is None
    assert spared["clients"][0]["throttled_events"] is spared["clients"][0]["throttle_time_ms"] is None
    assert 3.0 < spared["peak_rate"] == spared["peak_rate_max"] < 4.0, "4.02 by the replay"
    assert list(result.timelines) == [("", PRODUCER.value, "alice:")]
    prediction = result.predictions["", TIME.value, "alice:"]
    assert (prediction.muted_share.low, prediction.muted_share.estimate) == (0, None)


@pytest.mark.parametrize(("percent", "verdict"), [(2.0, Verdict.UNDETERMINED), (90.0, Verdict.NOT_THROTTLED)])
def test_what_another_quota_delays_may_come_at_once(tmp_path: Path, percent: float, verdict: Verdict) -> None:
    """Slow requests fill the request quota for a while. Meanwhile the bytes wait, and come as fast as they can."""
    lines = [f"{START_MS + 50 * n},alice,app,produce,2000,0,a,100000" for n in range(1200)]
    lines += [f"{START_MS + 200 * n},alice,app,metadata,0,0,b,10000000" for n in range(50)]
    result = audit_of(tmp_path, HEAD, lines, AuditSettings(both(60_000, percent)))
    (quota,) = (quota for quota in result.quotas if quota.key is PRODUCER)
    assert quota.verdict is verdict
    assert (quota.reason or "").endswith(BURSTS) == (verdict is Verdict.UNDETERMINED)


def test_what_another_quota_delays_is_delivered_later(tmp_path: Path) -> None:
    """Of a counter that throttles nobody, the bytes of clients that wait for the sake of their thread time."""
    result = timed(tmp_path, STEADY, AuditSettings(both(10**6, 2.0)))
    (quota,) = (quota for quota in result.quotas if quota.key is PRODUCER)
    prediction = result.predictions["", PRODUCER.value, "alice:"]
    assert quota.verdict is Verdict.NOT_THROTTLED
    assert prediction.throttle_time_ms == Interval.exactly(0)
    assert known(prediction.delivered_per_s.estimate) == pytest.approx(40_000 * 2.0 / 4.0, rel=0.1)  # of 40 kB/s


@pytest.mark.parametrize(("percent", "verdict"), [(5.5, Verdict.UNDETERMINED), (6.0, Verdict.NOT_THROTTLED)])
def test_who_comes_near_a_limit_while_another_quota_delays_them(
    tmp_path: Path, percent: float, verdict: Verdict
) -> None:
    """The simulated producer merges what waits, and comes to less thread time than was recorded."""
    lines = [f"{START_MS + 200 * n},alice,app,produce,2000,0,a,100000" for n in range(300)]
    lines += [f"{START_MS + 200 * n},alice,app,produce,200,0,b,10000000" for n in range(100, 200)]
    result = audit_of(tmp_path, HEAD, lines, AuditSettings(both(6_000, percent)))
    assert next(quota.verdict for quota in result.quotas if quota.key is TIME) is verdict


@pytest.mark.parametrize(
    ("limit", "percent", "key", "reason"),
    [
        (39_000, 2.0, PRODUCER, SLOWED),
        (42_000, 2.0, PRODUCER, BURSTS),
        (90_000, 2.0, PRODUCER, None),
        (39_000, 2.0, TIME, None),
        (20_000, 3.9, TIME, SLOWED),
        (20_000, 4.1, TIME, BURSTS),
        (20_000, 3.9, PRODUCER, None),
    ],
)
def test_what_comes_after_another_quota_throttles_needs_connections(
    tmp_path: Path, limit: int, percent: float, key: QuotaKey, reason: str | None
) -> None:
    """Without them no client can be simulated. The quota that throttles first throttles what was recorded."""
    rows = [(ms, user, delay, "") for ms, user, delay, _ in STEADY]
    result = timed(tmp_path, rows, AuditSettings(both(limit, percent)))
    (quota,) = (quota for quota in result.quotas if quota.key is key)
    assert (quota.verdict is Verdict.UNDETERMINED) == (reason is not None)
    assert (quota.reason or "").endswith(reason or "")


def test_a_quota_that_never_throttles_slows_nobody_down(tmp_path: Path) -> None:
    """Somebody else is throttled, and alice has two quotas without connections, of which none ever throttles."""
    rows = [f"{START_MS + 50 * n},alice,app,fetch,2000,0,,2000000" for n in range(600)]
    rows += [f"{START_MS + 50 * n},bob,app,produce,2000,0,,2000000" for n in range(600)]
    values: dict[Entity, dict[QuotaKey, Value]] = {
        Entity(user="alice"): {CONSUMER: 10**9, TIME: 500.0},
        Entity(user="bob"): {PRODUCER: 20_000},
    }
    settings = AuditSettings(QuotaHistory.of(QuotaSnapshot(values)))
    result = audit_of(tmp_path, HEAD, rows, settings)
    verdicts = {quota.key: quota.verdict for quota in result.quotas}
    calm = Verdict.NOT_THROTTLED
    assert verdicts == {CONSUMER: calm, TIME: calm, PRODUCER: Verdict.THROTTLED}


def test_the_reason_of_one_quota_is_not_that_of_another(tmp_path: Path) -> None:
    """Bob was held back, and alice has two quotas."""
    bob = [(50 * n + 1, "bob", 30 if n % 3 == 0 else 0, "b") for n in range(1200)]
    result = timed(tmp_path, [*STEADY, *bob], AuditSettings(both(33_000, 3.5, bob=100_000)))
    reasons = {(quota.entity.user, quota.key): quota.reason for quota in result.quotas}
    assert reasons["alice", PRODUCER] is None
    assert reasons["alice", TIME] == "another quota of its clients may keep the clients below the limit"
    assert "held back" in (reasons["bob", PRODUCER] or "")
    assert "another quota" not in (reasons["bob", PRODUCER] or "")


def test_who_was_held_back_and_comes_near_a_limit_is_not_called_free(tmp_path: Path) -> None:
    """The queue drained, so that all that was wanted is known; which of two quotas delays the client is not."""
    rows = throttled_by(30_000, [(n * 50, "produce", 2000, 0, "a") for n in range(600)])
    rows += [(60_000 + n * 400, "produce", 2000, 0, "a") for n in range(100)]
    result = timed(
        tmp_path, [(ms, "alice", delay, "a") for ms, _, _, delay, _ in rows], AuditSettings(both(33_000, 3.3))
    )
    verdicts = {quota.key: quota.verdict for quota in result.quotas}
    assert verdicts[PRODUCER] is Verdict.UNDETERMINED


def test_a_comparison_knows_that_a_quota_hangs_on_another_one(tmp_path: Path) -> None:
    """The limit on bytes is the same on both sides, and open on both; the limit on thread time is not the same."""

    def outcomes(before: float, after: float) -> dict[QuotaKey, Outcome]:
        settings = AuditSettings(both(36_000, after), against=both(36_000, before), top_clients=None, per_client=True)
        return {each.key: each.outcome for each in compare(timed(tmp_path, STEADY, settings), settings).clients}

    assert outcomes(3.0, 3.5)[PRODUCER] is Outcome.UNDETERMINED
    assert outcomes(3.0, 3.0) == {}, "nothing changes"


def test_charts_are_of_those_who_are_throttled(tmp_path: Path) -> None:
    """The replay throttles others for longer, whom their quota on thread time spares from the one on bytes."""
    users = [f"u{number}" for number in range(4)]
    rows = [(50 * n + place, user, 0, user) for n in range(400) for place, user in enumerate([*users, "zed"])]
    values: dict[Entity, dict[QuotaKey, Value]] = {Entity(user=user): {PRODUCER: 5000, TIME: 0.1} for user in users}
    values[Entity(user="zed")] = {PRODUCER: 15_000}
    settings = AuditSettings(QuotaHistory.of(QuotaSnapshot(values)), timelines=3)
    result = timed(tmp_path, sorted(rows), settings)

    verdicts = result.findings.column("verdict").to_pylist()
    assert verdicts == ["throttled"] * 5 + ["not throttled"] * 4
    named = zip(*(result.findings.column(name).to_pylist() for name in ("broker", "key", "sensor")), strict=True)
    throttled = set(list(named)[:5])
    assert len(result.timelines) == 3
    assert result.timelines.keys() <= throttled


def test_a_queue_that_drained_is_evidence(tmp_path: Path) -> None:
    """Once the queue is empty all that a client wanted is in the recording: then a higher limit has a prediction."""
    wanted = [(n * 50, "produce", 2000, 0, "a") for n in range(300)]
    later = [(40_000 + n * 400, "produce", 2000, 0, "a") for n in range(100)]
    prediction = predicted(tmp_path, throttled_by(30_000, [*wanted, *later]), PRODUCER, 60_000)

    assert prediction.recorded_under.held_back
    assert prediction.verdict == "not throttled"
    assert prediction.wanted_per_s.high is not None
    ended = predicted(tmp_path, throttled_by(30_000, wanted), PRODUCER, 60_000)
    assert ended.verdict == "undetermined"


@pytest.mark.parametrize("retries", [True, False])
def test_rejected_topics_are_sent_again_or_lost(retries: bool) -> None:
    """Two topics a second for a minute, where one a second is allowed: as the simulated client of the same kind."""
    requests = [Mutating(START_MS + 500 * n, (1,), True) for n in range(120)]
    met = run_mutations(requests, 1.0, 60_000, windows=QuotaWindows(), retries=retries)

    ran = simulate(
        Workload(
            300_000,
            (
                Client(
                    "m", "create-topics", user="alice", pace=2, size=1, stop_ms=60_000, latency_ms=1, round_trip_ms=0,
                    strict=True, retry=retries,
                ),
            ),
        ),
        quotas(QuotaKey.CONTROLLER_MUTATION_RATE, 1).latest,
        generation=Generation.N_PLUS_1_BY_LAST,
        using=kernel(Mode.PLAIN),
    )  # fmt: skip
    (counter,) = ran.counters
    assert met.throttle_ms == pytest.approx(counter.throttle_ms, rel=0.05)
    assert met.throttle_max_ms == pytest.approx(counter.throttle_max_ms, rel=0.15)
    assert met.delivered < 80
    assert (known(met.done_ms) > 100_000) == retries


def test_a_client_that_is_muted_sends_its_topics_later() -> None:
    """All are created at last, at the rate that is allowed."""
    requests = [Mutating(START_MS + 500 * n, (1,), False) for n in range(120)]
    met = run_mutations(requests, 1.0, 60_000, windows=QuotaWindows(), retries=False)

    assert met.done_ms == pytest.approx(108_000, rel=0.05)
    assert met.muted_ms == pytest.approx(49_000, rel=0.05)
    assert met.left == pytest.approx(50, abs=5)


@pytest.mark.timeout(300)
def test_a_rejection_without_a_wait_is_no_endless_loop() -> None:
    """A debt of a thousandth of a token is less than half a millisecond."""
    requests = [Mutating(START_MS, (10_001,), True), *(Mutating(START_MS + 100, (1,), True) for _ in range(3))]
    met = run_mutations(requests, 10_000.0, 1000, windows=QuotaWindows(1, 1), retries=True)

    assert met.done_ms is not None
    assert met.delivered == 10_004
