"""The engine against a second simulator and the replay, and what holds for every workload."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota import DEFAULT, Entity, QuotaKey, QuotaSnapshot
from kquota.core.enforcement import Generation, Kind, Mode, QuotaWindows, kernel
from kquota.core.resolve.resolver import Level, Sensor
from kquota.core.simulation.engine import simulate
from kquota.core.simulation.result import ClientResult, CounterResult, Simulation
from kquota.core.simulation.workload import ORIGIN_MS, Brokers, Burst, Change, Client, Workload, enforced_workload, plan
from tests.core.enforcement import strategies as given_
from tests.core.simulation.oracle import Came, by_client
from tests.support.enforcement import FetchSensor, ProduceSensor, RequestSensor, replay_counter
from tests.support.scheduling import examples

PLAIN = kernel(Mode.PLAIN)
KIND = Generation.N_PLUS_1_BY_LAST
LIMITS = {
    QuotaKey.PRODUCER_BYTE_RATE: st.sampled_from([500, 2_000, 20_000]),
    QuotaKey.CONSUMER_BYTE_RATE: st.sampled_from([500, 2_000, 20_000]),
    QuotaKey.REQUEST_PERCENTAGE: st.sampled_from([0.05, 0.5, 5.0]),
    QuotaKey.CONTROLLER_MUTATION_RATE: st.sampled_from([0.5, 5.0]),
}
entities = st.sampled_from(
    [
        Entity(user="alice"),
        Entity(user=DEFAULT),
        Entity(client_id="app"),
        Entity(client_id=DEFAULT),
        Entity(user="bob", client_id="app"),
        Entity(user=DEFAULT, client_id=DEFAULT),
    ]
)
values = st.fixed_dictionaries({}, optional=LIMITS)
quotas = st.dictionaries(entities, values, min_size=1, max_size=4).map(QuotaSnapshot)
changes = st.builds(
    Change,
    st.integers(0, 20_000),
    entities,
    st.fixed_dictionaries({}, optional={key: st.one_of(st.none(), limit) for key, limit in LIMITS.items()}),
)


@st.composite
def clients(draw: st.DrawFn, closed: bool | None = None) -> Client:
    """A client of any kind, with a pace."""
    api = draw(st.sampled_from(["produce", "fetch", "metadata", "create-topics"]))
    start = draw(st.sampled_from([0, 7, 3_000]))
    return Client(
        "",
        api,
        draw(st.sampled_from(["alice", "bob", "carol"])),
        draw(st.sampled_from(["", "app", "web"])),
        connections=draw(st.integers(1, 3)),
        closed=draw(st.booleans()) if closed is None else closed,
        pace=draw(st.sampled_from([0.25, 1.0, 4.0, 20.0])),
        size=draw(st.integers(1, 3_000)) if api in ("produce", "fetch") else 0,
        requests=draw(st.sampled_from([None, None, 1, 7])),
        start_ms=start,
        stop_ms=draw(st.sampled_from([None, start + 9_000])),
        think_ms=draw(st.sampled_from([0, 0, 30])),
        in_flight=draw(st.sampled_from([1, 2, 5])),
        latency_ms=draw(st.integers(1, 20)),
        round_trip_ms=draw(st.sampled_from([0, 1, 4, 5, 150, 151])),
        honours=draw(st.booleans()),
        acks=draw(st.sampled_from([-1, 0])),
        nanos=draw(st.sampled_from([0, 100_000, 3_000_000])),
        network_nanos=draw(st.sampled_from([0, 50_000])),
        max_bytes=draw(st.sampled_from([1_000, 50 * 2**20])),
        max_wait_ms=draw(st.sampled_from([100, 500])),
        backlog=draw(st.sampled_from([0, 20_001])) if api == "fetch" and closed is not False else 0,
        topics=draw(st.integers(1, 4)),
        partitions=draw(st.integers(1, 30)),
        strict=draw(st.booleans()),
        retry=draw(st.booleans()),
        api_timeout_ms=draw(st.sampled_from([None, 60_000, 4_000, 0])),
    )


@st.composite
def workloads(draw: st.DrawFn, closed: bool | None = None) -> Workload:
    """Some clients on one broker."""
    drawn = draw(st.lists(clients(closed), min_size=1, max_size=4))
    named = tuple(
        replace(client, name=f"c{number}", backlog=client.backlog if client.closed else 0)
        for number, client in enumerate(drawn)
    )
    brokers = Brokers(windows=draw(given_.windows), controller_windows=QuotaWindows(draw(st.integers(1, 11)), 1))
    timed = sorted(draw(st.lists(changes, max_size=3)), key=lambda change: change.at_ms)
    return Workload(draw(st.sampled_from([1, 12_000, 25_000])), named, brokers, tuple(timed), scrape_ms=0)


def came(client: ClientResult) -> Came:
    """The part of a result that the oracle knows."""
    return Came(
        client.requests,
        client.offered,
        client.delivered,
        client.rejected,
        client.waiting,
        client.rejections,
        client.throttled,
        client.throttle_ms,
    )


@given(workloads(), quotas, given_.generations)
def test_equals_a_second_simulator(workload: Workload, snapshot: QuotaSnapshot, generation: Generation) -> None:
    """Open and closed loop, all kinds of clients, shared counters, quotas that change on the way."""
    result = simulate(workload, snapshot, generation=generation, using=PLAIN)

    assert {client.name: came(client) for client in result.clients} == by_client(workload, snapshot, generation)


@settings(deadline=None, max_examples=examples(50))
@given(workloads(), quotas, given_.generations)
def test_compiled_is_the_same(workload: Workload, snapshot: QuotaSnapshot, generation: Generation) -> None:
    """Both kernels give equal results, to the last double; ranges included."""
    workload = replace(workload, scrape_ms=None)

    plain, compiled = (
        simulate(workload, snapshot, generation=generation, using=kernel(mode)) for mode in (Mode.PLAIN, Mode.COMPILED)
    )

    assert plain == compiled


@st.composite
def unpaced(draw: st.DrawFn) -> Client:
    """A client that sends, or fetches, as fast as it can."""
    client = draw(clients(closed=True))
    return replace(client, pace=None, requests=None, backlog=0, size=client.size * 100, latency_ms=50)


@settings(deadline=None)
@given(workloads(), st.lists(unpaced(), max_size=2), quotas, given_.generations)
def test_nothing_is_lost(
    workload: Workload, fast: list[Client], snapshot: QuotaSnapshot, generation: Generation
) -> None:
    """What was offered was delivered, or rejected, or still waits."""
    named = (replace(client, name=f"f{number}") for number, client in enumerate(fast))
    workload = replace(workload, clients=(*workload.clients, *named))

    for client in simulate(workload, snapshot, generation=generation, using=PLAIN).clients:
        assert client.offered == client.delivered + client.rejected + client.waiting


@settings(deadline=None)
@given(
    st.lists(clients(closed=False), min_size=1, max_size=4), st.sampled_from([500, 2_000, 20_000]), given_.generations
)
def test_an_open_loop_is_the_replay_of_its_own_events(drawn: list[Client], limit: int, generation: Generation) -> None:
    """The counter that producers share says what `replay_counter` says of their arrivals."""
    producers = tuple(
        replace(
            client, name=f"c{number}", api="produce", user="alice", size=client.size or 700, nanos=0, network_nanos=0
        )
        for number, client in enumerate(drawn)
    )
    workload = Workload(25_000, producers, scrape_ms=0)
    events = sorted(
        (ORIGIN_MS + client.start_ms + int(1000 * k / client.pace), number, client.size)
        for number, client in enumerate(producers)
        if client.pace is not None
        for k in range(math.ceil(plan(client, workload.stop_of(client))[-1].after - 1e-9))
    )

    result = simulate(
        workload,
        QuotaSnapshot({Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: limit}}),
        generation=generation,
        using=PLAIN,
    )

    replayed = replay_counter(
        Kind.PRODUCE,
        [time for time, _, _ in events],
        [size for _, _, size in events],
        limit,
        windows=QuotaWindows(),
        generation=generation,
        using=PLAIN,
    )
    (counter,) = result.counters
    assert (counter.events, counter.violated, counter.throttled, counter.throttle_ms, counter.throttle_max_ms) == (
        len(events),
        replayed.violated,
        replayed.throttled,
        replayed.total_ms,
        replayed.max_ms,
    )
    assert (counter.peak, counter.peak_ms) == (replayed.peak_rate, replayed.peak_ms - ORIGIN_MS)


@settings(deadline=None, max_examples=examples(50))
@given(
    st.sampled_from([2_000, 50_000]),
    st.integers(1, 4),
    st.sampled_from([10, 900, 2_000]),
    st.sampled_from([1, 5]),
    given_.generations,
)
def test_a_closed_loop_gets_no_more_than_its_limit(
    limit: int, connections: int, size: int, in_flight: int, generation: Generation
) -> None:
    """Producers that send as fast as they may: the limit, and once the burst that N windows hold."""
    minutes = 5
    pushy = Client("pushy", "produce", "alice", connections=connections, size=size, in_flight=in_flight, latency_ms=20)
    result = simulate(
        Workload(minutes * 60_000, (pushy,), scrape_ms=0),
        QuotaSnapshot({Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: limit}}),
        generation=generation,
        using=kernel(),  # these are many requests, and both kernels are the same
    )

    (client,) = result.clients
    # Each window of 10 s and more holds its limit, and what every connection may send before it is muted.
    assert client.delivered <= limit * (minutes * 60 + 12) + connections * size * (minutes * 6 + 1)
    offered = connections * size * 1000 / 21
    assert client.delivered >= 0.9 * min(limit, offered) * minutes * 60


def run(*clients: Client, minutes: float = 1, quota: QuotaSnapshot | None = None, **more: object) -> Simulation:
    """A simulation of some clients under alice's 1000 B/s."""
    snapshot = quota or QuotaSnapshot({Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: 1000}})
    workload = Workload(int(minutes * 60_000), clients, **more)  # type: ignore[arg-type]
    return simulate(workload, snapshot, generation=KIND, using=PLAIN)


