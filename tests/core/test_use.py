"""The use of a counter: its limit is that of the clients that are charged to it, and nothing unknown is guessed."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota import DEFAULT, Entity, QuotaKey, QuotaSnapshot
from kquota.core.findings.use import Counter, Enforcers, Observed, State, Use, until_throttled, uses
from kquota.core.resolve.resolver import Level, Resolver, Sensor
from tests.core.strategies import snapshots

PRODUCE, FETCH, REQUEST = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE
MUTATIONS, CONNECTIONS = QuotaKey.CONTROLLER_MUTATION_RATE, QuotaKey.CONNECTION_CREATION_RATE
names = st.sampled_from(["a", "b", "c d", "x", "<default>"])


def use(observed: Observed, quotas: dict[Entity, dict[QuotaKey, float]], *others: Observed) -> Use:
    """The use of the first counter, seen together with others."""
    found = uses([observed, *others], QuotaSnapshot(quotas), source="a test")
    return next(each for each in found if each.counter == observed.counter)


@given(snapshots, names, names)
def test_the_limit_of_a_counter_is_the_limit_of_the_clients_that_are_charged_to_it(
    snapshot: QuotaSnapshot, user: str, client_id: str
) -> None:
    """Brokers derive it from the tags alone, and resolve clients by the eight levels: both agree."""
    for key in QuotaKey:
        if key is CONNECTIONS:
            continue
        resolver = Resolver.of(snapshot, key)
        client = resolver.resolve(user, client_id)
        tags = (user if client.sensor.user else "", client.sensor.client_id)
        counter = resolver.of_counter(*tags)

        assert (counter.limit, counter.level, counter.entity) == (client.limit, client.level, client.entity)
        assert counter.sensor == client.sensor


def test_an_inherited_default_limits_a_counter_that_no_entity_names() -> None:
    observed = Observed(Counter("1", PRODUCE, "alice", ""), 1000, 50.0, 0.0)
    found = use(observed, {Entity(user=DEFAULT): {PRODUCE: 100}})

    assert (found.limit, found.level, found.entity) == (100, Level.DEFAULT_USER, Entity(user=DEFAULT))
    assert (found.share, found.state) == (0.5, State.WITHIN)
    assert found.unknown == ("which clients are in it: the metrics name the counter only",)
    assert found.counter.subject == "user=alice"


def test_the_clients_of_a_shared_counter_come_from_finer_series() -> None:
    """Of the same broker, and only those that are charged to it: a pair with a quota of its own is not."""
    quotas: dict[Entity, dict[QuotaKey, float]] = {
        Entity(user="alice"): {PRODUCE: 100},
        Entity(user="alice", client_id="own"): {PRODUCE: 5, REQUEST: 10.0},
        Entity(user="alice", client_id=DEFAULT): {REQUEST: 10.0},
    }
    shared = Observed(Counter("1", PRODUCE, "alice", ""), 1000, 50.0, 0.0)
    pairs = [
        Observed(Counter(broker, REQUEST, "alice", client), 1000, 1.0, 0.0)
        for broker, client in (("1", "app"), ("1", "own"), ("2", "elsewhere"))
    ]

    found = use(shared, quotas, *pairs)

    assert (found.clients, found.unknown) == ((Sensor("alice", "app"),), ())


def test_a_counter_that_nobody_is_charged_to_any_more_is_named() -> None:
    observed = Observed(Counter("1", PRODUCE, "alice", "app"), 1000, 50.0, 0.0)
    found = use(observed, {Entity(user="alice"): {PRODUCE: 100}, Entity(client_id="x"): {PRODUCE: 1}})

    assert (found.state, found.limit) == (State.UNLIMITED, None)
    assert found.unknown == ("whether it is still in use: its clients are charged to alice: now",)


def test_connections_of_an_ip() -> None:
    observed = Observed(Counter("1", CONNECTIONS, "", "10.0.0.7"), 1000, 30.0)
    found = use(observed, {Entity(ip=DEFAULT): {CONNECTIONS: 20}})

    assert (found.limit, found.level, found.state) == (20, Level.DEFAULT_IP, State.THROTTLED)
    assert found.counter.subject == "ip=10.0.0.7"
    assert "for a listener, not for an ip" in found.unknown[0]


@pytest.mark.parametrize(
    ("rate", "throttle_ms", "state"),
    [
        (90.0, 0.0, State.WITHIN),
        (91.0, 0.0, State.NEAR),
        (120.0, 0.0, State.NEAR),
        (120.1, 0.0, State.THROTTLED),
        (90.0, 3.0, State.THROTTLED),
        (10.0, 3.0, State.WAS_THROTTLED),  # it is used too little to be throttled still
        (40.0, 1656.0, State.WAS_THROTTLED),
        (70.0, 1656.0, State.THROTTLED),
        (0.0, 2003.0, State.WAS_THROTTLED),
        (0.0, 30_000.0, State.THROTTLED),  # its connection may be muted still
        (None, 0.0, State.UNKNOWN),
        (None, None, State.UNKNOWN),
    ],
)
def test_states(rate: float | None, throttle_ms: float | None, state: State) -> None:
    """With Kafka's own windows: 10/11 of the limit can be throttled, 12/10 was."""
    observed = Observed(Counter("1", PRODUCE, "alice", ""), 1000, rate, throttle_ms)

    assert use(observed, {Entity(user="alice"): {PRODUCE: 100}}).state is state


