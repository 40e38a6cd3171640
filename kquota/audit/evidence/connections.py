"""What follows from the connections in a request log for the quota of an ip.

A connection whose first request is ApiVersions was opened at most `SETUP_MS` before it. A connection whose first
request is another was opened at any time, maybe before the log begins: it is not counted. If none of those connections
were refused, all of them are recorded, and the rate that some of them met is known from below (`bounds.of_totals`). A
limit below that refuses connections. Of any other limit nothing follows, however high it is.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kquota.audit.evidence.accounts import Account
from kquota.audit.evidence.bounds import Window, of_totals
from kquota.audit.evidence.judge import Judgement, row_of
from kquota.audit.findings import SCHEMA
from kquota.audit.sources.data_log import LOWER_BOUND, ConnectionLog, First
from kquota.core.change.history import QuotaHistory
from kquota.core.findings.finding import Basis
from kquota.core.findings.verdicts import Governed, Verdict
from kquota.core.quotas.entity import address
from kquota.core.resolve.resolver import resolve_ip

SETUP_MS: Final = 10_000
"""How long setting up a connection takes at most: clients give up then (`socket.connection.setup.timeout.ms`)."""


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
            judgements = list(_judgements(ip, seen, quotas, window))
            for judgement in judgements:
                judgement.tell(governing)
            if judgements:
                last = judgements[-1].resolution
                row = row_of(broker, last.key.value, str(last.sensor), judgements)
                client = {"user": "", "client_id": ip, "events": row["events"], "value": row["events"]}
                rows.append(row | {"basis": Basis.CONNECTIONS.value, "clients": [client]})
    return pa.Table.from_pylist(rows, SCHEMA), governing


def _judgements(ip: str, firsts: list[First], quotas: QuotaHistory, window: Window) -> Iterator[Judgement]:
    """What was found in each period in which the ip was seen and has a limit."""
    times = np.array([first.time_ms for first in firsts], np.int64)
    opened = np.sort(np.array([first.time_ms for first in firsts if first.opens], np.int64))
    for (begin, end), snapshot in zip(
        pairwise([-(1 << 62), *quotas.changes_ms, 1 << 62]), quotas.snapshots, strict=True
    ):
        resolution = resolve_ip(snapshot, ip)
        if resolution.limit is None or not ((times >= begin) & (times < end)).any():
            continue
        within = opened[(opened - SETUP_MS >= begin) & (opened < end)]
        bounds = of_totals(within - SETUP_MS, within + 1, np.ones(len(within)), window, whole=False)
        is_over = bounds.least > resolution.limit >= 0
        verdict, reason = (Verdict.THROTTLED, None) if is_over else (Verdict.UNDETERMINED, LOWER_BOUND)
        yield Judgement(resolution, verdict, reason, bounds, [Account(times=within)], {str(resolution.entity)})
