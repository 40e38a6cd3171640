"""The contract on a real ZooKeeper, and what only ZooKeeper can show: exact bytes, versions, ACLs, bounded requests."""

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import pytest
from kazoo.exceptions import NotEmptyError

from kquota.backends import QuotaBackend
from kquota.backends.zookeeper import Address, ZooKeeperBackend
from kquota.backends.zookeeper.requests import REQUEST_BYTES, MultiRead
from kquota.backends.zookeeper.writer import Writer
from kquota.changes import plan, rehearse
from kquota.core.change.lint import Severity, lint
from kquota.core.quotas.alteration import Alteration
from kquota.core.quotas.entity import DEFAULT, Entity, EntityType
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.selector import ANY, QuotaFilter
from kquota.core.resolve.resolver import resolve
from kquota.errors import InputError, InvalidRequest, KquotaError, Rejected, Unreachable
from tests.backends.contract import CONNECTIONS, CONSUMER, PRODUCER, Limit, ZooKeeperContract, rate
from tests.backends.neighbours import CREDENTIALS, ZooKeeperNeighbour
from tests.support.processes import free_ports
from tests.support.sandbox import Sandbox
from tests.support.scheduling import by_day

USER = Entity(user="u")


class OnZooKeeper(ZooKeeperContract):
    """Straight into ZooKeeper."""

    limits: ClassVar[Mapping[Entity, Limit]] = {
        **dict.fromkeys(
            (Entity(user="."), Entity(client_id=".."), Entity(user="u1", client_id=".")),
            Limit(InputError, "cannot be stored in ZooKeeper", "ZooKeeper: relative names are illegal in its paths"),
        ),
        Entity(ip="<default>"): Limit(
            InputError,
            "cannot be stored in ZooKeeper",
            "Kafka: ips are not sanitized, and this one is the default's node",
        ),
        Entity(ip="127.1"): Limit(
            InvalidRequest,
            "not a valid IP or resolvable host",
            "Java: its releases read such numbers differently, and a broker that cannot does not start",
        ),
    }

    @pytest.fixture
    def rival(self, chroot: str) -> Iterator[QuotaBackend]:
        with ZooKeeperBackend(chroot) as rival:
            yield rival

    @pytest.fixture
    def neighbour(self, znodes: Any) -> ZooKeeperNeighbour:
        return ZooKeeperNeighbour(znodes)


class TestZooKeeperBackend(OnZooKeeper):
    @pytest.fixture
    def backend(self, chroot: str) -> Iterator[QuotaBackend]:
        with ZooKeeperBackend(chroot) as backend:
            yield backend


