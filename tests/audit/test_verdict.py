"""Who is charged together with whom: counters are found by their tags as a look at each of them finds them."""

from hypothesis import given
from hypothesis import strategies as st

from kquota.core.resolve.resolver import Sensors

TAGS = st.tuples(st.sampled_from(["", "alice", "bob"]), st.sampled_from(["", "app", "batch"]))


@given(st.lists(TAGS, max_size=4), TAGS)
def test_sensors_by_their_tags(known: list[tuple[str, str]], asked: tuple[str, str]) -> None:
    """An empty tag of a counter is that of all; an empty tag that is asked for may be any."""
    sensors = Sensors()
    for user, client_id in known:
        sensors.add(f"{user}:{client_id}")

    assert sensors.hold(*asked) == any(
        all(not tag or tag == own for tag, own in zip(tags, asked, strict=True)) for tags in known
    )
    assert sensors.meet(*asked) == any(
        all(not one or not two or one == two for one, two in zip(tags, asked, strict=True)) for tags in known
    )
