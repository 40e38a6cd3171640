"""The audit said again in the plainest way: one process, one list per counter, plain Python. And random usage."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from kquota import DEFAULT, Entity, QuotaKey, QuotaSnapshot
from kquota.audit.batch import API_KINDS, Batch, Column
from kquota.audit.evidence.simulate import OTHER_QUOTA
from kquota.audit.settings import AuditSettings
from kquota.core.change.history import QuotaHistory
from kquota.core.enforcement.kernel import Mode, kernel
from kquota.core.enforcement.kind import FETCH, PRODUCE, REQUEST
from kquota.core.findings.verdicts import HELD_BACK
from kquota.core.resolve.resolver import Resolver
from tests.support.enforcement import Summary, replay_counter


class Event(NamedTuple):
    time_ms: int
    broker: str
    user: str
    client_id: str
    api: str
    bytes: int
    request_ns: int
    throttle_ms: int


@dataclass(frozen=True)
class Expected:
    """What a finding should say."""

    limit: float
    events: int
    throttled: int
    total_ms: int
    max_ms: int
    first_ms: int | None
    last_ms: int | None
    peak_rate: float
    logged: int
    logged_ms: int
    mean_rate: float = field(default=0.0, compare=False)
    """From the first charge to the last one, of which a finding says nothing."""


_KINDS = {
    QuotaKey.PRODUCER_BYTE_RATE: PRODUCE,
    QuotaKey.CONSUMER_BYTE_RATE: FETCH,
    QuotaKey.REQUEST_PERCENTAGE: REQUEST,
}


_Charge = tuple[int, int, int, float, tuple[str, str]]
"""(time, value, logged throttle time, limit, client)"""


def _charged(events: Sequence[Event], settings: AuditSettings) -> dict[tuple[str, QuotaKey, str], list[_Charge]]:
    """What each counter, (broker, key, sensor), is charged; events of one moment in the order given."""
    keys = {"produce": QuotaKey.PRODUCER_BYTE_RATE, "fetch": QuotaKey.CONSUMER_BYTE_RATE}
    charged: dict[tuple[str, QuotaKey, str], list[_Charge]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event.time_ms):
        uses = [(QuotaKey.REQUEST_PERCENTAGE, event.request_ns)]
        if event.api in keys:
            uses.append((keys[event.api], event.bytes))
        for key, value in uses:
            resolution = Resolver.of(settings.quotas.at(event.time_ms), key).resolve(event.user, event.client_id)
            if resolution.limit is not None:
                name = (event.broker, key, str(resolution.sensor))
                client = event.user, event.client_id
                charged[name].append((event.time_ms, value, event.throttle_ms, float(resolution.limit), client))
    return charged


def _replayed(key: QuotaKey, rows: Sequence[_Charge], settings: AuditSettings) -> tuple[Summary, list[int]]:
    """What comes of the charges of a counter, and the delay of each."""
    delays = [0] * len(rows)
    summary = replay_counter(
        _KINDS[key],
        [row[0] for row in rows],
        [float(row[1]) for row in rows],
        None,
        windows=settings.windows,
        generation=settings.generation,
        event_limits=[row[3] for row in rows],
        delays=delays,
        using=kernel(Mode.PLAIN),
    )
    return summary, delays


def client_throttles(
    events: Sequence[Event], settings: AuditSettings
) -> dict[tuple[str, str, str], tuple[int, int, set[str]]]:
    """Of each (key, user, client-id) that is throttled: the throttled events, their delays, and the brokers."""
    found: dict[tuple[str, str, str], tuple[int, int, set[str]]] = {}
    for (broker, key, _), rows in _charged(events, settings).items():
        _, delays = _replayed(key, rows, settings)
        for row, delay in zip(rows, delays, strict=True):
            if delay > 0:
                client = (key.value, *row[4])
                count, total, brokers = found.get(client, (0, 0, set()))
                found[client] = count + 1, total + delay, brokers | {broker}
    return found


def findings(events: Sequence[Event], settings: AuditSettings) -> dict[tuple[str, str, str], Expected]:
    """The expected findings by (broker, key, sensor)."""
    found = {}
    for (broker, key, sensor), rows in _charged(events, settings).items():
        summary, _ = _replayed(key, rows, settings)
        logged = [row[2] for row in rows]
        seconds = max(rows[-1][0] - rows[0][0], 1000) / 1000
        charged = sum(row[1] for row in rows) / (1e7 if key is QuotaKey.REQUEST_PERCENTAGE else 1)
        found[broker, key.value, sensor] = Expected(
            limit=rows[-1][3],
            events=len(rows),
            throttled=summary.throttled,
            total_ms=summary.total_ms,
            max_ms=summary.max_ms,
            first_ms=summary.first_ms if summary.throttled else None,
            last_ms=summary.last_ms if summary.throttled else None,
            peak_rate=summary.peak_rate,
            logged=sum(value > 0 for value in logged),
            logged_ms=sum(logged),
            mean_rate=charged / seconds,
        )
    return found


def as_expected(
    table: pa.Table, replayed: Mapping[tuple[str, str, str], Expected] | None = None
) -> dict[tuple[str, str, str], Expected]:
    """A findings table in the oracle's form.

    Where nothing is throttled, and the log shows that it was while it was recorded, the findings leave the counts open,
    or have the log's: where nothing is throttled in what was `replayed`. The log has no connections. So they are open
    as well where a quota of another kind throttles on the same broker, and where clients that were held back stay below
    the limit on average: what comes in a burst may be what a mute held back.
    """
    found = {}
    for row in table.to_pylist():
        # Under a history of quotas, the brokers' own throttle times decide what the replay does not throttle.
        name = row["broker"], row["key"], row["sensor"]
        is_replayed = row["throttle_time_ms"] is not None and (not replayed or replayed[name].throttled > 0)
        by_the_log = row["verdict"] == "throttled" and not is_replayed
        was_held, other_quota = row["reason"] == HELD_BACK, str(row["reason"]).startswith(OTHER_QUOTA)
        if replayed and (other_quota or (was_held and replayed[name].throttled)):
            others = [
                each for (broker, key, _), each in replayed.items() if broker == row["broker"] and key != row["key"]
            ]
            assert any(other.throttled for other in others) if other_quota else row["logged_throttled_events"] > 0
            assert other_quota or replayed[name].mean_rate <= row["limit"]
            assert row["throttled_events"] is None
            row |= {f"{which}_throttled_ms": getattr(replayed[name], f"{which}_ms") for which in ("first", "last")}
            row |= {"throttled_events": replayed[name].throttled, "throttle_time_ms": replayed[name].total_ms}
            row["throttle_time_max_ms"] = replayed[name].max_ms
        elif was_held or by_the_log:
            assert row["logged_throttled_events"] > 0
            assert row["throttled_events"] in (None, row["logged_throttled_events"])
            assert row["throttle_time_ms"] in (None, row["logged_throttle_time_ms"])
            assert (row["throttled_events"] is None) == (row["first_throttled_ms"] is None)
            row |= {"throttled_events": 0, "throttle_time_ms": 0, "throttle_time_max_ms": 0}
            row |= {"first_throttled_ms": None, "last_throttled_ms": None}
        found[name] = Expected(
            limit=row["limit"],
            events=row["events"],
            throttled=row["throttled_events"],
            total_ms=row["throttle_time_ms"],
            max_ms=row["throttle_time_max_ms"],
            first_ms=row["first_throttled_ms"],
            last_ms=row["last_throttled_ms"],
            peak_rate=row["peak_rate"],
            logged=row["logged_throttled_events"],
            logged_ms=row["logged_throttle_time_ms"],
        )
    return found


def batch(events: Sequence[Event]) -> Batch:
    def numbers(name: str) -> Any:
        return np.array([getattr(event, name) for event in events], np.int64)

    return Batch(
        broker=Column.encode([event.broker for event in events]),
        user=Column.encode([event.user for event in events]),
        client_id=Column.encode([event.client_id for event in events]),
        kind=np.array([API_KINDS.get(event.api, REQUEST) for event in events], np.uint8),
        time_ms=numbers("time_ms"),
        bytes=numbers("bytes"),
        request_ns=numbers("request_ns"),
        request_complete=True,
        throttle_ms=numbers("throttle_ms"),
    )


def usage_table(events: Sequence[Event]) -> pa.Table:
    names = {"request_ns": "request_time_ns", "throttle_ms": "throttle_time_ms"}
    return pa.table({names.get(name, name): [getattr(event, name) for event in events] for name in Event._fields})


def write_files(events: Sequence[Event], folder: Path, count: int) -> None:
    """The events as that many Parquet files of several row groups each."""
    for number, rows in enumerate(np.array_split(np.arange(len(events)), count)):
        if len(rows):
            table = usage_table(events[rows[0] : rows[-1] + 1])
            pq.write_table(table, folder / f"{number:04}.parquet", row_group_size=200)


USERS, CLIENTS, BROKERS = ["alice", "bob", "CN=c,O=x"], ["app1", "app2", ""], ["1", "2"]
START_MS = 1_700_000_000_000


@st.composite
def event_lists(draw: st.DrawFn) -> list[Event]:
    """Bursts, idle gaps and equal times; a few events out of order, as in a log of many threads."""
    count = draw(st.integers(1, 120))
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    gaps = random.choice([0, 1, 7, 300, 1000, 12_000], count, p=[0.3, 0.3, 0.2, 0.1, 0.07, 0.03])
    times = START_MS + np.cumsum(gaps) - random.choice([0, 3], count, p=[0.9, 0.1])
    return [
        Event(
            int(time),
            str(random.choice(BROKERS)),
            str(random.choice(USERS)),
            str(random.choice(CLIENTS)),
            str(random.choice(["produce", "fetch", "metadata"], p=[0.5, 0.4, 0.1])),
            int(random.integers(0, 5000)),
            int(random.integers(0, 40_000_000)),
            int(random.choice([0, 0, 0, 25])),
        )
        for time in times
    ]


@st.composite
def many_logs(draw: st.DrawFn) -> list[Event]:
    """Twenty such logs in one, each of brokers of its own; in the order of a folder that is read file by file."""
    logs = draw(st.lists(event_lists(), min_size=20, max_size=20))
    return [event._replace(broker=f"{number}-{event.broker}") for number, events in enumerate(logs) for event in events]


@st.composite
def quota_histories(draw: st.DrawFn) -> QuotaHistory:
    """Quotas that change a few times while the events happen, or never."""
    moments = sorted(draw(st.sets(st.integers(0, 120_000), max_size=3)))
    snapshots = tuple(draw(quota_snapshots()) for _ in range(len(moments) + 1))
    return QuotaHistory(snapshots, tuple(START_MS + moment for moment in moments))


@st.composite
def quota_snapshots(draw: st.DrawFn) -> QuotaSnapshot:
    """Quotas on any of the eight levels, near what the events use."""
    user = st.sampled_from([None, DEFAULT, *USERS])
    client = st.sampled_from([None, DEFAULT, *(name for name in CLIENTS if name)])
    names = st.tuples(user, client).filter(lambda pair: pair != (None, None))
    entities = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    values = st.dictionaries(
        st.sampled_from([QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE]),
        st.integers(1, 3000),
        min_size=1,
    )
    return QuotaSnapshot({Entity(user=u, client_id=c): draw(values) for u, c in entities})
