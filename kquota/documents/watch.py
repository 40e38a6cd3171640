"""What `watch` saw: a line per key that changed (schemas/watch.schema.json)."""

from datetime import UTC, datetime

from kquota.core.change.plan import Change
from kquota.core.quotas.quota import QuotaKey
from kquota.documents.encoding import Document
from kquota.documents.quotas import entity_document, values_document


def utc(time_ms: int) -> str:
    """Epoch ms as ISO 8601 in UTC: `2026-11-21T10:12:11.123Z`."""
    seconds, milliseconds = divmod(time_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds:03}Z"


def change_document(time_ms: int, change: Change, key: QuotaKey) -> Document:
    """One key of a change that was seen at that time (epoch ms)."""
    return {
        "kind": "kquota.watch",
        "version": 1,
        "time": utc(time_ms),
        "entity": entity_document(change.entity),
        "key": key.value,
        "before": values_document(change.before).get(key.value),
        "after": values_document(change.after).get(key.value),
    }
