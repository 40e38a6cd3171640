"""The throttle times in a batch of usage events, by client: what the brokers themselves answered."""

from typing import Final

import numpy as np

from kquota.audit.batch import Batch
from kquota.core.enforcement.kind import FETCH, PRODUCE
from kquota.core.findings.answers import Answered, Answers

_KINDS: Final = 3
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
    kinds = np.select([batch.kind[rows] == PRODUCE, batch.kind[rows] == FETCH], [1, 2], 0)
    number = brokers.codes.astype(np.int64)
    for column in (users, clients):
        number = number * len(column.values) + column.codes
    _, firsts, groups = np.unique(number * _KINDS + kinds, return_index=True, return_inverse=True)
    throttle, times = batch.throttle_ms[rows], batch.time_ms[rows]
    hit = throttle > 0
    events, throttled = np.bincount(groups), np.bincount(groups[hit], minlength=len(firsts))
    longest, last = np.zeros(len(firsts), np.int64), np.full(len(firsts), np.iinfo(np.int64).min)
    first = np.full(len(firsts), np.iinfo(np.int64).max)
    np.maximum.at(longest, groups[hit], throttle[hit])
    np.minimum.at(first, groups[hit], times[hit])
    np.maximum.at(last, groups[hit], times[hit])
    found: dict[Answered, Answers] = {}
    for group, row in enumerate(firsts.tolist()):
        broker, user, client_id = (column.values[column.codes[row]] for column in (brokers, users, clients))
        name = Answered(broker, user, client_id, _REQUESTS[kinds[row]])
        any_hit = bool(throttled[group])
        answers = Answers(
            int(events[group]),
            int(throttled[group]),
            int(longest[group]),
            int(first[group]) if any_hit else None,
            int(last[group]) if any_hit else None,
        )
        # Two numbers of a column may stand for the same name.
        found[name] = found[name] + answers if name in found else answers
    return found
