"""The report of an audit (schemas/audit.schema.json)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kquota.core.findings.verdicts import QuotaVerdict
from kquota.core.findings.whatif import Comparison
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, share_of_limit
from kquota.core.resolve.resolver import Level
from kquota.documents.encoding import Document
from kquota.documents.prediction import prediction_document, recorded_under_document
from kquota.documents.quotas import entity_document, values_document
from kquota.documents.verdicts import verdicts_document
from kquota.documents.whatif import comparison_document

if TYPE_CHECKING:
    from kquota.core.findings.closed_loop import ClosedLoop
    from kquota.core.findings.prediction import CounterName, Prediction


def audit_document(
    findings: Sequence[Mapping[str, Any]],
    quality: Mapping[str, Any],
    brokers: Mapping[str, Any],
    engine: str,
    comparison: Comparison | None = None,
    closed_loop: Sequence[ClosedLoop] = (),
    quotas: Sequence[QuotaVerdict] = (),
    predictions: Mapping[CounterName, Prediction] = MappingProxyType({}),
) -> Document:
    """The findings (rows of the findings table), the account of the data, the enforcement assumed, and what ran it.

    Also what changes, where other quotas were audited beside these, and the closed loop (under the quotas, and under
    those others), where it was replayed; and what became of each of the `quotas` that are set.
    """
    return {
        "kind": "kquota.audit",
        "version": 1,
        "engine": engine,
        "enforcement": dict(brokers),
        "data": dict(quality),
        "quotas": verdicts_document(quotas),
        "findings": [_finding(row, closed_loop[0] if closed_loop else None, predictions) for row in findings],
        **({} if comparison is None else {"comparison": comparison_document(comparison)}),
        **({} if not closed_loop else {"closed_loop": _closed_loop(closed_loop)}),
    }


def _closed_loop(loops: Sequence[ClosedLoop]) -> Document:
    """The throttle time of all counters, and by how much clients come later."""
    after, *before = loops
    return {
        "throttle_time_ms": after.throttle_time_ms,
        "throttle_time_before_ms": before[0].throttle_time_ms if before else None,
        "clients": [
            {"user": user, "client-id": client_id, "delay_ms": delay_ms}
            for (user, client_id), delay_ms in after.delays.items()
        ],
    }


def _finding(
    row: Mapping[str, Any], closed_loop: ClosedLoop | None, predictions: Mapping[CounterName, Prediction]
) -> Document:
    key = QuotaKey(row["key"])
    events, throttled = row["events"], row["throttled_events"]
    logged = row["logged_throttled_events"]
    predicted = predictions.get((row["broker"], row["key"], row["sensor"]))
    closed = None if closed_loop is None else closed_loop.counters.get((row["broker"], row["key"], row["sensor"]))
    return {
        "broker": row["broker"],
        "key": key.value,
        "unit": key.unit,
        "sensor": row["sensor"],
        "entity": entity_document(Entity.parse(row["entity"])),
        "level": row["level"],
        "level_name": Level(row["level"]).label,
        "limit": values_document({key: int(row["limit"]) if key.value_type.integral else row["limit"]})[key.value],
        "limit_changes": row["limit_changes"],
        "verdict": row["verdict"],
        "reason": row["reason"],
        "basis": row["basis"],
        "events": events,
        "throttled_events": throttled,
        "throttled_share": None if throttled is None else throttled / max(events, 1),
        "throttle_time_ms": row["throttle_time_ms"],
        "throttle_time_max_ms": row["throttle_time_max_ms"],
        "peak_rate": row["peak_rate"],
        "peak_share": share_of_limit(row["peak_rate"], row["limit"]),
        "peak_rate_max": row["peak_rate_max"],
        "first_throttled_ms": row["first_throttled_ms"],
        "last_throttled_ms": row["last_throttled_ms"],
        "estimated_events": row["estimated_events"],
        "sizes_from": _sizes_from(row),
        "logged": None
        if logged is None
        else {
            "throttled_events": logged,
            "throttle_time_ms": row["logged_throttle_time_ms"],
            "throttle_time_max_ms": row["logged_throttle_time_max_ms"],
        },
        "closed_loop": None
        if closed is None
        else {
            "throttled_events": closed.throttled_events,
            "throttle_time_ms": closed.throttle_time_ms,
            "throttle_time_max_ms": closed.throttle_time_max_ms,
        },
        "predicted": None if predicted is None else prediction_document(predicted),
        "recorded_under": None if predicted is None else recorded_under_document(predicted.recorded_under),
        "client_count": row["client_count"],
        "clients": [
            {
                **_who(key, client),
                "events": client["events"],
                "value": client["value"],
                "throttled_events": client["throttled_events"],
                "throttle_time_ms": client["throttle_time_ms"],
            }
            for client in row["clients"]
        ],
    }


def _sizes_from(row: Mapping[str, Any]) -> Document | None:
    """Where the sizes of throttled fetches come from; None where there were none."""
    if not row["estimated_events"]:
        return None
    return {
        "batches": row["rebuilt_events"],
        "retry": row["estimated_events"] - row["rebuilt_events"],
        "reproduced_share": row["rebuilt_share"],
    }


def _who(key: QuotaKey, client: Mapping[str, Any]) -> Document:
    """Who a client is; of connections, which have no user and no client-id, the ip."""
    if key is QuotaKey.CONNECTION_CREATION_RATE:
        return {"user": None, "client-id": None, "ip": client["client_id"]}
    return {"user": client["user"], "client-id": client["client_id"], "ip": None}
