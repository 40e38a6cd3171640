"""Following changes: what is told, and that nothing is lost with a connection."""

import contextlib
from collections.abc import Iterator

import pytest

from kquota import DEFAULT, Alteration, Entity, QuotaBackend, QuotaKey, Unreachable
from kquota.backends.kafka import KafkaBackend
from kquota.backends.polling import QuotaWatch
from kquota.backends.zookeeper import ZooKeeperBackend
from tests.brokers.kafka import KafkaBroker
from tests.conftest import new_chroot
from tests.support.relay import Relay
from tests.support.sandbox import Sandbox
from tests.support.waiting import until

PRODUCER, CONSUMER = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
PAIR = Entity(user="CN=a, b", client_id=DEFAULT)
Told = tuple[Entity, dict[QuotaKey, float], dict[QuotaKey, float]]


def told(watch: QuotaWatch) -> list[Told]:
    """The next changes; fails when there are none in time."""
    return until(lambda: [(each.entity, dict(each.before), dict(each.after)) for each in watch.wait(0.2)])


def set_rate(backend: QuotaBackend, entity: Entity, rate: int | None) -> None:
    alteration = Alteration(entity, {PRODUCER: rate}) if rate else Alteration(entity, remove=frozenset({PRODUCER}))
    (result,) = backend.alter([alteration])
    assert result.error is None


@pytest.fixture
def writer(chroot: str) -> Iterator[ZooKeeperBackend]:
    with ZooKeeperBackend(chroot) as writer:
        yield writer


@pytest.fixture
def watch(chroot: str) -> Iterator[QuotaWatch]:
    with ZooKeeperBackend(chroot) as backend:
        watch = QuotaWatch(backend, 0.1)
        assert not watch.start()
        yield watch


def test_each_change_is_told(writer: ZooKeeperBackend, watch: QuotaWatch) -> None:
    for before, after in ((None, 5), (5, 7), (7, None), (None, 9)):
        set_rate(writer, PAIR, after)
        expected = [{PRODUCER: each} if each else {} for each in (before, after)]
        assert told(watch) == [(PAIR, *expected)]
    assert watch.wait(0.05) == ()


def test_what_came_before_the_start_is_no_change(writer: ZooKeeperBackend, chroot: str) -> None:
    set_rate(writer, PAIR, 5)
    with ZooKeeperBackend(chroot) as backend:
        watch = QuotaWatch(backend, 0.1)
        assert watch.start() == writer.describe()
        assert watch.wait(0.05) == ()


def lose_and_find(watch: QuotaWatch, relay: Relay, writer: QuotaBackend, entity: Entity) -> list[Told]:
    """Cuts the connection, changes the entity meanwhile, and mends it."""
    relay.cut()
    with pytest.raises(Unreachable):
        told(watch)
    set_rate(writer, entity, 8)
    with pytest.raises(Unreachable):
        watch.wait(0.2)
    relay.mend()

    def found() -> list[Told]:
        with contextlib.suppress(Unreachable):  # a busy machine takes longer to connect than the watch waits
            return told(watch)
        return []

    return until(found)


def test_a_lost_session_loses_nothing(zookeeper: Sandbox) -> None:
    chroot = new_chroot(zookeeper)
    with (
        Relay(zookeeper.connect) as relay,
        ZooKeeperBackend(chroot) as writer,
        ZooKeeperBackend(chroot.replace(zookeeper.connect, relay.address), timeout_s=5) as backend,
    ):
        set_rate(writer, PAIR, 5)
        watch = QuotaWatch(backend, 0.1)
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
        watch = QuotaWatch(backend, 0.1)
        assert entity not in watch.start()
        set_rate(writer, entity, 5)
        assert told(watch) == [(entity, {}, {PRODUCER: 5})]
        assert lose_and_find(watch, relay, writer, entity) == [(entity, {PRODUCER: 5}, {PRODUCER: 8})]
        set_rate(writer, entity, None)
        assert told(watch) == [(entity, {PRODUCER: 8}, {})]
