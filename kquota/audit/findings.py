"""What an audit finds: one row per counter, and an account of the data that it looked at."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kquota.core.findings.finding import ORDER, Client, Finding, Harm, Logged
from kquota.core.findings.prediction import CounterName, Prediction
from kquota.core.findings.verdicts import Verdict
from kquota.core.quotas.entity import Entity
from kquota.core.resolve.resolver import Level
from kquota.core.tabular import types

_ARROW = {str: pa.string(), int: pa.int64(), float: pa.float64(), Entity: pa.string(), Level: pa.int8()}


def _columns(kind: type, before: str = "", *, optional: bool = False) -> Iterator[pa.Field]:
    """The columns of a value's fields; those of what the brokers logged stand beside the others."""
    for name, (part, may_be_none) in types(kind).items():
        if part is Logged:
            yield from _columns(Logged, "logged_", optional=True)
        elif get_args(part):
            yield pa.field(name, pa.list_(pa.struct(_columns(get_args(part)[0]))), nullable=False)
        elif part is not Prediction:
            yield pa.field(before + name, _ARROW.get(part, pa.string()), nullable=optional or may_be_none)


SCHEMA = pa.schema(_columns(Finding))
"""The findings table, as `--out` writes it.

`level` is 1 to 8 (KIP-55), 9 for a static default. `entity`, `level` and `limit` are the last ones in a history of
quotas that changed the counter's `limit_changes` times. `limit` and `peak_rate` are in the key's unit per second and
per broker; `peak_rate`, the highest rate that a request was checked at, is a lower bound where not all is known, and
`peak_rate_max` the upper one (null where there is none). Where the simulation has the verdict, both are of its runs.
`reason` says why a counter is undetermined, or how the log denies that the quotas were in force. `throttled_*` is the
prediction (null when undetermined; topics rejected or delayed for controller_mutation_rate), `logged_*` what the
broker itself answered, null where the export does not say. `estimated_events` counts throttled fetches, whose size the
export does not hold. `rebuilt_events` counts those of them whose size follows from the data that was produced; the
others have the size of their retry. `rebuilt_share` of the delivered fetches of the same clients and partitions come
out to the byte by the same rules (null without `rebuilt_events`). `clients` are the busiest of the `client_count` that
share the counter; `value` is bytes, ns of thread time, partitions, or connections; their `throttled_events` and
`throttle_time_ms` are null unless asked for, and where the counter is undetermined; so is
`logged_throttled_events` where the export does not say.

A counter that would not have been throttled, but whose clients were while the export was recorded, is undetermined
(`evidence.verdict`): `peak_rate` is then the least that they wanted.

Where the `basis` is not `requests` but samples (`evidence.judge`), `events` counts these, and `throttled_*` is null
but for a counter that was not throttled. `first_throttled_ms` and `last_throttled_ms` are then of samples that show it,
and `logged_*` counts readings of the broker's throttle time above 0, with the longest mean. A series that adds up
several counters is one finding, under the lowest of their limits.
"""


def findings_table(columns: Mapping[str, Any], count: int) -> pa.Table:
    """The table of so many findings; a column that is missing is null in all of them."""
    arrays = [
        pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in SCHEMA
    ]
    return pa.table(arrays, schema=SCHEMA)


def free_and_silent(table: pa.Table) -> int:
    """How many counters are not throttled, of which the export does not say whether the brokers throttled them."""
    free = pc.equal(table.column("verdict"), Verdict.NOT_THROTTLED.value)
    return pc.sum(pc.and_(free, pc.is_null(table.column("logged_throttled_events")))).as_py() or 0


NAME: Final = ("broker", "key", "sensor")
"""The columns that name a counter."""
_RANKING = [*NAME, "verdict", "limit", "peak_rate", "throttle_time_max_ms", "logged_throttle_time_max_ms"]
"""The columns that decide the rank of a finding."""
ROWS_AT_ONCE = 10_000
"""Rows of a findings table that are Python values at the same time: these take several times the memory."""


def cells_of(table: pa.Table, *names: str) -> Iterator[tuple[Any, ...]]:
    """The values of those columns, row by row."""
    for rows in table.select(names).to_batches(ROWS_AT_ONCE):
        yield from zip(*(column.to_pylist() for column in rows.columns), strict=True)


