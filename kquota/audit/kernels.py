"""The audit's loops over rows: compiled where numba is installed, by numpy where it is not, with the same results."""

from __future__ import annotations

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
        loops = (_dense_codes, _scatter, _member_totals, _place, _unsorted, _client_keys)
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
    loops[5](kinds, brokers, broker, users, user, clients, client, shift, keys)
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


def scatter(codes: Any, rank_of: Int64s, starts: Int64s, columns: Sequence[tuple[Any, Any, Any]]) -> None:
    """Sorts columns by `rank_of[codes]`, stable: each is (values, what each rank takes off them, the result).

    The rows of a rank begin at `starts[rank]` of the result; rows of ranks without a start are left out.
    """
    loops = _compiled()
    if loops is not None:
        for values, bases, out in columns:
            loops[1](codes, rank_of, starts.copy(), values, bases, out)
        return
    ranked = rank_of[codes]
    rows = np.argsort(ranked, kind="stable")
    for values, bases, out in columns:
        mine = rows[: len(out)]
        out[:] = values[mine] - bases[ranked[mine]]


def _scatter(codes, rank_of, cursor, values, bases, out):  # type: ignore[no-untyped-def]
    ranks = len(cursor)
    for row in range(len(codes)):
        rank = rank_of[codes[row]]
        if rank < ranks:
            out[cursor[rank]] = values[row] - bases[rank]
            cursor[rank] += 1


def member_totals(codes: Any, times: Int64s, values: Int64s, members: int) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """(events, sum of the known values, first time, last time) per code; each has a row."""
    first, last = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    events, sums, firsts, lasts = (np.full(members, value, np.int64) for value in (0, 0, first, last))
    loops = _compiled()
    if loops is None:
        np.add.at(events, codes, 1)
        np.add.at(sums, codes, np.maximum(values, 0))
        np.minimum.at(firsts, codes, times)
        np.maximum.at(lasts, codes, times)
    else:
        loops[2](codes, times, values, events, sums, firsts, lasts)
    return events, sums, firsts, lasts


def _member_totals(codes, times, values, events, sums, firsts, lasts):  # type: ignore[no-untyped-def]
    for row in range(len(codes)):
        code = codes[row]
        events[code] += 1
        if values[row] > 0:
            sums[code] += values[row]
        firsts[code] = min(firsts[code], times[row])
        lasts[code] = max(lasts[code], times[row])


def place(counts: Int64s, target: Int64s, cursor: Int64s, source: Any, base: int, out: Any) -> None:
    """Copies runs, and adds the base: the next `counts[i]` values of `source` go to `out` at `cursor[target[i]]`."""
    loops = _compiled()
    (loops[3] if loops is not None else _place_runs)(counts, target, cursor, source, base, out)


def _place(counts, target, cursor, source, base, out):  # type: ignore[no-untyped-def]
    read = 0
    for run in range(len(counts)):
        write = cursor[target[run]]
        for _ in range(counts[run]):
            out[write] = source[read] + base
            write += 1
            read += 1


def _place_runs(counts: Int64s, target: Int64s, cursor: Int64s, source: Any, base: int, out: Any) -> None:
    read = 0
    for count, write in zip(counts.tolist(), cursor[target].tolist(), strict=True):
        out[write : write + count] = np.add(source[read : read + count], base, dtype=out.dtype)
        read += count


def unsorted(offsets: Int64s, times: Int64s) -> Any:
    """The segments (`offsets[i]` to `offsets[i+1]`) whose times are not in order."""
    loops = _compiled()
    if loops is None:
        if len(times) < 2:
            return np.zeros(0, np.int64)
        drops = np.flatnonzero(np.diff(times) < 0) + 1
        inside = drops[~np.isin(drops, offsets)]
        return np.unique(np.searchsorted(offsets, inside, side="right") - 1)
    return np.flatnonzero(loops[4](offsets, times))


def _unsorted(offsets, times):  # type: ignore[no-untyped-def]
    flags = np.zeros(len(offsets) - 1, np.bool_)
    for segment in range(len(offsets) - 1):
        for row in range(offsets[segment] + 1, offsets[segment + 1]):
            if times[row] < times[row - 1]:
                flags[segment] = True
                break
    return flags