class TestZooKeeperBackendWithSingleReads(OnZooKeeper):
    """A server before 3.6, as far as reads go."""

    @pytest.fixture
    def backend(self, chroot: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[QuotaBackend]:
        # No server knows this opcode; it answers and cuts the connection as an old one does for MultiRead.
        monkeypatch.setattr(MultiRead, "type", 122)
        with ZooKeeperBackend(chroot) as backend:
            yield backend
            assert backend._session is None or backend._session._multi_read is False


@pytest.fixture
def backend(chroot: str) -> Iterator[ZooKeeperBackend]:
    with ZooKeeperBackend(chroot) as backend:
        yield backend


def notifications(znodes: Any) -> list[bytes]:
    if znodes.exists("/config/changes") is None:
        return []
    return [znodes.get(f"/config/changes/{name}")[0] for name in sorted(znodes.get_children("/config/changes"))]


# --- Bytes -------------------------------------------------------------------------------------------------------

# (node before, set, removed, node after), in the manner of the tool's own runs.
TRANSITIONS: tuple[tuple[str | None, dict[QuotaKey, float], set[QuotaKey], str], ...] = (
    (None, {PRODUCER: 1024}, set(), '{"version":1,"config":{"producer_byte_rate":"1024"}}'),
    ("", {PRODUCER: 1024}, set(), '{"version":1,"config":{"producer_byte_rate":"1024"}}'),
    ('{"version":1,"config":{"producer_byte_rate":"1"}}', {}, {PRODUCER}, '{"version":1,"config":{}}'),
    (
        f'{{"version":1,"config":{{"SCRAM-SHA-256":"{CREDENTIALS}","producer_byte_rate":"1"}}}}',
        {},
        {PRODUCER},
        f'{{"version":1,"config":{{"SCRAM-SHA-256":"{CREDENTIALS}"}}}}',
    ),
    (
        '{"version":1,"config":{"producer_byte_rate":"007","foo":"bar"}}',
        {QuotaKey.REQUEST_PERCENTAGE: 12.5, QuotaKey.CONTROLLER_MUTATION_RATE: 10.0, CONSUMER: 2048},
        set(),
        '{"version":1,"config":{"request_percentage":"12.5","producer_byte_rate":"007","consumer_byte_rate":"2048",'
        '"controller_mutation_rate":"10","foo":"bar"}}',
    ),
)


@pytest.mark.parametrize(("before", "to_set", "to_remove", "after"), TRANSITIONS)
def test_node_and_notification_byte_for_byte(
    backend: ZooKeeperBackend,
    znodes: Any,
    before: str | None,
    to_set: dict[QuotaKey, float],
    to_remove: set[QuotaKey],
    after: str,
) -> None:
    if before is not None:
        znodes.create("/config/users/u", before.encode(), makepath=True)
    (result,) = backend.alter([Alteration(USER, to_set, frozenset(to_remove))])
    assert result.error is None
    data, stat = znodes.get("/config/users/u")
    assert data == after.encode()
    assert stat.version == (0 if before is None else 1)
    assert notifications(znodes) == [b'{"version":2,"entity_path":"users/u"}']
    assert znodes.get_children("/config/changes") == ["config_change_0000000000"]


def test_brokers_are_counted_that_are_registered(backend: ZooKeeperBackend, znodes: Any) -> None:
    assert backend.broker_count() == 0
    for number in (1, 2, 1001):
        znodes.create(f"/brokers/ids/{number}", b"{}", makepath=True)
    assert backend.broker_count() == 3


def test_a_missing_chroot_is_asked_about(backend: ZooKeeperBackend, znodes: Any) -> None:
    """Of every plan: where no broker was ever registered, none reads it."""
    wish = {Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: 1024}}
    for path, asked in ((None, []), ("/kafka/brokers/ids", ["no-broker"]), ("/brokers/ids", [])):
        if path is not None:
            znodes.create(path, makepath=True)
        alterations = [Alteration(entity, values) for entity, values in wish.items()]
        for planned in (plan(backend, wish), rehearse(backend, alterations).plan):
            assert [objection.name for objection in planned.objections] == asked
    backend.alter([rate(USER)])


def test_what_zookeeper_refuses_is_said(backend: ZooKeeperBackend) -> None:
    """A definite no that no other rule knows."""
    error = backend._open().translate(NotEmptyError(), "/x")

    assert isinstance(error, Rejected)
    assert error.message.endswith("refused at /x: NotEmpty")


def test_missing_parents_are_created_without_data(backend: ZooKeeperBackend, znodes: Any) -> None:
    backend.alter([rate(Entity(user="CN=a,OU=b", client_id=DEFAULT))])
    parents = ["/config", "/config/changes", "/config/users", "/config/users/CN%3Da%2COU%3Db"]
    for path in [*parents, "/config/users/CN%3Da%2COU%3Db/clients"]:
        data, stat = znodes.get(path)
        assert (data, stat.ephemeralOwner) == (None, 0), path
    assert znodes.get("/config/users/CN%3Da%2COU%3Db/clients/<default>")[0] == (
        b'{"version":1,"config":{"producer_byte_rate":"1024"}}'
    )
    assert notifications(znodes) == [b'{"version":2,"entity_path":"users/CN%3Da%2COU%3Db/clients/<default>"}']
    assert {(acl.perms, acl.id.scheme) for acl in znodes.get_acls("/config/users")[0]} == {(31, "world")}


