"""A broker in ZooKeeper mode lives well with what kquota writes straight into its ZooKeeper."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import Producer, ThrottleEvent
from confluent_kafka.admin import AdminClient, NewTopic

from kquota import Alteration, Entity, InvalidRequest, KafkaSecurity, QuotaKey, Rejected, Scram, Unauthorized
from kquota.backends import znode
from kquota.backends.kafka import KafkaBackend
from kquota.backends.zookeeper import ZooKeeperBackend
from tests.backends.contract import AWKWARD_NAMES, CONSUMER, KINDS, PRODUCER, REQUEST, U1, rate
from tests.backends.neighbours import ZooKeeperNeighbour
from tests.brokers.kafka import password_of
from tests.brokers.zookeeper_mode import USERS, ZooKeeperModeBroker
from tests.support.processes import ran
from tests.support.sandbox import Sandbox, kazoo
from tests.support.waiting import until

TOPIC = "load"
PAYLOAD_BYTES = 10_000
PATIENCE_S = 180
QUOTA = 20_000
"""bytes/s; a window of 11 s lets the first 220 kB through."""


class Load:
    """A real producer that says how long it was throttled; it sends at most half a megabyte a second."""

    def __init__(self, settings: Mapping[str, Any], client_id: str) -> None:
        self._throttled: list[float] = []
        self._seen: list[float] = []
        # Quiet: the broker is started again while producers of other tests may still be there.
        more = {"client.id": client_id, "linger.ms": 0, "throttle_cb": self._on_throttle, "log_level": 0}
        self._producer = Producer({**settings, **more})

    def _on_throttle(self, event: ThrottleEvent) -> None:
        self._throttled.append(event.throttle_time)

    def throttled(self, count: int = 1) -> float:
        """Sends so many payloads and returns for how long the broker throttled them at most, in s."""
        self._throttled.clear()
        for _ in range(count):
            self._producer.produce(TOPIC, b"x" * PAYLOAD_BYTES, on_delivery=self._on_delivery)
            self._deliver()
        self._producer.poll(0)
        self._seen.append(max(self._throttled, default=0.0))
        return self._seen[-1]

    def _on_delivery(self, error: object, _message: object) -> None:
        assert error is None, error

    def _deliver(self) -> None:
        """Waits for the delivery: a broker that was started a moment ago, on a busy machine, leads no topic yet."""
        deadline = time.monotonic() + PATIENCE_S
        while self._producer.flush(5):
            assert time.monotonic() < deadline, "nothing is delivered"

    def until(self, wanted: Callable[[float], bool], count: int = 1) -> bool:
        """Sends `count` payloads at a time until they were throttled as wanted; False when that does not come in time.

        A broker under load takes a while to hear of a change.
        """
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if wanted(self.throttled(count)):
                return True
            time.sleep(0.02)
        print(f"{len(self._seen)} times, throttled by (s): {self._seen[-20:]}")
        return False


@pytest.fixture
def broker(zookeeper_mode_broker: ZooKeeperModeBroker) -> ZooKeeperModeBroker:
    return zookeeper_mode_broker


@pytest.fixture
def chroot(broker: ZooKeeperModeBroker) -> str:
    return broker.zookeeper


@pytest.fixture(scope="module")
def topic(started_zookeeper_mode_broker: ZooKeeperModeBroker) -> str:
    admin = AdminClient(started_zookeeper_mode_broker.client())
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(60)
    return TOPIC


@pytest.fixture
def direct(chroot: str) -> Iterator[ZooKeeperBackend]:
    """kquota straight on ZooKeeper."""
    with ZooKeeperBackend(chroot) as backend:
        yield backend


def kquota(*arguments: str) -> None:
    """Runs the command line, which must succeed."""
    done = ran([sys.executable, "-m", "kquota", *arguments])
    assert done.returncode == 0, done.stderr


def credentials(znodes: Any, user: str) -> object:
    """The user's credentials, in the same node as the quotas."""
    return znode.NodeConfig.decode(znodes.get(f"/config/users/{user}")[0]).entries["SCRAM-SHA-256"]


def log_in(broker: ZooKeeperModeBroker, user: str, password: str) -> None:
    """Raises Unauthorized unless the broker takes the user's password."""
    security = KafkaSecurity(sasl=Scram("SCRAM-SHA-256", user, password))
    with KafkaBackend(broker.sasl_bootstrap, security=security) as backend:
        backend.describe()


