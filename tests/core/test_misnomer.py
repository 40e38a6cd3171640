import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.core.change.misnomer import doubt, misnomer, slips
from kquota.core.quotas.entity import DEFAULT, Entity, EntityType


@pytest.mark.parametrize(
    ("entity", "words"),
    [
        (Entity(user="User:alice"), ["'alice'"]),
        (Entity(user="User:"), ["''"]),
        (Entity(user="User:User:alice"), ["'User:alice'"]),
        (Entity(user="<default>"), ["--user-defaults, or user=<default>"]),
        (Entity(client_id="<default>"), ["--client-defaults, or client-id=<default>"]),
        (Entity(user="User:alice", client_id="<default>"), ["'alice'", "--client-defaults"]),
        (Entity(user=DEFAULT, client_id="<default>"), ["--client-defaults"]),
        (Entity(ip="<default>"), ["--ip-defaults"]),
    ],
)
def test_what_nobody_can_mean(entity: Entity, words: list[str]) -> None:
    reasons = [reason for kind, name in entity.parts if (reason := misnomer(kind, name)) is not None]
    assert len(reasons) == len(words)
    assert all(word in reason for word, reason in zip(words, reasons, strict=True))


@pytest.mark.parametrize(
    "entity",
    [
        Entity(user=DEFAULT, client_id=DEFAULT),
        Entity(client_id="User:alice"),
        *(Entity(user=name) for name in ("user:alice", "User", "aUser:b", "CN=<default>,O=a", "*.a.com")),
        *(
            Entity(user=name)
            for name in ("CN=a,OU=b", "CN=Smith\\, John,OU=b", "CN=a, OU=b", "1.2.3=a,OU=b", "a b", "zoë")
        ),
        *(Entity(client_id=name) for name in ("app-1", "a=b", "defaults-2", "a*", "x:y/z", "it's")),
        *(Entity(ip=name) for name in ("10.0.0.7", "fe80::1", "host.example")),
    ],
)
def test_what_somebody_may_be_called(entity: Entity) -> None:
    assert [(misnomer(*part), doubt(*part)) for part in entity.parts] == [(None, None)] * len(entity.parts)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("alice ", "blank"),
        ("\u00a0alice", "blank"),
        ("alice\u200b", "invisible"),
        ("tenant\u00a0105", r"'tenant\xa0105' has an invisible"),
        ("tenant\u00ad105", "invisible"),
        ("tenant\t105", "invisible"),
        ("*", "--user-defaults"),
        ("team-*", "no wildcard"),
        ("default", "--user-defaults"),
        ("Default", "--user-defaults"),
        ("<Default>", "--user-defaults"),
        ("bob,carol", "list"),
        ("bob;carol", "list"),
        ("'bob'", "quotes"),
        ('"bob"', "quotes"),
        ("alice,client=app1", "client-id=NAME"),
        ("alice; users=bob", "user=NAME"),
        ("CN=a,client-id=b", "client-id=NAME"),
    ],
)
def test_what_looks_like_a_slip(name: str, word: str) -> None:
    assert word in (doubt(EntityType.USER, name) or "")


def test_what_is_no_whole_address() -> None:
    doubts = {"10.0.0.0/24": "network", "10.0.0.256": "above 255", "10.7": "10.0.0.7", "167772167": "10.0.0.7"}
    for name, word in (doubts | {"010.0.0.7": "10.0.0.7"}).items():
        assert word in (doubt(EntityType.IP, name) or "")


@given(st.sampled_from(EntityType), st.text(min_size=1))
def test_only_those_two_kinds_of_names(entity_type: EntityType, name: str) -> None:
    expected = name == "<default>" or (entity_type is EntityType.USER and name.startswith("User:"))
    assert (misnomer(entity_type, name) is not None) == expected


@pytest.mark.parametrize("slip", ["alcie", "alic", "allice", "aliceb", "alise", "Alice", "ALICE", "aliec"])
def test_a_name_that_is_nearly_one_other(slip: str) -> None:
    """Also as a part of a name, with other digits behind it, and among thousands."""
    for name in ("{}", "team-{}", "{}-7"):
        one, other = name.format("alice"), name.format(slip)
        assert slips([one, other, "carol", *(f"tenant-{number:04}" for number in range(5000))]) == {
            one: other,
            other: one,
        }
    assert slips(["alice-17", f"{slip}-42", "alice-18"]) == {f"{slip}-42": "alice-17"}
    assert slips(["alice-17", f"{slip}-18", "alice-18"]) == {f"{slip}-18": "alice-18"}


@pytest.mark.parametrize(
    "names",
    [
        "app-1 app-2 app-10 tenant-017 tenant-018 v1 v2",
        "svc-eu svc-us prod prop test rest orders-de orders-dk team-a team-b app api",
        "payments-consumer payments-producer orders-reader orders-writer north-orders south-orders",
        "alice alise alicia malice",
        "alice bob-alcie",
        "",
    ],
)
def test_neighbours_are_no_slips(names: str) -> None:
    """Numbers, codes, other words, and more than two names that are alike."""
    assert slips(names.split()) == {}


@given(st.lists(st.text("abcde-12", min_size=1), unique=True, max_size=12))
def test_a_slip_is_mutual(names: list[str]) -> None:
    """But in the larger family of numbered names."""
    near = slips(names)
    assert near.keys() | set(near.values()) <= set(names)
    assert all(near.get(other, name) == name != other for name, other in near.items())
