"""Counters of one name on several brokers as one finding: what is delivered adds up, and the worst wait counts.

Limits hold on each broker by itself, so that the worst broker's peak is the peak.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from kquota.core.findings.finding import Client, Finding, Logged
from kquota.core.findings.prediction import Interval, Prediction
from kquota.core.tabular import grouped

_ADDED: Final = ("throttle_time_ms", "delivered_per_s", "wanted_per_s", "left_units")
_WORST: Final = ("throttle_time_max_ms", "muted_share", "done_ms")


def over_brokers(findings: Iterable[Finding]) -> list[Finding]:
    """One finding for each name of a counter, in the order of the first; the first of a name is the worst broker's.

    Its broker is `kafka-1 and 2 more`.
    """
    by_name = grouped(findings, lambda finding: (finding.key, finding.sensor))
    return [_together(counters) if len(counters) > 1 else counters[0] for counters in by_name.values()]


def _together(counters: Sequence[Finding]) -> Finding:
    def of(name: str, how: Callable[[list[Any]], Any]) -> dict[str, Any]:
        values = [getattr(counter, name) for counter in counters]
        return {name: None if None in values else how(values)}

    def known(name: str, how: Callable[[list[Any]], Any]) -> dict[str, Any]:
        values = [getattr(counter, name) for counter in counters]
        return {name: how([value for value in values if value is not None] or [None])}

    clients: dict[tuple[str, str], Client] = {}
    for client in (client for counter in counters for client in counter.clients):
        clients.setdefault((client.user, client.client_id), client)
    return replace(
        counters[0],
        broker=f"{counters[0].broker} and {len(counters) - 1} more",
        client_count=max(len(clients), *(counter.client_count for counter in counters)),
        clients=tuple(clients.values()),
        **of("events", sum),
        **of("throttled_events", sum),
        **of("throttle_time_ms", sum),
        **of("throttle_time_max_ms", max),
        **of("logged", _logged),
        **of("prediction", _predicted),
        **known("first_throttled_ms", min),
        **known("last_throttled_ms", max),
    )


def _logged(answers: Sequence[Logged]) -> Logged:
    totals = [answer.throttle_time_ms for answer in answers]
    return Logged(
        sum(answer.throttled_events for answer in answers),
        None if None in totals else sum(total or 0 for total in totals),
        max(answer.throttle_time_max_ms for answer in answers),
    )


def _predicted(predictions: Sequence[Prediction]) -> Prediction:
    def joined(name: str, how: Callable[[list[float]], float]) -> Interval:
        intervals = [getattr(prediction, name) for prediction in predictions]
        lows = [interval.low for interval in intervals if interval.low is not None]
        ends = ([getattr(interval, end) for interval in intervals] for end in ("estimate", "high"))
        return Interval(how(lows) if lows else None, *(None if None in values else how(values) for values in ends))

    numbers: dict[str, Any] = {name: joined(name, sum) for name in _ADDED} | {
        name: joined(name, max) for name in _WORST
    }
    return replace(predictions[0], **numbers, times_out=any(prediction.times_out for prediction in predictions))
