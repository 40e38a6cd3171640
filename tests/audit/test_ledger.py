"""Charging, shipping and replaying gives what a plain replay of the same events gives, bit for bit."""

import pickle
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota import DEFAULT, Entity, QuotaKey, QuotaSnapshot, Resolution
from kquota.audit import settings as audit_settings_module
from kquota.audit.engines.portable import decode, encode
from kquota.audit.findings import SCHEMA
from kquota.audit.ledger import charge, loops
from kquota.audit.ledger.charge import Charger
from kquota.audit.ledger.replay import Replay
from kquota.audit.ledger.rows import Ledger
from kquota.audit.settings import AuditSettings, Together
from kquota.core.change.history import QuotaHistory
from kquota.core.enforcement.generation import Generation, QuotaWindows
from kquota.core.resolve.resolver import Resolver
from tests.audit import oracle
from tests.audit.oracle import Event
from tests.support.scheduling import examples

ALICE = AuditSettings(QuotaHistory.of(QuotaSnapshot({Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: 1}})))


def charged(
    parts: Sequence[Sequence[Event]], audit_settings: AuditSettings, buckets: int, each: int = 1
) -> dict[int, list[Ledger]]:
    """The ledgers by bucket: two chargers in turn, as if on two executors, each with so many batches to a ledger."""
    shipped: dict[int, list[Ledger]] = defaultdict(list)
    chargers = [Charger(audit_settings) for _ in range(2)]
    for number in range(0, len(parts), each):
        charger = chargers[number // each % 2]
        for part in parts[number : number + each]:
            charger.charge(oracle.batch(part))
        for ledger in charger.take((number, 0)):
            for bucket, mine in ledger.parted(buckets):
                shipped[bucket].append(decode(encode(mine)))
    return shipped


def audit(
    parts: Sequence[Sequence[Event]], audit_settings: AuditSettings, buckets: int, each: int = 1
) -> list[pa.Table]:
    """Both halves of an audit without an engine; ledgers come in any order."""
    shipped = charged(parts, audit_settings, buckets, each)
    tables = [Replay(ledgers[::-1], audit_settings).tables() for ledgers in shipped.values()]
    return [
        pa.concat_tables([SCHEMA.empty_table(), *(table[variant] for table in tables)])
        for variant in range(len(audit_settings.variants))
    ]


@given(
    events=oracle.event_lists(),
    quotas=oracle.quota_histories(),
    against=st.none() | oracle.quota_histories(),
    each=st.integers(1, 3),
    cuts=st.lists(st.integers(0, 120), max_size=4),
    buckets=st.integers(1, 5),
    generation=st.sampled_from(Generation),
    windows=st.builds(QuotaWindows, st.integers(1, 11), st.integers(1, 2)),
)
@settings(max_examples=examples(60), deadline=None)
def test_equals_a_plain_replay(
    events: list[Event],
    quotas: QuotaHistory,
    against: QuotaHistory | None,
    each: int,
    cuts: list[int],
    buckets: int,
    generation: Generation,
    windows: QuotaWindows,
) -> None:
    """However the events are cut into batches and ledgers, and the counters into buckets."""
    audit_settings = AuditSettings(quotas, generation, windows, against=against)
    edges = sorted({0, len(events), *(cut for cut in cuts if cut < len(events))})
    parts = [events[begin:end] for begin, end in pairwise(edges)]

    found = audit(parts, audit_settings, buckets, each)

    for variant, table in zip(audit_settings.variants, found, strict=True):
        expected = oracle.findings(events, replace(audit_settings, quotas=variant, against=None))
        assert oracle.as_expected(table) == expected


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 1 << 40)), min_size=1, max_size=9))
def test_loops_run_plain_without_numba(rows: list[tuple[int, int]]) -> None:
    """With the same results."""
    codes, values = (np.array(column) for column in zip(*rows, strict=True))
    for loop, arguments in (
        (loops.totals, (codes, values, 4)),
        (loops._dense_codes, (values, np.zeros(len(rows), np.int32), 64)),
        (loops.client_keys, (codes, values, 0 * codes, values, 0 * codes, values, 0 * codes, 3)),
    ):
        with np.errstate(over="ignore"):
            plain = loop.__wrapped__(*arguments)  # type: ignore[attr-defined]
        for found, expected in zip(loop(*arguments), plain, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_names_the_busiest_clients_of_a_shared_counter() -> None:
    """Most bytes first; how many share it is said even where only some are named."""
    events = [
        Event(oracle.START_MS + number, "1", "alice", f"app{number % 3}", "produce", 1000 * (number % 3 + 1), 0, 0)
        for number in range(6)
    ]

    audit_settings = replace(ALICE, top_clients=2, per_client=True)
    (row,) = audit([events[:2], events[2:]], audit_settings, 3)[0].to_pylist()

    assert row["sensor"] == "alice:"
    assert row["client_count"] == 3
    times = [client.pop("throttle_time_ms") for client in row["clients"]]
    assert min(times) > 0
    assert sum(times) < row["throttle_time_ms"]
    unlogged = {"logged_throttled_events": 0}
    assert row["clients"] == [
        {"user": "alice", "client_id": "app2", "events": 2, "value": 6000, "throttled_events": 2, **unlogged},
        {"user": "alice", "client_id": "app1", "events": 2, "value": 4000, "throttled_events": 2, **unlogged},
    ]


def test_counts_events_without_a_quota() -> None:
    """They are charged to nobody."""
    charger = Charger(ALICE)
    charger.charge(
        oracle.batch([Event(oracle.START_MS, "1", user, "a", "produce", 1, 0, 0) for user in ("bob", "alice", "bob")])
    )
    (ledger,) = charger.take((0, 0))

    assert charger.ungoverned == 2
    assert len(ledger) == 1
    assert ledger.charges.column("sensor").to_pylist() == ["alice:"]


def test_settings_travel() -> None:
    """Executors get the settings by pickle."""
    assert pickle.loads(pickle.dumps(ALICE)) == ALICE


def test_a_ledger_says_who_its_rows_are_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of one charger, of a copy that knows nobody yet, and of one that met too many and has forgotten them."""
    batch = oracle.batch([Event(1, "b", "alice", client, "produce", 10, 0, -1) for client in ("a", "c")])
    charger = Charger(ALICE)

    def taken(one: Charger) -> pa.Table:
        one.charge(batch)
        (ledger,) = one.take((0, 0))
        return ledger.charges

    first = taken(charger)
    assert first.column("client_id").to_pylist() == ["a", "c"]
    assert taken(charger) == first
    assert taken(pickle.loads(pickle.dumps(charger))) == first
    monkeypatch.setattr(charge, "KEPT_CLIENTS", 1)
    assert [taken(charger), taken(charger)] == [first, first]
    assert not list(charger.take((0, 0)))


def test_how_counters_are_kept_together_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a look at every quota: of many, once for each counter would be most of an audit."""
    asked: list[object] = []

    def together(*quotas: QuotaHistory) -> Together:
        asked.append(quotas)
        return Together.USER

    monkeypatch.setattr(audit_settings_module, "together", together)
    limits = {QuotaKey.PRODUCER_BYTE_RATE: 1, QuotaKey.REQUEST_PERCENTAGE: 1}
    quotas = QuotaSnapshot({Entity(user=f"user-{number}"): limits for number in range(9)})
    charger = Charger(AuditSettings(QuotaHistory.of(quotas)))
    charger.charge(
        oracle.batch([Event(number, "1", f"user-{number}", "app", "produce", 1, 1, 0) for number in range(9)])
    )
    assert len(next(charger.take((0, 0)))) == 18
    assert len(asked) == 1


def test_one_resolution_stands_for_all_clients_that_no_quota_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million clients under a default would be a million resolutions; whom quotas name is resolved for itself."""
    asked: list[tuple[str, str]] = []
    whole = Resolver.resolve

    def resolve(self: Resolver, user: str, client_id: str) -> Resolution:
        asked.append((user, client_id))
        return whole(self, user, client_id)

    monkeypatch.setattr(Resolver, "resolve", resolve)
    users = ["", "alice", *(f"user-{number}" for number in range(500))]
    events = [Event(0, "1", user, client, "produce", 1, 0, 0) for user in users for client in ("", "app", "other")]
    values = {Entity(user=DEFAULT): 1, Entity(user="alice", client_id="app"): 2}
    quotas = QuotaSnapshot({entity: {QuotaKey.PRODUCER_BYTE_RATE: value} for entity, value in values.items()})
    (ledger,) = charged([events], AuditSettings(QuotaHistory.of(quotas)), 1)[0]

    assert len(asked) == len(set(asked)) == 3 * 3
    governed = {"alice:", "alice:app", *(f"user-{number}:" for number in range(500))}
    assert set(ledger.charges.column("sensor").to_pylist()) == governed
