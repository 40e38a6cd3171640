"""Packing, shuffling and replaying gives what a plain replay of the same events gives, bit for bit."""

from __future__ import annotations

import pickle
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kquota.audit import local, replay, stages
from kquota.audit.batch import UNKNOWN
from kquota.audit.findings import SCHEMA
from kquota.audit.pack import Packer
from kquota.audit.portable import decode, encode
from kquota.audit.replay import Replay, find
from kquota.audit.segment import Segment
from kquota.audit.settings import AuditSettings
from kquota.audit.sources import Split
from kquota.core.change.history import QuotaHistory
from kquota.core.enforcement.generation import Generation, QuotaWindows
from kquota.core.quotas.entity import Entity
from kquota.core.quotas.quota import QuotaKey
from kquota.core.quotas.snapshot import QuotaSnapshot
from tests.audit import oracle
from tests.audit.oracle import Event


def audit(parts: Sequence[Sequence[Event]], audit_settings: AuditSettings, buckets: int) -> list[pa.Table]:
    """Both sides of the job without Spark: a packer for every second part, as if on two executors."""
    shuffled: dict[int, list[Segment]] = defaultdict(list)
    packers = [
        [
            Packer(quotas, buckets, variant, audit_settings.per_client)
            for variant, quotas in enumerate(audit_settings.variants)
        ]
        for _ in range(2)
    ]
    for number, part in enumerate(parts):
        for packer in packers[number % 2]:
            for bucket, segment in packer.pack(oracle.batch(part), (number, 0)):
                shuffled[bucket].append(decode(encode(segment)))
    tables = [find(reversed(segments), audit_settings) for segments in shuffled.values()]
    return [
        pa.concat_tables([SCHEMA.empty_table(), *(table[variant] for table in tables)])
        for variant in range(len(audit_settings.variants))
    ]


@pytest.mark.usefixtures("loops")
@given(
    events=oracle.event_lists(),
    quotas=oracle.quota_histories(),
    against=st.none() | oracle.quota_histories(),
    flush=st.sampled_from([1, 30, replay.FLUSH_ROWS]),
    cuts=st.lists(st.integers(0, 120), max_size=4),
    buckets=st.integers(1, 5),
    generation=st.sampled_from(Generation),
    windows=st.builds(QuotaWindows, st.integers(1, 11), st.integers(1, 2)),
)
@settings(max_examples=60, deadline=None)
def test_equals_a_plain_replay(
    events: list[Event],
    quotas: QuotaHistory,
    against: QuotaHistory | None,
    flush: int,
    cuts: list[int],
    buckets: int,
    generation: Generation,
    windows: QuotaWindows,
) -> None:
    """However the events are cut into batches, the counters into buckets and the replay into parts."""
    audit_settings = AuditSettings(quotas, generation, windows, against=against)
    edges = sorted({0, len(events), *(cut for cut in cuts if cut < len(events))})
    parts = [events[begin:end] for begin, end in pairwise(edges)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "FLUSH_ROWS", flush)
        found = audit(parts, audit_settings, buckets)

    for variant, table in zip(audit_settings.variants, found, strict=True):
        expected = oracle.findings(events, replace(audit_settings, quotas=variant, against=None))
        assert oracle.as_expected(table) == expected


@given(
    events=oracle.event_lists(),
    quotas=oracle.quota_histories(),
    parts=st.integers(1, 12),
    held=st.integers(1, 20),
)
@settings(max_examples=60, deadline=None)
def test_memory_does_not_depend_on_the_order(events: list[Event], quotas: QuotaHistory, parts: int, held: int) -> None:
    """Each batch spans all of the time: what waits goes to the disk, and the findings are the same."""
    shuffled = [event for part in range(parts) for event in events[part::parts]]
    packer = Packer(quotas, 1)
    segments = [
        segment
        for part in range(parts)
        if events[part::parts]
        for _, segment in packer.pack(oracle.batch(events[part::parts]), (part, 0))
    ]
    most_at_once = max(Counter(event.time_ms for event in events).values())
    keys = 2  # an event is charged to two counters
    largest = max(map(len, segments), default=0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "FLUSH_ROWS", held)
        patch.setattr(replay, "HELD_ROWS", held)
        replayed = Replay(AuditSettings(quotas))
        patch.setattr(replayed, "_hold", counted := Held(replayed))
        for segment in sorted(segments, key=lambda segment: segment.base_ms):
            replayed.add(segment)
        (table,) = replayed.finish()

    assert oracle.as_expected(table) == oracle.findings(shuffled, AuditSettings(quotas))
    assert counted.most <= 3 * held + largest + keys * most_at_once


class Held:
    """`Replay._hold`, and the most events that it ever held."""

    def __init__(self, replayed: Replay) -> None:
        self._hold, self._replayed, self.most = replayed._hold, replayed, 0

    def __call__(self, segment: Segment) -> None:
        """Holds a segment."""
        self._hold(segment)
        self.most = max(self.most, sum(map(len, self._replayed._held)))


@pytest.mark.parametrize("length", [40, 400])
def test_memory_does_not_grow_with_the_length(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    """Batches in the order of time: what is replayed is forgotten, and nothing goes to the disk."""
    monkeypatch.setattr(replay, "FLUSH_ROWS", 1000)
    monkeypatch.setattr(replay, "HELD_ROWS", 2000)
    quotas = QuotaHistory.of(QuotaSnapshot({Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: 1}}))
    packer, replayed = Packer(quotas, 1), Replay(AuditSettings(quotas))
    counted = Held(replayed)
    monkeypatch.setattr(replayed, "_hold", counted)

    for number in range(length):
        # Each batch overlaps the next by half, as rotated files of several brokers do.
        times = [oracle.START_MS + number * 100 + row for row in range(200)]
        batch = oracle.batch([Event(time, "1", "alice", "app", "produce", 1, 0, 0) for time in times])
        for _, segment in packer.pack(batch, (number, 0)):
            replayed.add(segment)
    (table,) = replayed.finish()

    assert counted.most <= 1600
    assert table.column("events").to_pylist() == [200 * length]


