"""What every backend promises, as one suite: subclass it with a `backend` fixture that starts out empty.

It runs on memory, on ZooKeeper, on a broker in ZooKeeper mode and on one of KRaft. What a server cannot do is data: the
suite then asserts the error (`Limit`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pytest

from kquota.backends import QuotaBackend
from kquota.backends.znode import encode_config
from kquota.core.quotas.alteration import Alteration
from kquota.core.quotas.entity import DEFAULT, Entity, EntityType
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.selector import ANY, Match, QuotaFilter
from kquota.errors import InputError, KquotaError
from tests.backends.neighbours import Neighbour, ZooKeeperNeighbour

PRODUCER = QuotaKey.PRODUCER_BYTE_RATE
CONSUMER = QuotaKey.CONSUMER_BYTE_RATE
REQUEST = QuotaKey.REQUEST_PERCENTAGE
CONNECTIONS = QuotaKey.CONNECTION_CREATION_RATE

U1 = Entity(user="u1")
DU = Entity(user=DEFAULT)
C1 = Entity(client_id="c1")
DC = Entity(client_id=DEFAULT)
U1_C1 = Entity(user="u1", client_id="c1")
U1_DC = Entity(user="u1", client_id=DEFAULT)
DU_C1 = Entity(user=DEFAULT, client_id="c1")
DU_DC = Entity(user=DEFAULT, client_id=DEFAULT)
U2_C2 = Entity(user="u2", client_id="c2")
IP = Entity(ip="127.0.0.1")
DIP = Entity(ip=DEFAULT)
ALL = frozenset({U1, DU, C1, DC, U1_C1, U1_DC, DU_C1, DU_DC, U2_C2, IP, DIP})
PAIRS = frozenset({U1_C1, U1_DC, DU_C1, DU_DC, U2_C2})
KINDS = (U1, DU, C1, DC, U1_C1, U1_DC, DU_C1, DU_DC, IP, DIP)
"""One entity of each of the ten kinds."""

USER, CLIENT_ID, IP_TYPE = EntityType.USER, EntityType.CLIENT_ID, EntityType.IP

# Observed on brokers: KRaft and ZooKeeper mode alike. (components, what a strict filter matches, what another does)
FILTERS: tuple[tuple[dict[EntityType, Match], frozenset[Entity], frozenset[Entity]], ...] = (
    ({}, frozenset(), ALL),
    ({USER: "u1"}, frozenset({U1}), frozenset({U1, U1_C1, U1_DC})),
    ({USER: DEFAULT}, frozenset({DU}), frozenset({DU, DU_C1, DU_DC})),
    ({USER: ANY}, frozenset({U1, DU}), frozenset({U1, DU}) | PAIRS),
    ({CLIENT_ID: "c1"}, frozenset({C1}), frozenset({C1, U1_C1, DU_C1})),
    ({CLIENT_ID: DEFAULT}, frozenset({DC}), frozenset({DC, U1_DC, DU_DC})),
    ({CLIENT_ID: ANY}, frozenset({C1, DC}), frozenset({C1, DC}) | PAIRS),
    ({USER: "u1", CLIENT_ID: "c1"}, frozenset({U1_C1}), frozenset({U1_C1})),
    ({USER: "u1", CLIENT_ID: ANY}, frozenset({U1_C1, U1_DC}), frozenset({U1_C1, U1_DC})),
    ({USER: ANY, CLIENT_ID: "c1"}, frozenset({U1_C1, DU_C1}), frozenset({U1_C1, DU_C1})),
    ({USER: ANY, CLIENT_ID: ANY}, PAIRS, PAIRS),
    ({USER: DEFAULT, CLIENT_ID: ANY}, frozenset({DU_C1, DU_DC}), frozenset({DU_C1, DU_DC})),
    ({USER: DEFAULT, CLIENT_ID: DEFAULT}, frozenset({DU_DC}), frozenset({DU_DC})),
    ({IP_TYPE: "127.0.0.1"}, frozenset({IP}), frozenset({IP})),
    ({IP_TYPE: DEFAULT}, frozenset({DIP}), frozenset({DIP})),
    ({IP_TYPE: ANY}, frozenset({IP, DIP}), frozenset({IP, DIP})),
    ({USER: "absent"}, frozenset(), frozenset()),
    ({USER: "<default>"}, frozenset(), frozenset()),
)

# Names that a store may confuse: with each other, with the default, with its own syntax.
# CN%3Da is what migrations before Kafka 3.6.2 made of CN=a.
AWKWARD_NAMES = (
    "<default>", "CN=a,OU=b", "CN%3Da", "a b", "a+b", "a%20b", "a\tb", "*", "/", "~", "ü", "日本", "😀", "User:alice",
    "%", "u1/clients/c1", "+", "...", "'\"\\",
)  # fmt: skip

# Names that some store cannot have, or that look like it.
UNUSUAL = (
    *(Entity(ip=name) for name in ("::1", "0:0:0:0:0:0:0:1", "localhost", "127.1", "<default>")),
    *(Entity(user="."), Entity(client_id=".."), Entity(user="u1", client_id=".")),
)


@dataclass(frozen=True)
class Limit:
    """Something that a server cannot do."""

    error: type[KquotaError]
    """What an alteration ends in."""
    says: str
    """What the error says, as a regular expression."""
    why: str
    """Whose limit it is, and the reason."""
    describable: bool = True
    """Whether a describe of just that entity finds nothing; otherwise it ends in the same error."""


def rate(entity: Entity, value: int = 1024) -> Alteration:
    """Sets one quota that the entity can carry."""
    return Alteration(entity, {CONNECTIONS if entity.ip is not None else PRODUCER: value})


class BackendContract:
    """The suite; `backend` is an empty backend, `rival` another one on the same store."""

    limits: ClassVar[Mapping[Entity, Limit]] = {}
    """Of the entities of `UNUSUAL`, those that the server cannot have."""

    @pytest.fixture
    def rival(self, backend: QuotaBackend) -> QuotaBackend:
        """Another writer; where the store is a backend's own memory, there is no other."""
        return backend

    @pytest.mark.parametrize(("components", "strict", "loose"), FILTERS)
    def test_filters_match_as_on_brokers(
        self,
        backend: QuotaBackend,
        components: dict[EntityType, Match],
        strict: frozenset[Entity],
        loose: frozenset[Entity],
    ) -> None:
        backend.alter([rate(entity) for entity in ALL])
        assert set(backend.describe(QuotaFilter(components, strict=True))) == strict
        assert set(backend.describe(QuotaFilter(components))) == loose

    def test_empty_backend_describes_nothing(self, backend: QuotaBackend) -> None:
        snapshot = backend.describe()
        assert len(snapshot) == 0
        assert snapshot.problems == ()

    def test_set_then_describe(self, backend: QuotaBackend) -> None:
        (result,) = backend.alter([Alteration(U1, {PRODUCER: 1024, REQUEST: 12.5})])
        assert (result.entity, result.error, result.changed) == (U1, None, True)
        assert (dict(result.before), dict(result.after)) == ({}, {PRODUCER: 1024, REQUEST: 12.5})
        assert {entity: dict(values) for entity, values in backend.describe().items()} == {
            U1: {PRODUCER: 1024, REQUEST: 12.5}
        }

    def test_keys_that_are_not_mentioned_stay(self, backend: QuotaBackend) -> None:
        backend.alter([Alteration(U1, {PRODUCER: 1, CONSUMER: 2})])
        (result,) = backend.alter([Alteration(U1, {CONSUMER: 3}, frozenset({REQUEST}))])
        assert dict(result.after) == {PRODUCER: 1, CONSUMER: 3}
        assert dict(backend.describe()[U1]) == {PRODUCER: 1, CONSUMER: 3}

    def test_removing_the_last_key_removes_the_entity(self, backend: QuotaBackend) -> None:
        backend.alter([rate(U1)])
        (result,) = backend.alter([Alteration(U1, remove=frozenset({PRODUCER}))])
        assert (dict(result.before), dict(result.after)) == ({PRODUCER: 1024}, {})
        assert U1 not in backend.describe()

    def test_removing_what_is_not_set_changes_nothing(self, backend: QuotaBackend) -> None:
        (result,) = backend.alter([Alteration(U1, remove=frozenset({PRODUCER}))])
        assert (result.error, result.changed) == (None, False)
        assert len(backend.describe()) == 0

    def test_strict_removal_fails_for_its_entity_only(self, backend: QuotaBackend) -> None:
        backend.alter([Alteration(U1, {CONSUMER: 7})])
        bad, good = backend.alter([Alteration(U1, {CONSUMER: 9}, frozenset({PRODUCER}), strict_remove=True), rate(C1)])
        assert isinstance(bad.error, InputError)
        assert not bad.changed
        assert dict(bad.before) == dict(bad.after) == {CONSUMER: 7}
        assert good.error is None
        assert {entity: dict(values) for entity, values in backend.describe().items()} == {
            U1: {CONSUMER: 7},
            C1: {PRODUCER: 1024},
        }

    def test_alterations_of_one_entity_are_merged(self, backend: QuotaBackend) -> None:
        results = backend.alter(
            [Alteration(U1, {PRODUCER: 1, CONSUMER: 1}), rate(C1), Alteration(U1, {PRODUCER: 2}, frozenset({CONSUMER}))]
        )
        assert [result.entity for result in results] == [U1, C1]
        assert dict(results[0].after) == {PRODUCER: 2}

    def test_results_are_in_the_order_of_mention(self, backend: QuotaBackend) -> None:
        order = [U2_C2, IP, U1, DC, U1_C1, DU]
        assert [result.entity for result in backend.alter([rate(entity) for entity in order])] == order

    def test_describe_is_in_stable_order(self, backend: QuotaBackend) -> None:
        backend.alter([rate(entity) for entity in sorted(ALL, key=hash)])
        assert list(backend.describe()) == sorted(ALL, key=lambda entity: entity.sort_key)

    @pytest.mark.parametrize("entity", KINDS, ids=str)
    def test_every_kind_carries_every_key_it_may(self, backend: QuotaBackend, entity: Entity) -> None:
        # Brokers count our own connections, too: far fewer than a thousand a second.
        values = {key: number for number, key in enumerate(QuotaKey, start=1000) if key.allowed_for(entity)}
        (result,) = backend.alter([Alteration(entity, values)])
        assert (result.error, dict(result.after)) == (None, values)
        assert {other: dict(found) for other, found in backend.describe().items()} == {entity: values}
        exact = QuotaFilter(dict(entity.parts), strict=True)
        assert list(backend.describe(exact)) == [entity]
        (result,) = backend.alter([Alteration(entity, remove=frozenset(values))])
        assert (result.error, dict(result.after)) == (None, {})
        assert len(backend.describe()) == 0

    @pytest.mark.parametrize("entity", KINDS, ids=str)
    def test_setting_what_is_set_changes_nothing(self, backend: QuotaBackend, entity: Entity) -> None:
        backend.alter([rate(entity)])
        before = backend.describe()
        (result,) = backend.alter([rate(entity)])
        assert (result.error, result.changed, dict(result.before)) == (None, False, dict(before[entity]))
        assert backend.describe() == before

    def test_the_literal_name_default_is_not_the_default(self, backend: QuotaBackend) -> None:
        literal = Entity(user=DEFAULT.value)
        backend.alter([rate(DU, 1), rate(literal, 2)])
        assert {entity: values[PRODUCER] for entity, values in backend.describe().items()} == {DU: 1, literal: 2}
        backend.alter([Alteration(DU, remove=frozenset({PRODUCER}))])
        assert list(backend.describe()) == [literal]

    def test_removing_and_setting_in_one_alter_sets(self, backend: QuotaBackend) -> None:
        backend.alter([Alteration(U1, {PRODUCER: 1, CONSUMER: 1})])
        (result,) = backend.alter([Alteration(U1, remove=frozenset({PRODUCER, CONSUMER})), rate(U1, 2)])
        assert (result.error, dict(result.after)) == (None, {PRODUCER: 2})
        assert dict(backend.describe()[U1]) == {PRODUCER: 2}

    def test_what_was_overwritten_meanwhile_is_named_as_not_shown(self, backend: QuotaBackend) -> None:
        results = backend.alter([rate(U1), rate(U2_C2)])
        backend.alter([rate(U1, 9), Alteration(U2_C2, {CONSUMER: 1})])  # another key of the second
        assert backend.wait_visible(results, timeout_s=0.1) == (U1,)

    def test_what_another_writer_set_meanwhile_stays(self, backend: QuotaBackend, rival: QuotaBackend) -> None:
        backend.alter([Alteration(U1, {PRODUCER: 1, CONSUMER: 1})])
        backend.describe()
        theirs = rival.alter([Alteration(U1, {REQUEST: 50.0}, frozenset({CONSUMER})), rate(U1_C1)])
        assert rival.wait_visible(theirs) == ()
        backend.alter([Alteration(U1, {PRODUCER: 2})])
        assert {entity: dict(values) for entity, values in backend.describe().items()} == {
            U1: {PRODUCER: 2, REQUEST: 50.0},
            U1_C1: {PRODUCER: 1024},
        }

    @pytest.mark.parametrize("entity", UNUSUAL, ids=str)
    def test_unusual_names(self, backend: QuotaBackend, entity: Entity) -> None:
        assert self.limits.keys() <= set(UNUSUAL)
        limit = self.limits.get(entity)
        unusual, usual = backend.alter([rate(entity), rate(U2_C2)])
        assert usual.error is None
        exact = QuotaFilter(dict(entity.parts), strict=True)
        if limit is None:
            assert unusual.error is None
            assert set(backend.describe()) == {entity, U2_C2}
            assert list(backend.describe(exact)) == [entity]
            return
        assert isinstance(unusual.error, limit.error)
        assert re.search(limit.says, unusual.error.message), unusual.error.message
        assert not unusual.changed
        assert set(backend.describe()) == {U2_C2}
        if limit.describable:
            assert len(backend.describe(exact)) == 0
        else:
            with pytest.raises(limit.error, match=limit.says):
                backend.describe(exact)

    def test_validate_only_writes_nothing(self, backend: QuotaBackend) -> None:
        backend.alter([rate(U1)])
        before = backend.describe()
        altered, failed = backend.alter(
            [rate(U1, 2048), Alteration(C1, remove=frozenset({PRODUCER}), strict_remove=True)], validate_only=True
        )
        assert (altered.error, altered.changed, dict(altered.after)) == (None, True, {PRODUCER: 2048})
        assert isinstance(failed.error, InputError)
        assert backend.describe() == before

    def test_nothing_to_alter(self, backend: QuotaBackend) -> None:
        assert backend.alter([]) == ()

    def test_awkward_names_stay_apart(self, backend: QuotaBackend) -> None:
        entities = [
            entity
            for name in AWKWARD_NAMES
            for entity in (Entity(user=name), Entity(client_id=name), Entity(user=name, client_id=name))
        ]
        alterations = [rate(entity, value) for value, entity in enumerate([*entities, DU, DC, DU_DC], start=1)]
        assert all(result.error is None for result in backend.alter(alterations))
        snapshot = backend.describe()
        assert snapshot.problems == ()
        assert {entity: values[PRODUCER] for entity, values in snapshot.items()} == {
            alteration.entity: alteration.set[PRODUCER] for alteration in alterations
        }
        for name in AWKWARD_NAMES:
            assert list(backend.describe(QuotaFilter({USER: name}, strict=True))) == [Entity(user=name)]

    def test_numbers_come_back_as_they_were(self, backend: QuotaBackend) -> None:
        values = {PRODUCER: 2**63 - 1, CONSUMER: 1, REQUEST: 0.1, QuotaKey.CONTROLLER_MUTATION_RATE: 1e7}
        backend.alter([Alteration(U1, values), Alteration(IP, {CONNECTIONS: 2**31 - 1})])
        snapshot = backend.describe()
        assert dict(snapshot[U1]) == values
        assert dict(snapshot[IP]) == {CONNECTIONS: 2**31 - 1}
        assert all(
            isinstance(value, int) == key.value_type.integral
            for key, value in [*snapshot[U1].items(), *snapshot[IP].items()]
        )

    def test_numbers_that_no_double_is_come_back_as_they_were_taken(self, backend: QuotaBackend) -> None:
        wish = Alteration(U1, {PRODUCER: 10**16 - 1, CONSUMER: 2**63 - 3})
        backend.alter([wish])
        assert dict(backend.describe()[U1]) == dict(wish.set) == {PRODUCER: 10**16, CONSUMER: 2**63 - 1}

    def test_closing_twice(self, backend: QuotaBackend) -> None:
        backend.describe()
        backend.close()
        backend.close()