def test_an_ip_without_quotas_loses_its_node(backend: ZooKeeperBackend, znodes: Any) -> None:
    """A broker looks up even an empty one when it starts, and stops when the name is gone by then."""
    ip, remove = Entity(ip="localhost"), frozenset({CONNECTIONS})
    backend.alter([rate(ip)])
    for changed in (True, False):
        (result,) = backend.alter([Alteration(ip, remove=remove)])
        assert (result.error, result.changed) == (None, changed)
        assert znodes.get_children("/config/ips") == []
        assert notifications(znodes) == [b'{"version":2,"entity_path":"ips/localhost"}'] * 2
    znodes.create("/config/ips/localhost", b'{"version":1,"config":{"connection_creation_rate":"1","foo":"bar"}}')
    backend.alter([Alteration(ip, remove=remove)])
    assert znodes.get("/config/ips/localhost")[0] == b'{"version":1,"config":{"foo":"bar"}}'


def test_an_ip_that_no_longer_resolves_can_be_removed(backend: ZooKeeperBackend, znodes: Any) -> None:
    path = "/config/ips/gone.invalid"
    znodes.create(path, b'{"version":1,"config":{"connection_creation_rate":"1"}}', makepath=True)
    (result,) = backend.alter([Alteration(Entity(ip="gone.invalid"), remove=frozenset({CONNECTIONS}))])
    assert (result.error, dict(result.before)) == (None, {CONNECTIONS: 1})
    assert znodes.exists(path) is None


def test_setting_the_same_value_still_notifies(backend: ZooKeeperBackend, znodes: Any) -> None:
    for _ in range(2):
        backend.alter([rate(USER)])
    assert znodes.get("/config/users/u")[1].version == 1
    assert len(notifications(znodes)) == 2


# --- What a cluster may hold -------------------------------------------------------------------------------------


def test_problems_are_named_and_the_rest_is_complete(backend: ZooKeeperBackend, znodes: Any) -> None:
    nodes = {
        "/config/users/good": b'{"version":1,"config":{"producer_byte_rate":"1"}}',
        "/config/users/bad%": b'{"version":1,"config":{"producer_byte_rate":"2"}}',
        "/config/users/junk": b"hello",
        "/config/users/empty": b'{"version":1,"config":{}}',
        "/config/users/number": b'{"version":1,"config":{"producer_byte_rate":3}}',
        "/config/clients/text": b'{"version":1,"config":{"producer_byte_rate":"abc","consumer_byte_rate":"4"}}',
        "/config/clients/my client": b'{"version":1,"config":{"producer_byte_rate":"5"}}',
    }
    for path, data in nodes.items():
        znodes.create(path, data, makepath=True)
    snapshot = backend.describe()
    assert {str(entity): dict(values) for entity, values in snapshot.items()} == {
        "user=good": {PRODUCER: 1},
        "client-id=my client": {PRODUCER: 5},
        "client-id=text": {CONSUMER: 4},
    }
    assert sorted(problem.where for problem in snapshot.problems) == [
        "/config/clients/my client",
        "/config/clients/text",
        "/config/users/bad%",
        "/config/users/junk",
        "/config/users/number",
    ]
    # As with Kafka's tool: the exact name looks at the node that alterations go to.
    assert len(backend.describe(QuotaFilter({EntityType.CLIENT_ID: "my client"}, strict=True))) == 0


def test_a_user_that_is_not_encoded_governs_nobody(backend: ZooKeeperBackend, znodes: Any) -> None:
    """Measured on 3.9.1: brokers decode the name of a client-id's node, and take a user's as it is."""
    data = b'{"version":1,"config":{"producer_byte_rate":"20000"}}'
    for path in ("users/CN=jakub", "users/svc@corp/clients/w5", "users/a%2fb", "users/enc%40corp/clients/cl@9"):
        znodes.create(f"/config/{path}", data, makepath=True)
    snapshot = backend.describe()

    assert [str(entity) for entity in snapshot] == ["user=enc@corp,client-id=cl@9"]
    assert sorted(str(each.entity) for each in snapshot.ignored) == [
        str(Entity(user="CN=jakub")),
        str(Entity(user="a/b")),
        str(Entity(user="svc@corp", client_id="w5")),
    ]
    assert all("governs nobody" in each.reason for each in snapshot.ignored)
    findings = [each for each in lint(snapshot) if each.rule.name == "not-encoded"]
    assert [each.rule.severity for each in findings] == [Severity.ERROR] * 3
    assert resolve(snapshot, "CN=jakub", "x")[0].limit is None
    backend.alter([rate(Entity(user="CN=jakub"), 5)])
    assert dict(backend.describe()[Entity(user="CN=jakub")]) == {PRODUCER: 5}


