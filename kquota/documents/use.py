"""What `top` saw: the use of every counter at one moment (schemas/top.schema.json)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kquota.core.findings.use import Use
from kquota.core.quotas.quota import QuotaKey
from kquota.documents.encoding import Document
from kquota.documents.quotas import entity_document, value_document
from kquota.documents.watch import utc


def top_document(
    uses: Sequence[Use],
    *,
    source: str,
    now_ms: int,
    quotas_ms: int,
    missing: Iterable[tuple[str, str]] = (),
    unread: int = 0,
) -> Document:
    """One refresh. `quotas_ms` is when the quotas were read; ages are in seconds, rates in the key's unit."""
    newest = max((use.observed.at_ms for use in uses), default=None)
    return {
        "kind": "kquota.top",
        "version": 1,
        "time": utc(now_ms),
        "source": source,
        "quotas_read": utc(quotas_ms),
        "newest_sample": None if newest is None else utc(newest),
        "missing": [{"place": place, "reason": reason} for place, reason in missing],
        "unread_series": unread,
        "counters": [use_document(use, now_ms) for use in uses],
    }


def use_document(use: Use, now_ms: int) -> Document:
    """One counter; what the source does not know is null, and named in `unknown`."""
    counter = use.counter
    return {
        "broker": counter.broker,
        "key": counter.key.value,
        "unit": counter.key.unit,
        "tags": _tags(use),
        "state": use.state.value,
        "limit": None if use.limit is None else value_document(use.limit),
        "level": None if use.level is None else use.level.number,
        "level_name": None if use.level is None else use.level.label,
        "entity": None if use.entity is None else entity_document(use.entity),
        "rate": use.observed.rate,
        "share": use.share,
        "throttle_time_ms": use.observed.throttle_ms,
        "tokens": use.observed.tokens,
        "trend": use.trend,
        "until_throttled_s": use.until_throttled_s,
        "clients": [str(client) for client in use.clients],
        "read": utc(use.observed.at_ms),
        "age_s": use.age_s(now_ms),
        "unknown": list(use.unknown),
    }


def _tags(use: Use) -> Document:
    counter = use.counter
    if counter.key is QuotaKey.CONNECTION_CREATION_RATE:
        return {"ip": counter.client_id}
    tags = {"user": counter.user, "client-id": counter.client_id}
    return {name: value for name, value in tags.items() if value}
