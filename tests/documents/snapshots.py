"""Snapshots of any entities and values, for what is written and read back."""

from hypothesis import strategies as st

from kquota import DEFAULT, QuotaKey, QuotaSnapshot
from kquota.core.quotas.quota import Value, ValueType, held
from tests.core.strategies import entities

_TRICKY = (
    *("<default>", "yes", "null", "~", "12", "1e3", "0x1f", "CN=a,OU=b", "${a}", "%{a}", "$${a}", "{{ a }}", "{% a"),
    *("{# a", "--alter", "- a", "? a", "x: y", "#", "a #b", "a' are b=1", "\u0085", "\u2028", "\ufeff", "\U000e0001"),
    *("😀", "A\u030a"),
)
texts = st.one_of(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=8),
    st.text("ab-.,=:#'\"\\ {}%$[]&*!|>\n\t@`~é", min_size=1, max_size=8),
    st.sampled_from(_TRICKY),
)


def values(key: QuotaKey) -> st.SearchStrategy[Value]:
    if key.value_type is ValueType.DOUBLE:
        return st.one_of(
            st.floats(min_value=0, exclude_min=True, allow_infinity=False),
            st.integers(1, 1000).map(float),
            st.decimals(1, 1000, places=2).map(float),
        )
    largest = key.value_type.maximum
    return st.one_of(st.integers(1, largest).map(held), st.integers(1, 1000).map(lambda number: number << 10))


@st.composite
def snapshots(draw: st.DrawFn) -> QuotaSnapshot:
    """All ten shapes of entities."""
    return QuotaSnapshot(
        {
            entity: draw(
                st.fixed_dictionaries({}, optional={key: values(key) for key in QuotaKey if key.allowed_for(entity)})
            )
            for entity in draw(st.lists(entities(st.just(DEFAULT) | texts), max_size=6, unique=True))
        }
    )
