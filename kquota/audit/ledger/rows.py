"""The ledger of an audit: a row for each request at each counter that a broker charges it to, and who these are.

A ledger says by itself who its counters and clients are, so that any process can go on with it: another task, or a
follower that is started again. Ids are fingerprints, which are the same in every process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from kquota.audit.batch import Int64s
from kquota.audit.ledger.loops import scatter
from kquota.core.findings.finding import Logged
from kquota.core.findings.prediction import CounterName
from kquota.core.findings.verdicts import Verdict
from kquota.core.quotas.quota import QuotaKey

NEVER: Final = np.iinfo(np.int64).max
"""A time that does not come."""

_NAME: Final = pa.dictionary(pa.int32(), pa.string())
CHARGES: Final = pa.schema(
    {
        **{"counter": pa.int64(), "home": pa.int64(), "member": pa.int64()},
        **{"variant": pa.int8(), "broker": _NAME, "key": pa.int8(), "sensor": _NAME},
        **{"period": pa.int32(), "entity": _NAME, "level": pa.int8(), "limit": pa.float64()},
        **{"user": _NAME, "client_id": _NAME},
        **{"events": pa.int64(), "value": pa.int64(), "incomplete_ms": pa.int64(), "silent": pa.bool_()},
    }
)
"""What the rows of a ledger are charged to: a client at a counter, in a period of the quotas' history.

`counter` and `member` are the ids of the counter and the client; `home` is the same for counters that are kept together
(`AuditSettings.together`). `events` and `value` add up the rows; `incomplete_ms` is when one is first charged for more
than its value says (NEVER if none is), and `silent` whether the export lacks what the broker answered to any of them.
"""


def fingerprint(*parts: str) -> int:
    """64 bits, the same in every process; never negative, so that it can be a dictionary key and an array's value."""
    name = "\0".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "little") >> 1


class CounterRef(NamedTuple):
    """One counter on one broker, under one of the quota sets that are tested (`AuditSettings.variants`)."""

    variant: int
    broker: str
    key: QuotaKey
    sensor: str

    @property
    def name(self) -> CounterName:
        """The counter as findings name it."""
        return self.broker, self.key.value, self.sensor


class Governing(NamedTuple):
    """What limits a counter in one period of the quotas' history."""

    period: int
    entity: str
    level: int
    limit: float


@dataclass(frozen=True, slots=True)
class Ledger:
    """Charges, and their rows in the order of the export; optional columns are None where no row has them."""

    ordinal: tuple[int, int]
    """Its place in the order of the export."""
    charges: pa.Table
    code: Any
    """The number of each row's charge."""
    time: Int64s
    """Epoch ms."""
    value: Int64s
    """Bytes, ns, partitions or connections."""
    throttle_ms: Int64s | None
    connection: Int64s | None
    detail: Int64s | None

    def __len__(self) -> int:
        return len(self.time)

    def column(self, name: str) -> Any:
        """A column of the charges as an array."""
        return self.charges.column(name).to_numpy()

    def take(self, rows: Any) -> Ledger:
        """Some of the rows, by a mask; the charges stay."""
        columns: dict[str, Any] = {
            name: None if (column := getattr(self, name)) is None else column[rows] for name in COLUMNS
        }
        return replace(self, **columns)

    def parted(self, buckets: int) -> Iterator[tuple[int, Ledger]]:
        """(bucket, ledger) of the counters of each bucket: those with one home are in one."""
        if buckets == 1:
            yield 0, self
            return
        of = self.column("home") % buckets
        counts = np.bincount(of, np.bincount(self.code, minlength=len(of)), buckets).astype(np.int64)
        edges = np.concatenate([[0], np.cumsum(counts)])
        charges = [np.flatnonzero(of == bucket) for bucket in range(buckets)]
        local = np.empty(len(of), np.int32)
        for own in charges:
            local[own] = np.arange(len(own))
        columns = {name: column for name in COLUMNS if (column := getattr(self, name)) is not None}
        columns["code"] = local[self.code]
        placed: dict[str, Any] = {name: np.empty(len(self), column.dtype) for name, column in columns.items()}
        scatter(self.code, of, edges[:-1].copy(), [(columns[name], placed[name]) for name in columns])
        for bucket in np.flatnonzero(counts).tolist():
            rows = {name: column[edges[bucket] : edges[bucket + 1]] for name, column in placed.items()}
            yield bucket, replace(self, charges=self.charges.take(pa.array(charges[bucket])), **rows)


OPTIONAL: Final = ("throttle_ms", "connection", "detail")
COLUMNS: Final = ("code", "time", "value", *OPTIONAL)


@dataclass(frozen=True, slots=True)
class Judged:
    """What the replay found of one counter."""

    ref: CounterRef
    verdict: Verdict
    reason: str | None
    limits: Sequence[tuple[int, float | None]]
    """(since when, limit), epoch ms."""
    throttled: int
    """The requests that the replay throttles."""
    throttle_ms: int
    """The sum of their throttle times; with `throttle_max_ms` of the open loop."""
    throttle_max_ms: int
    logged: Logged | None
    """What the brokers answered; None where the recording does not say."""
    first_throttled_ms: int = NEVER
    """When the replay first throttles one."""
    peak_rate: float = 0.0
    """The highest rate that the replay observed; of incomplete values a lower bound."""
    clients: Sequence[tuple[str, str]] = ()
    """(user, client-id) of each, where `AuditSettings.recorded_under` names quotas."""

    @property
    def held_back(self) -> bool:
        """Whether the recording has throttle times of its requests."""
        return self.logged is not None and self.logged.throttled_events > 0
