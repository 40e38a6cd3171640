"""Three real ZooKeeper servers: the leader dies in the middle of an alter, and a server is left without a quorum."""

import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kquota import Alteration, Entity, QuotaKey, Unreachable
from kquota.backends import znode
from kquota.backends.zookeeper import ZooKeeperBackend
from kquota.backends.zookeeper.writer import Writer
from kquota.sandbox import JARS, pyspark_jars
from tests.support.processes import Processes, free_ports, java
from tests.support.sandbox import kazoo

_READY_S = 180
PRODUCER = QuotaKey.PRODUCER_BYTE_RATE


class Ensemble(Processes):
    """Three servers on the loopback address that elect a leader; without a quorum they can be read."""

    def __init__(self) -> None:
        super().__init__("ensemble")
        ports = free_ports(9)
        self._clients = dict(enumerate(ports[:3], start=1))
        self._peers = "".join(
            f"server.{number}=127.0.0.1:{ports[2 + number]}:{ports[5 + number]}\n" for number in self._clients
        )

    @property
    def connect(self) -> str:
        """The connect string with all three."""
        return ",".join(f"127.0.0.1:{port}" for port in self._clients.values())

    def _start(self) -> None:
        for number in self._clients:
            self.start(number)
        self.await_modes({"leader": 1, "follower": 2})

    def start(self, number: int) -> None:
        """Starts a server on what it left."""
        folder = self.folder / str(number)
        (folder / "data").mkdir(parents=True, exist_ok=True)
        (folder / "data" / "myid").write_text(str(number))
        (folder / "zoo.cfg").write_text(
            f"dataDir={folder / 'data'}\nclientPort={self._clients[number]}\nclientPortAddress=127.0.0.1\n"
            # Without local sessions nobody gets one from a server that has no quorum (ZOOKEEPER-1147).
            "localSessionsEnabled=true\nlocalSessionsUpgradingEnabled=true\n"
            "tickTime=500\ninitLimit=20\nsyncLimit=10\nadmin.enableServer=false\n4lw.commands.whitelist=*\n"
            + self._peers
        )
        flags = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        options = ("-Dreadonlymode.enabled=true", "-Dzookeeper.forceSync=no")
        classpath = os.pathsep.join(str(jar) for jar in pyspark_jars(JARS))
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = [java(), *flags, *options, "-cp", classpath, main, str(folder / "zoo.cfg")]
        self._launch(str(number), command, folder)

    def kill(self, *numbers: int) -> None:
        """Ends servers without a warning."""
        for number in numbers:
            self._end(str(number))

    def modes(self) -> dict[int, str]:
        """What each running server says it is: leader, follower, read-only."""
        found = {}
        for number, port in self._clients.items():
            if str(number) not in self._running:
                continue
            answer = b""
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
                    connection.sendall(b"srvr")
                    while chunk := connection.recv(4096):
                        answer += chunk
            except OSError:
                continue
            for line in answer.decode().splitlines():
                if line.startswith("Mode: "):
                    found[number] = line.removeprefix("Mode: ")
        return found

    def await_modes(self, wanted: dict[str, int]) -> None:
        """Returns once so many servers are of each mode."""
        self._await(f"an ensemble with {wanted}", lambda: Counter(self.modes().values()) == wanted, _READY_S)


@pytest.fixture(scope="module")
def started() -> Iterator[Ensemble]:
    with Ensemble() as ensemble:
        yield ensemble


@pytest.fixture
def ensemble(started: Ensemble) -> Ensemble:
    """All three servers, whatever a test before did to them."""
    running = started.modes()
    for number in (1, 2, 3):
        if number not in running:
            started.kill(number)
            started.start(number)
    started.await_modes({"leader": 1, "follower": 2})
    return started


def one(ensemble: Ensemble, mode: str) -> int:
    """A server that says that it is one; a busy server may not answer at once."""
    end = time.monotonic() + 60
    while True:
        for number, its in ensemble.modes().items():
            if its == mode:
                return number
        assert time.monotonic() < end, f"no {mode}"


def look(ensemble: Ensemble, root: str) -> tuple[set[str], list[str]]:
    """The users that have a node, and those that the notifications name."""
    with kazoo(ensemble.connect + root, timeout=30) as client:
        client.sync("/")
        users = set(client.get_children("/config/users"))
        changes = [client.get(f"{znode.CHANGES}/{name}")[0] for name in client.get_children(znode.CHANGES)]
    told = [data.decode().removeprefix('{"version":2,"entity_path":"users/').removesuffix('"}') for data in changes]
    return users, told


@pytest.fixture
def root(ensemble: Ensemble, request: pytest.FixtureRequest) -> str:
    """A chroot of the test's own."""
    path = f"/{abs(hash(request.node.name))}"
    with kazoo(ensemble.connect, timeout=30) as client:
        client.create(path)
    return path


@pytest.mark.parametrize("when", ["before the read", "before the commit", "after the commit"])
def test_the_leader_dies_and_the_alter_goes_on(
    ensemble: Ensemble, root: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    entities = [Entity(user=f"u{number}") for number in range(2000)]
    kills: list[int] = []

    def killing(original: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: Writer, *arguments: Any) -> Any:
            answer = original(self, *arguments)
            if not kills:
                kills.append(one(ensemble, "leader"))
                ensemble.kill(*kills)
            return answer

        return method

    # The transactions are on their way when the first one is concluded.
    seams = {"before the commit": "_read_tasks", "after the commit": "_conclude"}
    with ZooKeeperBackend(ensemble.connect + root, timeout_s=30) as backend:
        backend.describe()
        if when in seams:
            monkeypatch.setattr(Writer, seams[when], killing(getattr(Writer, seams[when])))
        else:
            kills.append(one(ensemble, "leader"))
            ensemble.kill(*kills)
        results = backend.alter([Alteration(entity, {PRODUCER: 1024}) for entity in entities])
        assert kills
        assert {str(result.error) for result in results} == {"None"}
        assert set(backend.describe()) == set(entities)
    users, told = look(ensemble, root)
    assert sorted(told) == sorted(users) == sorted(entity.user for entity in entities if isinstance(entity.user, str))


def test_a_server_without_a_quorum_can_only_be_read(ensemble: Ensemble, root: str) -> None:
    alteration = Alteration(Entity(user="u"), {PRODUCER: 1024})
    with ZooKeeperBackend(ensemble.connect + root, timeout_s=30) as backend:
        backend.alter([alteration])
        lost = [one(ensemble, "leader"), one(ensemble, "follower")]
        ensemble.kill(*lost)
        ensemble.await_modes({"read-only": 1})
        with ZooKeeperBackend(ensemble.connect + root, timeout_s=30) as late:
            assert dict(late.describe()[alteration.entity]) == {PRODUCER: 1024}
            with pytest.raises(Unreachable, match="no quorum: it can only be read") as caught:
                late.alter([Alteration(Entity(user="u"), {PRODUCER: 1}), Alteration(Entity(user="v"), {PRODUCER: 1})])
            assert "\n" not in caught.value.message
            assert set(late.describe()) == {alteration.entity}
        ensemble.start(lost[0])
        ensemble.await_modes({"leader": 1, "follower": 1})
        (result,) = backend.alter([Alteration(Entity(user="v"), {PRODUCER: 2})])
        assert result.error is None
    users, told = look(ensemble, root)
    assert users == {"u", "v"}
    assert sorted(told) == ["u", "v"]