def test_a_retry_on_the_disk_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a fetch tried to read is told by its retry, also when a segment is next that begins long after both."""
    quotas = QuotaHistory.of(QuotaSnapshot({Entity(user="alice"): {QuotaKey.CONSUMER_BYTE_RATE: 1_000_000}}))
    packer = Packer(quotas, 1)
    sizes = [
        {0: UNKNOWN, 1: 1, 2: 1, 1000: 5000, 1001: 1, 1002: 1, 2_000_000: 1},
        {500: 1},
        {600: 1, 601: 1, 602: 1, 603: 1},
        {1_500_000: 1},
    ]
    segments = []
    for number, part in enumerate(sizes):
        batch = oracle.batch([Event(time, "1", "alice", "app", "fetch", size, 0, 0) for time, size in part.items()])
        connection = np.array([7 if size in (UNKNOWN, 5000) else 8 for size in part.values()], np.int64)
        segments += [segment for _, segment in packer.pack(replace(batch, connection=connection), (number, 0))]
    (expected,) = find(segments, AuditSettings(quotas))

    monkeypatch.setattr(replay, "FLUSH_ROWS", 4)
    monkeypatch.setattr(replay, "HELD_ROWS", 4)
    (found,) = find(segments, AuditSettings(quotas))

    assert found == expected
    assert found.column("estimated_events").to_pylist() == [1]


def test_names_the_busiest_clients_of_a_shared_counter() -> None:
    """Most bytes first; how many share it is said even where only some are named."""
    quotas = QuotaSnapshot({Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: 1}})
    events = [
        Event(oracle.START_MS + number, "1", "alice", f"app{number % 3}", "produce", 1000 * (number % 3 + 1), 0, 0)
        for number in range(6)
    ]

    audit_settings = AuditSettings(QuotaHistory.of(quotas), top_clients=2, per_client=True)
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
    packer = Packer(QuotaHistory.of(QuotaSnapshot({Entity(user="bob"): {QuotaKey.PRODUCER_BYTE_RATE: 1}})), 1)
    events = [Event(oracle.START_MS, "1", user, "app1", "produce", 1, 0, 0) for user in ("alice", "bob", "alice")]

    segments = list(packer.pack(oracle.batch(events), (0, 0)))

    assert packer.ungoverned == 2
    assert [sensor for _, each in segments if each.introduction for sensor in each.introduction.sensor.texts()] == [
        "bob:"
    ]


def test_settings_travel() -> None:
    """Executors get the settings by pickle."""
    sent = AuditSettings(QuotaHistory.of(QuotaSnapshot({Entity(user="bob"): {QuotaKey.PRODUCER_BYTE_RATE: 1}})))

    assert pickle.loads(pickle.dumps(sent)) == sent


def test_packers_belong_to_their_owner() -> None:
    """The tasks of one owner have the same packers, which introduce everybody to each; no other owner has them."""
    quotas = QuotaHistory.of(QuotaSnapshot({Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: 1}}))
    owner, other = (stages.Packers(AuditSettings(quotas), 1) for _ in range(2))
    batch = oracle.batch([oracle.Event(1, "b", "alice", "app", "produce", 10, 0, -1)])

    def introduced(packers: stages.Packers) -> list[int]:
        (begun,) = packers.begin()
        (segment,) = (segment for _, segment in begun.pack(batch, (0, 0)))
        assert segment.introduction is not None
        return [int(each) for each in segment.introduction.counter_ids]

    first = introduced(owner)
    (kept,) = owner.begin()
    assert introduced(other) == introduced(owner) == first
    assert owner.begin() == [kept]
    assert other.begin()[0] is not kept
    assert kept.known == 1

    copied = pickle.loads(pickle.dumps(owner))
    assert (copied.settings, copied.buckets) == (owner.settings, owner.buckets)
    assert copied.begin()[0].known == 0


def test_packers_that_met_too_many_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their tables would grow with every task."""
    monkeypatch.setattr(stages, "KEPT_CLIENTS", 1)
    quotas = QuotaHistory.of(QuotaSnapshot({Entity(user="alice"): {QuotaKey.PRODUCER_BYTE_RATE: 1}}))
    packers = stages.Packers(AuditSettings(quotas), 1)
    (first,) = packers.begin()
    events = [oracle.Event(time, "b", "alice", client, "produce", 10, 0, -1) for time, client in ((1, "a"), (2, "b"))]

    assert packers.begin() == [first]
    assert len([*first.pack(oracle.batch(events), (0, 0))]) == 1
    assert packers.begin()[0] is not first


def test_each_split_is_taken_once(tmp_path: Path) -> None:
    """Two processes that look for splits at the same time share them, whoever is faster."""
    splits = [Split("usage", f"{number}.csv", 0, -1, 1) for number in range(7)]
    one, other = (local._taken(splits, str(tmp_path)) for _ in range(2))
    taken = [next(one), next(other), next(other), *one, *other]

    assert [number for number, _ in taken[:3]] == [0, 1, 2]
    assert sorted(taken) == list(enumerate(splits))
