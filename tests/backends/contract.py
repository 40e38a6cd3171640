"""What every backend promises, as one suite: subclass it with a `backend` fixture that starts out empty."""

from __future__ import annotations

import pytest

from kquota.backends import QuotaBackend
from kquota.core.alteration import Alteration
from kquota.core.entity import DEFAULT, Entity, EntityType
from kquota.core.filter import ANY, Match, QuotaFilter
from kquota.core.quota import QuotaKey
from kquota.errors import InputError

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
    ({USER: "."}, frozenset(), frozenset()),
)

# Names that a store may confuse: with each other, with the default, with its own syntax.
AWKWARD_NAMES = (
    "<default>",
    "CN=a,OU=b",
    "a b",
    "a+b",
    "a%20b",
    "*",
    "/",
    "~",
    "ü",
    "日本",
    "😀",
    "a\tb",
    "User:alice",
    "%",
)


def rate(entity: Entity, value: int = 1024) -> Alteration:
    """Sets one quota that the entity can carry."""
    return Alteration(entity, {CONNECTIONS if entity.ip is not None else PRODUCER: value})


class BackendContract:
    """The suite; `backend` is an empty backend."""

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
            [
                Alteration(U1, {PRODUCER: 1, CONSUMER: 1}),
                rate(C1),
                Alteration(U1, {PRODUCER: 2}, frozenset({CONSUMER})),
            ]
        )
        assert [result.entity for result in results] == [U1, C1]
        assert dict(results[0].after) == {PRODUCER: 2}

    def test_results_are_in_the_order_of_mention(self, backend: QuotaBackend) -> None:
        order = [U2_C2, IP, U1, DC, U1_C1, DU]
        assert [result.entity for result in backend.alter([rate(entity) for entity in order])] == order

    def test_describe_is_in_stable_order(self, backend: QuotaBackend) -> None:
        backend.alter([rate(entity) for entity in sorted(ALL, key=hash)])
        assert list(backend.describe()) == sorted(ALL, key=lambda entity: entity.sort_key)

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

    def test_closing_twice(self, backend: QuotaBackend) -> None:
        backend.describe()
        backend.close()
        backend.close()
