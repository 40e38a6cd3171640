"""The names of KIP-599's drafts, which people still write: for the rate, and for a burst that never shipped."""

import math
from typing import Any

from kquota.core.quotas.quota import DRAFT_BURST, DRAFT_RATE, QuotaKey, Value
from kquota.documents.encoding import Document
from kquota.errors import InputError

_RATE = QuotaKey.CONTROLLER_MUTATION_RATE


def shipped_names(raws: Document) -> tuple[Document, Any, list[str]]:
    """(the values under the names that Kafka shipped, the burst if there is one, what is to be said).

    Raises InputError for a rate that is given under both names.
    """
    shipped = dict(raws)
    burst = shipped.pop(DRAFT_BURST, None)
    if DRAFT_RATE not in shipped:
        return shipped, burst, []
    if _RATE.value in shipped:
        raise InputError(f"{_RATE} is given twice, once as {DRAFT_RATE}")
    shipped[_RATE.value] = shipped.pop(DRAFT_RATE)
    return shipped, burst, [f"{DRAFT_RATE}: a name of KIP-599's drafts, read as {_RATE}"]


def remark_on_burst(burst: Any, rate: Value | None) -> str:
    """What has to be set in place of a burst. Raises InputError for a burst that is none, or has no rate."""
    if isinstance(burst, str) or not 0 < burst < math.inf:
        raise InputError(f"{DRAFT_BURST}: {burst!r} is not a number of partition mutations greater than 0")
    if rate is None:
        raise InputError(
            f"{DRAFT_BURST} without a rate",
            hint="it never shipped: a burst is controller_mutation_rate times the controllers' quota windows",
        )
    takes = f"takes controller.quota.window.num x controller.quota.window.size.seconds = {burst / rate:g}"
    return (
        f"{DRAFT_BURST}: ignored, it never shipped; a burst of {burst:g} at {rate:g}/s {takes} "
        f"(11 by default: a burst of {11 * rate:g})"
    )