def test_a_forgotten_chroot_is_found(backend: ZooKeeperBackend, znodes: Any) -> None:
    assert backend.elsewhere() is None
    znodes.create("/kafka28/brokers/ids", b"", makepath=True)
    assert backend.elsewhere() == "/kafka28"
    asked = rehearse(backend, [rate(Entity(user="oops"), 5_000_000)]).plan.objections
    assert [each.name for each in asked] == ["no-broker"]
    znodes.create("/brokers/ids", b"", makepath=True)
    assert backend.elsewhere() is None


def test_a_canonical_node_wins_over_an_older_one(backend: ZooKeeperBackend, znodes: Any) -> None:
    znodes.create("/config/clients/my client", b'{"version":1,"config":{"producer_byte_rate":"5"}}', makepath=True)
    backend.alter([rate(Entity(client_id="my client"), 6)])
    assert dict(backend.describe()[Entity(client_id="my client")]) == {PRODUCER: 6}


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (b'{"version":1,"config":{"consumer_byte_rate":"2048  "}}', "set or delete consumer_byte_rate"),
        (b'{"version":1,"config":{"consumer_byte_rate":1024}}', "set or delete consumer_byte_rate"),
        (b'{"version":1,"config":{"foo":1}}', "remove foo from /config/users/u"),
        (b"hello", "delete the node"),
    ],
)
def test_what_bricks_a_broker_is_rejected(backend: ZooKeeperBackend, znodes: Any, data: bytes, hint: str) -> None:
    znodes.create("/config/users/u", data, makepath=True)
    bad, good = backend.alter([rate(USER), rate(Entity(user="v"))])
    assert isinstance(bad.error, Rejected)
    assert hint in (bad.error.hint or "")
    assert good.error is None
    assert znodes.get("/config/users/u")[0] == data
    assert notifications(znodes) == [b'{"version":2,"entity_path":"users/v"}']


@pytest.mark.parametrize(
    ("entity", "kind"),
    [
        (Entity(ip="no-such-host.invalid"), InvalidRequest),
        (Entity(ip="not a host"), InvalidRequest),
        # This machine finds an address for these, Java does not, or another one.
        (Entity(ip="0x7f.0.0.1"), InvalidRequest),
        (Entity(ip="010.0.0.1"), InvalidRequest),
        (Entity(ip="127.1"), InvalidRequest),
        (Entity(ip="fe80::1%eth0"), InvalidRequest),
        (Entity(ip="ｌｏｃａｌｈｏｓｔ"), InvalidRequest),
        (Entity(ip="127。0。0。1"), InvalidRequest),
        (Entity(user="u" * 300_000), InputError),
    ],
)
def test_impossible_entities(backend: ZooKeeperBackend, znodes: Any, entity: Entity, kind: type[KquotaError]) -> None:
    bad, good = backend.alter([rate(entity), rate(Entity(ip="::1"))])
    assert isinstance(bad.error, kind)
    assert good.error is None
    assert znodes.get_children("/config/ips") == ["::1"]


def test_host_names_that_resolve(backend: ZooKeeperBackend) -> None:
    (result,) = backend.alter([rate(Entity(ip="localhost"))])
    assert result.error is None


# As a migration of Kafka 3.9.1 leaves them (tests/brokers/test_zookeeper_mode.py runs a real one): the KRaft controller
# waits for the brokers, then takes over. `/controller` stays when the migration is over.
WAITING = {
    "/controller": b'{"version":2,"brokerid":0,"timestamp":"1795251849333","kraftControllerEpoch":-1}',
    "/migration": b'{"version":0,"kraft_metadata_offset":-1,"kraft_controller_id":-1,"kraft_metadata_epoch":-1,'
    b'"kraft_controller_epoch":-1}',
}
MIGRATING = {
    "/controller": b'{"version":2,"brokerid":3000,"timestamp":"1795251852351","kraftControllerEpoch":1}',
    "/migration": b'{"version":0,"kraft_metadata_offset":17,"kraft_controller_id":3000,"kraft_metadata_epoch":1,'
    b'"kraft_controller_epoch":1}',
}