@pytest.mark.parametrize("generation", Generation)
@pytest.mark.parametrize("gap_ms", [3_599_000, 3_600_000, 3_600_001, 3_700_000])
@pytest.mark.parametrize("api", ["produce", "fetch", "metadata"])
def test_a_sensor_that_was_idle_for_an_hour_starts_anew(generation: Generation, gap_ms: int, api: str) -> None:
    """Two requests far apart, in windows that hold both: the simulator, the replay and the sensors say the same."""
    windows = QuotaWindows(3, 3600)
    size, limit, nanos, percent = 40_000_000, 6_000, 60 * 10**9, 0.5
    client = Client("p", api, "alice", pace=1000 / gap_ms, size=size, nanos=nanos, closed=False, honours=False)
    if api == "metadata":
        client = replace(client, size=0)
    key = {"produce": QuotaKey.PRODUCER_BYTE_RATE, "fetch": QuotaKey.CONSUMER_BYTE_RATE}.get(api)
    key = key or QuotaKey.REQUEST_PERCENTAGE
    quota = QuotaSnapshot({Entity(user="alice"): {key: percent if api == "metadata" else limit}})
    workload = Workload(gap_ms + 1000, (client,), Brokers(windows=windows), scrape_ms=0)

    (counter,) = simulate(workload, quota, generation=generation, using=PLAIN).counters

    times = [ORIGIN_MS, ORIGIN_MS + gap_ms]
    made = {"windows": windows, "generation": generation}
    kind = {"produce": Kind.PRODUCE, "fetch": Kind.FETCH}.get(api, Kind.REQUEST)
    sensor = {
        Kind.PRODUCE: ProduceSensor(limit, **made),  # type: ignore[arg-type]
        Kind.FETCH: FetchSensor(limit, **made),  # type: ignore[arg-type]
        Kind.REQUEST: RequestSensor(percent, **made),  # type: ignore[arg-type]
    }[kind]
    value = nanos if kind is Kind.REQUEST else size
    replayed = replay_counter(kind, times, [value, value], sensor.limit, using=PLAIN, **made)  # type: ignore[arg-type]
    charge = getattr(sensor, kind.name.lower())
    delays = [charge(time, value).throttle_ms for time in times]
    assert (counter.events, counter.throttle_ms, counter.peak) == (2, replayed.total_ms, replayed.peak_rate)
    assert counter.throttle_ms == sum(max(delay, 0) for delay in delays)
    if api == "produce":
        assert (counter.throttle_ms == 0) == (gap_ms > 3_600_000)


