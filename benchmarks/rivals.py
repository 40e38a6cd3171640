"""The audit of a usage table as one would write it with DuckDB or Polars: resolve by joins, sort, then the same kernel.

Byte rates only, as the benchmark's quotas are. Each client is resolved once and joined to its rows; rows of one moment
stay in the order of the file.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from kquota.core.enforcement.generation import Generation, QuotaWindows
from kquota.core.enforcement.kernel import Mode, kernel
from kquota.core.enforcement.kind import FETCH, PRODUCE
from kquota.core.enforcement.replay import Events
from kquota.core.quotas.entity import DEFAULT
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot

_APIS = {QuotaKey.PRODUCER_BYTE_RATE: "produce", QuotaKey.CONSUMER_BYTE_RATE: "fetch"}
_LEVELS = (("u", "c"), ("u", "*"), ("u", ""), ("*", "c"), ("*", "*"), ("*", ""), ("", "c"), ("", "*"))
"""What of user and client-id a level names: the name itself, the default, or nothing (KIP-55)."""


def quota_table(quotas: QuotaSnapshot) -> pa.Table:
    """api, user, client_id, value; the default is `*`, what an entity does not name is empty."""

    def name(part: object) -> str:
        return "*" if part is DEFAULT else str(part or "")

    rows = [
        {"api": _APIS[key], "user": name(entity.user), "client_id": name(entity.client_id), "value": float(value)}
        for entity, values in quotas.items()
        for key, value in values.items()
        if key in _APIS
    ]
    return pa.Table.from_pylist(rows)


def duckdb_audit(path: Path, quotas: QuotaSnapshot) -> tuple[int, int]:
    """(throttled events, throttle time in ms) by DuckDB."""
    import duckdb

    connection = duckdb.connect()
    connection.execute("set threads to 2")
    connection.register("quotas", quota_table(quotas))
    joins, limits, users, clients = [], [], [], []
    for number, (user, client) in enumerate(_LEVELS):
        on = [f"q{number}.api = p.api"]
        on.append(f"q{number}.user = " + ("p.user" if user == "u" else f"'{user}'"))
        on.append(f"q{number}.client_id = " + ("p.client_id" if client == "c" else f"'{client}'"))
        joins.append(f"left join quotas q{number} on {' and '.join(on)}")
        limits.append(f"q{number}.value")
        users.append(f"when q{number}.value is not null then {'p.user' if user else repr('')}")
        clients.append(f"when q{number}.value is not null then {'p.client_id' if client else repr('')}")
    query = f"""
        with usage as (select *, file_row_number as place from read_parquet('{path}', file_row_number = true)),
        p as (select distinct api, user, client_id from usage),
        resolved as (
            select p.*, coalesce({", ".join(limits)}) as limit_, case {" ".join(users)} end as sensor_user,
                case {" ".join(clients)} end as sensor_client
            from p {" ".join(joins)}
        ),
        numbered as (
            select *, dense_rank() over (order by api, sensor_user, sensor_client) as sensor
            from resolved where limit_ is not null
        ),
        brokers as (
            select broker, row_number() over (order by broker) as number from (select distinct broker from usage)
        )
        select n.sensor * 4096 + b.number as counter, u.time_ms, u.bytes, n.api = 'fetch' as fetched, n.limit_
        from usage u
            join numbered n on u.api = n.api and u.user = n.user and u.client_id = n.client_id
            join brokers b on u.broker = b.broker
        order by counter, u.time_ms, u.place
    """
    found = connection.execute(query).fetchnumpy()
    return _replay(*(found[name] for name in ("counter", "time_ms", "bytes", "fetched", "limit_")))


def polars_audit(path: Path, quotas: QuotaSnapshot) -> tuple[int, int]:
    """(throttled events, throttle time in ms) by Polars."""
    import polars as pl

    usage = pl.scan_parquet(path)
    names = ["api", "user", "client_id"]
    clients: Any = usage.select(names).unique().collect()
    table = pl.from_arrow(quota_table(quotas))
    for number, (user, client) in enumerate(_LEVELS):
        level = table.rename({"value": f"value{number}"})
        for column, by, own in (("user", user, "u"), ("client_id", client, "c")):
            if by != own:
                level = level.filter(pl.col(column) == by).drop(column)
            else:
                level = level.filter(~pl.col(column).is_in(["", "*"]))
        on = [name for name in names if name in level.columns]
        clients = clients.join(level, on=on, how="left")
    values = [f"value{number}" for number in range(len(_LEVELS))]
    level_of = pl.coalesce(
        *(pl.when(pl.col(name).is_not_null()).then(number) for number, name in enumerate(values))
    ).alias("level")
    resolved = (
        clients.with_columns(pl.coalesce(values).alias("limit_"), level_of)
        .filter(pl.col("limit_").is_not_null())
        .with_columns(
            pl.when(pl.col("level").is_in([6, 7])).then(pl.lit("")).otherwise(pl.col("user")).alias("sensor_user"),
            pl.when(pl.col("level").is_in([2, 5]))
            .then(pl.lit(""))
            .otherwise(pl.col("client_id"))
            .alias("sensor_client"),
        )
        .with_columns(pl.struct("api", "sensor_user", "sensor_client").rank("dense").cast(pl.Int64).alias("sensor"))
        .select(*names, "sensor", "limit_")
    )
    brokers = usage.select("broker").unique().collect().with_row_index("number")
    rows = (
        usage.join(resolved.lazy(), on=names, maintain_order="left")
        .join(brokers.lazy(), on="broker", maintain_order="left")
        .select(
            (pl.col("sensor") * 4096 + pl.col("number")).alias("counter"),
            "time_ms",
            "bytes",
            (pl.col("api") == "fetch").alias("fetched"),
            "limit_",
        )
        .sort("counter", "time_ms", maintain_order=True)
        .collect()
    )
    return _replay(*(rows[name].to_numpy() for name in ("counter", "time_ms", "bytes", "fetched", "limit_")))


def _replay(counter: Any, time_ms: Any, size: Any, fetched: Any, limit: Any) -> tuple[int, int]:
    starts = np.flatnonzero(np.concatenate([[True], np.diff(counter) != 0]))
    count = len(starts)
    windows, generation = QuotaWindows(), Generation.N_PLUS_1_BY_LAST
    using = kernel(Mode.COMPILED)
    summaries = using.new_summaries(count)
    column: Any = using.column
    events = Events(
        column(np.arange(count), "int64"),
        column(np.where(fetched[starts], FETCH, PRODUCE), "int8"),
        column(limit[starts], "float64"),
        column(np.append(starts, len(counter)), "int64"),
        column(time_ms, "int64"),
        column(size, "float64"),
    )
    met = (column(np.zeros(len(counter), kind), kind) for kind in ("int64", "float64", "bool"))
    every = column([], "bool"), column([], "float64")
    using.replay_many(using.new_counters(count, windows, generation), events, summaries, *every, *met)
    return int(np.sum(summaries.throttled)), int(np.sum(summaries.total_ms))
