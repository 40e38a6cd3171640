"""Two findings tables of one pass side by side: what the quotas under test change for each client and each counter."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from kquota.audit.findings import AuditResult, Verdict
from kquota.audit.settings import AuditSettings
from kquota.core import whatif
from kquota.core.entity import Entity
from kquota.core.quota import QuotaKey
from kquota.core.resolver import Resolver
from kquota.core.snapshot import QuotaSnapshot
from kquota.core.whatif import ClientChange, Comparison, CounterChange, Standing, outcome

_Client: TypeAlias = tuple[str, str, str]
"""(key, user, client-id)"""
_Counter: TypeAlias = tuple[str, str, str]
"""(broker, key, sensor)"""

_ROWS_AT_ONCE = 10_000


def compare(result: AuditResult, settings: AuditSettings) -> Comparison:
    """What changes from the quotas `against` to the quotas under test.

    The audit must have named all clients and counted their throttled events (`top_clients=None`, `per_client=True`).
    """
    assert result.before is not None
    assert settings.against is not None
    old, new = (
        _Side.of(table, quotas.latest)
        for table, quotas in ((result.before, settings.against), (result.findings, settings.quotas))
    )
    return Comparison.of(_clients(old, new), _counters(old, new, result.before, result.findings))


def _clients(old: _Side, new: _Side) -> Iterator[ClientChange]:
    for client in old.clients.keys() | new.clients.keys():
        requests: dict[str, int] = {}
        for side in (old, new):
            if client in side.clients:
                requests |= side.clients[client].requests
        before, after = old.standing(client), new.standing(client)
        key, user, client_id = client
        yield ClientChange(
            QuotaKey(key), user, client_id, sum(requests.values()), before, after, outcome(before, after)
        )


def _counters(old: _Side, new: _Side, before: pa.Table, after: pa.Table) -> Iterator[CounterChange]:
    wanted = old.counters.keys() | new.counters.keys()
    standings: dict[_Counter, list[Standing]] = {counter: [Standing(), Standing()] for counter in wanted}
    requests: dict[_Counter, int] = {}
    for number, (side, table) in enumerate(((old, before), (new, after))):
        for row in _rows(table.drop_columns(["clients"])):
            counter = (row["broker"], row["key"], row["sensor"])
            if counter in wanted:
                standings[counter][number] = side.counter_standing(row)
                requests[counter] = max(requests.get(counter, 0), row["events"])
    for counter, (one, other) in standings.items():
        broker, key, sensor = counter
        yield CounterChange(broker, QuotaKey(key), sensor, requests[counter], one, other, outcome(one, other))


@dataclass(slots=True)
class _Fate:
    """What becomes of a client under one set of quotas, over all brokers."""

    events: int | None = 0
    time_ms: int | None = 0
    brokers: list[str] = field(default_factory=list)
    requests: dict[str, int] = field(default_factory=dict)
    unknown: set[Hashable] = field(default_factory=set)


@dataclass(frozen=True)
class _Side:
    """One findings table: the clients and counters that are throttled, or of which that is not known."""

    clients: dict[_Client, _Fate]
    counters: dict[_Counter, frozenset[Hashable]]
    """With what leaves each undetermined: nothing where it is throttled."""
    resolvers: dict[str, Resolver]

    @classmethod
    def of(cls, table: pa.Table, quotas: QuotaSnapshot) -> _Side:
        clients: dict[_Client, _Fate] = {}
        counters: dict[_Counter, frozenset[Hashable]] = {}
        verdicts = pa.array([Verdict.THROTTLED.value, Verdict.UNDETERMINED.value])
        for row in _rows(table.filter(pc.is_in(table.column("verdict"), verdicts))):
            unknown = counters[row["broker"], row["key"], row["sensor"]] = _unknown(row)
            for client in row["clients"]:
                verdict, count = _verdict(row, client)
                if verdict is Verdict.NOT_THROTTLED:
                    continue
                fate = clients.setdefault((row["key"], client["user"], client["client_id"]), _Fate())
                fate.requests[row["broker"]] = fate.requests.get(row["broker"], 0) + client["events"]
                if verdict is Verdict.UNDETERMINED:
                    fate.unknown |= unknown or {object()}
                    continue
                fate.brokers.append(row["broker"])
                fate.events = None if fate.events is None or count is None else fate.events + count[0]
                fate.time_ms = None if fate.time_ms is None or count is None else fate.time_ms + count[1]
        return cls(clients, counters, {key.value: Resolver.of(quotas, key) for key in QuotaKey})

    def standing(self, client: _Client) -> Standing:
        """How the client fares."""
        key, user, client_id = client
        governing = self.resolvers[key].resolve(user, client_id)
        fate = self.clients.get(client)
        limits: dict[str, Any] = {"entity": governing.entity, "limit": governing.limit}
        limits["sensor"] = None if governing.limit is None else str(governing.sensor)
        if fate is None:
            return Standing(**limits)
        if not fate.brokers:
            return Standing("undetermined", None, None, unknown=frozenset(fate.unknown), **limits)
        return Standing(
            "throttled",
            fate.events,
            fate.time_ms,
            tuple(sorted(set(fate.brokers))),
            unknown=frozenset(fate.unknown),
            **limits,
        )

    def counter_standing(self, row: dict[str, Any]) -> Standing:
        """How the counter of that row fares."""
        verdict: whatif.Verdict = row["verdict"]
        return Standing(
            verdict,
            row["throttled_events"],
            row["throttle_time_ms"],
            (row["broker"],) if verdict == Verdict.THROTTLED.value else (),
            row["sensor"],
            Entity.parse(row["entity"]),
            row["limit"],
            self.counters.get((row["broker"], row["key"], row["sensor"]), frozenset()),
        )


def _unknown(row: dict[str, Any]) -> frozenset[Hashable]:
    """What leaves a counter undetermined, under any quotas that give the same clients the same limit at all times."""
    if row["verdict"] != Verdict.UNDETERMINED.value:
        return frozenset()
    members = frozenset((client["user"], client["client_id"]) for client in row["clients"])
    at_all_times = object() if row["limit_changes"] else None
    return frozenset({(row["broker"], row["sensor"], row["limit"], members, at_all_times)})


def _verdict(row: dict[str, Any], client: dict[str, Any]) -> tuple[Verdict, tuple[int, int] | None]:
    """Of one client of a counter: its verdict, and how often and for how long it is throttled where that is known."""
    events, time_ms = client["throttled_events"], client["throttle_time_ms"]
    verdict = Verdict(row["verdict"])
    if verdict is Verdict.UNDETERMINED:
        return verdict, None
    if events is not None:
        return (Verdict.THROTTLED, (events, time_ms)) if events else (Verdict.NOT_THROTTLED, None)
    # A counter that is throttled, but not known for which of its requests.
    return (verdict if row["client_count"] == 1 else Verdict.UNDETERMINED), None


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
        yield from batch.to_pylist()
