"""Filters that name one entity; `tests/backends/contract.py` has which entities filters match."""

import pytest

from kquota.core.quotas.entity import Entity, EntityType
from kquota.core.quotas.selector import ANY, Match, QuotaFilter
from tests.backends.contract import KINDS

USER, CLIENT = EntityType.USER, EntityType.CLIENT_ID


@pytest.mark.parametrize("entity", KINDS, ids=str)
def test_the_one_entity_of_an_exact_filter(entity: Entity) -> None:
    components: dict[EntityType, Match] = dict(entity.parts)
    assert QuotaFilter(components, strict=True).exact == entity
    assert QuotaFilter(components, strict=False).exact is None


def test_filters_that_are_not_exact() -> None:
    assert QuotaFilter({}, strict=True).exact is None
    assert QuotaFilter({USER: ANY}, strict=True).exact is None
    assert QuotaFilter({USER: "a", CLIENT: ANY}, strict=True).exact is None
