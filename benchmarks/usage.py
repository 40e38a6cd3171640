"""Generates usage tables as busy clusters would write them: skewed, deterministic, in time order, and their quotas.

`write_usage`: three brokers, 2,000 users of which one makes a fifth of all requests, some 5,000 client-ids, log-normal
sizes, an hour per ten million rows; `quotas` are of bytes, on all eight levels.

`write_hour`: the same brokers in one hour however many rows there are, users by Zipf's law, thread times; under
`hour_quotas`, of bytes and of thread time, each row is charged to two counters. A `Shape` says how many users there
are, how many quotas, and in which order the rows stand.
"""

from collections.abc import Callable
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kquota.core.quotas.entity import DEFAULT, Entity
from kquota.core.quotas.quota import QuotaKey, Value
from kquota.core.quotas.snapshot import QuotaSnapshot

USERS, CLIENTS, BROKERS = 2_000, 5_000, 3
_START_MS = 1_700_000_000_000
_CHUNK = 1_000_000


Codes = dict[str, Any]
"""For each column of names the number of each row's name."""


class Shape(NamedTuple):
    """The shape of a usage table of an hour, and of the quotas for it."""

    users: int = USERS
    entities: int = 1_701
    """With quotas, three each."""
    order: str = "by time"
    """`by time`, `a file a broker` or `shuffled`."""

    @property
    def clients(self) -> int:
        """How many client-ids there are."""
        return self.users * 5 // 2


KEPT = Shape()
"""The shape of the figures that are kept."""


def write_usage(path: Path, rows: int, *, seed: int = 7) -> None:
    """Writes that many rows as Parquet, a row group per million."""
    random = np.random.default_rng(seed)

    def columns(start: int, count: int) -> tuple[Codes, Codes]:
        # 0.36 ms between requests of the cluster; Zipf-like users behind the one whale.
        time_ms = _START_MS + (np.arange(start, start + count) * 0.36).astype(np.int64)
        whale = random.random(count) < 0.2
        user = np.where(whale, 0, (random.random(count) ** 2 * (USERS - 1)).astype(np.int64) + 1)
        client = (user * 5 + random.integers(0, 5, count)) // 2 % CLIENTS
        codes = {
            "broker": random.integers(0, BROKERS, count),
            "user": user,
            "client_id": client,
            "api": (random.random(count) < 0.6).astype(np.int64),
        }
        return codes, {"time_ms": time_ms, "bytes": _sizes(random, count)}

    _write(path, rows, columns)


def write_hour(folder: Path, rows: int, shape: Shape = KEPT, *, seed: int = 13) -> None:
    """Writes that many rows of one hour as Parquet, a row group per million. The rows have thread times."""
    random = np.random.default_rng(seed)
    shares = 1 / np.arange(1, shape.users + 1) ** _ZIPF
    edges = np.cumsum(shares) / shares.sum()
    moments = random.permutation(rows) if shape.order == "shuffled" else np.arange(rows)

    def columns(start: int, count: int) -> tuple[Codes, Codes]:
        user = np.minimum(np.searchsorted(edges, random.random(count)), shape.users - 1)
        codes = {
            "broker": random.integers(0, BROKERS, count),
            "user": user,
            # Four applications a user, which some users share.
            "client_id": (user * 2 + random.integers(0, 4, count)) % shape.clients,
            "api": (random.random(count) < 0.6).astype(np.int64),
        }
        nanos = np.clip(random.lognormal(12.0, 0.8, count), 1e4, 1e8).astype(np.int64)
        time_ms = _START_MS + moments[start : start + count] * 3_600_000 // rows
        return codes, {"time_ms": time_ms, "bytes": _sizes(random, count), "request_time_ns": nanos}

    files = range(BROKERS) if shape.order == "a file a broker" else [None]
    for broker in files:
        random = np.random.default_rng(seed)
        _write(folder / f"usage-{broker or 0}.parquet", rows, columns, shape.users, shape.clients, broker)


_ZIPF = 1.1
"""The exponent of Zipf's law: the first user makes a sixth of all requests."""