# Each has a counter of its own on the broker: what one sends does not count against the next.
@pytest.mark.parametrize(
    ("entity", "user", "client_id"),
    [
        ("--user alice", "alice", "writer-1"),
        ("--user-defaults", "admin", "writer-2"),
        ("--user alice --client-defaults", "alice", "writer-3"),
        ("--client writer-4", "alice", "writer-4"),
    ],
)
def test_a_quota_throttles_a_client_until_it_is_deleted(
    broker: ZooKeeperModeBroker, chroot: str, topic: str, znodes: Any, entity: str, user: str, client_id: str
) -> None:
    load = Load(broker.client(user), client_id)
    # Quotas of other tests are deleted, and a broker under load hears of that late.
    assert load.until(lambda seconds: seconds == 0, count=5), "it is throttled without a quota"
    before = credentials(znodes, user)

    kquota("alter", "--zookeeper", chroot, *entity.split(), "--add-config", f"producer_byte_rate={QUOTA}")
    assert load.until(lambda seconds: seconds > 0), "a quota and yet no throttle"
    log_in(broker, user, password_of(user))

    kquota("alter", "--zookeeper", chroot, *entity.split(), "--delete-config", "producer_byte_rate")
    # The window is full: with the quota, every one of them would be throttled.
    assert load.until(lambda seconds: seconds == 0, count=5), "it is throttled still"
    log_in(broker, user, password_of(user))
    with pytest.raises(Unauthorized):
        log_in(broker, user, "wrong")
    assert credentials(znodes, user) == before


def test_the_broker_starts_again_after_every_kind_of_write(
    broker: ZooKeeperModeBroker, direct: ZooKeeperBackend, znodes: Any
) -> None:
    others = znodes.get_children(znode.CHANGES)
    edges: dict[QuotaKey, tuple[float, ...]] = {
        PRODUCER: (1, 2**31, 2**63 - 1),
        CONSUMER: (1, 10_000_000, 2**53),
        REQUEST: (5e-324, 0.1, 1e7, 1.7976931348623157e308),
        QuotaKey.CONTROLLER_MUTATION_RATE: (1e-9, 2.5, 1e22),
    }
    named = [
        entity
        for name in AWKWARD_NAMES
        for entity in (Entity(user=name), Entity(client_id=name), Entity(user=name, client_id=name))
    ]
    alterations = [
        *(Alteration(entity, {key: 1000 for key in QuotaKey if key.allowed_for(entity)}) for entity in KINDS),
        *(rate(entity) for entity in named),
        *(Alteration(Entity(client_id=f"{key}-{value}"), {key: value}) for key in edges for value in edges[key]),
        *(rate(Entity(ip=ip), 2**31 - 1) for ip in ("::1", "0:0:0:0:0:0:0:1", "localhost", "255.255.255.255")),
        rate(Entity(user="admin")),
        rate(Entity(user="alice")),
        rate(Entity(user="x" * 5000)),
    ]
    gone = [rate(Entity(user="gone")), rate(Entity(user="gone", client_id="gone")), rate(Entity(ip="10.0.0.1"))]
    assert {result.error for result in direct.alter([*alterations, *gone])} == {None}
    removals = [Alteration(change.entity, remove=frozenset(change.set)) for change in (*gone, alterations[0])]
    assert {result.error for result in direct.alter(removals)} == {None}
    expected = direct.describe()
    assert (len(expected), expected.problems) == (len(alterations) - 1, ())
    notifications = znodes.get_children(znode.CHANGES)

    def complaints() -> list[str]:
        """The errors but those about older notifications, which the broker reads and reports once more."""
        return [error for error in broker.errors() if not any(name in error for name in others)]

    before = complaints()
    assert len(notifications) >= len(alterations) + len(gone) + len(removals)

    def check() -> None:
        with KafkaBackend(broker.bootstrap) as asked:
            assert asked.describe() == expected
        for user in USERS:
            log_in(broker, user, password_of(user))

    check()
    broker.restart()
    check()
    assert set(znodes.get_children(znode.CHANGES)) == set(notifications)
    assert complaints() == before


