"""Snapshots whose entities meet: few names, so that levels shadow one another."""

from hypothesis import strategies as st

from kquota.core.quotas.entity import DEFAULT, Entity, Name
from kquota.core.quotas.quota import QuotaKey, Value
from kquota.core.quotas.snapshot import QuotaSnapshot

few_names: st.SearchStrategy[Name] = st.sampled_from([DEFAULT, "a", "b", "c d"])
entities = st.one_of(
    st.builds(lambda user: Entity(user=user), few_names),
    st.builds(lambda client_id: Entity(client_id=client_id), few_names),
    st.builds(lambda user, client_id: Entity(user=user, client_id=client_id), few_names, few_names),
    st.builds(lambda ip: Entity(ip=ip), st.sampled_from([DEFAULT, "10.0.0.1", "10.0.0.2"])),
)


def values_of(entity: Entity) -> st.SearchStrategy[dict[QuotaKey, Value]]:
    """Values that the entity can carry, maybe none."""
    value: st.SearchStrategy[Value] = st.integers(1, 3)
    allowed = {key: value for key in QuotaKey if key.allowed_for(entity)}
    return st.fixed_dictionaries({}, optional=allowed)


snapshots: st.SearchStrategy[QuotaSnapshot] = st.lists(entities, unique=True, max_size=8).flatmap(
    lambda chosen: st.fixed_dictionaries({entity: values_of(entity) for entity in chosen}).map(QuotaSnapshot)
)