def _sizes(random: np.random.Generator, count: int) -> Any:
    return np.clip(random.lognormal(9.0, 1.0, count), 64, 1 << 20).astype(np.int64)


def _write(
    path: Path,
    rows: int,
    columns: Callable[[int, int], tuple[Codes, Codes]],
    users: int = USERS,
    clients: int = CLIENTS,
    broker: int | None = None,
) -> None:
    """Writes the rows, or those of one broker, in chunks.

    `columns` gives codes of names and numbers of the rows from `start` on.
    """
    names = {
        "broker": [f"broker-{number}" for number in range(BROKERS)],
        "user": [f"user-{number:04}" for number in range(users)],
        "client_id": [f"app-{number:04}" for number in range(clients)],
        "api": ["produce", "fetch"],
    }
    with ExitStack() as opened:
        writer: Any = None
        for start in range(0, rows, _CHUNK):
            codes, numbers = columns(start, min(_CHUNK, rows - start))
            table = pa.table(
                {name: pa.DictionaryArray.from_arrays(codes[name], names[name]).cast(pa.string()) for name in names}
                | {name: pa.array(column) for name, column in numbers.items()}
            )
            if broker is not None:
                table = table.filter(pa.array(codes["broker"] == broker))
            if writer is None:
                writer = opened.enter_context(pq.ParquetWriter(path, table.schema, compression="zstd"))
            writer.write_table(table, row_group_size=_CHUNK)


def quotas(*, seed: int = 11) -> QuotaSnapshot:
    """Some 3,000 quotas on all eight levels, near what the generated clients use."""
    random = np.random.default_rng(seed)
    entities = [
        Entity(user=DEFAULT),
        Entity(client_id=DEFAULT),
        Entity(user=DEFAULT, client_id=DEFAULT),
        *(Entity(user=f"user-{number:04}") for number in range(0, USERS, 2)),
        *(Entity(client_id=f"app-{number:04}") for number in range(0, CLIENTS, 10)),
        *(Entity(user=f"user-{number:04}", client_id=f"app-{number * 5 // 2 % CLIENTS:04}") for number in range(1000)),
        *(Entity(user=f"user-{number:04}", client_id=DEFAULT) for number in range(1, USERS, 8)),
        *(Entity(user=DEFAULT, client_id=f"app-{number:04}") for number in range(5, CLIENTS, 20)),
    ]

    def values() -> dict[QuotaKey, Value]:
        return {
            key: int(random.integers(2_000, 40_000))
            for key in (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE)
        }

    return QuotaSnapshot({entity: values() for entity in entities})


def hour_quotas(rows: int, shape: Shape = KEPT, *, seed: int = 17) -> QuotaSnapshot:
    """Quotas of users, of client-ids and of pairs for `write_hour` of that many rows.

    Each entity limits the bytes and the thread time, near what its clients use on a broker.
    """
    random = np.random.default_rng(seed)
    users = [f"user-{number:04}" for number in range(shape.users)]
    pairs = (
        Entity(user=user, client_id=f"app-{(number * 2 + own) % shape.clients:04}")
        for own in range(4)
        for number, user in enumerate(users)
    )
    entities = chain([Entity(user=DEFAULT)], (Entity(user=user) for user in users[::2]), pairs)
    rate = rows / 3600 / BROKERS / shape.users  # requests a second of the mean user on a broker

    def values() -> dict[QuotaKey, Value]:
        bytes_, percent = rate * 13_000, rate * 0.022
        return {
            QuotaKey.PRODUCER_BYTE_RATE: int(bytes_ * random.uniform(0.2, 4)) + 1,
            QuotaKey.CONSUMER_BYTE_RATE: int(bytes_ * random.uniform(0.2, 4)) + 1,
            QuotaKey.REQUEST_PERCENTAGE: max(round(percent * random.uniform(0.2, 4), 6), 1e-6),
        }

    return QuotaSnapshot({entity: values() for entity in islice(entities, shape.entities)})
