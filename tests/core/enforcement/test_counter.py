"""A counter is a value: written to bytes at any moment, it goes on from them as if nothing had happened."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota.core.enforcement import Generation, Kernel, Kind, QuotaWindows, kernel
from kquota.core.enforcement.counter import Counters, from_bytes, to_bytes
from kquota.errors import InputError
from tests.core.enforcement import strategies as given_
from tests.support.compiled import modes

PLAIN, *COMPILED = (kernel(mode) for mode in modes())
LIMITS = {Kind.REQUEST: 2.5, Kind.MUTATION: 3.7, Kind.PERMISSIVE: 3.7, Kind.CONNECTION: 4.0}
ROWS = [*Kind, Kind.PRODUCE]
"""A counter of each kind, and one that nothing is charged to."""
steps = st.tuples(
    st.sampled_from(list(Kind)),
    st.one_of(given_.gaps, st.sampled_from([3_600_000, 3_600_001])),
    given_.sizes,
    st.sampled_from([None, None, None, PLAIN, *COMPILED]),
)


def rows(counters: Counters) -> list[list[float]]:
    return [list(row) for table in (counters.ints, counters.floats) for row in table]


@settings(deadline=None)
@given(
    st.lists(steps, max_size=60),
    given_.windows,
    given_.windows,
    given_.generations,
    st.sampled_from([PLAIN, *COMPILED]),
)
def test_counters_go_on_from_their_bytes(
    events: list[tuple[Kind, int, int, Kernel | None]],
    windows: QuotaWindows,
    controller: QuotaWindows,
    generation: Generation,
    using: Kernel,
) -> None:
    """Cut at any points, and taken up by either kernel."""
    whole = using.new_counters(len(ROWS), windows, generation, controller)
    cut, other = using.new_counters(len(ROWS), windows, generation, controller), using
    now = given_.START
    for kind, gap, size, at in events:
        now += gap
        value = float(size % 50 if kind >= Kind.MUTATION else 1 if kind is Kind.CONNECTION else size)
        limit = LIMITS.get(kind, 500.0)
        if at is not None:
            cut, other = from_bytes(to_bytes(cut), at.table), at
        expected = using.charge_counter(using.counter_of(whole, kind, kind), kind, now, value, limit)
        assert other.charge_counter(other.counter_of(cut, kind, kind), kind, now, value, limit) == expected
    assert to_bytes(cut) == to_bytes(whole)
    assert rows(from_bytes(to_bytes(whole), PLAIN.table)) == rows(whole)
    assert from_bytes(to_bytes(whole), using.table)[:6] == whole[:6]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not the counters of a broker"),
        (b"kqct", "not the counters of a broker"),
        (b"x" * 200, "not the counters of a broker"),
        (None, "of version 9; this kquota reads version 2"),
        (-1, "cut off"),
        (1, "cut off"),
    ],
)
def test_other_bytes_are_refused(data: bytes | int | None, message: str) -> None:
    written = to_bytes(PLAIN.new_counters(2, QuotaWindows(), Generation.N_BY_START))
    if data is None:
        data = written[:4] + (9).to_bytes(2, "little") + written[6:]
    elif isinstance(data, int):
        data = written[:data] if data < 0 else written + bytes(data)
    with pytest.raises(InputError, match=message):
        from_bytes(data, PLAIN.table)


def test_no_counters_are_a_value_too() -> None:
    assert from_bytes(to_bytes(PLAIN.new_counters(0, QuotaWindows(), Generation.N_BY_START)), PLAIN.table).ints == []
