"""Entities, values and quotas for the tests of the core."""

from hypothesis import strategies as st

from kquota.core.quotas.entity import DEFAULT, Entity, Name
from kquota.core.quotas.quota import QuotaKey, Value, held
from kquota.core.quotas.snapshot import QuotaSnapshot

# Names that the text form has to escape, and any other text.
tricky = st.sampled_from(
    ["<default>", "\\<default>", "a,user=b", ",client-id=", "\\", "a\\,ip=1", "CN=a,OU=b", " ", "é~*"]
)
texts = st.one_of(tricky, st.text(st.characters(codec="utf-8"), min_size=1), st.text("\\,=<>uiserp", min_size=1))
names: st.SearchStrategy[Name] = st.one_of(st.just(DEFAULT), texts)


def entities(names: st.SearchStrategy[Name] = names) -> st.SearchStrategy[Entity]:
    """All ten shapes."""
    return st.one_of(
        st.builds(lambda user: Entity(user=user), names),
        st.builds(lambda client_id: Entity(client_id=client_id), names),
        st.builds(lambda user, client_id: Entity(user=user, client_id=client_id), names, names),
        st.builds(lambda ip: Entity(ip=ip), names),
    )


def values(key: QuotaKey) -> st.SearchStrategy[Value]:
    maximum = key.value_type.maximum
    if maximum is not None:
        return st.integers(1, maximum).map(held)
    return st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_nan=False)


keys = st.sampled_from(QuotaKey)
keys_and_values = keys.flatmap(lambda key: st.tuples(st.just(key), values(key)))
few_names: st.SearchStrategy[Name] = st.sampled_from([DEFAULT, "a", "b", "c d"])
few_entities = st.one_of(
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


snapshots: st.SearchStrategy[QuotaSnapshot] = st.lists(few_entities, unique=True, max_size=8).flatmap(
    lambda chosen: st.fixed_dictionaries({entity: values_of(entity) for entity in chosen}).map(QuotaSnapshot)
)
