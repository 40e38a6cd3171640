"""What the enforcement is tried with."""

from hypothesis import strategies as st

from kquota.core.enforcement import Generation, QuotaWindows

START = 1_700_000_000_000
generations = st.sampled_from(list(Generation))
windows = st.builds(QuotaWindows, st.sampled_from([1, 2, 3, 5, 11]), st.sampled_from([1, 2, 10]))
byte_limits = st.sampled_from([None, 0, 1, 2, 333.333, 500, 1000, 10_000_000])
request_limits = st.sampled_from([None, 0, 0.01, 1, 2.5, 50])
# Edges of a window, and silences longer than all windows; now and then a clock that is set back.
gaps = st.one_of(
    st.integers(0, 50), st.integers(0, 3000), st.sampled_from([999, 1000, 1001, 10_999, 11_000, 40_000, -5])
)
sizes = st.one_of(st.integers(0, 3000), st.integers(0, 50_000_000))
nanos = st.integers(0, 2_000_000_000)


def times(gap_list: list[int]) -> list[int]:
    """Epoch ms after each gap."""
    now = START
    out = []
    for gap in gap_list:
        now += gap
        out.append(now)
    return out
