"""The audit's loops over rows: compiled where numba is installed, by numpy where it is not, with the same results."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from kquota.audit.batch import Int64s
from kquota.core.enforcement.kernel import jit


@cache
def _compiled() -> Any:
    """The compiled loops, or None without numba."""
    try:
        loops = (_dense_codes, _scatter, _totals, _unsorted, _client_keys)
        return tuple(jit(loop, nogil=True) for loop in loops)
    except ImportError:
        return None


def client_keys(
    kinds: Any, brokers: Int64s, broker: Any, users: Int64s, user: Any, clients: Int64s, client: Any, shift: int
) -> Int64s:
    """Per row `brokers[broker] | kinds << shift | users[user] | clients[client]`, in one go."""
    loops = _compiled()
    if loops is None:
        found: Int64s = brokers[broker] | kinds.astype(np.int64) << shift | users[user] | clients[client]
        return found
    keys = np.empty(len(kinds), np.int64)
    loops[4](kinds, brokers, broker, users, user, clients, client, shift, keys)
    return keys


def _client_keys(kinds, brokers, broker, users, user, clients, client, shift, keys):  # type: ignore[no-untyped-def]
    for row in range(len(keys)):
        keys[row] = brokers[broker[row]] | np.int64(kinds[row]) << shift | users[user[row]] | clients[client[row]]


def dense_codes(keys: Int64s) -> tuple[Any, Int64s]:
    """(code per row, distinct keys): `distinct[codes] == keys`."""
    loops = _compiled()
    if loops is None:
        distinct, codes = np.unique(keys, return_inverse=True)
        return codes.astype(np.int32), distinct
    codes = np.empty(len(keys), np.int32)
    table_size = 1 << 12
    while True:
        distinct, complete = loops[0](keys, codes, table_size)
        if complete:
            return codes, distinct
        table_size <<= 3


def _dense_codes(keys, codes, table_size):  # type: ignore[no-untyped-def]
    """Open addressing; gives up when the table is half full, so that the caller takes a larger one."""
    slots = np.full(table_size, -1, np.int32)
    distinct = np.empty(table_size // 2 + 1, np.int64)
    mask = table_size - 1
    found = 0
    for row in range(len(keys)):
        key = keys[row]
        mixed = key * np.int64(-7046029254386353131)  # Fibonacci hashing: 2^64 / golden ratio
        slot = (mixed ^ (mixed >> 29)) & mask
        while True:
            code = slots[slot]
            if code < 0:
                if found > table_size // 2:
                    return distinct[:found], False
                code = found
                slots[slot] = code
                distinct[found] = key
                found += 1
                break
            if distinct[code] == key:
                break
            slot = (slot + 1) & mask
        codes[row] = code
    return distinct[:found], True


def scatter(codes: Any, rank_of: Int64s, cursor: Int64s, columns: Sequence[tuple[Any, Any]]) -> None:
    """Sorts columns, each (values, the result), by `rank_of[codes]`, stable; rows of ranks below 0 are left out.

    The next row of a rank goes to `cursor[rank]` of the result; the cursor moves on.
    """
    loops = _compiled()
    if loops is not None:
        for values, out in columns[:-1]:
            loops[1](codes, rank_of, cursor.copy(), values, out)
        loops[1](codes, rank_of, cursor, *columns[-1])
        return
    ranked = rank_of[codes]
    rows = np.argsort(ranked, kind="stable")
    rows = rows[np.count_nonzero(ranked < 0) :]
    counts = np.bincount(ranked[rows], minlength=len(cursor))
    places = np.repeat(cursor - (np.cumsum(counts) - counts), counts) + np.arange(len(rows))
    for values, out in columns:
        out[places] = values[rows]
    cursor += counts


def _scatter(codes, rank_of, cursor, values, out):  # type: ignore[no-untyped-def]
    for row in range(len(codes)):
        rank = rank_of[codes[row]]
        if rank >= 0:
            out[cursor[rank]] = values[row]
            cursor[rank] += 1


def totals(codes: Any, values: Int64s, count: int) -> tuple[Int64s, Int64s]:
    """(rows, sum of the known values) of each of so many codes."""
    rows, sums = np.zeros(count, np.int64), np.zeros(count, np.int64)
    loops = _compiled()
    if loops is None:
        np.add.at(rows, codes, 1)
        np.add.at(sums, codes, np.maximum(values, 0))
    else:
        loops[2](codes, values, rows, sums)
    return rows, sums


def _totals(codes, values, rows, sums):  # type: ignore[no-untyped-def]
    for row in range(len(codes)):
        code = codes[row]
        rows[code] += 1
        if values[row] > 0:
            sums[code] += values[row]


def unsorted(offsets: Int64s, times: Int64s) -> Any:
    """The stretches (`offsets[i]` to `offsets[i+1]`) whose times are not in order."""
    loops = _compiled()
    if loops is None:
        if len(times) < 2:
            return np.zeros(0, np.int64)
        drops = np.flatnonzero(np.diff(times) < 0) + 1
        inside = drops[~np.isin(drops, offsets)]
        return np.unique(np.searchsorted(offsets, inside, side="right") - 1)
    return np.flatnonzero(loops[3](offsets, times))


def _unsorted(offsets, times):  # type: ignore[no-untyped-def]
    flags = np.zeros(len(offsets) - 1, np.bool_)
    for segment in range(len(offsets) - 1):
        for row in range(offsets[segment] + 1, offsets[segment + 1]):
            if times[row] < times[row - 1]:
                flags[segment] = True
                break
    return flags
