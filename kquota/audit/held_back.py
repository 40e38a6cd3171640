"""Traffic that a quota held back while it was recorded: what its clients wanted is not in the recording.

A recording under a limit shows what clients got, and not what they would have sent under a higher one. A counter that
would not have been throttled is therefore undetermined where its clients were throttled while the export was recorded:
the rate that was observed is only the least that they wanted.

The export itself usually says it: the throttle times in a broker's answers. Where it has none,
`AuditSettings.recorded_under` says which quotas were in force, and their replay says whom they held back.

The verdict stands where the quotas in question are those that were in force, and where another of them still holds the
same clients back as much as they were: then there is no more traffic than there was. A history of quotas is what was in
force.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kquota.audit.findings import SCHEMA, AuditResult
from kquota.audit.settings import AuditSettings
from kquota.core.change.history import QuotaHistory
from kquota.core.findings.verdicts import HELD_BACK, QuotaVerdict, Verdict
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey

AS_MUCH: Final = 0.9
"""The share of the logged throttle time that another quota must cause to hold the clients back as much."""

_UNCOUNTED = ("throttled_events", "throttle_time_ms", "throttle_time_max_ms", "peak_rate_max")
_COUNTERS_OF_THEIR_OWN = frozenset({QuotaKey.CONTROLLER_MUTATION_RATE.value, QuotaKey.CONNECTION_CREATION_RATE.value})
"""Quotas that hold back other requests than those of bytes and thread time."""


def audited(run: Callable[[AuditSettings], AuditResult], settings: AuditSettings) -> AuditResult:
    """The audit; where the export has no throttle times, those held back are found by what was in force.

    `run` audits the export under given settings, once or twice.
    """
    result = run(settings)
    recorded = settings.recorded_under
    if not recorded or not any(recorded.snapshots) or shows_throttling(result) is not None:
        return result
    again = replace(settings, quotas=recorded, against=None, top_clients=1, per_client=False, timelines=0)
    return marked(result, settings, _throttled(run(again).findings))


def shows_throttling(result: AuditResult) -> bool | None:
    """Whether brokers throttled anybody while the export was recorded; None where it does not say."""
    logged = result.findings.column("logged_throttled_events")
    most = pc.max(logged).as_py() if len(logged) else None
    return None if most is None else bool(most > 0)


class Held(NamedTuple):
    """A counter that a quota throttled while the export was recorded."""

    broker: str
    key: str
    sensor: str


def marked(result: AuditResult, settings: AuditSettings, held: Sequence[Held] = ()) -> AuditResult:
    """The result with the verdicts that held-back traffic leaves open; `held` are counters known beside the export's.

    A result that is marked already stays as it is.
    """
    findings, quotas = result.findings, result.quotas
    if not in_force(settings, settings.quotas, under_test=True):
        findings, quotas = _marked(findings, quotas, held)
    before, quotas_before = result.before, result.quotas_before
    if before is not None and settings.against is not None and not in_force(settings, settings.against):
        before, quotas_before = _marked(before, quotas_before, held)
    return replace(result, findings=findings, quotas=quotas, before=before, quotas_before=quotas_before)


def in_force(settings: AuditSettings, quotas: QuotaHistory, *, under_test: bool = False) -> bool:
    """Whether these quotas were in force while the export was recorded, as far as the settings say."""
    said = settings.in_force and under_test
    return said or bool(quotas.changes_ms) or quotas == settings.recorded_under


def _throttled(table: pa.Table) -> list[Held]:
    rows = table.filter(pc.equal(table.column("verdict"), Verdict.THROTTLED.value))
    return [Held(*row.values()) for row in rows.select(list(Held._fields)).to_pylist()]


def _marked(
    table: pa.Table, quotas: Sequence[QuotaVerdict], held: Sequence[Held]
) -> tuple[pa.Table, tuple[QuotaVerdict, ...]]:
    table = _neighbours_left_open(table)
    calm = pc.equal(table.column("verdict"), Verdict.NOT_THROTTLED.value)
    logged = pc.fill_null(pc.greater(table.column("logged_throttled_events"), 0), False)
    candidates = table.filter(pc.and_(calm, logged)) if not held else table.filter(calm)
    if len(candidates) == 0:
        return table, tuple(quotas)
    still = _Holding.of(table)
    names = {
        (row["broker"], row["key"], row["sensor"])
        for row in candidates.drop_columns(["clients"]).to_pylist()
        if (row["logged_throttled_events"] or any(_met(each, row) for each in held)) and not still.holds(row)
    }
    if not names:
        return table, tuple(quotas)
    rows = zip(*(table.column(name).to_pylist() for name in ("broker", "key", "sensor")), strict=True)
    mask = pa.array([name in names for name in rows])
    governed: dict[tuple[Entity, QuotaKey], int] = {}
    for entity, key in zip(*(table.filter(mask).column(name).to_pylist() for name in ("entity", "key")), strict=True):
        name = (Entity.parse(entity), QuotaKey(key))
        governed[name] = governed.get(name, 0) + 1
    return _undetermined(table, mask), tuple(
        _left_open(quota, governed.get((quota.entity, quota.key), 0)) for quota in quotas
    )


def _neighbours_left_open(table: pa.Table) -> pa.Table:
    """The table where a client of a throttled counter has no count if it was held back and nothing of it is throttled.

    It may want more than it got, and its neighbours are throttled.
    """
    throttled = pc.equal(table.column("verdict"), Verdict.THROTTLED.value)
    shared = pc.and_(throttled, pc.greater(table.column("client_count"), 1))
    logged = pc.fill_null(pc.greater(table.column("logged_throttled_events"), 0), False)
    rows = pc.indices_nonzero(pc.and_(shared, logged)).to_pylist()
    column = table.column("clients").to_pylist() if rows else []
    changed = False
    for row in rows:
        for client in column[row]:
            if client["logged_throttled_events"] and client["throttled_events"] == 0:
                client |= {"throttled_events": None, "throttle_time_ms": None}
                changed = True
    if not changed:
        return table
    place = table.schema.get_field_index("clients")
    return table.set_column(place, SCHEMA.field(place), pa.array(column, SCHEMA.field(place).type))


def _undetermined(table: pa.Table, mask: pa.Array) -> pa.Table:
    """The table where the rows of the mask are undetermined."""
    values: dict[str, Any] = {"verdict": Verdict.UNDETERMINED.value, "reason": HELD_BACK}
    values |= dict.fromkeys(_UNCOUNTED)
    for name, value in values.items():
        place = table.schema.get_field_index(name)
        column = pc.if_else(mask, pa.scalar(value, SCHEMA.field(name).type), table.column(name))
        table = table.set_column(place, SCHEMA.field(name), column)
    return table


def _left_open(quota: QuotaVerdict, count: int) -> QuotaVerdict:
    """The verdict on a quota of which so many counters are left open."""
    if not count:
        return quota
    counters = dict(quota.counters)
    counters[Verdict.NOT_THROTTLED] = max(0, counters.get(Verdict.NOT_THROTTLED, 0) - count)
    counters[Verdict.UNDETERMINED] = counters.get(Verdict.UNDETERMINED, 0) + count
    counters = {verdict: counters[verdict] for verdict in Verdict if counters.get(verdict)}
    if quota.verdict is Verdict.THROTTLED:
        return quota._replace(counters=counters)
    reasons = [quota.reason, HELD_BACK] if quota.verdict is Verdict.UNDETERMINED else [HELD_BACK]
    reason = "; ".join(reason for reason in reasons if reason is not None)
    return quota._replace(verdict=Verdict.UNDETERMINED, reason=reason, counters=counters)


def _tags(sensor: str) -> tuple[str, str]:
    user, _, client_id = sensor.partition(":")
    return user, client_id


def _met(held: Held, row: Mapping[str, Any]) -> bool:
    """Whether a client of that counter can be one that was held back: the tags of both fit."""
    apart = not _COUNTERS_OF_THEIR_OWN.isdisjoint((held.key, row["key"]))
    if held.broker != row["broker"] or (apart and held.key != row["key"]):
        return False
    pairs = zip(_tags(held.sensor), _tags(row["sensor"]), strict=True)
    return all(not one or not other or one == other for one, other in pairs)


class _Holding(NamedTuple):
    """The counters that would throttle their clients as much as these were throttled, by broker."""

    counters: dict[str, list[tuple[str, str]]]

    @classmethod
    def of(cls, table: pa.Table) -> _Holding:
        counters: dict[str, list[tuple[str, str]]] = {}
        for row in _rows_throttled(table):
            logged, predicted = row["logged_throttle_time_ms"], row["throttle_time_ms"]
            if logged and predicted is not None and predicted >= AS_MUCH * logged:
                counters.setdefault(row["broker"], []).append((row["key"], row["sensor"]))
        return cls(counters)

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Whether one of the counters is that of all clients of the row."""
        mine = _tags(row["sensor"])
        return row["key"] not in _COUNTERS_OF_THEIR_OWN and any(
            key not in _COUNTERS_OF_THEIR_OWN
            and all(not tag or tag == own for tag, own in zip(_tags(sensor), mine, strict=True))
            for key, sensor in self.counters.get(row["broker"], ())
        )


def _rows_throttled(table: pa.Table) -> Iterator[dict[str, Any]]:
    rows = table.filter(pc.equal(table.column("verdict"), Verdict.THROTTLED.value))
    names = ["broker", "key", "sensor", "throttle_time_ms", "logged_throttle_time_ms"]
    yield from rows.select(names).to_pylist()
