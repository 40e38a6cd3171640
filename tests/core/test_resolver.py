"""Whose quota and whose counter: the levels, the brokers' exceptions, and laws."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.core.quotas.entity import DEFAULT, Entity, Name
from kquota.core.quotas.quota import QuotaKey, Value
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.resolve.reach import Client, Reach
from kquota.core.resolve.resolver import Level, Resolver, enabled_mask, encode_user, resolve, resolve_ip
from tests.support.data import data_rows

KEY = QuotaKey.PRODUCER_BYTE_RATE
PAIR_LEVELS = [level for level in Level if level <= Level.DEFAULT_CLIENT]


def level_entity(level: Level, user: str, client_id: str) -> Entity | None:
    """The entity that a client matches at a level; None where its own name is empty."""
    users: tuple[Name | None, ...] = (user, user, user, DEFAULT, DEFAULT, DEFAULT, None, None)
    clients: tuple[Name | None, ...] = (client_id, DEFAULT, None, client_id, DEFAULT, None, client_id, DEFAULT)
    names = users[level - 1], clients[level - 1]
    return None if "" in names else Entity(user=names[0], client_id=names[1])


def resolver(values: dict[Entity, Value], mask: int | None = None) -> Resolver:
    return Resolver(KEY, values, mask)


def answer(quotas: Resolver, user: str, client_id: str) -> tuple[Level | None, Value | None, str]:
    resolution = quotas.resolve(user, client_id)
    return resolution.level, resolution.limit, str(resolution.sensor)


PAIR = st.tuples(st.sampled_from(["", "alice", "bob"]), st.sampled_from(["", "app", "job"]))
part = st.sampled_from([None, DEFAULT, "alice", "bob", "app", "job"])
quota_sets = st.dictionaries(
    st.builds(lambda user, client: (user, client), part, part)
    .filter(lambda names: names != (None, None))
    .map(lambda names: Entity(user=names[0], client_id=names[1])),
    st.integers(1, 1000),
    max_size=12,
)


def walk(values: dict[Entity, int], user: str, client_id: str) -> list[Level]:
    """The plain walk over the eight levels."""
    return [level for level in PAIR_LEVELS if level_entity(level, user, client_id) in values]


@given(quota_sets, st.sampled_from(["alice", "bob", "eve"]), st.sampled_from(["app", "job", "x"]))
def test_with_a_client_id_it_is_the_plain_walk(values: dict[Entity, int], user: str, client_id: str) -> None:
    resolution = resolver(dict(values)).resolve(user, client_id)
    found: list[Level | None] = [*walk(values, user, client_id)] or [None]
    assert [resolution.level, *(shadow.level for shadow in resolution.shadows)] == found
    if resolution.entity is not None:
        assert resolution.limit == values[resolution.entity]


@given(quota_sets, PAIR)
def test_shadows_take_over_in_their_order(values: dict[Entity, int], client: tuple[str, str]) -> None:
    remaining: dict[Entity, Value] = dict(values)
    mask = enabled_mask(values)  # as on a broker, which remembers what was configured
    before = resolver(remaining, mask).resolve(*client)
    for shadow in before.shadows:
        assert before.entity is not None
        del remaining[before.entity]
        before = resolver(remaining, mask).resolve(*client)
        assert (before.level, before.entity, before.limit) == (shadow.level, shadow.entity, shadow.value)


@given(quota_sets, PAIR, PAIR)
def test_clients_with_one_counter_have_one_limit(
    values: dict[Entity, int], one: tuple[str, str], other: tuple[str, str]
) -> None:
    quotas = resolver(dict(values))
    first, second = quotas.resolve(*one), quotas.resolve(*other)
    if first.sensor == second.sensor:
        assert first.limit == second.limit


@given(quota_sets)
def test_an_empty_client_id_escapes_every_client_default(values: dict[Entity, int]) -> None:
    resolution = resolver(dict(values)).resolve("alice", "")
    assert resolution.level in (None, Level.USER, Level.DEFAULT_USER)
    assert all(shadow.level is Level.DEFAULT_USER for shadow in resolution.shadows)


@pytest.mark.parametrize(
    ("values", "mask", "sensor"),
    [
        ({}, None, ":app"),
        ({Entity(client_id="other"): 1}, None, ":app"),
        ({Entity(user="other"): 1}, None, "alice:"),
        ({Entity(user="other", client_id="x"): 1}, None, "alice:app"),
        ({Entity(user="other"): 1, Entity(client_id="x"): 1}, None, ":app"),
        ({Entity(user="other"): 1}, 1, ":app"),  # a client quota was set once
        ({}, 2, "alice:"),
        ({}, 4, "alice:app"),
        ({}, 7, ":app"),
    ],
)
def test_without_a_match_the_mask_decides_the_counter(
    values: dict[Entity, Value], mask: int | None, sensor: str
) -> None:
    assert answer(resolver(values, mask), "alice", "app") == (None, None, sensor)


@pytest.mark.parametrize(
    ("entity", "mask"),
    [
        (Entity(client_id=DEFAULT), 1),
        (Entity(user="a"), 2),
        (Entity(user=DEFAULT, client_id="c"), 4),
        (Entity(ip=DEFAULT), 0),
    ],
)
def test_the_bits_of_the_mask(entity: Entity, mask: int) -> None:
    assert enabled_mask({entity: 1}) == mask


@pytest.mark.parametrize(
    ("user", "encoded"),
    [
        ("alice", "alice"),
        ("A-z_0.9", "A-z_0.9"),
        ("CN=app,OU=x", "CN%3Dapp%2COU%3Dx"),
        ("a~b", "a%7Eb"),
        ("* +/%", "%2A%20%2B%2F%25"),
        ("ü", "%C3%BC"),
        ("<default>", "%3Cdefault%3E"),
    ],
)
def test_users_in_tags_are_url_encoded(user: str, encoded: str) -> None:
    assert encode_user(user) == encoded


def test_literal_default_is_an_ordinary_name() -> None:
    quotas = resolver({Entity(user=DEFAULT): 1, Entity(user="<default>"): 2})
    assert answer(quotas, "<default>", "c") == (Level.USER, 2, "%3Cdefault%3E:")
    assert answer(quotas, "alice", "c") == (Level.DEFAULT_USER, 1, "alice:")


def test_keys_are_resolved_one_by_one() -> None:
    snapshot = QuotaSnapshot(
        {
            Entity(user="alice"): {QuotaKey.CONSUMER_BYTE_RATE: 7},
            Entity(client_id=DEFAULT): {KEY: 9},
            Entity(ip="10.0.0.1"): {QuotaKey.CONNECTION_CREATION_RATE: 3},
        }
    )
    by_key = {resolution.key: resolution for resolution in resolve(snapshot, "alice", "app", "10.0.0.1")}
    assert {key: resolution.limit for key, resolution in by_key.items()} == {
        KEY: 9,
        QuotaKey.CONSUMER_BYTE_RATE: 7,
        QuotaKey.REQUEST_PERCENTAGE: None,
        QuotaKey.CONTROLLER_MUTATION_RATE: None,
        QuotaKey.CONNECTION_CREATION_RATE: 3,
    }
    assert str(by_key[KEY].sensor) == ":app"
    assert str(by_key[QuotaKey.CONSUMER_BYTE_RATE].sensor) == "alice:"
    assert len(resolve(snapshot, "alice", "app")) == 4


def test_ips() -> None:
    rate = QuotaKey.CONNECTION_CREATION_RATE
    snapshot = QuotaSnapshot({Entity(ip=DEFAULT): {rate: 5}, Entity(ip="10.0.0.1"): {rate: 50}})
    named, other = resolve_ip(snapshot, "10.0.0.1"), resolve_ip(snapshot, "10.0.0.2")
    assert (named.level, named.limit, [shadow.level for shadow in named.shadows]) == (Level.IP, 50, [Level.DEFAULT_IP])
    assert (other.level, other.limit, other.shadows) == (Level.DEFAULT_IP, 5, ())
    assert named.sensor != other.sensor
    assert resolve_ip(QuotaSnapshot(), "10.0.0.1").limit is None


@pytest.mark.parametrize(("named", "asked", "limit"), data_rows("addresses.txt"))
def test_an_ip_is_an_address_and_no_text(named: str, asked: str, limit: str) -> None:
    rate = QuotaKey.CONNECTION_CREATION_RATE
    snapshot = QuotaSnapshot({Entity(ip=DEFAULT): {rate: 5}, Entity(ip=named): {rate: 50}})
    assert resolve_ip(snapshot, asked).limit == int(limit)
    governed = [*Reach(snapshot).governed(Entity(ip=named), [Client("alice", "", asked)])]
    assert len(governed) == (limit == "50")