def test_change_notifications_that_others_left_do_not_hold_up_ours(
    broker: ZooKeeperModeBroker, direct: ZooKeeperBackend, znodes: Any, topic: str
) -> None:
    for data in (b"", b"hello", b"[1]", b'{"version":3,"entity_path":"users/u"}', znode.change_notification(U1)):
        znodes.create(znode.CHANGE_PREFIX, data, sequence=True)
    (result,) = direct.alter([rate(Entity(user="alice"), QUOTA)])
    assert result.error is None
    load = Load(broker.client("alice"), "writer")
    assert load.until(lambda seconds: seconds > 0)
    broker.restart()
    load = Load(broker.client("alice"), "writer")
    assert load.until(lambda seconds: seconds > 0)


# Nodes of other tools on which a broker does not start, and how kquota repairs each (kquota alter …).
BRICKS = {
    "/config/users/brick": (
        '{"version":1,"config":{"producer_byte_rate":"2048  "}}',
        "--user brick --add-config producer_byte_rate=2048",
    ),
    "/config/clients/brick": (
        '{"version":1,"config":{"consumer_byte_rate":2048}}',
        "--client brick --delete-config consumer_byte_rate",
    ),
    "/config/ips/brick.invalid": (
        '{"version":1,"config":{"connection_creation_rate":"1"}}',
        "--ip brick.invalid --delete-config connection_creation_rate",
    ),
}


def test_what_stops_a_starting_broker_is_never_written_over_and_can_be_repaired(
    broker: ZooKeeperModeBroker, direct: ZooKeeperBackend, chroot: str, znodes: Any
) -> None:
    neighbour = ZooKeeperNeighbour(znodes)
    try:
        for path, (data, repair) in BRICKS.items():
            neighbour.leave(path, data.encode())
            with pytest.raises(RuntimeError, match="the broker did not start"):
                broker.restart()
            entity = znode.entity_of(path)
            if entity.ip is None:
                (problem,) = direct.describe().problems
                assert (problem.where, "stops at once" in problem.message) == (path, True)
                (refused,) = direct.alter([Alteration(entity, {REQUEST: 50.0})])
                assert isinstance(refused.error, Rejected)
            else:
                (refused,) = direct.alter([rate(entity)])
                assert isinstance(refused.error, InvalidRequest)
            assert znodes.get(path)[0] == data.encode()
            kquota("alter", "--zookeeper", chroot, *repair.split())
    except BaseException:
        for path in BRICKS:
            neighbour.remove(path)
        raise
    finally:
        broker.restart()
    with KafkaBackend(broker.bootstrap) as asked:
        assert dict(asked.describe()) == {Entity(user="brick"): {PRODUCER: 2048}}


def await_node(client: Any, path: str, wanted: Callable[[dict[str, Any]], bool]) -> None:
    """Waits until the JSON in the node is as wanted."""

    def found() -> dict[str, Any] | None:
        document: dict[str, Any] = json.loads(client.get(path)[0]) if client.exists(path) else {}
        return document if document and wanted(document) else None

    until(found, f"{path} stays otherwise")


def test_a_real_migration_takes_the_quotas_along_and_closes_the_door(zookeeper: Sandbox) -> None:
    connect = f"{zookeeper.connect}/migrating"
    with ZooKeeperModeBroker(connect) as broker, ZooKeeperBackend(connect) as direct, kazoo(connect) as client:
        names = [Entity(user=name, client_id=name) for name in AWKWARD_NAMES]
        direct.alter([rate(entity) for entity in (*KINDS, *names)])
        with broker.migration_controller():
            # The controller is there and waits for the broker; until then ZooKeeper is what counts.
            await_node(client, "/migration", lambda state: state["kraft_controller_id"] == -1)
            (result,) = direct.alter([rate(Entity(user="late"))])
            assert result.error is None
            expected = direct.describe()

            broker.migrate()
            await_node(client, "/controller", lambda state: state["kraftControllerEpoch"] > 0)
            await_node(client, "/migration", lambda state: state["kraft_metadata_offset"] > 0)
            with pytest.raises(Rejected, match="migrating to KRaft"):
                direct.alter([rate(Entity(user="lost"))])
            assert direct.describe() == expected
            with KafkaBackend(broker.bootstrap) as asked:
                assert asked.describe() == expected
                (result,) = asked.alter([rate(Entity(user="CN=a", client_id="later"))])
                assert result.error is None
                assert asked.wait_visible([result]) == ()
            # The controller writes to ZooKeeper what the broker was told.
            path = "/config/users/CN%3Da/clients/later"
            await_node(client, path, lambda state: state["config"] == {"producer_byte_rate": "1024"})
