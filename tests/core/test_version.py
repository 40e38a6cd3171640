"""Kafka versions, and what brokers enforce since when."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota import DEFAULT, Entity, InputError, QuotaKey, QuotaSnapshot
from kquota.core.quotas.snapshot import Ignored
from kquota.core.quotas.static import StaticQuotas, enforced
from kquota.core.quotas.version import format_version, ignored, parse_version
from kquota.core.resolve.resolver import Resolver, resolve, resolve_ip
from tests.core.strategies import snapshots

PRODUCER = QuotaKey.PRODUCER_BYTE_RATE
REQUEST = QuotaKey.REQUEST_PERCENTAGE
MUTATION = QuotaKey.CONTROLLER_MUTATION_RATE
CONNECTION = QuotaKey.CONNECTION_CREATION_RATE
ALICE, APP, IP = Entity(user="alice"), Entity(client_id="app"), Entity(ip="10.0.0.1")


@pytest.mark.parametrize(
    ("entity", "key", "last", "first", "since"),
    [
        (APP, PRODUCER, "0.8.2", "0.9", "since 0.9 (KIP-13)"),
        (Entity(client_id=DEFAULT), PRODUCER, "0.10.0.1", "0.10.1", "a stored default client-id since 0.10.1 (KIP-55)"),
        (ALICE, PRODUCER, "0.10.0.1", "0.10.1.0", "quotas of users since 0.10.1 (KIP-55)"),
        (Entity(user="alice", client_id="app"), PRODUCER, "0.9", "0.10.1", "quotas of users since 0.10.1 (KIP-55)"),
        (ALICE, REQUEST, "0.10.2", "0.11.0.0", "since 0.11 (KIP-124)"),
        (APP, REQUEST, "0.9.0", "0.11.0.0", "since 0.11 (KIP-124)"),
        (ALICE, MUTATION, "2.6.3", "2.7.0", "since 2.7 (KIP-599)"),
        (IP, CONNECTION, "2.7.2", "2.8.0", "since 2.8 (KIP-612)"),
        (Entity(ip=DEFAULT), CONNECTION, "2.7", "2.8", "since 2.8 (KIP-612)"),
    ],
)
def test_the_first_release_of_each(entity: Entity, key: QuotaKey, last: str, first: str, since: str) -> None:
    """As found in the tags of apache/kafka."""
    older = parse_version(last)
    assert ignored(entity, key, older) == f"not enforced by Kafka {format_version(older)}: {since}"
    assert ignored(entity, key, parse_version(first)) is None


@given(snapshots, st.sampled_from(["0.8", "0.9", "0.10.1", "0.11", "1.1", "2.7", "2.8", "4.0"]))
def test_each_value_is_enforced_or_ignored_with_a_reason(snapshot: QuotaSnapshot, version: str) -> None:
    """None is in both, and none is lost, in another process either."""
    found = enforced(snapshot, parse_version(version))
    kept = {(entity, key, value) for entity, values in found.items() for key, value in values.items()}
    left = {(each.entity, each.key, each.value) for each in found.ignored}
    assert kept | left == {(entity, key, value) for entity, values in snapshot.items() for key, value in values.items()}
    assert not kept & left
    assert all(each.reason.startswith(f"not enforced by Kafka {version}: ") for each in found.ignored)
    again = pickle.loads(pickle.dumps(found))
    assert (again, again.ignored, again.empty_client_id) == (found, found.ignored, found.empty_client_id)


def test_a_resolution_says_which_quotas_of_the_client_are_ignored() -> None:
    snapshot = QuotaSnapshot(
        {ALICE: {REQUEST: 50.0, PRODUCER: 7}, Entity(user="bob"): {REQUEST: 1.0}, Entity(ip=DEFAULT): {CONNECTION: 3}}
    )
    old = enforced(snapshot, (0, 10, 2))

    by_key = {each.key: each for each in resolve(old, "alice", "")}
    assert by_key[PRODUCER].limit == 7
    assert by_key[PRODUCER].ignored == ()
    assert by_key[REQUEST].limit is None
    assert by_key[REQUEST].ignored == (
        Ignored(ALICE, REQUEST, 50.0, "not enforced by Kafka 0.10.2: since 0.11 (KIP-124)"),
    )
    assert resolve_ip(old, "10.0.0.9").limit is None
    assert [each.entity for each in resolve_ip(old, "10.0.0.9").ignored] == [Entity(ip=DEFAULT)]


def test_a_default_client_id_of_the_brokers_own_file_holds_where_a_stored_one_does_not() -> None:
    """0.9 and 0.10.0 had no default but quota.producer.default."""
    old = enforced(QuotaSnapshot({Entity(client_id=DEFAULT): {PRODUCER: 1}}), (0, 9, 0), StaticQuotas({PRODUCER: 5000}))

    assert Resolver.of(old, PRODUCER).resolve("ANONYMOUS", "app").limit == 5000
    assert [each.value for each in old.ignored] == [1]


@pytest.mark.parametrize(
    ("text", "version"),
    [("0.10.2.1", (0, 10, 2)), ("v2.8", (2, 8, 0)), ("4", (4, 0, 0)), ("3.9-IV0", (3, 9, 0)), (" 3.7.1 ", (3, 7, 1))],
)
def test_a_version(text: str, version: tuple[int, int, int]) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize("text", ["", "latest", "3", "7.5.0-ccs", "7.6.1-ce", "3.", "3..7", "3.8x", "-3.8", "3,8"])
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(InputError):
        parse_version(text)


@given(st.lists(st.integers(0, 99), min_size=2, max_size=4))
def test_a_version_is_its_numbers(numbers: list[int]) -> None:
    assert parse_version(".".join(map(str, numbers))) == tuple([*numbers, 0][:3])
