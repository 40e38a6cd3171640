"""Generates a usage table as a busy cluster would write it: skewed, deterministic, in time order.

Three brokers, 2,000 users of which one makes a fifth of all requests, some 5,000 client-ids, log-normal sizes, an hour
per ten million rows; and quotas on all eight levels.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kquota.core.quotas.entity import DEFAULT, Entity
from kquota.core.quotas.quota import QuotaKey, Value
from kquota.core.quotas.snapshot import QuotaSnapshot

USERS, CLIENTS, BROKERS = 2_000, 5_000, 3
_START_MS = 1_700_000_000_000
_CHUNK = 1_000_000


def write_usage(path: Path, rows: int, *, seed: int = 7) -> None:
    """Writes that many rows as Parquet, a row group per million."""
    random = np.random.default_rng(seed)
    names = {
        "broker": [f"broker-{number}" for number in range(BROKERS)],
        "user": [f"user-{number:04}" for number in range(USERS)],
        "client_id": [f"app-{number:04}" for number in range(CLIENTS)],
        "api": ["produce", "fetch"],
    }
    schema = pa.schema([("time_ms", pa.int64()), *((name, pa.string()) for name in names), ("bytes", pa.int64())])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for start in range(0, rows, _CHUNK):
            count = min(_CHUNK, rows - start)
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
            size = np.clip(random.lognormal(9.0, 1.0, count), 64, 1 << 20).astype(np.int64)
            columns = [
                pa.array(time_ms),
                *(pa.DictionaryArray.from_arrays(codes[name], names[name]).cast(pa.string()) for name in names),
                pa.array(size),
            ]
            writer.write_table(pa.table(columns, schema=schema), row_group_size=_CHUNK)


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
