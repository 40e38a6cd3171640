"""The rows of ledgers by counter and time, as brokers enforce them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np

from kquota.audit.batch import KEYS, Int64s
from kquota.audit.ledger import loops
from kquota.audit.ledger.rows import NEVER, OPTIONAL, Ledger
from kquota.core.enforcement import replay
from kquota.core.enforcement.kind import CONNECTION, FETCH, MUTATION, PRODUCE, REQUEST
from kquota.core.quotas.quota import QuotaKey

_KINDS: Final = {
    QuotaKey.PRODUCER_BYTE_RATE: PRODUCE,
    QuotaKey.CONSUMER_BYTE_RATE: FETCH,
    QuotaKey.REQUEST_PERCENTAGE: REQUEST,
    QuotaKey.CONTROLLER_MUTATION_RATE: MUTATION,
    QuotaKey.CONNECTION_CREATION_RATE: CONNECTION,
}
KIND_OF_KEY: Final = np.array([_KINDS[key] for key in KEYS], np.int8)


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of some counters, in time; rows of one moment are in the order of the export.

    The i-th counter is number `counters[i]` of the replay and owns the rows [offsets[i], offsets[i+1]).
    """

    counters: Int64s
    homes: Int64s
    """Where each counter is kept (`AuditSettings.together`)."""
    kinds: Any
    limits: Any
    offsets: Int64s
    times: Int64s
    values: Int64s
    throttle_ms: Int64s | None
    """What the broker answered; less than 0 where it is not told."""
    connection: Int64s | None
    detail: Int64s | None
    member: Int64s | None
    """The id of each row's client."""
    event_limits: Any
    """The limit that each row meets, where a counter has had more than one; else None."""

    @classmethod
    def of(
        cls, ledgers: Sequence[Ledger], numbers: Sequence[Int64s], *, ordered: bool, members: bool, periods: bool
    ) -> Part:
        """The rows of ledgers; `numbers` are the counters of each one's charges.

        With `members` it says who each row is of, with `periods` which limit it meets. Rows of one moment that are not
        `ordered` come by their values.
        """
        pairs = sorted(zip(ledgers, numbers, strict=True), key=lambda pair: pair[0].ordinal)
        counters = np.unique(np.concatenate(numbers)) if pairs else np.zeros(0, np.int64)
        places = [np.searchsorted(counters, own) for _, own in pairs]
        counts = [
            np.bincount(at, np.bincount(ledger.code, minlength=len(at)), len(counters)).astype(np.int64)
            for (ledger, _), at in zip(pairs, places, strict=True)
        ]
        offsets = np.concatenate([[0], np.cumsum(sum(counts, np.zeros(len(counters), np.int64)))])
        optional = [name for name in OPTIONAL if any(getattr(ledger, name) is not None for ledger, _ in pairs)]
        names = ["time", "value", *optional]
        kinds: dict[str, Any] = {name: np.dtype(np.int64) for name in (*names, *(["member"] if members else []))}
        kinds |= {"limit": np.dtype(np.float64)} if periods else {}
        out = {name: np.zeros(offsets[-1], kind) for name, kind in kinds.items()}
        if "throttle_ms" in out:
            out["throttle_ms"] -= 1  # what no export tells of; others are put in place below
        homes, limits = np.zeros(len(counters), np.int64), np.zeros(len(counters))
        keys = np.zeros(len(counters), np.int8)
        cursor = offsets[:-1].copy()
        for (ledger, _), at in zip(pairs, places, strict=True):
            homes[at], keys[at], limits[at] = (ledger.column(name) for name in ("home", "key", "limit"))
            columns = {name: column for name in names if (column := getattr(ledger, name)) is not None}
            columns |= {name: ledger.column(name)[ledger.code] for name in out.keys() - set(names)}
            loops.scatter(ledger.code, at, cursor, [(column, out[name]) for name, column in columns.items()])
        part = cls(
            counters, homes, KIND_OF_KEY[keys], limits, offsets, out["time"], out["value"], out.get("throttle_ms"),
            out.get("connection"), out.get("detail"), out.get("member"), out.get("limit"),
        )  # fmt: skip
        return part._in_time(ordered=ordered)

    def _in_time(self, *, ordered: bool) -> Part:
        names = ["times", "values", *(name for name in _ROWS if getattr(self, name) is not None)]
        columns = {name: getattr(self, name) for name in names}
        if ordered:
            back = np.flatnonzero(self.times[1:] < self.times[:-1]) + 1
            back = back[~np.isin(back, self.offsets)]  # the first row of a counter is behind no other
            for counter in np.unique(self.owners(back)).tolist():
                rows = slice(self.offsets[counter], self.offsets[counter + 1])
                order = np.argsort(self.times[rows], kind="stable")
                for column in columns.values():
                    column[rows] = column[rows][order]
            return self
        # A total order: what is equal in all of these is the same to the replay.
        keys = [columns[name] for name in reversed(names) if name != "times"]
        order = np.lexsort([*keys, self.times, np.repeat(np.arange(len(self.counters)), np.diff(self.offsets))])
        return replace(self, **{name: column[order] for name, column in columns.items()})

    def owners(self, rows: Any) -> Int64s:
        """The places in `counters` of those rows."""
        owners: Int64s = np.searchsorted(self.offsets, rows, side="right") - 1
        return owners

    @property
    def all_owners(self) -> Int64s:
        """The place in `counters` of each row."""
        return np.repeat(np.arange(len(self.counters)), np.diff(self.offsets))


