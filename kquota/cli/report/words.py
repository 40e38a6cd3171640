"""Findings in words, for the page and for Markdown: who, which quota, when, how bad."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from kquota.cli.text import amount_text, duration, many, period, range_text, rate_text
from kquota.core.findings.finding import Basis, Finding, ranked
from kquota.core.findings.prediction import UNKNOWN, Interval
from kquota.core.findings.whatif import Standing
from kquota.core.quotas.quota import QuotaKey, humanize

_DOING: Final = {
    QuotaKey.PRODUCER_BYTE_RATE: "producing",
    QuotaKey.CONSUMER_BYTE_RATE: "fetching",
    QuotaKey.REQUEST_PERCENTAGE: "time of request threads",
    QuotaKey.CONTROLLER_MUTATION_RATE: "creating and deleting partitions",
    QuotaKey.CONNECTION_CREATION_RATE: "connecting",
}

TIMES_OUT: Final = "time out, reconnect and send again"
"""What clients do whose requests wait longer than their time-out."""

EXEMPTIONS: Final = {
    "acks_0": "with acks=0",
    "follower_fetch": "of followers",
    "forwarded": "forwarded",
    "inter_broker": "among brokers",
}
"""Why the thread time of requests is exempt."""


def doing(found: Finding) -> str:
    """What the quota limits: `producing`."""
    return _DOING[found.key]


def requests(found: Finding) -> str:
    """What the counter's events are called."""
    if found.key is QuotaKey.CONNECTION_CREATION_RATE:
        return "connections"
    if found.basis is not Basis.REQUESTS:
        return "samples"
    return "topics" if found.key is QuotaKey.CONTROLLER_MUTATION_RATE else "requests"


def limit(found: Finding) -> str:
    """The limit, exactly: `300 kB/s`."""
    return humanize(found.key, found.limit)


def rate(found: Finding, value: float) -> str:
    """A measured rate: `359 kB/s`."""
    return rate_text(value, found.key.unit)


def used(found: Finding, value: float) -> str:
    """An amount of what the quota counts: bytes, thread time, partitions."""
    match found.key:
        case QuotaKey.REQUEST_PERCENTAGE:
            return length(round(value / 1e6))
        case QuotaKey.CONTROLLER_MUTATION_RATE:
            return f"{value:,.0f} partitions"
        case QuotaKey.CONNECTION_CREATION_RATE:
            return f"{value:,.0f} connections"
        case _:
            return amount_text(value, "bytes")


def interval(value: Interval, show: Callable[[float], str]) -> str:
    """A number with its bounds: `42 %`, `30 % to 45 %`, `≥ 220 kB/s`; empty where nothing is known of it."""
    low, high = (None if end is None else show(end) for end in (value.low, value.high))
    if low is not None and high is not None:
        return range_text(low, high)
    if low is None and high is None:
        return "" if value.estimate is None else f"about {show(value.estimate)}"
    return f"≥ {low}" if high is None else f"≤ {high}"


def probable(value: Interval, show: Callable[[float], str]) -> str:
    """The same for a sentence, the most probable value first: `about 42 % (30 % to 45 %)`."""
    bounds = interval(value, show)
    if value.estimate is None or value.low is value.high is None:
        return bounds
    most = show(value.estimate)
    return bounds if bounds in {most, f"≥ {most}", f"≤ {most}"} else f"about {most} ({bounds})"


def muted(found: Finding, tell: Callable[[Interval, Callable[[float], str]], str] = interval) -> str:
    """The share of the time in which the busiest connection is muted; `-` where it is not known."""
    if found.prediction is None:
        return "-"
    return tell(found.prediction.muted_share, lambda part: share(min(part, 1.0), 1.0)) or "-"


def longest(found: Finding, tell: Callable[[Interval, Callable[[float], str]], str] = interval) -> str:
    """The longest wait for one answer, where that is not predicted the longest of the replay; `-` without either."""
    told = found.prediction and tell(found.prediction.throttle_time_max_ms, lambda ms: length(round(ms)))
    return told or ("-" if found.throttle_time_max_ms is None else length(found.throttle_time_max_ms))


def delays(standing: Standing) -> tuple[str, str]:
    """The predicted share of the time muted and the longest wait; `-` where nobody is throttled, `?` if not known."""
    told = standing.predicted
    if told is None:
        unknown = "-" if standing.verdict == "not throttled" else "?"
        return unknown, unknown
    muted = interval(told.muted_share, lambda part: share(min(part, 1.0), 1.0))
    return muted or "?", interval(told.throttle_time_max_ms, lambda ms: length(round(ms))) or "?"


def delivered(found: Finding) -> str:
    """What clients get of what they want: `180 kB/s of 220 kB/s`; else the least that they want, where it is known."""
    return " ".join(delivered_parts(found)) or "-"


def delivered_parts(found: Finding) -> tuple[str, ...]:
    """The same in parts that can stand in lines of their own."""
    predicted = found.prediction
    # Thread time is counted in seconds, and its quota is a percentage.
    scale = 100 if found.key is QuotaKey.REQUEST_PERCENTAGE else 1
    sides = (UNKNOWN, UNKNOWN) if predicted is None else (predicted.delivered_per_s, predicted.wanted_per_s)
    got, wanted = (interval(each, lambda value: rate(found, scale * value)) for each in sides)
    if not wanted and found.wanted_at_least is not None:
        wanted = f"≥ {rate(found, found.wanted_at_least)}"
    if not got:
        return ("wanted", wanted) if wanted else ()
    return (got,) if wanted in ("", got) else (got, f"of {wanted}")


