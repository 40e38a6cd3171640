"""Following changes: what each backend tells, in which order, and that nothing is lost with a connection."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kquota.backends import QuotaBackend, QuotaWatch, znode
from kquota.backends.kafka import KafkaBackend
from kquota.backends.polling import PollingWatch
from kquota.backends.polling import watch as watch_of
from kquota.backends.zookeeper import ZooKeeperBackend
from kquota.core.quotas.alteration import Alteration
from kquota.core.quotas.entity import DEFAULT, Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.errors import InputError, Unreachable
from kquota.sandbox import Sandbox
from tests.backends.neighbours import ZooKeeperNeighbour
from tests.brokers.kafka import KafkaBroker
from tests.conftest import new_chroot
from tests.support.relay import Relay

PRODUCER, CONSUMER = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
PAIR = Entity(user="CN=a, b", client_id=DEFAULT)
Told = tuple[Entity, dict[QuotaKey, float], dict[QuotaKey, float]]


def told(watch: QuotaWatch, count: int = 1, within_s: float = 60.0) -> list[Told]:
    """The changes up to that many; fails when they do not come in time."""
    changes: list[Told] = []
    end = time.monotonic() + within_s
    while len(changes) < count:
        assert time.monotonic() < end, changes
        changes += [(each.entity, dict(each.before), dict(each.after)) for each in watch.wait(0.2)]
    return changes


def set_rate(backend: QuotaBackend, entity: Entity, rate: int | None) -> None:
    """Sets the produce quota, or removes it."""
    alteration = Alteration(entity, {PRODUCER: rate}) if rate else Alteration(entity, remove=frozenset({PRODUCER}))
    (result,) = backend.alter([alteration])
    assert result.error is None


@pytest.fixture
def writer(chroot: str) -> Iterator[ZooKeeperBackend]:
    with ZooKeeperBackend(chroot) as writer:
        yield writer


@pytest.fixture
def watch(chroot: str) -> Iterator[QuotaWatch]:
    """A started watch of an empty cluster."""
    with ZooKeeperBackend(chroot) as backend:
        watch = watch_of(backend, 1.0)
        assert not watch.start()
        yield watch


def test_zookeeper_tells_each_change(writer: ZooKeeperBackend, watch: QuotaWatch) -> None:
    """The first one also creates the node of the notifications."""
    for before, after in ((None, 5), (5, 7), (7, None), (None, 9)):
        set_rate(writer, PAIR, after)
        expected = [{PRODUCER: each} if each else {} for each in (before, after)]
        assert told(watch) == [(PAIR, *expected)]
    assert watch.wait(0.05) == ()


def test_what_came_before_the_start_is_no_change(writer: ZooKeeperBackend, chroot: str) -> None:
    set_rate(writer, PAIR, 5)
    with ZooKeeperBackend(chroot) as backend:
        watch = backend.watch()
        assert watch.start() == writer.describe()
        assert watch.wait(0.05) == ()


@pytest.mark.parametrize(
    ("path", "data", "entity"),
    [
        ("clients/app", b'{"version":1,"entity_type":"clients","entity_name":"app"}', Entity(client_id="app")),
        ("clients/my app", b'{"version":1,"entity_type":"clients","entity_name":"my app"}', Entity(client_id="my app")),
        ("users/a%3Db", b'{"version":2,"entity_path":"users/a%3Db"}', Entity(user="a=b")),
        ("ips/<default>", b'{"version":2,"entity_path":"ips/<default>"}', Entity(ip=DEFAULT)),
        ("users/a", b'{"version":3}', Entity(user="a")),
        ("users/a", b"no JSON", Entity(user="a")),
        ("users/a", b'{"version":2,"entity_path":"users/%"}', Entity(user="a")),
    ],
)
def test_every_form_of_notification(watch: QuotaWatch, znodes: Any, path: str, data: bytes, entity: Entity) -> None:
    """One that cannot be understood has everything read again."""
    key = QuotaKey.CONNECTION_CREATION_RATE if entity.ip else PRODUCER
    neighbour = ZooKeeperNeighbour(znodes)
    neighbour.leave(f"/config/{path}", znode.encode_config({key.value: "5"}))
    neighbour.leave(f"{znode.CHANGE_PREFIX}0000000000", data)
    assert told(watch) == [(entity, {}, {key: 5})]


def test_notifications_of_other_things_are_none_of_quotas(watch: QuotaWatch, znodes: Any) -> None:
    """Nothing is read again: a node that came without a notification stays unseen."""
    neighbour = ZooKeeperNeighbour(znodes)
    neighbour.leave("/config/users/a", znode.encode_config({"producer_byte_rate": "5"}))
    for number, data in enumerate(
        (b'{"version":2,"entity_path":"topics/t"}', b'{"version":2,"entity_path":"brokers/1"}')
    ):
        neighbour.leave(f"{znode.CHANGE_PREFIX}000000000{number}", data)
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        assert watch.wait(0.1) == ()


def test_brokers_clean_notifications_away(writer: ZooKeeperBackend, watch: QuotaWatch, znodes: Any) -> None:
    set_rate(writer, PAIR, 5)
    assert told(watch)
    (name,) = znodes.get_children(znode.CHANGES)
    set_rate(writer, PAIR, 6)
    znodes.delete(f"{znode.CHANGES}/{name}")
    assert told(watch) == [(PAIR, {PRODUCER: 5}, {PRODUCER: 6})]
    # Nobody should do this: the numbers begin anew, and Kafka's own brokers take them for old ones.
    znodes.delete(znode.CHANGES, recursive=True)
    set_rate(writer, PAIR, 7)
    assert told(watch) == [(PAIR, {PRODUCER: 6}, {PRODUCER: 7})]
    set_rate(writer, PAIR, 8)
    assert told(watch) == [(PAIR, {PRODUCER: 7}, {PRODUCER: 8})]


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (b'{"version":2,"entity_path":"users/a/clients/b"}', "/config/users/a/clients/b"),
        (b'{"version":1,"entity_type":"topics","entity_name":"t"}', "/config/topics/t"),
        (b'{"version":1,"entity_type":"users","entity_name":"a"}', None),
        (b'{"version":2,"entity_path":5}', None),
        (b"[]", None),
        (b"", None),
        (None, None),
    ],
)
def test_the_path_of_a_notification(data: bytes | None, path: str | None) -> None:
    if path is None:
        with pytest.raises(InputError):
            znode.notified_path(data)
    else:
        assert znode.notified_path(data) == path


def lose_and_find(watch: QuotaWatch, relay: Relay, writer: QuotaBackend, entity: Entity) -> list[Told]:
    """Cuts the connection, changes the entity meanwhile, and mends it."""
    relay.cut()
    with pytest.raises(Unreachable):
        told(watch)
    set_rate(writer, entity, 8)
    with pytest.raises(Unreachable):
        watch.wait(0.2)
    relay.mend()
    end = time.monotonic() + 60
    while True:
        try:
            return told(watch)
        except Unreachable:  # a busy machine takes longer to connect than the watch waits
            assert time.monotonic() < end


def test_a_lost_session_loses_nothing(zookeeper: Sandbox) -> None:
    chroot = new_chroot(zookeeper)
    with (
        Relay(zookeeper.connect) as relay,
        ZooKeeperBackend(chroot) as writer,
        ZooKeeperBackend(chroot.replace(zookeeper.connect, relay.address), timeout_s=2) as backend,
    ):
        set_rate(writer, PAIR, 5)
        watch = backend.watch()
        watch.start()
        assert lose_and_find(watch, relay, writer, PAIR) == [(PAIR, {PRODUCER: 5}, {PRODUCER: 8})]
        set_rate(writer, PAIR, 9)
        assert told(watch) == [(PAIR, {PRODUCER: 8}, {PRODUCER: 9})]


def test_brokers_are_asked(kraft: KafkaBroker) -> None:
    entity = Entity(user="watched", client_id="by-asking")
    with (
        Relay(kraft.bootstrap) as relay,
        KafkaBackend(kraft.bootstrap) as writer,
        KafkaBackend(relay.address) as backend,
    ):
        watch = watch_of(backend, 0.1)
        assert isinstance(watch, PollingWatch)
        assert entity not in watch.start()
        set_rate(writer, entity, 5)
        assert told(watch) == [(entity, {}, {PRODUCER: 5})]
        assert lose_and_find(watch, relay, writer, entity) == [(entity, {PRODUCER: 5}, {PRODUCER: 8})]
        set_rate(writer, entity, None)
        assert told(watch) == [(entity, {PRODUCER: 8}, {})]