def test_what_is_delivered_late_is_not_delivered_fast() -> None:
    """Nine times the limit for 80 s is delivered at the limit, and before that the burst that the windows hold."""
    quota = QuotaSnapshot({Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: 1_000_000}})
    loud = Client("p", "produce", "alice", pace=90, size=100_000, stop_ms=80_000)
    result = run(loud, minutes=6, quota=quota, brokers=Brokers(names=("x", "y", "z")))

    assert sum(client.delivered for client in result.clients) == sum(client.offered for client in result.clients)
    for client in result.clients:
        assert client.offered_rate == pytest.approx(3_000_000, rel=0.01)
        assert client.delivered_rate < 1_100_000
        assert client.delivering_ms > 200_000


@pytest.mark.parametrize("api", ["produce", "fetch", "metadata", "create-topics"])
@pytest.mark.parametrize("brokers", [("x",), ("x", "y", "z")])
def test_a_job_without_a_pace_runs_once(api: str, brokers: tuple[str, ...]) -> None:
    """Its requests are there at the start, are dealt to the brokers, and go out as the answers allow."""
    job = Client("j", api, "alice", requests=4, size=1_000, topics=3, partitions=5, start_ms=2_000)
    result = run(job, brokers=Brokers(names=brokers))

    assert sum(client.offered for client in result.clients) == 4 * job.units
    assert sum(client.delivered for client in result.clients) == 4 * job.units
    assert sum(client.waiting for client in result.clients) == 0
    if api != "fetch":  # a consumer goes on to ask
        assert sum(client.requests for client in result.clients) == 4


