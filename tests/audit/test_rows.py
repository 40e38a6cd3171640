"""The columns that predictions are made of."""

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kquota.audit.evidence.clients import _quantiles
from kquota.audit.evidence.rows import Rows

FIELDS = ("time", "size", "connection", "throttle", "detail")


def listed(rows: Rows) -> list[list[int]]:
    return [getattr(rows, name).tolist() for name in FIELDS]


@given(st.lists(st.integers(-5, 10**12), min_size=1, max_size=300))
def test_quantiles_of_gaps_are_those_of_numpy(values: list[int]) -> None:
    gaps, shares = np.array(values, np.int64), (0.05, 0.1, 0.5, 0.95)
    assert _quantiles(gaps, *shares) == [float(np.quantile(gaps, share)) for share in shares]


def test_rows_go_from_one_process_to_another() -> None:
    rows = Rows(*(np.arange(4) for _ in FIELDS)).take(slice(1, 3))
    assert listed(pickle.loads(pickle.dumps(rows))) == [[1, 2]] * len(FIELDS)
