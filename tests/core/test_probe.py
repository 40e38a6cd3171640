"""Predictions from what a probe saw: a client of a broker that does what the model says is predicted exactly."""

import random
from collections.abc import Sequence

import pytest

from kquota.core.enforcement import Generation, QuotaWindows
from kquota.core.findings.probe import Agreement, Comparison, Exchange, Limits, Load, Probe, Throttling, compare
from tests.support.enforcement import FetchSensor, ProduceSensor

T0 = 1_700_000_000_000


def limits(limit: float | None) -> Limits:
    return Limits(limit, QuotaWindows(), Generation.N_PLUS_1_BY_LAST)


def load_of(exchanges: Sequence[Exchange], rate: float = 1e9) -> Load:
    """A load that goes on until the last request is sent; by default each request is due at once."""
    return Load(rate, 5_000, (exchanges[-1].sent_ms - exchanges[0].sent_ms) / 1000, 10**9)


@pytest.mark.parametrize("probe", [Probe.PRODUCE, Probe.FETCH])
def test_a_client_that_waits_out_its_throttles_is_predicted_to_the_ms(probe: Probe) -> None:
    """A fetch that was throttled is asked for again."""
    sensor = ProduceSensor(10_000) if probe is Probe.PRODUCE else FetchSensor(10_000)
    charge = sensor.produce if isinstance(sensor, ProduceSensor) else sensor.fetch
    now, exchanges = T0, []
    for _ in range(80):
        delay = max(charge(now, 5_000).throttle_ms, 0)
        size = 16 if delay and probe is Probe.FETCH else 5_000
        exchanges.append(Exchange(now - 1, now, size, delay))
        now += delay + 3

    result = compare(probe, exchanges, limits(10_000), load_of(exchanges))

    assert (result.observed.count > 10, result.observed.total_ms > 10_000) == (True, True)
    assert result.least.total_ms <= result.observed.total_ms <= result.most.total_ms
    assert result.most.total_ms - result.least.total_ms < 100
    assert result.charged == (80 * 5_000 if probe is Probe.PRODUCE else 270_000 + 26 * 16)


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
def test_a_slow_first_answer_is_in_the_range(part: float) -> None:
    """A broker's samples begin with its first charge, which is anywhere before the first answer."""
    sensor = ProduceSensor(500_000)
    now, exchanges = float(T0), []
    for index in range(120):
        took = 900.0 if index == 0 else 6.0
        charged = now + part * took
        delay = sensor.produce(int(charged), 45_000 if index else 4_000_000).throttle_ms
        exchanges.append(Exchange(now, now + took, 45_000 if index else 4_000_000, delay))
        now += took + delay + 40

    result = compare(Probe.PRODUCE, exchanges, limits(500_000), load_of(exchanges))

    assert result.agreement is Agreement.AS_PREDICTED
    assert result.least.total_ms <= result.observed.total_ms <= result.most.total_ms


@pytest.mark.parametrize(("limit", "size", "rate"), [(1_000_000, 10_000, 1.4e6), (200_000, 50_000, 1e6)])
@pytest.mark.parametrize("probe", [Probe.PRODUCE, Probe.FETCH])
def test_a_busy_machine_is_predicted(probe: Probe, limit: int, size: int, rate: float) -> None:
    """Requests are sent late, and answered late; a prediction is of what waits, and no longer than the run."""
    chance, sensor = random.Random(7), ProduceSensor(limit) if probe is Probe.PRODUCE else FetchSensor(limit)
    charge = sensor.produce if isinstance(sensor, ProduceSensor) else sensor.fetch
    now, spent, exchanges = float(T0), 0, list[Exchange]()
    while now < T0 + 30_000:
        sent = max(now, T0 + 1000 * spent / rate) + chance.expovariate(1)
        took = chance.lognormvariate(1, 1)
        delay = max(charge(int(sent + chance.random() * took), size).throttle_ms, 0)
        is_taken_back = probe is Probe.FETCH and delay > 0
        exchanges.append(Exchange(sent, sent + took, 16 if is_taken_back else size, delay))
        spent += 0 if is_taken_back else size
        now = sent + took + delay

    result = compare(probe, exchanges, limits(limit), load_of(exchanges, rate))

    assert result.agreement is Agreement.AS_PREDICTED
    assert 0 <= result.most.total_ms - result.least.total_ms < 1_500
    assert result.least.count <= result.most.count


@pytest.mark.parametrize("probe", [Probe.PRODUCE, Probe.FETCH])
def test_another_client_in_the_counter_is_no_prediction(probe: Probe) -> None:
    """What a client sends after its waits tells nothing of what it would meet alone."""
    now, spent, exchanges = float(T0), 0, list[Exchange]()
    while now < T0 + 40_000:
        sent = max(now, T0 + spent / 100)  # 100 kB/s
        delay = 900 if len(exchanges) % 2 else 0
        charge = 16 if delay and probe is Probe.FETCH else 10_000
        exchanges.append(Exchange(sent, sent + 3, charge, delay))
        spent += charge
        now = sent + 3 + delay

    result = compare(probe, exchanges, limits(200_000), load_of(exchanges, 100_000))

    assert (result.most.total_ms, result.agreement) == (0, Agreement.MORE)


def test_thread_time_is_a_range_that_leaves_out_the_time_while_muted() -> None:
    slow = [Exchange(T0 + 1000 * n, T0 + 1000 * n + 200, 0) for n in range(10)]
    result = compare(Probe.REQUEST, slow, limits(10), load_of(slow, rate=1))
    assert result.least.total_ms == 0
    assert result.most.longest_ms == 1000  # 2 s of 10 s are 20 %

    # The answer that came 100 ms after the throttle was over took 100 ms at most, whenever its request was sent.
    throttled = [*slow[:-1], Exchange(T0 + 9000, T0 + 9200, 0, throttle_ms=1500)]
    early, late = ([*throttled, Exchange(T0 + sent, T0 + 10_800, 0)] for sent in (9_300, 10_700))
    load = load_of(late, rate=1)
    assert compare(Probe.REQUEST, early, limits(18), load) == compare(Probe.REQUEST, late, limits(18), load)


@pytest.mark.parametrize(
    ("observed", "least", "most", "verdict"),
    [
        (0, 0, 0, Agreement.NOT_THROTTLED),
        (91, 0, 0, Agreement.NOT_THROTTLED),  # jitter of four connections
        (20_000, 19_700, 19_700, Agreement.AS_PREDICTED),
        (20_000, 0, 30_000, Agreement.AS_PREDICTED),
        (0, 0, 30_000, Agreement.NOT_THROTTLED),
        (20_000, 0, 0, Agreement.MORE),
        (20_000, 10_000, 12_000, Agreement.MORE),
        (0, 5_000, 5_000, Agreement.LESS),
        (10_000, 12_000, 15_000, Agreement.LESS),
        (16_100, 17_200, 57_100, Agreement.AS_PREDICTED),  # nothing had changed: the range is wide
    ],
)
def test_a_probe_ends_in_a_verdict(observed: int, least: int, most: int, verdict: Agreement) -> None:
    """Jitter is no throttling, and a prediction that came near is right."""
    run = [Throttling(total, min(total, 1), total) for total in (observed, least, most)]

    assert Comparison(300, 300, 30_000, *run).agreement is verdict