@pytest.mark.parametrize("pace", [None, 10.0])
def test_the_rates_of_a_job_are_over_the_time_until_it_was_done(pace: float | None) -> None:
    """However long the simulation goes on; a job that was not done at the end has the whole of it."""
    quota = QuotaSnapshot({Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: 1_000_000}})
    job = Client("j", "produce", "alice", requests=1000, size=100_000, pace=pace)
    short, long = (run(job, minutes=minutes, quota=quota).clients for minutes in (3, 30))

    assert short == long
    (client,) = long
    assert client.is_done
    assert client.delivered_until_ms == client.active_ms == client.delivering_ms
    assert 85_000 < client.delivering_ms < 100_000
    assert client.delivered_rate == client.offered_rate == 100_000_000 * 1000 / client.delivering_ms
    (half,) = run(job, minutes=1, quota=quota).clients
    assert (half.is_done, half.active_ms, half.delivering_ms >= 60_000) == (False, 60_000, True)


def test_the_metrics_at_the_end() -> None:
    """Muted channels, exempt thread time and the rate of mutations, under the names that Kafka has for them."""
    quota = QuotaSnapshot(
        {
            Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: 1000, QuotaKey.REQUEST_PERCENTAGE: 50.0},
            Entity(user="bob"): {QuotaKey.CONTROLLER_MUTATION_RATE: 100.0},
        }
    )
    loud = Client("loud", "produce", "alice", connections=3, pace=30, size=1000)
    silent = Client("silent", "produce", "carol", pace=10, size=1, acks=0, nanos=10_000_000)
    charged = Client("charged", "produce", "alice", "c", pace=10, size=1, nanos=1)
    replica = Client("replica", "stop-replica", "alice", pace=10, nanos=1_000_000, network_nanos=1_000_000)
    topics = Client("topics", "create-topics", "bob", pace=1, partitions=6)
    workload, _ = enforced_workload(Workload(60_000, (loud, silent, charged, replica, topics)), (3, 7, 0))
    result = simulate(workload, quota, generation=KIND, using=PLAIN)

    assert [(queue.mbean, queue.size) for queue in result.queues] == [("kafka.server:type=Produce", 4)]
    assert result.exempt_ns == {"broker-0": 600 * 10_000_000 + 600 * 2_000_000}
    by_key = {counter.key: counter for counter in result.counters}
    assert by_key[QuotaKey.CONTROLLER_MUTATION_RATE].mutation_rate == pytest.approx(6, rel=0.05)
    assert by_key[QuotaKey.REQUEST_PERCENTAGE].total < 0.01


