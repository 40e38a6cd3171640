"""Findings in words, for the page and for Markdown: who, which quota, when, how bad."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import unquote

from kquota.cli.report import Row
from kquota.cli.text import amount_text, duration, range_text, rate_text
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey, humanize
from kquota.core.resolve.resolver import Level

_DOING: Final = {
    QuotaKey.PRODUCER_BYTE_RATE: "producing",
    QuotaKey.CONSUMER_BYTE_RATE: "fetching",
    QuotaKey.REQUEST_PERCENTAGE: "time of request threads",
    QuotaKey.CONTROLLER_MUTATION_RATE: "creating and deleting partitions",
    QuotaKey.CONNECTION_CREATION_RATE: "connecting",
}

EXEMPTIONS: Final = {
    "acks_0": "with acks=0",
    "follower_fetch": "of followers",
    "forwarded": "forwarded",
    "inter_broker": "among brokers",
}
"""Why the thread time of requests is exempt."""


def who(row: Row) -> str:
    """Whose counter it is: `user alice`, `client-id app1`, `user bob, client-id etl`."""
    user, _, client_id = row["sensor"].partition(":")
    if key(row) is QuotaKey.CONNECTION_CREATION_RATE:
        return f"ip {client_id}"
    parts = [f"user {unquote(user)}"] if user else []
    parts += [f"client-id {client_id}"] if client_id else []
    return ", ".join(parts) or "clients without a client-id"


def key(row: Row) -> QuotaKey:
    """The quota key of the counter."""
    return QuotaKey(row["key"])


def doing(row: Row) -> str:
    """What the quota limits: `producing`."""
    return _DOING[key(row)]


def requests(row: Row) -> str:
    """What the counter's events are called."""
    if key(row) is QuotaKey.CONNECTION_CREATION_RATE:
        return "connections"
    if row["basis"] != "requests":
        return "samples"
    return "topics" if key(row) is QuotaKey.CONTROLLER_MUTATION_RATE else "requests"


def limit(row: Row) -> str:
    """The limit, exactly: `300 kB/s`."""
    return humanize(key(row), row["limit"])


def rate(row: Row, value: float) -> str:
    """A measured rate: `359 kB/s`."""
    return rate_text(value, key(row).unit)


def used(row: Row, value: int) -> str:
    """What one client used: bytes, thread time, partitions."""
    match key(row):
        case QuotaKey.REQUEST_PERCENTAGE:
            return length(round(value / 1e6))
        case QuotaKey.CONTROLLER_MUTATION_RATE:
            return f"{value:,} partitions"
        case QuotaKey.CONNECTION_CREATION_RATE:
            return f"{value:,} connections"
        case _:
            return amount_text(value, "bytes")


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


def peak(row: Row) -> str:
    """The highest observed rate as a share of the limit; a lower bound, or two, where that is all there is.

    The rate itself where the limit changed, or is not above 0, as a cluster may hold it.
    """
    least, most = row["peak_rate"], row["peak_rate_max"]
    if not is_share(row):
        return f"≥ {rate(row, least)}" if most is None else range_text(rate(row, least), rate(row, most))
    if most is None:
        return f"≥ {share(least, row['limit'])}"
    return range_text(share(least, row["limit"]), share(most, row["limit"]))


def is_share(row: Row) -> bool:
    """Whether the peak can be told as a share of the limit."""
    changed: bool = row["limit_changes"] > 0
    return row["limit"] > 0 and not changed


def source(row: Row) -> tuple[str, str]:
    """Where the limit is set: the entity as commands have it, and the level in words."""
    return str(Entity.parse(row["entity"])), Level(row["level"]).label


def times(first_ms: int, last_ms: int) -> str:
    """Two moments in UTC to the second, the day once where it is the same."""
    first, last = (datetime.fromtimestamp(time / 1000, UTC) for time in (first_ms, last_ms))
    if first.date() == last.date():
        return f"{first:%Y-%m-%d}, {first:%H:%M:%S} to {last:%H:%M:%S}"
    return f"{first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S}"


def moment(start_ms: int, width_ms: int) -> str:
    """When a bin begins, in UTC and no more exactly than it is wide."""
    begin = datetime.fromtimestamp(start_ms / 1000, UTC)
    if width_ms >= 86_400_000:
        return f"{begin:%Y-%m-%d}"
    return f"{begin:%Y-%m-%d %H:%M:%S}" if width_ms < 60_000 else f"{begin:%Y-%m-%d %H:%M}"


def totals(rows: Sequence[Row]) -> dict[str, Any]:
    """The sums over all counters; delays are those that are known."""
    known = [row for row in rows if row["throttled_events"] is not None]
    return {
        "counters": len(rows),
        "throttled": sum(row["verdict"] == "throttled" for row in rows),
        "undetermined": sum(row["verdict"] == "undetermined" for row in rows),
        "told": all(row["throttled_events"] is not None for row in rows if row["verdict"] == "throttled"),
        "delayed": sum(row["throttled_events"] for row in known),
        "delay_ms": sum(row["throttle_time_ms"] for row in known),
        "longest_ms": max((row["throttle_time_max_ms"] for row in known), default=0),
    }
