"""Two findings tables of one pass side by side: what the quotas under test change for each client."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from kquota.audit.findings import ROWS_AT_ONCE
from kquota.audit.result import AuditResult
from kquota.audit.settings import AuditSettings
from kquota.core.change.history import QuotaHistory
from kquota.core.findings.finding import Basis, Harm
from kquota.core.findings.prediction import CounterName, Prediction
from kquota.core.findings.verdicts import BURSTS, HELD_BACK, SLOWED, Verdict
from kquota.core.findings.whatif import ClientChange, Comparison, Outcome, Standing, outcome
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot
from kquota.core.resolve.resolver import Resolver, encode_user, resolve_ip

_Client: TypeAlias = tuple[str, str | None, str | None]
"""(key, user, client-id); None for all of them, behind a counter of samples."""

_CONNECTIONS = QuotaKey.CONNECTION_CREATION_RATE.value
_NAMING = frozenset({Basis.REQUESTS.value, Basis.CONNECTIONS.value})
"""What findings rest on that name the clients behind a counter."""
_UNCOUNTED = {
    "events": 0,
    "value": 0,
    "throttled_events": None,
    "throttle_time_ms": None,
    "logged_throttled_events": None,
}


def compare(result: AuditResult, settings: AuditSettings) -> Comparison:
    """What changes from the quotas `against` to the quotas under test.

    The audit must have named all clients and counted their throttled events (`top_clients=None`, `per_client=True`).
    """
    assert result.against is not None
    assert settings.against is not None
    old, new = (
        _Side.of(side.findings, quotas, side.predictions)
        for side, quotas in ((result.against, settings.against), (result, settings.quotas))
    )
    return Comparison.of(_clients(old, new)).judging(result.against.quotas, result.quotas)


def _clients(old: _Side, new: _Side) -> Iterator[ClientChange]:
    unnamed = old.unnamed.keys() | new.unnamed.keys()
    for client in unnamed:
        for side, other in ((old, new), (new, old)):
            side.complete(client, other.clients[client].requests if client in other.clients else ())
    for client in old.clients.keys() | new.clients.keys():
        requests: dict[str, int] = {}
        for side in (old, new):
            if client in side.clients:
                requests |= side.clients[client].requests
        before, after = old.standing(client), new.standing(client)
        what = outcome(before, after)
        if what is not Outcome.SAME:
            before, after = old.limited(client, before), new.limited(client, after)
            worst = next((side.clients[client].worst for side in (new, old) if client in side.clients), None)
            before, after = old.delivering(client, before, worst), new.delivering(client, after, worst)
        key, user, client_id = client
        counted = None if client in unnamed else sum(requests.values())
        if key == _CONNECTIONS:
            yield ClientChange(QuotaKey(key), None, None, counted, before, after, what, ip=client_id)
        else:
            yield ClientChange(QuotaKey(key), user, client_id, counted, before, after, what)


@dataclass(slots=True)
class _Fate:
    """What becomes of a client under one set of quotas, over all brokers."""

    events: int | None = 0
    time_ms: int | None = 0
    brokers: list[str] = field(default_factory=list)
    requests: dict[str, int] = field(default_factory=dict)
    unknown: set[Hashable] = field(default_factory=set)
    wanted: float | None = None
    predicted: Prediction | None = None
    worst: str | None = None
    """The broker of that prediction; of several without one any."""
    sharing: int = 1


@dataclass(frozen=True)
class _Side:
    """One findings table: the clients that are throttled, or of which that is not known."""

    clients: dict[_Client, _Fate]
    resolvers: dict[str, Resolver]
    quotas: QuotaSnapshot
    sampled: dict[CounterName, str]
    """The verdicts on the counters of samples, which name no clients."""
    unnamed: dict[_Client, dict[str, Any]]
    """The clients behind a counter of samples, with the finding."""
    predictions: Mapping[CounterName, Prediction]

    @classmethod
    def of(cls, table: pa.Table, quotas: QuotaHistory, predictions: Mapping[CounterName, Prediction]) -> _Side:
        clients: dict[_Client, _Fate] = {}
        verdicts = pa.array([Verdict.THROTTLED.value, Verdict.UNDETERMINED.value])
        unnamed: dict[_Client, dict[str, Any]] = {}
        resolvers = {key.value: Resolver.of(quotas.latest, key) for key in QuotaKey}
        every = frozenset((key, frozenset(resolver.values.items())) for key, resolver in resolvers.items())
        named = pc.is_in(table.column("basis"), pa.array(sorted(_NAMING)))
        samples = table.filter(pc.invert(named)).drop_columns(["clients"])
        sampled = {(row["broker"], row["key"], row["sensor"]): row["verdict"] for row in _rows(samples)}
        for row in _rows(table.filter(pc.is_in(table.column("verdict"), verdicts))):
            members: Hashable = frozenset((client["user"], client["client_id"]) for client in row["clients"])
            if not row["clients"]:
                user, _, client_id = row["sensor"].partition(":")
                name = (row["key"], unquote(user) or None, client_id or None)
                unnamed[name] = row
                row["clients"] = [{"user": name[1], "client_id": name[2], **_UNCOUNTED}]
                # Who they are is up to all quotas of the key.
                members = object() if quotas.changes_ms else frozenset(resolvers[row["key"]].values.items())
            if (row["reason"] or "").endswith((SLOWED, BURSTS)):
                # It depends on quotas of other keys and clients as well.
                members = object() if quotas.changes_ms else (members, every)
            # What leaves open how much a counter throttles is the same under quotas that limit the same members alike.
            unknown = frozenset() if row["throttled_events"] is not None else _limiting(row, members)
            for client in row["clients"]:
                verdict, count = _verdict(row, client)
                if verdict is Verdict.NOT_THROTTLED:
                    continue
                fate = clients.setdefault((row["key"], client["user"], client["client_id"]), _Fate())
                fate.requests[row["broker"]] = fate.requests.get(row["broker"], 0) + client["events"]
                if row["reason"] == HELD_BACK:
                    fate.wanted = max(fate.wanted or 0.0, row["peak_rate"])
                if verdict is Verdict.UNDETERMINED:
                    fate.unknown |= unknown or _limiting(row, members)
                    continue
                if count is None:
                    fate.unknown |= unknown or {object()}
                fate.brokers.append(row["broker"])
                prediction = _of_delays(predictions, (row["broker"], row["key"], row["sensor"]))
                fate.sharing = max(fate.sharing, row["client_count"])
                if fate.predicted is None or Harm.predicted(prediction) > Harm.predicted(fate.predicted):
                    fate.predicted, fate.worst = prediction, row["broker"]
                events, time_ms = count or (None, None)
                fate.events = None if fate.events is None or events is None else fate.events + events
                fate.time_ms = None if fate.time_ms is None or time_ms is None else fate.time_ms + time_ms
        return cls(clients, resolvers, quotas.latest, sampled, unnamed, predictions)

    def complete(self, client: _Client, brokers: Iterable[str]) -> None:
        """Leaves the clients behind a counter undetermined on those brokers where nothing is known of them here."""
        for broker in brokers:
            fate = self.clients.get(client)
            if (fate is None or broker not in fate.requests) and not self._spares(client, broker):
                fate = self.clients.setdefault(client, _Fate())
                fate.requests[broker] = 0
                fate.unknown.add(object())

    def _spares(self, client: _Client, broker: str) -> bool:
        """Whether that broker does not throttle them for certain."""
        key, user, client_id = client
        resolver = self.resolvers[key]
        if not resolver.values:
            return True
        sensor = f"{encode_user(user or '')}:{client_id or ''}"
        if user is not None and client_id is not None:
            governing = resolver.resolve(user, client_id)
            if governing.limit is None:
                return True
            sensor = str(governing.sensor)
        return self.sampled.get((broker, key, sensor)) == Verdict.NOT_THROTTLED.value

    def standing(self, client: _Client) -> Standing:
        """How the client fares, but for its limit."""
        fate = self.clients.get(client) or self._of_counter(client)
        if fate is None:
            return Standing()
        open_ = Standing(
            "undetermined", None, None, unknown=frozenset(fate.unknown), wanted=fate.wanted, clients=fate.sharing
        )
        if not fate.brokers:
            return open_
        return replace(
            open_,
            verdict="throttled",
            throttled_events=fate.events,
            throttle_time_ms=fate.time_ms,
            brokers=tuple(sorted(set(fate.brokers))),
            predicted=fate.predicted,
        )

    def _of_counter(self, client: _Client) -> _Fate | None:
        """The fate of all behind the counter of a client, where it names nobody."""
        user, _, client_id = (self.limited(client, Standing()).sensor or "").partition(":")
        return self.clients.get((client[0], unquote(user) or None, client_id or None))

    def limited(self, client: _Client, standing: Standing) -> Standing:
        """The same with what limits the client."""
        key, user, client_id = client
        if user is not None and client_id is not None:
            if key == _CONNECTIONS:
                governing = resolve_ip(self.quotas, client_id)
            else:
                governing = self.resolvers[key].resolve(user, client_id)
            if governing.limit is None:
                return standing
            return replace(standing, sensor=str(governing.sensor), entity=governing.entity, limit=governing.limit)
        row = self.unnamed.get(client)
        if row is None:
            return standing
        return replace(standing, sensor=row["sensor"], entity=Entity.parse(row["entity"]), limit=row["limit"])

    def delivering(self, client: _Client, standing: Standing, broker: str | None) -> Standing:
        """The same with what its counter delivers on that broker."""
        if broker is None or standing.sensor is None:
            return standing
        prediction = _of_delays(self.predictions, (broker, client[0], standing.sensor))
        return standing if prediction is None else replace(standing, delivered=prediction.delivered_per_s)


def _of_delays(predictions: Mapping[CounterName, Prediction], name: CounterName) -> Prediction | None:
    """The prediction of a counter, if it knows anything of the waits of its clients."""
    prediction = predictions.get(name)
    return prediction if prediction is not None and prediction.says_delays else None


def _limiting(row: dict[str, Any], members: Hashable) -> frozenset[Hashable]:
    """What limits the members of a counter, as a value that is the same under all quotas that limit them alike."""
    at_all_times = object() if row["limit_changes"] else None
    return frozenset({(row["broker"], row["sensor"], row["limit"], members, at_all_times)})


def _verdict(row: dict[str, Any], client: dict[str, Any]) -> tuple[Verdict, tuple[int, int | None] | None]:
    """Of one client of a counter: its verdict, and how often and for how long it is throttled where that is known."""
    events, time_ms = client["throttled_events"], client["throttle_time_ms"]
    verdict = Verdict(row["verdict"])
    if verdict is Verdict.UNDETERMINED:
        return verdict, None
    if events is not None:
        return (Verdict.THROTTLED, (events, time_ms)) if events else (Verdict.NOT_THROTTLED, None)
    if row["throttled_events"] is not None and client["logged_throttled_events"]:
        return Verdict.UNDETERMINED, None  # it was held back, and its neighbours are throttled (`evidence.verdict`)
    # A counter that is throttled, but not known for which of its requests; the client stands for all behind it.
    return verdict, None


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches(max_chunksize=ROWS_AT_ONCE):
        yield from batch.to_pylist()
