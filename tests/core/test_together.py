"""Counters of one name on several brokers as one finding."""

from dataclasses import replace

from kquota.core.findings.finding import Basis, Client, Finding, Logged
from kquota.core.findings.prediction import Interval, Prediction
from kquota.core.findings.together import over_brokers
from kquota.core.findings.verdicts import Verdict
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.resolve.resolver import Level

PREDICTED = Prediction(
    "paced",
    "requests come at their times",
    "throttled",
    throttle_time_max_ms=Interval(90, 100, 120),
    muted_share=Interval(0.4, 0.5, 0.6),
    delivered_per_s=Interval(900, 1000, 1100),
    left_units=Interval(0, 10, None),
)
WORST = Finding(
    broker="kafka-1",
    key=QuotaKey.PRODUCER_BYTE_RATE,
    sensor="alice:",
    entity=Entity(user="alice"),
    level=Level.USER,
    limit=1000.0,
    limit_changes=0,
    verdict=Verdict.THROTTLED,
    reason=None,
    basis=Basis.REQUESTS,
    events=100,
    throttled_events=50,
    throttle_time_ms=5000,
    throttle_time_max_ms=100,
    peak_rate=2000.0,
    peak_rate_max=2000.0,
    first_throttled_ms=1000,
    last_throttled_ms=9000,
    logged=Logged(7, 70, 12),
    estimated_events=0,
    rebuilt_events=0,
    rebuilt_share=None,
    client_count=1,
    clients=(Client("alice", "app", 100, 1),),
    prediction=PREDICTED,
)
CALM = replace(
    WORST,
    broker="kafka-0",
    verdict=Verdict.NOT_THROTTLED,
    throttled_events=0,
    throttle_time_ms=0,
    throttle_time_max_ms=0,
    peak_rate=500.0,
    first_throttled_ms=None,
    last_throttled_ms=None,
    logged=Logged(0, 0, 0),
    clients=(Client("alice", "app", 100, 1), Client("alice", "other", 1, 1)),
    prediction=PREDICTED.not_throttled(),
)


def test_what_is_delivered_adds_up_and_the_worst_wait_counts() -> None:
    """The limit and the peak are those of one broker: each enforces by itself."""
    (whole,) = over_brokers([WORST, CALM])
    assert whole.broker == "kafka-1 and 1 more"
    assert (whole.verdict, whole.limit, whole.peak_rate) == (Verdict.THROTTLED, 1000.0, 2000.0)
    assert (whole.events, whole.throttled_events, whole.throttle_time_max_ms) == (200, 50, 100)
    assert (whole.first_throttled_ms, whole.last_throttled_ms, whole.client_count) == (1000, 9000, 2)
    assert whole.logged == Logged(7, 70, 12)
    assert whole.prediction is not None
    assert whole.prediction.delivered_per_s == Interval(1800, 2000, 2200)
    assert whole.prediction.left_units == Interval(0, 20, None)
    assert whole.prediction.muted_share == Interval(0.4, 0.5, 0.6)
    assert whole.prediction.throttle_time_max_ms == Interval(90, 100, 120)


def test_what_one_broker_does_not_know_is_not_known_of_all() -> None:
    """Bounds from below stay."""
    open_ended = PREDICTED.undetermined("held back")
    unsure = replace(CALM, throttled_events=None, logged=None, prediction=open_ended)
    (whole,) = over_brokers([WORST, unsure])
    assert (whole.throttled_events, whole.logged) == (None, None)
    assert whole.prediction is not None
    assert whole.prediction.delivered_per_s == Interval(1800, None, None)
    assert whole.prediction.throttle_time_max_ms == Interval(90, None, None)


def test_others_stay_as_they_are() -> None:
    """Another counter, and one that a single broker has."""
    other = replace(CALM, sensor="bob:")
    assert over_brokers([WORST, other]) == [WORST, other]
    assert [found.sensor for found in over_brokers([other, WORST, CALM])] == ["bob:", "alice:"]
