"""Predictions for clients that create and delete topics: recorded requests, run as clients that retry, or do not.

The recording holds the topics of each request, and the rejections. It has no connections, so that all requests to one
counter count as one client.
"""

from typing import Final

import numpy as np

from kquota.audit.evidence.clients import Rows
from kquota.audit.ledger.rows import Judged
from kquota.audit.settings import AuditSettings
from kquota.core.findings.prediction import Interval, Prediction, RecordedUnder
from kquota.core.findings.verdicts import Verdict
from kquota.core.simulation.recorded import Mutating, run_mutations

_AGAIN_MS: Final = 250
"""So long after the end of its throttle time a rejected topic is sent again, by a client that does so."""


def predicted(rows: Rows, judged: Judged, recorded: RecordedUnder, settings: AuditSettings) -> Prediction:
    """The prediction of these requests under the limit of the last period."""
    rows = rows.take(np.argsort(rows.time, kind="stable"))
    length = int(rows.time[-1] - rows.time[0])
    seconds = max(length, 1000) / 1000
    limit = judged.limits[-1][1] or 0.0
    strict = bool((rows.detail == 0).any())
    again = _tried_again(rows)
    requests = _requests(rows, again=again)
    likely = again is not False
    runs = [
        run_mutations(requests, limit, length, windows=settings.controller_windows, retries=retries)
        for retries in ([likely, not likely] if strict and again is None else [likely])
    ]
    wanted = sum(sum(request.topics) for request in requests) / seconds
    throttled = [met.throttled > 0 for met in runs]
    verdict = judged.verdict
    if recorded.held_back:
        verdict = Verdict.THROTTLED if all(throttled) else Verdict.UNDETERMINED
    met, held = runs[0], recorded.held_back
    prediction = Prediction(
        client_kind="paced",
        basis=_BASIS[again] if strict else "requests come at their times, and wait while their client is muted",
        verdict=verdict.value,
        throttle_time_ms=Interval.over([run.throttle_ms for run in runs]),
        throttle_time_max_ms=Interval.over([run.throttle_max_ms for run in runs]),
        muted_share=Interval.over([min(run.muted_ms / (seconds * 1000), 1.0) for run in runs]),
        delivered_per_s=Interval.over([run.delivered / seconds for run in runs]),
        wanted_per_s=Interval.at_least(wanted) if held else Interval.exactly(wanted),
        done_ms=Interval.exactly(met.done_ms) if met.done_ms is not None else Interval(None, None, None),
        left_units=Interval.over([run.left for run in runs]),
        throttled_requests=Interval.over([run.throttled for run in runs]),
        recorded_ms=length,
        recorded_under=recorded,
    )
    if verdict is Verdict.UNDETERMINED:
        reason = f"wanted at least {wanted:,.3g} a second: a quota held it back while it was recorded"
        return prediction.undetermined(reason)
    return prediction.open_ended() if held and limit > wanted else prediction


_BASIS: Final = {
    None: "rejected topics are sent again, or given up",
    True: "rejected topics are sent again, as in the recording",
    False: "rejected topics are given up, as in the recording",
}


def _tried_again(rows: Rows) -> bool | None:
    """Whether rejected topics were sent again; None where none was rejected."""
    rejected = rows.take((rows.throttle > 0) & (rows.detail == 0))
    if not len(rejected):
        return None
    ends = rejected.time + rejected.throttle
    following = np.searchsorted(rows.time, ends - 1)
    there = following < len(rows)
    soon = rows.time[np.minimum(following, len(rows) - 1)] <= ends + _AGAIN_MS
    return bool((there & soon).mean() > 0.5)


def _requests(rows: Rows, *, again: bool | None) -> list[Mutating]:
    """The requests that clients wanted to send; topics that they sent again count at their first time only."""
    times = rows.time
    wanted = np.ones(len(rows), bool)
    if again:
        rejected = (rows.throttle > 0) & (rows.detail == 0)
        wanted = ~rejected
        # An accepted topic came when its first attempt did, just before it in the log.
        run = np.maximum.accumulate(np.where(rejected, 0, np.arange(1, len(rows) + 1)))
        first = np.concatenate([[0], run[:-1]])
        times = np.where(wanted, rows.time[np.minimum(first, len(rows) - 1)], times)
    starts = np.flatnonzero(wanted)
    requests: dict[tuple[int, int, int], list[int]] = {}
    for row in starts.tolist():
        name = (int(times[row]), int(rows.time[row]), int(rows.detail[row]))
        requests.setdefault(name, []).append(int(rows.size[row]))
    return [Mutating(at, tuple(topics), detail == 0) for (at, _, detail), topics in sorted(requests.items())]
