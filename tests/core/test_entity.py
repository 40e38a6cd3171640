import itertools

import pytest
from hypothesis import given

from kquota.core.quotas.entity import DEFAULT, Entity, EntityType, Name
from kquota.errors import InputError, InvalidRequest
from tests.core import strategies as given_


@given(given_.entities())
def test_the_text_form_is_total_and_reads_back(entity: Entity) -> None:
    assert Entity.parse(str(entity)) == entity


@given(given_.entities(), given_.entities())
def test_two_entities_never_share_a_text_form(one: Entity, other: Entity) -> None:
    assert (str(one) == str(other)) == (one == other)


@pytest.mark.parametrize(
    ("entity", "text"),
    [
        (Entity(user="alice"), "user=alice"),
        (Entity(user=DEFAULT), "user=<default>"),
        (Entity(user="<default>"), "user=\\<default>"),
        (Entity(user="alice", client_id=DEFAULT), "user=alice,client-id=<default>"),
        (Entity(user="CN=a,OU=b"), "user=CN=a,OU=b"),
        (Entity(user="a,client-id=b"), "user=a\\,client-id=b"),
        (Entity(user="a,client=b"), "user=a\\,client=b"),
        (Entity(user="a; Users=b"), "user=a\\; Users=b"),
        (Entity(client_id="a\\b"), "client-id=a\\\\b"),
        (Entity(ip="10.0.0.1"), "ip=10.0.0.1"),
        (Entity(ip=DEFAULT), "ip=<default>"),
    ],
)
def test_text_forms(entity: Entity, text: str) -> None:
    assert str(entity) == text
    assert Entity.parse(text) == entity


@pytest.mark.parametrize(
    "text", ["", "alice", "users=alice", "user=", "user=a,client-id=", "user=a,user=b", "=a", "User=a", " user=a"]
)
def test_what_is_no_entity(text: str) -> None:
    with pytest.raises(InputError):
        Entity.parse(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("user=alice,client=app1", "user=alice,client-id=app1"),
        ("user=alice;client-id=app1", "user=alice,client-id=app1"),
        ("user=alice, client-id=app1", "user=alice,client-id=app1"),
        ("user=alice,clientid=app1", "user=alice,client-id=app1"),
        ("user=alice,client_id=app1", "user=alice,client-id=app1"),
        ("client-id=app1,users=alice", "client-id=app1,user=alice"),
        ("user=CN=a,OU=b,Client.Id=x", "user=CN=a,OU=b,client-id=x"),
    ],
)
def test_a_part_that_is_nearly_one_is_refused_with_what_is_meant(text: str, meant: str) -> None:
    """Else it would be a part of the name, and govern nobody."""
    with pytest.raises(InputError) as refused:
        Entity.parse(text)
    assert f"did you mean {meant}?" in str(refused.value)
    assert "write \\" in (refused.value.hint or "")


@pytest.mark.parametrize("text", ["ip=1.2.3.4,user=a", "user=a,client-id=b,ip=c", "client-id=<default>,ip=<default>"])
def test_an_ip_stands_alone(text: str) -> None:
    with pytest.raises(InvalidRequest):
        Entity.parse(text)


@pytest.mark.parametrize("arguments", [{"user": ""}, {"client_id": ""}, {"ip": ""}, {"user": "a", "client_id": ""}])
def test_names_are_not_empty(arguments: dict[str, str]) -> None:
    with pytest.raises(InputError):
        Entity(**arguments)


def test_the_default_is_not_its_text() -> None:
    assert Entity(user=DEFAULT) != Entity(user="<default>")
    assert len({Entity(user=DEFAULT), Entity(user="<default>"), Entity(user=DEFAULT)}) == 2


def test_the_order_for_display() -> None:
    names: list[Name] = [DEFAULT, "a", "b"]
    ordered = [
        *(Entity(user=name) for name in names),
        *(Entity(client_id=name) for name in names),
        *(Entity(user=user, client_id=client_id) for user, client_id in itertools.product(names, names)),
        *(Entity(ip=name) for name in names),
    ]
    shuffled = [*ordered[1::2], *ordered[::2]]
    assert sorted(shuffled, key=lambda entity: entity.sort_key) == ordered


@given(given_.entities())
def test_parts_types_and_names_agree(entity: Entity) -> None:
    assert {kind for kind, _ in entity.parts} == entity.types
    assert [(kind, entity.name_of(kind)) for kind in EntityType if kind in entity.types] == list(entity.parts)