class ClusterContract(BackendContract):
    """What is promised where others are at work too; `neighbour` is one of them, on the cluster of `backend`."""

    def test_credentials_of_a_user_are_no_quotas_and_stay(self, backend: QuotaBackend, neighbour: Neighbour) -> None:
        neighbour.add_credentials("u1")
        stored = neighbour.credentials("u1")
        assert stored
        assert len(backend.describe()) == 0
        results = backend.alter([rate(U1), rate(U1_C1)])
        assert [(result.error, dict(result.before)) for result in results] == [(None, {})] * 2
        snapshot = backend.describe()
        assert ({entity: dict(values) for entity, values in snapshot.items()}, snapshot.problems) == (
            {U1: {PRODUCER: 1024}, U1_C1: {PRODUCER: 1024}},
            (),
        )
        assert neighbour.credentials("u1") == stored
        backend.alter([Alteration(U1, remove=frozenset({PRODUCER})), Alteration(U1_C1, remove=frozenset({PRODUCER}))])
        assert len(backend.describe()) == 0
        assert neighbour.credentials("u1") == stored


class ZooKeeperContract(ClusterContract):
    """What is promised about nodes as other tools leave them, whether kquota reads them itself or asks a broker."""

    def test_nodes_without_data_hold_no_quotas(self, backend: QuotaBackend, neighbour: ZooKeeperNeighbour) -> None:
        neighbour.leave("/config/clients/c1", None)
        neighbour.leave("/config/clients/<default>", b"")
        neighbour.leave("/config/users/u1/clients/c1", None)
        neighbour.leave("/config/users/<default>", b'{"version":1,"config":{}}')
        neighbour.leave("/config/ips/127.0.0.1", None)
        snapshot = backend.describe()
        assert (len(snapshot), snapshot.problems) == (0, ())
        entities = (U1, DU, C1, DC, U1_C1, IP)
        assert [result.error for result in backend.alter([rate(entity) for entity in entities])] == [None] * 6
        assert set(backend.describe()) == set(entities)

    def test_a_directory_that_older_brokers_did_not_make(
        self, backend: QuotaBackend, neighbour: ZooKeeperNeighbour
    ) -> None:
        neighbour.remove("/config/ips")  # new in Kafka 2.8
        backend.alter([rate(U1)])
        assert list(backend.describe()) == [U1]
        assert list(backend.describe(QuotaFilter({IP_TYPE: ANY}))) == []
        assert [result.error for result in backend.alter([rate(IP)])] == [None]
        assert set(backend.describe()) == {U1, IP}

    def test_numbers_as_the_tool_of_2_8_stored_them(self, backend: QuotaBackend, neighbour: ZooKeeperNeighbour) -> None:
        config = {"producer_byte_rate": "+5", "consumer_byte_rate": "007", "request_percentage": "1e1"}
        neighbour.leave("/config/users/u1", encode_config(config))
        assert dict(backend.describe()[U1]) == {PRODUCER: 5, CONSUMER: 7, REQUEST: 10.0}

    def test_names_of_nodes(self, backend: QuotaBackend, neighbour: ZooKeeperNeighbour) -> None:
        names = {
            "/config/users/<default>": DU,
            "/config/users/%3Cdefault%3E": Entity(user="<default>"),
            "/config/users/CN%3Da%2COU%3Db/clients/<default>": Entity(user="CN=a,OU=b", client_id=DEFAULT),
            "/config/clients/my client": Entity(client_id="my client"),  # before Kafka 1.0
            "/config/clients/a+b": Entity(client_id="a b"),
            "/config/ips/127.0.0.1": IP,
        }
        for path, entity in names.items():
            key = CONNECTIONS if entity.ip is not None else PRODUCER
            neighbour.leave(path, encode_config({key.value: "1000"}))
        assert set(backend.describe()) == set(names.values())