class Findings(Sequence[Finding]):
    """The rows of a findings table as values, each of which is made when it is asked for.

    As values all of them would take a kilobyte each, besides the table.
    """

    def __init__(
        self, table: pa.Table, predictions: Mapping[CounterName, Prediction] | None = None, order: Any = None
    ) -> None:
        """`order` are the numbers of the rows in the order that is wanted; without it they stay as they are."""
        self._table = table
        self._predictions = predictions or {}
        self._order = np.arange(len(table)) if order is None else order

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Findings(self._table, self._predictions, self._order[index])
        place = range(len(self))[index]
        return next(iter(self[place : place + 1]))

    def __iter__(self) -> Iterator[Finding]:
        for first in range(0, len(self), ROWS_AT_ONCE):
            rows = self._table.take(self._order[first : first + ROWS_AT_ONCE])
            for row in rows.to_pylist():
                prediction = self._predictions.get((row["broker"], row["key"], row["sensor"]))
                yield _finding(row, prediction)

    def counted(self, name: str) -> Counter[Any]:
        """The values that these findings have in a column of the table, and how often."""
        values = self._table.column(name).take(self._order).value_counts()
        return Counter({pair["values"]: pair["counts"] for pair in values.to_pylist()})

    def doubtful(self) -> Findings:
        """Those that are decided, and have a reason to be doubted all the same."""
        table = self._table.select(["verdict", "reason"]).take(self._order)
        is_decided = pc.not_equal(table.column("verdict"), Verdict.UNDETERMINED.value)
        return self._where(pc.and_(is_decided, pc.is_valid(table.column("reason"))))

    def fold(self) -> tuple[Findings, Findings]:
        """(the others, those whose clients the log shows unthrottled, with ips that it shows no connection of)."""
        table = self._table.select(["events", "logged_throttled_events"]).take(self._order)
        logged = pc.fill_null(table.column("logged_throttled_events"), -1)
        unmet = pc.or_(pc.equal(logged, 0), pc.and_(pc.less(logged, 0), pc.equal(table.column("events"), 0)))
        return self._where(pc.invert(unmet)), self._where(unmet)

    def named(self, names: Collection[tuple[str, str]]) -> Findings:
        """The counters of all brokers with these keys and sensors."""
        own = cells_of(self._table.select(NAME).take(self._order), "key", "sensor")
        return self._where(np.fromiter((name in names for name in own), bool, len(self)))

    def _where(self, rows: Any) -> Findings:
        return Findings(self._table, self._predictions, self._order[np.flatnonzero(rows)])

    def ranked(self) -> Findings:
        """Throttled counters first, then undetermined counters; each group by harm, the rest by peak and name."""
        table = self._table.select(_RANKING).take(self._order)
        verdicts = pc.index_in(table.column("verdict"), pa.array([verdict.value for verdict in ORDER]))
        # Undetermined counters go by the brokers' own throttle times first.
        undetermined = pc.equal(table.column("verdict"), Verdict.UNDETERMINED.value)
        logged = pc.if_else(undetermined, pc.fill_null(table.column("logged_throttle_time_max_ms"), 0), 0)
        limits, peaks = (table.column(name).to_numpy() for name in ("limit", "peak_rate"))
        shares = np.divide(peaks, limits, out=np.zeros(len(table)), where=limits > 0)
        harms = np.zeros((len(table), 3))
        places = np.flatnonzero(pc.not_equal(table.column("verdict"), Verdict.NOT_THROTTLED.value).to_numpy())
        harms[places] = np.array([*self._harms(table.take(places))]).reshape(-1, 3)
        columns = [*-harms.T, -shares]
        keys = pa.table(
            [verdicts, pc.negate(logged), *columns, *table.select(NAME).columns],
            ["verdict", "logged", "undelivered", "muted", "longest", "share", *NAME],
        )
        order = pc.sort_indices(keys, [(name, "ascending") for name in keys.column_names])
        return Findings(self._table, self._predictions, self._order[order.to_numpy()])

    def _harms(self, table: pa.Table) -> Iterator[Harm]:
        """The harm of each row, without the rest of its finding. Neighbours often share their prediction."""
        last, harm = None, Harm(0, 0, 0)
        for broker, key, sensor, longest_ms in cells_of(table, *NAME, "throttle_time_max_ms"):
            prediction = self._predictions.get((broker, key, sensor))
            if prediction is None or prediction is not last:
                last, harm = prediction, Harm.of(prediction, longest_ms)
            yield harm


def _finding(row: dict[str, Any], prediction: Prediction | None) -> Finding:
    logged = row["logged_throttled_events"]
    made = {name: kind(row[name]) for name, kind in _ENUMS}
    made["entity"] = Entity.parse(row["entity"])
    made["clients"] = tuple(Client(**client) for client in row["clients"])
    made["logged"] = None if logged is None else Logged(*(row[f"logged_{name}"] for name in types(Logged)))
    return Finding(**{name: row[name] for name in _PLAIN}, **made, prediction=prediction)


_PLAIN = tuple(name for name, (kind, _) in types(Finding).items() if kind in (str, int, float))
_ENUMS = tuple((name, kind) for name, (kind, _) in types(Finding).items() if issubclass(type(kind), enum.EnumMeta))


def ordered(tables: Iterable[pa.Table]) -> pa.Table:
    """All findings as one table: throttled first, longest throttle first; then by name, so that runs compare."""
    table = pa.concat_tables([SCHEMA.empty_table(), *tables])
    throttled = pc.equal(table.column("verdict"), Verdict.THROTTLED.value).cast(pa.int8())
    table = table.append_column("throttled", throttled).sort_by(
        [
            ("throttled", "descending"),
            ("throttle_time_max_ms", "descending"),
            ("peak_rate", "descending"),
            *((name, "ascending") for name in NAME),
        ]
    )
    return table.drop_columns(["throttled"])
