"""The filter semantics as three Kafka servers answered alike (KIP-546)."""

import pytest

from kquota.core.quotas.entity import DEFAULT, Entity, EntityType
from kquota.core.quotas.filter import ANY, Match, QuotaFilter

ENTITIES = {
    "u1": Entity(user="u1"),
    "dU": Entity(user=DEFAULT),
    "c1": Entity(client_id="c1"),
    "dC": Entity(client_id=DEFAULT),
    "u1+c1": Entity(user="u1", client_id="c1"),
    "u1+dC": Entity(user="u1", client_id=DEFAULT),
    "dU+c1": Entity(user=DEFAULT, client_id="c1"),
    "dU+dC": Entity(user=DEFAULT, client_id=DEFAULT),
    "u2+c2": Entity(user="u2", client_id="c2"),
    "ip": Entity(ip="127.0.0.1"),
    "dIP": Entity(ip=DEFAULT),
}
PAIRS = "u1+c1 u1+dC dU+c1 dU+dC u2+c2"
USER, CLIENT, IP = EntityType.USER, EntityType.CLIENT_ID, EntityType.IP
TABLE: list[tuple[dict[EntityType, Match], str, str]] = [
    ({}, "", " ".join(ENTITIES)),
    ({USER: "u1"}, "u1", "u1 u1+c1 u1+dC"),
    ({USER: DEFAULT}, "dU", "dU dU+c1 dU+dC"),
    ({USER: ANY}, "u1 dU", f"u1 dU {PAIRS}"),
    ({CLIENT: "c1"}, "c1", "c1 u1+c1 dU+c1"),
    ({CLIENT: DEFAULT}, "dC", "dC u1+dC dU+dC"),
    ({CLIENT: ANY}, "c1 dC", f"c1 dC {PAIRS}"),
    ({USER: "u1", CLIENT: "c1"}, "u1+c1", "u1+c1"),
    ({USER: "u1", CLIENT: ANY}, "u1+c1 u1+dC", "u1+c1 u1+dC"),
    ({USER: ANY, CLIENT: "c1"}, "u1+c1 dU+c1", "u1+c1 dU+c1"),
    ({USER: ANY, CLIENT: ANY}, PAIRS, PAIRS),
    ({USER: DEFAULT, CLIENT: ANY}, "dU+c1 dU+dC", "dU+c1 dU+dC"),
    ({USER: DEFAULT, CLIENT: DEFAULT}, "dU+dC", "dU+dC"),
    ({IP: "127.0.0.1"}, "ip", "ip"),
    ({IP: DEFAULT}, "dIP", "dIP"),
    ({IP: ANY}, "ip dIP", "ip dIP"),
    ({USER: "<default>"}, "", ""),  # the literal name, not the default
]


@pytest.mark.parametrize(("components", "strict", "loose"), TABLE)
def test_the_table(components: dict[EntityType, Match], strict: str, loose: str) -> None:
    for is_strict, expected in ((True, strict), (False, loose)):
        filter = QuotaFilter(components, is_strict)
        matched = [name for name, entity in ENTITIES.items() if filter.matches(entity)]
        assert sorted(matched) == sorted(expected.split())


@pytest.mark.parametrize("entity", ENTITIES.values(), ids=str)
def test_the_one_entity_of_an_exact_filter(entity: Entity) -> None:
    components: dict[EntityType, Match] = dict(entity.parts)
    assert QuotaFilter(components, strict=True).exact == entity
    assert QuotaFilter(components, strict=False).exact is None


def test_filters_that_are_not_exact() -> None:
    assert QuotaFilter({}, strict=True).exact is None
    assert QuotaFilter({USER: ANY}, strict=True).exact is None
    assert QuotaFilter({USER: "a", CLIENT: ANY}, strict=True).exact is None