def test_a_migrating_cluster_is_left_alone(backend: ZooKeeperBackend, znodes: Any) -> None:
    for path, data in WAITING.items():
        znodes.create(path, data)
    backend.alter([rate(USER)])
    for path, data in MIGRATING.items():
        znodes.set(path, data)
    for validate_only in (False, True):
        with pytest.raises(Rejected, match=r"is migrating to KRaft \(kraftControllerEpoch 1\)") as caught:
            backend.alter([rate(USER, 2), rate(Entity(user="new"))], validate_only=validate_only)
        assert "--bootstrap-server" in (caught.value.hint or "")
    assert znodes.get_children("/config/users") == ["u"]
    assert dict(backend.describe()[USER]) == {PRODUCER: 1024}
    assert len(notifications(znodes)) == 1
    # A migration that is taken back (KIP-866): the operator removes the node, and a broker becomes the controller.
    znodes.set("/controller", WAITING["/controller"])
    backend.alter([rate(USER, 2)])


# --- Conflicts ---------------------------------------------------------------------------------------------------


def interfere(monkeypatch: pytest.MonkeyPatch, action: Any) -> None:
    """Runs the action between every read and the commit that follows it."""
    original = Writer._read_tasks

    def read_tasks(self: Writer, session: Any, tasks: Any) -> Any:
        nodes = original(self, session, tasks)
        action()
        return nodes

    monkeypatch.setattr(Writer, "_read_tasks", read_tasks)