def behind(found: Finding) -> str:
    """What is left over at the end of the recorded time, and when it is gone; empty where nothing is."""
    predicted = found.prediction
    if predicted is None or not (predicted.left_units.high or predicted.left_units.estimate):
        return ""
    scale = 1e9 if found.key is QuotaKey.REQUEST_PERCENTAGE else 1
    left = interval(predicted.left_units, lambda value: used(found, scale * value))
    gone = interval(predicted.done_ms, lambda ms: length(round(ms)))
    return f"{left} behind" + (f", gone after {gone}" if gone else "")


def times_out(found: Finding) -> str:
    """A warning where clients give up waiting; else empty."""
    told = found.prediction is not None and found.prediction.times_out
    return f"would {TIMES_OUT}" if told else ""


def delayed_share(found: Finding) -> str:
    """`30 % of its requests delayed`; that it is so, where samples do not say how many."""
    if found.throttled_events is None:
        return "over its limit"
    return f"{share(found.throttled_events, found.events)} of its {requests(found)} delayed"


def suffering(found: Finding) -> str:
    """What the clients of a throttled counter meet, in one breath: `muted 42 % of the time, 2.0 s at the longest`.

    Where the recording cannot say how long they are muted, the share of the delayed requests stands instead.
    """
    told = muted(found, probable)
    most = longest(found, probable)
    parts = (
        delayed_share(found) if told == "-" else f"muted {told} of the time",
        "" if most == "-" else f"{most} at the longest",
        times_out(found),
    )
    return ", ".join(filter(None, parts))


def answer(findings: Sequence[Finding]) -> str:
    """What an audit found, in one sentence: how many limits throttled somebody, and who fares worst."""
    throttled = [found for found in ranked(findings) if found.throttled]
    undetermined = sum(found.undetermined for found in findings)
    # "Limits" are counted as brokers count them: one a counter.
    text = f"{len(throttled)} of {many(len(findings), 'limit')} throttled somebody"
    if not throttled:
        text = f"nobody throttled by {many(len(findings), 'limit')}"
    if undetermined:
        text += f", {undetermined} undetermined"
    if throttled:
        text += f"; worst: {throttled[0].subject}, {suffering(throttled[0])}"
    return text


def length(milliseconds: int) -> str:
    """A length of time: `398 ms`, `12.5 s`, `18 min 10 s`, `4 min`, `29 days 3 h`."""
    if milliseconds >= 2 * 86_400_000:
        days, hours = divmod(round(milliseconds / 3_600_000), 24)
        return f"{days} days {hours} h".removesuffix(" 0 h")
    return duration(milliseconds).removesuffix(" 0 s").removesuffix(" 0 min")


def share(part: float, whole: float) -> str:
    """A share in percent, with a digit behind the point where it is small: `42 %`, `0.3 %`."""
    percent = 100 * part / whole if whole else 0.0
    if 0 < percent < 0.05:
        return "< 0.1 %"
    return f"{percent:.0f} %" if percent >= 10 or percent == 0 else f"{percent:.1f} %"


def peak(found: Finding) -> str:
    """The highest observed rate, and its share of the limit: `359 kB/s, 120 % of the limit`."""
    measured, of_limit = peak_parts(found)
    return f"{measured}, {of_limit} of the limit" if of_limit else measured


def peak_parts(found: Finding) -> tuple[str, str]:
    """The highest observed rate, and its share of the limit; lower bounds, or ranges, where no more is known.

    The share is empty where the limit changed, or is not above 0, as a cluster may hold it.
    """

    def bounded(show: Callable[[float], str]) -> str:
        least = show(found.peak_rate)
        return f"≥ {least}" if found.peak_rate_max is None else range_text(least, show(found.peak_rate_max))

    comparable = found.limit > 0 and not found.limit_changes
    return bounded(lambda value: rate(found, value)), (
        bounded(lambda value: share(value, found.limit)) if comparable else ""
    )


def source(found: Finding) -> tuple[str, str]:
    """Where the limit is set: the entity as commands have it, and the level in words."""
    return str(found.entity), found.level.label


def times(first_ms: int, last_ms: int) -> str:
    """Two moments in UTC to the second, the day once where it is the same."""
    return " ".join(period(first_ms, last_ms))


def moment(start_ms: int, width_ms: int) -> str:
    """When a bin begins, in UTC and no more exactly than it is wide."""
    begin = datetime.fromtimestamp(start_ms / 1000, UTC)
    if width_ms >= 86_400_000:
        return f"{begin:%Y-%m-%d}"
    return f"{begin:%Y-%m-%d %H:%M:%S}" if width_ms < 60_000 else f"{begin:%Y-%m-%d %H:%M}"


def totals(findings: Sequence[Finding]) -> dict[str, Any]:
    """How many counters ended in which verdict; the delayed requests, and the longest delay, as predicted."""
    known = [found for found in findings if found.throttled_events is not None]
    return {
        "counters": len(findings),
        "throttled": sum(found.throttled for found in findings),
        "undetermined": sum(found.undetermined for found in findings),
        "told": all(found.throttled_events is not None for found in findings if found.throttled),
        "delayed": sum(found.throttled_events or 0 for found in known),
        "longest": _longest_of(findings),
    }


def _longest_of(findings: Sequence[Finding]) -> str:
    """The longest delay of all, in words; empty where it is not known."""

    def likely(found: Finding) -> float:
        told = None if found.prediction is None else found.prediction.throttle_time_max_ms.likely
        return float(found.throttle_time_max_ms or 0) if told is None else told

    known = [found for found in findings if found.prediction is not None or found.throttled_events is not None]
    return longest(max(known, key=likely), probable) if known else ""
