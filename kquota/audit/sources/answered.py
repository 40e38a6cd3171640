"""The throttle times in a batch of usage events, by client: what the brokers themselves answered."""

from typing import Final

import numpy as np
import pyarrow as pa

from kquota.audit.batch import Batch
from kquota.core.enforcement.kind import FETCH, PRODUCE
from kquota.core.findings.answers import Answered, Answers

_NAMES: Final = ["broker", "user", "client_id", "request"]
_REQUESTS: Final = ("other", "produce", "fetch")


def answers_in(batch: Batch, *, every: bool) -> dict[Answered, Answers]:
    """What the brokers answered to the requests of a batch, by client and kind of request.

    With `every` the counts are of all requests whose throttle time is known. Else only throttled requests count, which
    takes memory for throttled clients alone.
    """
    if batch.throttle_ms is None or batch.only is not None:
        return {}
    rows = np.flatnonzero(batch.throttle_ms >= 0 if every else batch.throttle_ms > 0)
    if not len(rows):
        return {}
    brokers, users, clients = (column.take(rows) for column in (batch.broker, batch.user, batch.client_id))
    throttle_ms = batch.throttle_ms[rows]
    hit = throttle_ms > 0
    events = pa.table(
        {
            "broker": brokers.codes,
            "user": users.codes,
            "client_id": clients.codes,
            "request": np.select([batch.kind[rows] == PRODUCE, batch.kind[rows] == FETCH], [1, 2], 0),
            "hit": hit.astype(np.int64),
            "throttle_ms": throttle_ms,
            "time_ms": pa.array(batch.time_ms[rows], mask=~hit),
        }
    )
    asked = [("hit", "count"), ("hit", "sum"), ("throttle_ms", "max"), ("time_ms", "min"), ("time_ms", "max")]
    groups = events.group_by(_NAMES).aggregate(asked)
    found: dict[Answered, Answers] = {}
    for group in groups.select([*_NAMES, *map("_".join, asked)]).to_pylist():
        broker, user, client_id, request, *counts = group.values()
        name = Answered(brokers.values[broker], users.values[user], clients.values[client_id], _REQUESTS[request])
        # Two numbers of a column may stand for the same name.
        answers = Answers(*counts)
        found[name] = found[name] + answers if name in found else answers
    return found
