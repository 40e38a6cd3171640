"""What follows from the connections in a request log for the quota of an ip.

A connection whose first request is ApiVersions was opened at most `SETUP_MS` before it. A connection whose first
request is another was opened at any time, maybe before the log begins: it is not counted. If none of those connections
were refused, all of them are recorded, and the rate that some of them met is known from below (`bounds.of_totals`). A
limit below that refuses connections. Of any other limit nothing follows, however high it is.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from kquota.audit.evidence.bounds import Window, of_totals
from kquota.audit.findings import SCHEMA
from kquota.audit.sources.data_log import LOWER_BOUND, ConnectionLog, First
from kquota.core.change.history import QuotaHistory
from kquota.core.findings.finding import Basis
from kquota.core.findings.verdicts import Governed, Verdict
from kquota.core.quotas.entity import address
from kquota.core.quotas.quota import QuotaKey
from kquota.core.resolve.resolver import Resolution, resolve_ip

SETUP_MS: Final = 10_000
"""How long setting up a connection takes at most: clients give up then (`socket.connection.setup.timeout.ms`)."""
_KEY: Final = QuotaKey.CONNECTION_CREATION_RATE


def judge_connections(
    logs: Iterable[ConnectionLog], quotas: QuotaHistory, window: Window
) -> tuple[pa.Table, dict[tuple[str, str], Governed]]:
    """(the findings, the counters that each ip's quota governed) under one history of quotas."""
    brokers: dict[str, ConnectionLog] = {}
    for log in logs:
        brokers.setdefault(log.broker, ConnectionLog(log.broker)).merge(log)
    rows: list[dict[str, Any]] = []
    governing: dict[tuple[str, str], Governed] = {}
    for broker, log in sorted(brokers.items()):
        by_address: dict[str, list[First]] = {}
        for ip, firsts in log.firsts.items():
            by_address.setdefault(address(ip), []).extend(firsts.values())
        for ip, seen in sorted(by_address.items()):
            periods = list(_periods(ip, seen, quotas, window))
            for period in periods:
                named = governing.setdefault((_KEY.value, str(period.resolution.entity)), Governed())
                named.add(period.verdict, LOWER_BOUND)
            if periods:
                rows.append(_row(broker, ip, periods))
    return pa.Table.from_pylist(rows, SCHEMA), governing


class _Period(NamedTuple):
    """What was found of an ip while one snapshot was in force."""

    resolution: Resolution
    least: float
    opened: int

    @property
    def verdict(self) -> Verdict:
        limit = self.resolution.limit
        over = limit is not None and self.least > limit >= 0
        return Verdict.THROTTLED if over else Verdict.UNDETERMINED


def _periods(ip: str, firsts: list[First], quotas: QuotaHistory, window: Window) -> Iterator[_Period]:
    """The periods in which the ip was seen and has a limit."""
    times = np.array([first.time_ms for first in firsts], np.int64)
    opened = np.sort(np.array([first.time_ms for first in firsts if first.opens], np.int64))
    for (begin, end), snapshot in zip(
        pairwise([-(1 << 62), *quotas.changes_ms, 1 << 62]), quotas.snapshots, strict=True
    ):
        resolution = resolve_ip(snapshot, ip)
        if resolution.limit is None or not ((times >= begin) & (times < end)).any():
            continue
        within = opened[(opened - SETUP_MS >= begin) & (opened < end)]
        least = of_totals(within - SETUP_MS, within + 1, np.ones(len(within)), window, whole=False).least
        yield _Period(resolution, least, len(within))


def _row(broker: str, ip: str, periods: list[_Period]) -> dict[str, Any]:
    last = periods[-1].resolution
    throttled = any(period.verdict is Verdict.THROTTLED for period in periods)
    opened = sum(period.opened for period in periods)
    limits = [(period.resolution.entity, period.resolution.limit) for period in periods]
    client = {"user": "", "client_id": ip, "events": opened, "value": opened}
    return {
        "broker": broker,
        "key": _KEY.value,
        "sensor": str(last.sensor),
        "entity": str(last.entity),
        "level": int(last.level or 0),
        "limit": float(last.limit or 0),
        "limit_changes": sum(one != other for one, other in pairwise(limits)),
        "verdict": (Verdict.THROTTLED if throttled else Verdict.UNDETERMINED).value,
        "reason": None if throttled else LOWER_BOUND,
        "basis": Basis.CONNECTIONS.value,
        "events": opened,
        "peak_rate": max(period.least for period in periods),
        "estimated_events": 0,
        "rebuilt_events": 0,
        "client_count": 1,
        "clients": [{**client, "throttled_events": None, "throttle_time_ms": None}],
    }