@pytest.mark.parametrize(
    ("key", "sensor", "name"),
    [
        (QuotaKey.PRODUCER_BYTE_RATE, Sensor("a%2Ab", ""), "kafka.server:type=Produce,user=a%2Ab"),
        (QuotaKey.CONSUMER_BYTE_RATE, Sensor("", "x*y,z"), r'kafka.server:type=Fetch,client-id="x\*y,z"'),
        (
            QuotaKey.REQUEST_PERCENTAGE,
            Sensor("u", "a b\t-._%9"),
            "kafka.server:type=Request,user=u,client-id=a b\t-._%9",
        ),
        (QuotaKey.PRODUCER_BYTE_RATE, Sensor("", "ü"), 'kafka.server:type=Produce,client-id="ü"'),
        (QuotaKey.PRODUCER_BYTE_RATE, Sensor("", 'a"b\\c?d\n'), r'kafka.server:type=Produce,client-id="a\"b\\c\?d\n"'),
        (
            QuotaKey.CONNECTION_CREATION_RATE,
            Sensor("", "10.0.0.1"),
            "kafka.server:type=socket-server-metrics,ip=10.0.0.1",
        ),
        (
            QuotaKey.CONNECTION_CREATION_RATE,
            Sensor("", "2001:db8::1"),
            'kafka.server:type=socket-server-metrics,ip="2001:db8:0:0:0:0:0:1"',
        ),
    ],
)
def test_the_name_of_an_mbean(key: QuotaKey, sensor: Sensor, name: str) -> None:
    """As `JmxReporter` makes it: `Sanitizer.jmxSanitize` was asked in Java."""
    assert counter_named(key, sensor).mbean == name


def counter_named(key: QuotaKey, sensor: Sensor) -> CounterResult:
    return CounterResult(
        "b", key, sensor, Entity(user="u"), Level.USER, (), 0, 0, 0, 0, 0, None, None, None, True, 0.0, 0.0, None, (),
        0, 0.0, (0, 0),
    )  # fmt: skip


def test_who_suffers_from_whom() -> None:
    """A quiet client of the same user pays for the loud one; one of another user does not."""
    result = run(
        Client("loud", "produce", "alice", "a", pace=10, size=1000),
        Client("quiet", "produce", "alice", "b", pace=1, size=10),
        Client("other", "produce", "bob", "b", pace=1, size=10),
    )

    loud, quiet, other = result.clients
    assert quiet.throttle_ms > 1000
    assert other.throttle_ms == 0
    (counter,) = result.counters
    assert [share.client for share in counter.clients] == ["loud", "quiet"]
    assert counter.throttle_ms == loud.throttle_ms + quiet.throttle_ms
    assert counter.total == loud.delivered + quiet.delivered


