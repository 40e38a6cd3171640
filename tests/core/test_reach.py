"""Whom quotas reach: the known clients stand for all there can be, and the question can be turned round."""

from hypothesis import given
from hypothesis import strategies as st

from kquota import DEFAULT, Entity, QuotaKey, QuotaSnapshot, Resolution
from kquota.core.resolve.reach import OTHER, Client, Reach
from kquota.core.resolve.resolver import resolve, resolve_ip
from tests.core.strategies import few_entities, snapshots

PRODUCER = QuotaKey.PRODUCER_BYTE_RATE
names = st.sampled_from(["a", "b", "c d", "x", "\0", "<other>", "<default>"])
clients = st.builds(
    Client, names, names | st.just(""), st.none() | st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3"])
)


def resolved(snapshot: QuotaSnapshot, client: Client) -> list[Resolution]:
    """One by one, as `resolve` answers for a single client; the keys in which it has a limit."""
    user, client_id, ip = client
    assert isinstance(user, str)
    assert isinstance(client_id, str)
    assert ip is None or isinstance(ip, str)
    connections = [] if ip is None else [resolve_ip(snapshot, ip)]
    return [each for each in (*resolve(snapshot, user, client_id), *connections) if each.limit is not None]


@given(snapshots, few_entities, st.lists(clients, unique=True, max_size=12))
def test_whom_an_entity_governs_agrees_with_resolving_each(
    snapshot: QuotaSnapshot, entity: Entity, observed: list[Client]
) -> None:
    found = list(Reach(snapshot).governed(entity, observed))
    expected = [(client, [each for each in resolved(snapshot, client) if each.entity == entity]) for client in observed]
    assert [(client, list(each)) for client, each in found] == [pair for pair in expected if pair[1]]


@given(snapshots, clients)
def test_a_client_that_nobody_names_is_one_of_the_others(snapshot: QuotaSnapshot, client: Client) -> None:
    reach = Reach(snapshot)
    users, client_ids, ips = reach.names
    user = client.user if client.user in users else OTHER
    client_id = client.client_id if client.client_id in (*client_ids, "") else OTHER
    ip = client.ip if client.ip is None or client.ip in ips else OTHER
    known = Client(user, client_id, ip)

    def governing(of: Client) -> list[object]:
        return [(each.key, each.limit, each.level, each.entity, each.shadows) for each in reach.resolve(of)]

    assert governing(known) == governing(client)
    assert known._replace(ip=None) in list(reach.pairs()[1])


@given(snapshots, few_entities)
def test_the_candidates_are_all_whom_an_entity_can_govern(snapshot: QuotaSnapshot, entity: Entity) -> None:
    reach = Reach(snapshot)
    count, candidates = reach.candidates(entity)
    chosen = list(candidates)
    assert len(chosen) == count == len(set(chosen))
    every = [] if entity.ip is not None else list(reach.pairs()[1])
    found = list(reach.governed(entity, chosen))
    assert found == list(reach.governed(entity, dict.fromkeys([*chosen, *every])))


def test_the_counters_of_others_have_no_name() -> None:
    reach = Reach(
        QuotaSnapshot({Entity(user=DEFAULT, client_id=DEFAULT): {PRODUCER: 5}, Entity(user="a"): {PRODUCER: 1}})
    )
    sensors = {client: str(reach.resolve(client)[0].sensor) for client in reach.pairs()[1]}
    assert sensors == {
        Client("a", OTHER): "a:",
        Client("a", ""): "a:",
        Client(OTHER, OTHER): "<other>:<other>",
        Client(OTHER, ""): "<other>:",
    }