def test_who_waits_longest_is_the_worst() -> None:
    """By shares, rows of 100 and 101 % changed places from look to look, whatever their clients waited."""
    observed = [
        Observed(Counter("1", PRODUCE, user, ""), 1000, rate, throttle_ms)
        for user, rate, throttle_ms in (("bob", 101, 21), ("alice", 100, 870), ("carol", 130, 21), ("dave", 99.9, None))
    ]
    quotas = QuotaSnapshot({Entity(user=each.counter.user): {PRODUCE: 100} for each in observed})

    assert [use.counter.user for use in uses(observed, quotas, source="")] == ["alice", "carol", "bob", "dave"]


# (seconds, share of the limit, mean throttle in s): what a broker of Kafka 4.4.0 told about three consumers.
SLOW = (
    (4, 0.99, 4.7), (6, 0.97, 6.4), (7, 0.0, 6.4), (10, 0.0, 6.4), (15, 0.0, 6.4), (17, 0.97, 7.3), (25, 0.93, 7.3),
    (27, 0.0, 7.9), (33, 0.0, 7.9), (36, 0.96, 8.1), (47, 0.9, 8.4), (48, 0.0, 8.4), (51, 0.0, 8.4), (67, 0.0, 8.7),
    (75, 0.0, 8.7), (77, 0.92, 8.8), (85, 0.91, 8.8), (87, 0.0, 9.9), (95, 0.0, 9.9), (96, 0.97, 9.9),
)  # fmt: skip
STOPPED = ((106, 0.92, 9.9), (108, 0.0, 9.9), (117, 0.0, 9.9), (127, 0.0, 9.9), (130, 0.0, 9.9), (144, 0.0, 9.9))
QUICK = (
    (3, 0.99, 2.1), (6, 1.01, 2.1), (7, 0.0, 1.9), (9, 0.96, 1.7), (18, 0.93, 1.8), (20, 0.2, 1.7), (22, 1.02, 1.6),
    (32, 0.19, 1.6), (33, 1.02, 1.6), (42, 1.01, 1.7), (44, 0.39, 1.7), (47, 0.99, 1.6),
)  # fmt: skip
CAUGHT_UP = ((1, 1.02, 0.7), (6, 1.06, 0.5), (10, 0.56, 0.5), (13, 0.03, 0.5), (20, 0.02, 0.5), (30, 0.02, 0.5))


def states(readings: Sequence[tuple[float, float, float]], *, watched: bool = True) -> dict[float, State]:
    """The state of a consumer at each reading: after all those before, or by this one alone."""
    counter = Counter("1", FETCH, "carol", "")
    seen = [Observed(counter, round(1000 * at), 100 * share, 1000 * delay) for at, share, delay in readings]
    quotas = QuotaSnapshot({Entity(user="carol"): {FETCH: 100}})
    return {
        at: uses([each], quotas, source="", earlier={counter: seen[:place] if watched else []})[0].state
        for place, ((at, _, _), each) in enumerate(zip(readings, seen, strict=True))
    }


