"""The columns that predictions are made of."""

from __future__ import annotations

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kquota.audit.clients import _quantiles
from kquota.audit.rows import RECORD_BYTES, Rows

FIELDS = ("time", "size", "connection", "throttle", "detail")
LARGEST = (2**63 - 1, 2**63 - 1, 2**63 - 1, 2**31 - 1, 2**15 - 1)

some_rows = st.lists(st.tuples(*(st.integers(-1, most) for most in LARGEST)), max_size=20).map(
    lambda rows: Rows(*(np.array([row[place] for row in rows], np.int64) for place in range(len(FIELDS))))
)


def listed(rows: Rows) -> list[list[int]]:
    return [getattr(rows, name).tolist() for name in FIELDS]


@given(some_rows, st.integers(0, 20), st.integers(0, 20))
def test_rows_come_back_from_the_disk(rows: Rows, start: int, count: int) -> None:
    data = rows.packed()[start * RECORD_BYTES : (start + count) * RECORD_BYTES]
    assert listed(Rows.unpacked(data)) == listed(rows.take(slice(start, start + count)))


@given(some_rows, st.integers(0, 20))
def test_pieces_are_joined_in_their_order(rows: Rows, cut: int) -> None:
    pieces = [rows.take(slice(0, cut)), rows.take(slice(cut, None))]
    assert listed(Rows.joined(pieces)) == listed(rows)
    assert listed(rows.take(np.arange(len(rows))[::-1])) == [column[::-1] for column in listed(rows)]


def test_a_copy_keeps_no_larger_column_in_memory() -> None:
    rows = Rows(*(np.arange(1000) for _ in FIELDS))
    assert all(getattr(rows.take(slice(0, 2)).copy(), name).base is None for name in FIELDS)


@given(st.lists(st.integers(-5, 10**12), min_size=1, max_size=300))
def test_quantiles_of_gaps_are_those_of_numpy(values: list[int]) -> None:
    gaps, shares = np.array(values, np.int64), (0.05, 0.1, 0.5, 0.95)
    assert _quantiles(gaps, *shares) == [float(np.quantile(gaps, share)) for share in shares]


def test_rows_go_from_one_process_to_another() -> None:
    rows = Rows(*(np.arange(4) for _ in FIELDS)).take(slice(1, 3))
    assert listed(pickle.loads(pickle.dumps(rows))) == [[1, 2]] * len(FIELDS)