def test_recovery_follows_the_overload() -> None:
    """Twenty seconds at three times the limit: what waits is sent at the limit, and then nobody is throttled."""
    result = run(Client("burst", "produce", "alice", pace=10, size=50, bursts=(Burst(60_000, 20_000, 6.0),)), minutes=5)

    (counter,) = result.counters
    assert counter.first_throttled_ms is not None
    assert 60_000 < counter.first_throttled_ms < 80_000
    assert counter.recovered
    assert counter.recovery_ms is not None
    assert 10_000 < counter.recovery_ms < 90_000
    assert counter.throttled_until_ms == 80_000 + counter.recovery_ms


def test_exempt_thread_time_is_no_load_of_a_request_quota() -> None:
    """What is not charged does not count as offered: an overload is over when those who caused it are."""
    quota = QuotaSnapshot({Entity(user="alice"): {QuotaKey.REQUEST_PERCENTAGE: 20.0}})
    busy = Client("busy", "metadata", "alice", pace=100, nanos=3_000_000, stop_ms=20_000)
    silent = Client("silent", "produce", "alice", pace=100, size=1, acks=0, nanos=5_000_000)

    (alone,) = run(busy, quota=quota, scrape_ms=0).counters
    (beside,) = run(busy, silent, quota=quota, scrape_ms=0).counters

    assert alone.throttled > 0
    assert beside.timeline == alone.timeline
    assert (beside.recovery_ms, beside.recovered) == (alone.recovery_ms, True)


def test_a_raised_quota_lets_go() -> None:
    """A change in mid-run holds from the next request on."""
    raised = Change(30_000, Entity(user="alice"), {QuotaKey.PRODUCER_BYTE_RATE: 1_000_000})
    result = run(Client("p", "produce", "alice", pace=10, size=500), changes=(raised,))

    (counter,) = result.counters
    assert counter.limits == ((0, 1000), (30_000, 1_000_000))
    assert counter.throttled_until_ms is not None
    assert counter.throttled_until_ms < 35_000
    assert result.clients[0].waiting == 0


def test_brokers_have_counters_of_their_own() -> None:
    """A quota holds per broker: three brokers let three times as much through, the controller only once."""
    quota = QuotaSnapshot(
        {Entity(user=DEFAULT): {QuotaKey.PRODUCER_BYTE_RATE: 1000, QuotaKey.CONTROLLER_MUTATION_RATE: 1.0}}
    )
    result = run(
        Client("p", "produce", "alice", pace=5.4, size=500),
        Client("t", "create-topics", "alice", pace=1, topics=1, partitions=10),
        brokers=Brokers(names=("x", "y", "z")),
        quota=quota,
    )

    assert all(client.throttle_ms == 0 for client in result.clients if client.name == "p")
    assert [client.broker for client in result.clients] == ["x", "y", "z", "x"]
    assert {counter.broker for counter in result.counters if counter.throttled} == {"controller"}


def test_readings_of_the_metrics_give_ranges() -> None:
    """After a silence of 60 s, 5400 B at 500 B/s: 800 ms, unless somebody looked meanwhile."""
    quota = QuotaSnapshot({Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: 500}})
    silent = Client("p", "produce", "alice", pace=1 / 60, size=5400)

    unknown = run(silent, minutes=1.5, quota=quota).clients[0]
    never = run(silent, minutes=1.5, quota=quota, scrape_ms=0).clients[0]

    assert never.throttle_range_ms == (never.throttle_ms, never.throttle_ms)
    assert unknown.throttle_ms == never.throttle_ms
    assert unknown.throttle_range_ms[0] < unknown.throttle_range_ms[1]
    shares: list[float] = []
    simulate(Workload(90_000, (silent,)), quota, generation=KIND, using=PLAIN, progress=shares.append)
    assert (shares[0], shares[-1], shares) == (0.25, 1.0, sorted(shares)), "each of the four runs is a part"