_ROWS: Final = (*OPTIONAL, "member", "event_limits")


class Met(NamedTuple):
    """What the rows of a part met: throttle times (ms), observed rates, and whether they were throttled."""

    delays: Any
    rates: Any
    throttled: Any


def enforce(engine: Any, state: Any, summaries: Any, part: Part, retaken: Any, retaken_ms: Int64s) -> Met:
    """Charges the rows to the counters in `state`, and adds to their `summaries`.

    `retaken` is a mask of the fetches of which the broker sent nothing. `retaken_ms` is the first time of such a fetch
    of each counter of the state, and is kept up.
    """
    rows = np.flatnonzero(retaken)
    owners = part.owners(rows)
    fetches = part.kinds[owners] == FETCH
    rows, owners = rows[fetches], owners[fetches]
    np.minimum.at(retaken_ms, part.counters[owners], part.times[rows])
    events, limits, checked, own = _events(part, rows, retaken_ms[part.counters])
    column: Any = engine.column
    met = Met(*(column(np.zeros(len(events[-1]), kind), kind) for kind in ("int64", "float64", "bool")))
    kinds = ("int64", "int8", "float64", "int64", "int64", "float64")
    engine.replay_many(
        state,
        replay.Events(*map(column, events, kinds)),
        summaries,
        column([] if checked is None else checked, "bool"),
        column([] if limits is None else limits, "float64"),
        *met,
    )
    return Met(np.asarray(met.delays)[own], np.asarray(met.rates)[own], np.asarray(met.throttled, bool)[own])


def _events(part: Part, retaken: Int64s, since_ms: Int64s) -> tuple[Sequence[Any], Any, Any, Any]:
    """The events of a part, each of the rows `retaken` followed by its own un-recording, as the broker did it.

    Behind these columns of `replay.Events` come the limit of each and whether it is checked, None where that is said of
    their counters; and which of them are the part's own.

    `since_ms` is of each counter when the broker first took a fetch back, NEVER where it did not. From then on the
    counter holds what the broker's held, and what stays in it is not up to the replay's own verdicts. A retry comes
    just when the rate is down to the limit. So an error of a millisecond would turn a verdict, and then the bytes of
    everything after it. Before, the recording shows nothing of the limit: what the replay throttles, it takes back.
    """
    checked = None
    if part.detail is not None and (part.kinds == MUTATION).any():
        rows = np.repeat(part.kinds == MUTATION, np.diff(part.offsets))
        checked = ~(rows & (part.detail == 1))
    followed = np.flatnonzero(since_ms != NEVER)
    if len(followed) == 0:
        whole = part.counters, part.kinds, part.limits, part.offsets, part.times, part.values
        return whole, part.event_limits, checked, slice(None)
    after = retaken + 1
    own = np.insert(np.ones(len(part.times), bool), after, False)
    offsets = part.offsets + np.searchsorted(retaken, part.offsets)
    times = np.insert(part.times, after, part.times[retaken])
    starts = [
        start + np.searchsorted(times[start:end], since)
        for start, end, since in zip(offsets[followed], offsets[followed + 1], since_ms[followed], strict=True)
    ]
    # Two in the place of a counter that is followed: its events before, and those from then on.
    kinds = part.kinds.copy()
    kinds[followed] = PRODUCE
    events = (
        np.insert(part.counters, followed, part.counters[followed]),
        np.insert(kinds, followed, part.kinds[followed]),
        np.insert(part.limits, followed, part.limits[followed]),
        np.insert(offsets, followed + 1, starts),
        times,
        np.insert(part.values, after, -part.values[retaken]),
    )
    limits = part.event_limits
    limits = None if limits is None else np.insert(limits, after, limits[retaken])
    return events, limits, own if checked is None else np.insert(checked, after, False), own