def test_version_zero_is_compared_too(backend: ZooKeeperBackend, znodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    znodes.create("/config/users/u", b'{"version":1,"config":{}}', makepath=True)
    others = iter([b'{"version":1,"config":{"consumer_byte_rate":"9"}}'])
    interfere(monkeypatch, lambda: [znodes.set("/config/users/u", data) for data in others])
    (result,) = backend.alter([rate(USER)])
    assert dict(result.before) == {CONSUMER: 9}
    assert dict(result.after) == {PRODUCER: 1024, CONSUMER: 9}
    assert len(notifications(znodes)) == 1


@pytest.mark.parametrize("path", ["/config/users/u", "/config/users", "/config/changes"])
def test_nodes_that_appear_meanwhile(
    backend: ZooKeeperBackend, znodes: Any, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    interfere(monkeypatch, lambda: znodes.ensure_path(path))
    (result,) = backend.alter([rate(USER)])
    assert result.error is None
    assert dict(backend.describe()[USER]) == {PRODUCER: 1024}


@pytest.mark.parametrize("count", [1, 1200])
def test_a_migration_that_begins_meanwhile_is_noticed(
    backend: ZooKeeperBackend, znodes: Any, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    for path, data in {**WAITING, "/controller_epoch": b"1"}.items():
        znodes.create(path, data)
    takeovers = iter([*MIGRATING.items(), ("/controller_epoch", b"2")])
    interfere(monkeypatch, lambda: [znodes.set(path, data) for path, data in takeovers])
    with pytest.raises(Rejected, match="migrating to KRaft"):
        backend.alter([rate(Entity(user=f"u{number}")) for number in range(count)])
    assert znodes.exists("/config") is None


def test_another_controller_of_zookeepers_is_none_of_our_business(
    backend: ZooKeeperBackend, znodes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    znodes.create("/controller_epoch", b"1")
    elections = iter([b"2"])
    interfere(monkeypatch, lambda: [znodes.set("/controller_epoch", data) for data in elections])
    results = backend.alter([rate(Entity(user=f"u{number}")) for number in range(1200)])
    assert {result.error for result in results} == {None}
    assert len(notifications(znodes)) == 1200


# --- Size --------------------------------------------------------------------------------------------------------


def test_many_entities_in_bounded_requests(
    backend: ZooKeeperBackend, znodes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kazoo.protocol.connection import ConnectionHandler

    sizes: list[int] = []
    write = ConnectionHandler._write

    def measured(self: Any, message: bytes, timeout: float) -> None:
        sizes.append(len(message))
        write(self, message, timeout)

    monkeypatch.setattr(ConnectionHandler, "_write", measured)
    many = 2_000 if by_day() else 10_000
    users = [Entity(user=f"user-{number}") for number in range(many)]
    pairs = [Entity(user=f"user-{number}", client_id="app") for number in range(many - 10)]
    # Long names: fewer of them fit into a request.
    users += [Entity(user=f"{'ü' * 15_000}{number}") for number in range(10)]
    results = backend.alter([rate(entity, number) for number, entity in enumerate([*users, *pairs], start=1)])
    assert [result.error for result in results if result.error is not None] == []
    snapshot = backend.describe()
    assert len(snapshot) == 2 * many
    assert max(sizes) <= REQUEST_BYTES
    assert len([size for size in sizes if size > 1_000]) < many / 33  # a ping or a look at a node is smaller
    assert len(znodes.get_children("/config/changes")) == 2 * many
    sizes.clear()
    assert len(backend.describe(QuotaFilter({EntityType.USER: "user-7"}, strict=True))) == 1
    assert sum(sizes) < 200
    assert len(backend.describe(QuotaFilter({EntityType.USER: "user-7", EntityType.CLIENT_ID: ANY}))) == 1
    assert sum(sizes) < 1000


# --- Addresses and connections -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("h:1", (("h", 1),), ""),
        ("h1:1,h2", (("h1", 1), ("h2", 2181)), ""),
        ("[::1]:5/kafka/a/", (("::1", 5),), "/kafka/a"),
        ("h:1/", (("h", 1),), ""),
    ],
)
def test_addresses(text: str, hosts: tuple[tuple[str, int], ...], chroot: str) -> None:
    assert Address.parse(text) == Address(hosts, chroot)


@pytest.mark.parametrize(
    "text", ["", "h:", "h:0", "h:99999", "h:x", "h:1,", "a b:1", "u@h:1", "h:1//a", "h:1/a//b", "h:1/..", "h:1/k,i:2/k"]
)
def test_malformed_addresses(text: str) -> None:
    with pytest.raises(InputError):
        ZooKeeperBackend(text)


def test_a_missing_chroot_is_named(zookeeper: Sandbox) -> None:
    uses: tuple[Callable[[ZooKeeperBackend], object], ...] = (
        lambda backend: backend.describe(),
        lambda backend: backend.alter([rate(USER)]),
    )
    for use in uses:
        with (
            ZooKeeperBackend(f"{zookeeper.connect}/kafka-typo") as backend,
            pytest.raises(InputError, match="/kafka-typo"),
        ):
            use(backend)


def closed_port() -> int:
    (port,) = free_ports(1)
    return port


def test_a_refused_connection_fails_at_once() -> None:
    started = time.monotonic()
    port = closed_port()
    with ZooKeeperBackend(f"127.0.0.1:{port}") as backend, pytest.raises(Unreachable, match="refused") as caught:
        backend.describe()
    assert time.monotonic() - started < 60
    assert f"127.0.0.1:{port}" in caught.value.message
    assert "\n" not in caught.value.message


def test_a_server_that_says_nothing_fails_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        started = time.monotonic()
        with (
            ZooKeeperBackend(f"127.0.0.1:{server.getsockname()[1]}", timeout_s=0.5) as backend,
            pytest.raises(Unreachable),
        ):
            backend.describe()
        assert time.monotonic() - started < 60


def test_an_unknown_host_fails_at_once() -> None:
    with ZooKeeperBackend("no-such-host.invalid:2181") as backend, pytest.raises(Unreachable, match="no-such-host"):
        backend.describe()


def test_another_host_of_the_list_takes_over(chroot: str) -> None:
    hosts = chroot.replace("127.0.0.1", f"127.0.0.1:{closed_port()},127.0.0.1", 1)
    with ZooKeeperBackend(hosts) as backend:
        assert len(backend.describe()) == 0