def test_connections_are_rejected_and_tried_again() -> None:
    """A storm of an ip above its limit: everything gets in at last, after many rejections."""
    quota = QuotaSnapshot({Entity(ip=DEFAULT): {QuotaKey.CONNECTION_CREATION_RATE: 5}})
    storm = Client("storm", "connect", ip="10.0.0.1", pace=20, start_ms=10_000, stop_ms=20_000)
    calm = Client("calm", "connect", ip="10.0.0.2", pace=1)

    result = run(storm, calm, quota=quota, minutes=3)
    given_up = run(replace(storm, retry=False), quota=quota, minutes=3)

    (tried, quiet), (left,) = result.clients, given_up.clients
    assert (tried.offered, tried.delivered, tried.waiting) == (200, 200, 0)
    assert tried.rejections > 200
    assert quiet.delivered == 180
    assert left.offered == left.delivered + left.rejected == 200
    assert left.rejected == left.rejections > 0
    assert result.counters[0].sensor.client_id == "10.0.0.1"
    assert result.counters[0].mbean == "kafka.server:type=socket-server-metrics,ip=10.0.0.1"


def test_a_removed_quota_of_an_ip_keeps_what_it_did() -> None:
    """Its counter and what was rejected stay, under its name, or under the default that takes over."""
    ip, default = Entity(ip="10.0.0.1"), Entity(ip=DEFAULT)
    key = QuotaKey.CONNECTION_CREATION_RATE
    storm = Client("storm", "connect", ip="10.0.0.1", pace=20, retry=False)
    removed = Change(30_000, ip, {key: None})

    (counter,) = run(storm, quota=QuotaSnapshot({ip: {key: 5}}), changes=(removed,)).counters
    (other,) = run(storm, quota=QuotaSnapshot({ip: {key: 5}, default: {key: 100}}), changes=(removed,)).counters

    assert (counter.entity, counter.level) == (ip, Level.IP)
    assert [limit for _, limit in counter.limits] == [5, None]
    assert counter.violated > 300
    assert (other.entity, other.level) == (default, Level.DEFAULT_IP)
    assert [limit for _, limit in other.limits] == [5, 100]
    assert other.violated == counter.violated


def test_connections_to_some_brokers_are_all_opened() -> None:
    """One a second for a minute, to the last of three brokers."""
    result = run(Client("c", "connect", pace=1, brokers=("z",)), brokers=Brokers(names=("x", "y", "z")))

    assert [(client.broker, client.delivered) for client in result.clients] == [("z", 60)]


def test_a_quota_holds_for_an_ip_however_it_is_spelled() -> None:
    """As a broker does, which looks the address up; a change holds from its own time on."""
    key, ip = QuotaKey.CONNECTION_CREATION_RATE, Entity(ip="2001:db8:0::1")
    storm = Client("storm", "connect", ip="2001:db8::1", pace=20)
    lifted = Change(30_500, ip, {key: 100})

    (counter,) = run(storm, quota=QuotaSnapshot({ip: {key: 5}}), changes=(lifted,)).counters

    assert counter.entity == ip
    assert counter.violated > 100
    assert counter.limits == ((0, 5), (30_500, 100))


def test_an_acceptor_makes_connections_wait() -> None:
    """The rate of a broker delays all that come, and rejects nobody."""
    busy = Client("busy", "connect", pace=10, stop_ms=30_000)

    result = run(busy, minutes=2, brokers=Brokers(connection_rate=4))

    (client,), (acceptor,) = result.clients, result.acceptors
    assert (client.delivered, client.rejections) == (300, 0)
    assert acceptor.waited > 100
    assert 0 < acceptor.wait_max_ms <= 1000
    assert client.throttle_ms == acceptor.wait_ms
