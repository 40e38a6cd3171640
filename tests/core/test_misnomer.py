from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kquota.core.alteration import Alteration
from kquota.core.entity import DEFAULT, Entity, EntityType
from kquota.core.misnomer import misnomer, misnomers
from kquota.core.quota import QuotaKey

RATE = {QuotaKey.PRODUCER_BYTE_RATE: 1}


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
    ],
)
def test_what_nobody_can_mean(entity: Entity, words: list[str]) -> None:
    reasons = misnomers(Alteration(entity, RATE))
    assert len(reasons) == len(words)
    assert all(word in reason for word, reason in zip(words, reasons, strict=True))
    assert misnomers(Alteration(entity, remove=frozenset(RATE))) == ()


def test_an_ip_too() -> None:
    reasons = misnomers(Alteration(Entity(ip="<default>"), {QuotaKey.CONNECTION_CREATION_RATE: 1}))
    assert [reason for reason in reasons if "--ip-defaults" in reason] == list(reasons) != []


@pytest.mark.parametrize(
    "entity",
    [
        Entity(user=DEFAULT, client_id=DEFAULT),
        Entity(client_id="User:alice"),
        *(Entity(user=name) for name in ("user:alice", "User", "aUser:b", "default", "<Default>", "CN=<default>,O=a")),
    ],
)
def test_what_somebody_may_be_called(entity: Entity) -> None:
    assert misnomers(Alteration(entity, RATE)) == ()


@given(st.sampled_from(EntityType), st.text(min_size=1))
def test_only_those_two_kinds_of_names(entity_type: EntityType, name: str) -> None:
    expected = name == "<default>" or (entity_type is EntityType.USER and name.startswith("User:"))
    assert (misnomer(entity_type, name) is not None) == expected
