from hypothesis import given
from hypothesis import strategies as st

from kquota import Entity, QuotaKey, QuotaSnapshot
from kquota.core.quotas.snapshot import Values
from tests.core import strategies as given_

values = st.dictionaries(given_.keys, st.integers(1, 9))


@given(st.dictionaries(given_.entities(), values))
def test_entities_and_keys_are_in_order_and_none_is_empty(quotas: dict[Entity, Values]) -> None:
    snapshot = QuotaSnapshot(quotas)

    assert dict(snapshot) == {entity: held for entity, held in quotas.items() if held}
    assert list(snapshot) == sorted(snapshot, key=lambda entity: entity.sort_key)
    for held in snapshot.values():
        assert list(held) == [key for key in QuotaKey if key in held]


@given(st.lists(given_.entities(), unique=True), values)
def test_values_that_entities_share_are_a_copy(entities: list[Entity], held: dict[QuotaKey, int]) -> None:
    """Whoever changes the mapping that the snapshot was made from does not change the snapshot."""
    before = QuotaSnapshot({entity: dict(held) for entity in entities})
    snapshot = QuotaSnapshot(dict.fromkeys(entities, held))
    held[QuotaKey.PRODUCER_BYTE_RATE] = 10

    assert snapshot == before
