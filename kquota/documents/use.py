"""What `top` saw: the use of every counter at one moment (schemas/top.schema.json)."""

from collections.abc import Iterable, Sequence

from kquota.core.findings.use import Use
from kquota.core.quotas.quota import QuotaKey
from kquota.documents.derive import picked
from kquota.documents.encoding import Document
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
    return {
        **picked(use, "broker=counter.broker key=counter.key unit=counter.key.unit"),
        "tags": _tags(use),
        **picked(use, _USE),
        "read": utc(use.observed.at_ms),
        "age_s": use.age_s(now_ms),
        "unknown": list(use.unknown),
    }


_USE = """state limit level=level.number level_name=level.label entity rate=observed.rate share
    throttle_time_ms=observed.throttle_ms tokens=observed.tokens trend until_throttled_s clients"""


def _tags(use: Use) -> Document:
    counter = use.counter
    if counter.key is QuotaKey.CONNECTION_CREATION_RATE:
        return {"ip": counter.client_id}
    tags = {"user": counter.user, "client-id": counter.client_id}
    return {name: value for name, value in tags.items() if value}
