"""The audit's loops over rows: compiled where numba is installed; without numba the same code runs plain and slower.

Measured with numba, in ns a row: keys 4 (numpy 20), distinct keys 3 to 6 (Arrow 9 to 15), totals 2 (numpy 19).
"""

from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any

import numpy as np

from kquota.audit.batch import Int64s
from kquota.core.enforcement.kernel import is_kept, is_worth, jit

_PLAIN_S, _COMPILING_S = 1e-6, 0.3
"""How long a row takes uncompiled, at the least; and compiling one of the loops."""


def _compiled(loop: Callable[..., Any]) -> Callable[..., Any]:
    """The loop, compiled when this process has enough rows for it."""

    rows = 0

    @cache
    def made() -> Any:
        try:
            return jit(loop, nogil=True)
        except ImportError:
            return loop

    @wraps(loop)
    def run(*arguments: Any) -> Any:
        nonlocal rows
        rows += len(arguments[0])
        return (made() if is_worth(rows * _PLAIN_S, _COMPILING_S, lambda: is_kept(made())) else loop)(*arguments)

    return run


@_compiled
def client_keys(
    kinds: Any, brokers: Int64s, broker: Any, users: Int64s, user: Any, clients: Int64s, client: Any, shift: int
) -> Int64s:
    """Per row `brokers[broker] | kinds << shift | users[user] | clients[client]`, in one go."""
    keys = np.empty(len(kinds), np.int64)
    for row in range(len(keys)):
        keys[row] = brokers[broker[row]] | np.int64(kinds[row]) << shift | users[user[row]] | clients[client[row]]
    return keys


def dense_codes(keys: Int64s) -> tuple[Any, Int64s]:
    """(code per row, distinct keys): `distinct[codes] == keys`."""
    codes = np.empty(len(keys), np.int32)
    table_size = 1 << 12
    while True:
        with np.errstate(over="ignore"):
            distinct, complete = _dense_codes(keys, codes, table_size)
        if complete:
            return codes, distinct
        table_size <<= 3


@_compiled
def _dense_codes(keys: Int64s, codes: Any, table_size: int) -> tuple[Int64s, bool]:
    """Open addressing; gives up when the table is half full, so that the caller takes a larger one."""
    slots = np.full(table_size, -1, np.int32)
    distinct = np.empty(table_size // 2 + 1, np.int64)
    mask = table_size - 1
    count = 0
    for row in range(len(keys)):
        key = keys[row]
        mixed = key * np.int64(-7046029254386353131)  # Fibonacci hashing: 2^64 / golden ratio
        slot = (mixed ^ (mixed >> 29)) & mask
        while True:
            code = slots[slot]
            if code < 0:
                if count > table_size // 2:
                    return distinct[:count], False
                code = count
                slots[slot] = code
                distinct[count] = key
                count += 1
                break
            if distinct[code] == key:
                break
            slot = (slot + 1) & mask
        codes[row] = code
    return distinct[:count], True


def scatter(codes: Any, rank_of: Int64s, cursor: Int64s, columns: Sequence[tuple[Any, Any]]) -> None:
    """Sorts columns, each (values, the result), by `rank_of[codes]`, stable.

    The next row of a rank goes to `cursor[rank]` of the result; the cursor moves on.
    """
    places = _places(codes, rank_of, cursor)
    for values, out in columns:
        _put(places, values, out)


@_compiled
def _places(codes: Any, rank_of: Int64s, cursor: Int64s) -> Int64s:
    places = np.empty(len(codes), np.int64)
    for row in range(len(codes)):
        rank = rank_of[codes[row]]
        places[row] = cursor[rank]
        cursor[rank] += 1
    return places


@_compiled
def _put(places: Int64s, values: Any, out: Any) -> None:
    for row in range(len(places)):
        out[places[row]] = values[row]


@_compiled
def totals(codes: Any, values: Int64s, count: int) -> tuple[Int64s, Int64s]:
    """(rows, sum of the known values) of each of so many codes."""
    rows, sums = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for row in range(len(codes)):
        code = codes[row]
        rows[code] += 1
        if values[row] > 0:
            sums[code] += values[row]
    return rows, sums