@pytest.mark.parametrize("readings", [SLOW, QUICK, [each for each in SLOW if each[0] in (7, 33, 67, 95)]])
def test_a_consumer_that_is_held_back_is_throttled_while_its_rate_is_0(
    readings: Sequence[tuple[float, float, float]],
) -> None:
    """The broker takes back what it charged for a throttled fetch; scrapes may see the rate of 0 each time."""
    assert set(states(readings).values()) == {State.THROTTLED}


def test_a_consumer_that_stopped_was_throttled_once_a_wait_is_over() -> None:
    stopped = states((*SLOW, *STOPPED))
    caught_up = states(CAUGHT_UP)

    assert (stopped[117], stopped[127], stopped[144]) == (State.THROTTLED, State.WAS_THROTTLED, State.WAS_THROTTLED)
    assert (caught_up[13], caught_up[30]) == (State.THROTTLED, State.WAS_THROTTLED)


def test_one_look_goes_by_how_long_the_waits_are() -> None:
    """A consumer that waits for 8 s is seen at a rate of 0 half of the time, one that waits for 1 s hardly ever."""
    assert states(SLOW, watched=False)[33] is State.THROTTLED
    assert states(CAUGHT_UP, watched=False)[30] is State.WAS_THROTTLED


@pytest.mark.parametrize(
    ("tokens", "state"), [(-0.5, State.THROTTLED), (3.0, State.NEAR), (5.0, State.WITHIN), (50.0, State.WITHIN)]
)
def test_mutations_go_by_tokens(tokens: float, state: State) -> None:
    """A rate above the limit is a burst that the bucket pays for."""
    observed = Observed(Counter("1", MUTATIONS, "alice", ""), 1000, 20.0, 0.0, tokens)

    assert use(observed, {Entity(user="alice"): {MUTATIONS: 5.0}}).state is state


@pytest.mark.parametrize(
    ("rate", "trend", "seconds"),
    [
        (50.0, None, None),  # one reading: it stays as it is
        (50.0, -1.0, None),
        (50.0, 4.0, None),  # the clients send 90: below the limit
        (50.0, 10.0, 5.0),  # they send 150: the mean rises by 10 a second
        (101.0, None, 0.0),
        (None, None, None),
    ],
)
def test_time_until_throttled(rate: float | None, trend: float | None, seconds: float | None) -> None:
    observed = Observed(Counter("1", PRODUCE, "alice", ""), 1000, rate)

    assert until_throttled(observed, 100, trend, Enforcers()) == seconds


def test_the_throttled_come_first_then_the_nearest() -> None:
    quotas: dict[Entity, dict[QuotaKey, float]] = {Entity(user=DEFAULT): {PRODUCE: 100}}
    shares = {"a": (50.0, 0.0), "b": (90.0, 7.0), "c": (95.0, 0.0)}
    observed = [
        Observed(Counter("1", PRODUCE, user, ""), 1000, rate, throttle) for user, (rate, throttle) in shares.items()
    ]

    found = uses(observed, QuotaSnapshot(quotas), source="a test")

    assert [each.counter.user for each in found] == ["b", "c", "a"]


def test_the_trend_is_between_two_readings() -> None:
    counter = Counter("1", PRODUCE, "alice", "")
    before = {counter: [Observed(counter, 1000, 40.0)]}
    (found,) = uses(
        [Observed(counter, 3000, 60.0)],
        QuotaSnapshot({Entity(user="alice"): {PRODUCE: 100}}),
        source="a test",
        earlier=before,
    )

    (later,) = uses(
        [Observed(counter, 12_000, 60.0)],
        QuotaSnapshot({Entity(user="alice"): {PRODUCE: 100}}),
        source="a test",
        earlier={counter: [Observed(counter, 1000, 5.0)]},
    )

    assert (found.trend, found.until_throttled_s) == (10.0, 4.0)
    # After a whole window, 60 is what the clients send.
    assert (later.trend, later.until_throttled_s) == (5.0, None)
    assert found.age_s(4500) == 1.5
