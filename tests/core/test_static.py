"""The static defaults of server.properties: which brokers have them, and whom they govern."""

import pytest
from hypothesis import given

from kquota import DEFAULT, Entity, QuotaKey, QuotaSnapshot
from kquota.core.quotas.quota import Value
from kquota.core.quotas.static import StaticQuotas
from kquota.core.quotas.version import parse_version
from kquota.core.resolve.resolver import Level, Resolver
from tests.core.test_resolver import PAIR, quota_sets

KEY = QuotaKey.PRODUCER_BYTE_RATE
STATIC = StaticQuotas({KEY: 5000})


def answer(values: dict[Entity, Value], user: str, client_id: str, static: StaticQuotas = STATIC) -> tuple[object, ...]:
    resolution = Resolver(KEY, values, static=static).resolve(user, client_id)
    return resolution.limit, resolution.level, str(resolution.sensor)


@pytest.mark.parametrize(
    ("version", "there"),
    [("0.8.2", False), ("0.9.0.0", True), ("0.10.1", True), ("2.8.2", True), ("3.0.0", False), ("4.0", False)],
)
def test_the_versions_that_have_them(version: str, there: bool) -> None:
    assert bool(StaticQuotas.of({KEY: 5000}, parse_version(version)).values) == there


def test_the_sequence_of_kip_55_ends_with_them() -> None:
    """KIP-55: "8. If quota.producer.default is configured for the broker in server.properties, this is shared across
    client-id <clientX> of all users. 9. Client is not throttled."
    """
    values: dict[Entity, Value] = {Entity(client_id="clientA"): 100}
    assert answer(values, "user3", "clientA") == (100, Level.CLIENT, ":clientA")
    assert answer(values, "user3", "clientB") == (5000, Level.STATIC, ":clientB")
    assert answer(values, "user4", "clientB") == (5000, Level.STATIC, ":clientB")
    assert answer(values, "user3", "clientB", StaticQuotas()) == (None, None, ":clientB")
    assert Level.STATIC.number == 9


def test_they_enable_client_ids_so_that_users_without_a_quota_are_counted_by_client_id() -> None:
    values: dict[Entity, Value] = {Entity(user="alice"): 1}
    assert answer(values, "bob", "app", StaticQuotas()) == (None, None, "bob:")
    assert answer(values, "bob", "app") == (5000, Level.STATIC, ":app")


def test_the_empty_client_id_has_them_before_2_0_only() -> None:
    assert answer({}, "alice", "") == (None, None, ":")
    older = Resolver(KEY, {}, static=STATIC, empty_client_id=True).resolve("alice", "")
    assert (older.limit, older.level, str(older.sensor)) == (5000, Level.STATIC, ":")
    older = Resolver(KEY, {Entity(client_id=DEFAULT): 7}, static=STATIC, empty_client_id=True).resolve("alice", "")
    assert (older.limit, older.level, str(older.sensor)) == (7, Level.DEFAULT_CLIENT, ":")


@given(quota_sets, PAIR)
def test_to_a_client_they_are_the_default_client_id(values: dict[Entity, int], client: tuple[str, str]) -> None:
    snapshot = QuotaSnapshot({entity: {KEY: value} for entity, value in values.items()})
    folded = Resolver.of(STATIC.added_to(snapshot), KEY).resolve(*client)
    resolution = Resolver.of(snapshot, KEY, STATIC).resolve(*client)
    assert (folded.limit, folded.sensor) == (resolution.limit, resolution.sensor)
